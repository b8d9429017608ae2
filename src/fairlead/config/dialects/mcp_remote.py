"""Conversion of entries that start `mcp-remote`, a bridge to remote servers, to direct ones."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead.config.dialects.dialect import Entry
from fairlead.config.dialects.references import NotExpressible, Piece, in_our_words, join_literals
from fairlead.config.secrets.references import SecretReference, split
from fairlead.config.untyped import is_object

_LAUNCHERS = {"npx": (), "bunx": (), "pnpx": (), "pnpm": ("dlx",), "yarn": ("dlx",), "npm": ("exec",)}
_LAUNCHER_FLAGS = ("-y", "--yes", "-q", "--quiet", "--prefer-online", "--prefer-offline", "--bun", "--")
_PACKAGE = re.compile(r"mcp-remote(?:@[^/\s]+)?")
_HEADER = re.compile(r"([A-Za-z0-9_-]+):\s*(.*)", re.DOTALL)
_OWN_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TRANSPORTS = {"http-first": "http", "http-only": "http", "sse-first": "http", "sse-only": "sse"}
_FLAGS_WITHOUT_EFFECT = ("--allow-http", "--debug", "--silent")
_VARIABLES_WITHOUT_EFFECT = ("PATH", "HOME", "MCP_REMOTE_CONFIG_DIR")
_LOCAL_FIELDS = ("transport", "command", "args", "cwd", "env", "sandbox")


def native_remote(entry: Entry) -> Entry | None:
    """Entry that reaches the server directly, if this one starts `mcp-remote` and has an equivalent."""
    arguments = _bridge_arguments(entry)
    if arguments is None:
        return None
    bridge = _Bridge(env=entry.get("env") or {})
    try:
        bridge.take(arguments)
        target = bridge.target()
    except (_Inexpressible, NotExpressible, ValueError):
        return None
    native = {name: value for name, value in entry.items() if name not in _LOCAL_FIELDS} | target
    if bridge.denied:
        native["deny_tools"] = [*entry.get("deny_tools", []), *bridge.denied]
    return native


class _Inexpressible(Exception):
    """Something about the bridge has no equivalent without it."""


@dataclass(slots=True)
class _Bridge:
    """Parsed command line of the bridge."""

    env: dict[str, str]
    positional: list[str] = field(default_factory=list[str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    oauth: dict[str, Any] = field(default_factory=dict[str, Any])
    denied: list[str] = field(default_factory=list[str])
    transport: str = "http"
    used: set[str] = field(default_factory=set[str])

    def take(self, arguments: list[str]) -> None:
        """Parse every argument, or raise."""
        options: dict[str, Callable[[str], None]] = {
            "--header": self._take_header,
            "--transport": self._take_transport,
            "--ignore-tool": self._take_denied,
            "--host": self._take_host,
            "--static-oauth-client-info": lambda value: self._take_login(value, "client_id", "client_secret"),
            "--static-oauth-client-metadata": lambda value: self._take_login(value, "scope"),
            "--auth-timeout": lambda _: None,
        }
        rest = iter(arguments)
        for argument in rest:
            if argument in options:
                options[argument](_next(rest))
            elif not argument.startswith("-"):
                self.positional.append(argument)
            elif argument not in _FLAGS_WITHOUT_EFFECT:
                raise _Inexpressible(argument)

    def target(self) -> Entry:
        """Fields that reach the server directly."""
        url, *port = self.positional or [""]
        if not url.startswith(("https://", "http://", "${")) or len(port) > 1:
            raise _Inexpressible(url)
        if set(self.env) - self.used - set(_VARIABLES_WITHOUT_EFFECT):
            raise _Inexpressible("a variable may change what the bridge does")
        oauth = self.oauth | ({"callback_port": int(port[0])} if port else {})
        return {
            **({"transport": "sse"} if self.transport == "sse" else {}),
            "url": url,
            **({"headers": self.headers} if self.headers else {}),
            **({"oauth": oauth} if oauth else {}),
        }

    def _take_header(self, argument: str) -> None:
        header = _HEADER.fullmatch(argument)
        if header is None:
            raise _Inexpressible(argument)
        self.headers[header[1]] = in_our_words(
            [part for piece in join_literals(split(header[2])) for part in self._expand(piece)]
        )

    def _expand(self, piece: Piece) -> Iterator[Piece]:
        """A piece of a header with the bridge's own variables replaced."""
        if isinstance(piece, SecretReference):
            known = piece.kind == "env" and piece.name in self.env
            yield from self._value(piece.name) if known else [piece]
            return
        end = 0
        for match in _OWN_VARIABLE.finditer(piece):
            yield piece[end : match.start()]
            yield from self._value(match[1])
            end = match.end()
        yield piece[end:]

    def _value(self, name: str) -> list[Piece]:
        if name not in self.env:
            return [SecretReference(kind="env", name=name)]
        self.used.add(name)
        return split(self.env[name])

    def _take_transport(self, value: str) -> None:
        if value not in _TRANSPORTS:
            raise _Inexpressible(value)
        self.transport = _TRANSPORTS[value]

    def _take_denied(self, pattern: str) -> None:
        if re.search(r"[?\[]", pattern):  # plain characters there, but not in a pattern of ours
            raise _Inexpressible(pattern)
        self.denied.append(pattern)

    def _take_host(self, host: str) -> None:
        if host != "localhost":
            raise _Inexpressible(host)

    def _take_login(self, value: str, *known: str) -> None:
        described: object = json.loads(value)
        if not is_object(described):
            raise _Inexpressible(value)
        for name, item in described.items():
            if name not in known or not isinstance(item, str):
                raise _Inexpressible(name)
            self.oauth[name] = item


def _next(rest: Iterator[str]) -> str:
    for value in rest:
        return value
    raise _Inexpressible("an option without its value")


def _bridge_arguments(entry: Entry) -> list[str] | None:
    """Arguments after `mcp-remote` on the command line, or None if something else is started."""
    command = entry.get("command")
    if not isinstance(command, str):
        return None
    words: list[str] = [command, *(entry.get("args") or [])]
    if _program(words[0]) == "cmd" and [word.lower() for word in words[1:2]] == ["/c"]:
        words = words[2:]
    subcommand = _LAUNCHERS.get(_program(words[0])) if words else None
    if subcommand is None or tuple(words[1 : 1 + len(subcommand)]) != subcommand:
        return None
    words = words[1 + len(subcommand) :]
    while words and words[0] in _LAUNCHER_FLAGS:
        words = words[1:]
    return words[1:] if words and _PACKAGE.fullmatch(words[0]) else None


def _program(path: str) -> str:
    name = re.split(r"[\\/]", path)[-1].lower()
    return re.sub(r"\.(cmd|exe|bat)$", "", name)
