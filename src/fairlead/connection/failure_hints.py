"""Hints of connection errors: what the user can do about each kind of failure.

Each hint names the setting to change or the command to run; tests follow those that can be followed on one
machine. Text of a server never becomes part of a command: users copy those.
"""

import re
import signal
from collections.abc import Mapping, Sequence

from mcp_types import METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from fairlead.config.command_lines import command_line
from fairlead.config.models import RemoteServer
from fairlead.connection.line_hints import hint_for_line, hint_for_prompt
from fairlead.connection.outcomes import (
    ConnectionEnding,
    HttpRejected,
    SpawnFailed,
    SpawnTrouble,
    TroubleKind,
)
from fairlead.wording import join_clauses

_MCP_URL = "look for the MCP URL in the server's documentation, often one that ends in `/mcp` or `/sse`"
_MORE_TIME = "`startup_timeout_ms` gives it more time"
_PROXY_LOGIN = "the proxy wants a login: write HTTPS_PROXY or HTTP_PROXY as `http://user:password@host:port`"
NOT_MCP = "it does not follow MCP: update the server, or report it to those who make it"
"""For an answer that is no valid MCP."""
NOT_MCP_ANSWER = f"is it an MCP server? {_MCP_URL}"
"""For an answer over HTTP that is no JSON-RPC message."""

# Over HTTP.

OTHER_TRANSPORT = frozenset({200, 400, 404, 405, 406, 415})
"""Statuses with which a server may refuse the older transport while it speaks the newer one."""
_NO_SSE = "take `transport` out, in case the server speaks Streamable HTTP"
_SSE = (
    'write `"transport": "sse"` in its entry: a URL that ends in `/sse` is mostly one of the older transport'
)


def hint_for_transport(server: RemoteServer) -> str | None:
    """The hint for a server whose entry may name the wrong one of the two transports over HTTP."""
    if server.transport == "sse":
        return _NO_SSE
    path = server.url.partition("?")[0].rstrip("/")
    return _SSE if path.endswith("/sse") else None


_ON_THE_WAY: Mapping[TroubleKind | None, str] = {
    "certificate": (
        "add the certificate, or that of its issuer, to those that this machine trusts; or set SSL_CERT_FILE"
        " to a PEM file of all certificates to trust, which then replaces the machine's"
    ),
    "certificate_expired": "is the clock of this machine right? Then have the server's certificate renewed",
    "certificate_host": (
        "write the host in `url` as the certificate names it, or have the certificate name this one too"
    ),
    "old_tls": "have the server speak TLS 1.2 or newer: what it speaks is no longer safe",
    "tls": "does the server speak TLS at this port? If not, write `http://` in `url`",
    "no_tls": "write `http://` in `url`, or the port at which the server speaks TLS",
    "wants_tls": "write `https://` in `url`",
    "dns": (
        "check the host in `url`; is this machine online? The name may need a VPN, or a proxy (HTTPS_PROXY)"
    ),
    "refused": "is the server running, and is the port in `url` right?",
    "refused_loopback": (
        "is the server running, and is the port in `url` right? One that listens on another address of this"
        " machine needs that as the host in `url`: `localhost`, `127.0.0.1` or `[::1]`"
    ),
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
    "closed_tls": (
        "the server's own log may say why it closed the connection;"
        " one that wants a certificate of the client cannot be used here"
    ),
    "damaged": "the server, or a proxy before it, sends answers that are damaged: its own log may say more",
    None: "is it running, and is the URL right?",
}

_STATUSES: Mapping[int, str] = {
    400: f"is `url` an MCP endpoint? {_MCP_URL}",
    402: "payment required (402): see to your plan or credit there",
    404: f"check the path of `url`; {_MCP_URL}",
    405: f"`url` takes no MCP requests; {_MCP_URL}",
    406: f"`url` does not answer as MCP does; {_MCP_URL}",
    407: _PROXY_LOGIN,
    408: "the server gave up waiting; try again, and see its own log if that does not help",
    410: f"what was at `url` is gone; {_MCP_URL}",
    413: "the server, or a proxy before it, takes no request as large as this one: send less at once",
    415: f"`url` does not take what MCP sends; {_MCP_URL}",
    421: "write the host in `url` as the server knows it",
    429: "it limits the rate of requests; try again later",
    431: "`headers` has too much in it for the server: take out what it does not need",
    502: "what stands in front of the server cannot reach it: is the server behind it running?",
    503: "the server is overloaded or down for maintenance; try again later",
    504: "what stands in front of the server got no answer from it: is the server behind it running?",
    511: "this network wants a login first: open any web page in a browser, and log in there",
}

_LOGIN_PAGE = re.compile(r"log-?in|sign-?in|sso|auth|account|saml|idp", re.IGNORECASE)
_WANTS_TLS = re.compile(r"https", re.IGNORECASE)


def hint_on_the_way(kind: TroubleKind | None) -> str:
    """The hint for a network error."""
    return _ON_THE_WAY[kind]


