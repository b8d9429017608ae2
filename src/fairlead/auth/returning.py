"""What comes back from a login page: which answers are to the question that was asked, and which are not."""

import hmac
import html
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

MAX_CHARACTERS: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 300

PAGE_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} – Fairlead</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 20vh auto 0; padding: 0 1.5rem }}
h1 {{ font-size: 1.4rem }}
p {{ overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
<p>{text}</p>
</html>
"""  # noqa: RUF001 - a dash between a title and a name


class NotTheAnswer(ValueError):
    """What came is not the answer that is waited for; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer to the question that was asked, whether it is a code or an error."""

    query: str
    error: str | None

    @property
    def page(self) -> str:
        """What the person sees in the browser in the end."""
        if self.error is None:
            return page("You are back", "Fairlead has its answer. You can close this window.")
        return page("The login was refused", f"You can close this window. The reason given: {self.error}")


def expected_state(url: str) -> str:
    """The state that a login page is asked to send back."""
    states = parse_qs(urlsplit(url).query).get("state", [])
    if len(states) != 1:
        raise ValueError("the address of the login page has to carry one state")
    return states[0]


def read_answer(query: str, state: str) -> Answer:
    """Check what came back against the state that was sent along. Raises `NotTheAnswer`."""
    if len(query) > MAX_CHARACTERS:
        raise NotTheAnswer("it is too long")
    fields = parse_qsl(query, keep_blank_values=True)
    values = dict(fields)
    if len(values) != len(fields):
        raise NotTheAnswer("it says the same thing twice")
    if "state" not in values:
        raise NotTheAnswer("it has no state, so that nobody can tell which login it belongs to")
    if not hmac.compare_digest(values["state"].encode(), state.encode()):
        raise NotTheAnswer("it belongs to another login")
    if not values.get("code") and not values.get("error"):
        raise NotTheAnswer("it has neither a code nor an error")
    error = values.get("error_description") or values.get("error") or None
    return Answer(query=query, error=error)


def read_pasted(text: str, state: str) -> Answer:
    """Make sense of what a person pasted: the whole address, or the part with the code and the state.

    Terminals and mail programs break long lines, so blanks count for nothing. Raises `NotTheAnswer`.
    """
    pasted = "".join(text[: 2 * MAX_CHARACTERS].split()).strip("<>\"'`")
    if not pasted:
        raise NotTheAnswer("nothing was pasted")
    before, mark, query = pasted.partition("?")
    if not mark:
        query = before
    query = query.partition("#")[0]
    names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    if "response_type" in names or "code_challenge" in names:
        raise NotTheAnswer("it is the address of the login page; paste the one the browser shows afterwards")
    if not names & {"code", "error"}:
        raise NotTheAnswer("it has no code in it; paste the whole address that the browser shows in the end")
    # Written anew: what follows is read by others, who need not be as tolerant.
    return read_answer(urlencode(parse_qsl(query, keep_blank_values=True)), state)


def page(title: str, text: str) -> str:
    """A page that needs nothing but itself; what others wrote is text in it and nothing else."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return _PAGE.format(title=html.escape(title), text=html.escape(shown))
