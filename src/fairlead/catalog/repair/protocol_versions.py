"""Lists that are valid for a client's protocol version, entry by entry.

`valid_listing` makes a server's listing visible and valid: an entry that cannot be made valid is left out.
Repairs and omissions are named in the listing (`repairs`, `rejected`, `notes`), and no other entry changes.
`definition_for` then reduces a definition to the schema of one protocol version.
"""

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw

from fairlead.catalog.definitions import DefinitionKind, visible_definition
from fairlead.catalog.repair.definitions import IDENTITY, repair_definition
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.disputed import may_be_disputed, without_disputed
from fairlead.catalog.tools import LISTED_TWICE, Listing, RejectedTool, Repair, ToolEntry
from fairlead.config.untyped import is_list, is_object

ALL_NAMED: Final = "`fairlead lint`"
"""The command that names every malformed entry. Where the server is known, its id comes behind."""
MAX_NAMED: Final = 5
"""Most entries that a note names. `fairlead lint` names all."""

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

_decode = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def valid_listing(listing: Listing) -> Listing:
    """Reduce a listing to what is visible and valid for the protocol.

    Returns:
        The same listing where nothing had to be changed. Else `repairs` has every entry that was repaired or
        left out, `rejected` the tools that were left out, and `notes` a summary.
    """
    unreadable = [
        Repair(kind="tool", name=gate.content(each.name), reason=gate.content(each.reason))
        for each in listing.rejected
    ]
    repairs: list[Repair] = []
    tools = [*_valid_tools(listing.tools, repairs)]
    resources = [*_valid_all("resource", listing.resources, repairs)]
    templates = [*_valid_all("template", listing.templates, repairs)]
    prompts = [*_valid_all("prompt", listing.prompts, repairs)]
    if (
        not repairs
        and not unreadable
        and _are_same(tools, listing.tools)
        and _are_same(resources, listing.resources)
        and _are_same(templates, listing.templates)
        and _are_same(prompts, listing.prompts)
    ):
        return listing
    rejected = [
        RejectedTool(name=repair.name, reason=repair.reason)
        for repair in repairs
        if repair.kind == "tool" and repair.reason is not None
    ]
    return replace(
        listing,
        tools=tuple(tools),
        rejected=(*listing.rejected, *rejected),
        resources=tuple(resources),
        templates=tuple(templates),
        prompts=tuple(prompts),
        # A listing that was made valid before has its notes already.
        notes=tuple(dict.fromkeys((*listing.notes, *_notes([*unreadable, *repairs])))),
        repairs=(*unreadable, *repairs),
    )


def _valid_tools(entries: Iterable[ToolEntry], repairs: list[Repair]) -> Iterator[ToolEntry]:
    for entry in entries:
        definition = _valid("tool", entry.definition, repairs, entry.key.tool)
        if definition is entry.definition:
            yield entry
        elif definition is not None:
            fields = _decode_fields(definition)
            yield replace(
                entry,
                definition=definition,
                title=gate.content(_decode(fields["title"])) if "title" in fields else None,
                description=gate.content(_decode(fields["description"])) if "description" in fields else None,
            )


def _valid_all(kind: DefinitionKind, definitions: Iterable[bytes], repairs: list[Repair]) -> Iterator[bytes]:
    seen: set[str | None] = set()
    for position, definition in enumerate(definitions):
        valid = _valid(kind, definition, repairs, f"#{position + 1}")
        if valid is None:
            continue
        # As of tools, the first of two with one identity is the one that is offered.
        identity = _name_of(kind, valid)
        if identity in seen:
            shown = gate.content(identity or "", gate.MAX_TEXT_BYTES)
            repairs.append(Repair(kind=kind, name=shown, reason=LISTED_TWICE))
            continue
        seen.add(identity)
        yield valid


def _valid(kind: DefinitionKind, raw: bytes, repairs: list[Repair], name: str) -> bytes | None:
    try:
        visible = visible_definition(kind, raw)
    except (ValueError, RecursionError) as exc:
        reason = f"its definition cannot be parsed: {gate.content(str(exc))}"
        shown = gate.content(_name_of(kind, raw) or name, gate.MAX_TEXT_BYTES)
        repairs.append(Repair(kind=kind, name=shown, reason=reason))
        return None
    repaired = repair_definition(kind, visible)
    # Fields that the visible definition lacks because they were malformed are named as well.
    named = repaired if visible is raw else repair_definition(kind, raw)
    if repaired.changes or named.changes or repaired.reason is not None:
        made = named.changes or repaired.changes
        # Changes quote the definition: names of fields, and invalid values.
        changes = tuple(gate.content(f"{each.where} {each.what}", gate.MAX_TEXT_BYTES) for each in made)
        reason = None if repaired.reason is None else gate.content(repaired.reason, gate.MAX_TEXT_BYTES)
        shown = gate.content(_name_of(kind, raw) or name, gate.MAX_TEXT_BYTES)
        repairs.append(Repair(kind=kind, name=shown, changes=changes, reason=reason))
    return repaired.definition


