"""Resolution of a project's entry to what it would execute: program, folder, and files its arguments name.

Consent is bound to this (see `consent.py`), and the server is started with exactly this argv and folder.
Files inside the project are bound by a digest of their content, files outside by their real path: a package
manager may update `/usr/bin/node`, and nothing that comes with a repository can.

For any program, each word of its arguments counts that names a file or folder of the project, also without
its suffix, as a Python module, or by its place in a container. So do its interpreters, the manifests of
package runners, `node_modules/.bin` and `.venv/bin` programs of that name, what variables such as
`NODE_OPTIONS` or `PYTHONPATH` name, and programs and scripts in any other variable. Where a word is itself a
program, the rest is read as its command line. Where a command line can run code that it does not name (a line
for a shell with expansions, code for an interpreter, `make`, `git`, `npm run`), consent is bound to all code
of the project, and where that is too much, the prompt for consent says so. An interpreter that runs one
script, and a runner that fetches a package (`npx`, `uvx`), are understood: what follows is theirs, and may be
data.

Not covered: what a program imports, loads or downloads once it runs.
"""

import glob
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from fairlead.config import runners
from fairlead.config.file_digests import (
    INSTALLED_FOLDERS,
    WORD_BREAKS,
    BoundFile,
    ProjectFolders,
    bind_file,
    bind_folder,
    first_bytes,
    installed_programs,
    is_data_file,
    shebang_words,
    unchecked_caches,
)
from fairlead.config.untyped import as_object

_MAX_DEPTH = 5
_MAX_LINKS = 40
_MAX_MANIFEST = 1 << 20
_PROCESS_PATH = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:cwd|fd/\d+)")
_MAX_COMMANDS = 100
_MAX_MOUNTS = 20
_MAX_WORDS = 5_000
"""Most words that are looked for in the file system: each takes about twenty calls of the system."""
_MAX_NAME = 4096
"""Most bytes of a path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Program, arguments and folder to start, resolved once."""

    argv: tuple[str, ...]
    cwd: Path
    starts_in_cwd: bool
    """False where the entry names no folder, and it starts in the host's."""
    program: BoundFile
    files: tuple[BoundFile, ...]
    """All other files that decide what runs."""


def find_program(name: str, folder: Path, search: str) -> str | None:
    """Absolute path of a program started in `folder`, links not followed; None where it is not found."""
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
    """Resolve what a command line would execute.

    Args:
        argv: The program and its arguments, references resolved.
        cwd: The folder it is started in; None for that of this process.
        variables: The variables that its entry sets.
        search: The `PATH` it is looked up in.
        project: The folders that count as inside the project.
    """
    folder = Path(os.path.realpath(cwd or Path.cwd()))
    found = find_program(argv[0], folder, search)
    program = bind_file(found or os.path.join(folder, argv[0]), project)
    inputs = _Inputs(folder, search, project)
    inputs.read_command(argv)
    inputs.read_variables(variables)
    files = [bind_file(path, project) for path in inputs.files if path != found]
    files += [bind_folder(path, project, " ".join(argv)) for path in sorted(inputs.all_folders())]
    return Launch(
        argv=(found or argv[0], *argv[1:]),
        cwd=folder,
        starts_in_cwd=cwd is not None,
        program=program,
        files=tuple(files),
    )


def bind_variables(
    variables: Mapping[str, str], *, cwd: Path | None, project: ProjectFolders
) -> tuple[BoundFile, ...]:
    """The files and folders of the project that variables load into any program.

    Args:
        variables: The variables that an entry sets.
        cwd: The folder the program is started in; None for that of this process.
        project: The folders that count as inside the project.
    """
    inputs = _Inputs(Path(os.path.realpath(cwd or Path.cwd())), "", project)
    inputs.read_variables(variables)
    files = [bind_file(path, project) for path in inputs.files]
    return (*files, *(bind_folder(path, project, "its variables") for path in sorted(inputs.all_folders())))


