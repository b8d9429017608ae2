"""Gateways that run on this machine, and the folder with their tokens.

Each running gateway has a folder and holds that folder's lock as long as it lives: commands tell a living one
from what a killed one left behind without process ids, which are given out again.
"""

import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.load import LoadedConfig
from fairlead.config.paths import STATE_HINT, state_folder
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable, ConnectFailed

_NAME = re.compile(r"fairlead-[0-9a-f]{24}")
_NEW_NAME = f"fairlead-{secrets.token_hex(12)}"
"""The dashboard's name where none is kept yet: one for the process, should keeping it be impossible."""


def gateway_folder(env: Mapping[str, str]) -> Path:
    """Return the gateway's folder, made where it is missing. Only this user can read it."""
    folder = state_folder(env) / "gateway"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigUnreadable(f"`{folder}` is not a private folder", hint="move it away")
        if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as exc:
        raise ConfigUnreadable(
            f"cannot use `{folder}`, where a gateway keeps its tokens: {exc.strerror or exc}", hint=STATE_HINT
        ) from exc
    return folder


def local_token_file(env: Mapping[str, str]) -> Path:
    """Return the file with the token for agents of this machine's user: scope `mcp`."""
    return gateway_folder(env) / "token"


def agent_token_file(env: Mapping[str, str], agent: str) -> Path:
    """Return the file with the token of one installed agent: scope `mcp`."""
    return gateway_folder(env) / f"token-{agent}"


def decide_token_file(env: Mapping[str, str]) -> Path:
    """Return the file with the token of the user's own commands: scopes `decide` and `admin`."""
    return gateway_folder(env) / "decide-token"


def dashboard_name(env: Mapping[str, str]) -> str:
    """The name that the dashboard has on this machine: random, and the same from run to run.

    It is no secret that opens anything, but a page elsewhere cannot guess it.
    """
    path = gateway_folder(env) / "dashboard-name"
    require_plain(path)
    kept = read_text(path).strip() if path.exists() else ""
    if not _NAME.fullmatch(kept):
        kept = _NEW_NAME
        with suppress(ConfigUnwritable):  # where nothing can be written it is another at the next run
            write_atomic(path, kept + "\n", mode=0o600)
    return f"{kept}.localhost"


def require_plain(path: Path) -> None:
    """Refuse a symbolic link: its owner would choose a token, or be given one."""
    if path.is_symlink():
        raise ConfigUnreadable(f"`{path}` is a symbolic link", hint="move it away")


ASK_SECONDS: Final = 3.0
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
RELOAD_PATH: Final = "/api/reload"
"""Makes a gateway read its configuration again."""
STATUS_PATH: Final = "/api/status"
"""The state of every server."""
APPROVALS_PATH: Final = "/api/approvals"
"""The calls that wait for approval, and answers to them."""
DASHBOARD_LINKS_PATH: Final = "/api/dashboard-links"
"""Links that log the user in to the dashboard."""

logger = logging.getLogger(__name__)

_FOLDER = "running"
_ABOUT = "about.json"
_ATTACHED = "attached"

StartedBy = Literal["terminal", "systemd", "launchd", "background", "agent"]
"""How a gateway was started: in the foreground, as a service, as a detached process, or for an agent, in
which case it ends some time after the last one is gone."""
SERVICES: Final[tuple[StartedBy, ...]] = ("systemd", "launchd", "background")
"""Those that `fairlead gateway start` started."""


