"""What a review looks at: every tool of a server, and what changed since the last look."""

import difflib
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from fairlead.catalog import gate
from fairlead.catalog.cleaning import mask_value
from fairlead.catalog.definitions import TOOL_FIELDS, visible_definition
from fairlead.catalog.digest import entry_digests, read_for_certain
from fairlead.catalog.entries import Listing, ToolEntry
from fairlead.catalog.sanitise import made_visible
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.policy.allowing import Answer
from fairlead.policy.claims import claims_of, is_destructive, is_harmless
from fairlead.policy.decision import CallPolicy, Decision, approval_mode_of, listed
from fairlead.policy.findings import Finding, findings_of
from fairlead.policy.pins import Pin, Pins, are_instructions_new, change_since, is_guarded
from fairlead.store.file import DIGEST_PREFIX

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
    state = _state(entry, pin) if is_guarded(server) else _trusted_state(entry, pin, has_mode=has_mode)
    return ReviewedTool(
        entry=entry,
        state=state,
        pin=pin,
        allowed=lists.verdict == "allow",
        denied=lists.field == "deny_tools",
        decision=policy.decide(name, entry=entry),
        has_mode=has_mode,
        suggested=_suggested(server, entry),
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


def _suggested(server: LoadedServer, entry: ToolEntry) -> Answer:
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


def _trusted_state(entry: ToolEntry, pin: Pin | None, *, has_mode: bool) -> State:
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
            yield from (f"  | {made_visible(line)}" for line in _lines(definition[field]))


def diff(before: dict[str, Any], now: dict[str, Any], fields: tuple[str, ...] = TOOL_FIELDS) -> Iterator[str]:
    """What changed, field by field: lines that went with `-`, lines that came with `+`."""
    for field in fields:
        old, new = _lines(before.get(field)), _lines(now.get(field))
        if old == new:  # the values themselves would be the same to Python where one is 1 and one is true
            continue
        yield f"{field}:"
        lines = islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None)
        yield from (f"  {made_visible(line)}" for line in lines if not line.startswith("@@"))
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
        f"{made_visible(letter)} (U+{ord(letter):04X} {unicodedata.name(letter, '?')})" for letter in came[:8]
    ]
    return ", ".join([*shown, "…"] if len(came) > len(shown) else shown)


def words_of(finding: Finding) -> str:
    """What was found in a definition, for people."""
    where = made_visible(finding.where)
    if finding.kind == "suspicious":
        return f"its {where} looks suspicious: it {finding.sample}"
    return f"{where} hides {finding.kind} characters ({finding.count}): {made_visible(finding.sample)}"


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
