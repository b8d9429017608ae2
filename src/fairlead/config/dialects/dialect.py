"""What every foreign format has in common: where its files are, how it reads, how it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fairlead.config.paths import Place

Syntax = Literal["json", "jsonc", "toml", "yaml"]
Scope = Literal["user", "project"]
Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A file an agent keeps its servers in. It need not exist."""

    path: Path
    scope: Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something the other format says that ours cannot, or the reverse. Shown, never dropped in silence."""

    server_id: str | None
    """None where it is about the whole document."""
    field: str
    """A dotted path in the words of the side it was read from; empty where it is about the whole server."""
    message: str
    """The rest of a sentence that begins with the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """Servers (and bundles) in Fairlead's own words, before validation, with what did not fit."""

    servers: dict[str, Entry] = field(default_factory=dict[str, Entry])
    bundles: dict[str, Entry] = field(default_factory=dict[str, Entry])
    notes: list[Note] = field(default_factory=list[Note])


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The document to write, in the other format's words, with what did not fit."""

    document: dict[str, Any]
    notes: list[Note] = field(default_factory=list[Note])


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One foreign format."""

    name: str
    """What `--from` and `--to` take: `claude`, `vscode`, …"""
    title: str
    """What people call it: `Claude Code`, `VS Code`, …"""
    syntax: Syntax
    locations: Callable[[Place], list[Location]]
    """Where its files are, the ones that win first."""
    read: Callable[[dict[str, Any], Place], Imported]
    write: Callable[[Mapping[str, Entry]], Exported] | None = None
    """Takes entries in Fairlead's own words; None where the format is only read."""
