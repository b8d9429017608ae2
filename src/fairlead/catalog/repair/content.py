"""Repair of content blocks, prompt messages, resource contents and completions for clients.

Clients parse an answer as a whole: a null for an absent field, a text for a block or base64 with line breaks
costs them all of it. So answers are repaired to what the newest protocol version allows (`repair_blocks`,
`repair_prompt`, `repair_contents`, `repair_completion`). A value without a valid form becomes text rather
than being lost, and every repair is named. `blocks_for` and `prompt_for` then replace blocks that an older
version does not have.
"""

import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from fairlead.catalog.nesting import TOO_DEEP, is_deep
from fairlead.catalog.repair.definitions import repair_annotations, repair_definition
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import is_list, is_object

REPAIRED: Final = "fairlead/repaired"
"""Key of an answer's `_meta` with the repairs in it."""
NOT_BASE64: Final = "is not base64; given as text"
"""End of the note on invalid binary data."""
RESERVED_META: Final = frozenset(
    ("progressToken", "io.modelcontextprotocol/related-task", "io.modelcontextprotocol/serverInfo")
)
"""Keys of `_meta` that clients know, and validate."""
_UNSAFE_INTEGER: Final = 2**53
"""Clients in JavaScript refuse whole numbers from here on."""
MAX_NOTES: Final = 20
MAX_VALUES: Final = 100
"""Most values of a completion: the protocol's own limit."""
MAX_NESTED: Final = 10
"""Deepest nested lists of blocks that are flattened. Deeper ones become text."""

Block = dict[str, Any]

