"""Run a gateway: on a port, with its dashboard, or over stdio for the process that started it."""

import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from fairlead.actions.context import running_context
from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.actions.switch import restart_server
from fairlead.cli.gateway_options import GatewayArguments, local_name
from fairlead.cli.options import load
from fairlead.config.load import LoadedConfig
from fairlead.config.models import BundleMode
from fairlead.config.sources import place_of, workspace
from fairlead.errors import ConfigError, ListenFailed
from fairlead.gateway import gateway as core
from fairlead.gateway.access.middleware import GuardedApp, authenticator_for
from fairlead.gateway.access.tokens import decide_token, local_token
from fairlead.gateway.control.server import approval_routes, control_routes
from fairlead.gateway.install import AGENTS, GatewayRoute, dialect_of, file_of, plainly
from fairlead.gateway.registry import (
    announce,
    dashboard_name,
    decide_token_file,
    here,
    living,
    local_token_file,
    sources_of,
)
from fairlead.net.listen import bind, listening
from fairlead.net.ssrf import is_loopback_host
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.host_run import run_async, stoppable
from fairlead.terminal.log_output import log_to_stderr
from fairlead.terminal.output import display_path, print_data, print_json, say, warn
from fairlead.terminal.trace_export import tracing
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.middleware import LoginSessions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedGateway:
    """What a person or a program has to know about a gateway that is up."""

    reach: GatewayRoute
    dashboard: str
    dashboard_elsewhere: str | None
    """For browsers that do not resolve names below `localhost`."""
    servers: list[str]


def serve(ctx: click.Context, options: GatewayArguments, *, as_json: bool) -> int:
    """Serve on a port until Ctrl-C or a polite kill."""
    loaded = load(ctx)
    host, port = options.address(loaded)
    _require_safe(host, options)
    log_to_stderr()

    async def main() -> int:
        with _bind_socket(host, port) as listener, stoppable() as wait_for_stop:
            async with (
                _gateway(ctx, loaded, options) as (gateway, configuration),
                _up(gateway, configuration, options, listener, host) as served,
            ):
                print_json(_as_json(served)) if as_json else _introduce(served)
                await wait_for_stop()
                logger.info("stopping")
        return Exit.OK

    return run_async(main)


def serve_stdio(ctx: click.Context, options: GatewayArguments) -> int:
    """Serve who started this process, until they hang up."""
    loaded = load(ctx)

    async def main() -> int:
        async with _gateway(ctx, loaded, options) as (gateway, _):
            gateway.approvals.is_watched = False  # no dashboard, and no commands that could ask it
            await gateway.serve_stdio(options.bundle)
        return Exit.OK

    return run_async(main)


@asynccontextmanager
async def _gateway(
    ctx: click.Context, loaded: LoadedConfig, options: GatewayArguments
) -> AsyncGenerator[tuple[core.Gateway, LiveConfiguration]]:
    """Run a gateway that follows its configuration files."""
    mode = cast("BundleMode | None", options.mode)
    async with (
        tracing() as tracer,
        core.open_gateway(loaded, core.GatewayOptions(mode=mode), tracer=tracer) as gateway,
    ):
        configuration = LiveConfiguration(loaded, lambda: load(ctx), gateway.reload)
        gateway.tasks.start_soon(configuration.watch)
        for member in gateway.host.servers:
            for note in member.review_notes():
                warn(f"`{member.server.server_id}`: {note}")
        yield gateway, configuration


