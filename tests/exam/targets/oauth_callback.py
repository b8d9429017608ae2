"""OAuth redirects: only the answer to this login is taken, and every reader takes the same code from it."""

import html
from urllib.parse import parse_qsl, urlsplit

from fairlead.auth.redirect import (
    MAX_CHARACTERS,
    AuthorizationAnswer,
    NotTheAnswer,
    page,
    read_answer,
    read_pasted,
)
from tests.exam.targets import split

STATE = "s7Qe"
"""The state of the login under way; inputs with another one are someone else's."""


def check(data: bytes) -> None:
    """Take the content as a query and as something that a user pasted."""
    choices, content = split(data)
    text = content.decode(errors="surrogateescape") if choices.number(2) else content.decode("latin-1")
    taken = _check_reader(text)
    pasted = _check_paste(text)
    if taken is not None and pasted is not None:
        assert _fields(pasted)["state"] == STATE


def _check_reader(query: str) -> AuthorizationAnswer | None:
    try:
        answer = read_answer(query, STATE)
    except NotTheAnswer:
        return None
    _check_answer(answer)
    return answer


def _check_paste(text: str) -> AuthorizationAnswer | None:
    try:
        answer = read_pasted(text, STATE)
    except NotTheAnswer:
        return None
    _check_answer(answer)
    # What is handed on is written anew: no reader of URLs finds other fields in it.
    url = urlsplit(f"http://127.0.0.1:1/callback?{answer.query}")
    assert dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=True)) == _fields(answer)
    assert not url.fragment
    return answer


def _check_answer(answer: AuthorizationAnswer) -> None:
    assert len(answer.query) <= MAX_CHARACTERS
    fields = parse_qsl(answer.query, keep_blank_values=True)
    assert [value for name, value in fields if name == "state"] == [STATE]
    assert any(name in ("code", "error") and value for name, value in fields)
    for state in ("", STATE[:-1], f"{STATE}x"):
        try:
            read_answer(answer.query, state)
        except NotTheAnswer:
            continue
        raise AssertionError(f"taken for the login with the state {state!r}")
    # Nothing that another site wrote is markup in the page.
    shown = answer.page
    assert shown.count("<") == page("", "").count("<")
    assert len(shown) <= len(page("", "")) + 6 * 1_000
    if answer.error is not None:
        assert html.escape(answer.error[:100]) in shown


def _fields(answer: AuthorizationAnswer) -> dict[str, str]:
    return dict(parse_qsl(answer.query, keep_blank_values=True))