_ROLES: Final[Mapping[str, Literal["user", "assistant"]]] = {
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
}
"""Roles that servers send for a model. All others are taken for the user."""
_AUDIO_SINCE: Final = 1
_LINKS_SINCE: Final = 2
_META_SINCE: Final = 2
_ICONS_SINCE: Final = 3
"""First protocol version with these blocks, as `version_number` counts."""

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.ASCII)
_SIGNATURES: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "SUQz": "audio/mpeg",
    "T2dnUw": "audio/ogg",
}
"""Beginnings of base64 of well-known formats."""
_UNSAFE_IN_URI: Final = re.compile(r"[\s\x00-\x20\x7f<>\"{}|\\^`]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_encode = msgspec.json.Encoder().encode


def has_scheme(uri: str) -> bool:
    """Whether it is a URI with a scheme, as clients require."""
    return _SCHEME.match(uri) is not None


def quote_uri(uri: str) -> str:
    """Percent-encode the characters that no URI may have, mostly spaces."""
    return _UNSAFE_IN_URI.sub(lambda found: quote(found[0]), uri) if _UNSAFE_IN_URI.search(uri) else uri


def is_base64(data: bytes) -> bool:
    """Whether it is standard base64 with padding and nothing else, as every client requires."""
    if len(data) % 4:
        return False
    end = len(data) - (2 if data.endswith(b"==") else data.endswith(b"="))
    return not data[:end].translate(None, _ALPHABET)


def repair_base64(data: str) -> str | None:
    """Standard base64 for data with line breaks, without padding or in the URL alphabet, else None."""
    try:
        raw = data.encode("ascii")
    except ValueError:
        return None
    if is_base64(raw):
        return data
    raw = b"".join(raw.split()).replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    raw += b"=" * (-len(raw) % 4)
    return raw.decode() if is_base64(raw) and not raw.endswith(b"===") else None


class _Repairs:
    """Repair of one answer, with notes of all changes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, where: str, what: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(f"{where} {what}")

    # Content blocks.

    def read_blocks(self, value: object, at: str, depth: int = 0) -> Iterator[Block]:
        """Blocks of a value that should be a list of blocks."""
        if value is None:
            self.note(at, "is null; left out")
        elif is_list(value) and depth < MAX_NESTED:
            for index, item in enumerate(value):
                place = f"{at}[{index}]"
                if is_list(item):
                    self.note(place, "is a list inside a list")
                yield from self.read_blocks(item, place, depth + 1)
        elif is_object(value):
            yield from self.read_block(value, at)
        else:
            self.note(at, "is not a content block; given as text")
            yield text_block(value)

    def without_deep(self, block: Block, at: str) -> Block:
        """An object without the fields that are nested too deep for clients."""
        deep = {name for name, value in block.items() if _is_deep_value(value)}
        for name in sorted(deep):
            self.note(f"{at}.{name}", f"{TOO_DEEP}; left out")
        return {name: value for name, value in block.items() if name not in deep} if deep else block

    def read_block(self, block: Block, at: str) -> Iterator[Block]:
        """Valid blocks for one object: itself where it is valid, else repaired, else its JSON as text."""
        if not is_object(block.get("resource")):  # whose own fields are looked at one by one
            block = self.without_deep(block, at)
        kind = _kind_of(block)
        if kind != block.get("type"):
            self.note(f"{at}.type", "is missing or unknown to the protocol")
        common = self._read_common(block, at)
        made: list[Block] = []
        match kind:
            case "text":
                made = self._read_text(block, common, at)
            case "image" | "audio":
                made = self._read_media(block, kind, common, at)
            case "resource_link":
                made = self._read_link(block, at)
            case "resource":
                inner: object = block.get("resource", block)
                parts = self.read_contents(inner, f"{at}.resource", "") if is_object(inner) else []
                made = [{"type": "resource", "resource": part, **common} for part in parts]
            case _:
                pass
        if not made:
            self.note(at, "has no valid form; given as text")
            made = [text_block(block)]
        yield from made

    def _read_common(self, block: Block, at: str) -> dict[str, Any]:
        """Valid annotations and `_meta` of a block or of contents."""
        kept: dict[str, Any] = {}
        if "annotations" in block:
            annotations = repair_annotations(block["annotations"])
            if annotations is not None:
                kept["annotations"] = annotations
            if annotations is None or annotations != block["annotations"]:
                self.note(f"{at}.annotations", "are not valid; invalid ones are left out")
        if "_meta" in block:
            if _is_deep_value(block["_meta"]):
                self.note(f"{at}._meta", f"{TOO_DEEP}; left out")
            elif is_object(block["_meta"]):
                kept["_meta"] = block["_meta"]
            else:
                self.note(f"{at}._meta", "is not an object; left out")
        return kept

    def _read_text(self, block: Block, common: dict[str, Any], at: str) -> list[Block]:
        text: object = block.get("text")
        if isinstance(text, str):
            return [{"type": "text", "text": text, **common}]
        if text is None and block.keys() - {"type", "text", "annotations", "_meta"}:
            return []  # the text is in another field
        self.note(f"{at}.text", "is missing" if text is None else "is not a text")
        return [{**text_block("" if text is None else text), **common}]

    def _read_media(self, block: Block, kind: str, common: dict[str, Any], at: str) -> list[Block]:
        media = self._read_data(block.get("data", block.get("blob")), f"{at}.data")
        if media is None:
            return []
        data, media_type = media
        given: object = block.get("mimeType") or block.get("mime_type") or block.get("mediaType")
        if not isinstance(given, str):
            self.note(f"{at}.mimeType", "is missing")
            given = media_type or _detect_media_type(data) or "application/octet-stream"
        return [{"type": kind, "data": data, "mimeType": given, **common}]

    def _read_data(self, data: object, at: str) -> tuple[str, str | None] | None:
        """Base64 and the media type that a data URL names, if it is one; None where it is no binary data."""
        media_type: str | None = None
        if is_object(data) and data.get("type") == "Buffer":
            data = data.get("data")  # JSON form of Node's Buffer
        if is_list(data) and all(isinstance(item, int) and 0 <= item < 256 for item in data):
            self.note(at, "is a list of numbers and not base64")
            return binascii.b2a_base64(bytes(data), newline=False).decode(), None
        if not isinstance(data, str):
            return None
        if found := _DATA_URL.match(data):
            media_type, data = found[1], data[found.end() :]
            self.note(at, "is a data URL")
        repaired = repair_base64(data)
        if repaired is not None and repaired is not data:
            self.note(at, "is not standard base64")
        return None if repaired is None else (repaired, media_type)

    def _read_link(self, block: Block, at: str) -> list[Block]:
        named = {name: item for name, item in block.items() if name != "type"}
        repaired = repair_definition("resource", _encode(named))
        if repaired.definition is None:
            return []
        for change in repaired.changes:
            self.note(f"{at}.{change.where}", change.what)
        link: Block = {"type": "resource_link", **msgspec.json.decode(repaired.definition)}
        return [{**link, "uri": quote_uri(link["uri"])}]

    # Resource contents.

    def read_contents(self, value: object, at: str, requested_uri: str) -> list[Block]:
        """Parts of a value that should be a list of the resource contents of `requested_uri`."""
        items: list[Any] = value if is_list(value) else [value]
        return [
            part
            for index, item in enumerate(items)
            for part in self._read_part(
                item, f"{at}[{index}]" if is_list(value) else at, requested_uri, is_alone=len(items) == 1
            )
        ]

    def _read_part(self, value: object, at: str, requested_uri: str, *, is_alone: bool) -> Iterator[Block]:
        if value is None:
            self.note(at, "is null; left out")
            return
        part: Block = value if is_object(value) else {"text": value}
        if is_object(inner := part.get("resource")):
            part = inner
        part = self.without_deep(part, at)
        uri = self._read_uri(part.get("uri"), f"{at}.uri", requested_uri, is_alone=is_alone)
        fields: Block = {"uri": uri, **self._read_description(part, at)}
        text, blob = part.get("text"), part.get("blob", part.get("data"))
        data = None if blob is None else self._read_data(blob, f"{at}.blob")
        if blob is not None and data is None:
            self.note(f"{at}.blob", NOT_BASE64)
            text = blob if text is None else text
        if text is not None or data is None:
            if not isinstance(text, str):
                self.note(f"{at}.text", "is missing" if text is None else "is not a text")
            yield {**fields, **_only_text("" if text is None else text)}
        if data is not None:
            if text is not None:
                self.note(at, "has both text and binary data; given as two")
            yield {**fields, "blob": data[0]}

    def _read_description(self, part: Block, at: str) -> Block:
        """Media type and `_meta` of a part."""
        fields: Block = self._read_common({"_meta": part["_meta"]}, at) if "_meta" in part else {}
        media_type: object = part.get("mimeType") or part.get("mime_type")
        if isinstance(media_type, str):
            return {"mimeType": media_type, **fields}
        if "mimeType" in part and part["mimeType"] != "":
            self.note(f"{at}.mimeType", "is not a text; left out")
        return fields

    def _read_uri(self, uri: object, at: str, requested_uri: str, *, is_alone: bool) -> str:
        requested_uri = requested_uri or "fairlead://content"
        if not isinstance(uri, str) or not uri:
            self.note(at, "is missing; the requested URI is used")
            return requested_uri
        if has_scheme(uri):
            if (quoted := quote_uri(uri)) != uri:
                self.note(at, "has characters that no URI may have")
            return quoted
        self.note(at, "has no scheme")
        return requested_uri if is_alone else f"{requested_uri.rstrip('/')}/{quote(uri.lstrip('/'))}"

    # Messages.

    def read_messages(self, value: object) -> Iterator[Block]:
        """Messages of a value that should be a list of messages, each with one block."""
        if not is_list(value):
            self.note("messages", "is not a list")
        items: list[Any] = value if is_list(value) else [value]
        for index, item in enumerate(items):
            at = f"messages[{index}]"
            message: Block = item if is_object(item) else {"role": "user", "content": item}
            if not is_object(item):
                self.note(at, "is not a message")
            role = self._read_role(message.get("role"), f"{at}.role")
            content: object = message.get("content")
            if is_list(content) and len(content) != 1:
                self.note(f"{at}.content", "is a list; a message is given for each block")
            elif is_list(content):
                self.note(f"{at}.content", "is a list")
            if "content" not in message:
                self.note(f"{at}.content", "is missing")
                content = message if message.keys() - {"role"} else None
            for block in self.read_blocks(content, f"{at}.content"):
                yield {"role": role, "content": block}

    def _read_role(self, role: object, at: str) -> str:
        known = repair_role(role)
        if known != role:
            self.note(at, "is missing" if role is None else "is unknown to the protocol")
        return known


def repair_role(role: object) -> Literal["user", "assistant"]:
    """Role of a message: one of the two that the protocol has."""
    return _ROLES.get(role.lower(), "user") if isinstance(role, str) else "user"


def text_block(value: object) -> Block:
    """Text block: a text unchanged, any other value as JSON."""
    return {"type": "text", **_only_text(value)}


def _is_deep_value(value: object) -> bool:
    return (is_object(value) or is_list(value)) and is_deep(_encode(value))


def _only_text(value: object) -> Block:
    return {"text": value if isinstance(value, str) else _encode(value).decode()}


def _kind_of(block: Block) -> str | None:
    """Type of a block: as named, or by its fields."""
    kind: object = block.get("type")
    if isinstance(kind, str):
        known = kind.lower().replace("-", "_")
        if known in ("text", "image", "audio", "resource_link", "resource"):
            return known
        return "resource" if known == "embedded_resource" else None
    if is_object(block.get("resource")):
        return "resource"
    if isinstance(block.get("uri"), str):
        return "resource" if {"text", "blob"} & block.keys() else "resource_link"
    media: object = block.get("mimeType")
    if "data" in block and isinstance(media, str) and media.startswith(("image/", "audio/")):
        return media[:5]
    return "text" if isinstance(block.get("text"), str) else None


def _detect_media_type(data: str) -> str | None:
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)


# Answers.


def repair_blocks(content: object) -> tuple[list[Block], list[str]]:
    """Content blocks of a tool's result, valid for the newest version, and the repairs."""
    repairs = _Repairs()
    return [*repairs.read_blocks(content if is_list(content) else [content], "content")], repairs.notes


def repair_prompt(result: Mapping[str, Any]) -> dict[str, Any]:
    """Repair a result of `prompts/get` to be valid for the newest version.

    Raises:
        ValueError: There are no messages in it.
    """
    repairs, rest = _Repairs(), dict(result)
    messages = rest.pop("messages", None)
    if messages is None:
        messages = [dict(result)] if {"content", "text"} & result.keys() else None
        if messages is None:
            raise ValueError("it has no messages")
        for name in ("content", "text", "role", "type"):
            rest.pop(name, None)
        repairs.note("messages", "is missing; the content next to it is given as a message")
    if "description" in rest and not isinstance(rest["description"], str):
        repairs.note("description", "is not a text; left out")
        del rest["description"]
    made = [*repairs.read_messages(messages)]
    return _with_notes({**rest, "messages": made}, repairs.notes)


def repair_contents(result: Mapping[str, Any], uri: str) -> dict[str, Any]:
    """Repair a result of `resources/read` to be valid for the newest version.

    Args:
        result: The server's answer.
        uri: The URI that was read, for contents without one.

    Raises:
        ValueError: There are no contents in it.
    """
    repairs, rest = _Repairs(), dict(result)
    contents = rest.pop("contents", None)
    if contents is None:
        wrong = next((name for name in ("content", "resource", "text", "blob") if rest.get(name)), None)
        if wrong is None and "contents" not in result:
            raise ValueError("it has no contents")
        if wrong is not None:
            own_fields = {name: rest.pop(name, None) for name in ("uri", "mimeType", "text", "blob")}
            contents = rest.pop(wrong) if wrong in ("content", "resource") else own_fields
        repairs.note("contents", "is missing or null" + (f"; `{wrong}` stands in" if wrong else ""))
    made = [] if contents is None else repairs.read_contents(contents, "contents", uri)
    return _with_notes({**rest, "contents": made}, repairs.notes)


def repair_completion(result: Mapping[str, Any]) -> dict[str, Any]:
    """Repair the `completion` of a result of `completion/complete` to be valid for every version."""
    completion: object = result.get("completion", result)
    found: Mapping[str, Any] = completion if is_object(completion) else {"values": completion}
    values: object = found.get("values")
    items: list[Any] = values if is_list(values) else [] if values is None else [values]
    made: dict[str, Any] = {"values": [*islice(_read_completion_values(items), MAX_VALUES)]}
    total, more = found.get("total"), found.get("hasMore")
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, int) and not isinstance(total, bool) and 0 <= total < _UNSAFE_INTEGER:
        made["total"] = total
    if isinstance(more, bool):
        made["hasMore"] = more
    return made


