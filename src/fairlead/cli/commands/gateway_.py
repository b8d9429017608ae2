"""`fairlead gateway`."""

import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click
from click.core import ParameterSource

from fairlead.cli.config_edits import action_context
from fairlead.cli.gateway_options import WORKERS, GatewayArguments, require_known_risk
from fairlead.cli.gateway_service import SERVICE_COMMANDS
from fairlead.cli.options import json_option, load, override, server_argument
from fairlead.config.command_lines import command_line
from fairlead.config.store_location import store_location
from fairlead.errors import FairleadError
from fairlead.gateway.install import AGENTS
from fairlead.gateway.registry import StartedBy, find, sources_of
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import (
    confirm,
    display_path,
    print_data,
    print_json,
    print_notices,
    print_table,
    printable_lines,
    report,
    say,
    start_report,
    warn,
)
from fairlead.wording import join_clauses

if TYPE_CHECKING:
    from fairlead.actions.agents import AgentChange
    from fairlead.actions.context import ActionContext
    from fairlead.config.load import LoadedConfig
    from fairlead.gateway.install import FileChange
    from fairlead.gateway.registry import RunningGateway


@click.group("gateway", invoke_without_command=True)
@click.option("--host", help="The address to listen on; `gateway.host`, or 127.0.0.1, if left out.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port; `gateway.port`, or 8130, if left out; 0 for any."
)
@click.option(
    "--store",
    metavar="URL",
    help="Keep state in this Redis, with other replicas: `redis://…`, a password best as `${NAME}`.",
)
@click.option(
    "--workers",
    type=WORKERS,
    default=1,
    metavar="N",
    help="Serve with N processes on one port, to use N cores; `auto` for all cores.",
)
@click.option("--bundle", metavar="NAME", help="Serve only this bundle.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "meta", "auto"]),
    help="How tools are offered: directly, behind meta-tools, or as fits.",
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Serve stdin and stdout: through the running gateway, or as a gateway itself.",
)
@click.option("--agent", is_flag=True, help="Offer your model as tools, too: `agent.run`, `agent.reply`.")
@click.option("--start", is_flag=True, help="With `--stdio`: start a gateway in the background if none runs.")
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    default="token",
    show_default=True,
    help="Who may call: clients with a token, or every program on this machine.",
)
@click.option("--i-know", is_flag=True, help="Confirm unauthenticated access; goes with `--auth none`.")
@click.option(
    "--install",
    type=click.Choice(AGENTS),
    help="Write the gateway into this agent's configuration, as a command that needs nothing else.",
)
@click.option(
    "--http",
    is_flag=True,
    help="With `--install`: write the URL instead, with a token from the environment.",
)
@click.option(
    "--uninstall", type=click.Choice(AGENTS), help="Remove the gateway from this agent's configuration."
)
@click.option("--yes", is_flag=True, help="With `--install` and `--uninstall`: do not ask.")
@click.option(
    "--snippets",
    type=click.Choice(["all", *AGENTS]),
    is_flag=False,
    flag_value="all",
    metavar="[AGENT]",
    help="Print entries to paste into agents' files, with the token; of the gateway that runs, if one does.",
)
@click.option("--started-by", type=click.Choice(get_args(StartedBy)), default="terminal", hidden=True)
@click.option("--idle-exit", type=click.FloatRange(min=0), metavar="SECONDS", hidden=True)
@click.option("--worker", "worker", metavar="FD,FD", hidden=True)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    host: str | None,
    port: int | None,
    store: str | None,
    workers: int,
    bundle: str | None,
    mode: str | None,
    *,
    stdio: bool,
    agent: bool,
    start: bool,
    auth: str,
    i_know: bool,
    install: str | None,
    uninstall: str | None,
    http: bool,
    yes: bool,
    snippets: str | None,
    started_by: StartedBy,
    idle_exit: float | None,
    worker: str | None,
    as_json: bool,
) -> int:
    """Put one MCP endpoint in front of all servers, for every agent.

    Prints its URL, a link to its dashboard and which servers are ready, and serves until Ctrl-C; `start`
    keeps it in the background. `/mcp` has all servers, `/mcp/BUNDLE` those of a bundle. The token stays the
    same from run to run. With the extra `otel`, OTEL_EXPORTER_OTLP_ENDPOINT is where traces go.

    \b
    Examples:
      fairlead gateway
      fairlead gateway start --at-login
      fairlead gateway --install claude
      fairlead gateway --snippets cursor
      fairlead gateway token add ci --bundle work
    """
    if ctx.invoked_subcommand is not None:
        _require_used_options(ctx, ctx.invoked_subcommand)
        return Exit.OK
    if store is not None:
        override(ctx, {"store": store})
    require_known_risk(auth, i_know=i_know)
    if bundle is not None:
        load(ctx).bundle(bundle)  # raises where there is none
    options = GatewayArguments(
        host=host,
        port=port,
        bundle=bundle,
        mode=mode,
        store=store,
        open_to_all=auth == "none",
        agent=agent,
        started_by=started_by,
        workers=workers,
        idle_seconds=idle_exit,
        config=ctx.find_root().obj,
    )
    if install and agent:
        raise click.UsageError("`--install` writes no `--agent`: set `gateway.agent` in your own file")
    if install or uninstall:
        _begin_report(as_json=as_json)
        return _change(ctx, options, install, uninstall, by_url=http and not stdio, yes=yes)
    if workers > 1 and (stdio or idle_exit is not None):
        raise click.UsageError("`--workers` is for a gateway on a port: over stdio there is one client")
    if stdio:
        return _serve_stdio(ctx, options, start=start)
    agents = AGENTS if snippets == "all" else (snippets,) if snippets else ()
    if agents and (running := options.find_shared(load(ctx))):
        from fairlead.cli.gateway_summary import show_snippets

        _begin_report(as_json=as_json)
        show_snippets(options.reach_of(running), agents)
        return Exit.OK
    return _serve_on_port(ctx, options, worker, as_json=as_json, agents=agents)


