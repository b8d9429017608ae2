"""The search engines, each a process: ripgrep, and the scan in Python.

Either is read as it prints and ended as soon as there is enough, so a query that matches two million lines
costs no more than the first of them; and it never outlives the call, however that ends. The first matches are
the same ones each time, whichever engine finds them: those in the first files by path.

ripgrep opens files by their paths, so a folder that is swapped for a link while it runs would lead it out,
and it reads ignore files of any kind. So it runs confined to the folder by Landlock, or else in a mount
namespace that has nothing but the folder (bubblewrap), with little memory and time. Where neither is to be
had, and where it runs into its limits or waits for a pipe, the scan does it: that goes from folder to folder,
opens regular files only, and cannot be led astray.
"""

import functools
import logging
import os
import re
import select
import stat
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fairlead.bubblewrap import find_program
from fairlead.errors import ToolFailed
from fairlead.servers.repo import scan as python_scan
from fairlead.servers.repo.folders import OpenFolder
from fairlead.servers.repo.ignores import FILES
from fairlead.servers.repo.landlock import ReadAccess, landlock_version, start_confined
from fairlead.servers.repo.matches import MatchReader, clean_line
from fairlead.servers.repo.scan import MAX_COLUMNS, MAX_DEPTH, MAX_FILE_BYTES, MAX_RULES_BYTES, ScanQuery

logger = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_FAILED = 2
_MOST_UNSORTED = 500
_MOST_SAID = 64 * 1024

MAX_MEMORY = 400 << 20
"""Of ripgrep's address space: enough for a file of the largest size in each of its threads."""
MAX_CPU_SECONDS = 60
MAX_THREADS = 8
_LIMITS = {
    "RLIMIT_AS": MAX_MEMORY,
    "RLIMIT_CPU": MAX_CPU_SECONDS,
    "RLIMIT_CORE": 0,
    "RLIMIT_FSIZE": 0,
}
_QUIET_SECONDS = 0.2
"""How long a search may be silent before it is checked for waiting on a pipe."""
_OPENING_CALLS = frozenset({b"2", b"56", b"257", b"437"})
"""The numbers of open, openat (on x86-64 and elsewhere) and openat2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A process to run in a folder."""

    command: Sequence[str]
    pass_fds: Sequence[int] = ()
    reach: ReadAccess | None = None
    """The folders it is confined to by Landlock."""
    is_limited: bool = False
    """Whether it may have little memory and time only."""


class Runner:
    """Runs processes one after another in a thread, until another thread stops it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the process that runs, if any, and start no other."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def run(self, job: Job, folder: OpenFolder, reader: MatchReader) -> tuple[int, str]:
        """Run a process, and pass on its output as long as more of it is wanted.

        Gives its exit status, 0 if it was ended, and what it complained of. Raises `_Stuck` if it waits for
        a pipe that stands in place of a file.
        """
        if not _is_in_place(folder):
            raise ToolFailed("the project's folder was moved or replaced", hint="restart the server")
        with self._lock:
            if self._is_stopped:
                return 0, ""
            self._process = _start(job, folder)
        with self._process as process:
            assert process.stdout
            assert process.stderr
            try:
                while not reader.is_done and (data := _read(process, is_watched=job.is_limited)):
                    reader.feed(data)
                if reader.is_done:
                    return 0, ""
                # It says little and at its end, so this can wait until then.
                stderr = process.stderr.read(_MOST_SAID)
                process.stderr.close()
                status = process.wait()
            finally:
                process.kill()
        return (0, "") if self._is_stopped else (status, stderr.decode("utf-8", "replace"))


class _Stuck(Exception):
    """A process waits for a pipe that stands in place of a file."""


def _start(job: Job, folder: OpenFolder) -> subprocess.Popen[bytes]:
    with open(os.devnull, "rb") as nothing:
        start = functools.partial(
            subprocess.Popen[bytes],
            job.command,
            bufsize=0,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder.path,
            env=_ENVIRONMENT | {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
            pass_fds=job.pass_fds,
        )
        process = start() if job.reach is None else start_confined(start, job.reach)
    if job.is_limited:
        _limit(process.pid)
    return process


def _limit(pid: int) -> None:
    """Limit a process that was just started. Done from here, since nothing runs in it before the program."""
    import resource  # only where Landlock or bubblewrap is: Linux

    try:
        for name, limit in _LIMITS.items():
            resource.prlimit(pid, getattr(resource, name), (limit, limit))
    except ProcessLookupError:
        return  # it has ended already


_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""The allocator would reserve address space for each thread."""


def _read(process: subprocess.Popen[bytes], *, is_watched: bool) -> bytes:
    """The next output of a process; empty at its end. Raises `_Stuck`."""
    assert process.stdout
    if is_watched:
        waiting: set[bytes] = set()
        while not select.select([process.stdout], [], [], _QUIET_SECONDS)[0]:
            before, waiting = waiting, set(_find_blocked_opens(process.pid))
            if before & waiting:
                raise _Stuck
    return process.stdout.read(_CHUNK)


