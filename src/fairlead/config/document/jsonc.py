"""Parser of JSON with comments and trailing commas, with the position of every value.

Syntax errors are explained in plain words. Values are never quoted: they may be secrets.
"""

import json
import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple, NoReturn, TypeAlias, cast

from fairlead.config.untyped import as_list
from fairlead.errors import ConfigInvalid, Problem


class SyntaxMistake(NamedTuple):
    """Syntax error at an offset of a text, and how to fix it."""

    offset: int
    message: str
    hint: str | None = None


_QUOTES = 'strings and keys stand in double quotes: `"…"`'
_FOREIGN = [
    (re.compile(pattern), message, hint)
    for pattern, message, hint in (
        (r"/\*", "this comment is not closed", "end it with `*/`"),
        (r"'", "single quotes are not JSON", _QUOTES),
        (r"`", "backticks are not JSON", _QUOTES),
        ("[\u2018-\u201f\u00ab\u00bb]", "typographic quotes are not JSON", _QUOTES),
        (r"#", "`#` does not start a comment here", "comments start with `//`"),
        (
            r"<{7}|={7}|>{7}|\|{7}",
            "this is left over from a merge conflict",
            "keep one side and remove the marker",
        ),
        ("\ufeff", "a byte order mark stands here", "save the file as UTF-8 without a byte order mark"),
        (r"[^\S \t\r\n]", "this white space is not JSON", "replace it with plain spaces"),
    )
]
_NOT_FINITE = re.compile(r"[+-]?(?:NaN|Infinity)\b", re.IGNORECASE)
_NUMBER_LIKE = re.compile(r"[+-]?\.?[0-9]|[+-]")
_WORD = re.compile(r"[\w$][\w$.-]{0,60}")
_SPELLINGS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "none": "null",
    "nil": "null",
    "undefined": "null",
}
_VALUE_START = re.compile(r"""["'{\[\w-]""")
_STRING_HEAD = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')


def at_value(text: str, at: int) -> SyntaxMistake:
    """Explain why no value starts at `at`."""
    if text.startswith('"', at):
        return _in_string(text, at)
    if _NOT_FINITE.match(text, at):
        return SyntaxMistake(at, "`NaN` and `Infinity` are not JSON", "write a number, or leave the key out")
    if _NUMBER_LIKE.match(text, at):
        return SyntaxMistake(at, "this is not a JSON number", "JSON numbers look like `10`, `-0.5` or `1e6`")
    if word := _WORD.match(text, at):
        spelling = _SPELLINGS.get(word[0].lower())
        if spelling is not None:
            return SyntaxMistake(at, f"`{word[0]}` is not JSON", f"write `{spelling}`")
        return SyntaxMistake(at, "this text has no quotes", _QUOTES)
    return describe_unexpected(text, at, expected="a value")


def at_key(text: str, at: int, *, expected: str) -> SyntaxMistake:
    """Explain why no key starts at `at`."""
    if text.startswith('"', at):
        return _in_string(text, at)
    if word := _WORD.match(text, at):
        return SyntaxMistake(at, f"the key `{word[0]}` has no quotes", f'write `"{word[0]}"`')
    return describe_unexpected(text, at, expected=expected)


def after_value(text: str, at: int, *, end: int, expected: str) -> SyntaxMistake:
    """Explain why what is at `at` cannot follow the value that ended at `end`."""
    if _VALUE_START.match(text, at):
        # The comma belongs where the value ended, which may be lines above.
        return SyntaxMistake(
            end, f"expected {expected} after this value, found {_name(text, at)}", "add a comma"
        )
    return describe_unexpected(text, at, expected=expected)


def describe_unexpected(text: str, at: int, *, expected: str) -> SyntaxMistake:
    """Name what is at `at` instead of what was expected."""
    for pattern, message, hint in _FOREIGN:
        if pattern.match(text, at):
            return SyntaxMistake(at, message, hint)
    return SyntaxMistake(at, f"expected {expected}, found {_name(text, at)}")


def _in_string(text: str, at: int) -> SyntaxMistake:
    """Explain why the string that starts at `at` is invalid."""
    head = _STRING_HEAD.match(text, at)
    end = head.end() if head else at
    if end == len(text) or text[end] in "\r\n":
        return SyntaxMistake(
            at, "this string is not closed", 'end it with `"` on the same line; a line break is `\\n`'
        )
    if text[end] == "\\":
        if text.startswith("\\u", end):
            return SyntaxMistake(end, "`\\u` needs four hexadecimal digits", "write a backslash as `\\\\`")
        return SyntaxMistake(end, "this backslash starts no JSON escape", "write a backslash as `\\\\`")
    escape = {"\t": "\\t", "\b": "\\b", "\f": "\\f"}.get(text[end], f"\\u{ord(text[end]):04x}")
    return SyntaxMistake(
        end, f"a control character ({_name(text, end)}) stands in this string", f"write it as `{escape}`"
    )


