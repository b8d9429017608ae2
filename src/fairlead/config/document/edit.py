"""Edits of a JSONC text that preserve everything else: comments, order, indentation and line ends."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fairlead.config.document import jsonc
from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.document.jsonc import Json, JsoncDocument, JsoncNode
from fairlead.config.untyped import as_list, as_object, value_at
from fairlead.errors import ConfigInvalid, ConfigUnwritable

_ARRAY_WIDTH = 100
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe0f"
"""Letters and marks that show nothing, besides those that Python takes for not printable."""
_SPACE = " \t\r\n"

_NEWLINE = re.compile(r"\r\n?|\n")
_BLANKS = re.compile(r"[ \t]*+")
_PIECE = re.compile(rf"[{_SPACE}]++|{jsonc.COMMENT}", re.DOTALL)
_COMMA = re.compile(rf"(?:[{_SPACE}]++|{jsonc.COMMENT})*+(,)", re.DOTALL)
_COMMENTS_ON_LINE = re.compile(rf"(?:[ \t]*+{jsonc.COMMENT})*+", re.DOTALL)


def set_value(text: str, path: Sequence[str], value: object) -> str:
    """Set a value in the text of a JSONC document; all other bytes stay.

    Args:
        text: The document.
        path: The names of the members that lead to the value. Missing parents are added.
        value: Any JSON value.
    """
    document = jsonc.parse(text)
    plain: Json = json.loads(json.dumps(value))
    trail = _trail(document.root, path)
    if len(trail) > len(path):
        if _same(trail[-1].data, plain):
            return text
        splices = _replacement(document, trail, plain)
    else:
        splices = _addition(document, trail, path, plain)
    return _verify_edit(_apply(text, splices), _with(document.data, path, plain))


def set_members(text: str, path: Sequence[str], members: Mapping[str, object]) -> str:
    """Set members of the object at `path`, which is added if missing: many at once, where they are new."""
    document = jsonc.parse(text)
    trail = _trail(document.root, path)
    holder = trail[-1]
    if len(trail) <= len(path) or not isinstance(holder.children, dict):
        return set_value(text, path, members) if members else text
    for name in members.keys() & holder.children.keys():
        text = set_value(text, (*path, name), members[name])
    new: dict[str, Json] = {
        name: json.loads(json.dumps(value)) for name, value in members.items() if name not in holder.children
    }
    if not new:
        return text
    document = jsonc.parse(text)
    trail = _trail(document.root, path)
    holder = trail[-1]
    if holder.children:
        splices = _next_member(text, holder, new, _style(document, trail))
    else:
        splices = _first_member(text, holder, new, _style(document, trail[:-1]))
    whole = {**as_object(value_at(document.data, tuple(path))), **new}
    return _verify_edit(_apply(text, splices), _with(document.data, path, whole))


def remove_value(text: str, path: Sequence[str]) -> str:
    """Remove the member at `path` with its comma, line and comments from the text. No member, no change."""
    document = jsonc.parse(text)
    trail = _trail(document.root, path)
    if not path or len(trail) <= len(path):
        return text
    holder = trail[-2]
    changed = _apply(text, _removal(text, holder, path[-1]))
    end = holder.end + len(changed) - len(text)
    if not changed[holder.start + 1 : end - 1].strip(_SPACE):
        changed = f"{changed[: holder.start]}{{}}{changed[end:]}"
    return _verify_edit(changed, _without(document.data, path))


def edit_file(path: Path, change: Callable[[str], str], *, create: str | None = None) -> bool:
    """Edit a file under its lock. If anything fails, the file is unchanged.

    Args:
        path: The file.
        change: Returns the new text for the present one.
        create: The text to start from where the file is missing or blank.

    Returns:
        Whether the file was written, which it is not if `change` returns its argument.

    Raises:
        ConfigInvalid: The present text cannot be parsed.
        ConfigUnwritable: The new text could not be parsed, or the file cannot be written.
    """
    with hold_lock(path):
        old = read_text(path) if create is None or os.path.exists(path) else ""
        text = old if old.strip() or create is None else create
        jsonc.loads(text, file=str(path))
        changed = change(text)
        if changed == old:
            return False
        try:
            jsonc.loads(changed, file=str(path))
        except ConfigInvalid as exc:
            raise ConfigUnwritable(f"this change would break `{path}`: {exc.problems[0].message}") from exc
        write_atomic(path, changed)
        return True


class _Splice(NamedTuple):
    """Replacement of `text[start:end]` by `text`."""

    start: int
    end: int
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """Layout of a document with more than one line."""

    unit: str
    newline: str


def _trail(root: JsoncNode, path: Sequence[str]) -> list[JsoncNode]:
    """Nodes from the root along `path`, as far as they exist."""
    trail = [root]
    for name in path:
        child = trail[-1].child(name)
        if child is None:
            break
        trail.append(child)
    return trail


def _replacement(document: JsoncDocument, trail: list[JsoncNode], value: Json) -> list[_Splice]:
    """Splices that replace the last node of the trail by a value."""
    node = trail[-1]
    rendered = _render(value, _indent(document.text, node.key), _style(document, trail[:-1]))
    return [_Splice(node.start, node.end, rendered)]


def _addition(
    document: JsoncDocument, trail: list[JsoncNode], path: Sequence[str], value: Json
) -> list[_Splice]:
    """Splices that add a member, with missing parents, to the last object of the trail."""
    holder = trail[-1]
    name, *missing = path[len(trail) - 1 :]
    for parent in reversed(missing):
        value = {parent: value}
    if not isinstance(holder.children, dict):
        line = document.position(path).line
        message = f"cannot set `{'.'.join(path)}`: in line {line} there is no object to put `{name}` into"
        raise ConfigUnwritable(message, hint="write `{}` there first")
    if not holder.children:
        return _first_member(document.text, holder, {name: value}, _style(document, trail[:-1]))
    return _next_member(document.text, holder, {name: value}, _style(document, trail))


def _first_member(
    text: str, holder: JsoncNode, member: dict[str, Json], style: _Layout | None
) -> list[_Splice]:
    """Splices that fill an object without members, which may hold comments."""
    start, end = holder.start + 1, holder.end - 1
    comments = text[start:end].rstrip(_SPACE)
    outer = _indent(text, holder.start)
    if style is None:
        gap = " " if comments else ""
        return [_Splice(start, end, f"{comments}{gap}{_render_members(member, outer, None)}")]
    # The blank line keeps comments on lines of their own from becoming the new member's.
    gap = style.newline * (2 if _NEWLINE.search(comments) else 1)
    indent = outer + style.unit
    body = _render_members(member, indent, style)
    return [_Splice(start, end, f"{comments}{gap}{indent}{body}{style.newline}{outer}")]


def _next_member(
    text: str, holder: JsoncNode, member: dict[str, Json], style: _Layout | None
) -> list[_Splice]:
    """Splices that add a member after the last one, and after the comments on its line."""
    last = _members(holder)[-1]
    indent = _indent(text, last.key)
    body = _render_members(member, indent, style)
    comma = _comma_after(text, last.end)
    if comma is not None:
        # A document with trailing commas keeps having them.
        end = comma + 1 if style is None else _end(_COMMENTS_ON_LINE, text, comma + 1)
        gap = " " if style is None else f"{style.newline}{indent}"
        return [_Splice(end, end, f"{gap}{body},")]
    end = _end(_COMMENTS_ON_LINE, text, last.end)
    if style is None:
        return [_Splice(end, end, f", {body}")]
    return [_Splice(last.end, last.end, ","), _Splice(end, end, f"{style.newline}{indent}{body}")]


def _removal(text: str, holder: JsoncNode, name: str) -> list[_Splice]:
    """Splices that remove a member from its object, with the one comma that must go."""
    members = _members(holder)
    index = list(holder.children or ()).index(name)
    node = members[index]
    comma, end = _comma_after(text, node.end), node.end
    gap, splices = holder.start + 1, list[_Splice]()
    if index > 0:
        comma_before = _comma_after(text, members[index - 1].end)
        assert comma_before is not None
        gap = comma_before + 1
        if comma is None:
            splices.append(_Splice(comma_before, gap))
    if comma is not None and _NEWLINE.search(text, end, comma):
        splices.append(_Splice(comma, comma + 1))
    elif comma is not None:
        end = comma + 1
    splices.append(_own_span(text, _own_start(text, gap, node.key), end))
    return sorted(splices)


def _own_start(text: str, gap: int, key: int) -> int:
    """Start of a member including its comments.

    Those are the ones before it on its line and on the lines directly above, up to a blank line or to the
    line on which the previous member (or the object, at `gap`) ends: comments there belong to that one.
    """
    start, alone = key, True
    for piece in reversed(list(_PIECE.finditer(text, gap, key))):
        newlines = 0 if piece[0].startswith("/") else len(_NEWLINE.findall(piece[0]))
        if newlines > 0:
            start, alone = piece.end(), False
        if newlines > 1:
            return start
    return _end(_BLANKS, text, gap) if alone else start


def _own_span(text: str, start: int, end: int) -> _Splice:
    """Span to cut for a member from `start` to `end`: its line and the comments there, if it has it alone."""
    line_start = _line_start(text, start)
    blank_before = not text[line_start:start].strip(_SPACE)
    line_end = _end(_BLANKS, text, _end(_COMMENTS_ON_LINE, text, end))
    newline = _NEWLINE.match(text, line_end)
    if newline and blank_before:
        return _Splice(line_start, newline.end())
    if newline or text[line_end] == "}":
        return _Splice(
            start if blank_before else len(text[:start].rstrip(_SPACE)), line_end if newline else end
        )
    return _Splice(start, _end(_BLANKS, text, end))


def _members(node: JsoncNode) -> list[JsoncNode]:
    return list(node.children.values()) if isinstance(node.children, dict) else []


def _comma_after(text: str, at: int) -> int | None:
    """Offset of the comma after a value that ends at `at`, if it has one."""
    match = _COMMA.match(text, at)
    return match.start(1) if match else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """End of what the pattern matches at `at`."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _indent(text: str, at: int) -> str:
    """Indentation of the line of an offset."""
    start = _line_start(text, at)
    return text[start : min(at, _end(_BLANKS, text, start))]


