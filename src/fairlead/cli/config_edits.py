"""Change configuration files for the commands that do, and tell the person what became of it.

Switch servers on and off, for `enable` and `disable`.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from fairlead.cli.options import load, target_file
from fairlead.cli.output import display_path, print_problems, say, warn
from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, set_value
from fairlead.config.document.files import read_text
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget, entry_to_switch
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import StoredSecret, discard, forget_secrets
from fairlead.config.sources import builtin_entries, place_of
from fairlead.config.untyped import as_object
from fairlead.config.validate import check
from fairlead.errors import ConfigError, ConfigInvalid, Problem, StoreError, UnknownServer
from fairlead.gateway.registry import reload_gateways


def servers_in(text: str, target: EditTarget) -> dict[str, Any]:
    """The entries a file has now."""
    return as_object(as_object(jsonc.parse(text, file=str(target.path)).data).get("servers"))


def existing_servers(target: EditTarget) -> dict[str, Any]:
    """The entries a file has now; none where there is no file."""
    return servers_in(read_text(target.path), target) if target.path.exists() else {}


def require_free(server_ids: Collection[str], target: EditTarget, *, replace: bool) -> None:
    """Refuse ids that a file has already, or that built-in servers have, unless they may be replaced."""
    if replace:
        return
    _refuse_taken(server_ids, existing_servers(target), target)
    for server_id in server_ids:
        if server_id in builtin_entries(place_of(os.environ, Path.cwd())):
            raise ConfigError(
                f"a built-in server has the id `{server_id}`",
                hint="use `--replace` to put this one in its place, or another id",
            )


def _refuse_taken(server_ids: Iterable[str], taken: Mapping[str, Any], target: EditTarget) -> None:
    for server_id in server_ids:
        if server_id in taken:
            raise ConfigError(
                f"there is a server `{server_id}` in {target.path} already",
                hint="use `--replace` to overwrite it, or another id",
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
        present = servers_in(text, target)
        if not replace:
            _refuse_taken(entries, present, target)
        replaced[:] = [as_object(present[server_id]) for server_id in entries if server_id in present]
        for server_id, entry in entries.items():
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


def forget_entry_secrets(target: EditTarget, gone: dict[str, Any], after: LoadedConfig | None) -> None:
    """Delete what was put away for an entry that left a file, unless an entry of any layer refers to it."""
    if after is None:  # it does not load, so it is not known what other entries need
        return
    definitions = (server.definition for server in after.servers.values())
    entries = (part.entry for each in definitions for part in (*each.parts, *each.replaced))
    left = {str(found) for entry in entries for _, text in strings(entry) for found in references(text)}
    forgotten = forget_secrets(target.path, left, gone, os.environ)
    for reference in forgotten.deleted:
        say(f"  deleted its secret {reference}")
    for reference in forgotten.kept:
        say(f"  kept its secret {reference}, which another file may use; delete it yourself if none does")


def require_sound(server_id: str, entry: dict[str, Any]) -> None:
    """Refuse an entry that loading would refuse, before anything is written."""
    faults = check({"servers": {server_id: entry}}).faults
    if faults:
        problems = (
            Problem(message=f.message, hint=f.hint, path=f.path, file="<command line>") for f in faults
        )
        raise ConfigInvalid(*problems)


def settle(
    ctx: click.Context,
    target: EditTarget,
    server_ids: Iterable[str],
    *,
    approved: Collection[str] | None = None,
) -> LoadedConfig | None:
    """After a change: record consent for what the user wrote, and show what is wrong with it.

    `approved` are the servers whose entries were approved before an edit of a part of them; None where the
    user wrote the whole entries.
    """
    try:
        loaded = load(ctx)
    except ConfigError as exc:
        warn(f"the file was written, but the configuration does not load: {exc}", exc.hint)
        return None
    accept(loaded, target, server_ids, approved=approved)
    for refusal in reload_gateways(os.environ):
        warn(refusal, "correct the configuration: the gateway takes it over then")
    return loaded


def approved_servers(loaded: LoadedConfig, server_ids: Iterable[str]) -> set[str]:
    """Which servers may start as they are now: to be asked before a part of their entries is edited."""
    from fairlead.policy.consent import has_consent

    store = store_file(os.environ, loaded.config.store.path)
    keys = {name: loaded.servers[name].consent for name in server_ids if name in loaded.servers}
    return {name for name, key in keys.items() if key is None or has_consent(store, key)}


def accept(
    loaded: LoadedConfig,
    target: EditTarget,
    server_ids: Iterable[str],
    *,
    approved: Collection[str] | None = None,
) -> None:
    """Record consent for what the user wrote, and show what is wrong with it.

    An edit of a part does not approve the rest: `fairlead enable x` says nothing about what `x` runs.
    """
    written = [loaded.servers[server_id] for server_id in server_ids if server_id in loaded.servers]
    if approved is None:
        _follow_defaults(loaded, written)
    if target.scope == "project":
        known = [server for server in written if approved is None or server.server_id in approved]
        keys = [key for server in known if (key := server.consent)]
        if keys:
            _record(loaded, keys)
    problems = [problem for server in written for problem in server.problems]
    problems += [problem for problem in loaded.problems if problem.path[:1] == ("bundles",)]
    if problems:
        say()
        print_problems(problems)


def _follow_defaults(loaded: LoadedConfig, written: list[LoadedServer]) -> None:
    """Have servers that the user just wrote go by the defaults of this release."""
    from fairlead.policy.upgrade import record_defaults

    try:
        record_defaults(store_file(os.environ, loaded.config.store.path), written)
    except StoreError as exc:
        warn(f"calls of its tools will be asked about: {exc}", exc.hint)


def _record(loaded: LoadedConfig, keys: list[Any]) -> None:
    from fairlead.policy.consent import record_consent

    try:
        record_consent(store_file(os.environ, loaded.config.store.path), keys)
    except StoreError as exc:
        warn(f"your consent could not be recorded, so it will be asked for: {exc}", exc.hint)


def switch(ctx: click.Context, server_id: str, scope: str | None, *, on: bool) -> None:
    """Set `enabled` of a server in the entry that decides about it, or in the file of a scope, over that."""
    before = load(ctx)
    server = before.server(server_id)
    word = "enabled" if on else "disabled"
    if scope is None and server.enabled == on:
        say(f"`{server_id}` is {word} already")
        return
    if scope is None:
        entry = entry_to_switch(before, server)
        target, path = entry.target, entry.path
    else:
        target, path = target_file(ctx, scope), ("servers", server_id)
    approved = approved_servers(before, [server_id])

    def change(text: str) -> str:
        if scope is not None and server_id not in servers_in(text, target):
            _require_below(server, target)
        return set_value(text, (*path, "enabled"), on)

    if edit_file(target.path, change, create=EMPTY_FILE):
        is_for_all = scope is None and target.scope == "user"
        more = "; `--scope project` is for this folder alone" if is_for_all else ""
        say(f"{word} `{server_id}` in {display_path(target.path)}{more}")
    else:
        say(f"`{server_id}` is {word} already")
    after = settle(ctx, target, [server_id], approved=approved)
    now = after.servers.get(server_id) if after else None
    if now and now.enabled != on:
        origin = now.definition.origin(("enabled",))
        say(f"but {origin} says otherwise, and that counts more")


def _require_below(server: LoadedServer, target: EditTarget) -> None:
    """Refuse to switch a server in a file that is below the one which defines it: it would have no effect."""
    if server.source == "project" and target.scope == "user":
        raise UnknownServer(
            f"there is no server `{server.server_id}` in {target.path}",
            hint="it is in the project's file: add `--scope project`",
        )
