"""What a review looks at: every tool of a server, and what changed since the last look.

What a reviewer should look at in a tool's definition: hidden text, and words that look like an attack.

The words are advice. Nothing is refused for them: who means harm finds others, and who means none uses some.

Write what a review decided: pins, and one line for each tool in the file of a server's entry.

| answer | `allow_tools` | `approval.tools` | `deny_tools` |
|---|---|---|---|
| allow | the name, where the server needs or has such a list | `"allow"` | taken out |
| ask | the same | `"ask"` | taken out |
| deny | taken out | taken out | the name |

All of it is one edit of one entry, and the configuration alone answers what a tool may do.
"""

import difflib
import json
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from fairlead.catalog.definitions import TOOL_FIELDS, entry_digests, read_for_certain, visible_definition
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import (
    MAX_FINDINGS,
    DefinitionFinding,
    hidden_text,
    mask_value,
    texts,
)
from fairlead.catalog.sanitize.text import reveal_hidden, suspicious
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.config.command_lines import command_line
from fairlead.config.document import jsonc
from fairlead.config.document.edit import (
    append_name,
    edit_file,
    names_at,
    remove_name,
    remove_value,
    set_value,
)
from fairlead.config.edit_scope import ServerEntry, entry_to_edit
from fairlead.config.load import LoadedServer
from fairlead.config.merge import ValueOrigin
from fairlead.config.untyped import as_list, as_object, has_path, is_object, value_at
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.policy.approvals import forget_answers
from fairlead.policy.decision import (
    CallPolicy,
    Decision,
    approval_mode_of,
    claims_of,
    is_destructive,
    is_harmless,
    listed,
)
from fairlead.policy.pins import (
    Pin,
    Pins,
    are_instructions_new,
    change_since,
    is_guarded,
    may_be_pinned,
    pin_by_review,
    record_review,
)
from fairlead.policy.tool_names import escape_name, is_glob, matches_any, refuses_any
from fairlead.policy.upgrade import record_defaults
from fairlead.store.sqlite_file import DIGEST_PREFIX

__all__ = ["DefinitionFinding", "findings_of"]


def findings_of(entry: ToolEntry) -> tuple[DefinitionFinding, ...]:
    """All there is to say about a tool as its server defined it: what it hides first, then its words."""
    try:
        advice = tuple(islice(_advice(entry), MAX_FINDINGS))
    except (ValueError, RecursionError):
        return ()  # nobody can read it, so nobody is offered it
    return (*hidden_text(entry), *advice)


def _advice(entry: ToolEntry) -> Iterator[DefinitionFinding]:
    for where, text in texts(entry.read()):
        for advice in suspicious(text):
            yield DefinitionFinding(
                where=gate.masked(where), kind="suspicious", count=1, sample=gate.masked(advice)
            )


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
    kept = _find_deny_pattern(server, entry, tool)
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


def pattern_kept_by_reviews(server: LoadedServer, tool: str) -> tuple[str, ValueOrigin] | None:
    """The pattern in `deny_tools` that a review cannot take out, so that the tool stays denied; its place."""
    try:
        entry = entry_to_edit(server, _FIELDS)
    except ConfigUnwritable:
        entry = None
    return _find_deny_pattern(server, entry, tool)


def _find_deny_pattern(
    server: LoadedServer, entry: ServerEntry | None, tool: str
) -> tuple[str, ValueOrigin] | None:
    for part in server.definition.parts:
        for index, pattern in enumerate(as_list(value_at(part.entry, ("deny_tools",)))):
            is_own = entry is not None and part is entry.part and pattern in (tool, escape_name(tool))
            if isinstance(pattern, str) and refuses_any(tool, (pattern,)) and not is_own:
                return pattern, ValueOrigin(layer=part.layer, path=(*part.prefix, "deny_tools", index))
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
        return pin_by_review(
            pins,
            decision.usable,
            instructions=pins.instructions if pins and not decision.instructions else listing.instructions,
            patterns=patterns,
            at=time.time(),
        )

    record_review(store_path, server, review)


