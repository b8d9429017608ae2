"""Tool results as a client's protocol version takes them, whatever the version and the manners of the server.

The invariant: a client gets an object with `content` and, where it knows that field, `resultType`. It gets
structured content only where its version allows that type and, where the tool is listed with an output
schema, only where that fits. Where a result owes structured content that it does not have, it is an error:
clients check nothing in those, so its text and the handles in it arrive. What is taken out is said in text.

Fields are read with a parser and never searched for in the bytes: a field inside of structured content, in a
text or spelled with escapes is not the result's own.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from fairlead.catalog import gate
from fairlead.catalog.results import DELIVERY, ToolResult, output_check
from fairlead.catalog.slices import decode
from fairlead.config.shapes import is_list, is_object
from fairlead.connection.tasks import RELATED_TASK

MAX_CHECKED_BYTES: Final = 256 * 1024
"""Larger structured content is left for the client to check: parsing it would hold up other requests."""

MAX_EVENT_BYTES: Final = 1024 * 1024 - 8192
"""How large a result may be that goes over a stream of events: HTTP clients of Python take 1 MiB an event."""

_QUOTE: Final = ord('"')
_MAX_DIGITS: Final = 4300
"""Python's own parser takes no number of as many digits."""
_DIGITS: Final = re.compile(rb"[0-9]*")
_UNREADABLE: Final = (ValueError, RecursionError)


class _Block(msgspec.Struct):
    """A content block whose long parts are not read."""

    type: str
    text: Raw = Raw()
    data: Raw = Raw()
    mime_type: str = msgspec.field(name="mimeType", default="")
    uri: str | None = None
    name: str | None = None
    resource: Raw = Raw()


class _Fields(msgspec.Struct, rename="camel"):
    """The fields of a result that this is about, unread. Of a field that is there twice, the last counts."""

    content: list[_Block] | UnsetType = UNSET
    structured_content: Raw = Raw()
    is_error: bool | UnsetType = UNSET
    meta: Raw = msgspec.field(name="_meta", default=Raw())
    result_type: Raw = Raw()


_decode_fields = msgspec.json.Decoder(_Fields).decode
_decode_raw = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def fit_result(result: ToolResult, *, modern: bool, keeps_null: bool = True) -> bytes:
    """A tool's result for a client.

    Args:
        result: What the call brought.
        modern: Does the client speak 2026-07-28 or later?
        keeps_null: Does it go a way on which a field that is null is still there at the end?

    Returns:
        The result in JSON, marked as untrusted where its server is.
    """
    raw = _fit(result, modern=modern, keeps_null=keeps_null)
    marked = gate.mark(raw, result.server_id if result.untrusted else None)
    # `_fit` took out what a server says here: only we know that this is the end of a request.
    return b'{"resultType":"complete",' + marked[1:] if modern else marked


def take_structured(result: ToolResult) -> tuple[bytes | None, ToolResult]:
    """A result's structured content, and the result without it."""
    fields = _decode_raw(result.raw)
    structured = fields.pop("structuredContent", None)
    if structured is None:
        return None, result
    rest = ToolResult(
        result.server_id,
        _encode(fields),
        original=result.original,
        untrusted=result.untrusted,
        remarks=result.remarks,
        definition=result.definition,
    )
    return bytes(structured), rest


def _fit(result: ToolResult, *, modern: bool, keeps_null: bool) -> bytes:
    raw = result.raw
    try:
        fields = _decode_fields(raw)
    except _UNREADABLE:
        return _repair(result, modern=modern, keeps_null=keeps_null)
    schema = _listed_schema(result.definition, modern=modern) if result.definition is not None else None
    structured = bytes(fields.structured_content)
    is_sound = (
        fields.content is not UNSET
        and all(map(_is_sound, fields.content))
        and not fields.result_type
        and not (fields.meta and _without_ours(fields.meta, result) is not fields.meta)
    )
    if not is_sound or not raw.startswith(b"{"):
        return _repair(result, modern=modern, keeps_null=keeps_null)
    if not structured and (schema is None or fields.is_error is True):
        return raw
    is_lost = structured == b"null" and not keeps_null
    if structured and not is_lost and _trouble(structured, result, schema, modern=modern) is None:
        return raw
    return _repair(result, modern=modern, keeps_null=keeps_null)


def _is_sound(block: _Block) -> bool:
    """Would a client take the block? A no only asks for a closer look."""
    match block.type:
        case "text":
            return _is_string(block.text)
        case "image" | "audio":
            return _is_string(block.data) and bool(block.mime_type)
        case "resource_link":
            return block.uri is not None and block.name is not None
        case _:
            return False


def _is_string(raw: Raw) -> bool:
    return len(raw) > 0 and memoryview(raw)[0] == _QUOTE  # which copies nothing


class _Schema(msgspec.Struct, frozen=True):
    """The output schema that a tool is listed with for one family of protocol versions."""

    definition: bytes


class _Definition(msgspec.Struct, rename="camel"):
    output_schema: Raw = Raw()


