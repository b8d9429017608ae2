"""Changes to a list of names in a config file that leave the rest of it alone, comments in the list too."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress

from fairlead.config import jsonc
from fairlead.config.edit import set_value
from fairlead.config.jsonc import Node
from fairlead.config.shapes import as_list, value_at
from fairlead.errors import ConfigInvalid

_COMMA = re.compile(rf"(?:[ \t\r\n]++|{jsonc.COMMENT})*+(,)", re.DOTALL)
_REST_OF_LINE = re.compile(rf"(?:[ \t]*+{jsonc.COMMENT})*+[ \t]*+(?=[\r\n]|\Z)", re.DOTALL)
_NEWLINE = re.compile(r"\r\n?|\n")


def names_at(text: str, path: Sequence[str]) -> list[str]:
    """The names in the list at `path`; none where there is no list."""
    return [name for name in as_list(value_at(jsonc.parse(text).data, tuple(path))) if isinstance(name, str)]


def append_name(text: str, path: Sequence[str], name: str) -> str:
    """The text with a name at the end of the list at `path`, which is made if it is missing."""
    names = [*names_at(text, path), name]
    items = _items(text, path)
    return _either(_appended(text, items[-1], name) if items else None, text, path, names)


def remove_name(text: str, path: Sequence[str], name: str) -> str:
    """The text without a name in the list at `path`, its comma, and its line with the comment there."""
    names = names_at(text, path)
    if name not in names:
        return text
    items, index = _items(text, path), names.index(name)
    names.remove(name)
    return _either(_removed(text, items, index) if names else None, text, path, names)


def _either(changed: str | None, text: str, path: Sequence[str], names: list[str]) -> str:
    """The changed text if it says what it should; else the list written anew, which costs its comments."""
    if changed is not None:
        with suppress(ConfigInvalid):
            if names_at(changed, path) == names:
                return changed
    return set_value(text, path, names)


def _items(text: str, path: Sequence[str]) -> list[Node]:
    node: Node | None = jsonc.parse(text).root
    for step in path:
        node = node.child(step) if node else None
    return node.children if node and isinstance(node.children, list) else []


def _appended(text: str, last: Node, name: str) -> str:
    comma = _COMMA.match(text, last.end)
    at = comma.end() if comma else last.end
    indent = text[_line_start(text, last.start) : last.start]
    if indent.strip():
        gap = " "
    else:
        newline = _NEWLINE.search(text)
        gap = f"{newline[0] if newline else ''}{indent}"
        rest = _REST_OF_LINE.match(text, at)
        at = rest.end() if rest else at
    separator, ending = ("", ",") if comma else (",", "")
    item = f"{gap}{json.dumps(name, ensure_ascii=False)}{ending}"
    return f"{text[: last.end]}{separator}{text[last.end : at]}{item}{text[at:]}"


def _removed(text: str, items: list[Node], index: int) -> str:
    start, end = items[index].start, items[index].end
    comma = _COMMA.match(text, end)
    if comma:
        end = comma.end()
    line = _line_start(text, start)
    rest = _REST_OF_LINE.match(text, end)
    newline = _NEWLINE.match(text, rest.end()) if rest else None
    if newline and not text[line:start].strip():
        start, end = line, newline.end()
    elif comma:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    else:
        start = len(text[:start].rstrip(" \t"))
    changed = text[:start] + text[end:]
    before = None if comma or index == 0 else _COMMA.match(changed, items[index - 1].end)
    return changed if before is None else changed[: before.start(1)] + changed[before.end(1) :]


def _line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
