"""Ignore rules of `.gitignore` files and of callers' globs, as ripgrep reads them."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

FILES = (".rgignore", ".ignore", ".gitignore")
"""The files that hold rules, the strongest first."""

MAX_GLOBS = 64
"""How many globs those with `{a,b}` in them may stand for."""

Verdict = bool | None
"""True: left out. False: kept, despite weaker rules. None: no rule matches."""


class GlobInvalid(ValueError):
    """A glob is not one; the message says why."""


class IgnoreRules:
    """Rules of one ignore file. The last that matches a path decides.

    Globs become regular expressions in which no star can backtrack into another, so no glob, however it was
    meant, takes long to try. Most rules are about a name wherever it is, and are tried on the name alone.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [rule for line in lines for rule in _parse_rule_line(line)]
        self._keeps = tuple(rule.keeps for rule in rules)
        self._by_name = _Table([(number, rule.name) for number, rule in enumerate(rules) if rule.name])
        self._by_path = _Table([(number, rule.path) for number, rule in enumerate(rules) if rule.path])

    def verdict(self, path: str, *, is_folder: bool) -> Verdict:
        """The decision about a path, which is relative to the folder of their file; None for no match."""
        end = "/\0" if is_folder else "/"
        name = path[path.rfind("/") + 1 :]
        last = max(self._by_name.last(name + end), self._by_path.last(path + end))
        return None if last < 0 else not self._keeps[last]

    def leave_out(self, path: str) -> bool:
        """Whether a file is left out, itself or with a folder it is in."""
        names = path.split("/")
        above = ("/".join(names[:depth]) for depth in range(1, len(names)))
        return any(self.verdict(folder, is_folder=True) for folder in above) or bool(
            self.verdict(path, is_folder=False)
        )


@dataclass(frozen=True, slots=True)
class IgnoreFiles:
    """Rules in effect in a folder: those of its own ignore files, and of the folders above it."""

    stacks: tuple[tuple[tuple[int, IgnoreRules], ...], ...] = ((),) * len(FILES)
    """For each kind of file, the nearest first: its rules, and where the paths relative to it start."""

    def with_folder(self, found: Mapping[str, IgnoreRules], start: int) -> "IgnoreFiles":
        """With the files of one more folder, below the others."""
        if not found:
            return self
        return replace(
            self,
            stacks=tuple(
                ((start, found[name]), *stack) if name in found else stack
                for name, stack in zip(FILES, self.stacks, strict=True)
            ),
        )

    def verdict(self, path: str, *, is_folder: bool) -> Verdict:
        """The decision about a path. A stronger kind of ignore file outranks a nearer one."""
        for stack in self.stacks:
            for start, rules in stack:
                verdict = rules.verdict(path[start:], is_folder=is_folder)
                if verdict is not None:
                    return verdict
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class GlobFilter:
    """Filter by a caller's globs, as the lines of an ignore file.

    So globs only ever narrow a search: what a project ignores stays ignored. ripgrep's own
    `--glob` is the other way round: `src/**` brings back `src/node_modules`, and `**` every secret.
    """

    lines: tuple[str, ...]
    names_hidden: bool
    """Whether a glob names something hidden, like `.github/**`, and so asks for what is hidden."""


def glob_filter(globs: Iterable[str]) -> GlobFilter:
    """Leave out what globs do not ask for, or exclude with `!`; the last that fits decides.

    A glob that names a folder asks for all that is in it. Raises `GlobInvalid`.
    """
    lines: list[str] = []
    names_hidden = has_positive = False
    for glob in globs:
        excluded = glob.startswith("!")
        for plain in _parse_glob(glob):
            if excluded:
                lines.append(f"\\{plain}" if plain[0] in "!#" else plain)
                continue
            has_positive = True
            names_hidden = names_hidden or "/." in f"/{plain}"
            lines += [f"!{plain}", f"!{_inside(plain)}"]
    if len(lines) > 2 * MAX_GLOBS:
        raise GlobInvalid("these are too many")
    return GlobFilter(lines=("*", "!*/", *lines) if has_positive else tuple(lines), names_hidden=names_hidden)


def _parse_glob(glob: str) -> list[str]:
    """The plain globs that a caller's one stands for, without its `!`."""
    try:
        globs = _expand_braces(glob.removeprefix("!").removeprefix("./"))
        for plain in globs:
            if not plain.strip("/ ") or not plain.isprintable():
                raise GlobInvalid("it is empty, or holds characters that no glob has")
            _path_expression(plain.strip("/").split("/"))
    except GlobInvalid as error:
        raise GlobInvalid(f"`{glob}`: {error}") from error
    return globs


def _inside(glob: str) -> str:
    folder = glob.rstrip("/")
    return f"{folder}/**" if "/" in folder else f"**/{folder}/**"


