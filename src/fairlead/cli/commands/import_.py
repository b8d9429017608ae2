"""`fairlead import`."""

import dataclasses
import os
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from fairlead.actions.config_edits import existing_servers
from fairlead.actions.entries import add_servers
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import edit_scope_option, json_option, load, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.dialects import registry
from fairlead.config.dialects import syntax as texts
from fairlead.config.dialects.dialect import ConfigDialect, ConversionNote, ImportedDocument, Location
from fairlead.config.dialects.mcp_remote import native_remote
from fairlead.config.document.files import read_text
from fairlead.config.edit_scope import EditTarget
from fairlead.config.load import load_config
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets import keyring
from fairlead.config.secrets.redaction import literal_secrets
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import (
    SERVICE,
    StoredSecret,
    file_reference,
    input_name,
    secret_file,
    stash_secrets,
)
from fairlead.config.sources import builtin_entries, place_of
from fairlead.config.untyped import value_at
from fairlead.config.validate import check
from fairlead.errors import ConfigError, FairleadError
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    confirm,
    display_path,
    is_interactive,
    print_json,
    print_table,
    printable,
    say,
    warn,
)

MAX_FOREIGN_BYTES = 64 * 1024 * 1024
"""Some agents keep their whole history in the same file."""

Action = Literal["add", "replace", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One server found in another agent's file, and what would become of it."""

    server_id: str
    entry: dict[str, Any]
    source: Path
    target: EditTarget
    action: Action
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything an import would do."""

    candidates: list[Candidate] = field(default_factory=list[Candidate])
    bundles: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])


@click.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "agent", metavar="AGENT", help="Look where this agent keeps its servers: claude, cursor, …"
)
@edit_scope_option
@click.option("--dry-run", is_flag=True, help="Show what would be added, change nothing.")
@click.option("--replace", is_flag=True, help="Overwrite servers of the same id.")
@click.option("--native", is_flag=True, help="Turn `npx mcp-remote URL` into a native http server.")
@click.option(
    "--later", is_flag=True, help="Do not connect the servers now, nor ask what their tools may do."
)
@click.option("--only", multiple=True, metavar="ID", help="Take only this server; repeat it.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    file: Path | None,
    agent: str | None,
    scope: str | None,
    *,
    dry_run: bool,
    replace: bool,
    native: bool,
    later: bool,
    only: tuple[str, ...],
    as_json: bool,
) -> int:
    """Take over servers from another agent's files.

    Without FILE and --from it looks for every agent it knows and shows what it finds. Servers of a project's
    file go into the project's config, those of a user's file into yours, unless --scope says otherwise.
    Secrets in plain text are put away as `fairlead add` does. At a terminal all of them are connected then,
    and one screen asks what their tools may do.

    \b
    Examples:
      fairlead import                       # look around
      fairlead import --from claude --dry-run
      fairlead import .vscode/mcp.json
    """
    place = place_of(os.environ, Path.cwd())
    sources = _sources(file, agent, place)
    if not sources:
        return _nothing_found(agent)
    plan = Plan()
    for dialect, location in sources:
        _read_into(plan, dialect, location, place, _target(ctx, scope, location), replace=replace)
    chosen = _choose_candidates(plan, only, native=native, ask=not dry_run)
    _show(chosen, plan.notes, as_json=as_json)
    wanted = [candidate for candidate in chosen if candidate.action != "skip"]
    looking = file is None and agent is None
    if dry_run or not wanted:
        return Exit.OK
    if looking and not confirm(
        f"\nAdd {'this server' if len(wanted) == 1 else f'these {len(wanted)} servers'}?"
    ):
        say("\nnothing was changed; `fairlead import --from AGENT` takes over the servers of one agent")
        return Exit.OK
    _write(ctx, wanted, plan, replace=replace)
    return _review(ctx, [candidate.server_id for candidate in wanted], later=later)


def _review(ctx: click.Context, server_ids: list[str], *, later: bool) -> int:
    """One screen for all servers that were added; without a terminal, the command that shows it."""
    if later or not is_interactive():
        command = command_line("review", *server_ids)
        say(f"hint: `{command}` shows their tools, and asks what they may do;")
        taking = command_line("review", *server_ids, options=("--yes",))
        say(f"  `{taking}` takes the preselected answers")
        return Exit.OK
    from fairlead.cli.commands.review_ import review_together
    from fairlead.cli.review import read_reviews

    loaded = load(ctx)
    added = [loaded.servers[name] for name in server_ids if name in loaded.servers]
    reviews, failures = read_reviews(loaded, [server for server in added if server.usable])
    for failure in failures.values():
        warn(f"it was added, but cannot be used yet: {failure}", failure.hint)
    review_together(ctx, loaded, reviews, {})
    return Exit.OK


def _sources(
    file: Path | None, agent: str | None, place: MachinePaths
) -> list[tuple[ConfigDialect, Location]]:
    named = registry.by_name(agent) if agent else None
    if file is None:
        return [(d, location) for d, location in registry.find(place) if named in (None, d)]
    dialect = named or _recognise(file)
    inside = file.absolute().is_relative_to(place.cwd)
    return [(dialect, Location(path=file, scope="project" if inside else "user"))]


def _recognise(file: Path) -> ConfigDialect:
    text = read_text(file, limit=MAX_FOREIGN_BYTES, keep_mark=True)
    syntax = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}.get(file.suffix, "jsonc")
    found = registry.detect(texts.load(text, syntax, str(file)))  # pyright: ignore[reportArgumentType]
    if found is None:
        names = ", ".join(dialect.name for dialect in registry.ALL)
        raise ConfigError(f"{file} does not look like any format known here", hint=f"say --from: {names}")
    return found


def _nothing_found(agent: str | None) -> int:
    say(f"no files of {agent} found" if agent else "no other agent's servers found")
    say("\nhint: name the file: `fairlead import FILE`")
    return Exit.FIXABLE if agent else Exit.OK


def _target(ctx: click.Context, scope: str | None, location: Location) -> EditTarget:
    natural = None if ctx.find_root().obj or os.environ.get("FAIRLEAD_CONFIG_PATH") else location.scope
    return target_file(ctx, scope or natural, take_over=True)


def _read_into(
    plan: Plan,
    dialect: ConfigDialect,
    location: Location,
    place: MachinePaths,
    target: EditTarget,
    *,
    replace: bool,
) -> None:
    try:
        text = read_text(location.path, limit=MAX_FOREIGN_BYTES, keep_mark=True)
        imported = dialect.read(texts.load(text, dialect.syntax, str(location.path)), place)
    except FairleadError as exc:
        warn(f"{dialect.title}: {exc}", exc.hint)
        return
    imported = _bind_inputs(imported, target)
    plan.notes.extend(imported.notes)
    plan.bundles.update(imported.bundles)
    taken = existing_servers(target)
    planned = {candidate.server_id for candidate in plan.candidates if candidate.target == target}
    for server_id, entry in imported.servers.items():
        action, reason = _judge(server_id, entry, taken, planned, replace=replace)
        if action == "add" and server_id in builtin_entries(place) and not replace:
            action, reason = "skip", "a built-in server has that id; --replace puts this one in its place"
        if action != "skip" and target.scope == "project" and _needs_private_file(entry):
            action, reason = "skip", "has a secret in its arguments; take it over with `--scope user`"
        plan.candidates.append(
            Candidate(
                server_id=server_id,
                entry=entry,
                source=location.path,
                target=target,
                action=action,
                reason=reason,
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
                    message = f"there is no keyring here; write it into {display_path(file)}"
                    message += ", which only you may read"
                note = ConversionNote(server_id=server_id, field=wanted, message=message)
                notes += [note] if note not in notes else []
                text = text.replace(str(found), reference)
            value_at(entry, path[:-1])[path[-1]] = text
    return dataclasses.replace(imported, servers=servers, notes=notes)


def _needs_private_file(entry: dict[str, Any]) -> bool:
    """Would a secret in its arguments become a `${file:…}`, which a project's file may not have there?"""
    return any(path[0] == "args" for path in literal_secrets(entry)) and not keyring.is_available()


def _judge(
    server_id: str, entry: dict[str, Any], taken: dict[str, Any], planned: set[str], *, replace: bool
) -> tuple[Action, str]:
    faults = check({"servers": {server_id: entry}}).faults
    if faults:
        return "skip", f"{'.'.join(map(str, faults[0].path[2:]))} {faults[0].message}".strip()
    if server_id in planned:
        return "skip", "another file has one of that id"
    if server_id not in taken:
        return "add", ""
    return ("replace", "") if replace else ("skip", "there already; --replace overwrites it")


def _choose_candidates(plan: Plan, only: tuple[str, ...], *, native: bool, ask: bool) -> list[Candidate]:
    chosen: list[Candidate] = []
    for candidate in plan.candidates:
        if only and candidate.server_id not in only:
            continue
        better = native_remote(candidate.entry)
        if better is not None and candidate.action != "skip":
            url = better["url"]
            question = f"`{candidate.server_id}` goes through mcp-remote. Use {url} natively instead?"
            if native or (ask and confirm(question)):
                candidate = dataclasses.replace(candidate, entry=better)
            elif not is_interactive() or not ask:
                plan.notes.append(
                    ConversionNote(
                        server_id=candidate.server_id,
                        field="command",
                        message=f"goes through mcp-remote; --native makes it a native server of {url}",
                    )
                )
        chosen.append(candidate)
    return chosen


def _show(candidates: list[Candidate], notes: list[ConversionNote], *, as_json: bool) -> None:
    rows = [
        (
            candidate.action,
            candidate.server_id,
            _render_target(candidate),
            display_path(candidate.source),
            candidate.reason or f"to {display_path(candidate.target.path)}",
        )
        for candidate in candidates
    ]
    columns = ("action", "id", "target", "from", "remark")
    if as_json:
        print_json(
            {
                "servers": [dict(zip(columns, row, strict=True)) for row in rows],
                "notes": [{"id": n.server_id, "field": n.field, "message": n.message} for n in notes],
            }
        )
        return
    print_table(columns, rows)
    for note in notes:
        subject = f"{note.server_id}.{note.field}" if note.server_id else note.field
        say(f"  note: {printable(subject)}: {printable(note.message)}")


def _render_target(candidate: Candidate) -> str:
    loaded = load_config(overrides={"servers": {candidate.server_id: candidate.entry}}, env={}, cwd="/")
    return loaded.servers[candidate.server_id].target


def _write(ctx: click.Context, wanted: list[Candidate], plan: Plan, *, replace: bool) -> None:
    targets = {candidate.target.path: candidate.target for candidate in wanted}
    for path, target in targets.items():
        entries: dict[str, dict[str, Any]] = {}
        put_away: list[StoredSecret] = []
        for candidate in wanted:
            if candidate.target == target:
                entries[candidate.server_id], stashed = stash_secrets(
                    candidate.server_id, candidate.entry, os.environ, file=path
                )
                put_away += stashed
                for secret in stashed:
                    say(f"  {candidate.server_id}.{secret.field}: put away as {secret.reference}")
        added = add_servers(
            action_context(ctx), target, entries, replace=replace, bundles=plan.bundles, stashed=put_away
        )
        say(f"added {len(entries)} to {display_path(path)}")
        show_edit(added.edit)
        for forgotten in added.forgotten:
            show_forgotten(forgotten)
