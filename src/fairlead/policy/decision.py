"""May a tool be called? A pure function of what the configuration says, with the reason in the result."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from fairlead.config.models import Server

Verdict = Literal["allow", "deny"]

_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True, slots=True)
class Within:
    """What a bundle takes from a server. One that the user wrote can grant what the entry does not."""

    bundle: str
    allow_tools: tuple[str, ...] | None
    deny_tools: tuple[str, ...]
    grants: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A verdict, why, and the field that decided: of the server's entry, or of the bundle's."""

    verdict: Verdict
    reason: str
    field: str | None = None
    bundle: str | None = None


_ALLOWED = Decision(verdict="allow", reason="no rule says otherwise")
_LISTED = Decision(verdict="allow", reason="it is in allow_tools", field="allow_tools")


def decide(server: Server, tool: str, within: Within | None = None) -> Decision:
    """Deny beats allow; of two allow lists a tool must be in both; an untrusted server needs at least one."""
    if _matches(tool, server.deny_tools):
        return Decision(verdict="deny", reason="it is in deny_tools", field="deny_tools")
    if within is not None and (refused := _refused_within(tool, within)) is not None:
        return refused
    if server.allow_tools is not None:
        if _matches(tool, server.allow_tools):
            return _LISTED
        return Decision(verdict="deny", reason="it is not in allow_tools", field="allow_tools")
    if server.trust == "trusted":
        return _ALLOWED
    if within is not None and within.grants and within.allow_tools is not None:
        reason = f"it is in allow_tools of the bundle `{within.bundle}`"
        return Decision(verdict="allow", reason=reason, field="allow_tools", bundle=within.bundle)
    return Decision(verdict="deny", reason="an untrusted server needs allow_tools", field="trust")


def _refused_within(tool: str, within: Within) -> Decision | None:
    if _matches(tool, within.deny_tools):
        reason = f"it is in deny_tools of the bundle `{within.bundle}`"
        return Decision(verdict="deny", reason=reason, field="deny_tools", bundle=within.bundle)
    if within.allow_tools is not None and not _matches(tool, within.allow_tools):
        reason = f"it is not in allow_tools of the bundle `{within.bundle}`"
        return Decision(verdict="deny", reason=reason, field="allow_tools", bundle=within.bundle)
    return None


def _matches(tool: str, patterns: tuple[str, ...]) -> bool:
    return tool in patterns or any(fnmatchcase(tool, glob) for glob in _globs(patterns))


@lru_cache(maxsize=1024)
def _globs(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that are more than a name: a review writes hundreds of names, and every call asks."""
    return tuple(pattern for pattern in patterns if not _WILD.isdisjoint(pattern))
