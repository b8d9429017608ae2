"""Tool results within a budget: sanitized, masked, and cut with the rest stored as artifacts.

One budget is spent on all blocks in order: text costs its UTF-8 bytes, structured content its JSON, media
their base64; an image costs a fixed amount, as with providers. Text that does not fit is cut, anything else
left out, with a note that gives the size and the artifact's handle. Notes are not counted.

A small clean result goes on as the very bytes received, unparsed. A parsed one is encoded again, so that it
holds nothing a parser does not see (a repeated field). One that would take too long to parse
(`gate.is_costly_steps`) is stored whole and replaced by a note. All of it runs in steps, so that no result
blocks the event loop.
"""

import base64
import binascii
import hashlib
import math
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.catalog.results import ResultNotes, ToolResult, says_error
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import (
    CONSTANT_NOTE,
    may_have_constants,
    mentions,
    without_constants_steps,
    without_lone_surrogates_steps,
)
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.errors import CallFailed
from fairlead.store.artifacts import SCHEME

READ_TOOL = "mcp_read_artifact"

VISIBLE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every vision model accepts."""
IMAGE_COST = 6_000
"""About 1,500 tokens: the most providers charge for one image, which they scale down if needed."""
MAX_IMAGE = 5 * 1024 * 1024
"""Bytes of base64: providers refuse larger images."""
MOST_KEPT = 64
"""Most artifacts that one result may leave."""
PREVIEW_BYTES = 2_000
"""Characters shown of JSON that is stored as an artifact, where there is no text with it."""
SHORTEST_SHOWN = 200
"""Shortest beginning of a text worth showing."""

PLAIN_TEXT, PLAIN_JSON, UNKNOWN_TYPE = "text/plain", "application/json", "application/octet-stream"

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_TOO_MUCH = "{what}, {size:,} bytes: too large to show here."
_LOST = "could not be stored."

Block = dict[str, Any]


class ResultSource(msgspec.Struct, frozen=True, kw_only=True):
    """Server and tool of a result, and its budget."""

    server_id: str
    tool: str
    trusted: bool
    limit: int | None
    """Budget in bytes; None for no limit."""
    max_structured_bytes: int | None = None
    """Structured content up to this size is delivered whole, outside the budget; None: within the budget."""
    definition: bytes | None = None
    """Definition of the tool, where it is known: it may have an output schema."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptArtifact:
    """Content to be stored as an artifact."""

    content: bytes | memoryview = field(repr=False)
    media_type: str
    sha256: str

    @property
    def handle(self) -> str:
        """The `artifact://` handle that a model reads it by."""
        return f"{SCHEME}{self.sha256}"


class PreparedResult(msgspec.Struct, frozen=True):
    """Result within its budget, and the artifacts to store before it is delivered."""

    result: ToolResult
    kept: tuple[KeptArtifact, ...] = ()


SMALL = 65_536
"""Results up to this size are scanned at once: that takes less than one step."""
MAX_AS_IT_CAME = 1024 * 1024
"""Likewise up to this size for ASCII without escapes: that takes about a millisecond."""


_TEXT_BEGINS = b'{"content":[{"type":"text"'
_AROUND = len(b'{"content":[{"type":"text","text":""}],"isError":false,"resultType":"complete"}')
"""JSON around a text, which costs nothing."""


def prepare_result(raw: msgspec.Raw | bytes, source: ResultSource, *, keeping: bool = True) -> PreparedResult:
    """Prepare a result in one go. In an event loop use `prepare_result_steps`."""
    return gate.finish(prepare_result_steps(raw, source, keeping=keeping))


def as_it_came(body: bytes, source: ResultSource) -> ToolResult | None:
    """A small result that may go on unchanged, as nearly all may; else None: see `prepare_result_steps`."""
    size, limit = len(body), source.limit
    if limit is not None and size > limit and not (body.startswith(_TEXT_BEGINS) and size <= limit + _AROUND):
        return None
    if size > SMALL and (size > MAX_AS_IT_CAME or b"\\" in body or b"%" in body or not body.isascii()):
        return None
    # A smaller one was parsed, and repaired, when it was received.
    if not gate.is_plain(body, *_MEDIA) or (size > SMALL and may_have_constants(body)):
        return None
    return ToolResult(
        source.server_id,
        body,
        untrusted=not source.trusted,
        definition=source.definition,
        tool=source.tool,
    )


