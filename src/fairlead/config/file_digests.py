"""Digests of a project's files and folders, which consent is bound to."""

import glob
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from fairlead.config.paths import FILE_NAME, LOCK_NAME

WORD_BREAKS = re.compile(r"[\s;&|()<>'\"`$=,:]+")
"""Separators of words in a command line that can name files."""
MAX_DIGESTED_BYTES = 64 * 1024 * 1024
"""Larger files are bound by inode, size and change time, which only the kernel sets."""
MAX_FOLDER_FILES = 2_000
"""A folder with more files, or more bytes than `MAX_DIGESTED_BYTES`, is not bound by its content."""
_MAX_FOLDER_ENTRIES = 10 * MAX_FOLDER_FILES
INSTALLED_FOLDERS = frozenset({"node_modules", ".venv", "venv", ".tox", ".nox"})
"""Folders that package managers fill: counted separately, so that their size does not unbind the rest."""
_GIT_FILES = frozenset({"config", "config.worktree", "hooks", "info"})
"""Files of git's own folder that it executes or reads settings from."""
_OWN_FILES = frozenset({FILE_NAME, LOCK_NAME})
"""Files that Fairlead writes: counting them, `fairlead lock` would revoke consent."""
NOT_BOUND = "not bound: too large"
_DATA_SUFFIX = re.compile(
    r"\.(?:db|sqlite3?|duckdb|csv|tsv|txt|md|rst|log|pdf|png|jpe?g|gif|svg|webp|parquet|jsonl|ndjson|pid|sock)",
    re.IGNORECASE,
)
"""Suffixes of data files: such an argument is data, unless executable or an interpreter's first file."""
_SHEBANG_BYTES = 256
_HASH_BASED, _CHECKS_SOURCE = 1, 2
"""Flags of a file of bytecode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundFile:
    """A file, or a folder with its content, that consent is bound to."""

    path: str
    real: str | None
    """Real path, links followed; None where there is no such file."""
    content: str | None
    """Digest of its content; None for one outside the project, `NOT_BOUND` for too large a folder."""


class ProjectFolders:
    """Folders in which a project can change files, compared by identity so that no spelling escapes."""

    def __init__(self, base: Path, home: Path, *more: Path) -> None:
        repositories = _repositories(base, home)
        folders = [base, *repositories[:1], *more]
        real = {Path(os.path.realpath(folder)) for folder in folders}
        self.roots = tuple(sorted(root for root in real if real.isdisjoint(root.parents)))
        """Folders that contain all others."""
        self.outer = tuple(repositories[1:])
        """Repositories around the innermost one, as around a submodule."""
        self._identities = {
            found for folder in (*folders, *repositories) if (found := _identity(folder)) is not None
        }

    def __contains__(self, path: str | Path) -> bool:
        absolute = os.path.abspath(path)
        spellings = {Path(absolute), Path(os.path.realpath(absolute))}
        folders = {folder for spelling in spellings for folder in (spelling, *spelling.parents)}
        return any(_identity(folder) in self._identities for folder in folders)


def _repositories(base: Path, home: Path) -> list[Path]:
    """Repositories around a folder, innermost first: a submodule or worktree has a file for its `.git`."""
    around = takewhile(lambda folder: folder != home, (base, *base.parents))
    return [folder for folder in around if os.path.lexists(folder / ".git")]


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def bind_file(path: str, project: ProjectFolders) -> BoundFile:
    """Real path of a file, and a digest of its content where it belongs to the project."""
    if not os.path.exists(path):
        return BoundFile(path=path, real=None, content=None)
    real = os.path.realpath(path)
    content = digest_file(real) if path in project or real in project else None
    return BoundFile(path=path, real=real, content=content)


def digest_file(path: str) -> str:
    """Digest of a regular file's content; for a very large one, of what the kernel records at each change."""
    import hashlib  # loads a crypto library, which commands that only read do not need

    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)  # a FIFO without a writer must not block
    except OSError as exc:
        return f"unreadable: {exc.errno}"
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return "not a regular file"
        if found.st_size > MAX_DIGESTED_BYTES:
            return f"large:{found.st_ino}:{found.st_size}:{found.st_ctime_ns}"
        digest = hashlib.sha256()
        left = MAX_DIGESTED_BYTES + 1
        with open(descriptor, "rb", closefd=False) as file:  # not before the check: it refuses folders
            while left > 0 and (piece := file.read(min(1 << 20, left))):
                digest.update(piece)
                left -= len(piece)
    except OSError as exc:  # a disk or network file system that fails
        return f"unreadable: {exc.errno}"
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def bind_folder(path: str, project: ProjectFolders, mentioned: str) -> BoundFile:
    """Real path and digest of a folder; `mentioned` is the command line, see `digest_folder`."""
    real = os.path.realpath(path)
    content = digest_folder(real, mentioned) if real in project else None
    return BoundFile(path=path, real=real, content=content)