@asynccontextmanager
async def _up(
    gateway: core.Gateway,
    configuration: LiveConfiguration,
    options: GatewayArguments,
    listener: socket.socket,
    host: str,
) -> AsyncGenerator[ServedGateway]:
    """Serve a gateway and its dashboard, and let other commands know of it."""
    loaded, env = gateway.loaded, os.environ
    port: int = listener.getsockname()[1]
    url = f"http://{local_name(host)}:{port}"
    keeper = authenticator_for(
        loaded.config.gateway,
        host,
        port,
        env,
        with_tokens=not options.open_to_all,
        names_groups=lambda: gateway.loaded.names_groups,
    )
    origins = [f"http://{dashboard_name(env)}:{port}", url] if is_loopback_host(host) else [url]
    entrance = LoginSessions(keeper, origins)
    gateway.login_links.origin = url
    panel = HostPanel(
        gateway.host,
        configuration,
        env=env,
        queue=gateway.approvals,
        sessions=gateway.sessions,
        connections=gateway,
    )
    gateway.approvals.on_change = panel.note_change

    async def restart(server_id: str, principal: str) -> None:
        context = running_context("command line", configuration, env, principal)
        await restart_server(context, gateway.host, server_id, close=gateway.close_server)

    routes = [
        *dashboard_routes(panel, entrance, gateway.login_links),
        *approval_routes(gateway.approvals, keeper),
        *control_routes(gateway, keeper, configuration.reload, restart),
    ]
    app = GuardedApp(gateway.app(keeper, routes), keeper)
    token_file = None if options.open_to_all else local_token_file(env)
    async with listening(app, listener), panel.running():
        running = here(
            loaded,
            url=url,
            token_file=token_file,
            workspace=_workspace(),
            decide_token_file=decide_token_file(env),
        )
        with announce(env, running) as describe:
            # A project's file that came, or went, is part of what commands find it by.
            configuration.on_reload = lambda now: describe(
                msgspec.structs.replace(running, sources=sources_of(now))
            )
            token = local_token(env) if token_file else None
            # A log may have other readers than a terminal.
            links = await entrance.links(decide_token(env)) if sys.stderr.isatty() else []
            servers = [name for name, server in loaded.servers.items() if server.usable]
            logger.info("listening", extra={"url": url, "servers": len(servers)})
            yield ServedGateway(
                reach=GatewayRoute(url=f"{url}{options.path}", token=token, token_file=token_file),
                dashboard=links[0] if links else f"{url}/",
                dashboard_elsewhere=links[1] if len(links) > 1 else None,
                servers=servers,
            )


def _require_safe(host: str, options: GatewayArguments) -> None:
    if is_loopback_host(host):
        return
    if options.open_to_all:
        raise ConfigError(
            f"`--auth none` on {host} would let every machine on the network call",
            hint="leave out `--auth none`, or listen on 127.0.0.1",
        )
    warn(
        f"on {host} the token travels in plain text",
        "put a proxy with TLS in front, and name it in `gateway.names`",
    )


def _bind_socket(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except ListenFailed as exc:
        url = f"http://{local_name(host)}:{port}"
        for running in living(os.environ):
            if running.url == url:
                hint = "use that one, or `--port 0` for any port that is free"
                raise ListenFailed(
                    f"a gateway runs at {url} already (process {running.pid})", hint=hint
                ) from exc
        raise


def _workspace() -> Path:
    return workspace(place_of(os.environ, Path.cwd()))


def _as_json(served: ServedGateway) -> dict[str, Any]:
    return {
        "url": served.reach.url,
        "token": served.reach.token,
        "dashboard": served.dashboard,
        "servers": served.servers,
        "pid": os.getpid(),
    }


def _introduce(served: ServedGateway) -> None:
    """Tell a person where it is and how agents get there. A token is for a terminal, and not for a log."""
    reach = served.reach
    print_data(f"url        {reach.url}")
    if reach.token_file is None:
        print_data("token      (none: every program on this machine may call)")
    elif sys.stdout.isatty():
        print_data(f"token      {reach.token}")
    else:
        print_data(f"token      in {reach.token_file}")
    print_data(f"dashboard  {served.dashboard}")
    if served.dashboard_elsewhere:
        say(f"  or, if your browser does not know that name: {served.dashboard_elsewhere}")
    if not sys.stderr.isatty():
        return
    say(f"servers    {', '.join(served.servers) or '(none yet: `fairlead add`)'}")
    place = place_of(os.environ, Path.cwd())
    for agent in AGENTS:
        dialect = dialect_of(agent)
        where = "" if agent == "claude" else f", in {display_path(file_of(dialect, place))}"
        say(f"\n{dialect.title}{where}:")
        say("\n".join(f"  {line}" for line in plainly(agent, reach).splitlines()))
    say(f"\n`fairlead gateway --install {'|'.join(AGENTS)}` writes it for you. Ctrl-C stops the gateway.")
