"""Edit configuration files, and have what was written take effect: consent, reload, secrets."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.canonical import CanonicalDocument, canonicalize
from fairlead.config.consent import ConsentKey
from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, remove_value, set_value
from fairlead.config.document.files import read_text
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget, edit_target, entry_in, entry_to_edit
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret, discard, forget_secrets
from fairlead.config.sources import builtin_entries, place_of
from fairlead.config.untyped import as_object
from fairlead.config.validate import check
from fairlead.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigUnwritable,
    Problem,
    Remedy,
    StoreError,
    UnknownServer,
)


def servers_in(text: str, target: EditTarget) -> dict[str, Any]:
    """The entries of servers in a file."""
    return as_object(as_object(jsonc.parse(text, file=str(target.path)).data).get("servers"))


def lifted_in(text: str) -> dict[str, Any]:
    """The entries of servers below `mcp`, the other place for them in a file."""
    return as_object(as_object(as_object(jsonc.parse(text).data).get("mcp")).get("servers"))


def without_entry(text: str, server_id: str) -> str:
    """A file's text without the entry of a server, in either place."""
    return remove_value(remove_value(text, ("servers", server_id)), ("mcp", "servers", server_id))


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenEntry:
    """The entry of a server in one file, of whatever shape, in Fairlead's own format."""

    server_id: str
    entry: Any
    document: CanonicalDocument

    def path_of(self, *fields: str) -> tuple[str, ...]:
        """Where the entry, or a field of it, stands or would stand in the file."""
        return tuple(map(str, self.document.original_path(("servers", self.server_id, *fields))))

    @property
    def is_literal(self) -> bool:
        """Whether its texts mean themselves, as below `mcp`: it can refer to no secret."""
        return self.path_of()[0] == "mcp"

    @property
    def is_nested(self) -> bool:
        """Whether its target is in an object, `transport`, which has to say of what type it is."""
        return self.path_of("transport")[-1] == "type"


def written_entries(text: str, target: EditTarget) -> dict[str, WrittenEntry]:
    """The entries of servers in a file's text, wherever it has them, by server id."""
    document = canonicalize(as_object(jsonc.parse(text, file=str(target.path)).data))
    return {
        server_id: WrittenEntry(server_id=server_id, entry=entry, document=document)
        for server_id, entry in as_object(document.data.get("servers")).items()
    }


def existing_servers(target: EditTarget) -> dict[str, Any]:
    """The entries of servers in a file, in Fairlead's own format; none where there is no file."""
    if not target.path.exists():
        return {}
    written = written_entries(read_text(target.path), target)
    return {server_id: found.entry for server_id, found in written.items()}


def require_free(server_ids: Collection[str], target: EditTarget, *, replace: bool) -> None:
    """Refuse ids that a file has already, or that built-in servers have, unless they may be replaced."""
    if replace:
        return
    _refuse_taken(server_ids, existing_servers(target), target)
    for server_id in server_ids:
        if server_id in builtin_entries(place_of(os.environ, Path.cwd())):
            raise ConfigError(
                f"a built-in server has the id `{server_id}`",
                hint="use another id, or put this one in its place",
                field="id",
                remedy=Remedy(input="replace"),
            )


def _refuse_taken(server_ids: Iterable[str], taken: Mapping[str, Any], target: EditTarget) -> None:
    for server_id in server_ids:
        if server_id in taken:
            raise ConfigError(
                f"there is a server `{server_id}` in {target.path} already",
                hint="use another id, or overwrite it",
                field="id",
                remedy=Remedy(input="replace"),
            )


def write_entries(
    target: EditTarget,
    entries: Mapping[str, dict[str, Any]],
    *,
    replace: bool,
    bundles: Mapping[str, dict[str, Any]] | None = None,
    stashed: Iterable[StoredSecret] = (),
) -> list[dict[str, Any]]:
    """Put entries into a file, all or none. An id that is there already needs `replace`.

    If they cannot be written, the secrets that were put away for them (`stashed`) are deleted.

    Returns:
        The entries that were replaced.
    """
    replaced: list[dict[str, Any]] = []

    def change(text: str) -> str:
        lifted = lifted_in(text)
        present = servers_in(text, target)
        if not replace:
            _refuse_taken(entries, {**lifted, **present}, target)
        replaced[:] = [as_object(present[server_id]) for server_id in entries if server_id in present]
        for server_id, entry in entries.items():
            if server_id in lifted:  # a server of both places counts in neither
                text = without_entry(text, server_id)
            text = set_value(text, ("servers", server_id), entry)
        for name, bundle in (bundles or {}).items():
            text = set_value(text, ("bundles", name), bundle)
        return text

    try:
        edit_file(target.path, change, create=EMPTY_FILE)
    except BaseException:
        discard(stashed)
        raise
    return replaced