def _find_blocked_opens(pid: int) -> Iterator[bytes]:
    """The threads of a process and of its children that sleep while they open a file, and which one."""
    pending = [pid]
    for process in pending:
        for task in _names(Path("/proc", str(process), "task")):
            calling = _content(task / "syscall")
            if calling.partition(b" ")[0] in _OPENING_CALLS and b") S " in _content(task / "stat"):
                yield task.name.encode() + b" " + calling
            pending += map(int, _content(task / "children").split())


def _names(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def ripgrep(program: str, runner: Runner, folder: OpenFolder, search: ScanQuery, reader: MatchReader) -> bool:
    """Search with ripgrep. False if it cannot be used here at all; then nothing was read."""
    if _has_odd_ignore_file(folder):
        return False  # ripgrep would find out the slow way
    try:
        with _rules_file(search) as rules, _confine_ripgrep(program, folder, rules) as confine:
            if confine is None:
                logger.info("ripgrep cannot be confined here, so Python searches")
                return False
            status, stderr = _in_order(confine, runner, folder, search, reader)
    except OSError as error:
        status, stderr = _FAILED, str(error)
    except _Stuck:
        logger.warning("ripgrep waits for a pipe in place of a file, so Python searches")
        return False
    if status == _FAILED and re.search("regex|pattern", stderr):
        raise _invalid(stderr)
    if status == _FAILED and stderr:
        logger.warning("ripgrep cannot be used, so Python searches", extra={"said": stderr})
        return False
    if _is_beyond_limits(status, stderr):
        logger.warning("ripgrep was ended by its limits, so Python searches", extra={"status": status})
        return False
    if status not in (0, 1, _FAILED):
        raise ToolFailed("the search was interrupted", hint="try again")
    return True


def _has_odd_ignore_file(folder: OpenFolder) -> bool:
    """Whether a top-level ignore file is not a small regular file. Deeper ones are left to the limits."""
    for name in FILES:
        try:
            found = folder.status(name)
        except OSError:
            continue
        if not stat.S_ISLNK(found.st_mode) and not (
            stat.S_ISREG(found.st_mode) and found.st_size <= MAX_RULES_BYTES
        ):
            return True
    return False


# ── confined ──

_Confine = Callable[[ScanQuery, Literal["none", "path"]], Job]
"""Builds the process of a search."""


@contextmanager
def _confine_ripgrep(program: str, folder: OpenFolder, rules: Path | None) -> Generator[_Confine | None]:
    """The confinement of ripgrep to a folder for the length of the block; None if there is no way."""
    needed = find_needed_files(program)
    with ExitStack() as opened:
        if landlock_version() and needed:
            reach = ReadAccess(
                folders=(_open_path(opened, folder.path) if folder.fd is None else folder.fd,),
                files=tuple(
                    _open_path(opened, path) for path in (rules, _LOADER_CACHE) if path and path.exists()
                ),
                programs=tuple(_open_path(opened, path) for path in needed),
            )
            yield lambda search, sort: Job(
                command=ripgrep_command(program, search, rules, sort=sort), reach=reach, is_limited=True
            )
        elif needed and (bwrap := _bubblewrap(folder.path)) is not None:
            # Nothing but the folder and what is needed to run is there: no /dev, no /proc, no network.
            box = [*_limited(), bwrap, "--unshare-all", "--die-with-parent", "--new-session"]
            for path in (*needed, *((rules,) if rules else ())):
                box += ["--ro-bind", str(path), str(path)]
            box += ["--ro-bind", str(folder.path), str(folder.path), "--chdir", str(folder.path), "--"]
            yield lambda search, sort: Job(
                command=[*box, *ripgrep_command(program, search, rules, sort=sort)], is_limited=True
            )
        else:
            yield None


def _limited() -> list[str]:
    """Beginning of a command that limits what follows: bubblewrap starts the search before we could.

    The shell gets numbers alone to read; the command are its arguments, which it executes as they are.
    """
    limits = (f"-v {MAX_MEMORY // 1024}", f"-t {MAX_CPU_SECONDS}", "-c 0", "-f 0")
    script = " && ".join(f"ulimit {limit}" for limit in limits)
    return ["/bin/sh", "-c", f'{script} && exec "$@"; exit {_FAILED}', "sh"]


_LOADER_CACHE = Path("/etc/ld.so.cache")
_KILLED = 128
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_ELF = b"\x7fELF"


def _open_path(stack: ExitStack, path: Path) -> int:
    fd = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


@functools.cache
def find_needed_files(program: str) -> tuple[Path, ...]:
    """Files that a program needs to run: itself, its loader and libraries. None where that is unknown."""
    real = Path(os.path.realpath(program))
    try:
        with real.open("rb") as file:
            if file.read(len(_ELF)) != _ELF:
                return ()  # A script can start anything.
        # The loader says what it would load, and does not run the program; without one the program runs.
        traced = subprocess.run(
            [real, "--version"],
            env={"LD_TRACE_LOADED_OBJECTS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRACE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    libraries = [Path(path) for path in _LIBRARY.findall(traced.stdout.decode("utf-8", "replace"))]
    return tuple(dict.fromkeys([Path(program), real, *libraries, *map(_resolve_path, libraries)]))


_TRACE_SECONDS = 5.0


def _resolve_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


@functools.cache
def _bubblewrap(root: Path) -> str | None:
    """bubblewrap, where it is installed outside of a folder and allowed to make namespaces."""
    bwrap = find_program("bwrap", os.environ.get("PATH"), [root])
    if bwrap is None:
        return None
    try:
        command = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "--", bwrap, "--version"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return bwrap if done.returncode == 0 else None


def _in_order(
    confine: _Confine, runner: Runner, folder: OpenFolder, search: ScanQuery, reader: MatchReader
) -> tuple[int, str]:
    """Have ripgrep's matches read in the order of their paths.

    When it sorts, it works on one processor. So it runs unsorted, and what it finds is sorted here, unless
    that is very much: then the first matches are soon found in order.
    """
    unsorted = reader.fork(limit=_MOST_UNSORTED)
    ended = runner.run(confine(search, "none"), folder, unsorted)
    if unsorted.is_full:
        in_order = reader.fork()
        ended = runner.run(confine(search, "path"), folder, in_order)
        unsorted = in_order
    if not _is_beyond_limits(*ended) and not (ended[0] == _FAILED and ended[1]):
        reader.join(unsorted)  # else Python searches, and nothing may have been read
    return ended


def _is_beyond_limits(status: int, stderr: str) -> bool:
    """Whether ripgrep was ended by one of its limits."""
    return status < 0 or status > _KILLED or "allocation" in stderr


def scan(runner: Runner, folder: OpenFolder, search: ScanQuery, reader: MatchReader) -> None:
    """Search with Python."""
    passed_on = () if folder.fd is None else (folder.fd,)
    try:
        job = Job(command=python_scan.command(folder, search), pass_fds=passed_on)
        status, stderr = runner.run(job, folder, reader)
    except OSError as error:
        raise ToolFailed("there is no ripgrep here, and no Python to search with") from error
    if status == python_scan.FAILED:
        raise _invalid(stderr)
    if status != 0:
        logger.error("the scan broke", extra={"status": status, "said": stderr})
        raise ToolFailed("the search was interrupted", hint="try again")


def ripgrep_command(
    program: str, search: ScanQuery, rules: Path | None, *, sort: Literal["none", "path"]
) -> list[str]:
    """The command that searches the current folder.

    Each value shares an argument with its option, so nothing a caller says can be taken for an option, and no
    configuration of the user's is read, which could name a program to run for each file.
    """
    return [
        program,
        "--no-config",
        "--no-mmap",
        f"--threads={min(MAX_THREADS, os.cpu_count() or 1)}",
        f"--sort={sort}",
        # What is printed, and how.
        "--null",
        "--with-filename",
        "--line-number",
        "--no-heading",
        "--color=never",
        "--line-buffered",
        "--no-messages",
        "--no-context-separator",
        "--path-separator=/",
        f"--max-columns={MAX_COLUMNS}",
        "--max-columns-preview",
        f"--context={search.context}",
        f"--max-count={search.limit}",
        # What is searched: nothing outside the folder has a say in it.
        "--no-follow",
        "--no-require-git",
        "--no-ignore-parent",
        "--no-ignore-global",
        "--no-ignore-exclude",
        "--no-ignore-messages",
        "--iglob=!{.git,.hg,.jj,.svn}",
        f"--max-depth={MAX_DEPTH}",
        f"--max-filesize={MAX_FILE_BYTES}",
        *([f"--ignore-file={rules}"] if rules else []),
        *(["--hidden"] if search.with_hidden else []),
        # What it is searched for.
        *(["--fixed-strings"] if search.is_fixed else []),
        "--case-sensitive" if search.is_sensitive else "--ignore-case",
        f"--regexp={search.query}",
        "--",
        ".",
    ]


@contextmanager
def _rules_file(search: ScanQuery) -> Generator[Path | None]:
    """The file in which ripgrep reads what to leave out for the caller's globs."""
    if not search.narrowing:
        yield None
        return
    # What ripgrep's rules keep, it also takes out of hiding.
    lines = search.narrowing if search.with_hidden else (*search.narrowing, ".*")
    with TemporaryDirectory(prefix="fairlead-") as folder:
        file = Path(folder, "globs")
        file.write_text("\n".join(lines), encoding="utf-8")
        yield file


def _is_in_place(folder: OpenFolder) -> bool:
    try:
        return folder.fd is None or os.path.samestat(os.stat(folder.path), os.fstat(folder.fd))
    except OSError:
        return False


def _invalid(stderr: str) -> ToolFailed:
    """The error of the query, from the stderr of a search."""
    stated = re.search(r"^error: (.+)", stderr, re.MULTILINE)
    reason = stated[1] if stated else stderr.strip().partition("\n")[0].removeprefix("rg: ")
    return ToolFailed(
        f"invalid regular expression: {clean_line(reason)}",
        hint="pass `fixed: true` to search for text as it is, or put `\\` before special characters",
    )
