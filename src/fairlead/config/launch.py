"""What a project's entry would execute: its program, working folder and the files that its arguments name.

Consent is bound to this (see `consent.py`), and the server is started with exactly this argv and folder.
Files inside the project are bound by a digest of their content, files outside by the path they really have: a
package manager may update `/usr/bin/node`, and nothing that comes with a repository can.

Covered are the program, the interpreter its first line names, the scripts and manifests that its arguments
name, `node_modules/.bin` and `.venv/bin` programs of that name, and the files that variables such as
`NODE_OPTIONS` or `LD_PRELOAD` name. Not covered: what a program imports, loads or downloads once it runs.
"""

import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_DIGESTED_BYTES = 64 * 1024 * 1024
"""Larger files are bound by inode, size and change time, which only the system's clock and kernel set."""

EXECUTION_VARIABLES = re.compile(
    r"PATH|PATHEXT|IFS|ENV|SHELLOPTS|PS4|(?:LD|DYLD)_\w+|GLIBC_TUNABLES|GCONV_PATH"
    r"|BASH_ENV|BASH_FUNC_.*|ZDOTDIR|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS)|(?:NPM_CONFIG|npm_config)_\w+|PYTHON\w*"
    r"|VIRTUAL_ENV|UV_\w+|PIP_\w+|PERL5?(?:LIB|OPT|DB)|RUBY(?:LIB|OPT)|GEM_(?:HOME|PATH)|BUNDLE_\w+|PHPRC"
    r"|PHP_INI_SCAN_DIR|LUA_(?:PATH|CPATH|INIT)\w*|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH"
    r"|DOTNET_\w+|CORECLR_\w+|GIT_\w+|SSH_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|SHELL|HOME|XDG_\w+|DENO_\w+|BUN_\w+"
    r"|\w*_PROXY|\w*_proxy|DOCKER_HOST|DOCKER_CONTEXT"
)
"""Variables that decide which code runs or which hosts are contacted, whatever the program is."""

