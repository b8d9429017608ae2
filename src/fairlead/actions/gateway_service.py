"""Start, stop and describe the gateway that runs in the background."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fairlead.actions.agents import cache_notice
from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.replicas import ReplicaState, read_replicas
from fairlead.config.document.files import hold_lock
from fairlead.config.load import LoadedConfig
from fairlead.config.sources import place_of, workspace
from fairlead.config.untyped import as_list
from fairlead.errors import ConfigError, ConnectFailed
from fairlead.gateway.registry import (
    SERVICES,
    STATUS_PATH,
    RunningGateway,
    StartedBy,
    answering,
    find,
    gateway_folder,
    living,
    service_log,
    services,
    sources_of,
)
from fairlead.gateway.service import (
    STOP_SECONDS,
    Detached,
    ServiceCommand,
    ServiceManager,
    end_process,
    kept_variables,
    manager_of,
    own_command,
    process_identity,
    service_manager,
    wait_until,
)

START_SECONDS: Final = 60.0
"""How long a gateway may take to answer: it waits for no server."""
AGENT_IDLE_SECONDS: Final = 600.0
"""How long a gateway that was started for an agent stays after the last one is gone."""
_FAILED_SECONDS: Final = 0.5
_MAX_LOG_BYTES: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedGateway:
    """Outcome of `start_gateway`."""

    running: RunningGateway
    is_new: bool
    """False where it was running before."""
    at_login: bool
    notices: list[Notice] = field(default_factory=list[Notice])


def start_gateway(
    context: ActionContext, arguments: Sequence[str] = (), *, at_login: bool = False
) -> StartedGateway:
    """Run a gateway in the background, and wait until it answers.

    One user has one such gateway: where it runs already with this configuration, nothing is started.

    Args:
        context: Who does so.
        arguments: Options for `fairlead`, and then for `fairlead gateway`, as the command line has them.
        at_login: Start it at every login from now on.

    Raises:
        ConfigError: It does not start, and the message says what it printed; another one runs, with another
            configuration; or nothing here starts programs at login.
    """
    env, folder = context.env, Path.cwd()
    manager = service_manager(env)
    command = service_command(manager.name, arguments, folder, env)
    running = find_running(context.loaded, env, folder)
    if running is not None:
        notices: list[Notice] = []
        if at_login:
            manager.enable(command)
            notices = context.record("start gateway", "", at_login=True)
        return StartedGateway(running=running, is_new=False, at_login=manager.is_at_login(), notices=notices)
    if manager.name != "background":
        kept_variables(env)  # raises where the service would lack its configuration
    started = _start(manager, command, env, at_login=at_login)
    notices = context.record("start gateway", "", at_login=at_login, by=manager.name)
    if (notice := cache_notice(command.words, "start it again")) is not None:
        notices.append(notice)
    return StartedGateway(running=started, is_new=True, at_login=manager.is_at_login(), notices=notices)


def start_for_agent(
    loaded: LoadedConfig, arguments: Sequence[str], env: Mapping[str, str], folder: Path
) -> RunningGateway:
    """Run a gateway in the background for an agent, until no agent needs it any more.

    Agents that start at the same moment share one.

    Raises:
        ConfigError: It does not start.
    """
    command = service_command("agent", (*arguments, "--port", "0"), folder, env)
    with hold_lock(gateway_folder(env) / "starting" / "agent", timeout=START_SECONDS):
        found = find(env, sources_of(loaded), workspace(place_of(env, folder)))
        return found or _start(Detached(env, "agent"), command, env)


def service_command(
    started_by: StartedBy, arguments: Sequence[str], folder: Path, env: Mapping[str, str]
) -> ServiceCommand:
    """The command line of a gateway in the background. `arguments` may begin with options of `fairlead`."""
    before = list(arguments[:2]) if list(arguments[:1]) == ["--config"] else []
    rest = arguments[len(before) :]
    words = (*own_command(), *before, "gateway", "--started-by", started_by, *rest)
    return ServiceCommand(words=words, folder=folder, env=env)


def find_running(loaded: LoadedConfig, env: Mapping[str, str], folder: Path) -> RunningGateway | None:
    """The gateway that runs with this configuration in this folder, other than for an agent.

    Raises:
        ConfigError: One runs in the background, with another configuration.
    """
    sources, place = sources_of(loaded), str(workspace(place_of(env, folder)))
    same = [
        running
        for running in living(env)
        if running.started_by != "agent" and running.sources == sources and running.workspace == place
    ]
    for running in sorted(same, key=lambda each: each.started_by not in SERVICES):
        return running
    for other in services(env):
        raise ConfigError(
            f"a gateway runs in the background already: {other.url} (process {other.pid}), "
            f"started in {other.workspace}",
            hint="use that one, or end it with `fairlead gateway stop` and start it here",
        )
    return None


def _start(
    manager: ServiceManager, command: ServiceCommand, env: Mapping[str, str], *, at_login: bool = False
) -> RunningGateway:
    log = service_log(env, manager.name)
    begin = log.stat().st_size if log.is_file() else 0
    before = {running.pid for running in living(env)}
    process = manager.start(command, at_login=at_login)
    deadline = time.monotonic() + START_SECONDS
    asked_at = time.monotonic()
    while time.monotonic() < deadline:
        for running in answering(env):
            if running.started_by == manager.name and running.pid not in before:
                return running
        if process is not None and process.poll() is not None:
            raise _start_failure(log, begin)
        if time.monotonic() - asked_at > _FAILED_SECONDS:
            asked_at = time.monotonic()
            if manager.has_failed():
                raise _start_failure(log, begin)
        time.sleep(0.05)
    _give_up(process)
    raise ConfigError(f"the gateway did not answer within {START_SECONDS:.0f} s", hint=f"its log is {log}")


def _give_up(process: "subprocess.Popen[bytes] | None") -> None:
    """End a process that does not answer: it would take the port of the next one."""
    if process is not None:
        process.kill()
        process.wait()


def _start_failure(log: Path, begin: int) -> ConfigError:
    """Output of a gateway that ended at once: its error, and the hint that goes with it."""
    lines = [line.strip() for line in log_since(log, begin).splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
    hints = [line.partition("hint: ")[2] for line in lines if line.startswith("hint: ")]
    reason = errors[-1] if errors else lines[-1] if lines else "it printed nothing"
    return ConfigError(
        f"the gateway did not start: {reason}", hint=hints[-1] if hints else f"its log is {log}"
    )


def log_since(log: Path, begin: int) -> str:
    """The text of a log from a position on; all of it where it was started anew since."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin if size >= begin else 0, size - _MAX_LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoppedGateway:
    """Outcome of `stop_gateway`."""

    ended: list[RunningGateway]
    killed: list[RunningGateway]
    """Those of them that did not end in time by themselves."""
    removed: Path | None
    """The service's file, where it was deleted."""
    notices: list[Notice] = field(default_factory=list[Notice])