def _name(text: str, at: int) -> str:
    """Character at `at`, in a form that is safe to show."""
    if at >= len(text):
        return "the end"
    character = text[at]
    if character.isprintable():
        return f"`{character}`"
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

MAX_DEPTH = 64
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
MAX_READINGS = 16
"""How often a text with repeated keys is parsed again to see what they replaced."""
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**64 - 1

# Every repeat is possessive: no text makes these patterns backtrack, so parsing is linear.
COMMENT = r"(?://[^\r\n]*+|/\*(?>.*?\*/))"
_TRIVIA = rf"[ \t\r\n]*+(?:{COMMENT}[ \t\r\n]*+)*+"
_PLAIN = r'"[^"\\\x00-\x1f]*+"'
_ESCAPED = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_INTEGER = r"-?+(?:0|[1-9][0-9]*+)(?![\w.+-])"
_FLOAT = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+(?![\w.+-])"
_CONSTANT = r"(?:true|false|null)(?![\w$])"

_VALUE = (
    rf"(?:(?P<plain>{_PLAIN})|(?P<escaped>{_ESCAPED})|(?P<integer>{_INTEGER})|(?P<float>{_FLOAT})"
    rf"|(?P<constant>{_CONSTANT})|(?P<object>\{{)|(?P<array>\[))"
)

_match_trivia = re.compile(_TRIVIA, re.DOTALL).match
_match_key = re.compile(rf"{_TRIVIA}({_ESCAPED})", re.DOTALL).match
_match_mark = re.compile(rf"{_TRIVIA}([:,}}\]])", re.DOTALL).match
_match_value = re.compile(rf"{_TRIVIA}{_VALUE}", re.DOTALL).match
_match_member = re.compile(
    rf"{_TRIVIA}(?:({_PLAIN})|({_ESCAPED})){_TRIVIA}:{_TRIVIA}{_VALUE}", re.DOTALL
).match

_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_NEWLINE = re.compile(r"\r\n?|\n")


class Position(NamedTuple):
    """Line and column in a text as editors show them: both count from 1."""

    line: int
    column: int


class TextSpan(NamedTuple):
    """Part of a text, by offsets."""

    start: int
    end: int


class JsoncNode(NamedTuple):
    """A value and its span: it is `text[start:end]`, its key is at `key` (at `start` where it has none)."""

    data: Json
    key: int
    start: int
    end: int
    children: "dict[str, JsoncNode] | list[JsoncNode] | None" = None

    def child(self, step: str | int) -> "JsoncNode | None":
        """Member of that name or item of that index, if there is one."""
        if isinstance(self.children, dict):
            return self.children.get(step) if isinstance(step, str) else None
        if isinstance(self.children, list) and isinstance(step, int) and 0 <= step < len(self.children):
            return self.children[step]
        return None


@dataclass(frozen=True, kw_only=True)
class JsoncDocument:
    """A parsed text: its data, and the position of each value."""

    text: str
    root: JsoncNode
    duplicates: tuple[Problem, ...] = ()
    """Repeated keys, where those were accepted; the last of each counts."""
    replaced: tuple["TextSpan", ...] = ()
    """What repeated keys replaced, with the key, in the order of `duplicates`."""
    bad_values: tuple[Problem, ...] = ()
    """Values that JSON has no room for, where those were accepted; each is replaced by some other one."""

    @property
    def data(self) -> Json:
        """Data of the text, in plain dicts, lists and scalars."""
        return self.root.data

    def position(self, path: Sequence[str | int], *, key: bool = False) -> Position:
        """Start of the value at `path` (or its key), or else that of its nearest ancestor that exists."""
        node = self.root
        for step in path:
            child = node.child(step)
            if child is None:
                break
            node = child
        return self._lines.position(node.key if key else node.start)

    def readings(self, file: str | None) -> "Iterator[tuple[TextSpan, JsoncDocument]]":
        """The first members that repeated keys replaced, each with the document in which it counts."""
        for span in islice(self.replaced, MAX_READINGS):
            yield span, _parse(_Scanner(self.text, file, counts_at=span.start))

    def contains(self, span: "TextSpan", position: Position) -> bool:
        """Whether a position is within a part of the text."""
        return self._lines.position(span.start) <= position < self._lines.position(span.end)

    @cached_property
    def _lines(self) -> "_LineIndex":
        return _LineIndex(self.text)


