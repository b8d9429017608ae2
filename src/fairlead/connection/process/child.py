"""Server processes on any system: how to start one, the protocol of `posix` and `windows`, its environment.

A server inherits only those environment variables that programs need to run, never secrets.
"""

import asyncio
import errno
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, Protocol
from urllib.parse import unquote

import anyio.abc

from fairlead.connection.outcomes import SpawnFailed
from fairlead.store.protocol import lease_now

EXIT_SECONDS = 2.0
"""How long a server may take to end by itself once its input is closed."""

TERMINATE_SECONDS = 2.0
"""How long it and all it started may take to end once they are told to."""

MAX_WAITING_BYTES = 256 * 1024
"""How much may wait for a server to read it before senders have to wait too."""

KILL_SECONDS = 0.3
"""How long to wait for the system to take note of a killed process."""

QUICK_EXIT_SECONDS = 0.5
"""How long a server may take to end by itself that has answered nothing."""

LAST_WORDS_SECONDS = 0.25
"""How long to wait for what a server still has to say when it ends."""

EXPIRE_SECONDS = 1.0
"""How long after the deadline of its lease a process is gone: half a second of grace, and a margin."""


class ProcessLease:
    """Lease of processes: they run until a deadline, which the host moves for as long as they may go on.

    The guardian ends them at the deadline even while the host is paused, when the host itself could not. They
    are gone within `EXPIRE_SECONDS` of it. On Windows, where there is no guardian, nothing ends them.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        """A time of `lease_now`."""
        self._followers: set[Callable[[float], None]] = set()

    @property
    def has_ended(self) -> bool:
        """Whether its deadline has passed."""
        return lease_now() >= self.deadline

    def extend(self, deadline: float) -> None:
        """Let the processes run until a later deadline. One that has passed is never moved."""
        if deadline > self.deadline and not self.has_ended:
            self._move(deadline)

    def end(self) -> None:
        """Have the guardian end the processes now: they may not go on."""
        self._move(min(self.deadline, lease_now()))

    def _move(self, deadline: float) -> None:
        self.deadline = deadline
        for tell in [*self._followers]:
            tell(deadline)

    def follow(self, tell: Callable[[float], None]) -> Callable[[], None]:
        """Call a function with the deadline, now and whenever it moves, until what is returned is called."""
        self._followers.add(tell)
        tell(self.deadline)
        return lambda: self._followers.discard(tell)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """Command that starts a server: a program and its arguments, never a line for a shell.

    `env` is what is declared for it; it gets that over the safe part of `parent`, our own environment.
    `descriptors` are open files that it gets beside its pipes (not on Windows): the number each has in the
    process, 3 or more, and here. They stay the caller's, who keeps them open until the process has started.
    `lease` is until when it may run; without one it runs until it is stopped.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    parent: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    cwd: Path | None = None
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    exit_seconds: float = EXIT_SECONDS
    terminate_seconds: float = TERMINATE_SECONDS
    lease: ProcessLease | None = None


class ProcessListener(Protocol):
    """Callbacks for the output and the end of a child process. None of them may block."""

    def on_stdout(self, data: bytes) -> float | None:
        """Take output on stdout. Returns for how many seconds to stop reading it."""
        ...

    def on_stderr(self, data: bytes) -> float | None:
        """Take output on stderr. Returns for how many seconds to stop reading it."""
        ...

    def on_end(self, returncode: int | None) -> None:
        """Note that it exited, or cannot be talked to though it runs. Called once, after all output."""
        ...


