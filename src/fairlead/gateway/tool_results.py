"""Tool results as a client's protocol version takes them, from servers of any version.

The invariant: a client gets an object with `content`, a list of blocks that its version has, and, where it
knows that field, `resultType`. It gets structured content only where its version allows that type and, where
the tool is listed with an output schema, only where that fits. Where a result owes structured content that it
does not have, it is an error: clients check nothing in those, so its text and the handles in it arrive. What
is taken out is said in text. Blocks are repaired and converted by `catalog.content`.

Fields are read with a parser and never searched for in the bytes: a field inside of structured content, in a
text or spelled with escapes is not the result's own.
"""

import re
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from fairlead.catalog.nesting import LEAST_DEEP, MAX_DEPTH, TOO_DEEP, is_deep
from fairlead.catalog.repair.content import (
    REPAIRED,
    RESERVED_META,
    Block,
    blocks_for,
    is_base64,
    is_block_of,
    repair_blocks,
    repair_meta,
    text_block,
)
from fairlead.catalog.repair.protocol_versions import VERSIONS, definition_for
from fairlead.catalog.results import DELIVERY, TRUE, ToolResult, output_check, read_output_schema
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import decode, decode_finite
from fairlead.config.untyped import is_object
from fairlead.connection.tasks import RELATED_TASK

MAX_CHECKED_BYTES: Final = 256 * 1024
"""Larger structured content is left for the client to check: parsing it would hold up other requests."""

_TOO_DEEP: Final = f"its structured content is nested more than {MAX_DEPTH} levels deep; here it is text"
_TOO_LARGE: Final = "its structured content has a number beyond the range of floats; here it is text"
_QUOTE: Final = ord('"')
_MAX_DIGITS: Final = 4300
"""Python's own parser takes no number of as many digits."""
_DIGITS: Final = re.compile(rb"[0-9]*")
_UNREADABLE: Final = (ValueError, RecursionError)
_RESULT_TYPE_FIRST: Final = b'{"resultType":"complete",'
_RESULT_TYPE_LAST: Final = b',"resultType":"complete"}'
_NEWEST: Final = len(VERSIONS) - 1
_OUTPUT_SINCE: Final = VERSIONS.index("2025-06-18")
"""Since when there is structured content, and `_meta` and all annotations in blocks."""
_OURS: Final = RESERVED_META | {RELATED_TASK, DELIVERY}
"""Keys of `_meta` that only we can know, or that must be valid."""


class _BlockHints(msgspec.Struct, gc=False):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | UnsetType = UNSET
    last_modified: Raw = msgspec.field(name="lastModified", default=Raw())


class _ContentBlock(msgspec.Struct):
    """A content block whose long parts are not read. Only the usual forms fit; others get a closer look."""

    type: str
    text: Raw = Raw()
    data: Raw = Raw()
    mime_type: str = msgspec.field(name="mimeType", default="")
    annotations: _BlockHints | UnsetType = UNSET
    meta: dict[str, Raw] | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Fields(msgspec.Struct, rename="camel"):
    """The fields of a result that this is about, unread. Of a field that is there twice, the last counts."""

    content: list[_ContentBlock] | UnsetType = UNSET
    structured_content: Raw = Raw()
    is_error: bool | UnsetType = UNSET
    meta: Raw = msgspec.field(name="_meta", default=Raw())
    result_type: Raw = Raw()


_decode_fields = msgspec.json.Decoder(_Fields).decode
_decode_raw = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def fit_result(result: ToolResult, *, number: int, keeps_null: bool = True) -> bytes:
    """A tool's result for a client.

    Args:
        result: What the call brought.
        number: The client's protocol version, as `catalog.protocol.version_number` counts.
        keeps_null: Does it go a way on which a field that is null is still there at the end?

    Returns:
        The result in JSON, marked as untrusted where its server is.
    """
    raw = _fit(result, number, keeps_null=keeps_null)
    marked = gate.mark(raw, result.server_id if result.untrusted else None)
    # `_fit` took out what a server says here: only we know that this is the end of a request.
    return b'{"resultType":"complete",' + marked[1:] if number == _NEWEST else marked


def as_dict(raw: bytes) -> dict[str, Any]:
    """Return a result as plain data, for the SDK's server.

    A field with a number beyond the range of floats cannot be read and written again: it is left out, and a
    block of text says so. In content, null stands in for the number.
    """
    try:
        return decode_finite(raw)
    except _UNREADABLE:
        fields = _decode_raw(raw)
    result: dict[str, Any] = {}
    lost: list[str] = []
    for name, value in fields.items():
        try:
            result[name] = decode_finite(bytes(value))
        except _UNREADABLE:
            if name == "content":
                result[name] = msgspec.json.decode(_encode(decode(bytes(value))))
            else:
                lost.append(f"`{name}`")
    if lost:
        note = text_block(f"[left out, for a number beyond the range of floats: {', '.join(lost)}]")
        result["content"] = [*result.get("content", []), note]
    return result


