"""Configuration files: two parsers agree, loading raises our errors only, edits change what they should."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from fairlead.config.document import jsonc
from fairlead.config.document.edit import append_name, names_at, remove_name, remove_value, set_value
from fairlead.config.load import load_config
from fairlead.config.untyped import is_object
from fairlead.errors import ConfigError, ConfigInvalid, ConfigUnwritable
from tests.exam.targets import Choices, split

NAMES = ("servers", "policy", "a", "", 'quote " \\ \u00e9')
VALUES: tuple[Any, ...] = (
    None,
    True,
    7,
    -0.5,
    "text",
    [],
    {},
    ["a", "b"],
    {"command": "x", "args": ["-y"]},
    [{"deep": [1]}],
)
MAX_PROBLEMS = 10_000

_FOLDER = tempfile.TemporaryDirectory(prefix="fairlead-fuzz-")
_SPACE = re.compile(r"\s+")


def check(data: bytes) -> None:
    """Take the content as a configuration file."""
    choices, content = split(data)
    _check_load(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    document = _parse(text)
    if document is not None:
        _check_edits(choices, document)
        _check_names(choices, text)


def _check_load(content: bytes) -> None:
    """A file is loaded, or refused with an error of ours; each problem stands at a place of the file."""
    folder = Path(_FOLDER.name)
    file = folder / "fairlead.json"
    file.write_bytes(content)
    env = {"HOME": str(folder), "PATH": "/usr/bin", "FAIRLEAD_BUILTINS": "off"}
    try:
        loaded = load_config(file, env=env, cwd=folder)
        problems = loaded.problems
        for server in loaded.servers.values():
            assert repr(server)
    except ConfigInvalid as exc:
        problems = exc.problems
    except ConfigError:
        return
    lines = re.split(rb"\r\n?|\n", content)
    assert len(problems) <= MAX_PROBLEMS
    for problem in problems:
        assert str(problem)
        if problem.line is not None and problem.file == str(file):
            assert 1 <= problem.line <= len(lines)
            assert problem.column is None or 1 <= problem.column <= len(lines[problem.line - 1].decode()) + 1


def _parse(text: str) -> jsonc.JsoncDocument | None:
    """The document, if the parser with positions and the fast one agree on it, and Python's where it can."""
    try:
        document = jsonc.parse(text)
    except ConfigInvalid:
        document = None
    try:
        data = jsonc.loads(text)
    except ConfigInvalid:
        assert document is None
        return None
    assert document is not None
    assert _same(document.data, data)
    try:
        strict = json.loads(text)
    except (ValueError, RecursionError):
        return document
    assert _same(strict, data)
    return document


def _same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)  # Python takes 1, 1.0 and True for equal


def _check_edits(choices: Choices, document: jsonc.JsoncDocument) -> None:
    """Setting and removing a value changes that value and nothing else."""
    text, path = document.text, _choose_path(choices, document.data)
    value = VALUES[choices.number(len(VALUES))]
    try:
        changed = set_value(text, path, value)
    except ConfigUnwritable:
        assert _is_refused(document.data, path, text), (path, value)
    else:
        assert _same(jsonc.loads(changed), _with(document.data, path, value))
        assert set_value(changed, path, value) == changed
        if _lookup(document.data, path) is _MISSING:
            assert _is_within(text, changed)
            assert _lookup(jsonc.loads(remove_value(changed, path)), path) is _MISSING
    removed = remove_value(text, path)
    assert _is_within(removed, text)
    if _lookup(document.data, path) is _MISSING:
        assert removed == text
    else:
        assert _same(jsonc.loads(set_value(removed, path, value)), _moved(document.data, path, value))


def _check_names(choices: Choices, text: str) -> None:
    """A name is added to a list and removed again."""
    path, name = [NAMES[choices.number(len(NAMES))]], f"name-{choices.number(4)}"
    names = names_at(text, path)
    try:
        added = append_name(text, path, name)
    except ConfigUnwritable:
        assert _is_refused(jsonc.loads(text), path, text)
        return
    assert names_at(added, path) == [*names, name]
    kept = [*names]
    if name in kept:
        kept.remove(name)
        kept.append(name)
    assert names_at(remove_name(added, path, name), path) == kept


_MISSING: Any = object()


def _choose_path(choices: Choices, data: Any) -> list[str]:
    """Names of members that exist, or of new ones."""
    path: list[str] = []
    for _ in range(1 + choices.number(4)):
        own: list[str] = list(data) if is_object(data) else []
        name = [*own[:8], *NAMES][choices.number(len(own[:8]) + len(NAMES))]
        path.append(name)
        data = data.get(name) if is_object(data) else None
    return path


def _lookup(data: Any, path: list[str]) -> Any:
    for name in path:
        if not is_object(data) or name not in data:
            return _MISSING
        data = data[name]
    return data


def _with(data: Any, path: list[str], value: object) -> Any:
    if not path:
        return value
    members = {**data} if is_object(data) else {}
    members[path[0]] = _with(members.get(path[0]), path[1:], value)
    return members


def _moved(data: Any, path: list[str], value: object) -> Any:
    """The data after a value was removed and set again, which puts it last."""
    holder = _lookup(data, path[:-1])
    return _with(
        data, path[:-1], {**{name: holder[name] for name in holder if name != path[-1]}, path[-1]: value}
    )


def _is_refused(data: Any, path: list[str], text: str) -> bool:
    """Whether there is no object to put the value into, or it would lie too deep."""
    for name in path[:-1]:
        if not is_object(data):
            return True
        data = data.get(name, {})
    return not is_object(data) or text.count("{") + text.count("[") + len(path) > jsonc.MAX_DEPTH - 3


def _is_within(part: str, whole: str) -> bool:
    """Whether all of one text is in the other in order, white space aside: comments are not lost or moved."""
    rest = iter(_SPACE.sub("", whole))
    return all(character in rest for character in _SPACE.sub("", part))
