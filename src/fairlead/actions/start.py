"""First configuration file of a project or the user, and the servers of agents that it can import."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.actions.imports import find_sources, plan_import
from fairlead.config.edit_scope import EditTarget
from fairlead.config.json_schema import SCHEMA_FILE
from fairlead.config.paths import FILE_NAME, MachinePaths
from fairlead.config.sources import find_project_file
from fairlead.errors import ConfigError, ConfigUnwritable

SCHEMA_NAME = SCHEMA_FILE.name
_FIRST_FILE = '{{\n{schema}  "version": 1,\n  "servers": {{}}\n}}\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundServers:
    """Servers of another agent that can be imported."""

    agent: str
    file: Path
    server_ids: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedConfig:
    """A configuration file that was written."""

    target: EditTarget
    schema: Path | None
    """The JSON Schema for editors, in the same folder."""
    hides: Path | None
    """The file that described the project until now, which is not read any more."""
    found: list[FoundServers] = field(default_factory=list[FoundServers])


def start_config(target: EditTarget, place: MachinePaths, *, with_schema: bool = True) -> StartedConfig:
    """Write a first configuration file. None is ever overwritten.

    Args:
        target: The file.
        place: The machine and the folder.
        with_schema: Also write the JSON Schema, for editors, and refer to it.

    Raises:
        ConfigError: There is a file already.
        ConfigUnwritable: It cannot be written.
    """
    path = target.path
    before = find_project_file(place) if target.scope == "project" else None
    schema = path.with_name(SCHEMA_NAME) if with_schema else None
    line = f'  "$schema": "./{SCHEMA_NAME}",\n' if with_schema else ""
    _write_new(path, _FIRST_FILE.format(schema=line))
    if schema is not None and not schema.exists():
        _write_new(schema, SCHEMA_FILE.read_text(encoding="utf-8"))
    return StartedConfig(
        target=target,
        schema=schema,
        hides=before.path if before is not None and before.path != path else None,
        found=find_servers(target, place),
    )


def find_servers(target: EditTarget, place: MachinePaths) -> list[FoundServers]:
    """The servers of other agents on this machine that the file does not have. Contacts none."""
    found: list[FoundServers] = []
    for dialect, location in find_sources(None, None, place):
        plan = plan_import([(dialect, location)], place, lambda _: target, replace=False)
        server_ids = [candidate.server_id for candidate in plan.candidates if candidate.action == "add"]
        if server_ids:
            found.append(FoundServers(agent=dialect.title, file=location.path, server_ids=server_ids))
    return found


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as exc:
        hint = "`fairlead list` shows what is in it, `fairlead add` adds a server"
        raise ConfigError(f"there is a {FILE_NAME} already: {path}", hint=hint) from exc
    except OSError as exc:
        raise ConfigUnwritable(f"cannot write {path}: {exc.strerror}", hint="check its folder") from exc
