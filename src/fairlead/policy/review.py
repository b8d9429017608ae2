"""Review of a server's tools: changes since the last review, and recording the answers.

Answers are pinned and written as one edit of the server's entry, so that the configuration alone says what a
tool may do:

| answer | `allow_tools` | `approval.tools` | `deny_tools` |
|---|---|---|---|
| allow | the name, where the server needs or has an allowlist | `"allow"` | removed |
| ask | the same | `"ask"` | removed |
| deny | removed | removed | the name |
"""

import difflib
import json
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, Literal

from fairlead.catalog.definitions import TOOL_FIELDS, entry_digests, read_for_certain, visible_definition
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import mask_value
from fairlead.catalog.sanitize.text import reveal_hidden
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey
from fairlead.config.command_lines import command_line
from fairlead.config.document import jsonc
from fairlead.config.document.edit import (
    append_name,
    append_names,
    edit_file,
    names_at,
    remove_name,
    remove_value,
    set_members,
    set_value,
)
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget, ServerEntry, entry_in, entry_to_edit
from fairlead.config.load import LoadedServer
from fairlead.config.merge import ValueOrigin
from fairlead.config.models import ApprovalMode
from fairlead.config.sources import Layer
from fairlead.config.store_location import StoreLocation
from fairlead.config.untyped import as_list, as_object, has_path, is_object, value_at
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.policy.approvals import forget_answers
from fairlead.policy.decision import (
    CallPolicy,
    Decision,
    approval_mode_of,
    claims_of,
    decide_by_lists,
    is_destructive,
)
from fairlead.policy.findings import findings_of, has_findings
from fairlead.policy.pins import (
    Pin,
    Pins,
    change_since,
    instructions_state,
    is_guarded,
    may_be_pinned,
    pin_by_review,
    record_review,
)
from fairlead.policy.suggestions import is_named_by_user, suggest_answer
from fairlead.policy.tool_names import (
    command_line_name,
    denies_any,
    escape_name,
    is_glob,
    matches_any,
    review_command,
)
from fairlead.policy.upgrade import record_defaults
from fairlead.store.sqlite_file import DIGEST_PREFIX, text_digest

REVIEW_FIELDS: Final = ("allow_tools", "approval")
"""Fields that decide about tools, and so which entry the answers are written into."""

_EVERY: Final = "*"
"""Allowlist of a server without tools of which models may read: see `policy.unreviewed`."""

ReviewAnswer = Literal["allow", "ask", "deny"]
"""Answer of a review about a tool: allow, ask before each call, or deny."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewDecision:
    """Answers of a review about the tools of a server."""

    allow: Sequence[ToolEntry] = ()
    ask: Sequence[ToolEntry] = ()
    deny: Sequence[str] = ()
    instructions: bool | None = None
    """Whether its instructions were accepted or refused; None where that was not answered."""
    reading: bool = False
    """Whether models may read what it offers, where it has no tools: see `policy.unreviewed`."""
    without_globs: Sequence[str] | None = None
    """Names to replace globs in `allow_tools`, where that is wanted."""

    @property
    def usable(self) -> list[ToolEntry]:
        """Tools that may be offered: answered with allow or ask."""
        return [*self.allow, *self.ask]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to record."""
        return self.instructions is None and not (self.allow or self.ask or self.deny or self.reading)


def globs_of(server: LoadedServer) -> list[str]:
    """Globs in a server's allowlist."""
    allowed = server.config.allow_tools if server.config else None
    return [pattern for pattern in allowed or () if is_glob(pattern)]


def record_decision(
    store_path: StoreLocation,
    server: LoadedServer,
    listing: Listing,
    decision: ReviewDecision,
    *,
    target: EditTarget | None = None,
    layers: Sequence[Layer] = (),
) -> ServerEntry | None:
    """Pin the reviewed tools and write the answers.

    Pins are written first: alone they allow nothing.

    Args:
        store_path: The store, for the pins.
        server: The server.
        listing: What was reviewed of it.
        decision: The answers.
        target: The file to write them into; by default the one whose entry decides about its tools.
        layers: The layers of the configuration, as for `entry_to_edit`.

    Returns:
        The edited entry; None if no file had to change.

    Raises:
        ConfigError: A tool to be allowed is denied by a pattern that a review cannot remove.
        ConfigUnwritable: The entry is not in a file that Fairlead edits.
        UnknownServer: `target` is below the file that defines the server.
    """
    entry = _entry_to_write(server, decision, target, layers)
    if entry is not None:
        for tool in decision.usable:
            _require_not_denied(server, entry, tool.key, "allow" if tool in decision.allow else "ask")
    if may_be_pinned(server) and (decision.usable or decision.instructions is not None or decision.reading):
        _pin(store_path, server, listing, decision)
    if entry is not None:
        _write(server, entry, decision)
    forget_answers(store_path, server.server_id, [*(tool.key.tool for tool in decision.ask), *decision.deny])
    record_defaults(store_path, [server])
    return entry


