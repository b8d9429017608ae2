"""Rules on arguments: however a denied path is written, it is not let through, and readings stay bounded."""

import base64
import json
import posixpath
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

from fairlead.config.untyped import is_object
from fairlead.policy.arguments import (
    MAX_READ_CHARACTERS,
    MAX_READ_SPELLINGS,
    MAX_VALUES,
    ArgumentMatch,
    match,
    read_arguments,
)
from fairlead.policy.path_spellings import MAX_ENTRIES, MAX_PIECES, PathContext
from tests.exam.targets import Choices, split

CWD = "/srv/deep/project"
LOCAL = PathContext(cwd=CWD, homes=("/home/me",))
REMOTE = PathContext(cwd=None, homes=("/home/me",))
DENIED = {"path": "/etc/**"}
ALLOWED = {"path": f"{CWD}/**"}

SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: quote(path, safe=""),
    lambda path: path.replace("/", "//"),
    lambda path: path.replace("/", "/./"),
    lambda path: path.replace("/", "\\"),
    lambda path: path.replace("/", "\\u002f"),
    lambda path: path.replace("/", "&#47;"),
    lambda path: f"file://{path}",
    lambda path: f" {path}\n",
    lambda path: f'"{path}"',
    lambda path: f"{'../' * 8}{path.lstrip('/')}",
    lambda path: f"/x/..{path}",
    lambda path: "".join(f"%{ord(character):02x}" if character == "/" else character for character in path),
)
"""Ways to write a path that some server reads as the same one."""
WRAPPINGS: tuple[Callable[[str], dict[str, Any]], ...] = (
    lambda value: {"path": value},
    lambda value: {"path": [value]},
    lambda value: {"path": {"file": value}},
    lambda value: {"path": json.dumps([value])},
    lambda value: {"PATH": value, "other": "/tmp/x"},
    lambda value: {"path": ["a", value, "b"]},
    lambda value: {"path": {value: "content"}},
)
"""Ways to give an argument that some server reads as the same one."""


def check(data: bytes) -> None:
    """Take the content as arguments in JSON, and as the end of a path that is denied."""
    choices, content = split(data)
    text = content.decode(errors="replace")
    _check_written(choices, text)
    _check_path(text)
    _check_any(content)


def _check_written(choices: Choices, text: str) -> None:
    """A denied path in up to two spellings, one around the other, or in base64."""
    end = "".join(character for character in text if character.isalnum() or character in "-_/")[:40]
    value = f"/etc/{end}"
    depth = choices.number(4)
    if depth > 2:
        value = base64.b64encode(value.encode()).decode()
    else:
        for _ in range(depth):
            value = SPELLINGS[choices.number(len(SPELLINGS))](value)
    arguments = WRAPPINGS[choices.number(len(WRAPPINGS))](value)
    for context in (LOCAL, REMOTE):
        assert _narrowing(arguments, context) != "no", arguments
        assert not _allows(arguments, context), arguments


def _check_path(text: str) -> None:
    """A text as servers open it: as it is, percent-decoded, and relative to the working directory."""
    for opened in (text, unquote(text)):
        if "\0" in opened or len(text) > 1_000:
            continue
        path = posixpath.normpath(posixpath.join(CWD, opened))
        path = path.replace("//", "/", 1) if path.startswith("//") else path
        if path == "/etc" or path.startswith("/etc/"):
            assert _narrowing({"path": text}, LOCAL) != "no", text
        if not path.startswith(f"{CWD}/"):
            assert not _allows({"path": text}, LOCAL), text


def _check_any(content: bytes) -> None:
    """Any arguments: they are read within the limits, and a rule that allows them sees no denied path."""
    try:
        given: Any = json.loads(content)
    except (ValueError, RecursionError):
        return
    arguments: dict[str, Any] = given if is_object(given) else {"path": given}
    for context in (LOCAL, REMOTE):
        values = read_arguments([DENIED, ALLOWED], arguments, context).values.get("path")
        if values is None:
            continue
        most = MAX_READ_SPELLINGS + MAX_VALUES + 200
        assert len(values.texts) <= 3 * most
        assert sum(map(len, values.texts)) <= 8 * MAX_READ_CHARACTERS
        assert len(values.paths) <= 2 * most + MAX_ENTRIES
        assert len(values.possible_paths) <= most * MAX_PIECES
        if _narrowing(arguments, context) == "yes":
            assert not _allows(arguments, context)


def _narrowing(arguments: dict[str, Any], context: PathContext) -> ArgumentMatch:
    return match(DENIED, read_arguments([DENIED], arguments, context), narrows=True)


def _allows(arguments: dict[str, Any], context: PathContext) -> bool:
    return match(ALLOWED, read_arguments([ALLOWED], arguments, context), narrows=False) == "yes"
