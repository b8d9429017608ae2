"""OAuth redirects: the local listener, pasted redirect URLs, and validation of both."""

import hmac
import html
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fairlead.config.command_lines import command_line
from fairlead.errors import ListenFailed, LoginFailed
from fairlead.net.port_owner import explain_bind_error

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
    """A redirect that does not belong to the login under way. The text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthorizationAnswer:
    """A redirect that belongs to the login under way: with a code, or an error."""

    query: str
    error: str | None

    @property
    def page(self) -> str:
        """The text that the browser shows after the redirect."""
        if self.error is None:
            return page("You are back", "Fairlead has its answer. You can close this window.")
        return page("The login was refused", f"You can close this window. The reason given: {self.error}")


def read_expected_state(url: str) -> str:
    """The `state` parameter of an authorization request URL."""
    states = parse_qs(urlsplit(url).query).get("state", [])
    if len(states) != 1:
        raise ValueError("the URL of the login page must have one `state`")
    return states[0]


def read_answer(query: str, state: str) -> AuthorizationAnswer:
    """Validate a redirect against the `state` that was sent. Raises `NotTheAnswer`."""
    if len(query) > MAX_CHARACTERS:
        raise NotTheAnswer("it is too long")
    fields = parse_qsl(query, keep_blank_values=True)
    values = dict(fields)
    # RFC 6749, 3.1: no parameter twice. Which of two `state`s counts would be up to the parser.
    if len(values) != len(fields):
        raise NotTheAnswer("it has a parameter twice")
    if "state" not in values:
        raise NotTheAnswer("it has no `state`, so the login it belongs to is unknown")
    # A terminal hands on bytes that are not UTF-8 as lone surrogates, which have no encoding of their own.
    if not hmac.compare_digest(values["state"].encode(errors="surrogatepass"), state.encode()):
        raise NotTheAnswer("it belongs to another login")
    if not values.get("code") and not values.get("error"):
        raise NotTheAnswer("it has neither a code nor an error")
    error = values.get("error_description") or values.get("error") or None
    return AuthorizationAnswer(query=query, error=error)


def read_pasted(text: str, state: str) -> AuthorizationAnswer:
    """Parse what the user pasted: the whole redirect URL, or the part with code and state.

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
    try:
        written = urlencode(parse_qsl(query, keep_blank_values=True))
    except UnicodeEncodeError:
        raise NotTheAnswer("it is not text in UTF-8") from None
    return read_answer(written, state)


def page(title: str, text: str) -> str:
    """A self-contained HTML page; foreign text in it is escaped."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return _PAGE.format(title=html.escape(title), text=html.escape(shown))


# Not `localhost`, which may resolve to another interface or be answered by another program (RFC 8252, 8.3).
HOST: Final = "127.0.0.1"
CALLBACK_PATH: Final = "/callback"
SECONDS: Final = 300.0
REQUEST_SECONDS: Final = 10.0
REGISTERED_PORT: Final = 33_418
"""Port of the redirect URI that a user registers by hand, where the entry has none: issuers compare it."""
PASTE_PORT: Final = 33_419
"""Nothing listens there: the browser fails to connect and shows the URL to paste."""
PASTE_TRIES: Final = 5

Agree: TypeAlias = Callable[[str], Awaitable[bool]]
"""Shows the user the URL of a login page, and asks whether to open it."""
OpenUrl: TypeAlias = Callable[[str], Awaitable[bool]]
"""Opens a page. Returns False if that failed: the user has seen the URL, and can open it."""
AskForAddress: TypeAlias = Callable[[str, str | None], Awaitable[str | None]]
"""Shows the user the URL of a login page, and what was wrong with the last paste; returns what
they paste now, or None where they want no more of it."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    410: "Gone",
    421: "Misdirected Request",
}

logger = logging.getLogger(__name__)


