r"""Translation of ripgrep's regular expressions to Python's `re`.

Both are to find the same lines. What `re` reads differently is translated (`a++`, `\x{41}`, or `\s`, which
would match the end of a line). What only one of them can do is refused with the reason: look-around and
backreferences, which ripgrep lacks; `\p{…}`, `\A`, nested classes, `(?x)` and flags in mid-expression, which
`re` lacks. Small differences remain: here `\w` leaves out combining marks, `.` matches bytes that are not
UTF-8, and where case does not count, the dotless i of Turkish is an i.
"""

import itertools
import re
from dataclasses import dataclass, field


class PatternInvalid(ValueError):
    """A regular expression cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A search pattern: an expression that never matches across lines."""

    expression: re.Pattern[str]
    literals: tuple[str, ...]
    """Every match has one of these in it, if there are any; in lower case where case does not count."""

    @property
    def is_sensitive(self) -> bool:
        """Whether it is case-sensitive."""
        return not self.expression.flags & re.IGNORECASE


def line_pattern(query: str, *, is_fixed: bool, is_sensitive: bool) -> LinePattern:
    """Parse a query as ripgrep would. Raises `PatternInvalid`."""
    text, literals = re.escape(query), (query,)
    if not is_fixed:
        translation = _Translation(query, is_sensitive=is_sensitive)
        text, literals, is_sensitive = translation.text, translation.literals, translation.is_sensitive
    if not is_sensitive:
        literals = tuple(map(_caseless, literals))
    try:
        expression = re.compile(text, re.MULTILINE | (0 if is_sensitive else re.IGNORECASE))
    except re.error as error:
        raise PatternInvalid(error.msg) from error
    except (OverflowError, RecursionError) as error:
        raise PatternInvalid("too large, or nested too deeply") from error
    is_telling = _rarity(literals) >= _TELLING
    return LinePattern(expression=expression, literals=literals if is_telling else ())


def _caseless(literal: str) -> str:
    """The longest part of a literal whose case is simple."""
    return max(re.findall(r"[\x00-\x7f]+", literal), key=len, default="").lower()


_TELLING = 2
"""A text shorter than this is in too many lines to help."""


def _rarity(literals: tuple[str, ...]) -> int:
    return min(map(len, literals), default=0)


# ── translation ──

