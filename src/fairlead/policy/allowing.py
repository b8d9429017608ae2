"""Write what a review decided: pins, and the exact names of tools into the file of a server's entry."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.catalog.entries import Listing, ToolEntry
from fairlead.config.edit import edit_file
from fairlead.config.lists import append_name, names_at, remove_name
from fairlead.config.load import LoadedServer
from fairlead.config.scopes import EditScope, EditTarget
from fairlead.config.sources import LayerName
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.policy.decision import listed
from fairlead.policy.pins import Pins, is_guarded, pinned_by_review, record_review
from fairlead.policy.tool_patterns import escape_name, is_glob

_SCOPES: dict[LayerName, EditScope] = {"project": "project", "user": "user", "file": "file"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What a review decided about the tools of a server."""

    approved: Sequence[ToolEntry] = ()
    denied: Sequence[str] = ()
    instructions: bool = False
    """What it says of itself was looked at, and is fine."""
    without_globs: Sequence[str] | None = None
    """The names to put in the place of globs in `allow_tools`, where that is wanted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Where the entry of a server is written."""

    target: EditTarget
    path: tuple[str, ...]


def entry_to_edit(server: LoadedServer) -> Entry:
    """The file that has a server's allow list, else the one that says what the server is."""
    setting = next(server.definition.settings(("allow_tools",)), None)
    part = server.definition.parts[0]
    layer, prefix = (setting.origin.layer, setting.origin.path[:-1]) if setting else (part.layer, part.prefix)
    if layer.path is None or layer.dialect is not None:
        reason = "which Fairlead reads but does not edit" if layer.path else "which is no file"
        raise ConfigUnwritable(
            f"`{server.server_id}` is described by {layer.label}, {reason}",
            hint="write `allow_tools` there by hand, or describe the server in a fairlead.json",
        )
    target = EditTarget(scope=_SCOPES.get(layer.name, "file"), path=layer.path)
    return Entry(target=target, path=tuple(map(str, prefix)))


def globs_of(server: LoadedServer) -> list[str]:
    """The entries of a server's allow list that are more than one name."""
    allowed = server.config.allow_tools if server.config else None
    return [pattern for pattern in allowed or () if is_glob(pattern)]


def require_worth(server: LoadedServer, decided: Decided) -> None:
    """Refuse what would take away more than it gives: an allow list for a server that needs none."""
    trusted = server.config is not None and server.config.trust == "trusted"
    if decided.approved and trusted and server.config and server.config.allow_tools is None:
        raise ConfigError(
            f"`{server.server_id}` is trusted, and all its tools are allowed already",
            hint="use `--deny` for those that are not to be used",
        )


def record_decision(
    store_path: Path, server: LoadedServer, listing: Listing, decided: Decided
) -> Entry | None:
    """Pin what was approved and write both lists; returns where, None if no file had to change.

    The pins come first: alone they allow nothing.
    """
    names = [tool.key.tool for tool in decided.approved if not _is_allowed(server, tool.key.tool)]
    entry = entry_to_edit(server) if names or decided.denied or decided.without_globs is not None else None
    if is_guarded(server) and (decided.approved or decided.instructions):
        _pin(store_path, server, listing, decided)
    if entry is not None:
        _write(entry, names, decided)
    return entry


def _is_allowed(server: LoadedServer, tool: str) -> bool:
    return server.config is not None and listed(server.config, tool).verdict == "allow"


def _write(entry: Entry, names: list[str], decided: Decided) -> None:
    allow, deny = (*entry.path, "allow_tools"), (*entry.path, "deny_tools")

    def change(text: str) -> str:
        wanted = [*names]
        if decided.without_globs is not None:
            wanted = [*decided.without_globs, *(tool.key.tool for tool in decided.approved)]
        for name in wanted:
            text = _with_name(text, allow, name)
        if decided.without_globs is not None:
            for pattern in filter(is_glob, names_at(text, allow)):
                text = remove_name(text, allow, pattern)
        for name in decided.denied:
            text = _with_name(text, deny, name)
        return text

    edit_file(entry.target.path, change)


def _with_name(text: str, path: tuple[str, ...], name: str) -> str:
    """The text with one more tool in a list: its exact name, whatever characters that has."""
    pattern = escape_name(name)
    return text if pattern in names_at(text, path) else append_name(text, path, pattern)


def _pin(store_path: Path, server: LoadedServer, listing: Listing, decided: Decided) -> None:
    allowed = (server.config.allow_tools if server.config else None) or ()
    patterns = [*allowed, *(escape_name(tool.key.tool) for tool in decided.approved)]

    def review(pins: Pins | None) -> Pins:
        return pinned_by_review(
            pins,
            decided.approved,
            instructions=pins.instructions if pins and not decided.instructions else listing.instructions,
            patterns=patterns,
            at=time.time(),
        )

    record_review(store_path, server, review)