def _entry_to_write(
    server: LoadedServer, decision: ReviewDecision, target: EditTarget | None, layers: Sequence[Layer]
) -> ServerEntry | None:
    """Entry to write the answers into; None where only pins change.

    A tool that an allowlist of a read-only entry offers can still be pinned again.
    """
    if not (decision.usable or decision.deny or decision.reading or decision.without_globs is not None):
        return None
    if target is not None:
        return entry_in(server, target)
    try:
        return entry_to_edit(server, REVIEW_FIELDS, layers)
    except ConfigUnwritable:
        config = server.config
        offered = config and all(
            decide_by_lists(config, tool.key.tool, server_id=server.server_id).verdict == "allow"
            for tool in decision.usable
        )
        if decision.deny or decision.reading or decision.without_globs is not None or not offered:
            raise
        return None


def _require_not_denied(server: LoadedServer, entry: ServerEntry, key: ToolKey, answer: ReviewAnswer) -> None:
    """Refuse to allow a tool that stays denied: by a glob, or by another file than the edited one."""
    kept = _find_deny_pattern(server, entry, key.tool)
    if kept is not None:
        pattern, origin = kept
        command = _command_for_scope(server, key, answer)
        by_hand = f"remove `{pattern}` from deny_tools there, and review again"
        raise ConfigError(
            f"`{key}` stays denied: deny_tools has `{pattern}` ({origin})",
            hint=f"run `{command}` to take it out there" if command else by_hand,
        )


def _command_for_scope(server: LoadedServer, key: ToolKey, answer: ReviewAnswer) -> str | None:
    """Review that takes a tool out of the only denylist that has it; None where no review can."""
    for part in server.definition.parts:
        if part.layer.name not in ("project", "user") or part.layer.path is None or part.layer.dialect:
            continue
        entry = entry_in(server, EditTarget(scope=part.layer.name, path=part.layer.path))
        if _find_deny_pattern(server, entry, key.tool) is None:
            words = (f"--{answer}", command_line_name(key), "--scope", part.layer.name)
            return command_line("review", key.server_id, options=words)
    return None


def hint_to_write(server: LoadedServer) -> str | None:
    """Hint where to write answers by hand, for an entry that Fairlead does not edit; None where it does.

    Also None for servers that a program passes to the library: its user reviews those of the command line.
    """
    if server.definition.parts[-1].layer.name == "override":
        return None
    try:
        entry_to_edit(server, REVIEW_FIELDS)
    except ConfigUnwritable as exc:
        return f"{exc}: {exc.hint}"
    return None


def hint_to_undeny(server: LoadedServer, key: ToolKey, *, shows_files: bool) -> str | None:
    """Hint for a tool that `deny_tools` denies and a plain review cannot allow; None where one can.

    Args:
        server: The server.
        key: The tool.
        shows_files: Whether the hint may name the file, which is the operator's.
    """
    try:
        entry = entry_to_edit(server, REVIEW_FIELDS)
    except ConfigUnwritable:
        entry = None
    kept = _find_deny_pattern(server, entry, key.tool)
    if kept is None:
        return None
    if command := _command_for_scope(server, key, "allow"):
        return f"run `{command}` to allow it"
    pattern, origin = kept
    place = str(origin) if shows_files else "the gateway's configuration"
    return f"take `{pattern}` out of deny_tools in {place}, then run `{review_command(key)}`"


def _find_deny_pattern(
    server: LoadedServer, entry: ServerEntry | None, tool: str
) -> tuple[str, ValueOrigin] | None:
    for part in server.definition.parts:
        for index, pattern in enumerate(as_list(value_at(part.entry, ("deny_tools",)))):
            is_own = entry is not None and part is entry.part and pattern in (tool, escape_name(tool))
            if isinstance(pattern, str) and denies_any(server.server_id, tool, (pattern,)) and not is_own:
                return pattern, ValueOrigin(layer=part.layer, path=(*part.prefix, "deny_tools", index))
    return None


