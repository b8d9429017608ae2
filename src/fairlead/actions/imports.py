"""Import servers from other agents' files: find the files, plan what becomes of each server, write them."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from fairlead.actions.config_edits import existing_servers
from fairlead.actions.context import ActionContext
from fairlead.actions.entries import AddedServers, add_servers
from fairlead.config.command_lines import command_line
from fairlead.config.dialects import registry
from fairlead.config.dialects import syntax as texts
from fairlead.config.dialects.dialect import ConfigDialect, ConversionNote, ImportedDocument, Location
from fairlead.config.dialects.mcp_remote import native_remote
from fairlead.config.document.files import read_text
from fairlead.config.edit_scope import EditTarget, edit_target
from fairlead.config.load import LoadedConfig, load_config
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets import keyring
from fairlead.config.secrets.redaction import literal_secrets
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import (
    SERVICE,
    StoredSecret,
    discard,
    file_reference,
    input_name,
    secret_file,
    stash_secrets,
)
from fairlead.config.sources import builtin_entries
from fairlead.config.untyped import value_at
from fairlead.config.validate import check
from fairlead.errors import ConfigError, ConfigInvalid, FairleadError, Remedy

MAX_FOREIGN_BYTES: Final = 64 * 1024 * 1024
"""Some agents keep their whole history in the same file."""

ImportAction = Literal["add", "replace", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One server found in another agent's file, and the plan for it."""

    server_id: str
    entry: dict[str, Any]
    source: Path
    target: EditTarget
    action: ImportAction
    reason: str = ""
    """Why it is left out."""
    remedy: Remedy | None = None
    """The input with which it would be taken over after all."""

    @property
    def native(self) -> "Candidate | None":
        """The same server reached by URL, where its command is `npx mcp-remote URL`; else None."""
        entry = native_remote(self.entry) if self.action != "skip" else None
        return replace(self, entry=entry) if entry is not None else None

    @property
    def shown_target(self) -> str:
        """The command or URL of the server, less secrets."""
        loaded = load_config(overrides={"servers": {self.server_id: self.entry}}, env={}, cwd="/")
        return loaded.servers[self.server_id].target

    @property
    def digest(self) -> str:
        """Digest of what a user was shown, to notice that the files changed since."""
        shown = [self.server_id, self.entry, str(self.source), str(self.target.path), self.action]
        return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPlan:
    """Everything an import would do."""

    candidates: list[Candidate] = field(default_factory=list[Candidate])
    bundles: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])
    failures: list[tuple[str, FairleadError]] = field(default_factory=list[tuple[str, FairleadError]])
    """The agents whose files could not be read, and why."""


# Planning.


def find_sources(
    file: Path | None, agent: str | None, place: MachinePaths
) -> list[tuple[ConfigDialect, Location]]:
    """The files to import from: the one that is given, else those that an agent keeps, else all agents'.

    Raises:
        ConfigError: The file is in no known format, or there is no such agent.
    """
    named = registry.by_name(agent) if agent else None
    if file is None:
        return [(dialect, location) for dialect, location in registry.find(place) if named in (None, dialect)]
    if named is None and registry.is_agent(str(file)) and not file.exists():
        raise ConfigError(
            f"there is no file `{file}` here",
            hint=f"run `{command_line('import', options=('--from', str(file)))}` for that agent's servers",
        )
    dialect = named or _recognize(file)
    inside = file.absolute().is_relative_to(place.cwd)
    return [(dialect, Location(path=file, scope="project" if inside else "user"))]


def _recognize(file: Path) -> ConfigDialect:
    text = read_text(file, limit=MAX_FOREIGN_BYTES, keep_mark=True)
    syntax = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}.get(file.suffix, "jsonc")
    data, _ = texts.load_foreign(text, syntax, str(file))  # pyright: ignore[reportArgumentType]
    found = registry.detect(data)
    if found is None:
        names = ", ".join(dialect.name for dialect in registry.ALL)
        raise ConfigError(
            f"{file} does not look like any format known here",
            hint=f"say which of them it is ({names})",
            remedy=Remedy(input="from"),
        )
    return found


def natural_target(loaded: LoadedConfig, place: MachinePaths, location: Location) -> EditTarget:
    """The file that the servers of a location go to: the project's for a project's, else the user's.

    A file given by path takes all of them.
    """
    given = next((layer.path for layer in loaded.layers if layer.name == "file"), None)
    return edit_target(location.scope, place, given, take_over=True)


def plan_import(
    sources: Iterable[tuple[ConfigDialect, Location]],
    place: MachinePaths,
    target_of: Callable[[Location], EditTarget],
    *,
    replace: bool,
) -> ImportPlan:
    """Read files, and plan the import of each server. Writes nothing.

    Args:
        sources: The files, each with its format.
        place: The machine and the folder.
        target_of: The file that the servers of a location go to.
        replace: May servers of the same id be replaced?
    """
    plan = ImportPlan()
    for dialect, location in sources:
        try:
            text = read_text(location.path, limit=MAX_FOREIGN_BYTES, keep_mark=True)
            data, repeated = texts.load_foreign(text, dialect.syntax, str(location.path))
            imported = dialect.read(data, place)
        except FairleadError as exc:
            plan.failures.append((dialect.title, exc))
            continue
        if repeated:
            plan.failures.append((dialect.title, ConfigInvalid(*repeated)))
        target = target_of(location)
        if os.path.realpath(location.path) == os.path.realpath(target.path):
            # Its references would be taken for text, and the secrets they name be deleted with them.
            own = f"{_at_home(location.path, place)} is the file that servers would be taken over into"
            plan.failures.append((dialect.title, ConfigError(own, hint="Fairlead reads it as it is")))
            continue
        _add_candidates(plan, _bind_inputs(imported, target), location, place, target, may_replace=replace)
    return plan