def _style(document: JsoncDocument, ancestors: list[JsoncNode]) -> _Layout | None:
    """Layout of a document; None to stay on one line, as the innermost of the nodes `ancestors` does."""
    text = document.text
    newline = _NEWLINE.search(text)
    if ancestors and not _NEWLINE.search(text, ancestors[-1].start, ancestors[-1].end):
        return None
    return _Layout(unit=_unit(document), newline=newline[0] if newline else "\n")


def _unit(document: JsoncDocument) -> str:
    """One step of indentation, taken from a value on a later line than its parent, and deeper."""
    nodes = [document.root]
    while nodes:
        node = nodes.pop()
        if not _NEWLINE.search(document.text, node.start, node.end):
            continue
        children = node.children.values() if isinstance(node.children, dict) else node.children or ()
        outer = _indent(document.text, node.start)
        for child in children:
            inner = _indent(document.text, child.key)
            if inner != outer and inner.startswith(outer):
                return inner.removeprefix(outer)
        nodes.extend(children)
    return "  "


def _dump(value: Json) -> str:
    """A value as JSON on one line. Characters that do not show are escaped, so that the file shows them."""
    plain = json.dumps(value, ensure_ascii=False)
    return plain if plain.isascii() else "".join(map(_escape_hidden, plain))


