"""What people get wrong in JSON, told in plain words. Values are never quoted: they may be secrets."""

import re
import unicodedata
from typing import NamedTuple


class Mistake(NamedTuple):
    """What is wrong at an offset of a text, and what would be right."""

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


def at_value(text: str, at: int) -> Mistake:
    """Why no value starts at `at`."""
    if text.startswith('"', at):
        return _in_string(text, at)
    if _NOT_FINITE.match(text, at):
        return Mistake(at, "`NaN` and `Infinity` are not JSON", "write a number, or leave the key out")
    if _NUMBER_LIKE.match(text, at):
        return Mistake(at, "this is not a JSON number", "JSON numbers look like `10`, `-0.5` or `1e6`")
    if word := _WORD.match(text, at):
        spelling = _SPELLINGS.get(word[0].lower())
        if spelling is not None:
            return Mistake(at, f"`{word[0]}` is not JSON", f"write `{spelling}`")
        return Mistake(at, "this text has no quotes", _QUOTES)
    return misplaced(text, at, expected="a value")


def at_key(text: str, at: int, *, expected: str) -> Mistake:
    """Why no key starts at `at`."""
    if text.startswith('"', at):
        return _in_string(text, at)
    if word := _WORD.match(text, at):
        return Mistake(at, f"the key `{word[0]}` has no quotes", f'write `"{word[0]}"`')
    return misplaced(text, at, expected=expected)


def after_value(text: str, at: int, *, end: int, expected: str) -> Mistake:
    """Why what stands at `at` cannot follow the value that ended at `end`."""
    if _VALUE_START.match(text, at):
        # The comma belongs where the value ended, which may be lines above.
        return Mistake(end, f"expected {expected} after this value, found {_name(text, at)}", "add a comma")
    return misplaced(text, at, expected=expected)


def misplaced(text: str, at: int, *, expected: str) -> Mistake:
    """What stands at `at` instead of what was expected."""
    for pattern, message, hint in _FOREIGN:
        if pattern.match(text, at):
            return Mistake(at, message, hint)
    return Mistake(at, f"expected {expected}, found {_name(text, at)}")


def _in_string(text: str, at: int) -> Mistake:
    """Why the string that starts at `at` is none."""
    head = _STRING_HEAD.match(text, at)
    end = head.end() if head else at
    if end == len(text) or text[end] in "\r\n":
        return Mistake(
            at, "this string is not closed", 'end it with `"` on the same line; a line break is `\\n`'
        )
    if text[end] == "\\":
        if text.startswith("\\u", end):
            return Mistake(end, "`\\u` needs four hexadecimal digits", "write a backslash as `\\\\`")
        return Mistake(end, "this backslash starts no JSON escape", "write a backslash as `\\\\`")
    escape = {"\t": "\\t", "\b": "\\b", "\f": "\\f"}.get(text[end], f"\\u{ord(text[end]):04x}")
    return Mistake(
        end, f"a control character ({_name(text, end)}) stands in this string", f"write it as `{escape}`"
    )


def _name(text: str, at: int) -> str:
    """The character at `at`, in a form that is safe to show."""
    if at >= len(text):
        return "the end"
    character = text[at]
    if character.isprintable():
        return f"`{character}`"
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
