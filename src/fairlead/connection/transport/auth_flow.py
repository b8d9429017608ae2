"""Credentials of a program's own auth flow: the MCP SDK's `OAuthClientProvider`, or any that httpx takes.

Such a flow is a generator. It is given the request, and yields that, with the headers it added, or others
that are to be sent first, whose responses it gets. Requests go out over this program's own HTTP client; of
the flow's library only the classes of request and response are used.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

import aiohttp
import anyio
from yarl import URL

from fairlead.config.secrets.masking import KEPT_HEADERS, SECRETS
from fairlead.config.secrets.redaction import header_secrets, is_distinctive
from fairlead.connection.outcomes import CredentialOrigin, HeadersUnavailable
from fairlead.connection.transport.http_endpoint import RejectedRequest
from fairlead.errors import AuthRequired, LoginFailed
from fairlead.net.http import proxy_for, read_beginning, tls_context

MAX_REQUESTS = 40
"""Requests that a flow may send for one login: discovery, registration and token, with their fallbacks."""
MAX_BYTES = 1024 * 1024
_SECONDS = 30.0
_LIBRARIES = ("httpx", "httpx2")


class AsyncAuthFlow(Protocol):
    """An auth flow of httpx or the MCP SDK: `OAuthClientProvider`, `httpx.Auth`."""

    def async_auth_flow(self, request: Any, /) -> AsyncGenerator[Any, Any]:  # noqa: ANN401 - of a library of its own
        """Yield requests to send, and take their responses."""
        ...


class SyncAuthFlow(Protocol):
    """An auth flow that waits for nothing itself."""

    def auth_flow(self, request: Any, /) -> Generator[Any, Any, None]:  # noqa: ANN401 - as above
        """Yield requests to send, and take their responses."""
        ...


AuthFlow: TypeAlias = AsyncAuthFlow | SyncAuthFlow


def is_auth_flow(provider: object) -> bool:
    """Whether a provider of a program is an auth flow."""
    return any(callable(getattr(provider, name, None)) for name in ("async_auth_flow", "auth_flow"))


class FlowHeaders:
    """A source of headers that asks an auth flow.

    A request that is refused raises `AuthRequired`; `log_in` then goes through the flow with the refusal.
    That is not part of a start with its time limit, since the flow may wait for the user.

    Args:
        server_id: The server.
        flow: The auth flow.
        fixed: The configured headers, which are sent as well.
        http: Returns the HTTP client that the flow's own requests go out with.
        environment: The variables that name proxies.
    """

    origin: Final[CredentialOrigin] = "auth_provider"

    def __init__(
        self,
        server_id: str,
        flow: AuthFlow,
        fixed: Mapping[str, str],
        *,
        http: Callable[[], aiohttp.ClientSession],
        environment: Mapping[str, str],
    ) -> None:
        self.flow = flow
        self.fixed = fixed
        self.server_id = server_id
        self._http = http
        self._environment = environment
        self._library = _library_of(flow)
        self._refused: tuple[str, URL, RejectedRequest] | None = None
        self._kept: Mapping[str, str] = {}
        """Headers of the last login, for a flow that keeps none itself."""

    async def __call__(
        self, method: str, url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers. Raises `AuthRequired` where the server refused them."""
        if challenge is None:
            return {**self.fixed, **(await self._go_through(method, url, None) or self._kept)}
        self._refused = method, url, challenge
        more = challenge.kind == "scope"
        message = (
            "a login with more OAuth scopes is required"
            if more
            else "it refused what the auth provider returns"
        )
        raise AuthRequired(
            self.server_id,
            f"{message} ({challenge.status})",
            hint="correct what the program's auth provider returns",
            challenge=challenge.www_authenticate,
            wants_more=more,
        )

    async def log_in(self) -> None:
        """Go through the flow with the last refusal. Raises what the flow raises, and `LoginFailed`."""
        if self._refused is None:
            return
        refused, self._refused = self._refused, None
        self._kept = await self._go_through(*refused)
        if not self._kept:
            raise LoginFailed(self.server_id, "the program's auth provider has no answer to the refusal")

    async def _go_through(self, method: str, url: URL, refusal: RejectedRequest | None) -> Mapping[str, str]:
        """Headers that the flow adds to a request, or, with a refusal, to the one after it."""
        if getattr(self.flow, "requires_request_body", False):
            # Headers are asked for before there is a body; signed without it, each request would be refused.
            raise HeadersUnavailable(
                f"the auth provider of `{self.server_id}` signs the body of requests"
                " (`requires_request_body`), which is not supported"
            )
        request = self._library.Request(method, str(url), headers=dict(self.fixed))
        before = dict(request.headers.items())
        sent = 0
        # Closed in this task: the SDK's flow holds a lock while it is open.
        async with aclosing(_generator(self.flow, request)) as steps:
            outgoing = await anext(steps, None)
            while outgoing is not None and sent < MAX_REQUESTS:
                if _is_same(outgoing, request):
                    if refusal is None:
                        return self._find_added_headers(before, outgoing)
                    response, refusal = self._response(refusal, outgoing), None
                else:
                    sent += 1
                    response = await self._send(outgoing)
                try:
                    outgoing = await steps.asend(response)
                except StopAsyncIteration:
                    return {}
        raise HeadersUnavailable(f"the auth provider of `{self.server_id}` never came to the request itself")

    def _find_added_headers(self, before: Mapping[str, str], outgoing: Any) -> Mapping[str, str]:  # noqa: ANN401 - of a library of its own
        headers: dict[str, str] = dict(outgoing.headers.items())
        added = {name.title(): value for name, value in headers.items() if before.get(name) != value}
        # An authorization server may have chosen them.
        found = filter(is_distinctive, header_secrets(added))
        SECRETS.learn(*found, owner=("headers", self.server_id), kept=KEPT_HEADERS)
        return added

    def _response(self, refusal: RejectedRequest, request: Any) -> Any:  # noqa: ANN401 - as above
        challenge = refusal.www_authenticate
        headers = {"WWW-Authenticate": challenge} if challenge else {}
        return self._library.Response(refusal.status, headers=headers, content=b"", request=request)

    async def _send(self, request: Any) -> Any:  # noqa: ANN401 - as above
        """Send a request of the flow; redirects are for the flow to follow."""
        url = URL(str(request.url), encoded=True)
        own = ("host", "content-length", "connection", "accept-encoding")
        headers = [(name, value) for name, value in request.headers.items() if name not in own]
        with anyio.fail_after(_SECONDS):
            async with self._http().request(
                request.method,
                url,
                data=await _body(request),
                headers=headers,
                allow_redirects=False,
                proxy=proxy_for(url, self._environment),
                ssl=tls_context() if url.scheme == "https" else True,
            ) as response:
                content = await read_beginning(response, MAX_BYTES)
                plain = ("content-encoding", "content-length", "transfer-encoding")
                kept = [
                    (name, value) for name, value in response.headers.items() if name.lower() not in plain
                ]
        return self._library.Response(response.status, headers=kept, content=content, request=request)


