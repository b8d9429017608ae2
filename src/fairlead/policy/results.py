"""What a tool brought, made fit to be handed on: nothing hidden in it, and no larger than it may be.

One budget is spent on all blocks, in order: text costs its bytes in UTF-8, structured content its JSON,
media the bytes of their base64; but an image costs a model about the same whatever its size, and so it does
here, up to what providers take at all. Text that does not fit is cut, all else left out, with a note that
says how much there is and the handle of an artifact that holds the whole. Notes are not counted.

A small result without anything to clean is handed on as the very bytes that came, and is not even parsed.
One that is parsed is written anew, so that nothing a parser does not see (a field that is there twice) is
in it.
"""

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from fairlead.catalog.results import Remarks, ToolResult
from fairlead.catalog.sanitise import Finding, Kind, clean_bytes, inspect, made_visible
from fairlead.config.shapes import as_object, is_list, is_object
from fairlead.errors import CallFailed
from fairlead.store.artifacts import SCHEME

READ_TOOL = "mcp_read_artifact"

VISIBLE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Images that every model with eyes takes."""
IMAGE_COST = 6_000
"""About 1,500 tokens: what providers charge at most for one image, scaled down by them if need be."""
MAX_IMAGE = 5 * 1024 * 1024
"""Of base64: larger ones are refused by providers."""
MOST_KEPT = 64
"""How many artifacts one result may leave behind."""
SHORTEST_SHOWN = 200
"""Less of a text than this is not worth showing."""

PLAIN_TEXT, PLAIN_JSON, UNKNOWN_TYPE = "text/plain", "application/json", "application/octet-stream"

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_TOO_MUCH = "{what}, {size:,} bytes: too large to show here."
_LOST = "could not be kept."

Block = dict[str, Any]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Whose result it is, and how much of it may be handed on."""

    server_id: str
    tool: str
    trusted: bool
    limit: int | None
    """The budget in bytes; None for as much as there is."""
    definition: bytes | None = None
    """The tool's definition, as far as it is known: it may promise a shape of the result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Something to be kept as an artifact."""

    content: bytes = field(repr=False)
    media_type: str
    sha256: str

    @property
    def handle(self) -> str:
        """How a model asks for it."""
        return f"{SCHEME}{self.sha256}"


class HandedOver(msgspec.Struct, frozen=True):
    """A result that may be handed on, once what it has handles of is kept."""

    result: ToolResult
    kept: tuple[Kept, ...] = ()


def hand_over(raw: msgspec.Raw | bytes, source: Source, *, keeping: bool = True) -> HandedOver:
    """The result as it may be handed on. Raises `CallFailed` where it would have to be read and cannot be.

    Without `keeping` no artifacts are made: what did not fit is lost to a model, and the notes say so.
    """
    body = bytes(raw)
    if (source.limit is None or len(body) <= source.limit) and not _has_media(body) and _is_clean(body):
        result = ToolResult(
            source.server_id, body, untrusted=not source.trusted, definition=source.definition
        )
        return HandedOver(result)
    try:
        return _handed_over(body, source, keeping=keeping)
    except (ValueError, RecursionError) as exc:
        message = f"what it answered is not a tool result: {exc}"
        raise CallFailed(source.server_id, message, delivery="done") from exc


def _has_media(body: bytes) -> bool:
    # From the end: `in` would take three times as long.
    return body.rfind(b'"mimeType"') >= 0 or body.rfind(b'"blob"') >= 0


def _is_clean(body: bytes) -> bool:
    try:
        return clean_bytes(body) is None
    except ValueError:
        return False