class Child(Protocol):
    """A running server process."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit status: a code, or the negative number of a signal; `None` while it runs."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Number of written bytes that it has not read yet."""
        ...

    @property
    def congested(self) -> asyncio.Future[None] | None:
        """The event to wait for before writing more, or `None`."""
        ...

    @property
    def has_read(self) -> bool:
        """Whether it has read anything. True where the system cannot tell."""
        ...

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start carrying input and output, where the system needs tasks for that."""
        ...

    def write(self, data: bytes) -> bool:
        """Write to its stdin, without waiting. False where it is gone, and certainly reads none of it."""
        ...

    def write_soon(self, data: bytes) -> bool:
        """Write to its stdin, together with what others write in this turn of the event loop."""
        ...

    def hold_stdout(self, *, hold: bool) -> None:
        """Read no more of its stdout for now, or go on."""
        ...

    async def stop(self, *, quickly: bool = False) -> None:
        """End it and all it started; returns within bounded time, and it must not be cancelled.

        `quickly` gives it little time to end by itself before it is told to.
        """
        ...


def explain_spawn_error(command: Command, exc: OSError | ValueError) -> SpawnFailed:
    """Find out why a command could not be run."""
    program = command.argv[0]
    if command.cwd is not None and not command.cwd.is_dir():
        return SpawnFailed(f"there is no folder {command.cwd}", "no_folder")
    if isinstance(exc, OSError) and exc.filename == "folder":
        where = command.cwd or Path.cwd()
        return SpawnFailed(f"it cannot start in the folder {where}: {exc.strerror}", "folder_denied")
    path = _path_of(command)
    match exc:
        case FileNotFoundError() if os.path.dirname(program) and path.is_file():
            return _explain_missing_interpreter(program, path)
        case FileNotFoundError():
            return _explain_missing_program(program, child_environment(command.env, command.parent))
        case PermissionError() if path.is_dir():
            return SpawnFailed(f"{program} is a folder, not a program", "is_folder")
        case PermissionError():
            return SpawnFailed(f"{program} may not be run", "denied", instead=_runner_of(path))
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return SpawnFailed(f"{program} cannot be started: too many files are open", "too_many_files")
        case OSError(errno=errno.ENOEXEC):
            return _explain_format(program, path, exc)
        case OSError():
            return SpawnFailed(f"{program} cannot be run: {exc.strerror}")
        case _:
            return SpawnFailed(f"{program} cannot be run: {exc}")


_BUILT: Final = (b"\x7fELF", b"MZ", *(bytes.fromhex(each) for each in ("cffaedfe", "cefaedfe", "cafebabe")))
"""How programs begin that were built for a system: those of Linux, Windows and macOS."""
_RUNNERS: Final = {
    ".py": "python3",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "bun",
    ".rb": "ruby",
    ".sh": "sh",
}
"""What runs a script that says nothing of it, by the end of its name."""


def _explain_format(program: str, path: Path, exc: OSError) -> SpawnFailed:
    start = _first_line(path)
    if start.startswith(_BUILT):
        return SpawnFailed(f"{program} is built for another kind of machine", "built_for_another")
    if path.is_file() and not path.stat().st_size:
        return SpawnFailed(f"{program} is empty", "empty")
    return SpawnFailed(f"{program} cannot be run: {exc.strerror}", "format", instead=_runner_of(path))


def _explain_missing_interpreter(program: str, path: Path) -> SpawnFailed:
    interpreter = _interpreter_of(path)
    if interpreter and _first_line(path).endswith(b"\r\n"):
        return SpawnFailed(f"{program} cannot be run: its lines end as on Windows", "windows_lines")
    what = f"its interpreter {interpreter}" if interpreter else "the loader that it is built for"
    return SpawnFailed(f"{program} cannot be run: {what} is not there", "no_interpreter", instead=interpreter)


def _path_of(command: Command) -> Path:
    """Where the program of a command is, as far as that is known."""
    program = command.argv[0]
    if os.path.dirname(program):
        return (command.cwd or Path()) / program
    environment = child_environment(command.env, command.parent)
    return Path(shutil.which(program, path=environment.get("PATH", "")) or program)


def _runner_of(script: Path) -> str | None:
    """What runs a script without a first line that names it."""
    return None if _first_line(script).startswith(b"#!") else _RUNNERS.get(script.suffix.lower())


def _interpreter_of(script: Path) -> str | None:
    """The program in the first line of a script."""
    first = _first_line(script).decode(errors="replace")
    return " ".join(first[2:].split()[:1]) or None if first.startswith("#!") else None


def _first_line(file: Path) -> bytes:
    """The beginning of a file; nothing where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.readline(256)
    except OSError:
        return b""


def _explain_missing_program(program: str, environment: Mapping[str, str]) -> SpawnFailed:
    path = environment.get("PATH", "")
    first, _, rest = program.partition(" ")
    if rest and shutil.which(first, path=path):
        message = f"there is no program `{program}`: `command` has arguments in it"
        return SpawnFailed(message, "whole_line", program=program, instead=first)
    if program.startswith("~/"):
        home = environment.get("HOME", "~") + program[1:]
        return SpawnFailed(f"there is no program {program}", "tilde", program=program, instead=home)
    is_name = not os.path.dirname(program)
    where = " on the PATH" if is_name else ""
    similar = _find_similar_program(program, path) if is_name else None
    return SpawnFailed(
        f"there is no program {program}{where}", "no_program", program=program, instead=similar
    )


