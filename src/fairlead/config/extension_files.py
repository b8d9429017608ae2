"""The Python files of an extension folder: read once, bound by digest, and passed on as one archive.

What a child process runs is what was read here, byte for byte: it gets the archive and its digest, and reads
no file of the folder itself.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

SUFFIX = ".py"
MAX_FILES = 200
"""A folder with more Python files is a package, not a folder of tools."""
MAX_FILE_BYTES = 1024 * 1024
MAX_FOLDER_BYTES = 8 * 1024 * 1024
_MAX_ENTRIES = 20_000
"""How many entries of a folder are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtensionFile:
    """One Python file, as it was read."""

    name: str
    content: bytes = field(repr=False)
    digest: str


@dataclass(frozen=True, kw_only=True)
class ExtensionFolder:
    """The Python files of a folder, and those that cannot be used."""

    path: str
    real: str
    """The same with links followed."""
    files: tuple[ExtensionFile, ...]
    unusable: tuple[tuple[str, str], ...] = ()
    """Names that can be shown, each with the reason."""
    failure: str | None = None
    """Why none of it can be used, if so."""

    @property
    def digests(self) -> list[list[str]]:
        """Digests of every file by name and content, which consent is bound to."""
        return [[file.name, file.digest] for file in self.files]

    @cached_property
    def archive(self) -> bytes:
        """The files as an archive, for the process that runs them."""
        document = {
            "folder": self.real,
            "files": [[file.name, file.content.decode("latin-1")] for file in self.files],
            "unusable": self.unusable,
        }
        return json.dumps(document, ensure_ascii=True).encode()

    @cached_property
    def archive_digest(self) -> str:
        """Digest that the process compares with the archive before it runs any of it."""
        return _digest(self.archive)


def read_extension_folder(folder: Path, *, follow_links: bool) -> ExtensionFolder:
    """Read the Python files directly in a folder. Hidden files, subfolders and bytecode are left alone.

    Args:
        folder: The folder; it may be a link itself.
        follow_links: Whether a file may be a link. In a project it could show us a file of the user's.

    Returns:
        The files, or with a `failure` none: the folder cannot be read, or there is too much in it.
    """
    try:
        return _read_folder(folder, follow_links=follow_links)
    except _UnusableFile as exc:
        return ExtensionFolder(path=str(folder), real=os.path.realpath(folder), files=(), failure=str(exc))


def _read_folder(folder: Path, *, follow_links: bool) -> ExtensionFolder:
    files: list[ExtensionFile] = []
    unusable: list[tuple[str, str]] = []
    total = 0
    for name in _names(folder):
        shown = os.fsencode(name).decode(errors="backslashreplace")
        try:
            if shown != name or not name.isprintable():
                raise _UnusableFile("its name is not plain text")
            content = _read(folder / name, follow_links=follow_links)
        except _UnusableFile as exc:
            unusable.append((shown, str(exc)))
            continue
        total += len(content)
        if total > MAX_FOLDER_BYTES:
            raise _UnusableFile(f"{folder} has more than {MAX_FOLDER_BYTES // 1024**2} MiB of Python files")
        files.append(ExtensionFile(name=name, content=content, digest=_digest(content)))
    return ExtensionFolder(
        path=str(folder), real=os.path.realpath(folder), files=tuple(files), unusable=tuple(unusable)
    )


def extension_stamp(folder: Path) -> str:
    """Value that changes when a file of the folder does. Empty where the folder cannot be read."""
    try:
        return repr([(name, _stamp(folder / name)) for name in _names(folder)])
    except _UnusableFile:
        return ""


class _UnusableFile(Exception):
    """Why a file, or the whole folder, is left out."""


def _names(folder: Path) -> list[str]:
    """The names of Python files in a folder, in order. Raises `_UnusableFile`."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(_limit_entries(folder, entries))
    except OSError as exc:
        raise _UnusableFile(f"cannot read the folder {folder}: {exc.strerror}") from exc
    if len(found) > MAX_FILES:
        raise _UnusableFile(f"{folder} has more than {MAX_FILES} Python files")
    return found


def _limit_entries(folder: Path, entries: Iterator[os.DirEntry[str]]) -> Iterator[str]:
    for number, entry in enumerate(entries):
        if number >= _MAX_ENTRIES:
            raise _UnusableFile(f"{folder} has more than {_MAX_ENTRIES} files")
        if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            yield entry.name


def _read(path: Path, *, follow_links: bool) -> bytes:
    """The content of a regular file. Nothing else is opened: a FIFO would block, a device may do things."""
    try:
        found = os.stat(path) if follow_links else os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            raise _UnusableFile("it is a link, which a project's folder may not have")
        if not stat.S_ISREG(found.st_mode):
            raise _UnusableFile("it is not a regular file")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        flags |= 0 if follow_links else getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was replaced meanwhile
                raise _UnusableFile("it is not a regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise _UnusableFile(f"it cannot be read: {exc.strerror}") from exc
    if len(content) > MAX_FILE_BYTES:
        raise _UnusableFile(f"it is larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return content


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _digest(content: bytes) -> str:
    import hashlib  # loads a crypto library, which commands that only read do not need

    return hashlib.sha256(content).hexdigest()