def _escape_hidden(character: str) -> str:
    return character if character.isprintable() and character not in _FILLERS else json.dumps(character)[1:-1]


def _render(value: Json, indent: str, style: _Layout | None) -> str:
    """A value as JSON text whose later lines start with `indent`. Short plain arrays stay on one line."""
    line = _dump(value)
    if style is None or not value or not isinstance(value, dict | list):
        return line
    nested = isinstance(value, dict) or any(isinstance(item, dict | list) for item in value)
    if not nested and len(indent + line) <= _ARRAY_WIDTH:
        return line
    inner = indent + style.unit
    if isinstance(value, dict):
        return f"{{{style.newline}{inner}{_render_members(value, inner, style)}{style.newline}{indent}}}"
    items = f",{style.newline}{inner}".join(_render(item, inner, style) for item in value)
    return f"[{style.newline}{inner}{items}{style.newline}{indent}]"


def _render_members(members: dict[str, Json], indent: str, style: _Layout | None) -> str:
    separator = ", " if style is None else f",{style.newline}{indent}"
    return separator.join(
        f"{_dump(name)}: {_render(value, indent, style)}" for name, value in members.items()
    )


def _apply(text: str, splices: list[_Splice]) -> str:
    for splice in reversed(splices):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


def _with(data: Json, path: Sequence[str], value: Json) -> Json:
    if not path:
        return value
    members = dict(data) if isinstance(data, dict) else {}
    members[path[0]] = _with(members.get(path[0]), path[1:], value)
    return members


