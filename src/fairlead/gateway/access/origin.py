"""DNS-rebinding and CSRF protection: which `Host`, `Origin`, method and content type a request may have.

A page in a browser can send requests to this machine without the user's doing. It cannot choose `Host` and
`Origin`, and it cannot send JSON across origins without a CORS permission, which the gateway never gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import Receive, Scope, Send

_DECIDING = frozenset((b"host", b"origin", b"content-type", b"content-length", b"authorization"))
_METHODS = frozenset(("GET", "HEAD", "POST", "DELETE"))
_JSON = b"application/json"
_FORM = b"application/x-www-form-urlencoded"
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_LOOPBACK = frozenset((b"localhost", b"127.0.0.1", b"[::1]"))
"""Names of this machine that no one else can give an address to."""
_MAX_PORT_DIGITS: Final = 5
_MAX_PASSED: Final = 256
_MAX_KEY_BYTES: Final = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRefused:
    """The HTTP response to a refused request. Call it as an ASGI application to send it."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @classmethod
    def saying(cls, status: int, text: str, headers: Mapping[str, str] | None = None) -> "RequestRefused":
        """A refusal with this text as its body."""
        content = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
        return cls(status=status, headers={**content, **(headers or {})}, body=f"{text}\n".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        headers.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def deciding_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers that access depends on. One that is there twice means nothing, and becomes empty."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _DECIDING:
            # A proxy and this server may disagree which of two values counts, so neither does.
            found[name] = b"" if name in found else value
    return found


class OriginPolicy:
    """The allowed `Host` headers of a gateway, and the origins of its own pages.

    A loopback name is allowed with any port: a tunnel such as `ssh -L 9000:localhost:8130` has one of its
    own. DNS rebinding needs a name that its owner can point at this machine, and a loopback name is none. A
    page of another local port has another `Origin`, and is refused by that.

    `dashboard_name` is a random name below `localhost` that the dashboard has for itself: cookies of other
    names are not sent there, nor its cookie to them. Neither MCP nor the control API is served under that
    name: no page has a use for them.
    """

    def __init__(
        self,
        host: str,
        port: int,
        names: Iterable[str] = (),
        *,
        dashboard_name: str | None = None,
    ) -> None:
        self._dashboard = dashboard_name.lower().encode() if dashboard_name else None
        bound = {f"{_bracket_ipv6(host)}:{port}", f"localhost:{port}"}
        self._authorities = _on_the_wire({*bound, *_authorities(names, port)})
        self._origins = _on_the_wire({*(f"http://{name}" for name in bound), *_origins(names, port)})
        self._port = port
        self._is_everywhere = host in _EVERYWHERE
        self._passed: set[tuple[object, ...]] = set()
        """Requests that passed, by all that decides about that but the length: most clients repeat theirs."""

    def screen(self, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestRefused | None:
        """Refuse a request with a wrong `Host`, `Origin`, method, content type or length."""
        key = (
            headers.get(b"host"),
            headers.get(b"origin"),
            headers.get(b"content-type"),
            scope["method"],
            scope["path"],
            scope.get("query_string"),
            scope.get("server"),
        )
        if key in self._passed:
            return _refuse_length(headers)
        refused = self._screen(scope, headers)
        # A few of the usual form: what strangers send must not fill the memory.
        if refused is None and len(self._passed) < _MAX_PASSED and sum(map(_size, key)) <= _MAX_KEY_BYTES:
            self._passed.add(key)
        return refused

    def _screen(self, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestRefused | None:
        host = headers.get(b"host", b"").lower()
        name = _name_of(host)
        if name and name == self._dashboard:
            return self._screen_dashboard(scope, headers, host)
        # DNS rebinding: a page can give its own name this machine's address, but its requests have that name.
        if name not in _LOOPBACK and host not in self._authorities and not self._is_own_address(scope, host):
            return RequestRefused.saying(421, "Host header not allowed; add it to `gateway.names`")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own_origin(origin.lower(), scope, host):
            return RequestRefused.saying(403, "requests from other origins are refused")
        return self._misshapen(scope, headers)

    def _screen_dashboard(
        self, scope: Scope, headers: Mapping[bytes, bytes], host: bytes
    ) -> RequestRefused | None:
        path: str = scope["path"]
        if is_protocol_path(path) or path == "/metrics" or path.startswith(("/api/", "/.well-known/")):
            return RequestRefused.saying(421, "this name serves only the dashboard")
        origin = headers.get(b"origin")
        if origin is not None and origin != b"http://" + host:
            return RequestRefused.saying(403, "requests from other origins are refused")
        return self._misshapen(scope, headers)

    def _misshapen(self, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestRefused | None:
        method: str = scope["method"]
        if method not in _METHODS:
            return RequestRefused.saying(
                405, f"method {method} is not allowed", {"Allow": ", ".join(sorted(_METHODS))}
            )
        if not is_address_text(scope):
            return RequestRefused.saying(400, "the path or query has characters that are not allowed")
        if method == "POST":
            # A page of any origin may send text or a form without asking (CORS), but not JSON.
            content = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            is_form = content == _FORM and not is_protocol_path(scope["path"])
            if content != _JSON and not is_form:
                return RequestRefused.saying(400, "Content-Type must be application/json")
        return _refuse_length(headers)

    def _is_own_address(self, scope: Scope, host: bytes) -> bool:
        """Return whether it is the address the request came to, where all are listened on.

        A name never is: its owner decides which address it has.
        """
        server = scope.get("server")
        if not self._is_everywhere or not server:
            return False
        return host == f"{_bracket_ipv6(server[0])}:{self._port}".encode()

    def _is_own_origin(self, origin: bytes, scope: Scope, host: bytes) -> bool:
        if origin in self._origins:
            return True
        is_own = _name_of(host) in _LOOPBACK or self._is_own_address(scope, host)
        return is_own and origin == b"http://" + host


def _refuse_length(headers: Mapping[bytes, bytes]) -> RequestRefused | None:
    length = headers.get(b"content-length", b"0")
    # `int` also takes blanks, signs and underscores, which a proxy may read otherwise.
    if not length.isdigit() or len(length) > 18:
        return RequestRefused.saying(400, "Content-Length is not a number")
    return None


def _size(part: object) -> int:
    return len(part) if isinstance(part, bytes | str) else 0


def is_address_text(scope: Scope) -> bool:
    """Return whether the path is printable ASCII and the query UTF-8 text without NUL.

    A path may come back in a cookie or a redirect, and either may be looked up: what is no text reaches
    neither.
    """
    path: str = scope["path"]
    query: bytes = scope.get("query_string", b"")
    if not (path.isascii() and path.isprintable()):
        return False
    try:
        return not query or "\0" not in unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return False


def is_protocol_path(path: str) -> bool:
    """Return whether this is a path of MCP, rather than of the dashboard or the control API."""
    return path.strip("/").partition("/")[0] in ("mcp", "sse", "messages")


def _authorities(names: Iterable[str], port: int) -> Iterable[str]:
    """A name without a port is one behind a proxy, or the one of this machine with its port."""
    for name in names:
        yield name
        if not _has_port(name):
            yield f"{name}:{port}"


def _origins(names: Iterable[str], port: int) -> Iterable[str]:
    for name in names:
        yield f"https://{name}"
        yield f"http://{name}" if _has_port(name) else f"http://{name}:{port}"


def _name_of(authority: bytes) -> bytes:
    """The name of a `Host` header without its port; empty where what follows the name is no port."""
    name, colon, port = authority.rpartition(b":")
    if not colon or authority.endswith(b"]"):
        return authority
    return name if port.isdigit() and len(port) <= _MAX_PORT_DIGITS else b""


def _has_port(name: str) -> bool:
    return ":" in name.rpartition("]")[2]


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _on_the_wire(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(name.lower().encode() for name in names)