def prepare_result_steps(
    raw: msgspec.Raw | bytes, source: ResultSource, *, keeping: bool = True
) -> "gate.Steps[PreparedResult]":
    """Prepare a result in steps: sanitized, masked and within its budget.

    Args:
        raw: The result as received.
        source: Its server and tool, and the budget.
        keeping: Whether to make artifacts. Without them what does not fit is lost, and the notes say so.

    Raises:
        CallFailed: The result has to be parsed and is not valid.
    """
    if source.limit is not None and len(raw) > max(source.limit, gate.MAX_OPENED_BYTES):
        # Never opened, and so not copied either: copying 16 MB blocks the event loop for 10 ms.
        view = raw if type(raw) is bytes else memoryview(raw)
        return (yield from _store_whole_steps(view, source, keeping=keeping))
    body = yield from _sound_steps(bytes(raw))
    try:
        fits = source.limit is None or len(body) <= source.limit
        is_opened = len(body) <= gate.MAX_OPENED_BYTES
        if fits and not (is_opened and (yield from _has_media_steps(body))):
            plain, seen = (yield from gate.is_plain_steps(body)), gate.Cleaner()
            # What might be hidden, such as an emoji written as two escapes, usually is not.
            if not plain:
                cleaned = yield from gate.clean_literals_steps(body, seen)
                plain = cleaned is body and not seen.may_be_marked
            if plain:
                result = ToolResult(
                    source.server_id,
                    body,
                    untrusted=not source.trusted,
                    definition=source.definition,
                    tool=source.tool,
                )
                return PreparedResult(result)
        if not is_opened:
            return (yield from _prepare_unparsed_steps(body, source, keeping=keeping))
        rest, structured = (body, None) if fits else _set_apart(body, source)
        opened = gate.SlicedDocument(rest)
        if not (yield from opened.take_out_steps()):
            return (yield from _prepare_unparsed_steps(body, source, keeping=keeping))
        return (yield from _prepare_parsed_steps(opened, body, structured, source, keeping=keeping))
    except (ValueError, RecursionError) as exc:
        message = f"its answer is not a valid tool result: {gate.text(str(exc))}"
        raise CallFailed(source.server_id, message, delivery="done") from exc


def _sound_steps(body: bytes) -> "gate.Steps[bytes]":
    """Replace halves of characters in a large result, and Python's NaN and Infinity by `null`, with a note.

    Smaller results are repaired when they are received; large ones are not parsed there.
    """
    if len(body) <= SMALL:
        return body
    whole = yield from without_lone_surrogates_steps(body)
    sound = yield from without_constants_steps(whole)
    if sound is whole:
        return whole
    note = msgspec.json.encode({"type": "text", "text": CONSTANT_NOTE})
    if (begun := _CONTENT_BEGINS.match(sound)) and sound[begun.end() : begun.end() + 1] == b"{":
        return b"".join((sound[: begun.end()], note, b",", sound[begun.end() :]))
    if len(sound) > gate.MAX_PARSED_BYTES:
        return sound
    try:
        fields = msgspec.json.decode(sound, type=dict[str, msgspec.Raw])
        blocks = msgspec.json.decode(fields["content"], type=list[msgspec.Raw])
    except (ValueError, KeyError, RecursionError):
        return sound
    fields["content"] = msgspec.Raw(msgspec.json.encode([*blocks, msgspec.Raw(note)]))
    return msgspec.json.encode(fields)


_CONTENT_BEGINS = re.compile(rb'\s*\{\s*"content"\s*:\s*\[\s*')


def _has_media(body: bytes) -> bool:
    return mentions(body, *_MEDIA)


_MEDIA = (b'"mimeType"', b'"blob"')
"""One of these occurs in every result with media."""


def _has_media_steps(body: bytes) -> "gate.Steps[bool]":
    for start in range(0, len(body), MAX_AS_IT_CAME):
        if _has_media(body[start : start + MAX_AS_IT_CAME + 16]):
            return True
        yield
    return False


def _set_apart(body: bytes, source: ResultSource) -> tuple[bytes, bytes | None]:
    """Split a result and its structured content, where that has a budget of its own.

    It is delivered unchanged, so it never has to be parsed, however many values it has.
    """
    if source.max_structured_bytes is None:
        return body, None
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    structured = fields.pop("structuredContent", None)
    if structured is None:
        return body, None
    return msgspec.json.encode(fields), bytes(structured)


