"""Public names of tools: valid for every provider, the same on every machine, and never another tool's.

A name is a label. It is made from a `ToolKey` and leads back to it only through a `NameTable`; no code ever
parses a name.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Literal

from fairlead.catalog.tools import HIDDEN_CATEGORIES, LONGEST_NAME_READ, ToolKey, slug
from fairlead.errors import UnknownTool

Scheme = Literal["stable", "readable", "gateway", "plain"]
"""`mcp_<server>_<tool>_<hash8>`, or a hash only where needed: `server__tool`, `server_tool`, `tool`."""

MAX_PUBLIC_NAME = 64
MAX_GATEWAY_NAME = 45
"""Longest name: clients put a prefix of their own before a tool's name."""
MAX_TWINS = 3
"""Most names that one is reported to look like: all pairs of many would be far too many."""
RESERVED_PREFIX = "mcp_"
"""Prefix of Fairlead's own tools. No other name without a hash begins with it."""

_HASH_DIGITS = (0, 8, 16, 32, 64)
_TWINS = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u03bf\u03b1\u03bd\u0131",
    "aeopcyxijsdhqwoavi",
)
"""Letters of other alphabets that look like Latin ones."""


@dataclass(frozen=True, slots=True)
class _NameStyle:
    prefix: str
    joiner: str
    longest: int
    digits: int
    """Initial length of the hash."""
    with_server: bool = True


_STYLES: dict[Scheme, _NameStyle] = {
    "stable": _NameStyle("mcp_", "_", MAX_PUBLIC_NAME, 8),
    "readable": _NameStyle("", "__", MAX_PUBLIC_NAME, 0),
    "gateway": _NameStyle("", "_", MAX_GATEWAY_NAME, 0),
    "plain": _NameStyle("", "", MAX_PUBLIC_NAME, 0, with_server=False),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NameFinding:
    """A name that may be taken for another one, and why."""

    key: ToolKey
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NameTable:
    """Every tool's public name, and the tool of each name."""

    names: Mapping[ToolKey, str]
    keys: Mapping[str, ToolKey]
    findings: tuple[NameFinding, ...] = ()

    def __getitem__(self, name: str) -> ToolKey:
        try:
            return self.keys[name]
        except KeyError:
            raise UnknownTool(f"no tool is called `{name}`") from None

    def __len__(self) -> int:
        return len(self.names)


def public_name(key: ToolKey) -> str:
    """Name of a tool in the library: `mcp_<server>_<tool>_<hash8>`."""
    return _render(key, _STYLES["stable"], 8)


def name_tools(
    keys: Iterable[ToolKey],
    scheme: Scheme = "stable",
    *,
    first_party: Collection[ToolKey] = (),
    reserved: Collection[str] = (),
) -> NameTable:
    """Name all tools at once, so that no two share a name.

    Of tools that would share one, each gets a longer hash, in any order: a name that was approved never comes
    to mean another tool.

    Args:
        keys: The tools.
        scheme: How names are made.
        first_party: The tools that keep their name where others would share it.
        reserved: Names that no tool may have.
    """
    style = _STYLES[scheme]
    wanted = {key: _digits_needed(key, style) for key in dict.fromkeys(keys)}
    taken = {name.casefold() for name in reserved}
    names = {key: _render(key, style, digits) for key, digits in wanted.items()}
    while clashing := _colliding_tools(names, taken, first_party):
        for key in clashing:
            wanted[key] = next(digits for digits in _HASH_DIGITS if digits > wanted[key])
            names[key] = _render(key, style, wanted[key])
    return NameTable(
        names=MappingProxyType(names),
        keys=MappingProxyType({name: key for key, name in names.items()}),
        findings=tuple(_look_alikes(names)),
    )


def skeleton(name: str) -> str:
    """Visual skeleton of a name: two names with the same skeleton are hard to tell apart."""
    shown = unicodedata.normalize("NFKD", name[:LONGEST_NAME_READ]).casefold().translate(_TWINS)
    return "".join(
        character for character in shown if unicodedata.category(character) not in HIDDEN_CATEGORIES
    )


def _digits_needed(key: ToolKey, style: _NameStyle) -> int:
    """Length of the hash that a tool needs without any collision."""
    if style.digits:
        return style.digits
    # A slug may drop all that tells two tools apart, and one listed later must not rename this one.
    lossy = not key.tool.isascii() or not key.tool.isprintable() or not slug(key.tool)
    plain = _plain(key, style)
    return 8 if lossy or len(plain) > style.longest or plain.casefold().startswith(RESERVED_PREFIX) else 0


def _colliding_tools(
    names: Mapping[ToolKey, str], taken: Collection[str], first_party: Collection[ToolKey]
) -> list[ToolKey]:
    """Tools that need another name. Names that differ only in case collide."""
    groups: dict[str, list[ToolKey]] = defaultdict(list)
    for key, name in names.items():
        groups[name.casefold()].append(key)
    clashing: list[ToolKey] = []
    for name, keys in groups.items():
        if name in taken:
            clashing += keys
        elif len(keys) > 1:
            ours = [key for key in keys if key in first_party]
            clashing += [key for key in keys if len(ours) != 1 or key not in ours]
    return clashing


def _render(key: ToolKey, style: _NameStyle, digits: int) -> str:
    plain = _plain(key, style)
    if not digits:
        return plain
    suffix = f"_{_hash(key)[:digits]}"[: style.longest - 1]
    room = style.longest - len(suffix)
    if len(plain) > room:
        # The tool gets half of the room: its name says more than its server's.
        tool = slug(key.tool) or "tool"
        server = max(room // 2 - len(style.prefix), room - len(style.prefix + style.joiner) - len(tool))
        plain = _ensure_valid_start(f"{style.prefix}{_server(key, style)[:server]}{style.joiner}{tool}")[
            :room
        ].rstrip("_-")
    return f"{plain}{suffix}"


def _plain(key: ToolKey, style: _NameStyle) -> str:
    return _ensure_valid_start(f"{style.prefix}{_server(key, style)}{style.joiner}{slug(key.tool) or 'tool'}")


def _server(key: ToolKey, style: _NameStyle) -> str:
    return slug(key.server_id) if style.with_server else ""


def _ensure_valid_start(name: str) -> str:
    """Prefix a name where needed to begin with a letter or an underscore, as all providers require."""
    return name if name[:1].isalpha() or name.startswith("_") else f"_{name}"


def _hash(key: ToolKey) -> str:
    # A server's id has no NUL in it, so the input is unambiguous.
    return sha256(f"{key.server_id}\0{key.tool}".encode("utf-8", "surrogatepass")).hexdigest()


def _look_alikes(keys: Iterable[ToolKey]) -> Iterable[NameFinding]:
    twins: dict[str, list[ToolKey]] = defaultdict(list)
    odd: list[ToolKey] = []
    for key in keys:
        if key.tool.isascii() and key.tool.isprintable():
            if len(same := twins[key.tool.casefold()]) < MAX_TWINS:
                same.append(key)
        else:
            odd.append(key)
    for key in odd:
        shown = skeleton(key.tool)
        letters = key.tool[:LONGEST_NAME_READ]
        if any(unicodedata.category(letter) in HIDDEN_CATEGORIES - {"Mn"} for letter in letters):
            yield NameFinding(key=key, message="has invisible characters in its name")
        same = twins[shown]
        for twin in same:
            yield NameFinding(key=key, message=f"looks like `{twin}`")
        if len(same) < MAX_TWINS:
            same.append(key)
