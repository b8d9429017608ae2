"""The result of a tool as HTML: texts, structured content as tables and trees, pictures, links, frames.

All of it together has a limit in characters, values and blocks: a server chooses what is in a result, and
no page may take seconds to be made.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.connection.frame_log import LoggedFrame
from fairlead.errors import FairleadError
from fairlead.web.html import Child, Html, image, tag
from fairlead.web.layout import block, code, plural, table

MAX_CHARACTERS: Final = 100_000
"""Most characters of all texts of a result together."""
MAX_BLOCKS: Final = 200
MAX_IMAGE_CHARACTERS: Final = 6_000_000
"""Most characters of all pictures together, in base64."""
MAX_VALUES: Final = 2_000
"""Most values that are shown as tables and trees."""
MAX_ROWS: Final = 200
MAX_COLUMNS: Final = 12
MAX_COLUMN_NAME: Final = 80
MAX_DEPTH: Final = 12
_TOO_DEEP: Final = "It is nested too deeply to be shown."


@dataclass(slots=True)
class _Room:
    """Remaining room of a page for a result."""

    characters: int = MAX_CHARACTERS
    image_characters: int = MAX_IMAGE_CHARACTERS
    values: int = MAX_VALUES

    def cut(self, text: str) -> str:
        """Cut a text to the remaining room."""
        shown = text[: self.characters]
        self.characters -= len(shown)
        return shown


def render_result(result: ToolResult) -> Child:
    """A tool's result as HTML of bounded size. Nothing in it is fetched from elsewhere."""
    if gate.has_more_values(result.raw, gate.MAX_VALUES):
        return _show_beginning(result.raw)
    try:
        content, structured = result.content, result.structured
    except FairleadError as exc:
        return tag("p", str(exc), class_="trouble")
    room = _Room()
    shown: list[Child] = [_block(each, number, room) for number, each in enumerate(content[:MAX_BLOCKS], 1)]
    if len(content) > MAX_BLOCKS:
        shown.append(tag("p", f"The first {MAX_BLOCKS} of {len(content):,} blocks.", class_="dim"))
    if structured is not None:
        shown += [tag("h3", "Structured content"), _value(structured, room)]
    if not shown:
        shown.append(tag("p", "It returned nothing.", class_="dim"))
    return shown


def _show_beginning(raw: bytes) -> Child:
    """The beginning of a result that has too many values to be parsed."""
    said = f"It has too many values to be opened here: {len(raw):,} bytes, of which this is the beginning."
    head = raw[:MAX_CHARACTERS].decode(errors="replace")
    return (tag("p", said, class_="dim"), block([head], "Beginning of the result"))


def _block(said: Mapping[str, Any], number: int, room: _Room) -> Child:
    match said:
        case {"type": "text", "text": str(text)}:
            return _text(text, number, room)
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            is_shown = len(data) <= room.image_characters
            room.image_characters -= len(data) if is_shown else 0
            picture = image(kind, data, f"Image {number} of the result") if is_shown else None
            size = f"{room.cut(kind)}, {len(data) * 3 // 4:,} bytes"
            return tag("figure", picture, tag("figcaption", f"image: {size}", class_="dim"))
        case {"type": "audio", "mimeType": str(kind), "data": str(data)}:
            size = f"{len(data) * 3 // 4:,} bytes"
            return tag("p", f"audio: {room.cut(kind)}, {size}; not played here", class_="dim")
        case {"type": "resource_link", "uri": str(uri)}:
            return tag("p", "resource: ", _link(uri, room), " ", room.cut(str(said.get("name") or "")))
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return (tag("p", "resource: ", _link(uri, room)), _text(text, number, room))
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)}}:
            return tag("p", "resource: ", _link(uri, room), f", {len(data) * 3 // 4:,} bytes of data")
        case _:
            return block([_json_head(dict(said), room)], f"Part {number} of the result")


def _text(text: str, number: int, room: _Room) -> Child:
    """A text; one that is a JSON object or list is shown as that as well."""
    value = _parse_tree(text, room)
    shown = room.cut(text)
    plain = block([shown], f"Text {number} of the result")
    if value is None:
        cut = tag("p", f"The first {len(shown):,} of {len(text):,} characters.", class_="dim")
        return (plain, cut if shown != text else None)
    return (_value(value, room), tag("details", tag("summary", "As text"), plain, id=f"text-{number}"))


def _parse_tree(text: str, room: _Room) -> Any:  # noqa: ANN401 - any JSON value
    """The value that a text is; None where it is none, or there is no room for it as a tree."""
    if len(text) > room.characters or text.lstrip()[:1] not in ("{", "["):
        return None
    if gate.has_more_values(text.encode(errors="replace"), room.values):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) or is_list(value) else None


