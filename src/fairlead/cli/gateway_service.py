"""`fairlead gateway start`, `stop`, `status`, `open` and `logs`: the gateway in the background."""

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead.cli.config_edits import action_context
from fairlead.cli.gateway_options import WORKERS, GatewayArguments, require_known_risk
from fairlead.cli.options import json_option, load, override
from fairlead.config.secrets.redaction import redact_url
from fairlead.errors import ConfigError
from fairlead.events import DOWN
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    display_path,
    plural,
    print_data,
    print_json,
    print_notices,
    print_table,
    printable,
    say,
)

if TYPE_CHECKING:
    from fairlead.actions.gateway_service import GatewayState, StartedGateway
    from fairlead.actions.replicas import ReplicaState
    from fairlead.config.load import LoadedConfig
    from fairlead.gateway.registry import RunningGateway, StartedBy

_POLL_SECONDS: Final = 0.3
_TAIL_BYTES: Final = 1024 * 1024
_HOW: Final[dict["StartedBy", str]] = {
    "terminal": "in a terminal",
    "systemd": "as a systemd unit",
    "launchd": "as a launchd agent",
    "background": "in the background",
    "agent": "for an agent, until it is no longer used",
}


@click.command("start")
@click.option("--host", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; `gateway.port`, or 8130, if left out.")
@click.option("--workers", type=WORKERS, metavar="N", help="As for `fairlead gateway`.")
@click.option("--bundle", metavar="NAME", help="Serve only this bundle.")
@click.option("--mode", type=click.Choice(["direct", "meta", "auto"]), help="As for `fairlead gateway`.")
@click.option("--at-login", is_flag=True, help="Start it at every login from now on.")
@json_option
@click.pass_context
def start_command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    host: str | None,
    port: int | None,
    workers: int | None,
    bundle: str | None,
    mode: str | None,
    *,
    at_login: bool,
    as_json: bool,
) -> int:
    """Run the gateway in the background.

    By systemd or launchd where one runs, else as a process of its own. It has the configuration of this
    folder, and stays when the terminal is closed.

    \b
    Examples:
      fairlead gateway start
      fairlead gateway start --at-login
      fairlead gateway stop --disable
    """
    from fairlead.actions.gateway_service import start_gateway

    before = ctx.parent.params if ctx.parent else {}
    store, auth = before.get("store"), before.get("auth", "token")
    require_known_risk(auth, i_know=before.get("i_know", False))
    bundle = bundle or before.get("bundle")
    if store is not None:
        _require_no_password(store)
        override(ctx, {"store": store})
    loaded = load(ctx)
    if bundle is not None:
        loaded.bundle(bundle)  # raises where there is none
    options = GatewayArguments(
        host=host or before.get("host"),
        port=before.get("port") if port is None else port,
        workers=workers or before.get("workers", 1),
        bundle=bundle,
        mode=mode or before.get("mode"),
        store=store,
        agent=before.get("agent", False),
        open_to_all=auth == "none",
        config=ctx.find_root().obj,
    )
    started = start_gateway(action_context(ctx, loaded), options.words(), at_login=at_login)
    if as_json:
        print_json({**_about(started.running), "is_new": started.is_new, "at_login": started.at_login})
    else:
        _show_started(started, options)
    print_notices(started.notices)
    return Exit.OK


def _require_no_password(store: str) -> None:
    """Refuse a password in an address that is written into a unit, or into the command line of a process."""
    if redact_url(store) != store:
        raise click.UsageError(
            "`--store` has a password, which would be written where the service is described: write"
            " `${NAME}` in its place, or the address into `store` of your own file"
        )


def _show_started(started: "StartedGateway", options: GatewayArguments) -> None:
    running = started.running
    print_data(f"url        {running.url}{options.path}")
    if started.is_new:
        say(f"started    {_HOW[running.started_by]}, process {running.pid}")
    else:
        say(f"running    already, {_HOW[running.started_by]}, process {running.pid}; nothing was started")
    say(f"at login   {'yes; `fairlead gateway stop --disable` ends that' if started.at_login else 'no'}")
    say("next       `fairlead gateway open` shows its dashboard; there are `status`, `logs` and `stop`")


