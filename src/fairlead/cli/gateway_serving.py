"""Run a gateway: on a port, with its dashboard, or over stdio for the process that started it."""

import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
import anyio.to_thread
import click
import msgspec

from fairlead.actions.context import running_context
from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.actions.readiness import Readiness, read_readiness
from fairlead.actions.switch import restart_server
from fairlead.cli.gateway_options import GatewayArguments, local_name
from fairlead.cli.gateway_summary import ServedGateway, introduce, show_snippets
from fairlead.cli.options import load
from fairlead.config.load import LoadedConfig
from fairlead.config.models import BundleMode, GatewaySettings
from fairlead.config.sources import place_of, workspace
from fairlead.errors import ConfigError, ListenFailed, StoreError
from fairlead.gateway import gateway as core
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.middleware import GuardedApp, authenticator_for
from fairlead.gateway.access.shared_tokens import TokenMirror
from fairlead.gateway.access.tokens import decide_token, local_token
from fairlead.gateway.cluster.addresses import authority, replica_address
from fairlead.gateway.cluster.cluster import ReplicaPlace
from fairlead.gateway.control.server import ApprovalReply, approval_routes, control_routes
from fairlead.gateway.install import GatewayRoute
from fairlead.gateway.registry import (
    RunningGateway,
    announce,
    dashboard_name,
    decide_token_file,
    here,
    is_attached,
    local_token_file,
    service_log,
    sources_of,
)
from fairlead.loop.model_choice import SETTING_HINT
from fairlead.net.listen import bind, listening
from fairlead.net.ssrf import is_loopback_host
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.host_run import run_async, stoppable
from fairlead.terminal.log_output import log_to_file, log_to_stderr
from fairlead.terminal.output import print_json, warn
from fairlead.terminal.trace_export import tracing
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions

logger = logging.getLogger(__name__)


_LOOK_SECONDS: Final = 5.0
"""How often a gateway that ends without agents looks for them."""


