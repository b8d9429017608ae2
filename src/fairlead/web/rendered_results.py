"""The result of a tool as HTML: texts, structured content as tables and trees, pictures, links, frames."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead.catalog.results import ToolResult
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.connection.frame_log import LoggedFrame
from fairlead.errors import FairleadError
from fairlead.web.html import Child, Html, image, tag
from fairlead.web.layout import as_json, block, code, plural, table

MAX_CHARACTERS: Final = 100_000
MAX_IMAGE_CHARACTERS: Final = 6_000_000
MAX_VALUES: Final = 2_000
MAX_ROWS: Final = 200
MAX_COLUMNS: Final = 12
MAX_DEPTH: Final = 12


def render_result(result: ToolResult) -> Child:
    """All of a result. Nothing in it is fetched from elsewhere."""
    try:
        content, structured = result.content, result.structured
    except FairleadError as exc:
        return tag("p", str(exc), class_="trouble")
    shown: list[Child] = [_block(each, number) for number, each in enumerate(content, 1)]
    if structured is not None:
        shown += [tag("h3", "Structured content"), render_value(structured)]
    if not shown:
        shown.append(tag("p", "It returned nothing.", class_="dim"))
    return shown


def _block(said: Mapping[str, Any], number: int) -> Child:
    match said:
        case {"type": "text", "text": str(text)}:
            return _text(text, number)
        case {"type": "image", "mimeType": str(kind), "data": str(data)}:
            is_shown = len(data) <= MAX_IMAGE_CHARACTERS
            picture = image(kind, data, f"Image {number} of the result") if is_shown else None
            size = f"{kind}, {len(data) * 3 // 4:,} bytes"
            return tag("figure", picture, tag("figcaption", f"image: {size}", class_="dim"))
        case {"type": "audio", "mimeType": str(kind), "data": str(data)}:
            return tag("p", f"audio: {kind}, {len(data) * 3 // 4:,} bytes; not played here", class_="dim")
        case {"type": "resource_link", "uri": str(uri)}:
            return tag("p", "resource: ", _link(uri), " ", str(said.get("name") or ""))
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return (tag("p", "resource: ", _link(uri)), _text(text, number))
        case _:
            return block(as_json(dict(said))[:MAX_ROWS], f"Part {number} of the result")


def _text(text: str, number: int) -> Child:
    """A text; one that is a JSON object or list is shown as that as well."""
    shown = text[:MAX_CHARACTERS]
    cut = tag("p", f"The first {MAX_CHARACTERS:,} of {len(text):,} characters.", class_="dim")
    plain = block([shown], f"Text {number} of the result")
    value = _parsed(text)
    if value is None:
        return (plain, cut if shown != text else None)
    return (render_value(value), tag("details", tag("summary", "As text"), plain, id=f"text-{number}"))


def _parsed(text: str) -> Any:  # noqa: ANN401 - any JSON value
    if len(text) > MAX_CHARACTERS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) or is_list(value) else None


def _link(uri: str) -> Child:
    """An address. It is followed only by who clicks on it, and is not told where from."""
    if not uri.startswith(("https://", "http://")) or not uri.isascii() or not uri.isprintable():
        return code(uri)
    return tag("a", code(uri), href=uri, target="_blank", rel="noopener noreferrer nofollow")


# Structured values.


def render_value(value: object) -> Html:
    """A JSON value: a list of alike objects as a table, all else as a tree; JSON where that would be long."""
    if _count(value, 0) > MAX_VALUES:
        lines = as_json(value)
        text = "\n".join(lines)[:MAX_CHARACTERS]
        return block([text], "Structured content")
    return _tree(value, 0)


def _count(value: object, depth: int) -> int:
    if depth > MAX_DEPTH:
        return MAX_VALUES + 1
    if is_object(value):
        return 1 + sum(_count(each, depth + 1) for each in value.values())
    return 1 + (sum(_count(each, depth + 1) for each in value) if is_list(value) else 0)


def _tree(value: object, depth: int) -> Html:
    if is_object(value) and value:
        pairs = [(tag("dt", name), tag("dd", _tree(each, depth + 1))) for name, each in value.items()]
        return tag("dl", pairs, class_="tree")
    if is_list(value) and value:
        if (columns := _columns(value)) is not None:
            return _rows(columns, [as_object(each) for each in value])
        return tag("ol", [tag("li", _tree(each, depth + 1)) for each in value], class_="tree", start=0)
    if isinstance(value, str):
        return tag("span", value, class_="text value")
    return tag("code", json.dumps(value), class_="value")


def _columns(value: Sequence[object]) -> list[str] | None:
    """The columns of a list of objects that have scalars alone; None where it is no table."""
    if len(value) < 2 or not all(is_object(each) and each for each in value):
        return None
    names = list(dict.fromkeys(name for each in value for name in as_object(each)))
    is_flat = all(
        not is_object(cell) and not is_list(cell) for each in value for cell in as_object(each).values()
    )
    return names if is_flat and len(names) <= MAX_COLUMNS else None


def _rows(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> Html:
    shown = [[_cell(row.get(name)) for name in columns] for row in rows[:MAX_ROWS]]
    more = f"{plural(len(rows), 'row')}, the first {MAX_ROWS} shown" if len(rows) > MAX_ROWS else None
    return tag(
        "div", table("Rows of the result", columns, shown), tag("p", more, class_="dim") if more else None
    )


def _cell(value: object) -> Child:
    return value if isinstance(value, str) else "" if value is None else code(json.dumps(value))


# Frames.


def render_frames(frames: Sequence[LoggedFrame]) -> Child:
    """The messages of a call as they went over the wire."""
    if not frames:
        return tag("p", "Nothing was sent.", class_="dim")
    return [_frame(frame, number) for number, frame in enumerate(frames, 1)]


def _frame(frame: LoggedFrame, number: int) -> Child:
    text = frame.data.decode(errors="replace")
    is_whole = len(frame.data) == frame.size
    lines = as_json(_parsed(text)) if is_whole and _parsed(text) is not None else [text]
    word = "sent" if frame.direction == "sent" else "received"
    cut = None if is_whole else f", the first {len(frame.data):,} shown"
    heading = tag("h4", f"{word}: {plural(frame.size, 'byte')}", cut)
    return (heading, block(lines, f"Frame {number}, {word}"))