@click.command("stop")
@click.option("--disable", is_flag=True, help="Start it at login no more, and delete the service's file.")
@click.option(
    "--all", "every", is_flag=True, help="Stop all your gateways, also those in terminals and for agents."
)
@json_option
@click.pass_context
def stop_command(ctx: click.Context, *, disable: bool, every: bool, as_json: bool) -> int:
    """End the gateway, and its servers with it.

    The one in the background; where there is none, the one that runs with this configuration. Requests under
    way have some seconds to finish.
    """
    from fairlead.actions.gateway_service import stop_gateway

    stopped = stop_gateway(action_context(ctx), disable=disable, every=every)
    if as_json:
        print_json(
            {
                "stopped": [_about(running) for running in stopped.ended],
                "killed": [running.pid for running in stopped.killed],
                "removed": str(stopped.removed) if stopped.removed else None,
            }
        )
    else:
        for running in stopped.ended:
            how = " (it took too long, and was killed)" if running in stopped.killed else ""
            say(f"stopped the gateway at {running.url}, process {running.pid}{how}")
        if not stopped.ended:
            say("no gateway was running")
        if stopped.removed:
            say(f"it is not started at login any more: deleted {display_path(stopped.removed)}")
    print_notices(stopped.notices)
    return Exit.OK


@click.command("status")
@json_option
@click.pass_context
def status_command(ctx: click.Context, *, as_json: bool) -> int:
    """Show whether a gateway runs, and its state.

    Where, since when, how it was started, how its servers are, and, where several processes act as one
    gateway, each of them with its load. Exits with 4 where none runs.
    """
    from fairlead.actions.gateway_service import gateway_state

    state = gateway_state(_try_load(ctx), os.environ)
    if as_json:
        print_json(_state_as_json(state))
    elif state.running is None:
        say("no gateway runs; `fairlead gateway start` starts one in the background")
        if state.at_login:
            say("it is started at login")
    else:
        _show_state(state, state.running)
    return Exit.OK if state.running is not None and state.is_answering else Exit.NOT_READY


def _show_state(state: "GatewayState", running: "RunningGateway") -> None:
    since = datetime.fromtimestamp(running.started_at).astimezone()
    print_data(f"running    {running.url}/mcp" + ("" if state.is_answering else " (does not answer)"))
    print_data(f"started    {since:%Y-%m-%d %H:%M}, {_HOW[running.started_by]}, process {running.pid}")
    if running.workers > 1:
        print_data(f"workers    {running.workers} processes serve this address")
    print_data(f"version    {running.version or 'older than this one'}")
    print_data(f"folder     {printable(running.workspace)}")
    print_data(f"servers    {_count_servers(state.servers)}")
    print_data(f"at login   {'yes' if state.at_login else 'no'}")
    print_data(f"log        {display_path(Path(running.log)) if running.log else 'its terminal'}")
    for other in state.others:
        print_data(f"also       {other.url}/mcp, {_HOW[other.started_by]}, process {other.pid}")
    if state.replicas:
        _show_replicas(state.replicas)


def _show_replicas(replicas: "Sequence[ReplicaState]") -> None:
    from fairlead.actions.replicas import describe_seconds

    ready = sum(each.condition == "ready" for each in replicas)
    print_data(f"replicas   {ready} of {len(replicas)} ready; * answered")
    print_data("")
    columns = ("replica", "address", "state", "version", "up", "requests", "in 1 min", "sessions")
    rows = [
        (
            f"{each.name}{' *' if each.is_asked else ''}",
            each.address,
            _condition(each),
            each.version,
            describe_seconds(each.uptime_seconds),
            f"{each.requests:,}",
            f"{each.requests_in_minute:,}",
            f"{each.sessions:,}",
            f"{each.connections:,}",
            f"{each.cpu_percent:.0f} %",
            each.memory,
            ", ".join(each.servers) or "-",
        )
        for each in replicas
    ]
    print_table((*columns, "connections", "cpu", "memory", "runs"), rows)


def _condition(replica: "ReplicaState") -> str:
    """Its condition; where it was not heard from, for how long."""
    from fairlead.actions.replicas import describe_seconds

    lost = replica.condition == "not heard from"
    return f"not heard from for {describe_seconds(replica.seen_seconds)}" if lost else replica.condition