class _PendingRedirect:
    """One login page in the browser, and the redirect that it waits for: over the listener, or pasted."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.answer: AuthorizationAnswer | None = None
        self.done = anyio.Event()
        """Set once the browser has its page, too."""


class BrowserRedirect:
    """Redirect to a local port: the user logs in in the browser, which is sent back there.

    `BrowserRedirect.open` gives one, for one visit. While that waits, `paste` takes the address as well, for
    a user at another machine.
    """

    def __init__(
        self, server_id: str, listener: Listener[SocketStream], agree: Agree, open_url: OpenUrl
    ) -> None:
        self.port = int(listener.extra(SocketAttribute.local_port))  # noqa: S610 - nothing of Django's
        self.seconds = SECONDS
        self._server_id = server_id
        self._listener = listener
        self._agree = agree
        self._open_url = open_url
        self._waiting: _PendingRedirect | None = None
        self._authorities = {f"{host}:{self.port}" for host in (HOST, "localhost")}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, server_id: str, *, agree: Agree, open_url: OpenUrl, port: int | None = None
    ) -> AsyncGenerator[Self]:
        """Listen on a port, any free one unless it is given, for the length of the block."""
        try:
            listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port or 0)
        except OSError as exc:
            why = explain_bind_error(exc, port or 0)
            raise ListenFailed(
                f"cannot listen on {HOST}:{port} for the end of the login: {why}",
                hint="end what uses that port, set another `oauth.callback_port`, or use `--no-browser`",
            ) from exc
        async with listener:
            yield cls(server_id, listener, agree, open_url)

    @property
    def redirect_uri(self) -> str:
        """The redirect URI of the local listener."""
        return f"http://{HOST}:{self.port}{CALLBACK_PATH}"

    async def visit(self, url: str) -> str:
        """Open a login page once the user agreed, and wait for the redirect, or for a paste of it."""
        if not await self._agree(url):
            raise LoginFailed(self._server_id, "the login page was not opened: you declined")
        waiting = self._waiting = _PendingRedirect(read_expected_state(url))
        try:
            with anyio.move_on_after(self.seconds):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listener.serve, self._answer)
                    tasks.start_soon(self._open, url)
                    await waiting.done.wait()
                    tasks.cancel_scope.cancel()
        finally:
            self._waiting = None
            await self._listener.aclose()  # a later redirect is too late
        if waiting.answer is None:
            raise LoginFailed(
                self._server_id,
                f"the login was not completed within {self.seconds:g} s",
                hint=f"run `{command_line('login', self._server_id)}` to try again",
            )
        return f"{self.redirect_uri}?{waiting.answer.query}"

    def paste(self, text: str) -> str | None:
        """Take the pasted redirect URL. Returns what is wrong with it, if anything."""
        waiting = self._waiting
        if waiting is None:
            return "nothing is waited for"
        try:
            answer = read_pasted(text, waiting.state)
        except NotTheAnswer as exc:
            return str(exc)
        if waiting.answer is None:
            waiting.answer = answer
            waiting.done.set()
        return None

    async def _open(self, url: str) -> None:
        try:
            await self._open_url(url)
        except Exception:  # the user has seen the URL, and can open it or paste the redirect
            logger.exception("the login page was not opened", extra={"server_id": self._server_id})

    async def _answer(self, stream: SocketStream) -> None:
        """Answer one request. What is not the answer to the login is answered and has no effect."""
        waiting = self._waiting
        assert waiting is not None
        is_accepted = False
        try:
            async with stream:
                with anyio.fail_after(REQUEST_SECONDS):
                    head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", MAX_CHARACTERS)
                    status, text, is_accepted = self._validate_redirect(head, waiting)
                    await stream.send(_response(status, text))
        except (
            TimeoutError,
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.DelimiterNotFound,
            anyio.BrokenResourceError,
        ):
            pass  # browsers open connections that they do not use, and others send what they like
        finally:
            if is_accepted:
                waiting.done.set()

    def _validate_redirect(self, head: bytes, waiting: _PendingRedirect) -> tuple[int, str, bool]:
        """The status and the page for a request, and whether it is the answer that is waited for."""
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        hosts = [line[5:].strip().lower() for line in lines[1:] if line[:5].lower() == "host:"]
        # DNS rebinding: a page whose name now means this machine must not be able to read or end the login.
        if len(hosts) != 1 or hosts[0] not in self._authorities:
            return 421, page("Wrong address", "This is not where that page is."), False
        if path != CALLBACK_PATH:
            return 404, page("Nothing here", "There is no such page."), False
        if method != "GET":
            return 405, page("Method not allowed", "This page takes GET requests only."), False
        if waiting.answer is not None:
            # Single use: a replayed redirect must not replace the code that is being exchanged.
            return 410, page("Already used", "This login has its answer. You can close this window."), False
        try:
            waiting.answer = read_answer(query, waiting.state)
        except NotTheAnswer as exc:
            return 400, page("Unexpected redirect", f"This is not the redirect of the login: {exc}."), False
        return 200, waiting.answer.page, True


class PastedRedirect:
    """Redirect by hand: the user opens the login page anywhere, and pastes the URL they end up at."""

    def __init__(self, server_id: str, ask: AskForAddress, *, port: int | None = None) -> None:
        self._server_id = server_id
        self._ask = ask
        self._port = port or PASTE_PORT

    @property
    def redirect_uri(self) -> str:
        """The redirect URI, where nothing listens."""
        return f"http://{HOST}:{self._port}{CALLBACK_PATH}"

    async def visit(self, url: str) -> str:
        """Prompt for the redirect URL until it is valid, within a time limit."""
        state, problem = read_expected_state(url), None
        for _ in range(PASTE_TRIES):
            text = await self._ask(url, problem)
            if text is None:
                raise LoginFailed(self._server_id, "nothing was pasted")
            try:
                return f"{self.redirect_uri}?{read_pasted(text, state).query}"
            except NotTheAnswer as exc:
                problem = str(exc)
        raise LoginFailed(
            self._server_id,
            f"what was pasted is not the answer to this login: {problem}",
            hint=f"run `{command_line('login', self._server_id, options=('--no-browser',))}` to try again",
        )


def _response(status: int, text: str) -> bytes:
    body = text.encode()
    headers = {**PAGE_HEADERS, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode() + body
