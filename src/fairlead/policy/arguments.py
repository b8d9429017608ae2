"""Match a call's arguments against `policy.rules`, in every reading a server could give them.

A rule names arguments, with dots into objects (`options.path`), and a glob for each; `*` also matches `/`.
The same file can be written in many ways (`/etc/../etc/x`, `file:///etc/x`, `~/../../etc/x`, `%2fetc%2fx`, a
symbolic link), and a server decides which of them it understands. So `read_arguments`, which may look at the
file system, first collects a bounded set of readings, and `match`, which is pure, compares globs with those:

- a rule that narrows (deny, ask) matches if any reading does, a rule that allows only if all do;
- where the readings leave it open (a base folder that is not known, a variable, a wildcard, too many values),
  a narrowing rule matches "maybe", which the policy turns into asking, and an allowing rule does not match.

What no reading can tell: what a server does with an argument that the rule does not name, with a default it
fills in itself, with everything below a folder it was given, or a link that is made after the check.
"""

import posixpath
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from fairlead.config.untyped import is_list, is_object
from fairlead.policy.argument_values import (
    INDEX_KEY,
    MAX_DEPTH,
    MAX_VALUES,
    UNREAD,
    flag_of,
    json_in,
    values_of,
)
from fairlead.policy.path_spellings import (
    DRIVE,
    FILE_URL,
    MAX_PATH_LENGTH,
    MAX_PIECES,
    MAX_SPELLINGS,
    NETWORK_SCHEMES,
    PROCESS_LINK,
    URL,
    VARIABLE,
    WILDCARD,
    PathContext,
    WildcardExpander,
    expand_braces,
    expand_home,
    is_this_machine,
    normalize_path,
    path_in_bytes,
    paths_inside,
    real_path,
    spellings_of,
    urls_inside,
)

ArgumentMatch = Literal["yes", "maybe", "no"]

