"""Form for the arguments of a tool, made from its JSON Schema, and parsing of what was typed.

Texts, numbers, choices, lists of them and objects have inputs of their own. Everything else, unions above
all, is typed as JSON. A schema is a server's word: what is odd in it costs its input, never the page.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from fairlead.catalog.schema.keywords import resolve
from fairlead.config.untyped import as_list, as_object, is_list, is_object

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "lines", "object", "json"]

MAX_FIELDS: Final = 150
MAX_DEPTH: Final = 4
MAX_CHOICES: Final = 500
MAX_REFERENCES: Final = 8
_SCALARS: Final[Mapping[str, FieldKind]] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgumentField:
    """One argument, or a member of one, as an input."""

    path: tuple[str, ...]
    kind: FieldKind
    type_words: str
    required: bool
    description: str = ""
    default: str = ""
    """As it would be typed."""
    choices: tuple[str, ...] = ()
    """The values of a choice, as JSON."""
    item: FieldKind = "text"
    """What is on each of the lines."""
    fields: "tuple[ArgumentField, ...]" = ()
    """The members of an object."""

    @property
    def label(self) -> str:
        """The label: its own name."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of its input."""
        return "arg" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadArguments:
    """Arguments parsed from a form, and its problems by the names of inputs."""

    arguments: dict[str, Any]
    problems: dict[str, list[str]]


def argument_fields(schema: object) -> tuple[ArgumentField, ...] | None:
    """Fields of a tool's `inputSchema`; None where it can only be entered as JSON."""
    if not is_object(schema):
        return None
    reader = _SchemaReader(schema)
    fields = reader.members(schema, (), 0)
    is_open = schema.get("properties") is None and schema.get("additionalProperties") is not False
    return None if reader.count > MAX_FIELDS or (not fields and is_open) else fields


class _SchemaReader:
    """Reads the fields of one schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self.count = 0

    def members(self, schema: dict[str, Any], path: tuple[str, ...], depth: int) -> tuple[ArgumentField, ...]:
        required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
        found: list[ArgumentField] = []
        for name, inner in as_object(schema.get("properties")).items():
            self.count += 1
            if self.count > MAX_FIELDS:
                break
            found.append(self._field(inner, (*path, name), depth, required=name in required))
        return tuple(sorted(found, key=lambda field: not field.required))

    def _field(self, schema: object, path: tuple[str, ...], depth: int, *, required: bool) -> ArgumentField:
        plain = self._plain(schema)
        described = as_object(schema).get("description") or plain.get("description")
        kind, more = self._kind(plain, path, depth)
        default = as_object(schema).get("default", plain.get("default"))
        item: FieldKind = more.get("item", "text")
        return ArgumentField(
            path=path,
            kind=kind,
            type_words=type_words(plain),
            required=required,
            description=described if isinstance(described, str) else "",
            default="" if default is None else as_typed(kind, default),
            choices=more.get("choices", ()),
            item=item,
            fields=more.get("fields", ()),
        )

    def _kind(
        self, plain: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> tuple[FieldKind, dict[str, Any]]:
        choices = as_list(plain.get("enum")) or ([plain["const"]] if "const" in plain else [])
        if 0 < len(choices) <= MAX_CHOICES:
            return "choice", {"choices": tuple(_json(choice) for choice in choices)}
        kind = plain.get("type")
        if isinstance(kind, str) and kind in _SCALARS and not _is_union(plain):
            return _SCALARS[kind], {}
        if kind == "array" and (item := self._item(plain)) is not None:
            return "lines", {"item": item}
        if kind == "object" and is_object(plain.get("properties")) and depth < MAX_DEPTH:
            fields = self.members(plain, path, depth + 1)
            return ("object", {"fields": fields}) if fields else ("json", {})
        return "json", {}

    def _item(self, schema: dict[str, Any]) -> FieldKind | None:
        """Kind of a list's items, where each fits on one line; else None."""
        item = self._plain(schema.get("items"))
        kind = item.get("type")
        # A text with line breaks cannot be one of several lines; such a list is typed as JSON, if need be.
        is_line = isinstance(kind, str) and kind in ("string", "number", "integer") and not _is_union(item)
        return _SCALARS[kind] if is_line and isinstance(kind, str) else None

    def _plain(self, schema: object) -> dict[str, Any]:
        """A schema without references, and without null or other wrappings around one that counts."""
        found = as_object(schema)
        for _ in range(MAX_REFERENCES):
            reference = found.get("$ref")
            if isinstance(reference, str):
                rest = {name: value for name, value in found.items() if name != "$ref"}
                found = as_object(resolve(self._root, reference)) | rest
                continue
            options = [as_object(each) for each in _options(found)]
            real = [each for each in options if each.get("type") != "null"]
            if len(real) == 1:
                rest = {
                    name: value for name, value in found.items() if name not in ("anyOf", "oneOf", "allOf")
                }
                found = real[0] | rest
                continue
            break
        kinds = [kind for kind in as_list(found.get("type")) if kind != "null"]
        return found | {"type": kinds[0]} if len(kinds) == 1 else found