def _write(server: LoadedServer, entry: ServerEntry, decision: ReviewDecision) -> None:
    def change(text: str) -> str:
        denied = {*names_at(text, (*entry.path, "deny_tools"))}
        for tool in decision.usable:
            for pattern in denied & {tool.key.tool, escape_name(tool.key.tool)}:
                text = _without_name(text, (*entry.path, "deny_tools"), pattern)
        text = _with_allowed(text, server, entry, decision)
        modes: dict[str, ReviewAnswer] = {tool.key.tool: "allow" for tool in decision.allow}
        modes.update({tool.key.tool: "ask" for tool in decision.ask})
        text = _with_modes(text, server, entry, modes)
        return _with_denied(text, entry, decision.deny)

    edit_file(entry.target.path, change, create=EMPTY_FILE)


def _with_allowed(text: str, server: LoadedServer, entry: ServerEntry, decision: ReviewDecision) -> str:
    """Add the allowlist that the decision needs to the text."""
    path = (*entry.path, "allow_tools")
    if decision.reading and _EVERY not in names_at(text, path):
        text = append_name(text, path, _EVERY)
    before = (server.config.allow_tools if server.config else None) or ()
    if server.config is not None and server.config.trust == "trusted" and not before:
        return text  # an allowlist would deny every tool it does not name
    wanted = [tool.key.tool for tool in decision.usable]
    if decision.without_globs is None:
        wanted = [name for name in wanted if not matches_any(name, before)]
    else:
        wanted = [*decision.without_globs, *wanted]
    if wanted and before and not names_at(text, path):
        # Another layer has the list: this one replaces it, and so starts with its items.
        text = set_value(text, path, list(before))
    text = _with_names(text, path, wanted)
    if decision.without_globs is not None:
        for pattern in filter(is_glob, names_at(text, path)):
            text = remove_name(text, path, pattern)
    return text


def _with_modes(
    text: str, server: LoadedServer, entry: ServerEntry, modes: Mapping[str, ReviewAnswer]
) -> str:
    """Set the approval modes of tools in the text. A mode of the whole server becomes its default."""
    path = (*entry.path, "approval")
    wanted = {escape_name(tool): mode for tool, mode in modes.items()}
    current = value_at(jsonc.parse(text).data, path)
    if wanted and not is_object(current):
        # Another layer may set the mode in effect, and an object would replace it.
        inherited = current if current is not None else server.entry.get("approval")
        if isinstance(inherited, str):
            tools = {**dict.fromkeys(_patterns_below(entry), inherited), **wanted}
            return set_value(text, path, {"default": inherited, "tools": tools})
        if has_path(jsonc.parse(text).data, path):  # null: nothing can be added to it
            return set_value(text, path, {"tools": wanted})
    return set_members(text, (*path, "tools"), wanted)


def _patterns_below(entry: ServerEntry) -> list[str]:
    """Patterns in `approval.tools` of lower layers: overridden by a plain mode, merged with an object."""
    return [
        pattern for part in entry.below for pattern in as_object(value_at(part.entry, ("approval", "tools")))
    ]


def _with_denied(text: str, entry: ServerEntry, tools: Sequence[str]) -> str:
    allow, approval = (*entry.path, "allow_tools"), (*entry.path, "approval")
    allowed, modes = {*names_at(text, allow)}, value_at(jsonc.parse(text).data, (*approval, "tools"))
    for pattern in map(escape_name, tools):
        # The last name stays: without the list a trusted server would offer all its tools.
        if pattern in allowed and len(names_at(text, allow)) > 1:
            text = _without_name(text, allow, pattern)
        if pattern in as_object(modes):
            text = remove_value(text, (*approval, "tools", pattern))
    return _with_names(text, (*entry.path, "deny_tools"), tools)


def _with_names(text: str, path: tuple[str, ...], names: Sequence[str]) -> str:
    """Add tools to a list in the text: their exact names, escaped."""
    known = {*names_at(text, path)}
    patterns = dict.fromkeys(map(escape_name, names))
    return append_names(text, path, [pattern for pattern in patterns if pattern not in known])