_INTERPRETER = re.compile(
    r"(?:python|pypy|node|nodejs|deno|bun|bunx|ruby|perl|php|lua|luajit|sh|ash|bash|dash|zsh|ksh|fish|pwsh|powershell"
    r"|cmd|java|dotnet|tsx|ts-node|npx|npm|pnpm|pnpx|yarn|uv|uvx|pipx|poetry|pdm|hatch|rye|env|nohup|nice|timeout"
    r"|stdbuf|setsid|xargs|sudo|doas|busybox|wasmtime|wasmer|rscript|julia|osascript|make|just|task|cargo|go|docker"
    r"|podman|exec|time|strace|systemd-run|script|watchexec|nodemon|mise|direnv|awk|gawk|tclsh|guile|racket|elixir)"
    r"[\d.]*(?:\.exe|\.cmd)?",
    re.IGNORECASE,
)
_JS, _PY = ("package.json", ".npmrc", ".yarnrc.yml", "bunfig.toml"), ("pyproject.toml", "uv.toml")
_CONTAINERS = ("compose.yaml", "compose.yml", "docker-compose.yml", "Dockerfile")
_MANIFESTS = {
    **dict.fromkeys(("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"), _JS),
    **dict.fromkeys(("uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye"), _PY),
    "deno": ("deno.json", "deno.jsonc"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", ".justfile", "Justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "cargo": ("Cargo.toml", ".cargo/config.toml"),
    **dict.fromkeys(
        ("docker", "podman"), ("compose.yaml", "compose.yml", "docker-compose.yml", "Dockerfile")
    ),
    "mise": ("mise.toml", ".mise.toml"),
    "direnv": (".envrc",),
}
"""Files of the working folder (or a parent, inside the project) that say what such a program runs."""
_PACKAGE = ("package.json", "__main__.py", "index.js", "index.mjs", "pyproject.toml", "setup.py", "deno.json")
_INSTALLED = ("node_modules/.bin", ".venv/bin", "venv/bin", ".venv/Scripts")
_DATA_SUFFIX = re.compile(
    r"\.(?:db|sqlite3?|duckdb|csv|tsv|txt|md|rst|log|pdf|png|jpe?g|gif|svg|webp|parquet|jsonl|ndjson|pid|sock)",
    re.IGNORECASE,
)
"""An argument that names such a file names data, unless it is executable or an interpreter's first file."""
_LINE_OPTION = re.compile(r"-\w*c|/c|-e|--eval|--call|-Command|-EncodedCommand", re.IGNORECASE)
"""Options whose value is a line of a shell or another language."""
_SHEBANG_BYTES = 256
_MAX_DEPTH = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundFile:
    """A file as consent is bound to it."""

    path: str
    real: str | None
    """Where it really is, links followed; None where there is no such file."""
    content: str | None
    """Digest of its content; None for a file outside the project."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What would be started, resolved once."""

    argv: tuple[str, ...]
    cwd: Path
    starts_in_cwd: bool
    """False where the entry names no folder, and it starts where the host happens to run."""
    program: BoundFile
    files: tuple[BoundFile, ...]
    """Everything else that decides what runs."""


class ProjectFolders:
    """The folders a project can change files in: told apart by identity, so that no spelling escapes."""

    def __init__(self, base: Path, home: Path, *more: Path) -> None:
        folders = [base, _repository(base, home), *more]
        self._identities = {found for folder in folders if (found := _identity(folder)) is not None}

    def __contains__(self, path: str | Path) -> bool:
        absolute = os.path.abspath(path)
        spellings = {Path(absolute), Path(os.path.realpath(absolute))}
        folders = {folder for spelling in spellings for folder in (spelling, *spelling.parents)}
        return any(_identity(folder) in self._identities for folder in folders)


def _repository(base: Path, home: Path) -> Path:
    """The repository that a folder is in: a submodule or worktree has a file for its `.git`."""
    for folder in (base, *base.parents):
        if folder == home:
            break
        if os.path.lexists(folder / ".git"):
            return folder
    return base


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def find_program(name: str, folder: Path, search: str) -> str | None:
    """Where the system finds a program that is started in `folder`: an absolute path, links not followed."""
    is_path = "/" in name or os.sep in name
    places = [""] if is_path else search.split(os.pathsep)
    candidates = (os.path.join(folder.absolute(), place, name) for place in places)
    found = next((path for candidate in candidates if (path := shutil.which(candidate))), None)
    return re.sub(r"/(?:\./)+", "/", found) if found else None


def resolve_launch(
    argv: Sequence[str],
    *,
    cwd: Path | None,
    variables: Mapping[str, str],
    search: str,
    project: ProjectFolders,
) -> Launch:
    """Find out what a command line would execute.

    Args:
        argv: The program and its arguments, references resolved.
        cwd: The folder it is started in; None for that of this process.
        variables: What its entry puts into its environment.
        search: The `PATH` it is looked for in.
        project: What counts as inside the project.
    """
    folder = Path(os.path.realpath(cwd or Path.cwd()))
    found = find_program(argv[0], folder, search)
    program = bind_file(found or os.path.join(folder, argv[0]), project)
    paths = _Paths(folder, search, project)
    files: dict[str, BoundFile] = {}
    for path in (*paths.of_program(found), *paths.of_arguments(argv, found), *paths.of_variables(variables)):
        if path not in files and path != found:
            files[path] = bind_file(path, project)
    return Launch(
        argv=(found or argv[0], *argv[1:]),
        cwd=folder,
        starts_in_cwd=cwd is not None,
        program=program,
        files=tuple(files.values()),
    )


def bind_file(path: str, project: ProjectFolders) -> BoundFile:
    """Where a file really is, and what is in it where it belongs to the project."""
    if not os.path.exists(path):
        return BoundFile(path=path, real=None, content=None)
    real = os.path.realpath(path)
    content = digest_file(real) if path in project or real in project else None
    return BoundFile(path=path, real=real, content=content)


def digest_file(path: str) -> str:
    """Digest of a regular file's content; of a very large one, of what the kernel notes at each change."""
    import hashlib  # loads a crypto library, which reading commands have no use for

    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)  # a FIFO without a writer must not hold us
    except OSError as exc:
        return f"unreadable: {exc.errno}"
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return "not a regular file"
        if found.st_size > MAX_DIGESTED_BYTES:
            return f"large:{found.st_ino}:{found.st_size}:{found.st_ctime_ns}"
        digest = hashlib.sha256()
        left = MAX_DIGESTED_BYTES + 1
        while left > 0 and (piece := file.read(min(1 << 20, left))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


class _Paths:
    """Finds the files that decide what a command line runs."""

    def __init__(self, folder: Path, search: str, project: ProjectFolders) -> None:
        self._folder = folder
        self._search = search
        self._project = project

    def of_program(self, found: str | None, depth: int = 0) -> Iterator[str]:
        """The interpreters below a program, and what makes a Python one a virtual environment."""
        if found is None or depth > _MAX_DEPTH:
            return
        settings = os.path.join(os.path.dirname(os.path.dirname(found)), "pyvenv.cfg")
        if os.path.exists(settings):
            yield settings
        interpreter = self._interpreter(found)
        if interpreter is not None:
            yield interpreter
            yield from self.of_program(interpreter, depth + 1)

    def of_arguments(self, argv: Sequence[str], found: str | None) -> Iterator[str]:
        """The files of the project that arguments name, and the manifests that a package runner reads."""
        names = {_stem(argv[0]), _stem(os.path.realpath(found))} if found else {_stem(argv[0])}
        # `env npx …`, `sh -c "npm run …"`: an argument may name the runner.
        words = [word for before, argument in itertools.pairwise(argv) for word in _words(argument, before)]
        runners = names | {_stem(word) for word in words}
        interprets = any(_INTERPRETER.fullmatch(name) for name in names)
        for name in sorted(runners & _MANIFESTS.keys()):
            yield from self._upwards(_MANIFESTS[name])
        if interprets:
            yield from self._installed(words)
        first = True
        for index, word in enumerate(words):
            for path in self._named(word, is_module=index > 0 and words[index - 1] == "-m"):
                if os.path.isdir(path):
                    if interprets:
                        yield from self._package(path)
                elif (first and interprets) or not _is_data(path):
                    first = False
                    yield path

    def of_variables(self, variables: Mapping[str, str]) -> Iterator[str]:
        """The files of the project that a variable has loaded into any program."""
        for name, value in variables.items():
            if EXECUTION_VARIABLES.fullmatch(name) and name != "PATH":
                for word in re.split(r"[\s:;,=]+", value):
                    yield from (path for path in self._named(word) if os.path.isfile(path))

    def _named(self, word: str, *, is_module: bool = False) -> Iterator[str]:
        spellings = [word.removeprefix("file://").removeprefix("file:").lstrip("@")]
        if word.startswith("-") and len(word) > 2 and not word.startswith("--"):
            spellings.append(word[2:])  # -r./hook.js
        if is_module:
            module = word.replace(".", "/")
            spellings += [f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py"]
        for spelling in dict.fromkeys(spellings):
            path = os.path.join(self._folder, os.path.expanduser(spelling)) if spelling else ""
            if path and "\0" not in path and os.path.exists(path) and path in self._project:
                yield path

    def _upwards(self, names: Iterable[str]) -> Iterator[str]:
        for folder in (self._folder, *self._folder.parents):
            if folder not in self._project:
                return
            yield from (path for name in names if os.path.exists(path := os.path.join(folder, name)))

    def _installed(self, words: Iterable[str]) -> Iterator[str]:
        programs = [
            word for word in words if word and not word.startswith(("-", "/", ".")) and "\0" not in word
        ]
        for name in dict.fromkeys(programs):
            bare = re.sub(r"(?<=.)@[^/]*$", "", name).rpartition("/")[2]  # @scope/name@1.2 installs `name`
            yield from self._upwards(f"{place}/{bare}" for place in _INSTALLED if bare)

    def _package(self, folder: str) -> Iterator[str]:
        for name in _PACKAGE:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path
                if name == "package.json":
                    yield from _entry_points(path)

    def _interpreter(self, script: str) -> str | None:
        """The program that a script's first line names."""
        words = shebang_words(script)
        if len(words) > 1 and words[0].endswith("/env"):
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            return find_program(names[0], self._folder, self._search) if names else None
        return os.path.join(self._folder, words[0]) if words else None


def shebang_words(script: str | Path) -> list[str]:
    """The words of a script's first line, less `#!`; none where it is no script."""
    try:
        descriptor = os.open(script, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return []
    return first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []


def _words(argument: str, before: str) -> list[str]:
    """An argument, and what is in it: the value of `--require=./x.js`, the words of a line for a shell."""
    _, _, value = argument.partition("=")
    is_line = _LINE_OPTION.fullmatch(before) is not None
    inner = re.split(r"[\s;&|()<>'\"`$=]+", argument) if is_line else []
    return [argument, *(word for word in (value, *inner) if word)]


def _stem(name: str) -> str:
    return re.sub(r"(?:\.exe|\.cmd|\.bat)$", "", os.path.basename(name).lower())


def _is_data(path: str) -> bool:
    if _DATA_SUFFIX.fullmatch(os.path.splitext(path)[1]) is None:
        return False
    return not os.access(path, os.X_OK) and not shebang_words(path)


def _entry_points(manifest: str) -> Iterator[str]:
    """The files that a package's manifest says are run."""
    import json

    try:
        with open(manifest, "rb") as file:
            data: object = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return
    from fairlead.config.shapes import as_object

    fields = as_object(data)
    programs = fields.get("bin")
    named = [fields.get("main"), programs, *as_object(programs).values()]
    for name in named:
        if isinstance(name, str):
            path = os.path.join(os.path.dirname(manifest), name)
            if os.path.isfile(path):
                yield path