def _options(schema: dict[str, Any]) -> list[Any]:
    given = [as_list(schema.get(word)) for word in ("anyOf", "oneOf", "allOf")]
    present = [options for options in given if options]
    return present[0] if len(present) == 1 else []


def _is_union(schema: dict[str, Any]) -> bool:
    return any(schema.get(word) for word in ("anyOf", "oneOf", "allOf", "if"))


def type_words(schema: object) -> str:
    """The type of a value in a word or two."""
    fields = as_object(schema)
    kind = fields.get("type")
    if fields.get("enum") is not None or "const" in fields:
        return "choice"
    if kind == "array":
        return f"list of {type_words(fields.get('items'))}"
    if isinstance(kind, str):
        form = fields.get("format")
        return f"{kind} ({form})" if isinstance(form, str) else kind
    kinds = [word for word in as_list(kind) if isinstance(word, str)]
    kinds = kinds or [type_words(each) for word in ("anyOf", "oneOf") for each in as_list(fields.get(word))]
    return " or ".join(dict.fromkeys(kinds)) if 0 < len(kinds) <= 8 else "any"


def walk(fields: Sequence[ArgumentField]) -> Iterator[ArgumentField]:
    """All fields, with those of objects."""
    for field in fields:
        yield field
        yield from walk(field.fields)


# What is typed.


def as_typed(kind: FieldKind, value: object) -> str:
    """A value as the text of an input."""
    if kind == "text" and isinstance(value, str):
        return value
    if (
        kind == "lines"
        and is_list(value)
        and all(not is_object(each) and not is_list(each) for each in value)
    ):
        return "\n".join(each if isinstance(each, str) else _json(each) for each in value)
    return _json(value) if kind != "object" else ""


def defaults_of(fields: Sequence[ArgumentField]) -> dict[str, str]:
    """The initial values of the inputs."""
    return {field.name: field.default for field in walk(fields) if field.default}


def read_arguments(fields: Sequence[ArgumentField], typed: Mapping[str, str]) -> ReadArguments:
    """Parse the typed arguments. A blank input is an argument that is not given."""
    problems: dict[str, list[str]] = {}
    arguments = _read_members(fields, typed, problems, needed=True)
    return ReadArguments(arguments=arguments, problems=problems)


def _read_members(
    fields: Sequence[ArgumentField],
    typed: Mapping[str, str],
    problems: dict[str, list[str]],
    *,
    needed: bool,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        text = typed.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "object":
            is_given = any(typed.get(each.name, "").strip() for each in walk(field.fields))
            if is_given or (field.required and needed):
                found[field.label] = _read_members(field.fields, typed, problems, needed=True)
        elif text.strip() or (text and field.kind == "text"):
            try:
                found[field.label] = _read_value(field, text)
            except ValueError as exc:
                problems.setdefault(field.name, []).append(str(exc))
        elif field.required and needed:
            problems.setdefault(field.name, []).append("it is required")
    return found


def _read_value(field: ArgumentField, text: str) -> Any:  # noqa: ANN401 - any JSON value
    if field.kind == "lines":
        return [_read_scalar(field.item, line) for line in text.split("\n") if line.strip()]
    if field.kind == "choice" and text not in field.choices:
        raise ValueError("it is none of the choices")
    return _read_scalar(field.kind, text)


def _read_scalar(kind: FieldKind, text: str) -> Any:  # noqa: ANN401 - any JSON value
    if kind == "text":
        return text
    value = read_json(text)
    if kind in ("number", "integer") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"`{text.strip()}` is no number")
    if kind == "integer" and not isinstance(value, int):
        raise ValueError(f"`{text.strip()}` is no whole number")
    if kind == "boolean" and not isinstance(value, bool):
        raise ValueError("it is true or false")
    return value


def read_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a value that was typed as JSON. Raises `ValueError` with a message for a person."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as exc:
        raise ValueError(f"this is not JSON: {exc.msg}, line {exc.lineno}, column {exc.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a \\u escape is half of a surrogate pair") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