class RunningGateway(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as it describes itself to other commands of the same user."""

    url: str
    """Its base URL, as reached from this machine; MCP is at `/mcp` below it."""
    pid: int
    token_file: str | None
    """The file with the agents' token; None where they need none."""
    sources: tuple[str, ...]
    """The sources of its configuration."""
    workspace: str
    """The folder that its built-in servers work in."""
    started_at: float
    decide_token_file: str | None = None
    """The file with the token of the user's own commands."""
    version: str | None = None
    """Of Fairlead; None where it is older than this field."""
    started_by: StartedBy = "terminal"
    log: str | None = None
    """The file that it logs to; None where that is its terminal."""
    workers: int = 1
    """How many processes serve its clients."""

    def token(self) -> str | None:
        """The token that agents open it with."""
        return read_text(Path(self.token_file)).strip() if self.token_file else None

    def decide_token(self) -> str | None:
        """The token that the user's own commands use."""
        return read_text(Path(self.decide_token_file)).strip() if self.decide_token_file else None

    def ask(self, path: str, message: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its response to a GET, or to a message that is posted. Raises `ConnectFailed`."""
        body = None if message is None else msgspec.json.encode(message)
        try:
            status, said = _request(self.url, path, self.decide_token(), body)
            answer = msgspec.json.decode(said) if status == 200 else None
        except (OSError, ValueError, ConfigError) as exc:
            raise ConnectFailed("gateway", f"the one at {self.url} does not answer as it should") from exc
        if answer is None:
            raise ConnectFailed("gateway", f"the one at {self.url} answered with status {status}")
        return as_object(answer)


def sources_of(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return the sources of a configuration: files by path, others by content."""
    return tuple(
        str(layer.path.resolve()) if layer.path else f"{layer.name}:{_digest(layer.data)}"
        for layer in loaded.layers
    )


def contents_of(loaded: LoadedConfig) -> str:
    """Digest of a configuration: equal for all processes that read the same."""
    return _digest({"layers": [[layer.name, layer.data] for layer in loaded.layers]})


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@contextmanager
def announce(env: Mapping[str, str], running: RunningGateway) -> Generator[Callable[[RunningGateway], None]]:
    """Register a gateway for the length of the block; yields a function that updates its description.

    Where nothing can be written they do not find it, and the gateway serves its clients all the same.
    """
    folder = gateway_folder(env) / _FOLDER / secrets.token_hex(8)

    def describe(running: RunningGateway) -> None:
        try:
            write_atomic(folder / _ABOUT, msgspec.json.encode(running).decode() + "\n", mode=0o600)
        except ConfigUnwritable as exc:
            logger.warning("commands will not find this gateway: %s; %s", exc, STATE_HINT)

    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(folder / _ABOUT))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        except ConfigUnwritable as exc:
            logger.warning("commands will not find this gateway: %s; %s", exc, STATE_HINT)
            yield lambda _: None
            return
        describe(running)
        yield describe


def find(
    env: Mapping[str, str], sources: Iterable[str], workspace: Path | None = None
) -> RunningGateway | None:
    """The newest gateway with this configuration that works in this folder, if one is named, and answers."""
    wanted = tuple(sources)
    fitting = [
        running
        for running in living(env)
        if running.sources == wanted and (workspace is None or running.workspace == str(workspace))
    ]
    return next(filter(_answers, sorted(fitting, key=lambda running: -running.started_at)), None)


def find_wider(env: Mapping[str, str], sources: Iterable[str]) -> RunningGateway | None:
    """The newest gateway that the user started, answers, and has all of this configuration and more.

    That is one that runs in the folder of a project.
    """
    wanted = set(sources)
    fitting = [
        running for running in living(env) if running.started_by != "agent" and wanted <= set(running.sources)
    ]
    return next(filter(_answers, sorted(fitting, key=lambda running: -running.started_at)), None)


def living(env: Mapping[str, str]) -> list[RunningGateway]:
    """Return every live gateway of this user. Entries of dead ones are removed."""
    found: list[RunningGateway] = []
    for about in (state_folder(env) / "gateway" / _FOLDER).glob(f"*/{_ABOUT}"):
        try:
            with hold_lock(about, timeout=0):
                shutil.rmtree(about.parent, ignore_errors=True)
        except ConfigUnwritable:
            if (running := _read(about)) is not None:
                found.append(running)
    return found


def answering(env: Mapping[str, str]) -> list[RunningGateway]:
    """Return every gateway of this user that answers, of any configuration, the oldest first."""
    return sorted(filter(_answers, living(env)), key=lambda running: running.started_at)


def reload_gateways(env: Mapping[str, str]) -> list[str]:
    """Have every gateway of this user go by an edit now, rather than when it next looks at its files.

    Returns:
        For each that keeps its old configuration, because it cannot use the new one, which it is and why.
    """
    refusals: list[str] = []
    for running in living(env):
        try:
            answer = running.ask(RELOAD_PATH, {})
        except ConnectFailed:
            # One that is busy, ends, or is of an earlier release: it notices the edit by itself.
            logger.info("a gateway was not notified of an edit", extra={"pid": running.pid})
            continue
        if answer.get("reloaded") is False:
            refusals.append(
                f"the gateway at {running.url} keeps its old configuration: {answer.get('error')}"
            )
    return refusals


def services(env: Mapping[str, str]) -> list[RunningGateway]:
    """Return the living gateways that run in the background for this user, the oldest first."""
    found = [running for running in living(env) if running.started_by in SERVICES]
    return sorted(found, key=lambda running: running.started_at)


def service_log(env: Mapping[str, str], started_by: StartedBy) -> Path:
    """Return the log file of gateways that were started so. It has no lines of a terminal's gateway."""
    return gateway_folder(env) / ("agent-gateway.log" if started_by == "agent" else "gateway.log")


@contextmanager
def attachment(env: Mapping[str, str], running: RunningGateway) -> Generator[None]:
    """Have a gateway that was started for agents stay for the length of the block.

    Like a gateway itself, this is a lock, which ends with its process however that ends.
    """
    folder = _attachments(env, running) / secrets.token_hex(8)
    try:
        with hold_lock(folder / _ABOUT):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_attached(env: Mapping[str, str], running: RunningGateway) -> bool:
    """Whether an agent's process is attached to this gateway. What killed ones left behind is removed."""
    is_used = False
    for folder in _attachments(env, running).glob("*/"):
        try:
            with hold_lock(folder / _ABOUT, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        except ConfigUnwritable:
            is_used = True
    return is_used


def _attachments(env: Mapping[str, str], running: RunningGateway) -> Path:
    return gateway_folder(env) / _ATTACHED / f"{running.pid}-{running.started_at:.3f}"


def here(  # noqa: PLR0913 - what commands know of a gateway, each by name
    loaded: LoadedConfig,
    *,
    url: str,
    token_file: Path | None,
    workspace: Path,
    decide_token_file: Path | None = None,
    started_by: StartedBy = "terminal",
    workers: int = 1,
) -> RunningGateway:
    """Describe the gateway that this process is, or supervises."""
    from importlib.metadata import version  # only a gateway that starts needs it

    log = None if started_by == "terminal" else service_log(os.environ, started_by)
    return RunningGateway(
        url=url,
        pid=os.getpid(),
        token_file=str(token_file) if token_file else None,
        sources=sources_of(loaded),
        workspace=str(workspace),
        started_at=time.time(),
        decide_token_file=str(decide_token_file) if decide_token_file else None,
        version=version("fairlead"),
        started_by=started_by,
        log=str(log) if log else None,
        workers=workers,
    )


def _read(about: Path) -> RunningGateway | None:
    try:
        return msgspec.json.decode(read_text(about), type=RunningGateway)
    except (ConfigError, msgspec.MsgspecError):
        return None  # gone in this moment, or of another version


def _answers(running: RunningGateway) -> bool:
    try:
        return _request(running.url, "/healthz")[0] == 200
    except OSError:
        return False


def _request(url: str, path: str, token: str | None = None, body: bytes | None = None) -> tuple[int, bytes]:
    import http.client  # most commands find no gateway, and should not wait for this

    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ASK_SECONDS)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER_BYTES)
    except http.client.HTTPException as exc:
        raise ConnectionError("the response is not HTTP") from exc
    finally:
        connection.close()
