"""Run a gateway: on a port, with its dashboard, or over stdio for the process that started it."""

import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread
import click

from fairlead.actions.context import running_context
from fairlead.actions.live_configuration import LiveConfiguration, log_reload
from fairlead.actions.switch import restart_server
from fairlead.cli.gateway_options import GatewayArguments
from fairlead.cli.gateway_registration import (
    base_url,
    bind_socket,
    describe_served,
    register_gateway,
    require_safe,
)
from fairlead.cli.gateway_summary import introduce, show_snippets
from fairlead.cli.options import load
from fairlead.config.load import LoadedConfig
from fairlead.config.models import BundleMode, GatewaySettings
from fairlead.errors import ConfigError
from fairlead.gateway import gateway as core
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.middleware import GuardedApp, authenticator_for
from fairlead.gateway.access.shared_tokens import TokenMirror
from fairlead.gateway.access.tokens import decide_token
from fairlead.gateway.cluster.addresses import authority, replica_address
from fairlead.gateway.cluster.cluster import ReplicaPlace
from fairlead.gateway.control.server import ApprovalReply, approval_routes, control_routes
from fairlead.gateway.registry import RunningGateway, dashboard_name, is_attached, service_log
from fairlead.gateway.workers.member import OwnerRouter, PoolMember
from fairlead.gateway.workers.messages import RELOAD
from fairlead.loop.model_choice import SETTING_HINT
from fairlead.net.listen import ConnectionServer, listening
from fairlead.net.ssrf import is_loopback_host
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.host_run import run_async, stoppable
from fairlead.terminal.log_output import log_to_file, log_to_stderr
from fairlead.terminal.output import print_json, warn
from fairlead.terminal.trace_export import tracing
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)


_LOOK_SECONDS: Final = 5.0
"""How often a gateway that ends without agents looks for them."""


def serve(ctx: click.Context, options: GatewayArguments, *, as_json: bool, snippets: Sequence[str]) -> int:
    """Serve on a port until Ctrl-C or SIGTERM.

    Args:
        ctx: The command line.
        options: What it says.
        as_json: Print what programs need instead of the summary.
        snippets: The agents whose entries to print as well.
    """
    is_service = options.started_by != "terminal"
    if is_service:
        log_to_file(service_log(os.environ, options.started_by))
    loaded = load(ctx)
    host, _ = options.address(loaded)
    warned = require_safe(host, options)
    other = None if is_service else options.find_shared(loaded)
    if other is not None and other.started_by == "agent":
        other = None  # it ends by itself
    if not is_service:
        log_to_stderr()

    async def main() -> int:
        with bind_socket(options, loaded) as listener, stoppable() as wait_for_stop:
            place = await anyio.to_thread.run_sync(_place, loaded, host, listener)
            async with open_configured(ctx, loaded, options, place=place) as (gateway, configuration):
                address = host, listener.getsockname()[1]
                surfaces = await open_surfaces(gateway, configuration, options, address)
                url = base_url(*address)
                async with listening(surfaces.app, listener) as server, surfaces.panel.running():
                    gateway.meter.count_connections = lambda: server.connections
                    with register_gateway(options, configuration, url) as running:
                        # A log may have other readers than a terminal.
                        is_watched = sys.stderr.isatty()
                        links = await surfaces.sessions.links(decide_token(os.environ)) if is_watched else []
                        link = links[0] if links else None
                        served = await describe_served(gateway.loaded, options, url, link)
                        if as_json:
                            print_json(served.as_json())
                        elif not is_service:
                            introduce(served, other, warned)
                        show_snippets(served.reach, snippets)
                        await _wait_for_end(wait_for_stop, gateway, running, options.idle_seconds)
                        logger.info("stopping")
                        surfaces.panel.is_stopping = True
                        await _serve_on(gateway, server)
                        await gateway.drain()
        return Exit.OK

    return run_async(main)


async def _serve_on(gateway: core.Gateway, server: ConnectionServer) -> None:
    """Serve what a balancer sends that has not seen yet that this gateway is to stop, as long as is set."""
    seconds = gateway.loaded.config.gateway.drain_ms / 1000
    if seconds:
        await gateway.announce_drain()
        await anyio.sleep(seconds)
        server.close_idle()


async def _wait_for_end(
    wait_for_stop: Callable[[], Awaitable[None]],
    gateway: core.Gateway,
    running: RunningGateway,
    idle_seconds: float | None,
) -> None:
    """Wait for the signal to stop, or until no agent has used the gateway for a while, if that is said."""
    if idle_seconds is None:
        await wait_for_stop()
        return
    async with anyio.create_task_group() as tasks:

        async def end_when_unused() -> None:
            used_at = anyio.current_time()
            while anyio.current_time() - used_at < idle_seconds:
                await anyio.sleep(min(_LOOK_SECONDS, idle_seconds / 4))
                if gateway.clients() or await anyio.to_thread.run_sync(is_attached, os.environ, running):
                    used_at = anyio.current_time()
            logger.info("no agent has used this gateway for a while")
            tasks.cancel_scope.cancel()

        tasks.start_soon(end_when_unused)
        await wait_for_stop()
        tasks.cancel_scope.cancel()