_USED_BY_START: Final = frozenset(
    {"host", "port", "store", "workers", "bundle", "mode", "agent", "auth", "i_know"}
)


def _require_used_options(ctx: click.Context, subcommand: str) -> None:
    """Refuse options before a subcommand that would have no effect."""
    used = {"as_json"} | (_USED_BY_START if subcommand == "start" else frozenset[str]())
    for option in ctx.command.params:
        name = option.name or ""
        if name not in used and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            command_name = command_line("gateway", subcommand)
            message = f"`{option.opts[0]}` is of no use to `{command_name}`"
            raise click.UsageError(
                join_clauses(message, f"leave it out, or see `{command_name} --help`"), ctx
            )


def _serve_on_port(
    ctx: click.Context,
    options: GatewayArguments,
    worker: str | None,
    *,
    as_json: bool,
    agents: tuple[str, ...],
) -> int:
    """Serve on a port: as one process, as the supervisor of several, or as one of those."""
    if worker is not None:
        from fairlead.cli.gateway_workers import serve_as_worker

        connections, _, messages = worker.partition(",")
        return serve_as_worker(ctx, options, (int(connections), int(messages)))
    if options.started_by == "terminal":
        options.require_free(load(ctx))
    if options.workers > 1:
        from fairlead.cli.gateway_workers import serve_with_workers

        return serve_with_workers(ctx, options, as_json=as_json, snippets=agents)
    from fairlead.cli.gateway_serving import serve

    return serve(ctx, options, as_json=as_json, snippets=agents)


def _serve_stdio(ctx: click.Context, options: GatewayArguments, *, start: bool) -> int:
    """Speak over stdio: by the gateway that runs, by one that is started now, or as one."""
    loaded = load(ctx)
    running = options.find_shared(loaded)
    if running is None and start and not options.is_special(loaded):
        running = _start_for_agent(loaded, options)
    if running is None:
        from fairlead.cli.gateway_serving import serve_stdio

        return serve_stdio(ctx, options)
    from fairlead.gateway.registry import attachment
    from fairlead.gateway.stdio_proxy import attach
    from fairlead.terminal.host_run import run_async

    found = running
    with attachment(os.environ, found) if found.started_by == "agent" else nullcontext():
        return run_async(lambda: attach(f"{found.url}{options.path}", found.token()))


