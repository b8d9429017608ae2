"""Write what a review decided: pins, and one line for each tool in the file of a server's entry.

| answer | `allow_tools` | `approval.tools` | `deny_tools` |
|---|---|---|---|
| allow | the name, where the server needs or has such a list | `"allow"` | taken out |
| ask | the same | `"ask"` | taken out |
| deny | taken out | taken out | the name |

All of it is one edit of one entry, and the configuration alone answers what a tool may do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fairlead.catalog.entries import Listing, ToolEntry
from fairlead.config import jsonc
from fairlead.config.edit import edit_file, remove_value, set_value
from fairlead.config.lists import append_name, names_at, remove_name
from fairlead.config.load import LoadedServer
from fairlead.config.merge import Origin
from fairlead.config.scopes import ServerEntry, entry_to_edit
from fairlead.config.shapes import as_list, as_object, has_path, is_object, value_at
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.policy.approvals import forget_answers
from fairlead.policy.decision import listed
from fairlead.policy.pins import Pins, may_be_pinned, pinned_by_review, record_review
from fairlead.policy.tool_patterns import escape_name, is_glob, matches_any, refuses_any
from fairlead.policy.upgrade import record_defaults

_FIELDS: Final = ("allow_tools", "approval")
"""The fields that say what tools may do, and so decide which entry answers are written into."""

Answer = Literal["allow", "ask", "deny"]
"""What a review says about a tool: call it, ask before each call, or never call it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewDecision:
    """What a review decided about the tools of a server."""

    allow: Sequence[ToolEntry] = ()
    ask: Sequence[ToolEntry] = ()
    deny: Sequence[str] = ()
    instructions: bool = False
    """What it says of itself was looked at, and is fine."""
    without_globs: Sequence[str] | None = None
    """The names to put in the place of globs in `allow_tools`, where that is wanted."""

    @property
    def usable(self) -> list[ToolEntry]:
        """The tools that may be offered: those that are allowed and those that are asked about."""
        return [*self.allow, *self.ask]

    @property
    def is_empty(self) -> bool:
        """Is there nothing to record?"""
        return not (self.allow or self.ask or self.deny or self.instructions)


def globs_of(server: LoadedServer) -> list[str]:
    """The entries of a server's allow list that are more than one name."""
    allowed = server.config.allow_tools if server.config else None
    return [pattern for pattern in allowed or () if is_glob(pattern)]


def record_decision(
    store_path: Path, server: LoadedServer, listing: Listing, decision: ReviewDecision
) -> ServerEntry | None:
    """Pin what was looked at and write the answers; returns where, None if no file had to change.

    The pins come first: alone they allow nothing.

    Raises:
        ConfigError: A tool to be allowed is denied by a pattern that a review cannot take out.
        ConfigUnwritable: The entry is not in a file that Fairlead edits.
    """
    entry = _entry_to_write(server, decision)
    if entry is not None:
        for tool in decision.usable:
            _require_not_denied(server, entry, tool.key.tool)
    if may_be_pinned(server) and (decision.usable or decision.instructions):
        _pin(store_path, server, listing, decision)
    if entry is not None:
        _write(server, entry, decision)
    forget_answers(store_path, server.server_id, [*(tool.key.tool for tool in decision.ask), *decision.deny])
    record_defaults(store_path, [server])
    return entry


def _entry_to_write(server: LoadedServer, decision: ReviewDecision) -> ServerEntry | None:
    """The entry that the answers go into; None where nothing has to be written, or all there is are pins.

    A tool that a list of an entry which cannot be edited offers can still be pinned anew.
    """
    if not (decision.usable or decision.deny or decision.without_globs is not None):
        return None
    try:
        return entry_to_edit(server, _FIELDS)
    except ConfigUnwritable:
        config = server.config
        offered = config and all(listed(config, tool.key.tool).verdict == "allow" for tool in decision.usable)
        if decision.deny or decision.without_globs is not None or not offered:
            raise
        return None


def _require_not_denied(server: LoadedServer, entry: ServerEntry, tool: str) -> None:
    """Refuse to allow what stays denied: by a glob, or by another file than the one to be edited."""
    kept = _kept_pattern(server, entry, tool)
    if kept is not None:
        pattern, origin = kept
        raise ConfigError(
            f"`{server.server_id}/{tool}` stays denied: deny_tools has `{pattern}` ({origin})",
            hint=f"take `{pattern}` out of deny_tools there, and review again",
        )


def hint_to_write(server: LoadedServer) -> str | None:
    """Where to write answers by hand, for an entry that Fairlead does not edit; None where it does.

    None for what a program passes to the library as well: its user reviews what the command line knows.
    """
    if server.definition.parts[-1].layer.name == "override":
        return None
    try:
        entry_to_edit(server, _FIELDS)
    except ConfigUnwritable as exc:
        return f"{exc}: {exc.hint}"
    return None


def pattern_kept_by_reviews(server: LoadedServer, tool: str) -> tuple[str, Origin] | None:
    """The pattern in `deny_tools` that a review cannot take out, so that the tool stays denied; its place."""
    try:
        entry = entry_to_edit(server, _FIELDS)
    except ConfigUnwritable:
        entry = None
    return _kept_pattern(server, entry, tool)