def _fit(result: ToolResult, number: int, *, keeps_null: bool) -> bytes:
    raw = _without_result_type(result.raw)
    try:
        fields = _decode_fields(raw)
    except _UNREADABLE:
        return _repair(result, number, keeps_null=keeps_null)
    schema = _output_schema_for(result.definition, number) if result.definition is not None else None
    structured = bytes(fields.structured_content)
    is_sound = (
        fields.content is not UNSET
        and _are_sound(fields.content, number)
        and not fields.result_type
        and not (fields.meta and _without_ours(fields.meta, result) is not fields.meta)
    )
    if not is_sound or not raw.startswith(b"{") or _may_be_deep(raw, fields):
        return _repair(result, number, keeps_null=keeps_null)
    if not structured and (schema is None or fields.is_error is True):
        return raw
    is_lost = structured == b"null" and not keeps_null
    is_kept = keeps_null or _is_finite(structured)
    if structured and not is_lost and is_kept and _trouble(structured, schema, number) is None:
        return raw
    return _repair(result, number, keeps_null=keeps_null)


def _may_be_deep(raw: bytes, fields: _Fields) -> bool:
    """Return whether what surrounds the text of a result, such as `_meta`, is too deep for clients."""
    if len(raw) < LEAST_DEEP:
        return False
    blocks = fields.content or ()
    inside = sum(len(block.text) + len(block.data) for block in blocks) + len(fields.structured_content)
    return len(raw) - inside >= LEAST_DEEP and is_deep(raw)


def _without_result_type(raw: bytes) -> bytes:
    """Take out the field that servers of the newest version have at one end of a result, unread.

    That is no search in the bytes: what is read afterwards is read without this one. Where the rest is an
    object with at least one field, so was the whole, and these bytes were a field of its own. Another
    `resultType` in the rest, however it is spelled, is met by the parser.
    """
    if raw.endswith(_RESULT_TYPE_LAST):
        return raw[: -len(_RESULT_TYPE_LAST)] + b"}"
    if raw.startswith(_RESULT_TYPE_FIRST):
        return b"{" + raw[len(_RESULT_TYPE_FIRST) :]
    return raw


def _are_sound(blocks: list[_ContentBlock], number: int) -> bool:
    # A loop, and plain text first: most results are that, and every call comes through here.
    for block in blocks:
        if block.type == "text" and block.annotations is UNSET and block.meta is UNSET:
            if not _is_string(block.text):
                return False
        elif not _is_sound(block, number):
            return False
    return True


def _is_sound(block: _ContentBlock, number: int) -> bool:
    """Return whether a client takes the block. False only leads to a closer look."""
    is_plain = block.annotations is UNSET and block.meta is UNSET
    if not is_plain and (
        number < _OUTPUT_SINCE or (block.annotations is not UNSET and block.annotations.last_modified)
    ):
        return False
    match block.type:
        case "text":
            return _is_string(block.text)
        case "image" | "audio":
            is_data = _is_string(block.data) and is_base64(bytes(block.data)[1:-1])
            return is_data and bool(block.mime_type) and is_block_of(block.type, number)
        case _:
            return False


def _is_string(raw: Raw) -> bool:
    return len(raw) > 0 and memoryview(raw)[0] == _QUOTE  # which copies nothing


@lru_cache(maxsize=4096)
def _output_schema_for(definition: bytes, number: int) -> bytes | None:
    """The output schema that the tool is listed with for clients of one protocol version."""
    schema = read_output_schema(definition)
    if not schema.startswith(b"{"):
        return None
    listed = definition_for("tool", {"outputSchema": Raw(schema)}, number)
    return _encode(listed["outputSchema"]) if "outputSchema" in listed else None


def _trouble(structured: bytes, schema: bytes | None, number: int) -> str | None:
    """Return why a client would refuse structured content; None where it would not."""
    if number < _OUTPUT_SINCE:
        return "this protocol version has no structured content"
    if number < _NEWEST and not structured.startswith(b"{"):
        return "its structured content is not an object, which is all that this protocol version allows"
    if _has_long_number(structured):
        return "it has a number of more digits than clients read"
    if is_deep(structured):
        return _TOO_DEEP
    if schema is None or len(structured) > MAX_CHECKED_BYTES:
        return None
    check = output_check(schema)
    if check is None:
        return None
    try:
        verdict = check.verdict(decode(structured))
    except _UNREADABLE as exc:
        return f"its structured content cannot be read: {gate.text(str(exc))}"
    if verdict.outcome != "invalid":
        return None
    problems = gate.text("; ".join(verdict.problems))
    return f"its structured content is not what the tool's output schema promises: {problems}"


def _is_finite(structured: bytes) -> bool:
    """Return whether it can be decoded and encoded without a change of its numbers."""
    try:
        decode_finite(structured or b"null")
    except _UNREADABLE:
        return False
    return True