def _without_name(text: str, path: tuple[str, ...], pattern: str) -> str:
    """Remove a pattern from a list in the text, and the list with its last item."""
    names = names_at(text, path)
    return remove_value(text, path) if names == [pattern] else remove_name(text, path, pattern)


def _pin(store_path: StoreLocation, server: LoadedServer, listing: Listing, decision: ReviewDecision) -> None:
    allowed = (server.config.allow_tools if server.config else None) or ()
    patterns = [*allowed, *(escape_name(tool.key.tool) for tool in decision.usable)]
    if decision.reading:
        patterns.append(_EVERY)  # so that a tool which it gains later is new, and held back

    def review(pins: Pins | None) -> Pins:
        accepted, refused = (pins.instructions, pins.refused) if pins else (None, None)
        if decision.instructions is not None:
            was_accepted = instructions_state(listing.instructions, pins) is None
            kept = None if was_accepted else accepted
            accepted = listing.instructions if decision.instructions else kept
            refused = None if decision.instructions else text_digest(listing.instructions or "")
        at = time.time()
        return pin_by_review(
            pins, decision.usable, instructions=accepted, patterns=patterns, at=at, refused=refused
        )

    record_review(store_path, server, review)


ReviewState = Literal["reviewed", "in use", "same but for defaults", "changed", "new"]
"""Reviewed, pinned on first use, or how it differs from its pin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedTool:
    """One tool of a review."""

    entry: ToolEntry
    state: ReviewState
    pin: Pin | None
    allowed: bool
    denied: bool
    mode: ApprovalMode | None
    """Its mode in its server's entry; None where a default decides about calls of it."""
    is_mode_kept: bool
    """Whether that mode is the user's word about this very tool: it is as it was, and in use or named."""
    policy: CallPolicy
    """Policy of its server."""

    @property
    def name(self) -> str:
        """Name of the tool on its server."""
        return self.entry.key.tool

    @property
    def has_mode(self) -> bool:
        """Whether its server's entry decides about calls of it, rather than a default."""
        return self.mode is not None

    # Worked out for the tools that are shown: a server may have thousands.

    @property
    def decision(self) -> Decision:
        """Current decision about calls of the tool."""
        return self.policy.decide(self.name, entry=self.entry)

    @property
    def suggested(self) -> ReviewAnswer:
        """Suggested answer: the one that stands already, or by its annotations; with findings, to deny."""
        return suggest_answer(self.policy.server, self.entry, self.mode if self.is_mode_kept else None)

    @property
    def waits(self) -> bool:
        """Whether it is quarantined until it is reviewed."""
        return not self.denied and (not self.allowed or self.state in ("changed", "new"))

    @property
    def is_open(self) -> bool:
        """Whether there is anything to decide."""
        return self.waits or (not self.denied and (self.state != "reviewed" or not self.has_mode))

    @property
    def standing(self) -> str:
        """Current permission in words."""
        if self.denied:
            return "denied"
        if self.state == "changed":
            return "held back"
        return {"allow": "allowed", "ask": "needs approval"}.get(self.decision.verdict, "not allowed")

    @property
    def risk(self) -> int:
        """Need for a closer look: 2 for findings in its definition, 1 for the destructive annotation."""
        return 2 if has_findings(self.entry) else int(is_destructive(self.entry.definition))

    @property
    def digest(self) -> str:
        """Digest of the current definition, to tell whether it is still the one that was shown."""
        return entry_digests(self.entry).strict

    def definition(self) -> dict[str, Any]:
        """Visible definition."""
        return _read(self.entry.definition)

    def before(self) -> dict[str, Any] | None:
        """Pinned definition, where it differs from the current one."""
        if self.pin is None or not self.pin.has_definition:
            return None
        changed = self.state in ("changed", "same but for defaults")
        return _read(bytes(self.pin.definition)) if changed else None


def tools_to_review(
    server: LoadedServer, listing: Listing, pins: Pins | None, *, before_defaults: bool = False
) -> list[ReviewedTool]:
    """Every tool of a server for review, those that wait for a decision first.

    Args:
        server: The server.
        listing: What it lists, unchanged.
        pins: Its pins.
        before_defaults: Whether it keeps the default of an earlier release (see `policy.upgrade`).
    """
    policy = CallPolicy(server, before_defaults=before_defaults)
    guarded = is_guarded(server)
    tools = [_tool(policy, entry, pins, guarded=guarded) for entry in listing.tools]
    return sorted(tools, key=lambda tool: (not tool.waits, tool.state == "reviewed"))


