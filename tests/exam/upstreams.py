"""The servers of the chaos exams, of all transports and eras: each counts what it executes."""

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.exam import upstream_program

Era = Literal["handshake", "stateless"]
Kind = Literal["stdio", "http", "sse", "guarded"]

PROGRAM = [sys.executable, "-I", "-S", upstream_program.__file__]
TOOL: str = upstream_program.TOOL["name"]


@dataclass(frozen=True, kw_only=True)
class ServerKind:
    """How a server is reached, what it speaks, and whether all clients share it."""

    kind: Kind
    era: Era
    is_shared: bool

    @property
    def has_one_process(self) -> bool:
        """Whether it runs once, at one of all replicas: not where each client has its own, or it is a URL."""
        return self.kind == "stdio" and self.is_shared


_SERVED: tuple[tuple[Kind, Era], ...] = (
    ("stdio", "stateless"),
    ("http", "handshake"),
    ("sse", "handshake"),
    ("stdio", "handshake"),
    ("http", "stateless"),
)
KINDS = [
    ServerKind(kind=kind, era=era, is_shared=is_shared)
    for kind, era in _SERVED
    for is_shared in (True, False)
]
"""Every kind that needs no login, shared and not."""
ALL_KINDS = [
    *KINDS,
    ServerKind(kind="guarded", era="stateless", is_shared=True),
    ServerKind(kind="stdio", era="stateless", is_shared=True),
]
"""Twelve: every kind there is, and those that one replica owns once more."""


@dataclass(frozen=True, kw_only=True)
class Upstreams:
    """Servers, and where what they executed is recorded."""

    kinds: dict[str, ServerKind]
    record: Path
    mark: str
    web_port: int

    def url(self, name: str) -> str:
        """Where a server that has a URL is."""
        kind = self.kinds[name]
        return f"http://127.0.0.1:{self.web_port}/{name}/{kind.era if kind.kind == 'http' else kind.kind}"

    def entries(self, **more: object) -> dict[str, dict[str, Any]]:
        """Their entries in a configuration."""
        return {name: self._entry(name) | more for name in self.kinds}

    def _entry(self, name: str) -> dict[str, Any]:
        kind = self.kinds[name]
        common = {
            "trust": "trusted",
            "approval": "allow",
            "sharing": "shared" if kind.is_shared else "session",
        }
        if kind.kind == "stdio":
            command, *args = [*PROGRAM, "stdio", name, kind.era, str(self.record), self.mark]
            return {"command": command, "args": args, **common}
        entry = {"url": self.url(name), "transport": "sse" if kind.kind == "sse" else "http", **common}
        return entry | ({"login": "shared"} if kind.kind == "guarded" else {"oauth": False})


@contextmanager
def upstreams(folder: Path, mark: str, chosen: Sequence[ServerKind]) -> Generator[Upstreams]:
    """Servers of these kinds for the length of the block; those over stdio are started by gateways."""
    record = folder / "record"
    record.touch()
    kinds = {f"s{number}": kind for number, kind in enumerate(chosen)}
    command = [*PROGRAM, "web", str(record), mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as web:
        assert web.stdin is not None
        assert web.stdout is not None
        try:
            yield Upstreams(kinds=kinds, record=record, mark=mark, web_port=int(web.stdout.readline()))
        finally:
            web.stdin.close()
            web.wait(30)
