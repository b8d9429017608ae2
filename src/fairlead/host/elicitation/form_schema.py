"""Parse the requested schema of a form elicitation: a sanitized form, or the reason to refuse it.

The protocol allows flat objects of strings, numbers, booleans and choices. All else is refused, since what is
not understood cannot be checked, and so is a form that asks for a secret, which the protocol forbids.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, cast

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import SliceTimer, Steps, finish
from fairlead.config.untyped import is_list
from fairlead.host.elicitation.forms import (
    FORMATS,
    MAX_ANSWER_CHARACTERS,
    MAX_NUMBER,
    Choice,
    ChoiceField,
    ChoicesField,
    Field,
    Form,
    NumberField,
    TextField,
    TextFormat,
    YesNoField,
)

MAX_FIELDS = 50
MAX_CHOICES = 500
MAX_VALUES = 10_000
"""Most JSON values in the whole schema."""
MAX_CHARACTERS = 256 * 1024
"""Of the whole schema, in all its texts."""
MAX_NAME_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 2_000

_Shape = Mapping[str, object]

_ANNOTATIONS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_FORM_KEYS = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "$schema"}
_FIELD_KEYS = _ANNOTATIONS | {"type", "default"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FormRefused:
    """Why a form is refused."""

    reason: str
    field: str | None = None

    def __str__(self) -> str:
        return f"`{self.field}`: {self.reason}" if self.field else self.reason


def read_form(requested_schema: object) -> Form | FormRefused:
    """Read the `requestedSchema` of an elicitation, at once."""
    return finish(read_form_steps(requested_schema))


def read_form_steps(requested_schema: object) -> Steps[Form | FormRefused]:
    """Read the `requestedSchema` of an elicitation, in steps that hold up no other work."""
    name: str | None = None
    try:
        yield from _require_small_steps(requested_schema)
        shape = _object(requested_schema)
        _allow_only(shape, _FORM_KEYS)
        if shape.get("type") != "object":
            raise ValueError("the form is not an object of fields")
        properties = _object(shape.get("properties", {}))
        if len(properties) > MAX_FIELDS:
            raise ValueError(f"it has {len(properties)} fields, and {MAX_FIELDS} are the most")
        required = frozenset(_texts(shape.get("required", []), "required"))
        if missing := required - properties.keys():
            raise ValueError(f"it requires {_quote_value(min(missing))}, which it does not ask for")
        fields: list[Field] = []
        for name, definition in properties.items():
            fields.append((yield from _read_field(name, _object(definition), required=name in required)))
            yield  # each field reads its choices in steps, and many small ones are much together
    except ValueError as exc:
        return FormRefused(reason=str(exc), field=None if name is None else _line(name))
    return Form(fields=tuple(fields))


def _require_small_steps(schema: object) -> Steps[None]:
    """Raise `ValueError` for a schema over the size limits of forms."""
    turn, values, characters = SliceTimer(), 0, 0
    pending: list[object] = [schema]
    while pending:
        value = pending.pop()
        values += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, Mapping):
            pending += cast("_Shape", value)  # its names
            pending += cast("_Shape", value).values()
        elif isinstance(value, list):
            pending += cast("list[object]", value)
        if values + len(pending) > MAX_VALUES or characters > MAX_CHARACTERS:
            raise ValueError(f"it has more than {MAX_VALUES} parts or {MAX_CHARACTERS} characters")
        if turn.is_over():
            yield


# Fields.


class _Common(TypedDict):
    name: str
    label: str
    description: str
    required: bool


def _read_field(name: str, shape: _Shape, *, required: bool) -> Steps[Field]:
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise ValueError(f"its name must have 1 to {MAX_NAME_CHARACTERS} characters")
    if gate.holds_secret(name):
        raise ValueError("its name holds a secret")
    title, description = _text(shape, "title"), _text(shape, "description")
    label = _line(title) or _line(name)
    common = _Common(name=name, label=label, description=escape_text(description), required=required)
    match shape.get("type"):
        case "string" if "enum" in shape or "oneOf" in shape:
            field = yield from _read_choice(common, shape)
        case "array":
            field = yield from _read_choices(common, shape)
        case "boolean":
            _allow_only(shape, _FIELD_KEYS)
            field = YesNoField(**common)
        case "string":
            _refuse_secret(name, title, description, shape)
            field = _read_text(common, shape)
        case "number" | "integer":
            _refuse_secret(name, title, description, shape)
            field = _read_number(common, shape)
        case kind:
            raise ValueError(f"fields of the type {_quote_value(kind)} are not part of the protocol")
    return _with_default(field, shape.get("default"))


def _refuse_secret(name: str, title: str, description: str, shape: _Shape) -> None:
    titled = asks_for_secret(name, is_title=True) or asks_for_secret(title, is_title=True)
    if titled or asks_for_secret(description) or shape.get("format") == "password":
        raise ValueError("it asks for a secret, which a form must not do")


def _read_text(common: _Common, shape: _Shape) -> TextField:
    _allow_only(shape, _FIELD_KEYS | {"minLength", "maxLength", "format"})
    wanted = shape.get("format")
    text_format: TextFormat | None = next((known for known in FORMATS if known == wanted), None)
    if wanted is not None and text_format is None:
        raise ValueError(f"the format {_quote_value(wanted)} is not part of the protocol")
    least, most = _count(shape, "minLength") or 0, _count(shape, "maxLength")
    most = MAX_ANSWER_CHARACTERS if most is None else min(most, MAX_ANSWER_CHARACTERS)
    _check_range(least, most)
    return TextField(**common, min_length=least, max_length=most, format=text_format)


def _read_number(common: _Common, shape: _Shape) -> NumberField:
    limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    _allow_only(shape, _FIELD_KEYS.union(limits))
    minimum, maximum, above, below = (_number(shape, key) for key in limits)
    _check_range(minimum, maximum)
    whole = shape.get("type") == "integer"
    return NumberField(**common, whole=whole, minimum=minimum, maximum=maximum, above=above, below=below)


def _read_choice(common: _Common, shape: _Shape) -> Steps[ChoiceField]:
    _allow_only(shape, _FIELD_KEYS | {"enum", "enumNames", "oneOf"})
    return ChoiceField(**common, choices=(yield from _read_options(shape, "oneOf")))


def _read_choices(common: _Common, shape: _Shape) -> Steps[ChoicesField]:
    _allow_only(shape, _FIELD_KEYS | {"items", "minItems", "maxItems", "uniqueItems"})
    items = _object(shape.get("items"))
    _allow_only(items, _ANNOTATIONS | {"type", "enum", "enumNames", "anyOf", "oneOf"})
    choices = yield from _read_options(items, "anyOf" if "anyOf" in items else "oneOf")
    least, most = _count(shape, "minItems") or 0, _count(shape, "maxItems")
    _check_range(least, len(choices) if most is None else min(most, len(choices)))
    return ChoicesField(**common, choices=choices, min_items=least, max_items=most)


def _read_options(shape: _Shape, titled: str) -> Steps[tuple[Choice, ...]]:
    """The choices of a field: an `enum` with or without names, or constants with titles."""
    if titled in shape:
        constants = [_object(item) for item in _list(shape[titled], titled)]
        for constant in constants:
            _allow_only(constant, _ANNOTATIONS | {"const", "type"})
        values = _texts([constant.get("const") for constant in constants], "const")
        labels = [_text(constant, "title") for constant in constants]
    else:
        values = _texts(shape.get("enum"), "enum")
        labels = _texts(shape.get("enumNames", []), "enumNames") or values
    if not values or len(values) != len(labels) or len(set(values)) != len(values):
        raise ValueError("its choices are not valid")
    if any(map(gate.holds_secret, values)):
        raise ValueError("one of its choices holds a secret")
    turn, choices = SliceTimer(), list[Choice]()
    for value, label in zip(values, labels, strict=True):
        choices.append(Choice(value=value, label=_line(label) or _line(value)))
        if turn.is_over():
            yield
    return tuple(choices)


def _with_default(field: Field, default: object) -> Field:
    """The field with its default; a default that the field itself would reject is dropped.

    Nor is one that hides something or holds a secret: to change it would put words into the user's mouth.
    """
    values = default if is_list(default) else [default]
    if any(isinstance(each, str) and gate.content(each) != each for each in values):
        return field
    try:
        value = None if default is None else field.read(default)
    except ValueError:
        return field
    return replace(field, default=tuple(value) if isinstance(value, list) else value)


# Parts of a schema.


def _object(value: object) -> _Shape:
    if not isinstance(value, Mapping):
        raise ValueError("it is not described by an object")
    return cast("_Shape", value)


def _allow_only(shape: _Shape, keys: frozenset[str]) -> None:
    unknown = next((key for key in shape if key not in keys), None)
    if unknown is not None:
        raise ValueError(f"{_quote_value(unknown)} is not part of the protocol's forms")


def _list(value: object, key: str) -> list[object]:
    items = cast("list[object]", value) if isinstance(value, list) else None
    if items is None or len(items) > MAX_CHOICES:
        raise ValueError(f"`{key}` is not a list of at most {MAX_CHOICES} items")
    return items


def _texts(value: object, key: str) -> list[str]:
    items = _list(value, key)
    texts = [item for item in items if isinstance(item, str) and len(item) <= MAX_DESCRIPTION_CHARACTERS]
    if len(texts) != len(items):
        raise ValueError(f"`{key}` has something other than short text in it")
    return texts


def _text(shape: _Shape, key: str) -> str:
    value = shape.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"`{key}` is not text")
    return value


def _number(shape: _Shape, key: str) -> int | float | None:
    value = shape.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        raise ValueError(f"`{key}` is not a finite number")
    return value


def _count(shape: _Shape, key: str) -> int | None:
    value = _number(shape, key)
    if value is not None and (value < 0 or value != int(value)):
        raise ValueError(f"`{key}` is not a count")
    return None if value is None else int(value)


def _check_range(least: float | None, most: float | None) -> None:
    if least is not None and most is not None and least > most:
        raise ValueError("no answer can be within its limits")


# Words of a server.

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET = re.compile(
    r"\b(\w*passwords?|\w*passwd|\w*passphrase|passcode|pwd|\w*token|\w*secrets?|credentials?|\w*api ?keys?"
    r"|(access|auth|private|secret|signing|encryption|ssh) ?keys?|(access|auth|api|bearer|refresh) tokens"
    r"|cvv2?|cvc2?|card (number|security)|credit ?card|debit ?card|(recovery|seed|backup) (phrase|codes?)"
    r"|(verification|security|authorization|auth|one time|2fa|mfa|otp) codes?|session cookie"
    r"|connection string|passwort|kennwort|mot de passe|contraseña|senha|пароль|wachtwoord)\b"
    r"|密码|密碼|パスワード|비밀번호"
)
_SECRET_TITLE = re.compile(r"\b(pin|pin ?code|otp|totp|mnemonic|jwt|bearer)\b")


def asks_for_secret(text: str, *, is_title: bool = False) -> bool:
    """Whether a text names a credential, such as a password, a token or a card number.

    Some words do so as a name or title only: a `PIN` is a secret, a pin on a map is none.
    """
    seen = unicodedata.normalize(
        "NFKC", escape_text(text)
    )  # so that nothing hides in letters of another width
    words = re.sub(r"[\W_]+", " ", _CAMEL.sub(" ", seen)).casefold()
    return bool(_SECRET.search(words)) or (is_title and bool(_SECRET_TITLE.search(words)))


def escape_text(text: str, limit: int = MAX_DESCRIPTION_CHARACTERS) -> str:
    """A server's text, safe to show: without control and invisible characters, and of bounded length."""
    cleaned = gate.text(text, 4 * limit).strip()
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 1]}…"


def _line(text: str) -> str:
    line = " ".join(gate.text(text, 4 * MAX_LABEL_CHARACTERS).split())
    return line if len(line) <= MAX_LABEL_CHARACTERS else f"{line[: MAX_LABEL_CHARACTERS - 1]}…"


def _quote_value(value: object) -> str:
    return f"`{_line(value if isinstance(value, str) else type(value).__name__)}`"