def _link(uri: str, room: _Room) -> Child:
    """A link. It is followed only on a click, and without a referrer."""
    shown = room.cut(uri)
    is_web = uri.startswith(("https://", "http://")) and uri.isascii() and uri.isprintable()
    if not is_web or shown != uri:
        return code(shown)
    return tag("a", code(uri), href=uri, target="_blank", rel="noopener noreferrer nofollow")


# Structured values.


def _value(value: object, room: _Room) -> Html:
    """A JSON value: a list of alike objects as a table, all else as a tree; JSON where that would be long."""
    count = _count(value, 0, room.values)
    if count > room.values:
        return block([_json_head(value, room)], "Structured content")
    room.values -= count
    return _tree(value, 0, room)


def _json_head(value: object, room: _Room) -> str:
    """A value as JSON, as far as there is room for it; the rest is not even written."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > room.characters:
                break
    except RecursionError:
        return _TOO_DEEP
    return room.cut("".join(parts))


def _count(value: object, depth: int, most: int) -> int:
    """Number of values; at once more than `most` where it is nested deeply, or they are too many."""
    if depth > MAX_DEPTH:
        return most + 1
    count = 1
    items = value.values() if is_object(value) else value if is_list(value) else ()
    for each in items:
        count += _count(each, depth + 1, most - count)
        if count > most:
            break
    return count


def _tree(value: object, depth: int, room: _Room) -> Html:
    if is_object(value) and value:
        pairs = [
            (tag("dt", room.cut(name)), tag("dd", _tree(each, depth + 1, room)))
            for name, each in value.items()
        ]
        return tag("dl", pairs, class_="tree")
    if is_list(value) and value:
        if (columns := _columns(value)) is not None:
            return _rows(columns, [as_object(each) for each in value], room)
        items = [tag("li", _tree(each, depth + 1, room)) for each in value]
        return tag("ol", items, class_="tree", start=0)
    if isinstance(value, str):
        return tag("span", room.cut(value), class_="text value")
    return tag("code", room.cut(json.dumps(value)), class_="value")


def _columns(value: Sequence[object]) -> list[str] | None:
    """The columns of a list of objects that have scalars alone; None where it is no table."""
    if len(value) < 2 or not all(is_object(each) and each for each in value):
        return None
    names = list(dict.fromkeys(name for each in value for name in as_object(each)))
    is_flat = all(
        not is_object(cell) and not is_list(cell) for each in value for cell in as_object(each).values()
    )
    # Each row repeats the names, for narrow screens.
    is_short = len(names) <= MAX_COLUMNS and all(len(name) <= MAX_COLUMN_NAME for name in names)
    return names if is_flat and is_short else None


def _rows(columns: list[str], rows: Sequence[Mapping[str, Any]], room: _Room) -> Html:
    names = [room.cut(name) for name in columns]
    shown = [[_cell(row.get(name), room) for name in columns] for row in rows[:MAX_ROWS]]
    more = f"{plural(len(rows), 'row')}, the first {MAX_ROWS} shown" if len(rows) > MAX_ROWS else None
    return tag(
        "div", table("Rows of the result", names, shown), tag("p", more, class_="dim") if more else None
    )


def _cell(value: object, room: _Room) -> Child:
    if isinstance(value, str):
        return room.cut(value)
    return "" if value is None else code(room.cut(json.dumps(value)))


# Frames.


def render_frames(frames: Sequence[LoggedFrame]) -> Child:
    """The JSON-RPC messages of a call."""
    if not frames:
        return tag("p", "Nothing was sent.", class_="dim")
    room = _Room()
    return [_frame(frame, number, room) for number, frame in enumerate(frames, 1)]


def _frame(frame: LoggedFrame, number: int, room: _Room) -> Child:
    # Nothing of a frame has passed the gate. It is masked whole: half of a secret would not be known as one.
    text = gate.mask_secrets(frame.data.decode(errors="replace"))
    if len(frame.data) < frame.size:
        text = text[: -gate.secret_reach()]
    is_whole = len(frame.data) == frame.size and len(text) <= room.characters
    value = _parse_tree(text, room) if is_whole else None
    shown = room.cut(text) if value is None else _json_head(value, room)
    word = "sent" if frame.direction == "sent" else "received"
    cut = None if is_whole else f", the first {len(shown):,} characters shown"
    heading = tag("h3", f"{word}: {plural(frame.size, 'byte')}", cut)
    return (heading, block([shown], f"Frame {number}, {word}"))