def serve_stdio(ctx: click.Context, options: GatewayArguments) -> int:
    """Serve the process that started this one over stdio, until it disconnects."""
    loaded = load(ctx)

    async def main() -> int:
        async with open_configured(ctx, loaded, options) as (gateway, _):
            for managed in gateway.host.servers:
                for note in managed.review_notes():
                    warn(f"`{managed.server.server_id}`: {note}")
            gateway.approvals.is_watched = False  # no dashboard, and no commands that could ask it
            await gateway.serve_stdio(options.bundle)
        return Exit.OK

    return run_async(main)


@asynccontextmanager
async def open_configured(
    ctx: click.Context,
    loaded: LoadedConfig,
    options: GatewayArguments,
    *,
    member: PoolMember | None = None,
    place: ReplicaPlace | None = None,
) -> AsyncGenerator[tuple[core.Gateway, LiveConfiguration]]:
    """Run a gateway that follows its configuration files; `member` is this process among several, if so."""
    mode = cast("BundleMode | None", options.mode)
    async with (
        tracing() as tracer,
        core.open_gateway(
            loaded,
            core.GatewayOptions(mode=mode, agent=options.agent),
            tracer=tracer,
            member=member,
            place=place,
        ) as gateway,
    ):
        if gateway.agent is not None and loaded.config.model is None:
            warn("the agent has no model, and each of its calls will say so", SETTING_HINT)
        configuration = LiveConfiguration(loaded, lambda: load(ctx), gateway.reload)
        gateway.tasks.start_soon(configuration.watch)
        yield gateway, configuration


@dataclass(frozen=True, kw_only=True, slots=True)
class Surfaces:
    """HTTP surfaces of a gateway: MCP, dashboard and control API."""

    app: "ASGIApp"
    panel: HostPanel
    sessions: LoginSessions


async def open_surfaces(
    gateway: core.Gateway,
    configuration: LiveConfiguration,
    options: GatewayArguments,
    address: tuple[str, int],
) -> Surfaces:
    """Put a gateway, its dashboard and its control API together, for an address that it listens at."""
    env, member = os.environ, gateway.member
    host, port = address
    url = base_url(host, port)
    store, shared = gateway.host.store, gateway.shared
    mirror = TokenMirror(store) if store is not None and store.is_shared else None
    if mirror is not None:
        await mirror.look()
        gateway.tasks.start_soon(mirror.follow)
    authenticator = authenticator_for(
        _settings(gateway),
        host,
        port,
        env,
        with_tokens=not options.open_to_all,
        names_groups=lambda: gateway.loaded.names_groups,
        shared=shared,
        shared_tokens=mirror,
    )
    origins = [f"http://{dashboard_name(env)}:{port}", url] if is_loopback_host(host) else [url]
    sessions = LoginSessions(
        authenticator,
        origins,
        shared,
        name_keys=gateway.cluster.name_keys if gateway.cluster is not None else (),
        id_prefix=gateway.login_links.id_prefix,
    )
    gateway.login_links.origin = (_settings(gateway).public_url or url).rstrip("/")
    panel = HostPanel(
        gateway.host,
        configuration,
        env=env,
        queue=gateway.approvals,
        sessions=gateway.sessions,
        connections=gateway,
        cluster=gateway.cluster,
        directory=gateway.cluster.directory if gateway.cluster is not None else None,
    )
    gateway.meter.has_required = panel.has_required
    if panel.directory is not None:
        panel.directory.on_change = panel.note_change
    gateway.approvals.on_change = panel.note_change

    async def restart(server_id: str, principal: str) -> list[str]:
        context = running_context("command line", configuration, env, principal)
        notices = await restart_server(context, gateway.host, server_id, close=gateway.close_server)
        return [*map(str, notices)]

    async def answer(reply: ApprovalReply, admitted: AuthenticatedRequest) -> list[str] | None:
        notices = await panel.answer(
            reply.id,
            reply.answer,
            surface=reply.surface,
            principal=admitted.principal,
            decides_for=admitted.decides_for,
        )
        return [*map(str, notices)] if notices is not None else None

    if member is not None:
        _follow_peers(member, configuration)
    routes = [
        *dashboard_routes(panel, sessions, gateway.login_links, member),
        *approval_routes(gateway, authenticator, answer),
        *control_routes(gateway, authenticator, configuration.reload, restart),
    ]
    app: ASGIApp = GuardedApp(gateway.app(authenticator, routes), authenticator)
    if member is not None:
        app = OwnerRouter(app, member)
    return Surfaces(app=app, panel=panel, sessions=sessions)


def _place(loaded: LoadedConfig, host: str, listener: socket.socket) -> ReplicaPlace | None:
    """Address where other replicas reach this one, if it may have any."""
    address = replica_address(loaded, os.environ, host, listener.getsockname()[1])
    return ReplicaPlace(address=address) if address is not None else None


def _settings(gateway: core.Gateway) -> GatewaySettings:
    """The section `gateway`, with the name that other replicas know it by among its names."""
    settings = gateway.loaded.config.gateway
    if gateway.cluster is None or gateway.member is not None:  # workers have a socket of their own for that
        return settings
    name = authority(gateway.cluster.directory.address)
    return settings.model_copy(update={"names": (*settings.names, name)})


def _follow_peers(member: PoolMember, configuration: LiveConfiguration) -> None:
    """Have all workers reload before a reload request to one of them is answered."""

    async def reload_here(_: str) -> str:
        try:
            await configuration.reload_here()
        except ConfigError as exc:
            log_reload(exc)  # the worker that got the request reports it to its user
        return ""

    async def spread() -> None:
        await member.ask_peers(RELOAD)

    member.answer(RELOAD, reload_here)
    configuration.spread = spread