def _tool(policy: CallPolicy, entry: ToolEntry, pins: Pins | None, *, guarded: bool) -> ReviewedTool:
    config, name = policy.server.config, entry.key.tool
    assert config is not None, "only servers with a valid entry are listed"
    lists = decide_by_lists(config, name, server_id=entry.key.server_id)
    pin = pins.tools.get(name) if pins else None
    found = approval_mode_of(config, name, entry.key.server_id)
    state = _state(entry, pin) if guarded else _state_if_trusted(entry, pin, has_mode=found is not None)
    is_allowed = lists.verdict == "allow"
    is_as_it_was = state != "changed" and (state != "new" or pins is None)
    mode, pattern = found or (None, None)
    return ReviewedTool(
        entry=entry,
        state=state,
        pin=pin,
        allowed=is_allowed,
        denied=lists.field == "deny_tools",
        mode=mode,
        is_mode_kept=is_as_it_was
        and (is_allowed or mode != "allow" or is_named_by_user(policy.server, name, pattern)),
        policy=policy,
    )


def _state(entry: ToolEntry, pin: Pin | None) -> ReviewState:
    if pin is None:
        return "new"
    match change_since(pin, entry):
        case None:
            return "reviewed" if pin.by == "review" else "in use"
        case "defaults":
            return "same but for defaults"
        case _:
            return "changed"


def _state_if_trusted(entry: ToolEntry, pin: Pin | None, *, has_mode: bool) -> ReviewState:
    """State of a tool whose server needs no pins: held to a reviewed pin alone, where it has one."""
    if pin is not None and pin.by == "review" and change_since(pin, entry) == "changed":
        return "changed"
    return "reviewed" if has_mode else "in use"


def _read(definition: bytes) -> dict[str, Any]:
    """Visible definition with known secrets masked; an ambiguous one unchanged."""
    try:
        whole = read_for_certain(visible_definition("tool", definition))
        json.dumps(whole, indent=2)
        return mask_value(whole)
    except (ValueError, RecursionError) as exc:
        came = definition.decode(errors="backslashreplace")
        return {"description": gate.mask_secrets(f"(the definition cannot be parsed: {exc})\n{came}")}


# Rendering as text and JSON.


def whole(definition: dict[str, Any]) -> Iterator[str]:
    """Lines of a definition except its name, field by field, with hidden characters spelled out."""
    for field in TOOL_FIELDS:
        if field in definition and field != "name":
            yield f"{field}:"
            yield from (f"  | {reveal_hidden(line)}" for line in _lines(definition[field]))


def diff(before: dict[str, Any], now: dict[str, Any], fields: tuple[str, ...] = TOOL_FIELDS) -> Iterator[str]:
    """Lines that changed, field by field: removed ones with `-`, added ones with `+`."""
    for field in fields:
        old, new = _lines(before.get(field)), _lines(now.get(field))
        if old == new:  # as text, since Python takes 1 and true for equal
            continue
        yield f"{field}:"
        lines = islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None)
        yield from (f"  {reveal_hidden(line)}" for line in lines if not line.startswith("@@"))
        unusual = _new_letters(old, new)
        if unusual:
            yield f"  new non-ASCII characters: {unusual}"


def instructions_diff(listing: Listing, pins: Pins | None) -> Iterator[str]:
    """Lines that changed in a server's instructions."""
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
    """Non-ASCII letters that were added, by name: they may look like others."""
    came = sorted({letter for line in new for letter in line if not letter.isascii()} - set("".join(old)))
    shown = [
        f"{reveal_hidden(letter)} (U+{ord(letter):04X} {unicodedata.name(letter, '?')})"
        for letter in came[:8]
    ]
    return ", ".join([*shown, "…"] if len(came) > len(shown) else shown)


def review_as_json(
    server_id: str, listing: Listing, pins: Pins | None, tools: list[ReviewedTool]
) -> dict[str, Any]:
    """A review as JSON."""
    return {
        "server": server_id,
        "instructions": listing.instructions,
        "instructions_changed": instructions_state(listing.instructions, pins) in ("new", "changed"),
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