def _name_of(kind: DefinitionKind, definition: bytes) -> str | None:
    try:
        fields = _decode_fields(definition)
        return msgspec.json.decode(fields[IDENTITY[kind]], type=str)
    except (ValueError, KeyError, RecursionError):
        return None


def _are_same(now: Sequence[object], before: Sequence[object]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _notes(repairs: Iterable[Repair]) -> Iterator[str]:
    """Summary of repairs and omissions, a line for each kind."""
    found: dict[tuple[DefinitionKind, bool], list[Repair]] = {}
    for repair in repairs:
        found.setdefault((repair.kind, repair.reason is not None), []).append(repair)
    for (kind, is_left_out), entries in found.items():
        named = ", ".join(_describe_repair(entry) for entry in entries[:MAX_NAMED])
        more = f" and {len(entries) - MAX_NAMED} more: {ALL_NAMED}" if len(entries) > MAX_NAMED else ""
        count = f"{len(entries)} malformed {kind}{'' if len(entries) == 1 else 's'}"
        yield f"{count} {'left out' if is_left_out else 'repaired'}: {named}{more}"


def _describe_repair(repair: Repair) -> str:
    name = " ".join(gate.content(repair.name).split())[:80]
    return f"`{name}` ({gate.content(repair.reason or repair.changes[0], 160)})"


# Protocol versions.

_BASE = frozenset({"name", "description"})
_SINCE_JUNE = _BASE | {"title", "_meta"}
_SINCE_NOVEMBER = _SINCE_JUNE | {"icons"}
_RESOURCE_BASE = frozenset({"uri", "uriTemplate", "mimeType", "size", "annotations"})
_FIELDS_OF: Final[tuple[Mapping[DefinitionKind, frozenset[str]], ...]] = (
    {
        "tool": _BASE | {"inputSchema"},
        "resource": _BASE | _RESOURCE_BASE,
        "template": _BASE | _RESOURCE_BASE,
        "prompt": _BASE | {"arguments"},
    },
    {
        "tool": _BASE | {"inputSchema", "annotations"},
        "resource": _BASE | _RESOURCE_BASE,
        "template": _BASE | _RESOURCE_BASE,
        "prompt": _BASE | {"arguments"},
    },
    *(
        {
            "tool": base | {"inputSchema", "annotations", "outputSchema"},
            "resource": base | _RESOURCE_BASE,
            "template": base | _RESOURCE_BASE,
            "prompt": base | {"arguments"},
        }
        for base in (_SINCE_JUNE, _SINCE_NOVEMBER, _SINCE_NOVEMBER)
    ),
)
"""Fields that each of `VERSIONS` has. `execution` concerns tasks, which the gateway makes itself."""
_ARGUMENT_BASE = ("name", "description", "required")
_HINT_BASE = ("audience", "priority")
_NEWEST = len(VERSIONS) - 1


def version_number(version: str | None) -> int:
    """Index in `VERSIONS` of a version, or of the newest one before an unknown version."""
    return _NEWEST if version is None else max(bisect_right(VERSIONS, version) - 1, 0)


def definition_for(kind: DefinitionKind, definition: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Reduce a valid definition to one protocol version.

    Args:
        kind: What is defined.
        definition: Its fields; those of a tool may be undecoded (`msgspec.Raw`).
        number: The version, as `version_number` counts.

    Returns:
        The fields that clients of that version know, each valid by its schema.
    """
    known = _FIELDS_OF[number][kind]
    fields = {name: value for name, value in definition.items() if name in known}
    if "outputSchema" in fields:
        output = _agreed_output(fields.pop("outputSchema"))
        if output is not None and number < _NEWEST:
            output = _object_schema(output)
        if output is not None:
            fields["outputSchema"] = output
    if number < 2:
        if is_list(arguments := fields.get("arguments")):
            fields["arguments"] = [_only(argument, _ARGUMENT_BASE) for argument in arguments]
        if kind != "tool" and is_object(hints := fields.get("annotations")):
            fields["annotations"] = _only(hints, _HINT_BASE)
    return fields


def _agreed_output(raw: Raw | dict[str, Any]) -> Raw | dict[str, Any] | None:
    """Output schema without what clients check in different ways. The pinned definition has all of it."""
    if not isinstance(raw, Raw):
        return without_disputed(raw)
    return _agreed(bytes(raw)) if may_be_disputed(raw) else raw


@lru_cache(maxsize=4096)
def _agreed(schema: bytes) -> dict[str, Any] | None:
    return without_disputed(_decode(schema))


def _only(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}


def _object_schema(raw: Raw | dict[str, Any]) -> Raw | dict[str, Any] | None:
    """Output schema for versions before 2026-07-28: of an object; None if it is not."""
    schema: dict[str, Any] = _decode(raw) if isinstance(raw, Raw) else raw
    if schema.get("type") == "object":
        return raw
    if "type" not in schema and is_object(schema.get("properties")):
        return {**schema, "type": "object"}
    return None