MAX_READ_SPELLINGS: Final = 3 * MAX_VALUES
MAX_READ_CHARACTERS: Final = 1024 * 1024
"""Most spellings of all values of one argument that are read, and their total length."""
MAX_WILDCARD_CHARACTERS: Final = 32 * 1024
"""Most characters of globs in one argument that are compiled: that takes microseconds for each of them."""
_FOLDS_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether file systems of this platform usually ignore case (`/ETC` is `/etc`)."""


@dataclass(kw_only=True, slots=True)
class ValueReadings:
    """All readings of one argument's values."""

    texts: dict[str, None] = field(default_factory=dict[str, None])
    """Spellings of its texts, in order."""
    paths: dict[str, None] = field(default_factory=dict[str, None])
    """The absolute paths they name."""
    possible_paths: dict[str, None] = field(default_factory=dict[str, None])
    """Absolute paths they may name: relative to another base, or a piece of the text."""
    possible_prefixes: dict[str, None] = field(default_factory=dict[str, None])
    """Fixed beginnings of paths that continue with a wildcard."""
    wildcards: dict[str, None] = field(default_factory=dict[str, None])
    """Texts that a server may expand as globs."""
    urls: dict[str, None] = field(default_factory=dict[str, None])
    """URLs found in the texts, or formed from a text without a scheme."""
    may_be_any_path: bool = False
    may_ignore_case: bool = False
    """Whether they name files of another machine, where `/ETC` may be `/etc`."""
    is_incomplete: bool = False
    """Whether a limit cut the reading short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgumentReadings:
    """Readings of every argument that a rule names, and forms of the globs themselves."""

    values: Mapping[str, ValueReadings]
    """By the name in the rule; an argument that was not given is missing."""
    globs: Mapping[str, tuple[str, ...]]
    """Forms of each glob, with `~` and symbolic links in its fixed beginning resolved."""
    located: Mapping[str, tuple[str, ...]]
    """The same for rules that narrow: a relative glob also covers paths below the working directory."""


def read_arguments(
    patterns: Iterable[Mapping[str, str]], arguments: Mapping[str, object], context: PathContext
) -> ArgumentReadings:
    """Collect the readings of all arguments that rules name. Looks at the file system for links and homes.

    Args:
        patterns: The `arguments` of each rule: names and globs.
        arguments: What will be sent to the server.
        context: What relative paths mean to that server.
    """
    named: dict[str, ValueReadings] = {}
    globs: dict[str, tuple[str, ...]] = {}
    located: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        for name, glob in pattern.items():
            if glob not in globs:
                globs[glob] = tuple(_glob_forms(glob, context))
                located[glob] = (*globs[glob], *_absolute_forms(glob, context))
            if name not in named and (values := values_of(arguments, name)):
                named[name] = _ArgumentReader(context).read(values)
    return ArgumentReadings(values=named, globs=globs, located=located)


def match(patterns: Mapping[str, str], readings: ArgumentReadings, *, narrows: bool) -> ArgumentMatch:
    """Compare every argument that a rule names with its glob.

    Args:
        patterns: The `arguments` of the rule: names and globs.
        readings: What `read_arguments` found.
        narrows: Whether the rule denies or asks, so that one matching reading is enough.

    Returns:
        `yes`, `no`, or `maybe` where the readings leave it open. A missing argument does not match.
    """
    found: ArgumentMatch = "yes"
    for name, glob in patterns.items():
        value = readings.values.get(name)
        if value is None:
            return "no"
        if narrows:
            matched = _narrowing_match(value, readings.located[glob])
        else:
            matched = _allowing_match(value, readings.globs[glob])
        if matched == "no":
            return "no"
        if matched == "maybe":
            found = "maybe"
    return found


def _narrowing_match(value: ValueReadings, globs: tuple[str, ...]) -> ArgumentMatch:
    if any(_fits(text, glob) for glob in globs for text in value.texts):
        return "yes"
    path_globs = [glob for glob in globs if _is_path_glob(glob)]
    if any(_fits(path, glob) for glob in path_globs for path in value.paths):
        return "yes"
    flags = {flag for text in value.texts if (flag := flag_of(text)) is not None}
    if any(flag_of(glob) in flags for glob in globs):
        # A boolean may be given as 1, `yes` or `on`; a rule that says `1` may be about a number.
        return "yes" if any(glob.strip().casefold() in ("true", "false") for glob in globs) else "maybe"
    absolute = [glob for glob in path_globs if _is_absolute(glob)]
    if value.is_incomplete or (absolute and value.may_be_any_path):
        return "maybe"
    if any(_fits(path, glob) for glob in absolute for path in value.possible_paths):
        return "maybe"
    if any(_fits(url, glob) for glob in globs if "://" in glob for url in value.urls):
        return "maybe"
    beginnings = [_literal_prefix(glob) for glob in absolute]
    if any(
        fnmatchcase(f"{beginning}x", text) or fnmatchcase(beginning, text)
        for beginning in beginnings
        for text in value.wildcards
    ):
        return "maybe"
    if any(
        one.startswith(other) or other.startswith(one)
        for one in beginnings
        for other in value.possible_prefixes
    ):
        return "maybe"
    if value.may_ignore_case and any(
        _fits(path.casefold(), glob.casefold())
        for glob in path_globs
        for path in (*value.paths, *value.possible_paths)
    ):
        return "maybe"
    return "no"


def _allowing_match(value: ValueReadings, globs: tuple[str, ...]) -> ArgumentMatch:
    if value.is_incomplete or not value.texts:
        return "no"
    wanted = [*value.texts]
    if any(_is_path_glob(glob) for glob in globs):
        if value.may_be_any_path or value.possible_prefixes:
            return "no"
        wanted += [*value.paths, *value.possible_paths]
    if all(any(fnmatchcase(text, glob) for glob in globs) for text in wanted):
        return "yes"
    return "no"


def _fits(text: str, glob: str) -> bool:
    """Whether a text, or the folder of that name, matches a narrowing glob."""
    if _FOLDS_CASE and _is_path_glob(glob):
        text, glob = text.casefold(), glob.casefold()
    return fnmatchcase(text, glob) or (glob.endswith("/**") and fnmatchcase(f"{text}/", glob))


# Globs.


def _is_absolute(glob: str) -> bool:
    return glob.startswith(("/", "~")) or DRIVE.match(glob) is not None


def _is_path_glob(glob: str) -> bool:
    """Whether a glob describes whole paths, rather than a name or other text."""
    return _is_absolute(glob) or (glob.startswith("*") and "/" in glob and "://" not in glob)


def _absolute_forms(glob: str, context: PathContext) -> Iterator[str]:
    """Absolute forms of a relative glob that describes paths."""
    if (
        _is_absolute(glob)
        or "://" in glob
        or glob.startswith("*")
        or not ("/" in glob or glob.startswith("."))
    ):
        return
    plain = normalize_path(glob)
    yield plain
    if context.cwd is not None:
        yield from _glob_forms(normalize_path(posixpath.join(context.cwd, plain)), context)


def _literal_prefix(glob: str) -> str:
    found = WILDCARD.search(glob)
    return glob[: found.start()] if found else glob


def _glob_forms(glob: str, context: PathContext) -> Iterator[str]:
    """Forms of a glob: as written, with `~` expanded, and with links in its fixed beginning resolved."""
    yield glob
    if not _is_absolute(glob):
        if (file_url := FILE_URL.match(glob)) is not None:
            yield from _glob_forms(glob[file_url.end() :], context)
        return
    for expanded in expand_home(glob, context):
        if expanded != glob:
            yield expanded
        beginning = _literal_prefix(expanded)
        folder = beginning if beginning == expanded else beginning[: beginning.rfind("/") + 1]
        if folder.startswith("/") and (real := real_path(folder)) is not None:
            resolved = real.rstrip("/") + ("/" if folder.endswith("/") else "") + expanded[len(folder) :]
            if resolved != expanded:
                yield resolved


# Readings of a value.


class _ArgumentReader:
    """Collector of the readings of one argument."""

    def __init__(self, context: PathContext) -> None:
        self._context = context
        self._expander = WildcardExpander()
        self._found = ValueReadings(may_ignore_case=context.cwd is None)
        self._seen: set[str] = set()
        self._count = 0
        self._spellings = 0
        self._characters = 0
        self._wildcard_characters = 0

    def read(self, values: list[object]) -> ValueReadings:
        for value in values:
            self._read(value, MAX_DEPTH)
        return self._found

    def _read(self, value: object, depth: int, above: str = "") -> None:
        """Read a value; `above` is the path that the keys leading to it make, as in a tree of files."""
        self._count += 1
        if value is UNREAD or self._count > MAX_VALUES or depth == 0:
            self._found.is_incomplete = True
        elif isinstance(value, str):
            self._read_text(value)
            if above:
                self._add_possible(f"{above}/{value}")
            if (inner := json_in(value)) is not None:
                self._read(inner, depth - 1)
        elif is_list(value):
            self._read_joined(value)
            self._read_bytes(value)
            for item in value[: MAX_VALUES + 1]:
                self._read(item, depth - 1, above)
        elif is_object(value):
            self._read_object(value, depth, above)
        else:
            self._found.texts[msgspec.json.encode(value).decode()] = None
            if isinstance(value, float) and value.is_integer():
                self._found.texts[str(int(value))] = None

    def _read_object(self, members: dict[str, object], depth: int, above: str) -> None:
        self._read_joined([*members.values()])
        if all(map(INDEX_KEY.fullmatch, members)):
            # As JavaScript writes a `Uint8Array`: an object, whose order is that of its keys.
            in_order = [members[key] for key in sorted(members, key=int)]
            self._read_joined(in_order)
            self._read_bytes(in_order)
        for key, item in members.items():
            if self._found.is_incomplete:
                break
            self._read_text(key)  # some tools take a map from paths to contents
            below = f"{above}/{key}"
            self._add_possible(below)
            self._read(item, depth - 1, below if len(below) <= MAX_PATH_LENGTH else "")

    def _read_joined(self, parts: list[object]) -> None:
        """Read a path given in pieces: a folder and a name, its components, or parts of a text."""
        texts = [part for part in parts[: MAX_VALUES + 1] if isinstance(part, str)]
        if sum(map(len, texts)) > MAX_PATH_LENGTH:
            self._found.may_be_any_path = True
        elif len(texts) > 1:
            for separator in ("/", ""):
                self._add_possible(separator.join(texts))

    def _read_bytes(self, values: list[object]) -> None:
        """Read a path given as the numbers of its bytes, as JavaScript writes a buffer."""
        numbers = [value for value in values[:MAX_PATH_LENGTH] if isinstance(value, int) and 0 < value < 256]
        if numbers and (path := path_in_bytes(bytes(numbers))) is not None:
            self._read_text(path)

    def _add_possible(self, path: str) -> None:
        """Add a path that a server may put together."""
        self._characters += len(path)
        if self._characters > MAX_READ_CHARACTERS:
            self._found.is_incomplete = True
        elif len(path) > MAX_PATH_LENGTH:
            self._found.may_be_any_path = True
        else:
            for whole in expand_home(path, self._context):
                self._found.possible_paths[normalize_path(f"/{whole}")] = None

    def _read_text(self, text: str) -> None:
        if text in self._seen:
            return
        self._seen.add(text)
        self._found.texts[text] = None
        # `x/../` repeated a thousand times still resolves, and a slash may be encoded.
        self._found.may_be_any_path |= len(text) > MAX_PATH_LENGTH
        if self._spellings > MAX_READ_SPELLINGS or self._characters > MAX_READ_CHARACTERS:
            self._found.is_incomplete = True
            return
        # A long text has as few as can be read in time: a URL in it is dialled all the same.
        limit = min(MAX_SPELLINGS, MAX_READ_CHARACTERS // (len(text) + 1))
        spellings = spellings_of(text, limit)
        self._spellings += len(spellings)
        self._characters += sum(map(len, spellings))
        self._found.is_incomplete |= len(spellings) >= limit
        for spelling in spellings:
            self._found.texts[spelling] = None
            for path in expand_home(spelling, self._context):
                self._read_path(path)
            self._look_inside(spelling)

    def _look_inside(self, text: str) -> None:
        """Add the paths and URLs found inside a text."""
        found = self._found
        for number, path in enumerate(paths_inside(text, self._context)):
            found.possible_paths[path] = None
            found.may_be_any_path |= number >= MAX_PIECES
            self._note_wildcard(path)
        for number, url in enumerate(urls_inside(text)):
            found.urls[url] = None
            found.is_incomplete |= number >= MAX_PIECES
            parts = urlsplit(url)
            if is_this_machine(parts.hostname) or parts.scheme not in NETWORK_SCHEMES:
                path = normalize_path(unquote(parts.path) or "/")
                found.possible_paths[path] = None
                self._note_wildcard(path)
        if text.startswith("//"):  # a host, and maybe a share, before the path
            for number in (1, 2):
                found.possible_paths["/" + "/".join(normalize_path(text).split("/")[number + 1 :])] = None

    def _read_path(self, path: str) -> None:
        found = self._found
        normal = normalize_path(path)
        if URL.match(path) is None:  # whose two slashes are not one too many
            found.texts[normal] = None
        if not path or len(path) > MAX_PATH_LENGTH:
            return
        self._note_doubts(path, normal)
        if path.startswith("/"):
            found.texts.update(self._add_absolute(path))
            return
        if normal.startswith(".."):
            found.possible_paths[f"/{normal.lstrip('./')}"] = None
        cwd = self._context.cwd
        if cwd is None:
            found.may_be_any_path = True
            return
        base = (real_path(cwd) or cwd).rstrip("/")
        for real in self._add_absolute(posixpath.join(cwd, path)):
            if real != normalize_path(f"{base}/{path}"):  # a link: its target counts
                found.texts[real.removeprefix(f"{base}/")] = None

    def _add_absolute(self, path: str) -> dict[str, None]:
        """Add a path as written and with links resolved; returns the latter.

        Some servers remove `..` before they open a path, others let the system do it, which follows links.
        """
        found, normal = self._found, normalize_path(path)
        reals = {real: None for real in (real_path(path), real_path(normal)) if real is not None}
        found.may_be_any_path |= not reals
        found.paths.update({normal: None, **reals})
        return reals

    def _note_doubts(self, path: str, normal: str) -> None:
        """Mark where a path cannot be resolved: variables, wildcards, and open files of a process."""
        found = self._found
        if PROCESS_LINK.search(path) or PROCESS_LINK.match(normal) or VARIABLE.search(path):
            found.may_be_any_path = True
        if (trimmed := "/".join(map(_trim_name, path.split("/")))) != path and trimmed.startswith("/"):
            found.possible_paths[normalize_path(trimmed)] = None
        wildcard = WILDCARD.search(path)
        if wildcard is not None and "://" not in path:
            self._expand(path)
        if wildcard is not None and path.startswith(("/", ".", "~")):
            if ".." in path[wildcard.start() :]:
                found.may_be_any_path = True
            elif path.startswith("/"):
                self._note_wildcard(path)
            elif self._context.cwd is not None:
                joined = posixpath.join(self._context.cwd, path[: wildcard.start()] + "x")
                found.possible_prefixes[normalize_path(joined)[:-1]] = None

    def _note_wildcard(self, path: str) -> None:
        """Mark what an absolute path with a wildcard may match."""
        wildcard = WILDCARD.search(path)
        if wildcard is not None:
            self._found.possible_prefixes[_prefix_before(path, wildcard.start())] = None

    def _expand(self, path: str) -> None:
        """Add what a path with wildcards matches here, links resolved, and what it may match elsewhere."""
        found, cwd = self._found, self._context.cwd
        for pattern in expand_braces(path):
            self._wildcard_characters += len(pattern)
            if self._wildcard_characters > MAX_WILDCARD_CHARACTERS:
                found.may_be_any_path = True
                return
            if pattern != path and not WILDCARD.search(pattern):
                self._read_path(pattern)
                continue
            found.wildcards[pattern if pattern.startswith("/") else f"*/{pattern}"] = None
            if cwd is None and not pattern.startswith("/"):
                continue
            matches = self._expander.expand(posixpath.join(cwd or "/", pattern))
            found.may_be_any_path |= matches is None or len(matches) > MAX_PIECES
            for matched in (matches or ())[:MAX_PIECES]:
                found.paths.update(dict.fromkeys(filter(None, (normalize_path(matched), real_path(matched)))))


def _trim_name(name: str) -> str:
    """Name of a file without the dots and spaces at its end, which some file systems ignore."""
    return name.rstrip(". ") or name


def _prefix_before(path: str, end: int) -> str:
    """Beginning of a path before its wildcard, without `..` in it."""
    return normalize_path(path[:end] + "x")[:-1]