def _prepare_unparsed_steps(
    body: bytes, source: ResultSource, *, keeping: bool
) -> "gate.Steps[PreparedResult]":
    """Prepare a result too costly to parse: stored for a model, sanitized string by string for a program."""
    if source.limit is not None:
        return (yield from _store_whole_steps(body, source, keeping=keeping))
    cleaned = yield from gate.clean_literals_steps(body)
    result = ToolResult(
        source.server_id, cleaned, original=body, untrusted=not source.trusted, tool=source.tool
    )
    return PreparedResult(result)


def _store_whole_steps(
    body: bytes | memoryview, source: ResultSource, *, keeping: bool
) -> "gate.Steps[PreparedResult]":
    """Store a result unchanged and return a note in its place."""
    parcel = _Parcel(source.limit, source.max_structured_bytes, keeping=keeping)
    yield from parcel.leave_unopened_steps(body)
    result = ToolResult(
        source.server_id,
        msgspec.json.encode({"content": parcel.blocks, "isError": says_error(body)}),
        original=body,
        untrusted=not source.trusted,
        remarks=ResultNotes(notes=tuple(parcel.notes), ours=frozenset(parcel.ours)),
        definition=source.definition,
        tool=source.tool,
    )
    return PreparedResult(result, tuple(parcel.kept.values()))


_AT_ONCE = 1024 * 1024
_NOT_BASE64 = bytes({*range(256)} - {*base64.b64encode(bytes(range(256)) * 3), *b"+/="})


def _digest_steps(content: bytes | memoryview) -> "gate.Steps[str]":
    digest = hashlib.sha256()
    for start in range(0, len(content), _AT_ONCE):
        digest.update(memoryview(content)[start : start + _AT_ONCE])
        yield
    return digest.hexdigest()


def _utf8_steps(text: str) -> "gate.Steps[bytes]":
    pieces: list[bytes] = []
    for start in range(0, len(text), _AT_ONCE):
        pieces.append(text[start : start + _AT_ONCE].encode())
        yield
    return b"".join(pieces)


def _binary_steps(data: str) -> "gate.Steps[bytes]":
    """Decode base64. Raises `ValueError`."""
    plain = data.encode(errors="replace").translate(None, _NOT_BASE64)
    pieces: list[bytes] = []
    for start in range(0, len(plain), _AT_ONCE):  # which is a multiple of four
        pieces.append(binascii.a2b_base64(plain[start : start + _AT_ONCE]))
        yield
    return b"".join(pieces)


def _without_ours(meta: bytes) -> bytes:
    decoded = gate.decode_finite(meta)
    kept = gate.without_ours(decoded)
    return meta if kept is decoded else msgspec.json.encode(kept)


def _prepare_parsed_steps(
    opened: gate.SlicedDocument, body: bytes, structured: bytes | None, source: ResultSource, *, keeping: bool
) -> "gate.Steps[PreparedResult]":
    fields = msgspec.json.decode(opened.short, type=dict[str, msgspec.Raw])
    yield
    cleaner = gate.Cleaner(opened)
    parcel = _Parcel(source.limit, source.max_structured_bytes, keeping=keeping)
    blocks = _decode_field(bytes(fields.pop("content", b"[]")), cleaner)
    if not is_list(blocks) or not all(is_object(block) for block in blocks):
        raise ValueError("its content is not a list of blocks")
    yield
    yield from cleaner.value_steps(blocks, media=True)
    for block in blocks:
        yield from parcel.add_steps(block)
    yield from parcel.finish_words_steps()
    yield
    rest: dict[str, msgspec.Raw] = {}
    for name, value in fields.items():
        if cleaner.text(name) != name or name.startswith(gate.OURS):
            continue
        cleaned = yield from _clean_field_steps(bytes(value), cleaner)
        if name == "_meta":
            cleaned = _without_ours(cleaned)
        if (yield from parcel.has_room_steps(name, cleaned)):
            rest[name] = msgspec.Raw(cleaned)
    if structured is not None:
        structured = yield from gate.clean_literals_steps(structured, cleaner)
        if (yield from parcel.has_room_steps("structuredContent", structured)):
            rest["structuredContent"] = msgspec.Raw(structured)
    notes = (*parcel.notes, *cleaner.notes)
    result = ToolResult(
        source.server_id,
        (yield from _encode_result_steps(parcel.blocks, rest)),
        original=body,
        untrusted=not source.trusted,
        remarks=ResultNotes(
            findings=tuple(cleaner.found.values()),
            notes=notes,
            handles=parcel.handles,
            ours=frozenset(parcel.ours),
        ),
        definition=source.definition,
        tool=source.tool,
    )
    return PreparedResult(result, tuple(parcel.kept.values()))