def _find_similar_program(name: str, path: str) -> str | None:
    names: set[str] = set()
    for folder in path.split(os.pathsep)[:_MAX_PATH_FOLDERS]:
        with suppress(OSError):
            names.update(each for each in os.listdir(folder) if each[:1] == name[:1])
    found = get_close_matches(name, names, n=1, cutoff=0.8)
    return found[0] if found and shutil.which(found[0], path=path) else None


_MAX_PATH_FOLDERS = 50

_SAFE = re.compile(
    r"""
      HOME | LANG | LANGUAGE | LC_\w+ | LOGNAME | NO_COLOR | PATH | SHELL | TERM | TMPDIR | TZ
    | USER | XDG_\w+ | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY | DOCKER_CONTEXT | DOCKER_HOST
    # Windows
    | APPDATA | COMSPEC | HOMEDRIVE | HOMEPATH | LOCALAPPDATA | PATHEXT | PROCESSOR_ARCHITECTURE | PROGRAMDATA
    | PROGRAMFILES | SYSTEMDRIVE | SYSTEMROOT | TEMP | TMP | USERNAME | USERPROFILE | WINDIR
    # certificates, and what needs no proxy
    | CURL_CA_BUNDLE | NIX_SSL_CERT_FILE | NODE_EXTRA_CA_CERTS | NODE_USE_SYSTEM_CA | PIP_CERT
    | REQUESTS_CA_BUNDLE | SSL_CERT_DIR | SSL_CERT_FILE | UV_NATIVE_TLS | UV_SYSTEM_CERTS
    | NO_PROXY | no_proxy
    # where runtimes and package runners keep their things
    | ASDF_DATA_DIR | ASDF_DIR | BUN_INSTALL | COREPACK_HOME | DENO_DIR | FNM_DIR | GOPATH | JAVA_HOME
    | MISE_DATA_DIR | NIX_LD | NIX_LD_LIBRARY_PATH | NVM_DIR | PNPM_HOME | PYENV_ROOT | VOLTA_HOME
    | PIP_CACHE_DIR | PIPX_HOME | (?: NPM_CONFIG | npm_config )_(?: CACHE | PREFIX | cache | prefix )
    | UV_CACHE_DIR | UV_OFFLINE | UV_PYTHON | UV_PYTHON_INSTALL_DIR | UV_TOOL_BIN_DIR | UV_TOOL_DIR
    """,
    re.VERBOSE,
)

# Proxies, and where package runners fetch from: URLs, which are passed on only if they carry no credentials.
_URL = re.compile(
    r"""
      (?: HTTP | HTTPS | ALL )_PROXY | (?: http | https | all )_proxy
    | NPM_CONFIG_REGISTRY | npm_config_registry
    | (?: PIP | UV )_(?: EXTRA_ )?INDEX_URL | UV_(?: DEFAULT_ )?INDEX
    """,
    re.VERBOSE,
)
_MAX_DECODINGS = 4


def child_environment(declared: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: what is `declared` for it, over what is safe of the `parent`'s.

    Safe are the variables that say where programs, certificates, proxies and caches are. Anything else, such
    as an API key the host's shell happens to hold or a proxy's password, reaches a server only by being
    declared.
    """
    return {name: value for name, value in parent.items() if _is_safe(name, value)} | dict(declared)


def _is_safe(name: str, value: str) -> bool:
    if value.startswith("()"):
        # A function for a shell, which some shells would run.
        return False
    kind = _kind_of(name)
    return kind == "safe" or (kind == "url" and not _may_hold_credentials(value))


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> Literal["safe", "url", "other"]:
    """Classify a variable by its name. Cached: every start has the same ones."""
    if _URL.fullmatch(name):
        return "url"
    return "safe" if _SAFE.fullmatch(name) else "other"


def _may_hold_credentials(url: str) -> bool:
    """Whether a URL has userinfo, as any program may read it.

    Not parsed: there may be several URLs, no scheme, or an `@` that is encoded. Each `@` counts as userinfo.
    """
    for _ in range(_MAX_DECODINGS):
        url = unicodedata.normalize("NFKC", url)
        if "@" in url:
            return True
        decoded = unquote(url)
        if decoded == url:
            return False
        url = decoded
    return True
