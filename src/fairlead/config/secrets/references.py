"""References to secrets: `${VAR}`, `${VAR:-default}`, `${file:path}`, `${keyring:service/user}`.

`$${` is a literal `${`. A configuration holds references; they are resolved only when a connection needs
them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from fairlead.config.document.files import read_text
from fairlead.config.paths import expand_home
from fairlead.config.secrets import keyring
from fairlead.errors import ConfigUnreadable, SecretUnavailable

FieldPath = tuple[str | int, ...]

MAX_SECRET_BYTES = 64 * 1024
FORMS = "`${VAR}`, `${VAR:-default}`, `${file:path}` and `${keyring:service/user}`"

_TOKEN = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_KINDS = ("file", "keyring")


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretReference:
    """One `${…}` in a string."""

    kind: Literal["env", "file", "keyring"]
    name: str
    default: str | None = None

    def __str__(self) -> str:
        if self.kind != "env":
            return f"${{{self.kind}:{self.name}}}"
        return f"${{{self.name}}}" if self.default is None else f"${{{self.name}:-{self.default}}}"


def split(text: str) -> list[str | SecretReference]:
    """Split a string into literal text and references. Raises `ValueError` for a malformed one."""
    pieces: list[str | SecretReference] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        if match[0] == "$${":
            pieces.append("${")
        elif match[1] is None:
            raise ValueError("`${` without its `}`; write `$${` for a literal `${`")
        else:
            pieces.append(_reference(match[1]))
    pieces.append(text[end:])
    return [piece for piece in pieces if piece]


def _reference(inner: str) -> SecretReference:
    if variable := _VARIABLE.fullmatch(inner):
        return SecretReference(kind="env", name=variable[1], default=variable[2])
    kind, colon, name = inner.partition(":")
    if colon and kind == "env":
        raise ValueError(f"write `${{{name}}}` for an environment variable")
    if not colon or kind not in _KINDS:
        raise ValueError(f"not a reference: there are {FORMS}")
    if not name or (kind == "keyring" and not all(name.rpartition("/")[::2])):
        raise ValueError(f"`${{{kind}:…}}` needs a {'path' if kind == 'file' else 'service and a user'}")
    return SecretReference(kind="file" if kind == "file" else "keyring", name=name)


def references(text: str) -> list[SecretReference]:
    """References in a string; none where it is malformed (loading reports that)."""
    if "${" not in text:
        return []
    try:
        return [piece for piece in split(text) if isinstance(piece, SecretReference)]
    except ValueError:
        return []


def strings(value: object, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """Every string inside a value, with its path, in document order."""
    waiting: list[tuple[FieldPath, object]] = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            members = cast("dict[str, object]", value)
            waiting += [((*path, key), members[key]) for key in reversed(members)]
        elif isinstance(value, list | tuple):
            items = cast("list[object]", value)
            waiting += [((*path, index), items[index]) for index in range(len(items) - 1, -1, -1)]


def has_references(value: object) -> bool:
    """Whether there is a `${` in any string inside a value."""
    waiting: list[object] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if "${" in value:
                return True
        elif isinstance(value, dict):
            waiting += cast("dict[str, object]", value).values()
        elif isinstance(value, list | tuple):
            waiting += cast("list[object]", value)
    return False


def reference_faults(document: Mapping[str, object]) -> Iterator[tuple[FieldPath, str, str | None]]:
    """Every malformed reference in a document: path, message, hint."""
    for path, text in strings(dict(document)):
        if "${" in text:
            try:
                split(text)
            except ValueError as exc:
                yield path, str(exc), None


def missing_variables(entry: object, env: Mapping[str, str]) -> Iterator[tuple[FieldPath, str]]:
    """Every reference to an environment variable that is not set and has no default."""
    for path, text in strings(entry):
        for reference in references(text):
            if reference.kind == "env" and reference.default is None and reference.name not in env:
                yield path, reference.name


def resolve(text: str, *, env: Mapping[str, str], base: Path) -> str:
    """Replace every reference (`${env:…}`, `${file:…}`, `${keyring:…}`) in a string by its value.

    Args:
        text: The string.
        env: The environment.
        base: The folder that paths are relative to.

    Raises:
        SecretUnavailable: A reference has no value, or is not valid.
    """
    if "${" not in text:
        return text
    look_up: dict[str, Callable[[SecretReference], str]] = {
        "env": lambda reference: _from_environment(reference, env),
        "file": lambda reference: _from_file(reference, base),
        "keyring": _from_keyring,
    }
    try:
        pieces = split(text)
    except ValueError as exc:
        raise SecretUnavailable(str(exc)) from None
    return "".join(piece if isinstance(piece, str) else look_up[piece.kind](piece) for piece in pieces)


def resolve_all(value: Any, *, env: Mapping[str, str], base: Path, path: str = "") -> Any:  # noqa: ANN401
    """Resolve every string inside a value. An error names its field."""
    if isinstance(value, str):
        try:
            return resolve(value, env=env, base=base)
        except SecretUnavailable as exc:
            raise SecretUnavailable(f"{path}: {exc}" if path else str(exc), hint=exc.hint) from exc
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: resolve_all(item, env=env, base=base, path=f"{path}.{key}" if path else key)
            for key, item in fields.items()
        }
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return [resolve_all(item, env=env, base=base, path=f"{path}[{n}]") for n, item in enumerate(items)]
    return value


def _from_environment(reference: SecretReference, env: Mapping[str, str]) -> str:
    value = env.get(reference.name, reference.default)
    if value is None:
        raise SecretUnavailable(
            f"the environment variable `{reference.name}` is not set", hint=f"run `export {reference.name}=…`"
        )
    return value


def _from_file(reference: SecretReference, base: Path) -> str:
    try:
        path = base / expand_home(reference.name)
        return read_text(path, limit=MAX_SECRET_BYTES).rstrip("\r\n")
    except RuntimeError as exc:  # no home folder to expand `~` with
        raise SecretUnavailable(f"{reference}: {exc}") from exc
    except ConfigUnreadable as exc:
        raise SecretUnavailable(f"{reference}: {exc}", hint=exc.hint) from exc


def _from_keyring(reference: SecretReference) -> str:
    service, _, user = reference.name.rpartition("/")
    try:
        value = keyring.get(service, user)
    except SecretUnavailable as exc:
        raise SecretUnavailable(f"{reference}: {exc}") from exc
    if value is None:
        hint = f"run `keyring set {service} {user}`"
        raise SecretUnavailable(f"{reference}: the keyring has no such entry", hint=hint)
    return value