def _count_servers(servers: list[dict[str, Any]]) -> str:
    enabled = [server for server in servers if server.get("enabled")]
    bad = [server for server in enabled if server.get("state") in DOWN]
    tools = sum(server.get("tools") or 0 for server in enabled)
    words = f"{len(enabled) - len(bad)} of {len(enabled)} without trouble, {plural(tools, 'tool')}"
    return f"{words}; `fairlead status` names the others" if bad else words


def _state_as_json(state: "GatewayState") -> dict[str, Any]:
    from fairlead.actions.replicas import replicas_as_json

    about: dict[str, Any] = _about(state.running) if state.running else {}
    return {
        "running": state.running is not None,
        "answering": state.is_answering,
        **about,
        "at_login": state.at_login,
        "manager": state.manager,
        "log": str(state.log),
        "servers": state.servers,
        "replicas": replicas_as_json(state.replicas),
        "others": [_about(other) for other in state.others],
    }


def _about(running: "RunningGateway") -> dict[str, Any]:
    return {
        "url": f"{running.url}/mcp",
        "pid": running.pid,
        "started_at": running.started_at,
        "started_by": running.started_by,
        "version": running.version,
        "workers": running.workers,
        "folder": running.workspace,
    }


@click.command("open")
@json_option
@click.pass_context
def open_command(ctx: click.Context, *, as_json: bool) -> int:
    """Open the dashboard in the browser, logged in.

    Without a browser, the link is printed. It works once.
    """
    from fairlead.actions.gateway_service import main_gateway
    from fairlead.auth.browser import open_in_browser
    from fairlead.config.untyped import as_list
    from fairlead.terminal.host_run import run_async

    running = main_gateway(_try_load(ctx), os.environ)
    if running is None:
        raise ConfigError("no gateway runs", hint="start it with `fairlead gateway start`")
    links = [str(link) for link in as_list(running.ask("/api/dashboard-links", {}).get("links"))]
    if as_json:
        print_json({"links": links})
        return Exit.OK

    async def main() -> int:
        return int(await open_in_browser(links[0]))

    if run_async(main):
        say(f"opened the dashboard of {running.url} in your browser")
        return Exit.OK
    print_data(links[0])
    for other in links[1:]:
        say(f"or, if your browser does not know that name: {other}")
    return Exit.OK


@click.command("logs")
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they come, until Ctrl-C.")
@json_option
@click.pass_context
def logs_command(ctx: click.Context, lines: int, *, follow: bool, as_json: bool) -> int:
    """Show the log of the gateway in the background. With `--json`, one object on each line."""
    from fairlead.actions.gateway_service import main_gateway
    from fairlead.gateway.registry import service_log

    running = main_gateway(_try_load(ctx), os.environ)
    if running is not None and running.log is None:
        say(f"the gateway at {running.url} logs to its terminal; this is what one in the background said")
    log = Path(running.log) if running and running.log else service_log(os.environ, "background")
    show: Callable[[str], None] = _show_as_json if as_json else _show_line
    end = _show_tail(log, lines, show)
    while follow:
        time.sleep(_POLL_SECONDS)
        end = _show_new(log, end, show)
    return Exit.OK


def _show_line(line: str) -> None:
    print_data(printable(line))


def _show_as_json(line: str) -> None:
    print_data(json.dumps({"line": printable(line)}, ensure_ascii=False))


def _show_tail(log: Path, lines: int, show: Callable[[str], None]) -> int:
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        say("no gateway has run in the background yet; `fairlead gateway start` starts one")
        return 0
    for line in text.splitlines()[-lines:]:
        show(line)
    return size


def _show_new(log: Path, end: int, show: Callable[[str], None]) -> int:
    from fairlead.actions.gateway_service import log_since

    text = log_since(log, end)
    for line in text.splitlines():
        show(line)
    return log.stat().st_size if text else end


def _try_load(ctx: click.Context) -> "LoadedConfig | None":
    """The configuration of this folder; None where it cannot be read, which is no reason to know nothing."""
    try:
        return load(ctx)
    except ConfigError:
        return None


SERVICE_COMMANDS: Final = (start_command, stop_command, status_command, open_command, logs_command)
