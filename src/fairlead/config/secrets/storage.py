"""Storage of secrets moved out of entries: in the keyring or a private file, with a reference in their place.

The name of a secret ends with a digest of the configuration file it was made for, and random characters: two
files with servers of one id never share a secret, none is ever overwritten, and the name says with which
file's entry a secret may be deleted.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.config.document.files import write_atomic
from fairlead.config.merge import FieldPath
from fairlead.config.paths import config_folder, home_folder
from fairlead.config.secrets import keyring
from fairlead.config.secrets.redaction import literal_secrets, secret_parts
from fairlead.config.secrets.references import SecretReference, references, strings
from fairlead.config.untyped import value_at

SERVICE = "fairlead"

_OF_FILE = re.compile(r"\.(?P<file>[0-9a-f]{12})-[0-9a-f]{16}\Z")
"""End of a secret's name. Those of the first releases lack it: they are read, and never deleted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSecret:
    """Secret that was moved out of an entry, and its reference."""

    field: str
    reference: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgottenSecrets:
    """Secrets of a removed entry, by reference: deleted or left."""

    deleted: list[str]
    kept: list[str]
    """Not known to be of the entry's file alone: of an earlier release, or made for another file."""


def stash_secrets(
    server_id: str, entry: dict[str, Any], env: Mapping[str, str], *, file: Path
) -> tuple[dict[str, Any], list[StoredSecret]]:
    """Move the plain-text secrets of an entry into the keyring or a file, leaving references.

    Args:
        server_id: The id of the server.
        entry: The entry; it is not changed.
        env: The environment with the paths of files.
        file: The configuration file that the entry is for.
    """
    result = deepcopy(entry)
    moved: list[StoredSecret] = []
    try:
        for path in literal_secrets(entry):
            text = value_at(entry, path)
            if references(text):
                continue
            parts = secret_parts(entry, path)
            for number, secret in enumerate(parts):
                name = _name(server_id, path, number if len(parts) > 1 else None, file)
                reference = stash(name, secret, env)
                text = text.replace(secret, reference)
                moved.append(StoredSecret(field=".".join(map(str, path)), reference=reference))
            value_at(result, path[:-1])[path[-1]] = text
    except BaseException:
        discard(moved)
        raise
    return result, moved


def _name(server_id: str, path: FieldPath, number: int | None, file: Path) -> str:
    """Name of a secret: its header or variable, else its path in the entry; and its file."""
    place = ".".join(map(str, path)) if path[0] in ("args", "headers_helper", "url") else str(path[-1])
    name = f"{server_id}.{place}" if number is None else f"{server_id}.{place}.{number}"
    return f"{name}.{_file_digest(file)}-{secrets.token_hex(8)}"


def input_name(server_id: str, input_id: str, file: Path) -> str:
    """Name for a secret that another agent would prompt for: the same at each import.

    Args:
        server_id: The server it is for.
        input_id: The agent's name for it.
        file: The configuration file that the entry is for.
    """
    bound = hashlib.sha256("\0".join((server_id, input_id)).encode()).hexdigest()[:16]
    return f"{server_id}.{input_id}.{_file_digest(file)}-{bound}"


def _file_digest(file: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:12]


def forget_secrets(
    file: Path, references_left: Collection[str], entry: dict[str, Any], env: Mapping[str, str]
) -> ForgottenSecrets:
    """Delete the stored secrets of a removed entry.

    Only a secret that was made for this very file is deleted: other projects' files cannot be searched for
    references to one that may be theirs.

    Args:
        file: The configuration file that had the entry.
        references_left: References that other entries still use, and whose secrets stay.
        entry: The entry as it was in the file.
        env: The environment with the paths of files.
    """
    named = {str(reference): reference for _, text in strings(entry) for reference in references(text)}
    result = ForgottenSecrets(deleted=[], kept=[])
    for shown, reference in named.items():
        if shown in references_left or not _is_ours(reference, env):
            continue
        if not _was_made_for(reference, file):
            result.kept.append(shown)
        elif _delete(reference):
            result.deleted.append(shown)
    return result


def discard(stashed: Iterable[StoredSecret]) -> None:
    """Delete secrets that were just stored for an entry that could not be written."""
    for secret in stashed:
        for reference in references(secret.reference):
            _delete(reference)


def _was_made_for(reference: SecretReference, file: Path) -> bool:
    made = _OF_FILE.search(reference.name)
    return made is not None and made["file"] == _file_digest(file)


def _is_ours(reference: SecretReference, env: Mapping[str, str]) -> bool:
    """Whether `stash` stored this secret, rather than the user."""
    if reference.kind == "keyring":
        return reference.name.startswith(f"{SERVICE}/")
    return reference.kind == "file" and _secret_file(reference).parent == config_folder(env) / "secrets"


def _secret_file(reference: SecretReference) -> Path:
    return Path(os.path.abspath(os.path.expanduser(reference.name)))


def _delete(reference: SecretReference) -> bool:
    if reference.kind == "keyring":
        keyring.delete(SERVICE, reference.name.removeprefix(f"{SERVICE}/"))
        return True
    try:
        _secret_file(reference).unlink()
    except FileNotFoundError:
        return False
    return True


def stash(name: str, secret: str, env: Mapping[str, str]) -> str:
    """Store a secret: in the keyring, or where there is none in a file only the user can read."""
    if keyring.put(SERVICE, name, secret):
        return f"${{keyring:{SERVICE}/{name}}}"
    file = secret_file(name, env)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(file, secret, mode=0o600)
    return file_reference(file, env)


def secret_file(name: str, env: Mapping[str, str]) -> Path:
    """File that holds a secret where there is no keyring."""
    return config_folder(env) / "secrets" / re.sub(r"[^A-Za-z0-9._-]", "_", name)


def file_reference(file: Path, env: Mapping[str, str]) -> str:
    """Reference `${file:…}`, with `~` for the user's home."""
    home = home_folder(env)
    shown = f"~{os.sep}{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
    return f"${{file:{shown}}}"
