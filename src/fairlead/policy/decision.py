"""May a tool be called? A pure function of what the configuration says, with the reason in the result."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from fairlead.config.models import Server

Verdict = Literal["allow", "deny"]

_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A verdict, why, and the field of the server's entry that decided."""

    verdict: Verdict
    reason: str
    field: str | None = None


_ALLOWED = Decision(verdict="allow", reason="no rule says otherwise")
_LISTED = Decision(verdict="allow", reason="it is in allow_tools", field="allow_tools")


def decide(server: Server, tool: str) -> Decision:
    """Deny beats allow; an untrusted server may run only what is on its allow list."""
    if _matches(tool, server.deny_tools):
        return Decision(verdict="deny", reason="it is in deny_tools", field="deny_tools")
    if server.allow_tools is None:
        if server.trust == "trusted":
            return _ALLOWED
        return Decision(verdict="deny", reason="an untrusted server needs allow_tools", field="trust")
    if _matches(tool, server.allow_tools):
        return _LISTED
    return Decision(verdict="deny", reason="it is not in allow_tools", field="allow_tools")


def _matches(tool: str, patterns: tuple[str, ...]) -> bool:
    return tool in patterns or any(fnmatchcase(tool, glob) for glob in _globs(patterns))


@lru_cache(maxsize=1024)
def _globs(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that are more than a name: a review writes hundreds of names, and every call asks."""
    return tuple(pattern for pattern in patterns if not _WILD.isdisjoint(pattern))