def _start_for_agent(loaded: "LoadedConfig", options: GatewayArguments) -> "RunningGateway | None":
    """Start a gateway that agents share. None where that fails: then this process serves its agent itself."""
    from fairlead.actions.gateway_service import AGENT_IDLE_SECONDS, start_for_agent

    words = [*replace(options, host=None, bundle=None).words(), "--idle-exit", str(AGENT_IDLE_SECONDS)]
    try:
        return start_for_agent(loaded, words, os.environ, Path.cwd())
    except FairleadError as exc:
        warn(f"{exc}; this process serves its agent by itself", exc.hint)
        return None


def _change(
    ctx: click.Context,
    options: GatewayArguments,
    install: str | None,
    uninstall: str | None,
    *,
    by_url: bool,
    yes: bool,
) -> int:
    """Show what would become of an agent's file, and write it if that is wanted."""
    from fairlead.actions.agents import cache_notice, plan_agent
    from fairlead.gateway.access.tokens import has_agent_token, remove_agent_token

    context = action_context(ctx)
    if not install:
        agent = uninstall or ""
        return _write_change(context, plan_agent(context, agent, None), ("uninstall", agent), yes=yes)
    needs_none = not by_url or has_agent_token(os.environ, install)
    status = Exit.FIXABLE
    try:
        reach = options.reach(load(ctx), install, stdio=not by_url)
        if not by_url and (notice := cache_notice(reach.command, "run this again")) is not None:
            warn(notice.message, notice.hint)
        change = plan_agent(context, install, reach)
        status = _write_change(context, change, ("install", install), yes=yes, by_url=by_url)
    finally:
        # A token that was made for a file which was not written is of no use to any agent.
        if status != Exit.OK and not needs_none and has_agent_token(os.environ, install):
            remove_agent_token(os.environ, install)
    return status


def _write_change(
    context: "ActionContext",
    change: "FileChange",
    what: "tuple[AgentChange, str]",
    *,
    yes: bool,
    by_url: bool = False,
) -> int:
    from fairlead.actions.agents import change_agent

    if change.is_none:
        report(file=str(change.path), changed=False)
        say(f"{display_path(change.path)} is as it should be; nothing was changed")
        return Exit.OK
    say(printable_lines(change.diff()))
    if change.has_token:
        warn(f"{change.title} can look nowhere else for the token, so it stands there in plain text")
    if not yes and not confirm(f"\nWrite this to {display_path(change.path)}?"):
        say("\nnothing was changed; `--yes` writes it without asking")
        return Exit.FIXABLE
    kind, agent = what
    changed = change_agent(context, agent, change, kind, by_url=by_url)
    print_notices(changed.notices)
    report(file=str(change.path), changed=True, backup=str(changed.backup) if changed.backup else None)
    say(f"\n{'deleted' if change.after is None else 'wrote'} {display_path(change.path)}")
    if changed.backup:
        say(f"the file as it was: {display_path(changed.backup)}")
    if change.advice:
        say(f"{change.title}: {change.advice}")
    elif kind == "install":
        say(f"{change.title} starts the gateway where none runs; restart it, and it has the tools")
    return Exit.OK


def _begin_report(*, as_json: bool) -> None:
    """With `--json`, have the words of what serves nothing become one document."""
    if as_json:
        start_report()


