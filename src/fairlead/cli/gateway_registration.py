"""Registration of a gateway on a port: binding, safety checks, and the entry that other commands find."""

import logging
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import anyio.to_thread
import msgspec

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.actions.readiness import Readiness, read_readiness
from fairlead.cli.gateway_options import GatewayArguments, local_name
from fairlead.cli.gateway_summary import ServedGateway
from fairlead.config.load import LoadedConfig
from fairlead.config.models import BundleMode
from fairlead.config.sources import place_of, workspace
from fairlead.errors import ConfigError, ListenFailed, StoreError
from fairlead.gateway.access.tokens import local_token
from fairlead.gateway.install import GatewayRoute
from fairlead.gateway.registry import (
    RunningGateway,
    announce,
    decide_token_file,
    here,
    local_token_file,
    sources_of,
)
from fairlead.net.listen import bind
from fairlead.net.ssrf import is_loopback_host
from fairlead.terminal.output import warn

logger = logging.getLogger(__name__)


def base_url(host: str, port: int) -> str:
    """The URL of a gateway, as reached from this machine."""
    return f"http://{local_name(host)}:{port}"


@contextmanager
def register_gateway(
    options: GatewayArguments, configuration: LiveConfiguration, url: str
) -> Generator[RunningGateway]:
    """Register this process's gateway for other commands, for the length of the block."""
    env = os.environ
    running = here(
        configuration.loaded,
        url=url,
        token_file=None if options.open_to_all else local_token_file(env),
        workspace=_workspace(),
        decide_token_file=decide_token_file(env),
        started_by=options.started_by,
        workers=options.workers,
    )
    with announce(env, running) as describe:
        # A project's file that came, or went, is part of what commands find it by.
        configuration.on_reload = lambda now: describe(
            msgspec.structs.replace(running, sources=sources_of(now))
        )
        yield running


async def describe_served(
    loaded: LoadedConfig, options: GatewayArguments, url: str, link: str | None
) -> ServedGateway:
    """Description of a gateway that is up: URL, servers, and what is not ready.

    Args:
        loaded: Its configuration.
        options: What the command line says.
        url: Its base URL.
        link: A link that logs its opener in to the dashboard, if there is one.
    """
    env = os.environ
    token_file = None if options.open_to_all else local_token_file(env)
    servers = [name for name, server in loaded.servers.items() if server.usable]
    logger.info("listening", extra={"url": url, "servers": len(servers)})
    mode = cast("BundleMode | None", options.mode)
    ready = await anyio.to_thread.run_sync(_readiness, loaded, options.bundle, mode)
    token = local_token(env) if token_file else None
    return ServedGateway(
        reach=GatewayRoute(url=f"{url}{options.path}", token=token, token_file=token_file),
        dashboard=link or f"{url}/",
        servers=servers,
        ready=ready,
        workers=options.workers,
    )


def _readiness(loaded: LoadedConfig, bundle: str | None, mode: BundleMode | None) -> Readiness:
    """Readiness of the configuration, if it can be read: a gateway serves without its store, too."""
    try:
        return read_readiness(loaded, bundle, mode)
    except StoreError as exc:
        logger.warning("what earlier runs left behind cannot be read", extra={"reason": str(exc)})
        enabled = tuple(name for name, server in loaded.servers.items() if server.enabled and server.usable)
        return Readiness(
            servers=len(enabled), ready=(), tools=0, unlisted=enabled, obstacles=(), mode="direct"
        )


def require_safe(host: str, options: GatewayArguments) -> int:
    """Refuse a gateway open to every machine; warn of plain-text tokens. Returns the lines printed."""
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


def bind_socket(options: GatewayArguments, loaded: LoadedConfig) -> socket.socket:
    """Bind the port. Raises `ListenFailed`, which names the gateway that has it, if one does."""
    try:
        return bind(*options.address(loaded))
    except ListenFailed:
        options.require_free(loaded)
        raise


def _workspace() -> Path:
    return workspace(place_of(os.environ, Path.cwd()))
