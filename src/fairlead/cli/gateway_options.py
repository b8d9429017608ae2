"""Options of `fairlead gateway`, and how agents reach the gateway that they describe."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from fairlead.config.load import LoadedConfig
from fairlead.config.sources import is_fit_root, place_of, workspace
from fairlead.errors import ConfigError, ListenFailed
from fairlead.gateway.install import GatewayRoute, command_route
from fairlead.gateway.registry import (
    RunningGateway,
    StartedBy,
    agent_token_file,
    find,
    find_wider,
    living,
    sources_of,
)

MAX_WORKERS: Final = 64


class _Workers(click.ParamType[int]):
    """A number of processes, or `auto` for one on each core."""

    name = "workers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        if value == "auto":
            return min(usable_cores(), MAX_WORKERS)
        try:
            number = int(str(value))
        except ValueError:
            number = 0
        if not 1 <= number <= MAX_WORKERS:
            self.fail(f"`{value}` is neither a number from 1 to {MAX_WORKERS} nor `auto`", param, ctx)
        return number


WORKERS: Final = _Workers()


def usable_cores() -> int:
    """Number of cores this process may use: those it is bound to, within its control group's limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, _, period = Path("/sys/fs/cgroup/cpu.max").read_text().strip().partition(" ")
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        return cores  # no such group
    return cores


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayArguments:
    """The options of `fairlead gateway`. What is None is for the configuration to say."""

    host: str | None = None
    port: int | None = None
    bundle: str | None = None
    mode: str | None = None
    store: str | None = field(default=None, repr=False)
    """The address of a Redis; it may have a password."""
    open_to_all: bool = False
    agent: bool = False
    """Offer the gateway's agent, also where the configuration does not."""
    started_by: StartedBy = "terminal"
    workers: int = 1
    """How many processes serve clients."""
    idle_seconds: float | None = None
    """End after so long without an agent; None to stay."""
    config: Path | None = None
    """The one file that `--config` names."""

    @property
    def path(self) -> str:
        """Path of the MCP endpoint."""
        return f"/mcp/{self.bundle}" if self.bundle else "/mcp"

    def address(self, loaded: LoadedConfig) -> tuple[str, int]:
        """Host and port to listen on."""
        loaded.require_section("gateway")
        settings = loaded.config.gateway
        return self.host or settings.host, settings.port if self.port is None else self.port

    def is_special(self, loaded: LoadedConfig) -> bool:
        """Whether options make it differ from the configured gateway, so that no running one can be used."""
        return self.mode is not None or (self.agent and loaded.config.gateway.agent is None)

    def require_free(self, loaded: LoadedConfig) -> None:
        """Raise where a gateway runs at this address. Called before the modules that serve are loaded.

        Raises:
            ListenFailed: One does.
        """
        host, port = self.address(loaded)
        url = f"http://{local_name(host)}:{port}"
        if (running := next((each for each in living(os.environ) if each.url == url), None)) is not None:
            raise ListenFailed(
                f"a gateway runs at {url} already (process {running.pid})",
                hint="use that one: `fairlead gateway open` opens its dashboard; "
                "`fairlead gateway stop` ends it, and `--port 0` starts another",
            )

    def find_shared(self, loaded: LoadedConfig) -> RunningGateway | None:
        """A running gateway that can be used instead: with the same files, for the same folder.

        A program of the desktop starts in no folder in particular, mostly `/` or the home. There the built-in
        servers have nothing to work in, and any folder will do. Where the user has a gateway running in a
        project's folder, that is the one meant: it has the servers of the project besides.
        """
        if self.is_special(loaded):
            return None
        place = place_of(os.environ, Path.cwd())
        same = find(os.environ, sources_of(loaded), workspace(place))
        if same is None and not is_fit_root(place.cwd, place.home):
            same = find(os.environ, sources_of(loaded))
            if same is None and self.config is None:
                same = find_wider(os.environ, sources_of(loaded))
        return same

    def words(self) -> list[str]:
        """The same options as command-line words, for a gateway that is started in the background."""
        given = {"--host": self.host, "--port": self.port, "--bundle": self.bundle, "--mode": self.mode}
        given["--store"] = self.store
        given["--workers"] = self.workers if self.workers > 1 else None
        words = ["--config", str(self.config.absolute())] if self.config else []
        for name, value in given.items():
            words += [name, str(value)] if value is not None else []
        words += ["--agent"] if self.agent else []
        return words + (["--auth", "none", "--i-know"] if self.open_to_all else [])

    def reach(self, loaded: LoadedConfig, agent: str, *, stdio: bool) -> GatewayRoute:
        """An agent's route to the gateway: by a command, or by URL to the one that runs or will run.

        By URL an agent has a token of its own.
        """
        if stdio:
            return command_route(os.environ, config=self.config, bundle=self.bundle)
        from fairlead.gateway.access.tokens import agent_token

        running = find(os.environ, sources_of(loaded)) if self.port is None else None
        host, port = self.address(loaded)
        if running is None and port == 0:
            raise ConfigError(
                "the port of a gateway that takes any is not known",
                hint="start it first, name a `--port`, or install it as a command: `--stdio`",
            )
        url = running.url if running else f"http://{local_name(host)}:{port}"
        is_open = self.open_to_all or (running is not None and running.token_file is None)
        return GatewayRoute(
            url=f"{url}{self.path}",
            token=None if is_open else agent_token(os.environ, agent),
            token_file=agent_token_file(os.environ, agent),
            agent=agent,
        )

    def reach_of(self, running: RunningGateway) -> GatewayRoute:
        """A program's route to a running gateway, with the token for all agents."""
        token_file = Path(running.token_file) if running.token_file else None
        return GatewayRoute(url=f"{running.url}{self.path}", token=running.token(), token_file=token_file)


def require_known_risk(auth: str, *, i_know: bool) -> None:
    """Refuse `--auth none` without its confirmation."""
    if auth == "none" and not i_know:
        raise click.UsageError("`--auth none` lets every program on this machine call; add `--i-know`")


def local_name(host: str) -> str:
    """Host name by which a listener on this address is reached from this machine."""
    if host in ("0.0.0.0", ""):  # noqa: S104 - compared with, not bound to
        return "127.0.0.1"
    address = "::1" if host == "::" else host
    return f"[{address}]" if ":" in address else address