def _read_completion_values(items: Iterable[object]) -> Iterator[str]:
    for item in items:
        value: object = item.get("value", item.get("label")) if is_object(item) else item
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float):
            yield _encode(value).decode()


def _with_notes(result: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Answer with a valid or absent `_meta`, which names its repairs.

    Fields that the protocol has the sender set are set by the gateway: the server's are dropped.
    """
    meta: object = result.pop("_meta", None)
    if _is_deep_value(meta):
        notes.append(f"_meta {TOO_DEEP}; left out")
        meta = None
    kept: dict[str, Any] = repair_meta(gate.without_ours(meta)) if is_object(meta) else {}
    if notes:
        kept[REPAIRED] = notes
    rest = {name: value for name, value in result.items() if _is_passed_on(name, value)}
    return {**rest, "_meta": kept} if kept else rest


def _is_passed_on(name: str, value: object) -> bool:
    match name:
        case "resultType" | "nextCursor":
            return False
        case "ttlMs":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case "cacheScope":
            return value in ("private", "public")
        case _:
            return True


def repair_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Drop invalid values of the protocol's own keys from an answer's `_meta`.

    Clients validate those keys wherever they are: an invalid one costs the whole answer.
    """
    if not meta.keys() & RESERVED_META:
        return meta
    return {name: value for name, value in meta.items() if _is_valid_meta(name, value)}


def _is_valid_meta(name: str, value: object) -> bool:
    match name:
        case "progressToken":
            if isinstance(value, bool) or not isinstance(value, int):
                return isinstance(value, str)
            return abs(value) < _UNSAFE_INTEGER
        case "io.modelcontextprotocol/related-task":
            return is_object(value) and isinstance(value.get("taskId"), str)
        case "io.modelcontextprotocol/serverInfo":
            return is_object(value) and all(isinstance(value.get(each), str) for each in ("name", "version"))
        case _:
            return True


# Protocol versions.


def is_block_of(kind: str, number: int) -> bool:
    """Whether a protocol version has blocks of this type."""
    return not (
        (kind == "audio" and number < _AUDIO_SINCE) or (kind == "resource_link" and number < _LINKS_SINCE)
    )


def blocks_for(blocks: Iterable[Block], number: int) -> list[Block]:
    """Convert valid blocks to one protocol version; `number` is as `version_number` counts."""
    if number >= _ICONS_SINCE:
        return [*blocks]
    return [_block_for(block, number) for block in blocks]


def prompt_for(result: dict[str, Any], number: int) -> dict[str, Any]:
    """Convert a valid result of `prompts/get` to one protocol version."""
    if number >= _ICONS_SINCE:
        return result
    messages = [{**each, "content": _block_for(each["content"], number)} for each in result["messages"]]
    return {**result, "messages": messages}


def contents_for(result: dict[str, Any], number: int) -> dict[str, Any]:
    """Convert a valid result of `resources/read` to one protocol version."""
    if number >= _META_SINCE:
        return result
    return {**result, "contents": [_without(part, "_meta") for part in result["contents"]]}


def _block_for(block: Block, number: int) -> Block:
    kind = block["type"]
    if kind == "resource_link" and number < _LINKS_SINCE:
        return text_block(_render_link(block))
    if kind == "resource_link" and number < _ICONS_SINCE:
        block = _without(block, "icons")
    if number >= _META_SINCE:
        return block
    block = _without(block, "_meta")
    if "annotations" in block:
        block = {**block, "annotations": _without(block["annotations"], "lastModified")}
    if kind == "resource":
        block = {**block, "resource": _without(block["resource"], "_meta")}
    if kind == "audio" and number < _AUDIO_SINCE:
        # The only block of that version that carries any binary data.
        sound = {"uri": "fairlead://content/audio", "mimeType": block["mimeType"], "blob": block["data"]}
        block = {"type": "resource", "resource": sound, **_only_hints(block)}
    return block


def _render_link(link: Block) -> str:
    media_type = f" ({link['mimeType']})" if "mimeType" in link else ""
    description = f": {link['description']}" if "description" in link else ""
    return f"[{link.get('title') or link['name']}]({link['uri']}){media_type}{description}"


def _only_hints(block: Block) -> Block:
    return {"annotations": block["annotations"]} if "annotations" in block else {}


def _without(fields: Block, name: str) -> Block:
    return {key: value for key, value in fields.items() if key != name} if name in fields else fields