State = Literal["reviewed", "in use", "same but for defaults", "changed", "new"]
"""Somebody looked at it; it was pinned on first use; or how it differs from what was pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedTool:
    """One tool under review."""

    entry: ToolEntry
    state: State
    pin: Pin | None
    allowed: bool
    denied: bool
    decision: Decision
    """What happens when it is called, by the configuration as it is."""
    has_mode: bool
    """Does its server's entry say so, rather than a default?"""
    suggested: Answer
    """The answer that is preselected."""

    @property
    def name(self) -> str:
        """What its server calls it."""
        return self.entry.key.tool

    @property
    def waits(self) -> bool:
        """Does somebody have to decide about it before it can be used?"""
        return not self.denied and (not self.allowed or self.state in ("changed", "new"))

    @property
    def is_open(self) -> bool:
        """Is there anything to decide?"""
        return self.waits or (not self.denied and (self.state != "reviewed" or not self.has_mode))

    @property
    def standing(self) -> str:
        """What holds of it, in words."""
        if self.denied:
            return "denied"
        if self.state == "changed":
            return "held back"
        return {"allow": "allowed", "ask": "asked about"}.get(self.decision.verdict, "not allowed")

    @property
    def is_risky(self) -> bool:
        """Does its definition hide something or look odd, or does it say that it destroys things?"""
        return self.risk > 0

    @property
    def risk(self) -> int:
        """How much of a closer look it needs: 2 where its definition hides something or looks odd."""
        return 2 if findings_of(self.entry) else int(is_destructive(self.entry.definition))

    @property
    def digest(self) -> str:
        """What its definition is at this moment, to tell whether that is still what somebody looked at."""
        return entry_digests(self.entry).strict

    def definition(self) -> dict[str, Any]:
        """Its visible definition."""
        return _read(self.entry.definition)

    def before(self) -> dict[str, Any] | None:
        """Its definition as it was pinned, where it is another now."""
        if self.pin is None or not self.pin.has_definition:
            return None
        changed = self.state in ("changed", "same but for defaults")
        return _read(bytes(self.pin.definition)) if changed else None


def tools_to_review(
    server: LoadedServer, listing: Listing, pins: Pins | None, *, before_defaults: bool = False
) -> list[ReviewedTool]:
    """Every tool of a server with what is known of it, those that wait for a decision first.

    Args:
        server: The server.
        listing: What it lists, as it came.
        pins: What is pinned of it.
        before_defaults: Does it keep the default of an earlier release (see `policy.upgrade`)?
    """
    policy = CallPolicy(server, before_defaults=before_defaults)
    tools = [_tool(server, policy, entry, pins) for entry in listing.tools]
    return sorted(tools, key=lambda tool: (not tool.waits, tool.state == "reviewed"))


def _tool(server: LoadedServer, policy: CallPolicy, entry: ToolEntry, pins: Pins | None) -> ReviewedTool:
    assert server.config is not None, "it was connected"
    name = entry.key.tool
    lists = listed(server.config, name)
    pin = pins.tools.get(name) if pins else None
    has_mode = approval_mode_of(server.config, name) is not None
    state = _state(entry, pin) if is_guarded(server) else _state_if_trusted(entry, pin, has_mode=has_mode)
    return ReviewedTool(
        entry=entry,
        state=state,
        pin=pin,
        allowed=lists.verdict == "allow",
        denied=lists.field == "deny_tools",
        decision=policy.decide(name, entry=entry),
        has_mode=has_mode,
        suggested=_suggest_answer(server, entry),
    )


def review_notes(server: LoadedServer, tools: int, *, before_defaults: bool = False) -> tuple[str, ...]:
    """What a review of a server would settle, by its entry alone: one line, with the command.

    Args:
        server: The server.
        tools: How many tools it is known to have.
        before_defaults: Does it keep the default of an earlier release (see `policy.upgrade`)?
    """
    config, command = server.config, f"run `{command_line('review', server.server_id)}`"
    if config is None or not server.usable or not tools or server.transport in ("builtin", "in_process"):
        return ()
    is_decided = config.approval is not None or server.approval is not None
    if config.trust == "untrusted" and config.allow_tools is None:
        return (f"agents get none of its tools before they are reviewed: {command}",)
    if config.trust == "untrusted" and not is_decided:
        return (f"calls of its tools are asked about until they are reviewed: {command}",)
    if before_defaults and not is_decided:
        return (f"as before the upgrade, calls of its tools are asked about until a review: {command}",)
    return ()


def _suggest_answer(server: LoadedServer, entry: ToolEntry) -> Answer:
    """The answer to preselect. Annotations count where the server is trusted; what looks odd is denied."""
    if findings_of(entry):
        return "deny"
    trusted = server.transport == "builtin" or (
        server.config is not None and server.config.trust == "trusted"
    )
    return "allow" if trusted and is_harmless(entry.definition) else "ask"


