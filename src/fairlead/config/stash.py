"""Put a secret where secrets belong, and give back the reference that finds it again."""

import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from fairlead.config import keyrings
from fairlead.config.files import write_atomic
from fairlead.config.merge import FieldPath
from fairlead.config.paths import config_folder, home_folder
from fairlead.config.redact import literal_secrets
from fairlead.config.secrets import references
from fairlead.config.shapes import value_at

SERVICE = "fairlead"
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token)\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stashed:
    """A secret that was moved out of an entry, and where to."""

    field: str
    reference: str


def stash_secrets(
    server_id: str, entry: dict[str, Any], env: Mapping[str, str]
) -> tuple[dict[str, Any], list[Stashed]]:
    """Move the plain-text secrets of an entry's headers, variables and client into the keyring or a file."""
    result = deepcopy(entry)
    moved: list[Stashed] = []
    for path in literal_secrets(entry):
        if path[0] in ("env", "headers", "oauth") and not references(value_at(entry, path)):
            reference = _stash_value(server_id, path, value_at(entry, path), env)
            value_at(result, path[:-1])[path[-1]] = reference
            moved.append(Stashed(field=".".join(map(str, path)), reference=reference))
    return result, moved


def _stash_value(server_id: str, path: FieldPath, value: str, env: Mapping[str, str]) -> str:
    scheme = _SCHEME.match(value)
    prefix = scheme[0] if scheme else ""
    return prefix + stash(f"{server_id}.{path[-1]}", value[len(prefix) :], env)


def stash(name: str, secret: str, env: Mapping[str, str]) -> str:
    """Keep a secret under a name: in the keyring, or where there is none in a file only the user can read."""
    if keyrings.put(SERVICE, name, secret):
        return f"${{keyring:{SERVICE}/{name}}}"
    folder = config_folder(env) / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)
    write_atomic(file, secret, mode=0o600)
    home = home_folder(env)
    shown = f"~{os.sep}{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
    return f"${{file:{shown}}}"