def _library_of(flow: object) -> Any:  # noqa: ANN401 - one of two libraries with the same classes
    """Library whose requests a flow takes: that of its base class, else the one the MCP SDK uses."""
    roots = {kind.__module__.partition(".")[0] for kind in type(flow).__mro__}
    return import_module(next((name for name in _LIBRARIES if name in roots), _LIBRARIES[-1]))


def _is_same(outgoing: Any, request: Any) -> bool:  # noqa: ANN401 - of a library of its own
    """Whether a flow yields the request itself, or a copy of it."""
    return outgoing is request or (outgoing.method == request.method and outgoing.url == request.url)


def _generator(flow: AuthFlow, request: Any) -> AsyncGenerator[Any, Any]:  # noqa: ANN401 - as above
    asynchronous: Callable[[Any], AsyncGenerator[Any, Any]] | None = getattr(flow, "async_auth_flow", None)
    return asynchronous(request) if asynchronous is not None else _step(flow, request)


async def _step(flow: Any, request: Any) -> AsyncGenerator[Any, Any]:  # noqa: ANN401 - as above
    steps: Generator[Any, Any, None] = flow.auth_flow(request)
    try:
        outgoing = next(steps)
        while True:
            outgoing = steps.send((yield outgoing))
    except StopIteration:
        return
    finally:
        steps.close()


async def _body(request: Any) -> bytes | None:  # noqa: ANN401 - as above
    content: bytes = await request.aread()
    return content or None
