"""What the user can do about a server that could not be reached or started.

Each hint has to help when it is followed: it names the setting to change, and the tests follow those that can
be followed on one machine.
"""

import errno
import re
from collections.abc import Mapping

from fairlead.connection.http_outcomes import HttpRejected, TroubleKind
from fairlead.connection.outcomes import SpawnFailed

_MCP_URL = "look for the MCP URL in the server's documentation, often one that ends in `/mcp` or `/sse`"
_MORE_TIME = "`startup_timeout_ms` gives it more time"
_PROXY_LOGIN = "the proxy wants a login: write HTTPS_PROXY or HTTP_PROXY as `http://user:password@host:port`"

_ON_THE_WAY: Mapping[TroubleKind | None, str] = {
    "certificate": (
        "add the certificate, or that of its issuer, to those that this machine trusts; or set SSL_CERT_FILE"
        " to a PEM file of all certificates to trust, which then replaces the machine's"
    ),
    "certificate_expired": "have the server's certificate renewed; is the clock of this machine right?",
    "certificate_host": (
        "write the host in `url` as the certificate names it, or have the certificate name this one too"
    ),
    "tls": "does the server speak TLS at this port? If not, write `http://` in `url`",
    "dns": (
        "check the host in `url`; is this machine online? The name may need a VPN, or a proxy (HTTPS_PROXY)"
    ),
    "refused": "is the server running, and is the port in `url` right?",
    "unreachable": "can this machine reach that network? It may need a VPN, or a proxy (HTTPS_PROXY)",
    "timeout": (
        "is the host in `url` right, and does a firewall let this machine reach it? HTTPS_PROXY sets a proxy"
    ),
    "proxy": "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY names hosts that are reached without a proxy",
    "proxy_login": _PROXY_LOGIN,
    "not_http": "does the server speak TLS at this port? Then write `https://` in `url`; else check the port",
    "closed": (
        "does the server speak TLS at this port? Then write `https://` in `url`;"
        " else the server's own log may say why it closed the connection"
    ),
    None: "is it running, and is the URL right?",
}

_STATUSES: Mapping[int, str] = {
    400: f"is `url` an MCP endpoint? {_MCP_URL}",
    403: (
        "the server does not allow it: check the rights of the token or key in `headers`,"
        " and whether the server lets this machine in"
    ),
    404: f"check the path of `url`; {_MCP_URL}",
    405: f"`url` takes no MCP requests; {_MCP_URL}",
    406: f"`url` does not answer as MCP does; {_MCP_URL}",
    407: _PROXY_LOGIN,
    408: "the server gave up waiting; try again, and see its own log if that does not help",
    410: f"what was at `url` is gone; {_MCP_URL}",
    415: f"`url` does not take what MCP sends; {_MCP_URL}",
    421: "write the host in `url` as the server knows it",
    429: "it limits how often it may be asked; try again later",
    502: "what stands in front of the server cannot reach it: is the server behind it running?",
    503: "the server is overloaded or down for maintenance; try again later",
    504: "what stands in front of the server got no answer from it: is the server behind it running?",
}

_LOGIN_PAGE = re.compile(r"log-?in|sign-?in|sso|auth|account|saml|idp", re.IGNORECASE)
_WANTS_TLS = re.compile(r"https", re.IGNORECASE)


def hint_on_the_way(kind: TroubleKind | None) -> str:
    """What to do about trouble on the way to a server."""
    return _ON_THE_WAY[kind]


def hint_for_status(rejected: HttpRejected) -> str:
    """What to do about an HTTP answer that is none to the request."""
    status = rejected.status
    if 300 <= status < 400:
        if _LOGIN_PAGE.search(rejected.location or ""):
            return f"that looks like a login page, so `url` is a web page and no MCP endpoint; {_MCP_URL}"
        return "if you trust where it leads, write that address as `url`"
    if status < 300 and "html" in (rejected.content_type or ""):
        return f"`url` is a web page, not an MCP endpoint; {_MCP_URL}"
    if status == 400 and _WANTS_TLS.search(rejected.message):
        return _ON_THE_WAY["not_http"]
    if rejected.retry_after and status in (429, 503):
        wait = (
            f"{rejected.retry_after} s"
            if rejected.retry_after.isdecimal()
            else f"until {rejected.retry_after}"
        )
        return f"{_STATUSES[status].partition(';')[0]}; wait {wait} and try again"
    if status in _STATUSES:
        return _STATUSES[status]
    return (
        _STATUSES[400]
        if status < 500
        else "the trouble is at the server: its own log says more; try again later"
    )


def hint_for_spawn(failed: SpawnFailed) -> str:
    """What to do about a process that could not be started."""
    match failed.__cause__:
        case OSError(filename="folder"):
            return "correct `cwd`"
        case FileNotFoundError():
            return "install it, or write its whole path as `command`; is `cwd` right?"
        case PermissionError():
            return "make it executable (`chmod +x`), or correct `command`"
        case OSError(errno=errno.ENOEXEC):
            return "is it for this machine? A script needs a first line such as `#!/usr/bin/env python3`"
        case _:
            return "check `command`, `args`, `env` and `cwd`"


def hint_for_slow_start(*, is_local: bool, has_said: bool) -> str:
    """What to do about a server that was not ready in time."""
    if not is_local:
        return f"it does not answer: is `url` an MCP endpoint? {_MCP_URL}; {_MORE_TIME}"
    if has_said:
        return f"does it wait for something, or does it not speak MCP over stdio? {_MORE_TIME}"
    return f"it wrote nothing to stderr: does it need an argument to speak MCP over stdio? {_MORE_TIME}"
