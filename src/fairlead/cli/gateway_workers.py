"""Run a gateway of several processes on one port: the supervisor, and a worker."""

import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import click

from fairlead.actions.live_configuration import LiveConfiguration
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
from fairlead.config.store_location import RedisLocation, store_location
from fairlead.config.untyped import as_list
from fairlead.errors import ConfigError, ConnectFailed, FairleadError
from fairlead.gateway.access.tokens import decide_token, local_token
from fairlead.gateway.registry import DASHBOARD_LINKS_PATH, RunningGateway, dashboard_name, service_log
from fairlead.gateway.workers.messages import DRAIN, RELOAD
from fairlead.gateway.workers.pool import WorkerPool, open_pool, worker_command
from fairlead.store.cluster_key import new_cluster_key
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.host_run import run_async, stoppable
from fairlead.terminal.log_output import log_to_file, log_to_stderr
from fairlead.terminal.output import print_json

if TYPE_CHECKING:
    from fairlead.gateway.workers.member import PoolMember

logger = logging.getLogger(__name__)


def serve_with_workers(
    ctx: click.Context, options: GatewayArguments, *, as_json: bool, snippets: Sequence[str]
) -> int:
    """Serve on a port with several processes until Ctrl-C or SIGTERM; a second one ends it at once.

    The parameters are those of `gateway_serving.serve`.
    """
    is_service = options.started_by != "terminal"
    if is_service:
        log_to_file(service_log(os.environ, options.started_by))
    loaded = load(ctx)
    _require_possible(loaded)
    host, _ = options.address(loaded)
    warned = require_safe(host, options)
    other = None if is_service else options.find_shared(loaded)
    if other is not None and other.started_by == "agent":
        other = None  # it ends by itself
    if not is_service:
        log_to_stderr()
    _prepare_files(options)

    async def main() -> int:
        with (
            bind_socket(options, loaded) as listener,
            anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        ):
            address = host, listener.getsockname()[1]
            url, words = base_url(*address), _worker_words(options, *address)
            async with open_pool(options.workers, words, new_cluster_key()) as pool:
                pool.tasks.start_soon(_follow_signals, signals, pool)
                if not await _start(pool):
                    return Exit.OK
                configuration = _follow_configuration(ctx, loaded, pool)
                pool.accept(listener)
                with register_gateway(options, configuration, url) as running:
                    link = await anyio.to_thread.run_sync(_dashboard_link, running)
                    served = await describe_served(loaded, options, url, link)
                    if as_json:
                        print_json(served.as_json())
                    elif not is_service:
                        introduce(served, other, warned)
                    show_snippets(served.reach, snippets)
                    await pool.ended.wait()
                    logger.info("stopping")
                    seconds = configuration.loaded.config.gateway.drain_ms / 1000
                    if seconds and pool.failed is None:
                        await pool.drain(seconds)
                await pool.stop()
                if pool.failed is not None:
                    raise pool.failed
        return Exit.OK

    return run_async(main)


def _require_possible(loaded: LoadedConfig) -> None:
    """Raise `ConfigError` where a gateway cannot have several workers."""
    if not hasattr(socket, "send_fds"):
        raise ConfigError(
            "this system cannot pass connections between processes",
            hint="leave out `--workers`, or run several gateways with `--store redis://…`",
        )
    if isinstance(store_location(os.environ, loaded.config.store), RedisLocation):
        raise ConfigError(
            "`--workers` shares a store in a file, and this gateway's store is a Redis",
            hint="start one gateway for each core, each on a `--port` of its own: with a Redis they are one",
        )


def _prepare_files(options: GatewayArguments) -> None:
    """Make the files that all workers read, so that none of them makes another."""
    decide_token(os.environ)
    dashboard_name(os.environ)
    if not options.open_to_all:
        local_token(os.environ)


def _worker_words(options: GatewayArguments, host: str, port: int) -> list[str]:
    """The command line of a worker: the options of this one, with the port that it got."""
    words = replace(options, host=host, port=port, workers=1).words()
    before = 2 if options.config is not None else 0  # `--config FILE` is an option of `fairlead` itself
    started_by = ["--started-by", options.started_by]
    return worker_command([*words[:before], "gateway", *started_by, *words[before:]])