def _has_long_number(structured: bytes) -> bool:
    """Return whether so many digits stand in a row that they cover one of a few places.

    A regular expression over all of it would hold up the event loop.
    """
    for place in range(0, len(structured), _MAX_DIGITS):
        found = _DIGITS.match(structured, place)
        if found is not None and found.end() > place:
            before = structured[max(0, place - _MAX_DIGITS) : place]
            if found.end() - place + len(before) - len(before.rstrip(b"0123456789")) >= _MAX_DIGITS:
                return True
    return False


def _repair(result: ToolResult, number: int, *, keeps_null: bool) -> bytes:
    """Convert any answer to a result that a client takes, with all of its content."""
    try:
        fields = _decode_raw(result.raw)
    except _UNREADABLE:
        return _no_result(result)
    fields.pop("resultType", None)
    is_error = bytes(fields.pop("isError", b"")) in TRUE
    # What the first draft of the protocol called it.
    former = fields.pop("toolResult", Raw(b"null"))
    blocks, notes, changes = _blocks(fields.pop("content", former), number)
    structured = bytes(fields.pop("structuredContent", b""))
    if structured == b"null" and not keeps_null:
        structured = b""
    _fit_others(fields, result, changes)
    schema = _output_schema_for(result.definition, number) if result.definition is not None else None
    trouble = _trouble(structured, schema, number) if structured else None
    if structured and trouble is None and not keeps_null and not _is_finite(structured):
        trouble = _TOO_LARGE
    if trouble is not None:
        if not _says(blocks, structured):
            blocks.append(text_block(structured.decode(errors="replace")))
        # Where it was for no client to check, its absence needs no explanation: the text says the same.
        notes += [trouble] if schema is not None or trouble in (_TOO_DEEP, _TOO_LARGE) else []
        structured = b""
    elif not structured and schema is not None and not is_error and not result.remarks.ours:
        notes.append("the tool promises structured content and gave none")
    if structured:
        fields["structuredContent"] = Raw(structured)
    elif schema is not None:
        is_error = True
    blocks += [text_block(f"[{note}]") for note in notes]
    error = {"isError": Raw(b"true")} if is_error else {}
    return _encode({"content": blocks, **fields, **error})


def _fit_others(fields: dict[str, Raw], result: ToolResult, changes: list[str]) -> None:
    """Take out of the fields around the content what clients cannot have, and name all repairs in `_meta`."""
    for name in [name for name, value in fields.items() if is_deep(bytes(value))]:
        del fields[name]
        changes.append(f"{name} {TOO_DEEP}; left out")
    sent = fields.pop("_meta", None)
    meta = _without_ours(sent, result) if sent is not None else None
    if meta is not None or changes:
        kept: dict[str, Any] = _decode_raw(meta) if meta is not None else {}
        fields["_meta"] = Raw(_encode({**kept, **({REPAIRED: changes} if changes else {})}))


def _no_result(result: ToolResult) -> bytes:
    shown = gate.text(result.raw.decode(errors="replace"))
    return _encode(
        {
            "content": [text_block(shown), text_block("[what the server answered is no tool result]")],
            "isError": True,
        }
    )


def _without_ours(raw: Raw, result: ToolResult) -> Raw | None:
    """A result's `_meta` without what only we can know; the same object where there is nothing of it."""
    try:
        meta = _decode_raw(raw)
    except _UNREADABLE:
        return None
    if result.remarks.is_made_here or not meta.keys() & _OURS:
        return raw
    whole: dict[str, Any] = decode_finite(bytes(raw))
    kept = repair_meta({name: item for name, item in whole.items() if name not in (RELATED_TASK, DELIVERY)})
    return raw if kept.keys() == meta.keys() else Raw(_encode(kept)) if kept else None


def _says(blocks: list[Any], structured: bytes) -> bool:
    """Return whether a block of text carries the same JSON. Large content is not compared."""
    if len(structured) > MAX_CHECKED_BYTES:
        return False
    try:
        value: object = decode(structured)
    except _UNREADABLE:
        return False
    for block in blocks:
        said = block.get("text") if is_object(block) and block.get("type") == "text" else None
        try:
            if not isinstance(said, str) or len(said) > MAX_CHECKED_BYTES:
                continue
            if said == value or decode(said.encode(errors="replace")) == value:
                return True
        except _UNREADABLE:
            continue
    return False


def _blocks(raw: Raw, number: int) -> tuple[list[Block], list[str], list[str]]:
    """The content blocks that a client takes, what to say about them, and what was repaired in them."""
    try:
        content: object = decode(bytes(raw))
    except _UNREADABLE:
        return [text_block(bytes(raw).decode(errors="replace"))], [_ODD.format(1)], []
    if content is None:
        return [], [], []
    blocks, changes = repair_blocks(content)
    odd = sum(change.endswith("given as text") for change in changes)
    return blocks_for(blocks, number), [_ODD.format(odd)] if odd else [], changes


_ODD: Final = "{:,} blocks of content are none that the protocol knows; here they are text"