def _encode_result_steps(blocks: list[Block], rest: dict[str, msgspec.Raw]) -> "gate.Steps[bytes]":
    content = yield from gate.encode_steps(blocks)
    return msgspec.json.encode({"content": msgspec.Raw(content), **rest})


def _decode_field(raw: bytes, cleaner: gate.Cleaner) -> Any:  # noqa: ANN401 - any JSON value
    try:
        raw.decode()
    except UnicodeDecodeError:
        cleaner.notes.append("invalid UTF-8 was replaced by �")
    return gate.decode(raw)


def _clean_field_steps(raw: bytes, cleaner: gate.Cleaner) -> "gate.Steps[bytes]":
    """Sanitize a field of a result; its bytes are unchanged where nothing was found."""
    if not cleaner.has_long(raw):
        if (yield from gate.is_plain_steps(raw)):
            return raw
        # Numbers that no parser keeps exactly stay unchanged where only values were changed.
        literal = yield from gate.clean_literals_steps(raw, cleaner)
        cleaned = yield from gate.Cleaner().value_steps(_decode_field(raw, cleaner))
        try:
            return literal if gate.decode(literal) == cleaned else msgspec.json.encode(cleaned)
        except (ValueError, RecursionError):
            return msgspec.json.encode(cleaned)
    return (yield from gate.encode_steps((yield from cleaner.value_steps(_decode_field(raw, cleaner)))))


@dataclass(frozen=True, slots=True)
class _Media:
    media_type: str
    data: str = field(repr=False)

    @property
    def cost(self) -> int:
        is_image = self.media_type in VISIBLE and len(self.data) <= MAX_IMAGE
        return min(IMAGE_COST, len(self.data)) if is_image else len(self.data)


def _media_of(block: Block) -> _Media | None:
    match block:
        case {"type": "image" | "audio", "data": str(data)}:
            return _Media(media_type(block.get("mimeType")), data)
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            return _Media(media_type(as_object(resource).get("mimeType")), data)
        case _:
            return None


def media_type(value: object) -> str:
    """Media type that a server names, or the one for unknown content."""
    plain = value.partition(";")[0].strip().lower() if isinstance(value, str) else ""
    return plain if _MEDIA_TYPE.fullmatch(plain) else UNKNOWN_TYPE