class _Inputs:
    """Collector of the project's files and folders that decide what a command line runs."""

    def __init__(self, folder: Path, search: str, project: ProjectFolders) -> None:
        self._folder = folder
        self._search = search
        self._project = project
        self._read = set[tuple[str, ...]]()
        self.files: dict[str, None] = {}
        self._folders = set[str]()
        self._words = 0
        self._runs_anything = False
        """Whether it may run code of the project that it does not name."""

    def all_folders(self) -> set[str]:
        """Folders whose content decides."""
        if not self._runs_anything:
            return self._folders
        roots = [str(root) for root in (*self._project.roots, *self._project.outer)]
        places = {*roots, str(self._folder)} if self._folder in self._project else {*roots}
        installed = {os.path.join(place, name) for place in places for name in INSTALLED_FOLDERS}
        programs = chain.from_iterable(map(installed_programs, places))
        return {*self._folders, *roots, *filter(os.path.isdir, installed), *programs}

    def read_command(self, argv: Sequence[str]) -> None:
        """Add what a command line names, and note whether it may run what it does not name."""
        if tuple(argv) in self._read or not argv:
            return
        self._read.add(tuple(argv))
        if len(self._read) > _MAX_COMMANDS:
            self._runs_anything = True
            return
        program, *arguments = argv
        found = find_program(program, self._folder, self._search)
        names = {_stem(program), _stem(os.path.realpath(found))} if found else {_stem(program)}
        if found is not None and found in self._project:
            self._note(found)
        self._note(*self._interpreters(found))
        self._runs_anything |= self._passes_process_table(program)
        fetches = any(runners.FETCHER.fullmatch(name) for name in names) or any(
            not runners.FETCHES.get(name, set[str]()).isdisjoint(arguments[:2]) for name in names
        )
        is_language = any(runners.LANGUAGE.fullmatch(name) for name in names)
        self._note(*self._manifests(names))
        if fetches or is_language or any(name in runners.MANIFESTS for name in names):
            self._note(*self._upwards(runners.VERSION_FILES))
            self._note(*self._find_installed(word for argument in arguments for word in _words(argument)))
        if fetches:
            self._read_fetcher(arguments, in_container=not {"docker", "podman"}.isdisjoint(names))
        elif is_language:
            self._read_language(names, arguments)
        else:
            self._runs_anything |= any(runners.RUNS_PROJECT.fullmatch(name) for name in names)
            self._read_unknown(arguments)

    def _read_language(self, names: set[str], arguments: Sequence[str]) -> None:
        """Read `python3 [options] script [arguments of the script]`, and the like for a shell."""
        start = arguments.index("run") + 1 if "run" in arguments and names & {"uv", "deno"} else 0
        places = range(start, len(arguments))
        script = next((at for at in places if self._starts_script(names, arguments, at)), None)
        options = arguments if script is None else arguments[:script]
        is_shell = any(runners.SHELL.fullmatch(name) for name in names)
        for at, option in enumerate(options):
            if runners.CODE_OPTION.fullmatch(option) and not (option == "-r" and "php" not in names):
                if not is_shell:
                    self._runs_anything = True
                for line in options[at + 1 :]:
                    if is_shell and line[:1] not in ("-", "+"):
                        self._read_line(line)
            elif re.search(r"\s", option) or runners.EXPANDS.search(option):
                self._read_line(option)
        if "uv" in names:
            self._runs_anything |= script is None
            self._note(*(path for path in self._upwards(runners.INTERPRETERS) if self._is_ours(path)))
            self._read_programs(options)
        own = arguments if script is None else arguments[: script + 2]
        self._runs_anything |= any(map(runners.RUNS_PROJECT.fullmatch, _modules(own)))
        self._note_words(arguments, lambda at: script is None or at <= script)

    def _starts_script(self, names: Iterable[str], arguments: Sequence[str], at: int) -> bool:
        """Whether an interpreter's own options end here."""
        word, before = arguments[at], arguments[at - 1] if at else ""
        is_python = any(name.startswith(("python", "pypy", "uv")) for name in names)
        if is_python and re.fullmatch(r"-[bBdEiIOqsSuvxPR]*m.*", word):
            return True
        has_flags = is_python or any(runners.SHELL.fullmatch(name) for name in names)
        is_flag = has_flags and runners.FLAG.fullmatch(before) is not None
        if before.startswith(("-", "+", "/c")) and "=" not in before and not is_flag:
            return False  # it may be the option's value: then more options follow
        return "\0" not in word and os.path.exists(os.path.join(self._folder, word))

    def _read_fetcher(self, arguments: Sequence[str], *, in_container: bool) -> None:
        """Read `npx [options] package [arguments of the package]`."""
        if not {"compose", "build", "buildx", "bake"}.isdisjoint(arguments):
            self._runs_anything = True
        package = self._package_place(arguments)
        for before, argument in zip(("", *arguments), arguments, strict=False):
            option, equals, value = argument.partition("=")
            if runners.CALL_OPTION.fullmatch(before):
                option, value = before, argument
            if runners.CALL_OPTION.fullmatch(option) and value and (equals or value == argument):
                self._read_line(value, may_be_data=True)

        if mounts := dict(_mounts(arguments)):
            self._runs_anything |= len(mounts) > _MAX_MOUNTS
            words = [word for argument in arguments for word in _words(argument)]
            self._runs_anything |= any(map(self._is_there, mounts)) and _runs_unnamed(arguments)
            for host, inside in list(mounts.items())[:_MAX_MOUNTS]:
                self._read_mounted(host, inside, words)
        if not in_container:
            self._read_wrapped(arguments[package + 1 :])

        def is_code(at: int) -> bool:
            option = arguments[at - 1] if at else ""
            return at < package or any(map(runners.FOLDER_OPTION.match, (option, arguments[at])))

        self._note_words(arguments, is_code)

    def _package_place(self, arguments: Sequence[str]) -> int:
        """Place of the package that a runner fetches; behind the end if it is a file or folder."""
        subcommands = ("exec", "x", "dlx", "tool", "run")
        return next(
            (
                at
                for at, word in enumerate(arguments)
                if not word.startswith("-") and word not in subcommands and not self._is_there(word)
            ),
            len(arguments),
        )

    def _read_wrapped(self, arguments: Sequence[str]) -> None:
        """Read the command line that a fetched package may be told to run: `uvx mcp-proxy -- sh -c …`."""
        for at, argument in enumerate(arguments):
            first = "".join(argument.split()[:1])
            if first in runners.SHELL_BUILTINS and first != argument:
                self._read_line(argument)
            elif runners.LANGUAGE.fullmatch(_stem(first)) and self._is_program(first):
                if first == argument:
                    self.read_command(arguments[at:])
                else:
                    self._read_line(argument)

    def _read_mounted(self, host: str, inside: str, words: Iterable[str]) -> None:
        """Add the files of a mounted folder that a container's command line names, by their path there."""
        for word in words:
            if word.startswith("/") and not word.startswith(f"{inside}/"):
                continue
            for path in self._find_named_files(os.path.join(host, word.removeprefix(f"{inside}/"))):
                if not os.path.isdir(path) and not is_data_file(path):
                    self._note(path)

    def _read_unknown(self, arguments: Sequence[str]) -> None:
        """Read the arguments of any other program: a wrapper (`env`, `flock`), or a server."""
        for argument in arguments:
            if runners.URL.fullmatch(argument):
                continue
            if re.search(r"\s", argument) or runners.EXPANDS.search(argument):
                lines = [argument, argument.partition("=")[2], re.sub(r"^-\w", "", argument)]
                known = [line for line in lines if self._is_program("".join(line.split()[:1]))]
                for line in known or [argument]:
                    self._read_line(line)
        self._read_programs(arguments)
        self._note_words(arguments, lambda _: True, first_is_code=False)

    def _read_programs(self, arguments: Sequence[str]) -> None:
        for at, word in enumerate(arguments):
            if not word.startswith("-") and self._is_program(word):
                self.read_command(arguments[at:])

    def _is_program(self, word: str) -> bool:
        return bool(word) and "\0" not in word and find_program(word, self._folder, self._search) is not None

    def _read_line(self, line: str, *, may_be_data: bool = False) -> None:
        """Read a line as a shell would: a plain one is a command line, any other may run anything."""
        for word in WORD_BREAKS.split(line):
            self._note(*(path for path in self._find_named_files(word) if os.path.isfile(path)))
        try:
            words = shlex.split(line)
        except ValueError:
            words = []
        if words[:1] in (["exec"], ["command"]):
            words = words[1:]
        if words and not runners.EXPANDS.search(line) and self._is_program(words[0]):
            self.read_command(words)
        elif not may_be_data or re.search(r"\s", line) or runners.EXPANDS.search(line):
            self._runs_anything = True

    def _note(self, *paths: str) -> None:
        for path in paths:
            self.files.update(dict.fromkeys((path, *unchecked_caches(path))))

    def _note_words(
        self, arguments: Sequence[str], is_code: Callable[[int], bool], *, first_is_code: bool = True
    ) -> None:
        """Add the files and folders that words name.

        Args:
            arguments: The words.
            is_code: Whether a folder at this place is one that code is run from.
            first_is_code: Whether the first file is run, even if its name is that of data.
        """
        for at, argument in enumerate(arguments):
            before = arguments[at - 1] if at else ""
            is_module = re.fullmatch(r"-\w*m", before) is not None
            is_setting = argument.startswith("@") or any(
                runners.SETTINGS_OPTION.fullmatch(option) for option in (before, argument.partition("=")[0])
            )
            for word in _words(argument):
                for path in self._find_named_files(word, is_module=is_module):
                    if not os.path.isdir(path):
                        if first_is_code or is_setting or not is_data_file(path):
                            first_is_code = False
                            self._note(path)
                    elif is_code(at):
                        self._folders.add(path)
                    else:
                        self._note(*self._package(path))

    def read_variables(self, variables: Mapping[str, str]) -> None:
        """Add the files and folders of the project that a variable loads into any program.

        Of a variable that is not known to do so, the programs and scripts: `CHROME_PATH`, say.
        """
        for name, value in variables.items():
            is_known = runners.EXECUTION_VARIABLES.fullmatch(name) is not None
            # A shell expands `$PWD/hook` and `$(…)` in `BASH_ENV`.
            self._runs_anything |= is_known and not {"$", "`"}.isdisjoint(value)
            if is_known and re.search("PATH|LIB", name) and "" in value.split(os.pathsep):
                self._folders.update({str(self._folder)} if self._folder in self._project else ())
            for word in WORD_BREAKS.split(value):
                for path in self._find_named_files(word):
                    if not os.path.isdir(path):
                        if is_known or _is_code(path):
                            self._note(path)
                    elif is_known:
                        self._folders.add(path)

    def _interpreters(self, found: str | None, depth: int = 0) -> Iterator[str]:
        """Interpreters below a program, and the files that make a Python one a virtual environment."""
        if found is None or depth > _MAX_DEPTH:
            return
        settings = os.path.join(os.path.dirname(os.path.dirname(found)), "pyvenv.cfg")
        if os.path.exists(settings):
            yield settings
        for word in shebang_words(found)[1:]:
            yield from filter(os.path.isfile, self._find_named_files(word))
        interpreter = self._interpreter(found)
        if interpreter is not None:
            yield interpreter
            yield from self._interpreters(interpreter, depth + 1)

    def _manifests(self, names: Iterable[str]) -> Iterator[str]:
        for name in sorted(runners.MANIFESTS.keys() & names):
            for path in self._upwards(runners.MANIFESTS[name]):
                yield path
                if os.path.basename(path) == "package.json":
                    yield from _entry_points(path)

    def _is_there(self, word: str) -> bool:
        """Whether a word is the name of a file or folder of the project, as it is written."""
        path = os.path.join(self._folder, os.path.expanduser(word.removeprefix("file:")))
        return "\0" not in path and os.path.exists(path) and path in self._project

    def _is_ours(self, path: str) -> bool:
        """Whether the project has this file itself, and not only a link to it."""
        return os.path.realpath(path) in self._project

    def _passes_process_table(self, word: str) -> bool:
        """Whether a path leads through a process's folder or descriptors, links followed.

        It means another file to the process that opens it: `/proc/self/cwd/server.py`.
        """
        word = os.path.expanduser(word)
        path, links, rest = "/" if word.startswith("/") else str(self._folder), 0, word.split("/")[::-1]
        while rest:
            part = rest.pop()
            if part in ("", "."):
                continue
            path = os.path.dirname(path) if part == ".." else os.path.join(path, part)
            if _PROCESS_PATH.fullmatch(path) and (rest or path.endswith("cwd")):
                return True
            if os.path.islink(path):
                target, links = os.readlink(path), links + 1
                if links > _MAX_LINKS:
                    return True
                path = "/" if target.startswith("/") else os.path.dirname(path)
                rest += target.split("/")[::-1]
        return False

    def _find_named_files(self, word: str, *, is_module: bool = False) -> Iterator[str]:
        self._words += 1
        if len(word) > _MAX_NAME or self._words > _MAX_WORDS:
            self._runs_anything |= self._words > _MAX_WORDS
            return
        spellings = [word.removeprefix("file://").removeprefix("file:").lstrip("@")]
        self._runs_anything |= "\0" not in word and self._passes_process_table(spellings[0])
        if word.startswith("-") and len(word) > 2 and not word.startswith("--"):
            spellings.append(word[2:])  # -r./hook.js
        names = [spelling for spelling in spellings if spelling and not spelling.startswith("-")]
        spellings += [f"{name}{suffix}" for name in names for suffix in runners.CODE_SUFFIXES]
        attached = re.fullmatch(r"-[a-zA-Z]*?m(\w.*)", word)  # -mNAME
        may_be_module = runners.MODULE.fullmatch(word) and not os.path.isdir(os.path.join(self._folder, word))
        for module in [word] * (is_module or bool(may_be_module)) + ([attached[1]] if attached else []):
            path = module.replace(".", "/")
            spellings += [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"]
            packages = path.split("/")[:-1]  # Python runs the packages on the way first
            ways = ["/".join(packages[:end]) for end in range(1, len(packages) + 1)]
            spellings += [f"{way}{name}" for way in ways for name in (".py", "/__init__.py")]
        for spelling in dict.fromkeys(spellings):
            path = os.path.join(self._folder, os.path.expanduser(spelling)) if spelling else ""
            if path and "\0" not in path and os.path.exists(path) and path in self._project:
                yield path

    def _upwards(self, names: Iterable[str]) -> Iterator[str]:
        for folder in (self._folder, *self._folder.parents):
            if folder not in self._project:
                return
            yield from (path for name in names if os.path.exists(path := os.path.join(folder, name)))

    def _upwards_matching(self, pattern: str) -> Iterator[str]:
        for folder in self._upwards((pattern.partition("/")[0],)):
            yield from sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(folder)), pattern)))

    def _find_installed(self, words: Iterable[str]) -> Iterator[str]:
        programs = [
            word for word in words if word and not word.startswith(("-", "/", ".")) and "\0" not in word
        ]
        for name in dict.fromkeys(programs):
            package = re.sub(r"(?<=.)@[^/]*$", "", name)  # @scope/name@1.2
            for manifest in self._upwards((f"node_modules/{package}/package.json",)):
                yield manifest
                yield from _entry_points(manifest)
                programs = as_object(_manifest_fields(manifest).get("bin"))
                yield from self._upwards(f"node_modules/.bin/{program}" for program in programs)
            if bare := package.rpartition("/")[2]:
                yield from self._upwards(f"{place}/{bare}" for place in runners.INSTALLED)
                yield from self._upwards_matching(f"__pypackages__/*/*/[bS]*/{glob.escape(bare)}")

    def _package(self, folder: str) -> Iterator[str]:
        for name in runners.PACKAGE:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path
                if name == "package.json":
                    yield from _entry_points(path)

    def _interpreter(self, script: str) -> str | None:
        """Program that a script's first line names."""
        words = shebang_words(script)
        if len(words) > 1 and words[0].endswith("/env"):
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            return find_program(names[0], self._folder, self._search) if names else None
        return os.path.join(self._folder, words[0]) if words else None


