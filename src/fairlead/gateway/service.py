"""A gateway in the background: as a systemd user unit, as a launchd agent, or as a detached process.

Each manager starts the same command line, `fairlead gateway --started-by NAME …`. That process registers
itself (`gateway/registry.py`) and writes its own log: only starting and stopping depend on the manager.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from fairlead.config.document.files import write_atomic
from fairlead.config.paths import STATE_HINT, home_folder
from fairlead.config.secrets.redaction import redact_url
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.gateway.registry import StartedBy, gateway_folder, service_log

UNIT: Final = "fairlead-gateway.service"
LABEL: Final = "fairlead.gateway"
MANAGER_SECONDS: Final = 30.0
"""How long one command of a service manager may take."""
STOP_SECONDS: Final = 30.0
"""How long a gateway may take to end before it is killed: more than it gives to requests and servers."""
_POLL_SECONDS: Final = 0.05

_KEPT: Final = (
    "PATH",
    "LANG",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "FAIRLEAD_BUILTINS",
    "FAIRLEAD_CONFIG_PATH",
    "FAIRLEAD_VAULT",
    "PYTHON_KEYRING_BACKEND",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_SERVICE_NAME",
)
"""Variables of this shell that a gateway needs; a service manager or the desktop starts it without them."""


def kept_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables to write where a gateway is started from: a service's file, an agent's file.

    One with a password, as the URL of a proxy may have, is left out.

    Raises:
        ConfigError: The configuration is in a variable, which may hold secrets and is not written anywhere.
    """
    if "FAIRLEAD_CONFIG_JSON" in env:
        raise ConfigError(
            "a gateway that is started later does not have FAIRLEAD_CONFIG_JSON",
            hint="write it into a file, and unset it",
        )
    found = {name: env[name] for name in _KEPT if env.get(name)}
    return {
        name: value
        for name, value in found.items()
        if not (name.lower().endswith("_proxy") and "@" in value) and redact_url(value) == value
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceCommand:
    """Command line and environment of a service."""

    words: tuple[str, ...]
    """The program by its absolute path, and its arguments."""
    folder: Path
    """Where it runs: configuration and workspace are found from there."""
    env: Mapping[str, str]
    """The environment of the user who starts it."""


class ServiceManager(Protocol):
    """Starts and stops the gateway of this user in the background."""

    @property
    def name(self) -> StartedBy:
        """Name of the manager, which a gateway that it starts registers with."""
        ...

    def start(self, command: ServiceCommand, *, at_login: bool) -> "subprocess.Popen[bytes] | None":
        """Start it, from now on at every login too if that is wanted.

        Returns:
            The process, where this one is its parent.

        Raises:
            ConfigError: The manager refuses, or cannot start anything at login.
        """
        ...

    def enable(self, command: ServiceCommand) -> None:
        """Have it started at every login, and leave the one that runs alone. Raises `ConfigError`."""
        ...

    def stop(self, pid: int) -> None:
        """Ask the gateway with this process id to end, without waiting for it."""
        ...

    def is_at_login(self) -> bool:
        """Whether the service is started at every login."""
        ...

    def has_failed(self) -> bool:
        """Whether the manager gave up starting it."""
        ...

    def remove(self) -> Path | None:
        """Start it at login no more, and delete the service's file. Returns that file if there was one."""
        ...


def own_command(argv: Sequence[str] = sys.argv) -> tuple[str, ...]:
    """The words that start this program from anywhere: absolute, and independent of PATH.

    The console script is preferred, by the path it was called by: a link such as `~/.local/bin/fairlead`
    outlives the version it leads to. `python -m fairlead` has the script next to the interpreter, if any.
    """
    called = Path(argv[0]) if argv and argv[0] else Path()
    names = ("fairlead", "fairlead.exe")
    if called.name in names:
        found = called if called.is_absolute() else shutil.which(str(called))
        if found and os.access(found, os.X_OK):
            return (os.path.abspath(found),)
    for name in names:
        beside = Path(sys.executable).with_name(name)
        if os.access(beside, os.X_OK):
            return (str(beside),)
    return (sys.executable, "-m", "fairlead")


def is_temporary(command: Sequence[str]) -> bool:
    """Whether a program is in a cache that may be emptied, as those that `uvx` starts are."""
    caches = ("archive-v", "builds-v", "environments-v")
    return any(part.startswith(caches) for part in Path(command[0]).parts)


def service_manager(env: Mapping[str, str], platform: str = sys.platform) -> ServiceManager:
    """The best manager that works here: a container, say, has neither systemd nor launchd."""
    if platform == "darwin" and shutil.which("launchctl", path=env.get("PATH")):
        return Launchd(env)
    if platform == "linux" and shutil.which("systemctl", path=env.get("PATH")):
        systemd = Systemd(env)
        if systemd.is_usable():
            return systemd
    return Detached(env)


def manager_of(started_by: StartedBy, env: Mapping[str, str]) -> ServiceManager:
    """The manager that started a gateway."""
    if started_by == "systemd":
        return Systemd(env)
    return Launchd(env) if started_by == "launchd" else Detached(env)


def process_identity(pid: int) -> str | None:
    """Identity of a process, which a later one with the same id does not have; None where it has ended.

    One that has ended stays in the table until its parent takes note, which in a container may be never.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except OSError:
            return None
        return str(pid)
    return None if fields[0] in ("Z", "X") else f"{pid} {fields[_START_TIME]}"


_START_TIME = 19
"""Position of a process's start time in `/proc/PID/stat`, after its name."""


def end_process(pid: int, *, by_force: bool = False) -> None:
    """Send a process the signal to end. One that is gone is no error."""
    wanted = getattr(signal, "SIGKILL", signal.SIGTERM) if by_force else signal.SIGTERM
    try:
        os.kill(pid, wanted)
    except ProcessLookupError:
        return
    except PermissionError as exc:
        raise ConfigError(
            f"process {pid} is not yours to end", hint="run this as the user who started it"
        ) from exc


def open_log(path: Path) -> int:
    """Open a log file to append to, which only this user can read. Returns its descriptor."""
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        if hasattr(os, "fchmod"):
            os.fchmod(log, 0o600)
    except OSError as exc:
        raise ConfigUnwritable(
            f"cannot write the log `{path}`: {exc.strerror or exc}", hint=STATE_HINT
        ) from exc
    return log


class Detached:
    """A process of its own session, without a terminal, that outlives the command that starts it."""

    name: StartedBy = "background"

    def __init__(self, env: Mapping[str, str], name: StartedBy = "background") -> None:
        self._env = env
        self.name = name

    def start(self, command: ServiceCommand, *, at_login: bool) -> "subprocess.Popen[bytes] | None":
        """Start it."""
        if at_login:
            self.enable(command)
        # What it prints before it writes its own log goes there as well: a traceback, say.
        log = open_log(service_log(self._env, self.name))
        try:
            return subprocess.Popen(
                [*command.words],
                cwd=command.folder,
                env=dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as exc:
            raise ConfigError(f"cannot start `{command.words[0]}`: {exc.strerror or exc}") from exc
        finally:
            os.close(log)

    def enable(self, command: ServiceCommand) -> None:
        """Refuse: nothing here starts programs at login."""
        raise ConfigError(
            "there is neither systemd nor launchd here to start it at login",
            hint="have your shell's profile, or the container, run `fairlead gateway start`",
        )

    def stop(self, pid: int) -> None:
        """Ask it to end."""
        end_process(pid)

    def is_at_login(self) -> bool:
        """Return False: nothing here starts programs at login."""
        return False

    def has_failed(self) -> bool:
        """Return False: such a process reports its failure itself."""
        return False

    def remove(self) -> Path | None:
        """Remove nothing: there is no file."""
        return None


class Systemd:
    """A user unit of systemd."""

    name: StartedBy = "systemd"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        named = env.get("XDG_CONFIG_HOME", "")
        config = Path(named) if Path(named).is_absolute() else home_folder(env) / ".config"
        self.file = config / "systemd" / "user" / UNIT

    def is_usable(self) -> bool:
        """Whether this user has a manager that runs: not in a container, nor with `su` alone."""
        return _run(["systemctl", "--user", "show-environment"], self._env).returncode == 0

    def start(self, command: ServiceCommand, *, at_login: bool) -> None:
        """Write the unit and start it."""
        self._write(command)
        if at_login:
            self._manage("enable", UNIT)
        self._manage("restart", UNIT)

    def enable(self, command: ServiceCommand) -> None:
        """Write the unit and enable it."""
        self._write(command)
        self._manage("enable", UNIT)

    def stop(self, pid: int) -> None:
        """Stop the unit. systemd ends what is left of it."""
        self._manage("stop", "--no-block", UNIT)

    def is_at_login(self) -> bool:
        """Whether the unit is enabled."""
        return self.file.exists() and self._ask("is-enabled").startswith("enabled")

    def has_failed(self) -> bool:
        """Whether the unit is in the state `failed`."""
        return self._ask("is-active").startswith("failed")

    def remove(self) -> Path | None:
        """Disable the unit and delete it."""
        if not self.file.exists():
            return None
        self._manage("disable", UNIT)
        _delete(self.file)
        self._manage("daemon-reload")
        return self.file

    def _write(self, command: ServiceCommand) -> None:
        write_atomic(self.file, systemd_unit(command), mode=0o600)
        self._manage("daemon-reload")

    def _ask(self, question: str) -> str:
        return _run(["systemctl", "--user", question, UNIT], self._env).stdout.strip()

    def _manage(self, *words: str) -> None:
        _require(["systemctl", "--user", *words], self._env)


def systemd_unit(command: ServiceCommand) -> str:
    """The unit's file: absolute paths, and the variables that the servers' programs are found by."""
    start = " ".join(_quote(word.replace("$", "$$")) for word in command.words)
    variables = "".join(
        f"Environment={_quote(f'{name}={value}')}\n" for name, value in kept_variables(command.env).items()
    )
    return (
        "# Written by `fairlead gateway start`; `fairlead gateway stop --disable` removes it.\n"
        "[Unit]\n"
        "Description=Fairlead gateway: one MCP endpoint for every agent\n"
        "After=network.target\n"
        "\n"
        "[Service]\n"
        "Type=exec\n"
        f"WorkingDirectory={_escape(str(command.folder))}\n"
        f"{variables}"
        f"ExecStart={start}\n"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        # What the user has to correct is no better at the next try.
        "RestartPreventExitStatus=1 2 3 70\n"
        # The gateway ends its servers itself; what it leaves behind, systemd kills.
        "KillMode=mixed\n"
        f"TimeoutStopSec={STOP_SECONDS:.0f}\n"
        "UMask=0077\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _escape(text: str) -> str:
    if "\n" in text or "\0" in text:
        raise ConfigError("a service's file cannot hold a line break", hint="rename that folder or variable")
    return text.replace("%", "%%")


def _quote(word: str) -> str:
    return '"' + _escape(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Launchd:
    """A launchd agent of this login. At every login only where its file is in `~/Library/LaunchAgents`."""

    name: StartedBy = "launchd"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._domain = f"gui/{os.getuid() if hasattr(os, 'getuid') else 0}"
        self.login_file = home_folder(env) / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    def start(self, command: ServiceCommand, *, at_login: bool) -> None:
        """Write the agent's file and load it, which starts it."""
        is_for_login = at_login or self.login_file.exists()
        file = self.login_file if is_for_login else gateway_folder(self._env) / f"{LABEL}.plist"
        write_atomic(file, launchd_agent(command), mode=0o600)
        # One that is loaded, and ended by itself, has to go first; one that is not is no error.
        _run(["launchctl", "bootout", f"{self._domain}/{LABEL}"], self._env)
        _require(["launchctl", "bootstrap", self._domain, str(file)], self._env)

    def enable(self, command: ServiceCommand) -> None:
        """Write the agent's file where launchd looks at login."""
        write_atomic(self.login_file, launchd_agent(command), mode=0o600)

    def stop(self, pid: int) -> None:
        """Unload it, which ends it."""
        _require(["launchctl", "bootout", f"{self._domain}/{LABEL}"], self._env)

    def is_at_login(self) -> bool:
        """Whether its file is where launchd looks at login."""
        return self.login_file.exists()

    def has_failed(self) -> bool:
        """Whether it ended with a status that it is not started again for."""
        return False

    def remove(self) -> Path | None:
        """Delete its file."""
        if not self.login_file.exists():
            return None
        _delete(self.login_file)
        return self.login_file


def launchd_agent(command: ServiceCommand) -> str:
    """The agent's property list."""
    import plistlib  # which brings an XML parser, and is for one system alone

    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [*command.words],
            "WorkingDirectory": str(command.folder),
            "EnvironmentVariables": kept_variables(command.env),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": int(STOP_SECONDS),
            "ProcessType": "Background",
            "Umask": 0o077,
        },
        sort_keys=False,
    ).decode()


def _run(words: Sequence[str], env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    program = shutil.which(words[0], path=env.get("PATH"))
    if program is None:
        raise ConfigError(f"`{words[0]}` is not there", hint="put it on PATH")
    try:
        return subprocess.run(
            [program, *words[1:]],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MANAGER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ConfigError(f"`{' '.join(words)}` does not answer", hint="try it by hand") from exc


def _require(words: Sequence[str], env: Mapping[str, str]) -> None:
    ended = _run(words, env)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines()
        reason = said[-1] if said else f"exit status {ended.returncode}"
        raise ConfigError(f"`{' '.join(words)}` failed: {reason}", hint="try it by hand")


def _delete(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as exc:
        raise ConfigUnwritable(f"cannot delete `{file}`: {exc.strerror}", hint="delete it by hand") from exc


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so. Returns whether it is, in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