@command.command("agents")
@click.option("--test", "tests", is_flag=True, help="Connect by the entry of each agent that has one.")
@json_option
@click.pass_context
def agents_command(ctx: click.Context, *, tests: bool, as_json: bool) -> int:
    """Show which agents have the gateway in their configuration, and whether it works from there.

    \b
    Examples:
      fairlead gateway agents
      fairlead gateway agents --test
    """
    from fairlead.actions.agents import list_agents, try_agent
    from fairlead.terminal.host_run import run_async, spinning

    context = action_context(ctx)
    found = list_agents(context)
    tested: dict[str, str] = {}
    failures: list[FairleadError] = []

    async def try_all() -> int:
        for each in found:
            if each.entry is None:
                continue
            try:
                async with spinning(f"connecting as {each.title} does …"):
                    tested[each.agent] = str(await try_agent(context, each.agent))
            except FairleadError as exc:
                tested[each.agent] = f"{exc}"
                failures.append(exc)
        return exit_of(failures[0]) if failures else Exit.OK

    status = run_async(try_all) if tests else Exit.OK
    if as_json:
        rows = [
            {
                "agent": each.agent,
                "file": str(each.path),
                "state": each.state,
                "problem": each.problem,
                "test": tested.get(each.agent),
            }
            for each in found
        ]
        print_json({"agents": rows, "ok": status == Exit.OK})
        return status
    columns = ("agent", "state", "file", "test") if tests else ("agent", "state", "file")
    cells = [
        (each.agent, each.state, each.problem or display_path(each.path), tested.get(each.agent, "-"))
        for each in found
    ]
    print_table(columns, [row[: len(columns)] for row in cells])
    if not any(each.entry is not None for each in found):
        say("`fairlead gateway --install AGENT` writes it into one")
    for hint in dict.fromkeys(failure.hint for failure in failures if failure.hint):
        say(f"hint: {hint}")
    return status


for service_command in SERVICE_COMMANDS:
    command.add_command(service_command)


@command.command("pending", hidden=True)
@click.option(
    "--answer",
    "answers",
    nargs=2,
    multiple=True,
    type=(str, click.Choice(["once", "session", "always", "no"])),
    metavar="ID WORD",
    help="Answer once, session, always or no, without a prompt; repeat it.",
)
@json_option
@click.pass_context
def pending_command(ctx: click.Context, answers: tuple[tuple[str, str], ...], *, as_json: bool) -> int:
    """Earlier name of `fairlead approvals answer`."""
    from fairlead.cli.config_edits import action_context
    from fairlead.cli.pending_calls import answer_pending

    say("note: calls that wait are answered with `fairlead approvals answer` now")
    return answer_pending(action_context(ctx), dict(answers), as_json=as_json)


@command.command("dashboard")
@json_option
@click.pass_context
def dashboard_command(ctx: click.Context, *, as_json: bool) -> int:
    """Print a link that opens the running gateway's dashboard and logs you in, once."""
    from fairlead.actions.approvals import gateway_here
    from fairlead.config.untyped import as_list
    from fairlead.gateway.registry import DASHBOARD_LINKS_PATH

    links = [
        str(link) for link in as_list(gateway_here(load(ctx)).ask(DASHBOARD_LINKS_PATH, {}).get("links"))
    ]
    if as_json:
        print_json({"links": links})
        return Exit.OK
    print_data(links[0])
    for other in links[1:]:
        say(f"or, if your browser does not know that name: {other}")
    return Exit.OK


@command.command("restart")
@server_argument
@click.pass_context
def restart_command(ctx: click.Context, server_id: str) -> int:
    """End the running gateway's connections to a server, and connect it again.

    Its clients keep their sessions; calls of that server that are under way fail.
    """
    from fairlead.actions.approvals import gateway_here
    from fairlead.gateway.control.client import attach_to_gateway
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    loaded = load(ctx)
    loaded.server(server_id)  # raises where there is none, whether a gateway runs or not
    running = gateway_here(loaded)

    async def main() -> int:
        async with (
            attach_to_gateway(running, loaded, operator_here()) as host,
            spinning(f"restarting {server_id} …"),
        ):
            notices = await host.restart(server_id)
        for notice in notices:
            warn(notice)
        say(f"`{server_id}` was restarted")
        return Exit.OK

    return run_async(main)


@command.group("token")
def token_command() -> None:
    """Create and revoke tokens of the gateway: one for each program or person that uses it."""