_MOUNT_FIELDS = {"src": "source", "dst": "target", "destination": "target"}


def _mounts(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Folders that `docker run` mounts, each with its place in the container."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        host = inside = ""
        if before in ("-v", "--volume"):
            host, _, rest = argument.partition(":")
            inside = rest.partition(":")[0]
        elif (spec := re.fullmatch(r"(?:-v|--volume=)([^:]+):([^:]+)(?::.*)?", argument)) is not None:
            host, inside = str(spec[1]), str(spec[2])
        elif before == "--mount" or argument.startswith("--mount="):
            fields: dict[str, str] = {}
            for part in argument.removeprefix("--mount=").split(","):
                name, _, value = part.partition("=")
                fields[_MOUNT_FIELDS.get(name, name)] = value
            host, inside = fields.get("source", ""), fields.get("target", "")
        if host and inside.startswith("/"):
            yield host, inside.rstrip("/")


def _is_code(path: str) -> bool:
    """Whether a file is a program or a script."""
    if runners.CODE_FILE.fullmatch(os.path.basename(path).lower()):
        return True
    return os.path.isfile(path) and (os.access(path, os.X_OK) or bool(shebang_words(path)))


def _words(argument: str) -> list[str]:
    """An argument and its parts: the value of `--require=./x.js`, the words of a line."""
    _, _, value = argument.partition("=")
    return list(dict.fromkeys(word for word in (argument, value, *WORD_BREAKS.split(argument)) if word))


def _stem(name: str) -> str:
    return re.sub(r"(?:\.exe|\.cmd|\.bat)$", "", os.path.basename(name).lower())


def _modules(arguments: Sequence[str]) -> list[str]:
    """Modules that Python is told to run: `-m pytest`, `-mpytest`."""
    found = [
        (re.fullmatch(r"-[bBdEiIOqsSuvxPR]*m(.*)", word), after) for word, after in pairwise((*arguments, ""))
    ]
    return [(str(match[1]) or after).partition(".")[0] for match, after in found if match]


def _runs_unnamed(arguments: Sequence[str]) -> bool:
    """Whether a command line in a container runs what it does not name: `npm start`, `sh -c …`."""
    return any(
        runners.RUNS_PROJECT.fullmatch(word)
        or (runners.SHELL.fullmatch(os.path.basename(word)) and re.fullmatch(r"-\w*c", after))
        for word, after in pairwise((*arguments, ""))
    )


def _manifest_fields(manifest: str) -> dict[str, Any]:
    try:
        return as_object(json.loads(first_bytes(manifest, _MAX_MANIFEST)))
    except (ValueError, RecursionError):
        return {}


def _entry_points(manifest: str) -> Iterator[str]:
    """Files that a package's manifest declares as entry points."""
    fields = _manifest_fields(manifest)
    programs = fields.get("bin")
    named = [fields.get("main"), programs, *as_object(programs).values()]
    for name in named:
        if isinstance(name, str):
            path = os.path.join(os.path.dirname(manifest), name)
            if os.path.isfile(path):
                yield path