def serve(ctx: click.Context, options: GatewayArguments, *, as_json: bool, snippets: Sequence[str]) -> int:
    """Serve on a port until Ctrl-C or a polite kill.

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
    warned = _require_safe(host, options)
    other = None if is_service else options.find_shared(loaded)
    if other is not None and other.started_by == "agent":
        other = None  # it ends by itself
    if not is_service:
        log_to_stderr()

    async def main() -> int:
        with _bind_socket(options, loaded) as listener, stoppable() as wait_for_stop:
            place = await anyio.to_thread.run_sync(_place, loaded, host, listener)
            async with (
                _gateway(ctx, loaded, options, place) as (gateway, configuration),
                _up(gateway, configuration, options, listener, host) as (served, running),
            ):
                if as_json:
                    print_json(served.as_json())
                elif not is_service:
                    introduce(served, other, warned)
                show_snippets(served.reach, snippets)
                await _wait_for_end(wait_for_stop, gateway, running, options.idle_seconds)
                logger.info("stopping")
                await gateway.drain()
        return Exit.OK

    return run_async(main)


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
    """Serve who started this process, until they hang up."""
    loaded = load(ctx)

    async def main() -> int:
        async with _gateway(ctx, loaded, options) as (gateway, _):
            for managed in gateway.host.servers:
                for note in managed.review_notes():
                    warn(f"`{managed.server.server_id}`: {note}")
            gateway.approvals.is_watched = False  # no dashboard, and no commands that could ask it
            await gateway.serve_stdio(options.bundle)
        return Exit.OK

    return run_async(main)


@asynccontextmanager
async def _gateway(
    ctx: click.Context, loaded: LoadedConfig, options: GatewayArguments, place: ReplicaPlace | None = None
) -> AsyncGenerator[tuple[core.Gateway, LiveConfiguration]]:
    """Run a gateway that follows its configuration files."""
    mode = cast("BundleMode | None", options.mode)
    async with (
        tracing() as tracer,
        core.open_gateway(
            loaded, core.GatewayOptions(mode=mode, agent=options.agent), tracer=tracer, place=place
        ) as gateway,
    ):
        if gateway.agent is not None and loaded.config.model is None:
            warn("the agent has no model, and each of its calls will say so", SETTING_HINT)
        configuration = LiveConfiguration(loaded, lambda: load(ctx), gateway.reload)
        gateway.tasks.start_soon(configuration.watch)
        yield gateway, configuration


@asynccontextmanager
async def _up(
    gateway: core.Gateway,
    configuration: LiveConfiguration,
    options: GatewayArguments,
    listener: socket.socket,
    host: str,
) -> AsyncGenerator[tuple[ServedGateway, RunningGateway]]:
    """Serve a gateway and its dashboard, and let other commands know of it."""
    loaded, env = gateway.loaded, os.environ
    port: int = listener.getsockname()[1]
    url = f"http://{local_name(host)}:{port}"
    store = gateway.host.store
    shared = store if store is not None and store.is_shared else None
    mirror = TokenMirror(shared) if shared is not None else None
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
    sessions = LoginSessions(authenticator, origins, shared)
    gateway.login_links.origin = url
    panel = HostPanel(
        gateway.host,
        configuration,
        env=env,
        queue=gateway.approvals,
        sessions=gateway.sessions,
        connections=gateway,
        cluster=gateway.cluster,
    )
    gateway.approvals.on_change = panel.note_change

    async def restart(server_id: str, principal: str) -> None:
        context = running_context("command line", configuration, env, principal)
        await restart_server(context, gateway.host, server_id, close=gateway.close_server)

    async def answer(reply: ApprovalReply, admitted: AuthenticatedRequest) -> bool:
        return await panel.answer(
            reply.id,
            reply.answer,
            surface=reply.surface,
            principal=admitted.principal,
            decides_for=admitted.decides_for,
        )

    routes = [
        *dashboard_routes(panel, sessions, gateway.login_links),
        *approval_routes(gateway.approvals, authenticator, answer),
        *control_routes(gateway, authenticator, configuration.reload, restart),
    ]
    app = GuardedApp(gateway.app(authenticator, routes), authenticator)
    token_file = None if options.open_to_all else local_token_file(env)
    async with listening(app, listener), panel.running():
        running = here(
            loaded,
            url=url,
            token_file=token_file,
            workspace=_workspace(),
            decide_token_file=decide_token_file(env),
            started_by=options.started_by,
        )
        with announce(env, running) as describe:
            # A project's file that came, or went, is part of what commands find it by.
            configuration.on_reload = lambda now: describe(
                msgspec.structs.replace(running, sources=sources_of(now))
            )
            token = local_token(env) if token_file else None
            # A log may have other readers than a terminal.
            links = await sessions.links(decide_token(env)) if sys.stderr.isatty() else []
            servers = [name for name, server in loaded.servers.items() if server.usable]
            logger.info("listening", extra={"url": url, "servers": len(servers)})
            mode = cast("BundleMode | None", options.mode)
            ready = await anyio.to_thread.run_sync(_readiness, loaded, options.bundle, mode)
            served = ServedGateway(
                reach=GatewayRoute(url=f"{url}{options.path}", token=token, token_file=token_file),
                dashboard=links[0] if links else f"{url}/",
                servers=servers,
                ready=ready,
            )
            yield served, running


def _place(loaded: LoadedConfig, host: str, listener: socket.socket) -> ReplicaPlace | None:
    """Where other replicas reach this one, if it may have any."""
    address = replica_address(loaded, os.environ, host, listener.getsockname()[1])
    return ReplicaPlace(address=address) if address is not None else None


def _settings(gateway: core.Gateway) -> GatewaySettings:
    """The section `gateway`, with the name that other replicas know it by among its names."""
    settings = gateway.loaded.config.gateway
    if gateway.cluster is None:
        return settings
    name = authority(gateway.cluster.directory.address)
    return settings.model_copy(update={"names": (*settings.names, name)})


def _readiness(loaded: LoadedConfig, bundle: str | None, mode: BundleMode | None) -> Readiness:
    """What agents can use, as far as it can be read: a gateway serves without its store, too."""
    try:
        return read_readiness(loaded, bundle, mode)
    except StoreError as exc:
        logger.warning("what earlier runs left behind cannot be read", extra={"reason": str(exc)})
        enabled = tuple(name for name, server in loaded.servers.items() if server.enabled and server.usable)
        return Readiness(
            servers=len(enabled), ready=(), tools=0, unlisted=enabled, obstacles=(), mode="direct"
        )


def _require_safe(host: str, options: GatewayArguments) -> int:
    """Refuse what lets every machine in, and warn of what all can read. Returns how many lines that took."""
    if is_loopback_host(host):
        return 0
    if options.open_to_all:
        raise ConfigError(
            f"`--auth none` on {host} would let every machine on the network call",
            hint="leave out `--auth none`, or listen on 127.0.0.1",
        )
    warn(
        f"on {host} the token travels in plain text",
        "put a proxy with TLS in front, and name it in `gateway.names`",
    )
    return 2


def _bind_socket(options: GatewayArguments, loaded: LoadedConfig) -> socket.socket:
    try:
        return bind(*options.address(loaded))
    except ListenFailed:
        options.require_free(loaded)  # names the gateway that has the port, if it is one
        raise


def _workspace() -> Path:
    return workspace(place_of(os.environ, Path.cwd()))