def words_of(block: Block) -> str | None:
    """Text of a block; None for a block without text."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            uri = as_object(resource).get("uri")
            return f"{uri}\n{text}" if isinstance(uri, str) and uri else text
        case {"type": "resource_link", "uri": str(uri)}:
            texts = (block.get(name) for name in ("title", "name", "description"))
            return " ".join([*(part for part in texts if isinstance(part, str) and part), f"<{uri}>"])
        case _:
            return None


class _Parcel:
    """Blocks within the budget, and the artifacts for the rest."""

    def __init__(self, limit: int | None, max_structured_bytes: int | None = None, *, keeping: bool) -> None:
        self._room: float = math.inf if limit is None else limit
        self._max_structured_bytes = max_structured_bytes
        self._keeping = keeping
        self._words: list[str] = []
        self._length = 0
        self._cut: tuple[Block, int] | None = None
        """Note to be written, and the number of characters shown before it."""
        self._left_out = 0
        self.blocks: list[Block] = []
        self.ours: list[int] = []
        self.handles: dict[int, str] = {}
        self.kept: dict[str, KeptArtifact] = {}
        self.notes: list[str] = []

    def add_steps(self, block: Block) -> "gate.Steps[None]":
        """Add the next block."""
        words, media = words_of(block), _media_of(block)
        if words is not None:
            self._add_words(block, words)
        elif media is not None:
            yield from self._add_media_steps(block, media)
        elif self._spend(len(msgspec.json.encode(block))):
            self.blocks.append(block)
        else:
            self._left_out += 1

    def finish_words_steps(self) -> "gate.Steps[None]":
        """Write the notes that depend on all blocks."""
        if self._cut is not None:
            note, shown = self._cut
            whole = "\n".join(self._words)
            handle = yield from self._keep_steps((yield from _utf8_steps(whole)), PLAIN_TEXT)
            where = f"The rest: {handle} ({READ_TOOL}, start={shown})." if handle else f"The rest {_LOST}"
            note["text"] = f"[{shown:,} of {len(whole):,} characters shown. {where}]"
            self.notes.append("its text was cut")
        if self._left_out:
            self._say(f"{self._left_out:,} more blocks are left out.")

    def has_room_steps(self, name: str, value: bytes) -> "gate.Steps[bool]":
        """Whether the budget has room for another field. Structured content without room is stored."""
        has_own_budget = name == "structuredContent" and self._max_structured_bytes is not None
        if has_own_budget and len(value) <= (self._max_structured_bytes or 0):
            return True
        if name in ("isError", "resultType") or (not has_own_budget and self._spend(len(value))):
            return True
        if name != "structuredContent":
            self.notes.append(f"`{name}` was left out: it is too large")
            return False
        if not self._words:
            self._preview(value)
        self._leave("structured content", len(value), (yield from self._keep_steps(value, PLAIN_JSON)))
        return False

    def _preview(self, value: bytes | memoryview) -> None:
        """Show the beginning of JSON that does not fit, where no text describes it."""
        # Masked before it is cut: a result that was never opened holds secrets as they came.
        shown = gate.content(_cut_beginning(value, gate.head_length(PREVIEW_BYTES) + 1), PREVIEW_BYTES)
        if self._spend(len(shown.encode())):
            self.blocks.append({"type": "text", "text": shown})

    def _add_words(self, block: Block, words: str) -> None:
        before = self._length
        self._words.append(words)
        self._length += len(words) + 1
        if self._cut is not None:
            return
        # More characters than room means more bytes, too: so long a text is not encoded in vain.
        is_short = not words.isascii() and len(words) <= self._room < math.inf
        if self._spend(len(words.encode()) if is_short else len(words)):
            self.blocks.append(block)
            return
        shown = "" if block["type"] == "resource_link" else _first_part(words, int(self._room))
        self._room = 0
        if shown:
            self.blocks.append(_cut_to(block, words, shown))
        self._cut = self._note(""), before + len(shown)

    def _add_media_steps(self, block: Block, media: _Media) -> "gate.Steps[None]":
        fits = self._spend(media.cost)
        if fits and media.media_type in VISIBLE:
            self.blocks.append(block)
            return
        try:
            content = yield from _binary_steps(media.data)
            handle = yield from self._keep_steps(content, media.media_type)
        except ValueError:
            handle = None
        if not fits:
            self._leave(media.media_type, len(media.data) * 3 // 4, handle)
            return
        if handle is not None:
            self.handles[len(self.blocks)] = handle
        self.blocks.append(block)

    def leave_unopened_steps(self, body: bytes | memoryview) -> "gate.Steps[None]":
        """Note that a whole result is stored unchanged."""
        handle = yield from self._keep_steps(body, PLAIN_JSON)
        self._preview(body)
        self._leave("a result with too much in it to be opened", len(body), handle)

    def _leave(self, what: str, size: int, handle: str | None) -> None:
        where = f"Stored as {handle} ({READ_TOOL})." if handle else f"It {_LOST}"
        self._say(f"{_TOO_MUCH.format(what=what, size=size)} {where}")

    def _say(self, words: str) -> None:
        self._note(f"[{words}]")
        self.notes.append(words)

    def _note(self, words: str) -> Block:
        note: Block = {"type": "text", "text": words}
        self.ours.append(len(self.blocks))
        self.blocks.append(note)
        return note

    def _spend(self, cost: int) -> bool:
        if cost > self._room:
            return False
        self._room -= cost
        return True

    def _keep_steps(self, content: bytes | memoryview, kind: str) -> "gate.Steps[str | None]":
        if not self._keeping or len(self.kept) >= MOST_KEPT:
            return None
        kept = KeptArtifact(content=content, media_type=kind, sha256=(yield from _digest_steps(content)))
        self.kept.setdefault(kept.sha256, kept)
        return kept.handle


def _cut_beginning(value: bytes | memoryview, size: int) -> str:
    return bytes(value[:size]).decode(errors="ignore")


def _first_part(text: str, room: int) -> str:
    """As much of the text as fits, up to the end of a line if one is near."""
    if room < SHORTEST_SHOWN:
        return ""
    shown = text[:room].encode()[:room].decode(errors="ignore")
    end = shown.rfind("\n", len(shown) * 9 // 10)
    return shown if end < 0 else shown[: end + 1]


def _cut_to(block: Block, words: str, shown: str) -> Block:
    if block["type"] == "text":
        return {**block, "text": shown}
    resource: dict[str, Any] = block["resource"]
    heading = len(words) - len(resource["text"])
    return {**block, "resource": {**resource, "text": shown[heading:]}}