def _handed_over(body: bytes, source: Source, *, keeping: bool) -> HandedOver:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    cleaning = _Cleaning()
    parcel = _Parcel(source.limit, keeping=keeping)
    for block in cleaning.blocks(bytes(fields.pop("content", b"[]"))):
        parcel.add(block)
    parcel.finish_words()
    rest: dict[str, msgspec.Raw] = {}
    for name, value in fields.items():
        if cleaning.text(name) == name and parcel.has_room_for(name, cleaned := cleaning.json(bytes(value))):
            rest[name] = msgspec.Raw(cleaned)
    notes = (*parcel.notes, *cleaning.notes)
    result = ToolResult(
        source.server_id,
        msgspec.json.encode({"content": parcel.blocks, **rest}),
        original=body,
        untrusted=not source.trusted,
        remarks=Remarks(
            findings=tuple(cleaning.found.values()),
            notes=notes,
            handles=parcel.handles,
            ours=frozenset(parcel.ours),
        ),
        definition=source.definition,
    )
    return HandedOver(result, tuple(parcel.kept.values()))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class _Cleaning:
    """Takes out what is hidden, and remembers what it was."""

    def __init__(self) -> None:
        self.found: dict[Kind, Finding] = {}
        self.notes: list[str] = []

    def text(self, text: str) -> str:
        cleaned = inspect(text)
        for finding in cleaned.findings:
            known = self.found.get(finding.kind)
            count = finding.count + (known.count if known else 0)
            self.found[finding.kind] = replace(known or finding, count=count)
        return cleaned.text

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, str):
            return self.text(value)
        if is_list(value):
            return [self.value(item) for item in value]
        return self._object(value) if is_object(value) else value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        names = {name: self.text(name) for name in value}
        if len(set(names.values())) < len(names):  # what would fall together is told apart by what it hides
            names = {name: made_visible(name) for name in names}
        return {names[name]: self.value(item) for name, item in value.items()}

    def blocks(self, raw: bytes) -> Iterator[Block]:
        """The blocks of content."""
        blocks = self._loaded(raw)
        if not is_list(blocks) or not all(is_object(block) for block in blocks):
            raise ValueError("its content is not a list of blocks")
        return (self._block(block) for block in blocks)

    def _block(self, block: Block) -> Block:
        """A block of content. The data of media is no text, and stays as it is."""
        media = _media_of(block)
        if media is None:
            return self.value(block)
        if block.get("type") == "resource":
            resource = block["resource"]
            return {**self.value({**block, "resource": None}), "resource": self._but(resource, "blob")}
        return self._but(block, "data")

    def _but(self, holder: Mapping[str, Any], data: str) -> dict[str, Any]:
        return {
            **self.value({name: item for name, item in holder.items() if name != data}),
            data: holder[data],
        }

    def json(self, raw: bytes) -> bytes:
        """JSON with all strings cleaned, and else as it came, byte for byte, wherever that can be."""
        try:
            cleaned = clean_bytes(raw)
        except ValueError:  # bytes that are no text
            return msgspec.json.encode(self.value(self._loaded(raw)))
        if cleaned is None:
            return raw
        value = self.value(self._loaded(raw))
        return cleaned if value == self._loaded(cleaned) else msgspec.json.encode(value)

    def _loaded(self, raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """What the JSON says, even where its strings hold halves of characters or bytes that are none."""
        try:
            return msgspec.json.decode(raw)
        except UnicodeDecodeError:
            self.notes.append("some of it is not text; � stands in for that")
        except msgspec.DecodeError:
            pass  # what is wrong, if the other parser cannot read it either, it will say
        return json.loads(raw.decode(errors="replace"), strict=False, parse_constant=_refuse)


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


def media_type(said: object) -> str:
    """A media type as a server names it, or the one of things unknown."""
    plain = said.partition(";")[0].strip().lower() if isinstance(said, str) else ""
    return plain if _MEDIA_TYPE.fullmatch(plain) else UNKNOWN_TYPE


def words_of(block: Block) -> str | None:
    """What a block says in words; None for one that does not."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            uri = as_object(resource).get("uri")
            return f"{uri}\n{text}" if isinstance(uri, str) and uri else text
        case {"type": "resource_link", "uri": str(uri)}:
            said = (block.get(name) for name in ("title", "name", "description"))
            return " ".join([*(part for part in said if isinstance(part, str) and part), f"<{uri}>"])
        case _:
            return None


class _Parcel:
    """Blocks, as far as the budget goes, and what has to be kept of the rest."""

    def __init__(self, limit: int | None, *, keeping: bool) -> None:
        self._room: float = math.inf if limit is None else limit
        self._keeping = keeping
        self._words: list[str] = []
        self._length = 0
        self._cut: tuple[Block, int] | None = None
        """The note that has to be written, and how many characters are shown before it."""
        self._left_out = 0
        self.blocks: list[Block] = []
        self.ours: list[int] = []
        self.handles: dict[int, str] = {}
        self.kept: dict[str, Kept] = {}
        self.notes: list[str] = []

    def add(self, block: Block) -> None:
        words, media = words_of(block), _media_of(block)
        if words is not None:
            self._add_words(block, words)
        elif media is not None:
            self._add_media(block, media)
        elif self._spend(len(msgspec.json.encode(block))):
            self.blocks.append(block)
        else:
            self._left_out += 1

    def finish_words(self) -> None:
        """Write what could not be written before all blocks were seen."""
        if self._cut is not None:
            note, shown = self._cut
            whole = "\n".join(self._words)
            handle = self._keep(whole.encode(), PLAIN_TEXT)
            where = f"The rest: {handle} ({READ_TOOL}, start={shown})." if handle else f"The rest {_LOST}"
            note["text"] = f"[{shown:,} of {len(whole):,} characters shown. {where}]"
            self.notes.append("its text was cut")
        if self._left_out:
            self._say(f"{self._left_out:,} more blocks are left out.")

    def has_room_for(self, name: str, value: bytes) -> bool:
        """Is there room for another field of the result? Structured content that has none is kept."""
        if name == "isError" or self._spend(len(value)):
            return True
        if name != "structuredContent":
            self.notes.append(f"`{name}` was left out: it is too large")
            return False
        self._leave("structured content", len(value), self._keep(value, PLAIN_JSON))
        return False

    def _add_words(self, block: Block, words: str) -> None:
        before = self._length
        self._words.append(words)
        self._length += len(words) + 1
        if self._cut is not None:
            return
        if self._spend(len(words) if words.isascii() else len(words.encode())):
            self.blocks.append(block)
            return
        shown = "" if block["type"] == "resource_link" else _beginning(words, int(self._room))
        self._room = 0
        if shown:
            self.blocks.append(_cut_to(block, words, shown))
        self._cut = self._note(""), before + len(shown)

    def _add_media(self, block: Block, media: _Media) -> None:
        fits = self._spend(media.cost)
        if fits and media.media_type in VISIBLE:
            self.blocks.append(block)
            return
        try:
            handle = self._keep(base64.b64decode(media.data), media.media_type)
        except (binascii.Error, ValueError):
            handle = None
        if not fits:
            self._leave(media.media_type, len(media.data) * 3 // 4, handle)
            return
        if handle is not None:
            self.handles[len(self.blocks)] = handle
        self.blocks.append(block)

    def _leave(self, what: str, size: int, handle: str | None) -> None:
        where = f"It is kept: {handle} ({READ_TOOL})." if handle else f"It {_LOST}"
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

    def _keep(self, content: bytes, kind: str) -> str | None:
        if not self._keeping or len(self.kept) >= MOST_KEPT:
            return None
        kept = Kept(content=content, media_type=kind, sha256=hashlib.sha256(content).hexdigest())
        self.kept.setdefault(kept.sha256, kept)
        return kept.handle


def _beginning(text: str, room: int) -> str:
    """As much of the text as fits, to the end of a line if one ends nearby."""
    if room < SHORTEST_SHOWN:
        return ""
    shown = text.encode()[:room].decode(errors="ignore")
    end = shown.rfind("\n", len(shown) * 9 // 10)
    return shown if end < 0 else shown[: end + 1]


def _cut_to(block: Block, words: str, shown: str) -> Block:
    if block["type"] == "text":
        return {**block, "text": shown}
    resource: dict[str, Any] = block["resource"]
    heading = len(words) - len(resource["text"])
    return {**block, "resource": {**resource, "text": shown[heading:]}}