# ── one rule ──


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    keeps: bool
    name: str | None = None
    path: str | None = None
    """A regular expression for the name, or for the path, whichever the rule is about.

    Both are tried on texts that end in `/`, and those of folders in `/` and a zero character.
    """


def _parse_rule_line(line: str) -> list[_Rule]:
    """The rules a line stands for: none if it is empty, a comment, or makes no sense."""
    if line.startswith("#"):
        return []
    text = line if line.endswith("\\ ") else line.rstrip()
    keeps = text.startswith("!")
    text = text[1:] if keeps or text.startswith(("\\!", "\\#")) else text
    anchored = text.startswith("/")
    for_folders = text.endswith("/")
    text = text.removeprefix("/").removesuffix("/")
    if not text:
        return []
    end = r"\0" if for_folders else r"\0?"
    try:
        bare = text.removeprefix("**/")
        if not anchored and "/" not in bare and bare != "**":
            return [
                _Rule(keeps=keeps, name=f"{_name_expression(glob)}/{end}") for glob in _expand_braces(bare)
            ]
        return [
            _Rule(keeps=keeps, path=_path_expression(glob.split("/")) + end) for glob in _expand_braces(text)
        ]
    except GlobInvalid:
        return []


class _Table:
    """Many expressions tried in one go."""

    def __init__(self, rules: list[tuple[int, str]]) -> None:
        # The first alternative that fits is the one that is found, so the last rule goes first.
        latest = rules[::-1]
        self._numbers = [number for number, _ in latest]
        self._pattern = re.compile("|".join(f"({rule})" for _, rule in latest)) if latest else None

    def last(self, text: str) -> int:
        """Number of the last rule that matches, or -1."""
        found = self._pattern.fullmatch(text) if self._pattern else None
        return self._numbers[found.lastindex - 1] if found and found.lastindex else -1


# ── globs as regular expressions ──

_FOLDER = "(?:[^/]+/)"


def _path_expression(names: list[str]) -> str:
    """An expression for a path that ends in `/`; the name `**` stands for any number of folders."""
    if names[-1] == "**":
        names = [*names, "*"]
    runs = [""]
    for name in names:
        if name == "**":
            runs.append("")
        else:
            runs[-1] += f"{_name_expression(name)}/"
    first, *rest = runs
    if not rest:
        return first
    *middle, last = rest
    # Where a run between two `**` fits first is as good as any later place: there is no need to come back.
    atoms = "".join(f"(?>{_FOLDER}*?{run})" for run in middle if run)
    return f"{first}{atoms}{_FOLDER}*{last}"


def _name_expression(name: str) -> str:
    """An expression for a name without `/`."""
    pieces = [""]
    position = 0
    while position < len(name):
        character = name[position]
        position += 1
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "[":
            expression, position = _class_expression(name, position)
            pieces[-1] += expression
        elif character == "\\":
            if position == len(name):
                raise GlobInvalid("there is nothing after its `\\`")
            pieces[-1] += re.escape(name[position])
            position += 1
        else:
            pieces[-1] += re.escape(character)
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    # As above: what stands between two stars is taken where it is found first.
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + "[^/]*" + last


def _class_expression(name: str, start: int) -> tuple[str, int]:
    """The expression for a `[…]` whose content begins at `start`, and where it ends."""
    negated = name[start : start + 1] in ("!", "^")
    start += negated
    end = name.find("]", start + 1)
    if end < 0:
        raise GlobInvalid("its `[` is not closed")
    content = name[start:end]
    expression = ""
    position = 0
    while position < len(content):
        low = high = content[position]
        if content[position + 1 : position + 2] == "-" and position + 2 < len(content):
            high = content[position + 2]
            position += 2
        if low > high:
            raise GlobInvalid(f"`{low}-{high}` is no range")
        expression += re.escape(low) + (f"-{re.escape(high)}" if high != low else "")
        position += 1
    return f"[{'^/' if negated else ''}{expression}]", end + 1


_BRACES = re.compile(r"\\.|\[[!^]?.[^\]]*\]|.", re.DOTALL)


def _expand_braces(glob: str) -> list[str]:
    """The globs that one with `{a,b}` in it stands for."""
    parts = [[""]]
    is_open = False
    for part in _BRACES.findall(glob):
        if part in ("{", "}"):
            if is_open == (part == "{"):
                raise GlobInvalid("its braces are nested, or do not pair up")
            is_open = not is_open
            parts.append([""])
        elif part == "," and is_open:
            parts[-1].append("")
        else:
            parts[-1][-1] += part
    if is_open:
        raise GlobInvalid("its `{` is not closed")
    if math.prod(map(len, parts)) > MAX_GLOBS:
        raise GlobInvalid("it stands for too many others")
    return list(map("".join, itertools.product(*parts)))