def digest_folder(folder: str, mentioned: str = "") -> str:
    """Digest of the names and contents of a folder's files, or `NOT_BOUND`. Links are not followed.

    Args:
        folder: The folder. Folders that package managers fill are left out, unless it is one.
        mentioned: The command line: data files and our own count only where it may name them.
    """
    import hashlib

    expands = re.search(r"[*?\[{$`]", mentioned) is not None

    def counts(entry: os.DirEntry[str]) -> bool:
        if entry.name in _OWN_FILES:
            return _is_matched(entry.name, mentioned)
        return expands or not is_data_file(entry.path) or _is_mentioned(entry.name, mentioned)

    digest, files, size = hashlib.sha256(), 0, 0
    for seen, entry in enumerate(_walk(folder)):
        content = ""
        with suppress(FileNotFoundError):  # deleted since the folder was listed
            if entry.is_symlink():
                content = f"link to {os.readlink(entry.path)}"
            elif counts(entry):
                files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
                content = digest_file(entry.path) if size <= MAX_DIGESTED_BYTES else ""
        if files > MAX_FOLDER_FILES or size > MAX_DIGESTED_BYTES or seen > _MAX_FOLDER_ENTRIES:
            return NOT_BOUND
        if content:
            name = os.path.relpath(entry.path, folder)
            digest.update(f"{name}\0{content}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def installed_programs(folder: str) -> list[str]:
    """Folders of programs that package managers fill, also deep in a folder: packages have their own."""
    found: list[str] = []
    for seen, (here, names, _) in enumerate(os.walk(folder)):
        if seen > MAX_FOLDER_FILES:
            break  # the folder itself is too large to be bound, and the user is told
        installed = [os.path.join(here, name) for name in names if name in INSTALLED_FOLDERS]
        found += [os.path.join(each, place) for each in installed for place in (".bin", "bin", "Scripts")]
        names[:] = [name for name in names if name not in INSTALLED_FOLDERS and name != ".git"]
    return [each for each in found if os.path.isdir(each)]


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    """Every file and link below a folder, always in the same order. Unreadable folders are left out."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as found:
                listed = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue  # the program cannot read it either
        for entry in listed:
            if os.path.basename(here) == ".git" and entry.name not in _GIT_FILES:
                continue
            if os.path.basename(here) == "__pycache__" and not _is_unchecked_cache(entry.path):
                continue  # written anew by each run, and only used if it fits its source
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif entry.name not in INSTALLED_FOLDERS:
                pending.append(entry.path)


def unchecked_caches(path: str) -> list[str]:
    """Bytecode that Python runs in the place of a module without a look at it (PEP 552)."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    if suffix != ".py":
        return []
    found = glob.glob(os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(stem)}.*.pyc"))
    return sorted(filter(_is_unchecked_cache, found))


def _is_unchecked_cache(path: str) -> bool:
    flags = int.from_bytes(first_bytes(path, 8)[4:], "little")
    return flags & _HASH_BASED != 0 and flags & _CHECKS_SOURCE == 0


def _is_mentioned(name: str, text: str) -> bool:
    return name in text or os.path.splitext(name)[1] in text


def _is_matched(name: str, text: str) -> bool:
    """Whether a command line names this file, literally or by a shell pattern."""
    braced = re.sub(r"(?<=[\w./-])\{[^\s{}]*\}|\{[^\s{}]*\}(?=[\w./-])", "*", text)  # no JSON
    patterns = [word.rpartition("/")[2] for word in WORD_BREAKS.split(braced) if re.search(r"[*?\[]", word)]
    return name in text or any(fnmatchcase(name, pattern) for pattern in patterns)


def shebang_words(script: str | Path) -> list[str]:
    """Words of a script's `#!` line; none where it is no script."""
    first = first_bytes(script, _SHEBANG_BYTES).partition(b"\n")[0]
    return first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []


def first_bytes(path: str | Path, size: int) -> bytes:
    """First bytes of a regular file; none of anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return b""
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def is_data_file(path: str) -> bool:
    """Whether a file is data by its name, and not executable."""
    if _DATA_SUFFIX.fullmatch(os.path.splitext(path)[1]) is None:
        return False
    return not os.access(path, os.X_OK) and not shebang_words(path)