_CODE = r"\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\[xuU]\{[0-9A-Fa-f]{1,6}\}"
_QUOTED = r"\\[!-/:;=?@\[-`{-~]"
_TOKEN = re.compile(
    rf"""(?P<character>{_CODE}|\\[afnrtv]|{_QUOTED})
    |(?P<shorthand>\\[dswDSW])
    |(?P<assertion>[.^$]|\\[bB](?!\{{))
    |(?P<escape>\\.?)
    |(?P<look>\(\?<?[=!])
    |(?P<flags>\(\?[a-zA-Z]*(?:-[a-zA-Z]+)?[:)])
    |(?P<group>\((?:\?P?<[A-Za-z_]\w*>)?(?!\?))
    |(?P<close>\))
    |(?P<bar>\|)
    |(?P<repeat>(?:[*+?]|\{{\d+(?:,\d*)?\}})\??)
    |(?P<set>\[)
    |(?P<brace>\{{)
    |(?P<unknown>\()
    |(?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_SHORTHANDS = {"d": r"\d", "w": r"\w", "S": r"\S", "s": r"[^\S\n]", "D": r"[^\d\n]", "W": r"[^\w\n]"}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_REFUSED = {
    "look": "look-around, including look-ahead and look-behind, is not supported",
    "brace": "a repetition needs a number, as in `a{2}`; a brace as such is written `\\{`",
    "unknown": "unrecognized flag",
}


@dataclass(slots=True)
class _Piece:
    """One item of an expression."""

    text: str
    character: str = ""
    """What it matches, if that is always the same character."""
    literals: tuple[str, ...] = ()
    """What it matches has one of these in it."""
    is_one: bool = True
    """Whether a quantifier can follow as it is."""


@dataclass(slots=True)
class _Group:
    """A group: its alternatives, the last of which is being read."""

    opening: str = "(?:"
    alternatives: list[list[_Piece]] = field(default_factory=lambda: [[]])

    @property
    def pieces(self) -> list[_Piece]:
        return self.alternatives[-1]

    @property
    def is_empty(self) -> bool:
        return self.alternatives == [[]]

    @property
    def text(self) -> str:
        return "|".join("".join(piece.text for piece in pieces) for pieces in self.alternatives)

    @property
    def literals(self) -> tuple[str, ...]:
        """Texts one of which is in every match; none if that is unknown."""
        found = [_best_literals(pieces) for pieces in self.alternatives]
        return tuple(itertools.chain(*found)) if all(found) else ()


def _best_literals(pieces: list[_Piece]) -> tuple[str, ...]:
    runs = "".join(piece.character or "\n" for piece in pieces).split("\n")
    ways = [(run,) for run in runs if run] + [piece.literals for piece in pieces]
    return max(ways, key=_rarity, default=())


class _Translation:
    """One expression, read from left to right."""

    def __init__(self, query: str, *, is_sensitive: bool) -> None:
        self.is_sensitive = is_sensitive
        self._groups = [_Group()]
        position = 0
        while token := _TOKEN.match(query, position):
            position = token.end()
            if token.lastgroup == "set":
                text, position = _set_expression(query, position)
                self._add(_Piece(text))
            else:
                self._read(token.lastgroup or "", token[0])
        if len(self._groups) > 1:
            raise PatternInvalid("unclosed group")

    @property
    def text(self) -> str:
        """The expression as `re` reads it."""
        return self._groups[0].text

    @property
    def literals(self) -> tuple[str, ...]:
        """Texts one of which is in every match."""
        return self._groups[0].literals

    def _read(self, kind: str, text: str) -> None:
        match kind:
            case "plain" | "character":
                character = _character(text)
                if character == "\n":
                    raise PatternInvalid("a match is within one line, so it cannot hold the end of one")
                self._add(_Piece(re.escape(character), character=character))
            case "shorthand":
                self._add(_Piece(_SHORTHANDS[text[1]]))
            case "assertion":
                # On an empty line `re` has neither `\b` nor `\B`.
                self._add(_Piece(text.replace(r"\B", r"(?!\b)"), is_one=text == "."))
            case "repeat":
                self._repeat(text)
            case "escape":
                raise PatternInvalid(_wrong_escape(text))
            case _:
                self._structure(kind, text)

    def _structure(self, kind: str, text: str) -> None:
        match kind:
            case "group":
                self._groups.append(_Group())
            case "flags":
                self._flags(text)
            case "bar":
                self._groups[-1].alternatives.append([])
            case "close":
                if len(self._groups) == 1:
                    raise PatternInvalid("unopened group")
                group = self._groups.pop()
                # Within a change of case, what is literal is so in another way than outside.
                literals = group.literals if group.opening == "(?:" else ()
                self._add(_Piece(f"{group.opening}{group.text})", literals=literals))
            case _:
                raise PatternInvalid(_REFUSED[kind])

    def _add(self, piece: _Piece) -> None:
        self._groups[-1].pieces.append(piece)

    def _repeat(self, quantifier: str) -> None:
        pieces = self._groups[-1].pieces
        if not pieces:
            raise PatternInvalid("repetition operator missing expression")
        # `a++` is a repetition repeated to ripgrep, and something else to `re`.
        once = pieces[-1].text if pieces[-1].is_one else f"(?:{pieces[-1].text})"
        pieces[-1] = _Piece(once + quantifier, is_one=False)

    def _flags(self, text: str) -> None:
        on, _, off = text[2:-1].partition("-")
        for flag in on + off:
            if flag not in ("i", "s") and (flag not in ("m", "u") or flag in off):
                raise PatternInvalid(f"the flag `{flag}` is not supported")
        case = "i" if "i" in on else "-i" if "i" in off else ""
        group = self._groups[-1]
        if text.endswith(":"):
            self._groups.append(_Group(f"(?{case}:"))
        elif not group.is_empty:
            raise PatternInvalid(f"`{text}` is only supported at the start of an expression or a group")
        elif len(self._groups) > 1:
            group.opening = f"(?{case}:" if case else group.opening
        elif case:
            self.is_sensitive = case == "-i"


def _character(text: str) -> str:
    """The character that a token stands for."""
    if len(text) == 1:
        return text
    if text[1] in "xuU":
        code = int(text[2:].strip("{}"), 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise PatternInvalid("not a Unicode character")
        return chr(code)
    return _CONTROLS.get(text[1], text[1])


def _wrong_escape(text: str) -> str:
    if text[1:].isdigit():
        return "backreferences are not supported"
    if text[1:] in ("p", "P", "A", "z", "b", "B"):
        return f"`{text}` is not supported without ripgrep"
    return "unrecognized escape sequence" if text[1:] else "incomplete escape sequence"


# ── character classes ──

_ITEM = re.compile(
    rf"""(?P<posix>\[:[a-z]+:\])
    |(?P<shorthand>\\[dswDSW])
    |(?P<refused>\[|&&|--|~~)
    |(?P<character>{_CODE}|\\[afnrtv]|{_QUOTED}|[^\\])
    |(?P<escape>\\.?)""",
    re.VERBOSE | re.DOTALL,
)
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


def _set_expression(query: str, start: int) -> tuple[str, int]:
    """The expression for a `[…]` whose content begins at `start`, and where it ends."""
    is_negated = query.startswith("^", start)
    position = first = start + is_negated
    content = ""
    while not query.startswith("]", position) or position == first:
        item, position = _set_item(query, position)
        content += item
    if is_negated:
        return rf"[^{content}\n]", position + 1
    try:
        holds_line_end = re.match(f"[{content}]", "\n")
    except re.error as error:
        raise PatternInvalid(error.msg) from error
    return rf"(?:(?!\n)[{content}])" if holds_line_end else f"[{content}]", position + 1


def _set_item(query: str, position: int) -> tuple[str, int]:
    """The next character, range or class in a set, and where it ends."""
    token = _ITEM.match(query, position)
    if token is None:
        raise PatternInvalid("unclosed character class")
    text, position = token[0], token.end()
    if token.lastgroup == "shorthand":
        return text, position
    if token.lastgroup == "posix" and text[2:-2] in _POSIX:
        return _POSIX[text[2:-2]], position
    if token.lastgroup == "escape":
        raise PatternInvalid(_wrong_escape(text))
    if token.lastgroup != "character":
        raise PatternInvalid("classes in classes and operations on them are not supported without ripgrep")
    low = re.escape(_character(text))
    if not query.startswith("-", position) or query.startswith("]", position + 1):
        return low, position
    high = _ITEM.match(query, position + 1)
    if high is None or high.lastgroup != "character":
        raise PatternInvalid("invalid range in a character class")
    return f"{low}-{re.escape(_character(high[0]))}", high.end()