def require_sound(context: ActionContext, document: Mapping[str, Any]) -> None:
    """Refuse what loading would refuse, before it is written. Problems are placed where the user wrote it."""
    faults = check(dict(document)).faults
    if faults:
        place = f"<{context.surface}>"
        problems = (Problem(message=f.message, hint=f.hint, path=f.path, file=place) for f in faults)
        raise ConfigInvalid(*problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class EditOutcome:
    """Outcome of an edit of a configuration file."""

    loaded: LoadedConfig | None
    """The configuration after it; None where it does not load any more."""
    failure: ConfigError | None = None
    """Why it does not load."""
    problems: list[Problem] = field(default_factory=list[Problem])
    """What is wrong with what was written."""
    notices: list[Notice] = field(default_factory=list[Notice])
    created: Path | None = None
    """The project's file that did not exist before: from now on this folder is a project."""

    def require_loaded(self) -> LoadedConfig:
        """The configuration after the edit. Raises where it does not load."""
        if self.loaded is None:
            raise self.failure or ConfigError("the configuration does not load")
        return self.loaded


def record_edit(
    context: ActionContext, edit: EditOutcome, kind: str, server_id: str, **details: object
) -> None:
    """Write an audit record of an edit; `edit` gets the notice where that is not possible."""
    # The configuration after the edit says where the store is; one that does not load says nothing.
    if edit.loaded is None:
        lost = "this is not in the audit log, since the configuration does not load"
        edit.notices.append(Notice(message=lost))
        return
    edit.notices.extend(replace(context, before=edit.loaded).record(kind, server_id, **details))


def settle(
    context: ActionContext,
    target: EditTarget,
    server_ids: Iterable[str],
    *,
    approved: Collection[str] | None = None,
    is_new: bool = False,
) -> EditOutcome:
    """Apply an edit: reload, and record consent for what the user wrote.

    Args:
        context: Who edited.
        target: The file that was edited.
        server_ids: The servers whose entries were written.
        approved: The servers whose entries were approved before an edit of a part of them; None where the
            user wrote the whole entries. An edit of a part does not approve the rest: `fairlead enable x` is
            no decision about what `x` runs.
        is_new: Did the file not exist before the edit?
    """
    created = target.path if is_new and target.scope == "project" else None
    try:
        loaded = context.reload()
    except ConfigError as exc:
        return EditOutcome(loaded=None, failure=exc, created=created)
    context = replace(context, before=loaded)
    written = [loaded.servers[server_id] for server_id in server_ids if server_id in loaded.servers]
    notices: list[Notice] = []
    if approved is None:
        from fairlead.policy.upgrade import record_defaults

        try:
            record_defaults(context.store, written)
        except StoreError as exc:
            notices.append(Notice(message=f"calls of its tools will need approval: {exc}", hint=exc.hint))
    if target.scope == "project":
        known = [server for server in written if approved is None or server.server_id in approved]
        notices += _consent(context, [key for server in known if (key := server.consent)])
    problems = [problem for server in written for problem in server.problems]
    problems += [problem for problem in loaded.problems if problem.path[:1] == ("bundles",)]
    notices += context.tell_gateways()
    return EditOutcome(loaded=loaded, problems=problems, notices=notices, created=created)


# Consent.


def approve_server(context: ActionContext, server_id: str, key: ConsentKey) -> list[Notice]:
    """Record the user's consent that a project's server runs.

    Args:
        context: Who consents.
        server_id: The server.
        key: What the user was shown, even if the files changed meanwhile.

    Returns:
        What the user should know about it.
    """
    from fairlead.policy.consent import record_consent

    record_consent(context.store, [key])
    return [*context.tell_gateways(), *context.record("approve", server_id)]


def approved_servers(context: ActionContext, server_ids: Iterable[str]) -> set[str]:
    """The servers that have consent as they are now: called before their entries are edited."""
    from fairlead.policy.consent import has_consent

    servers = context.loaded.servers
    keys = {name: servers[name].consent for name in server_ids if name in servers}
    return {name for name, key in keys.items() if key is None or has_consent(context.store, key)}


def _consent(context: ActionContext, keys: list[ConsentKey]) -> list[Notice]:
    if not keys:
        return []
    from fairlead.policy.consent import record_consent

    try:
        record_consent(context.store, keys)
    except StoreError as exc:
        message = f"your consent could not be recorded, so you will be prompted for it: {exc}"
        return [Notice(message=message, hint=exc.hint)]
    return []


# Where an edit goes, and what it leaves behind.


def edit_choices(context: ActionContext, server: LoadedServer, fields: Sequence[str]) -> list[EditTarget]:
    """The files that an edit of fields of a server can go to: the one whose entry decides, then the others.

    Another one only where there is a project; none where no file that Fairlead edits has the entry.
    """
    layers = context.loaded.layers
    try:
        found = [entry_to_edit(server, fields, layers).target]
    except ConfigUnwritable:
        return []
    if any(layer.name == "project" for layer in layers):
        for scope in ("project", "user"):
            try:
                target = context.chosen_target(scope)
                assert target is not None, "a scope is named"
                entry_in(server, target)
            except (ConfigError, UnknownServer):
                continue  # it cannot be edited there, and so it is not offered
            found += [target] if target not in found else []
    return found


def add_choices(context: ActionContext) -> list[EditTarget]:
    """The files that a new entry can go to: the project's, where there is one, and the user's.

    A file given by path replaces both. A project's file in another agent's format is not among them.
    """
    layers = context.loaded.layers
    given = next((layer.path for layer in layers if layer.name == "file"), None)
    place = place_of(context.env, Path.cwd())
    if given is not None:
        return [edit_target("user", place, given)]
    user = edit_target("user", place)
    try:
        project = edit_target("project", place)
    except ConfigError:
        return [user]
    has_project = any(layer.name == "project" for layer in layers)
    return [project, user] if has_project else [user, project]


def precedence(origin: object) -> str:
    """Clause of a message: a setting elsewhere takes precedence over an edit."""
    return f"{origin} sets another value, which takes precedence"


def forget_entry_secrets(
    target: EditTarget, gone: dict[str, Any], after: LoadedConfig | None
) -> ForgottenSecrets | None:
    """Delete the stored secrets of an entry that left a file, unless an entry of any layer refers to them.

    Returns:
        What was deleted and kept; None where the configuration does not load, and it is not known what other
        entries need.
    """
    if after is None:
        return None
    definitions = (server.definition for server in after.servers.values())
    entries = (part.entry for each in definitions for part in (*each.parts, *each.replaced))
    left = {str(found) for entry in entries for _, text in strings(entry) for found in references(text)}
    return forget_secrets(target.path, left, gone, os.environ)
