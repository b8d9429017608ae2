"""URI templates (RFC 6570): expansion, and matching where it is unambiguous.

Everything of levels 1 to 4 can be expanded. Where all expressions are `{name}`, `{+name}` or `{#name}` with
some text between them, a URI can be matched too, whole or half typed, which is what completion needs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from urllib.parse import quote, unquote

from fairlead.catalog.sanitize import gate

TemplateValue = str | Sequence[str] | Mapping[str, str] | None
"""What a variable can be: a text, a list, names with texts, or undefined."""

MAX_TEMPLATE_CHARACTERS = 8_192
MAX_URI_CHARACTERS = 8_192
MAX_EXPRESSIONS = 100

_RESERVED = ":/?#[]@!$&'()*+,;="
_CHARACTER = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
_VARIABLE = re.compile(rf"({_CHARACTER}(?:\.?{_CHARACTER})*)(?::([1-9][0-9]{{0,3}})|(\*))?")
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Operator:
    """Form of an expression's values, as in the table of the RFC's appendix A."""

    first: str = ""
    separator: str = ","
    named: bool = False
    if_empty: str = ""
    unquoted: str = ""
    ended_by: str | None = None
    """What cannot be in a value when a URI is read backwards; `None` where that is not done."""


_OPERATORS = {
    "": _Operator(ended_by="/?#"),
    "+": _Operator(unquoted=_RESERVED, ended_by=""),
    "#": _Operator(first="#", unquoted=_RESERVED, ended_by=""),
    ".": _Operator(first=".", separator="."),
    "/": _Operator(first="/", separator="/"),
    ";": _Operator(first=";", separator=";", named=True),
    "?": _Operator(first="?", separator="&", named=True, if_empty="="),
    "&": _Operator(first="&", separator="&", named=True, if_empty="="),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variable:
    name: str
    prefix: int | None = None
    explode: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Expression:
    operator: _Operator
    variables: tuple[_Variable, ...]

    @property
    def is_simple(self) -> bool:
        """Whether its value can be read from a URI."""
        (variable, *others) = self.variables
        plain = variable.prefix is None and not variable.explode
        return plain and not others and self.operator.ended_by is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Blank:
    """A place in a simple template where a value stands."""

    name: str
    ended_by: str

    def can_hold(self, text: str) -> bool:
        """Whether this can be a value, or the beginning of one."""
        return not any(character in text for character in self.ended_by)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedVariable:
    """The variable that is being typed in a URI, with its text so far and the variables before it."""

    variable: str
    text: str
    before: dict[str, str]


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A parsed URI template; see `read_template`."""

    text: str
    _parts: tuple[str | _Expression, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its variables, in order, each once."""
        expressions = (part for part in self._parts if not isinstance(part, str))
        return tuple(
            dict.fromkeys(variable.name for expression in expressions for variable in expression.variables)
        )

    def expand(self, values: Mapping[str, TemplateValue]) -> str:
        """The URI for these values. Undefined variables leave no trace.

        Raises `ValueError` where a prefix is wanted of a value that is no text.
        """
        return "".join(
            part if isinstance(part, str) else _expand_expression(part, values) for part in self._parts
        )

    @property
    def is_matchable(self) -> bool:
        """Whether values can be read from a URI."""
        return self._atoms() is not None

    def match(self, uri: str) -> dict[str, str] | None:
        """The values that make this URI, the first as long as they can be, or `None` if there are none."""
        atoms = self._atoms()
        if atoms is None or len(uri) > MAX_URI_CHARACTERS:
            return None
        reached = _reachable_positions(atoms, uri)
        return _values(atoms, reached, uri) if reached[-1] >> len(uri) else None

    def typed_variable(self, begun: str) -> TypedVariable | None:
        """The variable at the end of a partly typed URI, or `None`."""
        atoms = self._atoms()
        if atoms is None or len(begun) > MAX_URI_CHARACTERS:
            return None
        reached = _reachable_positions(atoms, begun)
        for index in range(len(atoms) - 1, -1, -1):
            atom, start = atoms[index], _last(reached[index])
            if isinstance(atom, str) or start is None or not atom.can_hold(begun[start:]):
                continue
            before = _values(atoms[:index], reached, begun[:start])
            if before is None:
                return None
            return TypedVariable(variable=atom.name, text=unquote(begun[start:]), before=before)
        return None

    def _atoms(self) -> "list[str | _Blank] | None":
        """Texts and blanks in turn, or `None` where values cannot be separated."""
        atoms: list[str | _Blank] = []
        for part in self._parts:
            if isinstance(part, str):
                atoms.append(part)
                continue
            if not part.is_simple:
                return None
            atoms += [part.operator.first] if part.operator.first else []
            atoms.append(_Blank(name=part.variables[0].name, ended_by=part.operator.ended_by or ""))
        neighbours = any(isinstance(a, _Blank) and isinstance(b, _Blank) for a, b in pairwise(atoms))
        return None if neighbours else atoms


def read_template(text: str) -> UriTemplate:
    """Read a template. Raises `ValueError` with what is wrong."""
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        raise ValueError(f"a URI template has at most {MAX_TEMPLATE_CHARACTERS} characters")
    parts: list[str | _Expression] = []
    position = 0
    for match in _EXPRESSION.finditer(text):
        parts += _literal(text[position : match.start()])
        parts.append(_Expression(operator=_OPERATORS[match[1]], variables=tuple(_variables(match[2]))))
        position = match.end()
    parts += _literal(text[position:])
    if len(parts) > 2 * MAX_EXPRESSIONS:
        raise ValueError(f"a URI template has at most {MAX_EXPRESSIONS} expressions")
    return UriTemplate(text, tuple(parts))


def _literal(text: str) -> list[str]:
    if "{" in text or "}" in text:
        raise ValueError(f"a brace of the URI template has no partner, near {gate.content(text, 40)!r}")
    if not text.isprintable():
        raise ValueError("the URI template has control or invisible characters in it")
    return [_percent_encode(text, _RESERVED)] if text else []


def _variables(text: str) -> Iterator[_Variable]:
    for specification in text.split(","):
        match = _VARIABLE.fullmatch(specification)
        if match is None:
            raise ValueError(f"{gate.content(specification, 40)!r} is no variable of a URI template")
        prefix = int(match[2]) if match[2] else None
        yield _Variable(name=match[1], prefix=prefix, explode=match[3] is not None)


# Filling in.


def _expand_expression(expression: _Expression, values: Mapping[str, TemplateValue]) -> str:
    operator = expression.operator
    texts = [
        text
        for variable in expression.variables
        for text in _expand_variable(variable, values.get(variable.name), operator)
    ]
    return operator.first + operator.separator.join(texts) if texts else ""


def _expand_variable(variable: _Variable, value: TemplateValue, operator: _Operator) -> Iterator[str]:
    """The pieces that a variable adds to its expression: none where it is undefined, more if it explodes."""
    if value is None:
        return
    if isinstance(value, str):
        yield _piece(variable.name, _percent_encode(value[: variable.prefix], operator.unquoted), operator)
        return
    if variable.prefix is not None:
        raise ValueError(f"the URI template wants a prefix of `{variable.name}`, which is no text")
    pairs = isinstance(value, Mapping)
    items = [
        tuple(_percent_encode(text, operator.unquoted) for text in item)
        for item in (value.items() if pairs else ((text,) for text in value))
    ]
    if items and not variable.explode:
        yield _piece(variable.name, ",".join(text for item in items for text in item), operator)
    elif pairs:
        yield from (
            _render_named_value(key, text, operator.if_empty if operator.named else "=")
            for key, text in items
        )
    else:
        yield from (_piece(variable.name, text, operator) for (text,) in items)


def _piece(name: str, text: str, operator: _Operator) -> str:
    return _render_named_value(name, text, operator.if_empty) if operator.named else text


def _render_named_value(name: str, text: str, if_empty: str) -> str:
    return f"{name}={text}" if text else f"{name}{if_empty}"


def _percent_encode(text: str, unquoted: str) -> str:
    """Encode all but what is allowed; where reserved characters are, what is encoded already is too."""
    if not unquoted:
        return quote(text, safe="")
    pieces = _TRIPLET.split(text)
    return "".join(piece if index % 2 else quote(piece, safe=unquoted) for index, piece in enumerate(pieces))


# Reading backwards. Places in a text are the bits of a number, the first the lowest. Where one can get to is
# found atom by atom, for all places at once, so that no URI takes long, however it is made.

_Atoms = Sequence[str | _Blank]


def _reachable_positions(atoms: _Atoms, text: str) -> list[int]:
    """Where one can be before each atom, and after the last. A value has at least one character."""

    places = _places(text)
    everywhere = (1 << len(text)) - 1
    reached = [1]
    for atom in atoms:
        here = reached[-1]
        if isinstance(atom, str):
            for offset, character in enumerate(atom):
                here &= places.get(character, 0) >> offset
            here <<= len(atom)
        else:
            inside = everywhere
            for character in atom.ended_by:
                inside &= ~places.get(character, 0)
            here = (here & inside) << 1
            # The sum carries each place on through all that is inside, as far as it goes.
            here |= ((here & inside) + inside) ^ inside
        reached.append(here)
    return reached


@lru_cache(maxsize=8)
def _places(text: str) -> Mapping[str, int]:
    """Where each character of a text is. A URI is compared with many templates in a row."""
    places: dict[str, int] = {}
    bit = 1
    for character in text:
        places[character] = places.get(character, 0) | bit
        bit <<= 1
    return places


def _last(places: int) -> int | None:
    return places.bit_length() - 1 if places else None


def _values(atoms: _Atoms, reached: list[int], text: str) -> dict[str, str] | None:
    """The values on the way to the end of the text, which is known to be reached; the first ones longest."""
    values: dict[str, str] = {}
    end = len(text)
    for index in range(len(atoms) - 1, -1, -1):
        atom = atoms[index]
        if isinstance(atom, str):
            end -= len(atom)
            continue
        start = _last(reached[index] & ((1 << end) - 1))
        assert start is not None, "a place is reached from a place before it"
        value = unquote(text[start:end])
        if values.setdefault(atom.name, value) != value:
            return None
        end = start
    return dict(reversed(values.items()))