async def _follow_signals(signals: AsyncIterator[signal.Signals], pool: WorkerPool) -> None:
    """End the gateway at the first signal, and everything at once at the second."""
    async for _ in signals:
        if pool.ended.is_set() or not pool.is_started:
            pool.kill()
        pool.ended.set()


async def _start(pool: WorkerPool) -> bool:
    """Start the workers. False where the user wants an end before they serve."""
    try:
        await pool.start()
    except FairleadError:
        if pool.ended.is_set():
            return False
        raise
    return True


def _follow_configuration(ctx: click.Context, loaded: LoadedConfig, pool: WorkerPool) -> LiveConfiguration:
    """Follow the files for what the registration says of them. The workers go by them themselves."""

    async def take(_: LoadedConfig) -> None:
        """Take nothing over."""

    configuration = LiveConfiguration(loaded, lambda: load(ctx), take)

    async def follow_question(about: str) -> None:
        if about == RELOAD:
            with suppress(ConfigError):
                await configuration.reload_here()

    pool.on_question = follow_question
    pool.tasks.start_soon(configuration.watch, _ignore_outcome)
    return configuration


def _ignore_outcome(_: ConfigError | None) -> None:
    """Say nothing: the workers log it."""


def _dashboard_link(running: RunningGateway) -> str | None:
    """A one-time login link to the dashboard, for a terminal only: a log may have other readers."""
    if not sys.stderr.isatty():
        return None
    with suppress(ConnectFailed):
        links = as_list(running.ask(DASHBOARD_LINKS_PATH, {}).get("links"))
        return str(links[0]) if links else None
    return None


def serve_as_worker(ctx: click.Context, options: GatewayArguments, descriptors: tuple[int, int]) -> int:
    """Serve the connections that a supervisor passes on, until it ends this process or has died.

    Args:
        ctx: The command line, which is that of the supervisor.
        options: What it says; the port is the one that the supervisor listens at.
        descriptors: Where connections and messages come from.
    """
    from fairlead.cli.gateway_serving import open_configured, open_surfaces
    from fairlead.gateway.cluster.cluster import PeerApp
    from fairlead.gateway.workers.member import join_pool
    from fairlead.net.listen import bind_unix, listening

    if options.started_by != "terminal":
        log_to_file(service_log(os.environ, options.started_by))
    else:
        log_to_stderr()

    async def main() -> int:
        async with join_pool(descriptors) as member:
            try:
                loaded = load(ctx)
                with bind_unix(member.peer_socket) as calls:
                    async with open_configured(ctx, loaded, options, member=member, place=member.place) as (
                        gateway,
                        configuration,
                    ):
                        address = options.address(loaded)
                        surfaces = await open_surfaces(gateway, configuration, options, address)

                        async def announce_drain(_: str) -> str:
                            # Not to the other workers: each stops too, and takes what comes until then.
                            gateway.is_draining = surfaces.panel.is_stopping = True
                            return ""

                        member.answer(DRAIN, announce_drain)
                        async with (
                            listening(PeerApp(gateway.cluster), calls),
                            listening(surfaces.app, None) as server,
                            surfaces.panel.running(),
                            member.serving(server),
                        ):
                            gateway.meter.count_connections = lambda: server.connections
                            await _work_until_end(member)
                            if gateway.is_draining:
                                server.close_idle()
                            await gateway.drain()
            except FairleadError as exc:
                await member.fail(exc)
                return exit_of(exc)
        return Exit.OK

    return run_async(main)


async def _work_until_end(member: "PoolMember") -> None:
    """Wait until no more connections will come; a signal to this process alone makes it leave politely."""
    async with anyio.create_task_group() as tasks:

        async def leave_on_request() -> None:
            with stoppable() as wait_for_stop:
                await wait_for_stop()
                await member.leave()
                tasks.cancel_scope.cancel()

        tasks.start_soon(leave_on_request)
        await member.ended.wait()
        tasks.cancel_scope.cancel()
