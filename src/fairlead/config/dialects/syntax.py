"""Text of configuration files in JSON, TOML and YAML: parsed, written, and merged with the rest preserved."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from fairlead.config.dialects.dialect import Syntax
from fairlead.config.document import jsonc
from fairlead.config.document.edit import set_value
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.errors import ConfigInvalid, ConfigUnwritable, Problem

_TOML_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


def load(text: str, syntax: Syntax, file: str | None = None) -> dict[str, Any]:
    """Parse a text. Raises `ConfigInvalid` with the file and line if it is invalid or not an object."""
    _, text = split_mark(text)
    data = _LOADERS[syntax](text, file) if text.strip() else None
    if data is None:  # blank, or nothing but comments
        return {}
    if not is_object(data):
        raise ConfigInvalid(Problem(message="must be an object at the top level", file=file, line=1))
    return data


def load_foreign(text: str, syntax: Syntax, file: str | None = None) -> tuple[dict[str, Any], list[Problem]]:
    """Parse another agent's file. Of a JSON key that is there twice the last one counts, as for that agent.

    Returns:
        The document, and a problem for each repeated key.

    Raises:
        ConfigInvalid: It is invalid in another way.
    """
    try:
        return load(text, syntax, file), []
    except ConfigInvalid:
        if syntax not in ("json", "jsonc"):
            raise
        document = jsonc.parse(split_mark(text)[1], file=file, collects=True)
        data = document.data
        if document.bad_values or not is_object(data):
            raise
    taken = "the last one is taken, as the agent does"
    return data, [replace(each, message=f"{each.message}; {taken}") for each in document.duplicates]


def split_mark(text: str) -> tuple[str, str]:
    """Byte order mark of a text, or nothing, and the rest."""
    rest = text.removeprefix("\ufeff")
    return text[: len(text) - len(rest)], rest


def dump(document: Mapping[str, Any], syntax: Syntax) -> str:
    """Text of a new file with this document."""
    if syntax == "toml":
        import tomlkit

        return tomlkit.dumps(dict(document))
    if syntax == "yaml":
        return _yaml_text(dict(document))
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def merge_into(text: str, document: Mapping[str, Any], syntax: Syntax, file: str | None = None) -> str:
    """Merge the document's entries into the text: those of the same name are replaced, lists only grow.

    Everything else stays, with its comments and order, and a byte order mark.
    """
    mark, text = split_mark(text)
    return mark + _merge_document(text, document, syntax, file)


def _merge_document(text: str, document: Mapping[str, Any], syntax: Syntax, file: str | None) -> str:
    if not text.strip():
        return dump(document, syntax)
    present = load(text, syntax, file)
    changes = list(_changes(present, document, file))
    if syntax == "toml":
        return _merge_toml(text, changes, present)
    if syntax == "yaml":
        return _merge_yaml(text, changes)
    for path, value in changes:
        text = set_value(text, path, value)
    return text


DocumentChange = tuple[tuple[str, ...], Any]


def _changes(
    present: Mapping[str, Any], document: Mapping[str, Any], file: str | None
) -> Iterator[DocumentChange]:
    """Values to set, with their paths. A document's sections hold entries, which are replaced whole."""
    for name, value in document.items():
        if not is_object(value):
            yield (name,), _grown(present.get(name), value)
            continue
        holder = present.get(name, {})
        if not is_object(holder):
            raise ConfigInvalid(Problem(message="must be an object", file=file, path=(name,)))
        for inner, entry in value.items():
            yield (name, inner), _grown(holder.get(inner), entry)


def _grown(present: object, value: object) -> object:
    """A list with its missing items added; an item with an id replaces the one that has it."""
    if not is_list(present) or not is_list(value):
        return value
    named = [item["id"] for item in value if "id" in as_object(item)]
    kept = [item for item in present if item not in value and as_object(item).get("id") not in named]
    return [*kept, *value]


def _merge_toml(text: str, changes: Sequence[DocumentChange], present: dict[str, Any]) -> str:
    for path, value in changes:
        _put(present, path, value, dict)
    # A file may split and order its tables in ways that editing does not survive. A new table can still go at
    # its end; but a text with another meaning is never returned.
    for change in (_edit_toml, _append_toml):
        changed = change(text, changes)
        if changed is not None and _toml_or_none(changed) == present:
            return changed
    raise ConfigUnwritable("this file's tables are in an order that cannot be edited", hint="edit it by hand")


def _edit_toml(text: str, changes: Sequence[DocumentChange]) -> str | None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        for path, value in changes:
            _put(document, path, value, lambda: tomlkit.table(is_super_table=True))
        return tomlkit.dumps(document)
    except TOMLKitError:
        return None


def _append_toml(text: str, changes: Sequence[DocumentChange]) -> str:
    added: dict[str, Any] = {}
    for path, value in changes:
        _put(added, path, value, dict)
    return f"{text.rstrip()}\n\n{dump(added, 'toml')}"


def _toml_or_none(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _merge_yaml(text: str, changes: Sequence[DocumentChange]) -> str:
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    document: MutableMapping[str, Any] = yaml.load(text) or {}
    for path, value in changes:
        _put(document, path, value, dict)
    return _yaml_text(document)


def _put(
    document: MutableMapping[str, Any], path: Sequence[str], value: object, new: Callable[[], Any]
) -> None:
    *parents, last = path
    for step in parents:
        if step not in document:
            document[step] = new()
        document = document[step]
    document[last] = value


def _load_json(text: str, file: str | None) -> object:
    return jsonc.loads(text, file=file)


def _load_toml(text: str, file: str | None) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        place = _TOML_PLACE.search(str(exc))
        line, column = (int(place[1]), int(place[2])) if place else (len(text.splitlines()), None)
        message = str(exc).partition(" (at ")[0]
        raise ConfigInvalid(Problem(message=message, file=file, line=line, column=column)) from None
    except RecursionError:
        raise ConfigInvalid(Problem(message="is nested too deeply", file=file)) from None


def _load_yaml(text: str, file: str | None) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml: Any = YAML(typ="safe", pure=True)
    try:
        return yaml.load(text)
    except MarkedYAMLError as exc:
        fault: Any = exc
        mark = fault.problem_mark or fault.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        message = fault.problem or fault.context or "is not YAML"
        raise ConfigInvalid(Problem(message=message, file=file, line=line, column=column)) from None
    except YAMLError as exc:
        raise ConfigInvalid(Problem(message=f"is not YAML: {exc}", file=file)) from None
    except (RecursionError, ValueError) as exc:
        raise ConfigInvalid(Problem(message=f"cannot be read: {exc}", file=file)) from None


def _yaml_text(document: Mapping[str, Any]) -> str:
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.default_flow_style = False
    stream = StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


_LOADERS: dict[Syntax, Callable[[str, str | None], object]] = {
    "json": _load_json,
    "jsonc": _load_json,
    "toml": _load_toml,
    "yaml": _load_yaml,
}
