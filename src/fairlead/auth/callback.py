"""The way to a person's browser and back: over a port of this machine, or by way of the clipboard."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Self, TypeAlias

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fairlead.auth.returning import (
    MAX_CHARACTERS,
    PAGE_HEADERS,
    Answer,
    NotTheAnswer,
    expected_state,
    page,
    read_answer,
    read_pasted,
)
from fairlead.config.command_lines import command_line
from fairlead.errors import ListenFailed, LoginFailed

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
SECONDS: Final = 300.0
REQUEST_SECONDS: Final = 10.0
PASTE_PORT: Final = 33_419
"""Nobody has to listen there: the browser fails to, and shows the address that is wanted."""
PASTE_TRIES: Final = 5

Agree: TypeAlias = Callable[[str], Awaitable[bool]]
"""Shows a person the address of a login page, and asks whether to open it."""
OpenUrl: TypeAlias = Callable[[str], Awaitable[bool]]
"""Opens a page. False where that is not possible: the person has seen the address, and can."""
Ask: TypeAlias = Callable[[str, str | None], Awaitable[str | None]]
"""Shows a person the address of a login page, and what was wrong with what they pasted last; returns what
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


class _Waiting:
    """One visit to a login page: the answer it waits for, from wherever that comes first."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.answer: Answer | None = None
        self.done = anyio.Event()
        """Set once the browser has its page, too."""


class BrowserRedirect:
    """Has a person log in in the browser, which comes back to a port of this machine.

    `BrowserRedirect.open` gives one, for one visit. While that waits, `paste` takes the address as well, for
    whoever sits at another machine than this one.
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
        self._waiting: _Waiting | None = None
        self._authorities = {f"{host}:{self.port}" for host in (HOST, "localhost")}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, server_id: str, *, agree: Agree, open_url: OpenUrl, port: int | None = None
    ) -> AsyncGenerator[Self]:
        """Take a port, any free one unless it is given, for as long as the block lasts."""
        try:
            listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port or 0)
        except OSError as exc:
            raise ListenFailed(
                f"cannot listen on {HOST}:{port} for the end of the login: {exc.strerror or exc}",
                hint="end what uses that port, set another `oauth.callback_port`, or use `--no-browser`",
            ) from exc
        async with listener:
            yield cls(server_id, listener, agree, open_url)

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server sends the browser in the end."""
        return f"http://{HOST}:{self.port}{PATH}"

    async def visit(self, url: str) -> str:
        """Open a login page once the person agreed, and wait for the browser to come back, or for a paste."""
        if not await self._agree(url):
            raise LoginFailed(self._server_id, "the login page was not opened, as you wished")
        waiting = self._waiting = _Waiting(expected_state(url))
        try:
            with anyio.move_on_after(self.seconds):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listener.serve, self._answer)
                    tasks.start_soon(self._open, url)
                    await waiting.done.wait()
                    tasks.cancel_scope.cancel()
        finally:
            self._waiting = None
            await self._listener.aclose()  # whoever comes now comes too late
        if waiting.answer is None:
            raise LoginFailed(
                self._server_id,
                f"nobody came back from the login page within {self.seconds:g} s",
                hint=f"run `{command_line('login', self._server_id)}` to try again",
            )
        return f"{self.redirect_uri}?{waiting.answer.query}"

    def paste(self, text: str) -> str | None:
        """Take the address that the browser ended up at. Returns what is wrong with it, if anything."""
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
        except Exception:  # whoever has seen the address can open it, and come back or paste
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
                    status, text, is_accepted = self._judged(head, waiting)
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

    def _judged(self, head: bytes, waiting: _Waiting) -> tuple[int, str, bool]:
        """The status and the page for a request, and whether it is the answer that is waited for."""
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        hosts = [line[5:].strip().lower() for line in lines[1:] if line[:5].lower() == "host:"]
        if len(hosts) != 1 or hosts[0] not in self._authorities:
            return 421, page("Wrong address", "This is not where that page is."), False
        if path != PATH:
            return 404, page("Nothing here", "There is no such page."), False
        if method != "GET":
            return 405, page("Not like this", "This page can only be read."), False
        if waiting.answer is not None:
            return 410, page("Already used", "This login has its answer. You can close this window."), False
        try:
            waiting.answer = read_answer(query, waiting.state)
        except NotTheAnswer as exc:
            return 400, page("Not the answer", f"This is not what Fairlead waits for: {exc}."), False
        return 200, waiting.answer.page, True


class PastedRedirect:
    """Has a person open the login page wherever they like, and paste the address where they ended up."""

    def __init__(self, server_id: str, ask: Ask, *, port: int | None = None) -> None:
        self._server_id = server_id
        self._ask = ask
        self._port = port or PASTE_PORT

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server sends the browser in the end, in vain."""
        return f"http://{HOST}:{self._port}{PATH}"

    async def visit(self, url: str) -> str:
        """Ask for the address until it makes sense, which has to be soon."""
        state, problem = expected_state(url), None
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