def hint_for_status(rejected: HttpRejected) -> str:
    """The hint for an unexpected HTTP response."""
    status = rejected.status
    if 300 <= status < 400 and not rejected.location:
        return f"`url` leads nowhere; {_MCP_URL}"
    if 300 <= status < 400:
        if _LOGIN_PAGE.search(rejected.location or ""):
            return f"that looks like a login page, so `url` is a web page and no MCP endpoint; {_MCP_URL}"
        return "if you trust where it leads, write that address as `url`"
    if status < 300 and rejected.location is not None:
        return "have the server name an endpoint under `url`; behind a proxy it has to know its own address"
    if status < 300 and "html" in (rejected.content_type or ""):
        return f"`url` is a web page, not an MCP endpoint; {_MCP_URL}"
    if status == 400 and _WANTS_TLS.search(rejected.message):
        return _ON_THE_WAY["not_http"]
    if status == 403:
        return _hint_for_forbidden(rejected)
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


def _hint_for_forbidden(rejected: HttpRejected) -> str:
    refused = rejected.credentials
    if refused is None or not refused.names:
        what = "check the rights of the token or key in `headers`, which the entry may need"
    else:
        what = f"check the rights of {refused.described}"
    return f"the server does not allow it: {what}, and whether the server lets this machine in"


def hint_for_login(server_id: str, rejected: HttpRejected) -> str:
    """The hint for a request that lacks a login, where no OAuth login was tried."""
    login = f"`{command_line('login', server_id)}`"
    refused = rejected.credentials
    if refused is None:
        return f"correct `headers.Authorization`; or leave it out and run {login}"
    match refused.origin:
        case "login":
            return f"run {login}"
        case "headers_helper":
            return "correct what `headers_helper` prints, or the program that it runs"
        case "auth_provider":
            return "correct what the program's auth provider returns"
        case "headers" if refused.names:
            names = " and ".join(f"`headers.{name}`" for name in refused.names)
            return f"correct {names}; or leave it out and run {login}"
        case "headers":
            return f"set `headers.Authorization`; or take out `oauth: false` and run {login}"


# Local servers.


def hint_for_spawn(failed: SpawnFailed) -> str:
    """The hint for a process that could not be started."""
    found = failed.instead
    match failed.trouble:
        case "no_program":
            return _hint_for_missing_program(failed.program, found)
        case "tilde":
            return f"write `{found}` as `command`: `~` means nothing there"
        case "whole_line":
            return f"write `{found}` as `command`, and the rest, word by word, as `args`"
        case "no_interpreter":
            return f"install `{found}`, or correct the first line of the script" if found else _BUILT_FOR
        case "denied" | "format" if found:
            return f"write `{found}` as `command`, and the path of the script as the first of `args`"
        case trouble:
            return _SPAWN[trouble]


_BUILT_FOR = "is it for this machine?"
_SPAWN: Mapping[SpawnTrouble | None, str] = {
    "no_folder": "correct `cwd`",
    "folder_denied": "correct `cwd`",
    "windows_lines": "save the script with the line ends of Unix (LF)",
    "is_folder": "write a program in that folder as `command`",
    "denied": "make it executable (`chmod +x`), or correct `command`",
    "built_for_another": "install the version for this machine",
    "empty": "install it again, or correct `command`",
    "format": f"{_BUILT_FOR} A script needs a first line such as `#!/usr/bin/env python3`",
    "too_many_files": "raise the limit of open files (`ulimit -n`), or run fewer servers at once",
    None: "check `command`, `args`, `env` and `cwd`",
}
_INSTALL: Mapping[str, str] = {
    **dict.fromkeys(("uvx", "uv"), "install uv (`pip install uv`)"),
    **dict.fromkeys(("npx", "npm", "node"), "install Node.js 20 or newer"),
    **dict.fromkeys(("bunx", "bun"), "install Bun"),
    "deno": "install Deno",
    "pipx": "install pipx (`pip install pipx`)",
    **dict.fromkeys(("docker", "podman"), "install it and have it run"),
}


def _hint_for_missing_program(program: str, similar: str | None) -> str:
    name = re.split(r"[\\/]", program)[-1].removesuffix(".exe").removesuffix(".cmd")
    if similar is not None:
        return f"did you mean `{similar}`? Else install it, or write its whole path as `command`"
    if name in _INSTALL:
        return f"{_INSTALL[name]}, or write its whole path as `command`: a terminal may find more than others"
    return "install it, or write its whole path as `command`; is `cwd` right?"


def hint_for_slow_start(*, stderr_lines: Sequence[str], noise: Sequence[str]) -> str:
    """The hint for a local server that was not ready in time."""
    if noise:
        return join_clauses(hint_for_prompt(noise) or _hint_for_noise(noise), _MORE_TIME)
    if stderr_lines and (asks := hint_for_prompt(stderr_lines[-1:])):
        return join_clauses(asks, _MORE_TIME)
    if stderr_lines:
        return f"does it wait for something, or does it not speak MCP over stdio? {_MORE_TIME}"
    return f"it wrote nothing to stderr: does it need an argument to speak MCP over stdio? {_MORE_TIME}"