def parse(text: str, *, file: str | None = None, collects: bool = False) -> JsoncDocument:
    """Parse a text with positions.

    Args:
        text: The text.
        file: Its name in problems.
        collects: Whether repeated keys and bad values are listed in the document instead of refused, so that
            all other faults can be reported with them.

    Raises:
        ConfigInvalid: The text is invalid; lists all problems.
    """
    document = _parse(_Scanner(text, file))
    if not collects and (document.bad_values or document.duplicates):
        raise ConfigInvalid(*document.duplicates, *document.bad_values)
    return document


def _parse(scanner: "_Scanner") -> JsoncDocument:
    try:
        root = scanner.document()
    except _SyntaxLost:
        raise ConfigInvalid(*scanner.duplicates, *scanner.problems) from None
    return JsoncDocument(
        text=scanner.text,
        root=root,
        duplicates=tuple(scanner.duplicates),
        replaced=tuple(scanner.replaced),
        bad_values=tuple(scanner.problems),
    )


def loads(text: str, *, file: str | None = None) -> Json:
    """Parse a text without positions: the same as `parse`, but far faster where it is strict JSON."""
    try:
        data: Json = _STRICT.decode(text)
    except (ValueError, RecursionError):
        # Not strict JSON, or refused: `parse` finds out which, and where.
        return parse(text, file=file).data
    if _SURROGATE_ESCAPE.search(text) or _find_surrogate(text) is not None or is_too_deep(data):
        return parse(text, file=file).data
    return data


