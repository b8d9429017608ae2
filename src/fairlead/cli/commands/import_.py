"""`fairlead import`."""

import os
from pathlib import Path

import click

from fairlead.actions.imports import Candidate, ImportPlan, find_sources, import_servers, plan_import
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import json_option, load, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.dialects.dialect import ConversionNote, Location
from fairlead.config.edit_scope import EditTarget
from fairlead.config.faults import suggestion
from fairlead.config.sources import place_of
from fairlead.errors import UnknownServer
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    confirm,
    display_path,
    is_interactive,
    option_of,
    print_json,
    print_table,
    printable,
    say,
    warn,
)


@click.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "agent", metavar="AGENT", help="Look where this agent keeps its servers: claude, cursor, …"
)
@click.option(
    "--scope",
    type=click.Choice(["project", "user", "global"]),
    help="Add to the project's file or your own (`user`, `global`); by default a project's servers to the "
    "project's, and a user's to yours.",
)
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
    file go into the project's config, those of a user's file into yours, unless --scope names one.
    Secrets in plain text are stored as by `fairlead add`. At a terminal all of them are connected then,
    and one screen asks what their tools may do.

    \b
    Examples:
      fairlead import                       # look around
      fairlead import --from claude --dry-run
      fairlead import .vscode/mcp.json
    """
    place = place_of(os.environ, Path.cwd())
    sources = find_sources(file, agent, place)
    if not sources:
        if as_json:
            print_json({"servers": [], "notes": []})
        return _report_nothing(agent)
    plan = plan_import(sources, place, lambda location: _target(ctx, scope, location), replace=replace)
    _require_servers(plan, only, is_named=file is not None or agent is not None)
    for title, failure in plan.failures:
        warn(f"{title}: {failure}", failure.hint)
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


def _require_servers(plan: ImportPlan, only: tuple[str, ...], *, is_named: bool) -> None:
    """Refuse a file that cannot be read where the user named it, and ids that no file has."""
    if is_named and plan.failures and not plan.candidates:
        raise plan.failures[0][1]
    found = sorted({candidate.server_id for candidate in plan.candidates})
    unknown = next((server_id for server_id in only if server_id not in found), None)
    if unknown is not None:
        hint = suggestion(unknown, found) or (
            f"there are {', '.join(found)}" if found else "no server was found; run it without `--only`"
        )
        raise UnknownServer(f"no server `{unknown}` was found", hint=hint)


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


def _report_nothing(agent: str | None) -> int:
    say(f"no files of {agent} found" if agent else "no other agent's servers found")
    say("\nhint: name the file: `fairlead import FILE`")
    return Exit.FIXABLE if agent else Exit.OK


def _target(ctx: click.Context, scope: str | None, location: Location) -> EditTarget:
    natural = None if ctx.find_root().obj or os.environ.get("FAIRLEAD_CONFIG_PATH") else location.scope
    return target_file(ctx, scope or natural, take_over=True)


def _choose_candidates(
    plan: ImportPlan, only: tuple[str, ...], *, native: bool, ask: bool
) -> list[Candidate]:
    chosen: list[Candidate] = []
    for candidate in plan.candidates:
        if only and candidate.server_id not in only:
            continue
        better = candidate.native
        if better is not None:
            url = better.entry["url"]
            question = f"`{candidate.server_id}` goes through mcp-remote. Use {url} natively instead?"
            if native or (ask and confirm(question)):
                candidate = better
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
            candidate.shown_target,
            display_path(candidate.source),
            _remark(candidate),
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


def _remark(candidate: Candidate) -> str:
    if candidate.remedy is not None:
        return f"{candidate.reason}; {option_of(candidate.remedy)} takes it over"
    return candidate.reason or f"to {display_path(candidate.target.path)}"


def _write(ctx: click.Context, wanted: list[Candidate], plan: ImportPlan, *, replace: bool) -> None:
    for written in import_servers(action_context(ctx), plan, wanted, replace=replace):
        for server_id, secret in written.stashed:
            say(f"  {server_id}.{secret.field}: stored as {secret.reference}")
        say(f"added {len(written.server_ids)} to {display_path(written.target.path)}")
        show_edit(written.added.edit)
        for forgotten in written.added.forgotten:
            show_forgotten(forgotten)