def stop_gateway(
    context: ActionContext, *, disable: bool = False, every: bool = False, seconds: float = STOP_SECONDS
) -> StoppedGateway:
    """End the gateway in the background; where there is none, the one that runs with this configuration.

    It finishes the requests under way and ends its servers. One that takes too long is killed, which ends its
    servers as well.

    Args:
        context: Who does so.
        disable: Start it at login no more, and delete the service's file.
        every: End every gateway of this user, also those in terminals and for agents.
        seconds: How long it may take.
    """
    env = context.env
    targets = living(env) if every else services(env)
    if not targets and not disable:
        running = find(env, sources_of(context.loaded))
        targets = [running] if running is not None else []
    # Not by the registry: a gateway leaves it first, and then ends its servers.
    processes = {running.pid: process_identity(running.pid) for running in targets}

    def list_remaining() -> list[RunningGateway]:
        return [
            running
            for running in targets
            if processes[running.pid] is not None and process_identity(running.pid) == processes[running.pid]
        ]

    for running in targets:
        manager_of(running.started_by, env).stop(running.pid)
    killed: list[RunningGateway] = []
    if not wait_until(lambda: not list_remaining(), seconds):
        killed = list_remaining()
        for running in killed:
            end_process(running.pid, by_force=True)
        wait_until(lambda: not list_remaining(), seconds)
    pids = sorted(processes)
    removed = service_manager(env).remove() if disable else None
    notices = context.record("stop gateway", "", processes=pids) if pids or removed else []
    return StoppedGateway(ended=targets, killed=killed, removed=removed, notices=notices)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayState:
    """The gateway of this user, and the others that run."""

    running: RunningGateway | None
    """See `main_gateway`."""
    others: list[RunningGateway]
    is_answering: bool
    manager: StartedBy
    """What would start it in the background here."""
    at_login: bool
    log: Path
    servers: list[dict[str, Any]]
    """As `/api/status` has them."""
    replicas: list[ReplicaState]
    """The processes that act as one gateway with it; none where it is one process alone."""


def gateway_state(loaded: LoadedConfig | None, env: Mapping[str, str]) -> GatewayState:
    """State of the gateway: which runs, its servers, and the processes that act as one with it."""
    manager = service_manager(env)
    alive = sorted(living(env), key=lambda each: each.started_at)
    running = main_gateway(loaded, env)
    servers: list[dict[str, Any]] = []
    replicas: list[ReplicaState] = []
    is_answering = False
    if running is not None:
        try:
            said = running.ask(STATUS_PATH)
            servers, replicas = as_list(said.get("servers")), read_replicas(said.get("replicas"))
            is_answering = True
        except ConnectFailed:
            is_answering = any(each.pid == running.pid for each in answering(env))
    log = Path(running.log) if running and running.log else service_log(env, "background")
    return GatewayState(
        running=running,
        others=[each for each in alive if running is None or each.pid != running.pid],
        is_answering=is_answering,
        manager=manager.name,
        at_login=manager.is_at_login(),
        log=log,
        servers=servers,
        replicas=replicas,
    )


def main_gateway(loaded: LoadedConfig | None, env: Mapping[str, str]) -> RunningGateway | None:
    """The gateway that commands mean which name none.

    One with this configuration comes first, then one in the background, then the newest.
    """
    sources = sources_of(loaded) if loaded is not None else None
    return max(
        living(env),
        key=lambda each: (
            each.sources == sources,
            each.started_by in SERVICES,
            each.started_by != "agent",
            each.started_at,
        ),
        default=None,
    )