def _add_candidates(
    plan: ImportPlan,
    imported: ImportedDocument,
    location: Location,
    place: MachinePaths,
    target: EditTarget,
    *,
    may_replace: bool,
) -> None:
    # A note about a whole document says which, since several are read.
    plan.notes.extend(
        note
        if note.server_id
        else replace(note, message=f"{note.message} (in {_at_home(location.path, place)})")
        for note in imported.notes
    )
    plan.bundles.update(imported.bundles)
    taken = existing_servers(target)
    planned = {each.server_id: each for each in plan.candidates if each.target == target}
    for server_id, entry in imported.servers.items():
        action, reason, remedy = _judge(server_id, entry, taken, replace=may_replace)
        if action != "skip" and (other := planned.get(server_id)) is not None:
            same = "the same as in" if other.entry == entry else "another one of that id is in"
            action, reason, remedy = "skip", f"{same} {_at_home(other.source, place)}", None
        if action == "add" and server_id in builtin_entries(place) and not may_replace:
            action, reason = "skip", "a built-in server has that id"
            remedy = Remedy(input="replace")
        if action != "skip" and target.scope == "project" and _needs_private_file(entry):
            action, reason = "skip", "has a secret in its arguments, which a project's file may not"
            remedy = Remedy(input="scope", value="user")
        plan.candidates.append(
            Candidate(
                server_id=server_id,
                entry=entry,
                source=location.path,
                target=target,
                action=action,
                reason=reason,
                remedy=remedy,
            )
        )


def _bind_inputs(imported: ImportedDocument, target: EditTarget) -> ImportedDocument:
    """Refer to the secrets that an agent asks its user for by names of their own, and say where to put them.

    A name is bound to file, server and input: another import with an input of the same id never gets a secret
    that was meant for this one. Where there is no keyring, private files take its place.
    """
    servers = deepcopy(imported.servers)
    notes = [note for note in imported.notes if "keyring set" not in note.message]
    has_keyring = keyring.is_available()
    for server_id, entry in servers.items():
        for path, text in strings(entry):
            for found in references(text):
                if found.kind != "keyring":
                    continue
                wanted = found.name.partition("/")[2]
                name = input_name(server_id, wanted, target.path)
                file = secret_file(name, os.environ)
                if has_keyring:
                    reference = f"${{keyring:{SERVICE}/{name}}}"
                    message = f"is in the keyring from now on; store it with `keyring set {SERVICE} {name}`"
                else:
                    reference = file_reference(file, os.environ)
                    message = f"there is no keyring here; write it into {file}, which only you may read"
                note = ConversionNote(server_id=server_id, field=wanted, message=message)
                notes += [note] if note not in notes else []
                text = text.replace(str(found), reference)
            value_at(entry, path[:-1])[path[-1]] = text
    return replace(imported, servers=servers, notes=notes)


def _needs_private_file(entry: dict[str, Any]) -> bool:
    """Would a secret in its arguments become a `${file:…}`, which a project's file may not have there?"""
    return any(path[0] == "args" for path in literal_secrets(entry)) and not keyring.is_available()


def _at_home(path: Path, place: MachinePaths) -> str:
    return f"~/{path.relative_to(place.home)}" if path.is_relative_to(place.home) else str(path)


def _judge(
    server_id: str, entry: dict[str, Any], taken: dict[str, Any], *, replace: bool
) -> tuple[ImportAction, str, Remedy | None]:
    faults = check({"servers": {server_id: entry}}).faults
    if faults:
        return "skip", f"{'.'.join(map(str, faults[0].path[2:]))} {faults[0].message}".strip(), None
    if server_id not in taken:
        return "add", "", None
    return ("replace", "", None) if replace else ("skip", "there already", Remedy(input="replace"))


# Writing.


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedFile:
    """Outcome of an import into one file."""

    target: EditTarget
    server_ids: list[str]
    stashed: list[tuple[str, StoredSecret]]
    """The secrets that were put away, each with its server."""
    added: AddedServers


def import_servers(
    context: ActionContext, plan: ImportPlan, wanted: Sequence[Candidate], *, replace: bool
) -> Iterable[ImportedFile]:
    """Write the chosen servers into their files, secrets as references, one file after another.

    Yields:
        What became of each file, once it is written.
    """
    for target in {candidate.target.path: candidate.target for candidate in wanted}.values():
        entries: dict[str, dict[str, Any]] = {}
        stashed: list[tuple[str, StoredSecret]] = []
        try:
            for candidate in (each for each in wanted if each.target == target):
                server_id = candidate.server_id
                entry, put_away = stash_secrets(server_id, candidate.entry, os.environ, file=target.path)
                entries[server_id] = entry
                stashed += [(server_id, secret) for secret in put_away]
        except BaseException:
            discard(secret for _, secret in stashed)  # no file names them, so nothing else would find them
            raise
        secrets = [secret for _, secret in stashed]
        added = add_servers(context, target, entries, replace=replace, bundles=plan.bundles, stashed=secrets)
        yield ImportedFile(target=target, server_ids=[*entries], stashed=stashed, added=added)