class _LineIndex:
    """Conversion of offsets of a text into lines and columns."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(newline.end() for newline in _NEWLINE.finditer(text))]

    def position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


class _SyntaxLost(Exception):
    """Parsing cannot go on."""


class _Scanner:
    """Single-pass scanner. Notes a bad value and goes on; stops where the syntax is lost.

    Of a repeated key the last value counts, or the one with the key or value that is at `counts_at`.
    """

    def __init__(self, text: str, file: str | None, *, counts_at: int = -1) -> None:
        self.text = self._text = text
        self._file = file
        self._counts_at = counts_at
        self._path: list[str | int] = []
        self.problems: list[Problem] = []
        self.duplicates: list[Problem] = []
        self.replaced: list[TextSpan] = []

    def document(self) -> JsoncNode:
        surrogate = _find_surrogate(self._text)
        if surrogate is not None:
            self._stop(SyntaxMistake(surrogate, "this is half of a character", "save the file as UTF-8"))
        start = self._skip(0)
        if start == len(self._text):
            self._stop(SyntaxMistake(0, "the file is empty", "an empty configuration is `{}`"))
        match = _match_value(self._text, start)
        if match is None:
            self._stop(at_value(self._text, start))
        root = self._value(match, match.start(match.lastgroup or 0))
        end = self._skip(root.end)
        if end < len(self._text):
            self._stop(describe_unexpected(self._text, end, expected="the end"))
        return root

    def _value(self, match: re.Match[str], key: int) -> JsoncNode:
        """Value whose start a match has found, and whose key, if it has one, is at `key`."""
        kind = match.lastgroup or ""
        start, end = match.span(kind)
        if kind == "plain":
            return JsoncNode(match[kind][1:-1], key, start, end)
        if kind == "object":
            return self._object(key, start)
        if kind == "array":
            return self._array(key, start)
        return JsoncNode(self._scalar(kind, match[kind], start), key, start, end)

    def _object(self, key: int, start: int) -> JsoncNode:
        self._check_depth(start)
        data: dict[str, Json] = {}
        children: dict[str, JsoncNode] = {}
        at, mark = start + 1, ","
        while mark == ",":
            match = _match_member(self._text, at)
            if match is None:
                at = self._end_of_object(at, start)
                break
            name_start = match.start(1)
            if name_start >= 0:
                name = match[1][1:-1]
            else:
                name_start = match.start(2)
                name = self._unescape(match[2], name_start)
            self._path.append(name)
            before = children.get(name)
            if before is not None:
                self._note_duplicate(name_start, before)
            child = self._value(match, name_start)
            self._path.pop()
            if before is None or not before.key <= self._counts_at < before.end:
                data[name] = child.data
                children[name] = child
            mark, at = self._mark_after(child.end, "}", start)
        return JsoncNode(data, key, start, at, children)

    def _array(self, key: int, start: int) -> JsoncNode:
        self._check_depth(start)
        data: list[Json] = []
        children: list[JsoncNode] = []
        at, mark = start + 1, ","
        while mark == ",":
            match = _match_value(self._text, at)
            if match is None:
                at = self._end_of_array(at)
                break
            self._path.append(len(children))
            child = self._value(match, match.start(match.lastgroup or 0))
            self._path.pop()
            data.append(child.data)
            children.append(child)
            mark, at = self._mark_after(child.end, "]", start)
        return JsoncNode(data, key, start, at, children)

    def _end_of_object(self, at: int, opened: int) -> int:
        """End of the object if its next member would start at `at`; stops if neither is there."""
        mark = _match_mark(self._text, at)
        if mark is None or mark[1] != "}":
            self._stop(self._member_mistake(at, opened))
        return mark.end()

    def _member_mistake(self, at: int, opened: int) -> SyntaxMistake:
        key = _match_key(self._text, at)
        if key is None:
            expected = f"a key in double quotes or {self._closer('}', opened)}"
            return at_key(self._text, self._skip(at), expected=expected)
        colon = _match_mark(self._text, key.end())
        if colon is None or colon[1] != ":":
            return describe_unexpected(self._text, self._skip(key.end()), expected="`:` after the key")
        return at_value(self._text, self._skip(colon.end()))

    def _end_of_array(self, at: int) -> int:
        """End of the array if its next item would start at `at`; stops if neither is there."""
        mark = _match_mark(self._text, at)
        if mark is None or mark[1] != "]":
            self._stop(at_value(self._text, self._skip(at)))
        return mark.end()

    def _mark_after(self, at: int, closer: str, opened: int) -> tuple[str, int]:
        match = _match_mark(self._text, at)
        if match is None or (match[1] != "," and match[1] != closer):
            expected = f"`,` or {self._closer(closer, opened)}"
            self._stop(after_value(self._text, self._skip(at), end=at, expected=expected))
        return match[1], match.end()

    def _closer(self, closer: str, opened: int) -> str:
        return f"`{closer}` (for the `{self._text[opened]}` of line {self._lines.position(opened).line})"

    def _scalar(self, kind: str, token: str, start: int) -> Json:
        if kind == "escaped":
            return self._unescape(token, start)
        if kind == "constant":
            return _CONSTANTS[token]
        try:
            return _integer(token) if kind == "integer" else _float(token)
        except ValueError as exc:
            self._note(SyntaxMistake(start, str(exc), "if the digits matter, write it as a string"))
            return 0

    def _unescape(self, token: str, start: int) -> str:
        string: str = json.loads(token)
        if _find_surrogate(string) is not None:
            hint = "above U+FFFF a character takes two `\\u` escapes, or is written as it is"
            self._note(SyntaxMistake(start, "a `\\u` escape in this string is half of a character", hint))
        return string

    def _skip(self, at: int) -> int:
        match = _match_trivia(self._text, at)
        return match.end() if match else at

    def _check_depth(self, start: int) -> None:
        if len(self._path) >= MAX_DEPTH:
            self._stop(SyntaxMistake(start, TOO_DEEP))

    def _note_duplicate(self, at: int, before: JsoncNode) -> None:
        line = self._lines.position(before.key).line
        self.replaced.append(TextSpan(before.key, before.end))
        mistake = SyntaxMistake(at, f"this key is already in line {line}", "remove or rename one of them")
        self.duplicates.append(self._problem(mistake, tuple(self._path)))

    def _note(self, mistake: SyntaxMistake) -> None:
        self.problems.append(self._problem(mistake, tuple(self._path)))

    def _stop(self, mistake: SyntaxMistake) -> NoReturn:
        self.problems.append(self._problem(mistake, ()))
        raise _SyntaxLost

    def _problem(self, mistake: SyntaxMistake, path: tuple[str | int, ...]) -> Problem:
        line, column = self._lines.position(mistake.offset)
        return Problem(
            message=mistake.message, hint=mistake.hint, file=self._file, path=path, line=line, column=column
        )

    @cached_property
    def _lines(self) -> _LineIndex:
        return _LineIndex(self._text)


def _integer(token: str) -> int:
    # Length first: converting a very long run of digits takes quadratic time.
    if len(token) > len(str(SMALLEST_INTEGER)) or not SMALLEST_INTEGER <= int(token) <= LARGEST_INTEGER:
        raise ValueError("this integer does not fit in 64 bits")
    return int(token)


def _float(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise ValueError("this number is too large")
    return number


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(token)


def _refuse_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


_STRICT = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_refuse_constant,
    object_pairs_hook=_refuse_duplicates,
)


def _find_surrogate(text: str) -> int | None:
    """Offset of a lone surrogate: no UTF-8 text holds one, but an environment variable may."""
    if text.isascii():
        return None
    match = _SURROGATE.search(text)
    return match.start() if match else None


def is_too_deep(data: object) -> bool:
    """Whether containers nest deeper than `MAX_DEPTH`, found level by level.

    A container that holds itself, as a program's may, is nested without end.
    """
    level = [data]
    for _ in range(MAX_DEPTH):
        containers = {id(value): value for value in level if _is_container(value)}
        level = [child for value in containers.values() for child in _children(value)]
    return any(map(_is_container, level))


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _children(value: object) -> Iterable[object]:
    return cast("dict[str, object]", value).values() if isinstance(value, dict) else as_list(value)
