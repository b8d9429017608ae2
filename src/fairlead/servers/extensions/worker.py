"""The worker of an extension: runs the files of an archive, each on its own, and serves their tools.

A file has a function `register(server)`, which registers `ToolDefinition`s. A file whose name begins with `_`
is for the others to import. What goes wrong with one file is noted, and costs only that one.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType

import anyio

from fairlead.config.extension_files import SUFFIX
from fairlead.config.untyped import as_list, as_object
from fairlead.servers.framework.server import McpServer

READY = "ready"
"""What the worker reports once it serves."""
MAX_REASON = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """The files of an extension as its host read them."""

    folder: str
    sources: Mapping[str, bytes]
    """By file name."""
    unusable: Mapping[str, str]
    """Files that the host left out, each with the reason."""

    @classmethod
    def open(cls, path: str, digest: str) -> "Archive":
        """Read an archive once. Exits where it is not the one that the host means."""
        with open(path, "rb") as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != digest:
            sys.exit("the archive is not the one that was approved")
        document = as_object(json.loads(content))
        return cls(
            folder=document["folder"],
            sources={name: text.encode("latin-1") for name, text in as_list(document["files"])},
            unusable=dict(as_list(document["unusable"])),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLinks:
    """Links of a worker to the processes above it."""

    reports: int
    """Where the supervisor reads which file is run now. It stays open, so that its end tells the worker's."""
    parent: socket.socket
    """Where the parent answers, as long as it lives and files are run."""


class ArchiveImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the files of an archive. It comes last: what is installed keeps its name."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        names = [*archive.sources]
        stems = {name.removesuffix(SUFFIX): name for name in names}
        # A file that is called as something installed, or as no module can be, has a module all the same.
        self._own = {name: f"fairlead_extension_{at}" for at, name in enumerate(names)}
        self._files = {own: name for name, own in self._own.items()} | stems

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the file of a module."""
        name = self._files.get(fullname)
        if name is None:
            return None
        place = os.path.join(self._archive.folder, name)
        return importlib.util.spec_from_loader(fullname, self, origin=place)

    def exec_module(self, module: ModuleType) -> None:
        """Run a file."""
        name = self._files[module.__name__]
        module.__file__ = os.path.join(self._archive.folder, name)
        exec(self._compile(name, module.__file__), module.__dict__)  # noqa: S102 - that is what it is for

    def load(self, name: str) -> ModuleType:
        """Run a file of the archive, unless another one has imported it, and return its module."""
        stem = name.removesuffix(SUFFIX)
        found = importlib.util.find_spec(stem) if stem.isidentifier() else None
        is_ours = found is not None and found.loader is self
        return importlib.import_module(stem if is_ours else self._own[name])

    def _compile(self, name: str, place: str) -> CodeType:
        return compile(self._archive.sources[name], place, "exec", dont_inherit=True)


class ExtensionLoader:
    """Runs the files and collects their tools."""

    def __init__(
        self, archive: Archive, server: McpServer, left_out: Mapping[str, str], links: WorkerLinks | None
    ) -> None:
        self._archive = archive
        self._server = server
        self._links = links
        self._importer = ArchiveImporter(archive)
        self._owners: dict[str, str] = {}
        self._problems = {**archive.unusable, **left_out}

    def load_all(self) -> None:
        """Run all files in the order of their names. What went wrong is in the server's notes."""
        sys.meta_path.append(self._importer)
        for name in self._archive.sources:
            if name.startswith("_") or name in self._problems:
                continue
            self._report(name)
            try:
                self._load(name)
            except (Exception, SystemExit, KeyboardInterrupt) as exc:  # noqa: BLE001 - it costs only this file
                self._problems[name] = _reason(exc)
                self._lost_parent()  # not the next file's doing
                if not isinstance(exc, _FileRefused):
                    traceback.print_exc()
        self._report(READY)
        self._server.notes += [f"{name} is left out: {why}" for name, why in self._problems.items()]

    def _load(self, name: str) -> None:
        register = getattr(self._importer.load(name), "register", None)
        if not callable(register) or inspect.iscoroutinefunction(register):
            raise _FileRefused("it has no function `register(server)`")
        own = McpServer(self._server.name)
        register(own)
        if self._lost_parent():
            raise _FileRefused("it killed its parent process")
        for tool in own.tools:
            if (owner := self._owners.get(tool.name)) is not None:
                raise _FileRefused(f"its tool `{tool.name}` is in {owner} already")
        for tool in own.tools:
            self._owners[tool.name] = name
            self._server.register(tool)

    def _report(self, text: str) -> None:
        """Tell the supervisor what is run now, since only it can tell whether that ends."""
        if self._links is not None:
            os.write(self._links.reports, text.replace("\n", " ").encode() + b"\n")

    def _lost_parent(self) -> bool:
        """Whether the parent of this process, which answers as long as it is there, was ended since."""
        if self._links is None or self._links.parent.fileno() < 0:
            return False
        answer = b""
        with suppress(OSError):
            self._links.parent.sendall(b".")
            answer = self._links.parent.recv(1)
        if not answer:
            self._links.parent.close()
        return not answer


class _FileRefused(Exception):
    """Why a file's tools are not taken."""


def _reason(exc: BaseException) -> str:
    """Error of a file in one line, with its place in the file."""
    if isinstance(exc, _FileRefused):
        return str(exc)
    if isinstance(exc, SystemExit):
        return f"it ended with sys.exit({exc.code!r})"[:MAX_REASON]
    frames = traceback.extract_tb(exc.__traceback__)
    line = exc.lineno if isinstance(exc, SyntaxError) else frames[-1].lineno if frames else None
    words = f"{type(exc).__name__}: {exc.msg if isinstance(exc, SyntaxError) else exc}"
    return f"{words} (line {line})"[:MAX_REASON] if line else words[:MAX_REASON]


def run_worker(archive: Archive, name: str, left_out: Mapping[str, str], links: WorkerLinks | None) -> None:
    """Run the files, then serve their tools over stdio until the host closes it.

    Args:
        archive: The files.
        name: The name of the server.
        left_out: Files that are not to be run, each with the reason.
        links: The ties to the processes above, where there are any.
    """
    server = McpServer(name)
    # Before the first file is run: what it prints or reads is no message.
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    ExtensionLoader(archive, server, left_out, links).load_all()
    if links is not None:
        links.parent.close()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    for descriptor in (stdin, stdout, null):
        os.close(descriptor)
    anyio.run(server.serve_stdio)
