"""Answers that are too large for an event of a stream: what is largest in them is kept as artifacts.

The SDK's client for Python takes 1 MiB an event, and drops the whole answer for one that is larger. Other
clients have no such limit, nor have answers that are no events, as of requests that nothing is streamed for.
Which those are is decided by `AnswerToCome` in `event_streams` for sessions, and by the SDK for the rest.
"""

import base64
import binascii
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from fairlead.catalog.repair.content import text_block
from fairlead.catalog.results import DELIVERY, ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_object, is_list
from fairlead.gateway.client_session import ClientSession
from fairlead.host.background import run_off_loop
from fairlead.host.offers.contents import CleanAnswer
from fairlead.policy.results import PLAIN_JSON, PLAIN_TEXT, READ_TOOL, ResultSource, media_type

MAX_EVENT_BYTES: Final = 1024 * 1024 - 8192
"""Limit of an answer in a stream of events for such a client."""

_TOO_LARGE: Final = "too large for an event of a stream"
_STRUCTURED: Final = -1
"""The place of structured content among the parts of a result."""
_MAX_CONTENTS: Final = 10
"""Most contents of a resource that are kept apart; an answer with more is kept as it is."""


async def fit_event(client: ClientSession, tool: str, result: ToolResult) -> ToolResult:
    """Keep the largest parts of a result as artifacts, until the rest of it fits an event.

    Args:
        client: The client that it is for.
        tool: What the client calls the tool.
        result: The result.

    Returns:
        The result with a text in place of each part that was kept.
    """
    if len(result.raw) <= MAX_EVENT_BYTES:
        return result
    try:
        fields = msgspec.json.decode(result.raw, type=dict[str, msgspec.Raw])
        blocks = msgspec.json.decode(fields.get("content", b"[]"), type=list[msgspec.Raw])
    except (ValueError, RecursionError):
        return result  # it becomes an error elsewhere
    structured = fields.get("structuredContent", msgspec.Raw())
    sizes = {_STRUCTURED: len(structured), **{place: len(block) for place, block in enumerate(blocks)}}
    source = ResultSource(server_id=result.server_id, tool=tool, trusted=not result.untrusted, limit=None)
    excess, notes = len(result.raw) - MAX_EVENT_BYTES, dict[int, str]()
    for place in sorted(sizes, key=lambda place: sizes[place], reverse=True):
        if excess <= 0:
            break
        if place == _STRUCTURED:
            part = _KeptPart("structured content", PLAIN_JSON, bytes(structured))
        else:
            part = await run_off_loop(partial(_part_of_block, blocks[place]), sizes[place])
        notes[place] = await _keep(client, source, part)
        excess += len(notes[place]) - sizes[place]
    return _with_notes(result, fields, blocks, notes)


def _with_notes(
    result: ToolResult, fields: dict[str, msgspec.Raw], blocks: list[msgspec.Raw], notes: dict[int, str]
) -> ToolResult:
    """The result with a text in place of each part that has a note."""
    structured_note = notes.pop(_STRUCTURED, None)
    if structured_note is not None:
        del fields["structuredContent"]
    content = [
        text_block(f"[{notes[place]}]") if place in notes else block for place, block in enumerate(blocks)
    ]
    fitted = ToolResult(
        result.server_id,
        msgspec.json.encode({**fields, "content": content}),
        original=result.original,
        untrusted=result.untrusted,
        remarks=replace(
            result.remarks,
            notes=(*result.remarks.notes, *notes.values()),
            handles={at: handle for at, handle in result.remarks.handles.items() if at not in notes},
            ours=result.remarks.ours | notes.keys(),
        ),
        definition=result.definition,
        tool=result.tool,
    )
    return fitted if structured_note is None else fitted.with_note(structured_note)


async def require_event_size(client: ClientSession, subject: str, answered: CleanAnswer) -> None:
    """Refuse an answer to `resources/read` or `prompts/get` that does not fit an event, and keep what it has.

    Args:
        client: The client that it is for.
        subject: The resource or prompt.
        answered: The answer.

    Raises:
        MCPError: It is too large; the error names the artifacts.
    """
    if len(answered.raw) <= MAX_EVENT_BYTES:
        return
    source = ResultSource(
        server_id=answered.server_id, tool=subject, trusted=not answered.untrusted, limit=None
    )
    parts = await run_off_loop(partial(_parts_of_answer, answered.raw), len(answered.raw))
    kept = [await _keep(client, source, part) for part in parts]
    message = "\n".join((f"the answer is {_TOO_LARGE}", *kept))
    raise MCPError(INTERNAL_ERROR, gate.content(message), {DELIVERY: "done"})


class _KeptPart(NamedTuple):
    """A part of an answer, to be kept."""

    what: str
    media_type: str
    content: bytes


async def _keep(client: ClientSession, source: ResultSource, part: _KeptPart) -> str:
    """Keep a part as an artifact, and return what is to be said in its place."""
    artifacts, principal = client.host.artifacts, client.principal
    handle = await artifacts.keep(part.content, part.media_type, source, principal=principal)
    where = f"It is kept: {handle} ({READ_TOOL})." if handle else "It could not be kept."
    return f"{part.what}, {len(part.content):,} bytes: {_TOO_LARGE}. {where}"


def _parts_of_answer(raw: bytes) -> list[_KeptPart]:
    """The contents of a resource; of any other answer, all of it as JSON."""
    contents: object = as_object(msgspec.json.decode(raw)).get("contents")
    given = contents if is_list(contents) and len(contents) <= _MAX_CONTENTS else []
    parts = [_part_of(as_object(each)) for each in given]
    return [part for part in parts if part is not None] or [_KeptPart("all of it", PLAIN_JSON, raw)]


def _part_of_block(raw: msgspec.Raw) -> _KeptPart:
    block = as_object(msgspec.json.decode(raw))
    part = _part_of(as_object(block.get("resource", block)))
    return _KeptPart("a block of content", PLAIN_JSON, bytes(raw)) if part is None else part


def _part_of(content: dict[str, Any]) -> _KeptPart | None:
    """The data or text of a content; None where it has neither."""
    kind, data, text = media_type(content.get("mimeType")), content.get("data"), content.get("text")
    encoded = content.get("blob") if data is None else data
    if isinstance(encoded, str):
        try:
            return _KeptPart(kind, kind, base64.b64decode(encoded, validate=True))
        except binascii.Error:
            return None
    return _KeptPart("text", PLAIN_TEXT, text.encode()) if isinstance(text, str) else None
