"""The two processes that can search a folder: ripgrep, and the scan in Python.

Either is read as it prints and ended as soon as there is enough, so a query that matches two million lines
costs no more than the first of them; and it never outlives the call, however that ends. The first matches are
the same ones each time, whichever engine finds them: those in the first files by path.

ripgrep opens files by their paths. Whoever can swap a folder in the project for a link while it runs can have
it follow that link. The scan goes from folder to folder and cannot be led astray.
"""

import logging
import os
import re
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fairlead.errors import ToolFailed
from fairlead.servers import scan as python_scan
from fairlead.servers.matches import MatchReader, cleaned
from fairlead.servers.opened import OpenFolder
from fairlead.servers.scan import MAX_COLUMNS, MAX_DEPTH, MAX_FILE_BYTES, Search

logger = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_FAILED = 2
_MOST_UNSORTED = 500


class Runner:
    """Runs one process after another in a thread, until another thread has it stop."""

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

    def run(
        self, command: Sequence[str], folder: OpenFolder, reader: MatchReader, *, pass_fds: Sequence[int] = ()
    ) -> tuple[int, str]:
        """Read what a process prints as far as it is wanted.

        Gives its exit status, 0 if it was ended, and what it complained of.
        """
        if not _is_in_place(folder):
            raise ToolFailed("the project's folder was moved or replaced", hint="restart the server")
        with self._lock:
            if self._is_stopped:
                return 0, ""
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder.path,
                env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
                pass_fds=pass_fds,
            )
        with self._process as process:
            assert process.stdout
            assert process.stderr
            try:
                while not reader.is_done and (data := process.stdout.read(_CHUNK)):
                    reader.feed(data)
                if reader.is_done:
                    return 0, ""
                # It says little and at its end, so this can wait until then.
                said = process.stderr.read()
                status = process.wait()
            finally:
                process.kill()
        return (0, "") if self._is_stopped else (status, said.decode("utf-8", "replace"))


def ripgrep(program: str, runner: Runner, folder: OpenFolder, search: Search, reader: MatchReader) -> bool:
    """Search with ripgrep. False if it cannot be used here at all; then nothing was read."""
    try:
        with _rules_file(search) as rules:
            status, said = _in_order(program, runner, folder, search, rules, reader)
    except OSError as error:
        status, said = _FAILED, str(error)
    if status == _FAILED and re.search("regex|pattern", said):
        raise _invalid(said)
    if status == _FAILED and said:
        logger.warning("ripgrep cannot be used, so Python searches", extra={"said": said})
        return False
    if status not in (0, 1, _FAILED):
        raise ToolFailed("the search was interrupted", hint="try again")
    return True


def _in_order(
    program: str, runner: Runner, folder: OpenFolder, search: Search, rules: Path | None, reader: MatchReader
) -> tuple[int, str]:
    """Have ripgrep's matches read in the order of their paths.

    When it sorts, it works on one processor. So it is not told to, and what it finds is sorted here, unless
    that is very much: then the first matches are soon found in order.
    """
    unsorted = reader.fork(limit=_MOST_UNSORTED)
    ended = runner.run(ripgrep_command(program, search, rules, sort="none"), folder, unsorted)
    if unsorted.is_full:
        return runner.run(ripgrep_command(program, search, rules, sort="path"), folder, reader)
    reader.join(unsorted)
    return ended


def scan(runner: Runner, folder: OpenFolder, search: Search, reader: MatchReader) -> None:
    """Search with Python."""
    passed_on = () if folder.fd is None else (folder.fd,)
    try:
        status, said = runner.run(python_scan.command(folder, search), folder, reader, pass_fds=passed_on)
    except OSError as error:
        raise ToolFailed("there is no ripgrep here, and no Python to search with") from error
    if status == python_scan.FAILED:
        raise _invalid(said)
    if status != 0:
        logger.error("the scan broke", extra={"status": status, "said": said})
        raise ToolFailed("the search was interrupted", hint="try again")


def ripgrep_command(
    program: str, search: Search, rules: Path | None, *, sort: Literal["none", "path"]
) -> list[str]:
    """The command that searches the current folder.

    Each value shares an argument with its option, so nothing a caller says can be taken for an option, and no
    configuration of the user's is read, which could name a program to run for each file.
    """
    return [
        program,
        "--no-config",
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
def _rules_file(search: Search) -> Generator[Path | None]:
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


def _invalid(said: str) -> ToolFailed:
    """What is wrong with the query, out of what a search complained of."""
    stated = re.search(r"^error: (.+)", said, re.MULTILINE)
    reason = stated[1] if stated else said.strip().partition("\n")[0].removeprefix("rg: ")
    return ToolFailed(
        f"invalid regular expression: {cleaned(reason)}",
        hint="pass `fixed: true` to search for text as it is, or put `\\` before special characters",
    )