def _state(entry: ToolEntry, pin: Pin | None) -> State:
    if pin is None:
        return "new"
    match change_since(pin, entry):
        case None:
            return "reviewed" if pin.by == "review" else "in use"
        case "defaults":
            return "same but for defaults"
        case _:
            return "changed"


def _state_if_trusted(entry: ToolEntry, pin: Pin | None, *, has_mode: bool) -> State:
    """A tool of a server that needs no pins: held to a review's pin alone, where it has one."""
    if pin is not None and pin.by == "review" and change_since(pin, entry) == "changed":
        return "changed"
    return "reviewed" if has_mode else "in use"


def instructions_changed(listing: Listing, pins: Pins | None) -> bool:
    """Does a server say something of itself that nobody looked at?"""
    return listing.instructions is not None and (
        pins is None or are_instructions_new(listing.instructions, pins)
    )


def _read(definition: bytes) -> dict[str, Any]:
    """A visible definition with known secrets masked; one that cannot be read for certain, as it came."""
    try:
        whole = read_for_certain(visible_definition("tool", definition))
        json.dumps(whole, indent=2)
        return mask_value(whole)
    except (ValueError, RecursionError) as exc:
        came = definition.decode(errors="backslashreplace")
        return {"description": gate.masked(f"(its definition cannot be read: {exc})\n{came}")}


# In words.


def whole(definition: dict[str, Any]) -> Iterator[str]:
    """All of a definition but the name, field by field, with whatever hides in it spelled out."""
    for field in TOOL_FIELDS:
        if field in definition and field != "name":
            yield f"{field}:"
            yield from (f"  | {reveal_hidden(line)}" for line in _lines(definition[field]))


def diff(before: dict[str, Any], now: dict[str, Any], fields: tuple[str, ...] = TOOL_FIELDS) -> Iterator[str]:
    """What changed, field by field: lines that went with `-`, lines that came with `+`."""
    for field in fields:
        old, new = _lines(before.get(field)), _lines(now.get(field))
        if old == new:  # the values themselves would be the same to Python where one is 1 and one is true
            continue
        yield f"{field}:"
        lines = islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None)
        yield from (f"  {reveal_hidden(line)}" for line in lines if not line.startswith("@@"))
        unusual = _new_letters(old, new)
        if unusual:
            yield f"  letters that were not there before: {unusual}"


def instructions_diff(listing: Listing, pins: Pins | None) -> Iterator[str]:
    """What is new in what a server tells models about itself."""
    known = pins.instructions if pins else None
    before = {"instructions": known} if known and not known.startswith(DIGEST_PREFIX) else {}
    return diff(before, {"instructions": listing.instructions}, fields=("instructions",))


def _lines(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.split("\n")
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).split("\n")


def _new_letters(old: list[str], new: list[str]) -> str:
    """The letters beyond ASCII that came in, by name: they may look like others."""
    came = sorted({letter for line in new for letter in line if not letter.isascii()} - set("".join(old)))
    shown = [
        f"{reveal_hidden(letter)} (U+{ord(letter):04X} {unicodedata.name(letter, '?')})"
        for letter in came[:8]
    ]
    return ", ".join([*shown, "…"] if len(came) > len(shown) else shown)


def words_of(finding: DefinitionFinding) -> str:
    """What was found in a definition, for people."""
    where = reveal_hidden(finding.where)
    if finding.kind == "suspicious":
        return f"its {where} looks suspicious: it {finding.sample}"
    return f"{where} hides {finding.kind} characters ({finding.count}): {reveal_hidden(finding.sample)}"


def review_as_json(
    server_id: str, listing: Listing, pins: Pins | None, tools: list[ReviewedTool]
) -> dict[str, Any]:
    """A review for programs."""
    return {
        "server": server_id,
        "instructions": listing.instructions,
        "instructions_changed": instructions_changed(listing, pins),
        "tools": [_as_json(tool) for tool in tools],
    }


def _as_json(tool: ReviewedTool) -> dict[str, Any]:
    before = tool.before()
    return {
        "name": tool.name,
        "state": tool.state,
        "allowed": tool.allowed,
        "denied": tool.denied,
        "waits": tool.waits,
        "answer": tool.decision.verdict,
        "reason": tool.decision.reason,
        "suggested": tool.suggested,
        "claims": claims_of(tool.entry.definition),
        "findings": [asdict(finding) for finding in findings_of(tool.entry)],
        "diff": [*diff(before, tool.definition())] if before is not None else None,
        "definition": tool.definition(),
    }