@lru_cache(maxsize=4096)
def _listed_schema(definition: bytes, *, modern: bool) -> _Schema | None:
    """Older versions know schemas of objects alone, and so they are not told of others."""
    try:
        schema = msgspec.json.decode(definition, type=_Definition).output_schema
        said: Any = msgspec.json.decode(schema) if schema else None
    except _UNREADABLE:
        return None
    if not is_object(said) or not (modern or said.get("type") == "object"):
        return None
    return _Schema(definition)


def _trouble(structured: bytes, result: ToolResult, schema: _Schema | None, *, modern: bool) -> str | None:
    """Why a client would not take structured content; None where it would."""
    if not modern and not structured.startswith(b"{"):
        return "its structured content is not an object, which is all that this protocol version allows"
    if _has_long_number(structured):
        return "it has a number of more digits than clients read"
    if schema is None or len(structured) > MAX_CHECKED_BYTES:
        return None
    check = output_check(schema.definition)
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


def _has_long_number(structured: bytes) -> bool:
    """Are there so many digits in a row that they cover one of a few places?

    A regular expression over all of it would hold up the event loop.
    """
    for place in range(0, len(structured), _MAX_DIGITS):
        found = _DIGITS.match(structured, place)
        if found is not None and found.end() > place:
            before = structured[max(0, place - _MAX_DIGITS) : place]
            if found.end() - place + len(before) - len(before.rstrip(b"0123456789")) >= _MAX_DIGITS:
                return True
    return False


def _repair(result: ToolResult, *, modern: bool, keeps_null: bool) -> bytes:
    """Make of any answer a result that a client takes, and lose nothing that it says."""
    try:
        fields = _decode_raw(result.raw)
    except _UNREADABLE:
        return _no_result(result)
    fields.pop("resultType", None)
    is_error = bytes(fields.pop("isError", b"")) == b"true"
    blocks, odd = _blocks(fields.pop("content", Raw(b"[]")))
    structured = bytes(fields.pop("structuredContent", b""))
    if structured == b"null" and not keeps_null:
        structured = b""
    if "_meta" in fields and (meta := _without_ours(fields.pop("_meta"), result)):
        fields["_meta"] = meta
    schema = _listed_schema(result.definition, modern=modern) if result.definition is not None else None
    notes = [f"{odd:,} blocks of content are none that the protocol knows; here they are text"] if odd else []
    if structured and (trouble := _trouble(structured, result, schema, modern=modern)) is not None:
        if not _says(blocks, structured):
            blocks.append(_text(structured.decode(errors="replace")))
        # Where it was for no client to check, its absence needs no explanation: the text says the same.
        notes += [trouble] if schema is not None else []
        structured = b""
    elif not structured and schema is not None and not is_error and not result.remarks.ours:
        notes.append("the tool promises structured content and gave none")
    if structured:
        fields["structuredContent"] = Raw(structured)
    elif schema is not None:
        is_error = True
    blocks += [_text(f"[{note}]") for note in notes]
    error = {"isError": Raw(b"true")} if is_error else {}
    return _encode({"content": blocks, **fields, **error})


def _no_result(result: ToolResult) -> bytes:
    shown = gate.text(result.raw.decode(errors="replace"))
    return _encode(
        {"content": [_text(shown), _text("[what the server answered is no tool result]")], "isError": True}
    )


def _without_ours(raw: Raw, result: ToolResult) -> Raw | None:
    """A result's `_meta` without what only we can know; the same object where there is nothing of it."""
    try:
        meta = _decode_raw(raw)
    except _UNREADABLE:
        return None
    is_ours = not result.server_id
    if is_ours or (RELATED_TASK not in meta and DELIVERY not in meta):
        return raw
    kept = {name: value for name, value in meta.items() if name not in (RELATED_TASK, DELIVERY)}
    return Raw(_encode(kept)) if kept else None


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _says(blocks: list[Any], structured: bytes) -> bool:
    """Does a block of text carry the same JSON? What is large is not compared, and so it is said twice."""
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


_STRINGS: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}


def _blocks(raw: Raw) -> tuple[list[Any], int]:
    """The content blocks that a client takes; others as text, and how many those are."""
    try:
        content: object = msgspec.json.decode(raw)
    except _UNREADABLE:
        return [_text(bytes(raw).decode(errors="replace"))], 1
    if content is None:
        return [], 0
    made: list[Any] = []
    odd = 0
    for block in content if is_list(content) else [content]:
        if _is_block(block):
            made.append(block)
        else:
            odd += 1
            made.append(_text(block if isinstance(block, str) else _encode(block).decode()))
    return made, odd


def _is_block(block: object) -> bool:
    if not is_object(block):
        return False
    match block.get("type"):
        case "resource":
            resource: object = block.get("resource")
            return (
                is_object(resource)
                and isinstance(resource.get("uri"), str)
                and (isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str))
            )
        case str(kind) if kind in _STRINGS:
            return all(isinstance(block.get(name), str) for name in _STRINGS[kind])
        case _:
            return False
