"""Put a secret where secrets belong, and give back the reference that finds it again."""

import os
import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.config import keyrings
from fairlead.config.files import write_atomic
from fairlead.config.merge import FieldPath
from fairlead.config.paths import config_folder, home_folder
from fairlead.config.redact import literal_secrets, secret_parts
from fairlead.config.secrets import Reference, references, strings
from fairlead.config.shapes import value_at

SERVICE = "fairlead"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stashed:
    """A secret that was moved out of an entry, and where to."""

    field: str
    reference: str


def stash_secrets(
    server_id: str, entry: dict[str, Any], env: Mapping[str, str]
) -> tuple[dict[str, Any], list[Stashed]]:
    """Move the plain-text secrets of an entry into the keyring or a file, leaving references."""
    result = deepcopy(entry)
    moved: list[Stashed] = []
    for path in literal_secrets(entry):
        text = value_at(entry, path)
        if references(text):
            continue
        parts = secret_parts(entry, path)
        for number, secret in enumerate(parts):
            name = _name(server_id, path, number if len(parts) > 1 else None)
            reference = stash(name, secret, env)
            text = text.replace(secret, reference)
            moved.append(Stashed(field=".".join(map(str, path)), reference=reference))
        value_at(result, path[:-1])[path[-1]] = text
    return result, moved


def _name(server_id: str, path: FieldPath, number: int | None) -> str:
    """What a secret is kept under: by its header or variable, else by the place in the entry."""
    place = ".".join(map(str, path)) if path[0] in ("args", "headers_helper", "url") else str(path[-1])
    return f"{server_id}.{place}" if number is None else f"{server_id}.{place}.{number}"


def forget_secrets(
    references_left: Collection[str], entry: dict[str, Any], env: Mapping[str, str]
) -> list[str]:
    """Delete the secrets that were put away for an entry which is gone.

    Args:
        references_left: References that other entries still use, and whose secrets stay.
        entry: The entry as it stood in the file.
        env: The environment that says where the files are.

    Returns:
        The references whose secrets were deleted.
    """
    named = (reference for _, text in strings(entry) for reference in references(text))
    ours = (each for each in named if str(each) not in references_left and _is_ours(each, env))
    return [str(reference) for reference in ours if _delete(reference)]


def _is_ours(reference: Reference, env: Mapping[str, str]) -> bool:
    """Is this a secret that `stash` put away, rather than one the user keeps somewhere?"""
    if reference.kind == "keyring":
        return reference.name.startswith(f"{SERVICE}/")
    return reference.kind == "file" and _secret_file(reference).parent == config_folder(env) / "secrets"


def _secret_file(reference: Reference) -> Path:
    return Path(os.path.abspath(os.path.expanduser(reference.name)))


def _delete(reference: Reference) -> bool:
    if reference.kind == "keyring":
        keyrings.delete(SERVICE, reference.name.removeprefix(f"{SERVICE}/"))
        return True
    try:
        _secret_file(reference).unlink()
    except FileNotFoundError:
        return False
    return True


def stash(name: str, secret: str, env: Mapping[str, str]) -> str:
    """Keep a secret under a name: in the keyring, or where there is none in a file only the user can read."""
    if keyrings.put(SERVICE, name, secret):
        return f"${{keyring:{SERVICE}/{name}}}"
    file = secret_file(name, env)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(file, secret, mode=0o600)
    return file_reference(file, env)


def secret_file(name: str, env: Mapping[str, str]) -> Path:
    """The file that keeps a secret where there is no keyring."""
    return config_folder(env) / "secrets" / re.sub(r"[^A-Za-z0-9._-]", "_", name)


def file_reference(file: Path, env: Mapping[str, str]) -> str:
    """A `${file:…}` reference, with `~` for the user's home."""
    home = home_folder(env)
    shown = f"~{os.sep}{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
    return f"${{file:{shown}}}"