def hint_for_slow_answer() -> str:
    """The hint for a server at a URL that was not ready in time."""
    return f"it does not answer: is `url` an MCP endpoint? {_MCP_URL}; {_MORE_TIME}"


def hint_for_download(command: str | None) -> str:
    """The hint for a program that fetches a server and was not done in time."""
    run = f"run `{command}`" if command else "run its command"
    return f"{run} once in a terminal, until the download is done, and try again"


_SERVES_HTTP = re.compile(
    r"https?://|\b(?:listening|running|serving|started|ready)\b.*\b(?:port\b|:\d{2,5}\b)", re.IGNORECASE
)


def _hint_for_noise(noise: Sequence[str]) -> str:
    if any(_SERVES_HTTP.search(line) for line in noise):
        return (
            "it seems to serve HTTP: give it the argument that makes it speak MCP over stdio,"
            " or run it yourself and write its address as `url`"
        )
    return "have it write its log to stderr; does it need an argument to speak MCP over stdio?"


def hint_for_ending(server_id: str, ending: ConnectionEnding, reason: str | None) -> str:
    """The hint for a local server that ended before it was ready.

    Args:
        server_id: The server.
        ending: How it ended, and what it wrote.
        reason: The line that says why, if one does.
    """
    code = ending.signal or _signal_in(ending.exit_code)
    if ending.signal is not None and ending.signal not in CRASHES:
        return _SIGNALS.get(ending.signal, _ENDED)
    for line in (reason,) if reason else (*ending.stderr, *ending.noise):
        if (hint := hint_for_line(line)) is not None:
            return hint
    if reason is None and (asks := hint_for_prompt((*ending.stderr, *ending.noise))):
        return asks
    if code in _SIGNALS:
        return _SIGNALS[code]
    if reason is None and ending.noise:
        return _hint_for_noise(ending.noise)
    if ending.exit_code in _EXIT_CODES:
        return _EXIT_CODES[ending.exit_code]
    logs = f"`{command_line('logs', server_id)}` shows all it wrote"
    if ending.exit_code == 0:
        return f"does it need an argument to speak MCP over stdio? {logs if ending.stderr else _BY_HAND}"
    if ending.stderr:
        return f"correct `args` or `env` if that is what it wants; {logs}"
    return _BY_HAND


def hint_for_loss(server_id: str, ending: ConnectionEnding) -> str | None:
    """The hint for a server that was ready and ended by itself."""
    if ending.kind not in ("exited", "hung_up") or not ending.is_local:
        return None
    return f"the next call starts it again; `{command_line('logs', server_id)}` shows what it wrote"


CRASHES = frozenset(
    {signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, getattr(signal, "SIGBUS", signal.SIGSEGV)}
)
"""Signals that end a program for a fault of its own."""
_BY_HAND = "it wrote nothing: run its `command` with its `args` in a terminal to see why"
_ENDED = "something ended it: another program, or the system"
_CRASHED = "the program itself crashed: is it for this machine? Install it again, or another version of it"
_KILLED = "something killed it: the system for want of memory, another program, or code of its own"
_SIGNALS: Mapping[int | None, str] = {
    9: _KILLED,  # SIGKILL, which has no name on Windows
    **dict.fromkeys(CRASHES, _CRASHED),
}
_EXIT_CODES: Mapping[int | None, str] = {
    126: "what it runs is not executable: make it so (`chmod +x`)",
    127: "a program that it runs is not there: install it, or set `PATH` in `env`",
}


def _signal_in(exit_code: int | None) -> int | None:
    """The signal that a shell or container reports as an exit code."""
    return exit_code - 128 if exit_code is not None and 128 < exit_code < 160 else None


# The protocol.


def hint_for_version(message: str) -> str:
    """The hint for a server without a protocol version in common."""
    speaks = f"{HANDSHAKE_PROTOCOL_VERSIONS[0]} to {LATEST_MODERN_VERSION}"
    newest = max(re.findall(r"\b20\d\d-\d\d-\d\d\b", message), default="")
    what = "Fairlead" if newest > LATEST_MODERN_VERSION else "the server"
    return f"update {what}: Fairlead speaks {speaks}"


_ABOUT_VERSION = re.compile(r"protocol ?version", re.IGNORECASE)


def hint_for_refusal(server_id: str, words: str, code: int, *, is_local: bool) -> str:
    """The hint for a server that answers the handshake with an error."""
    if code == METHOD_NOT_FOUND:
        return "it is not an MCP server: correct `command` and `args`" if is_local else NOT_MCP_ANSWER
    if _ABOUT_VERSION.search(words):
        return hint_for_version(words)
    known = hint_for_line(words)
    if known is not None and "`env`: " in known:
        return known
    if is_local:
        logs = f"`{command_line('logs', server_id)}` shows what it wrote"
        return f"correct `args` or `env` if that is what it wants; {logs}"
    return "correct `url` or `headers` if that is what it wants; else the server's own log says more"