def _without(data: Json, path: Sequence[str]) -> Json:
    members = dict(data) if isinstance(data, dict) else {}
    if len(path) == 1:
        del members[path[0]]
    else:
        members[path[0]] = _without(members[path[0]], path[1:])
    return members


def _verify_edit(text: str, intended: Json) -> str:
    """The text, if it parses to exactly what was intended: no fault here may ever reach a user's file."""
    try:
        actual = jsonc.loads(text)
    except ConfigInvalid as exc:
        raise ConfigUnwritable(f"this change cannot be written: {exc.problems[0].message}") from exc
    if not _same(actual, intended):
        raise ConfigUnwritable(
            "this edit would not give the intended result, so nothing was changed",
            hint="make it by hand, and please report it with the file",
        )
    return text


def _same(one: Json, other: Json) -> bool:
    # Compared as text, since Python takes 1, 1.0 and True for equal.
    return json.dumps(one) == json.dumps(other)


_REST_OF_LINE = re.compile(rf"(?:[ \t]*+{jsonc.COMMENT})*+[ \t]*+(?=[\r\n]|\Z)", re.DOTALL)


def names_at(text: str, path: Sequence[str]) -> list[str]:
    """The names in the list at `path`; none where there is no list."""
    return [name for name in as_list(value_at(jsonc.parse(text).data, tuple(path))) if isinstance(name, str)]


def append_names(text: str, path: Sequence[str], new: Sequence[str]) -> str:
    """Append names to the list at `path` in the text; the list is added if missing."""
    if not new:
        return text
    names = [*names_at(text, path), *new]
    items = _items(text, path)
    return _either(_append_items(text, items[-1], new) if items else None, text, path, names)


def append_name(text: str, path: Sequence[str], name: str) -> str:
    """Append a name to the list at `path` in the text; the list is added if missing."""
    return append_names(text, path, [name])


def remove_name(text: str, path: Sequence[str], name: str) -> str:
    """Remove a name from the list at `path` in the text, with its comma, line and comment."""
    names = names_at(text, path)
    if name not in names:
        return text
    items, index = _items(text, path), names.index(name)
    names.remove(name)
    return _either(_remove_item(text, items, index) if names else None, text, path, names)


def _either(changed: str | None, text: str, path: Sequence[str], names: list[str]) -> str:
    """The changed text if it parses as intended; else the list rewritten, which costs its comments."""
    if changed is not None:
        with suppress(ConfigInvalid):
            if names_at(changed, path) == names:
                return changed
    return set_value(text, path, names)


def _items(text: str, path: Sequence[str]) -> list[JsoncNode]:
    node: JsoncNode | None = jsonc.parse(text).root
    for step in path:
        node = node.child(step) if node else None
    return node.children if node and isinstance(node.children, list) else []


def _append_items(text: str, last: JsoncNode, names: Sequence[str]) -> str:
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
    items = ",".join(f"{gap}{_dump(name)}" for name in names)
    return f"{text[: last.end]}{separator}{text[last.end : at]}{items}{ending}{text[at:]}"


def _remove_item(text: str, items: list[JsoncNode], index: int) -> str:
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