@token_command.command("add")
@click.argument("name")
@click.option("--bundle", "bundles", multiple=True, metavar="NAME", help="For this bundle alone; repeat it.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["mcp", "status", "decide", "admin"]),
    help="What it is for: calling tools (the default), reading the status, approving calls of its principal, "
    "or approving all calls and changing the gateway; repeat it.",
)
@click.option(
    "--principal",
    metavar="NAME",
    help="Whose it is: `local` for another agent of yours, which shares your logins; if left out, a "
    "principal with the name of the token, which shares nothing with you.",
)
@json_option
@click.pass_context
def add_token(
    ctx: click.Context,
    name: str,
    bundles: tuple[str, ...],
    scopes: tuple[str, ...],
    principal: str | None,
    *,
    as_json: bool,
) -> int:
    """Create a token and print it; it is not shown again. A running gateway accepts it at once.

    NAME says which client has it. Logins, approvals and artifacts belong to its principal.
    """
    from fairlead.actions.tokens import make_token

    context = action_context(ctx, load(ctx))
    made = make_token(context, name, bundles=bundles, scopes=scopes, principal=principal)
    print_notices(made.notices)
    if as_json:
        print_json({"name": name, "token": made.token})
        return Exit.OK
    print_data(made.token)
    say("\nthis is the only time it is shown; `fairlead gateway token remove` takes it back")
    running = find(os.environ, sources_of(context.loaded))
    where = running.url if running else "the gateway's address"
    places = " or ".join(f"{where}/mcp/{bundle}" for bundle in bundles) or f"{where}/mcp"
    say(f"the agent that has it connects to {places}, with the header `Authorization: Bearer TOKEN`")
    return Exit.OK


@token_command.command("list")
@json_option
@click.pass_context
def list_tokens(ctx: click.Context, *, as_json: bool) -> int:
    """Show the named tokens: principals, scopes and bundles, never the tokens themselves."""
    from fairlead.actions.tokens import named_tokens

    kept = named_tokens(os.environ, store_location(os.environ, load(ctx).config.store))
    tokens, unshared = kept.read(), {token.name for token in kept.read_unshared()}
    if as_json:
        shown = [
            {
                "name": t.name,
                "principal": t.owner.principal,
                "bundles": t.bundles,
                "scopes": t.scopes,
                "created_at": t.created_at,
                "this_machine_only": t.name in unshared,
            }
            for t in tokens
        ]
        print_json({"tokens": shown})
    elif tokens:
        rows = [
            (
                token.name,
                ", ".join(token.bundles) if token.bundles else "all",
                ", ".join(token.scopes),
                token.owner.principal,
                f"{datetime.fromtimestamp(token.created_at).astimezone():%Y-%m-%d %H:%M}",
            )
            for token in tokens
        ]
        print_table(("name", "bundles", "scopes", "principal", "created"), rows)
        if unshared:
            names = ", ".join(f"`{name}`" for name in sorted(unshared))
            say(f"accepted on this machine only, and not by other replicas: {names}")
    else:
        say("no named tokens; `fairlead gateway token add NAME` makes one")
    return Exit.OK


@token_command.command("remove")
@click.argument("name")
@click.pass_context
def remove_token(ctx: click.Context, name: str) -> int:
    """Revoke a token. A running gateway refuses it at once."""
    from fairlead.actions.tokens import revoke_token

    print_notices(revoke_token(action_context(ctx), name))
    say(f"token `{name}` revoked")
    return Exit.OK


@token_command.command("show")
@click.argument("agent", required=False, type=click.Choice(AGENTS))
def show_token(agent: str | None) -> int:
    """Print the token for your agents: for those that take it from their environment, say.

    With AGENT, the one that `--install` made for that agent alone. It calls tools and nothing else. The token
    that approves calls is in another file, which no agent needs.

    \b
    Examples:
      export FAIRLEAD_TOKEN="$(fairlead gateway token show)"
      export FAIRLEAD_TOKEN_CODEX="$(fairlead gateway token show codex)"
    """
    from fairlead.gateway.access.tokens import agent_token, local_token

    print_data(agent_token(os.environ, agent) if agent else local_token(os.environ))
    return Exit.OK