def _kept_pattern(server: LoadedServer, entry: ServerEntry | None, tool: str) -> tuple[str, Origin] | None:
    for part in server.definition.parts:
        for index, pattern in enumerate(as_list(value_at(part.entry, ("deny_tools",)))):
            is_own = entry is not None and part is entry.part and pattern in (tool, escape_name(tool))
            if isinstance(pattern, str) and refuses_any(tool, (pattern,)) and not is_own:
                return pattern, Origin(layer=part.layer, path=(*part.prefix, "deny_tools", index))
    return None


def _write(server: LoadedServer, entry: ServerEntry, decision: ReviewDecision) -> None:
    def change(text: str) -> str:
        for tool in decision.usable:
            for pattern in {tool.key.tool, escape_name(tool.key.tool)}:
                text = _without_name(text, (*entry.path, "deny_tools"), pattern)
        text = _with_allowed(text, server, entry, decision)
        for tool in decision.allow:
            text = _with_mode(text, server, entry, tool.key.tool, "allow")
        for tool in decision.ask:
            text = _with_mode(text, server, entry, tool.key.tool, "ask")
        for name in decision.deny:
            text = _with_denied(text, entry, name)
        return text

    edit_file(entry.target.path, change)


def _with_allowed(text: str, server: LoadedServer, entry: ServerEntry, decision: ReviewDecision) -> str:
    """The text with the allow list that the decision needs."""
    path = (*entry.path, "allow_tools")
    before = (server.config.allow_tools if server.config else None) or ()
    if server.config is not None and server.config.trust == "trusted" and not before:
        return text  # a list would take away what it does not name
    wanted = [tool.key.tool for tool in decision.usable]
    if decision.without_globs is None:
        wanted = [name for name in wanted if not matches_any(name, before)]
    else:
        wanted = [*decision.without_globs, *wanted]
    if wanted and before and not names_at(text, path):
        # Another layer has the list: this one replaces it, and so begins with what it says.
        text = set_value(text, path, list(before))
    for name in wanted:
        text = _with_name(text, path, name)
    if decision.without_globs is not None:
        for pattern in filter(is_glob, names_at(text, path)):
            text = remove_name(text, path, pattern)
    return text


def _with_mode(text: str, server: LoadedServer, entry: ServerEntry, tool: str, mode: Answer) -> str:
    """The text with the approval mode of one tool. A mode of the whole server becomes the default of it."""
    path, pattern = (*entry.path, "approval"), escape_name(tool)
    said = value_at(jsonc.parse(text).data, path)
    if not is_object(said):
        # What is in effect may be said by another layer, and an object would take its place.
        inherited = said if said is not None else server.entry.get("approval")
        if isinstance(inherited, str):
            below = _patterns_below(server, entry)
            tools = {**dict.fromkeys(below, inherited), pattern: mode}
            return set_value(text, path, {"default": inherited, "tools": tools})
        if has_path(jsonc.parse(text).data, path):  # null: says nothing, and nothing can be added to it
            return set_value(text, path, {"tools": {pattern: mode}})
    return set_value(text, (*path, "tools", pattern), mode)


def _patterns_below(server: LoadedServer, entry: ServerEntry) -> list[str]:
    """What `approval.tools` of lower layers names: out of effect below a plain mode, not below an object."""
    parts = server.definition.parts
    below = parts[: parts.index(entry.part)]
    return [pattern for part in below for pattern in as_object(value_at(part.entry, ("approval", "tools")))]


def _with_denied(text: str, entry: ServerEntry, tool: str) -> str:
    allow = (*entry.path, "allow_tools")
    if len(names_at(text, allow)) > 1:  # without a list a trusted server would offer all its tools
        text = _without_name(text, allow, escape_name(tool))
    if is_object(value_at(jsonc.parse(text).data, (*entry.path, "approval"))):
        text = remove_value(text, (*entry.path, "approval", "tools", escape_name(tool)))
    return _with_name(text, (*entry.path, "deny_tools"), tool)


def _with_name(text: str, path: tuple[str, ...], name: str) -> str:
    """The text with one more tool in a list: its exact name, whatever characters that has."""
    pattern = escape_name(name)
    return text if pattern in names_at(text, path) else append_name(text, path, pattern)


def _without_name(text: str, path: tuple[str, ...], pattern: str) -> str:
    """The text without a pattern in a list; without the list, where it was the last one."""
    names = names_at(text, path)
    return remove_value(text, path) if names == [pattern] else remove_name(text, path, pattern)


def _pin(store_path: Path, server: LoadedServer, listing: Listing, decision: ReviewDecision) -> None:
    allowed = (server.config.allow_tools if server.config else None) or ()
    patterns = [*allowed, *(escape_name(tool.key.tool) for tool in decision.usable)]

    def review(pins: Pins | None) -> Pins:
        return pinned_by_review(
            pins,
            decision.usable,
            instructions=pins.instructions if pins and not decision.instructions else listing.instructions,
            patterns=patterns,
            at=time.time(),
        )

    record_review(store_path, server, review)
