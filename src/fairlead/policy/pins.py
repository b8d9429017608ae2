"""What the tools of a server were when somebody looked at them, or first used them: pins.

An untrusted server's tools are held to their pins. Who allows tools by hand, without a review, has them
pinned on first use: what an allow list of that moment lets through. Its patterns are kept with the pins, so
that a tool which turns up later under an old pattern is new, and one that a new pattern lets through is not.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from fairlead.catalog.digest import digests_of
from fairlead.catalog.entries import Listing, ToolEntry
from fairlead.config.load import LoadedServer
from fairlead.config.models import Server
from fairlead.errors import VersionConflict
from fairlead.policy.decision import Within
from fairlead.store.database import Database
from fairlead.store.store import Store, update

NAMESPACE = "pins"
REVIEWED = "pins reviewed"
"""The topic that is told when a review changed pins."""

Change = Literal["defaults", "changed", "new"]
"""How a tool differs: in texts of schema defaults alone, in anything else, or nobody ever looked at it."""
PinnedBy = Literal["review", "first use"]

_TARGET = ("command", "args", "url", "account", "builtin")


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as it was. The definition is kept to show what changed."""

    strict: str
    loose: str
    definition: msgspec.Raw
    by: PinnedBy
    at: float


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What is pinned of one server. No pins at all are no pins; empty ones are a server without tools."""

    tools: dict[str, Pin] = {}
    instructions: str | None = None
    patterns: tuple[str, ...] = ()
    """The allow lists under which tools were pinned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """How a listing differs from what is pinned. A tool that is not in `tools` does not."""

    tools: Mapping[str, Change] = field(default_factory=dict[str, Change])
    instructions_changed: bool = False


UNCHANGED = Verdicts()


def check(pins: Pins, listing: Listing) -> Verdicts:
    """Hold a listing against what is pinned. What is pinned and gone has not changed: it may come back."""
    expected = _matcher(pins.patterns)
    verdicts: dict[str, Change] = {
        entry.key.tool: verdict
        for entry in listing.tools
        if (verdict := _change(pins, entry, expected)) is not None
    }
    changed = listing.instructions is not None and listing.instructions != pins.instructions
    return Verdicts(tools=verdicts, instructions_changed=changed)


def _change(pins: Pins, entry: ToolEntry, is_allowed: Callable[[str], bool]) -> Change | None:
    pin = pins.tools.get(entry.key.tool)
    if pin is None:
        return "new" if is_allowed(entry.key.tool) else None
    if bytes(pin.definition) == entry.definition:
        return None
    return change_of(pin.strict, pin.loose, entry)


def change_of(strict: str, loose: str, entry: ToolEntry) -> Change | None:
    """How a tool differs from the one with these digests."""
    digests = digests_of(entry.definition)
    if digests.strict == strict:
        return None
    return "defaults" if digests.loose == loose else "changed"


# Who pins what.


def is_guarded(server: LoadedServer) -> bool:
    """Are a server's tools held to pins? Not where it is trusted, or part of this program."""
    config = server.config
    return (
        config is not None
        and config.trust == "untrusted"
        and server.transport not in ("builtin", "in_process")
    )


def granting(server: Server, within: Within | None = None) -> tuple[str, ...]:
    """The patterns that allow tools of a server: those of its entry, else those of a bundle that may."""
    if server.allow_tools is not None:
        return server.allow_tools
    return within.allow_tools or () if within is not None and within.grants else ()


def pinned_on_first_use(
    pins: Pins | None, listing: Listing, patterns: Iterable[str], at: float, withheld: Iterable[str] = ()
) -> Pins | None:
    """The pins with every tool that a new pattern lets through, less those `withheld`; None if as before."""
    before = pins or Pins(instructions=listing.instructions)
    known = frozenset(before.patterns)
    new = tuple(pattern for pattern in patterns if pattern not in known)
    if not new:
        return None
    left_out, is_allowed = before.tools.keys() | set(withheld), _matcher(new)
    found = {
        entry.key.tool: pin_of(entry, "first use", at)
        for entry in listing.tools
        if entry.key.tool not in left_out and is_allowed(entry.key.tool)
    }
    return Pins(
        tools={**before.tools, **found},
        instructions=before.instructions,
        patterns=(*before.patterns, *new),
    )


def pinned_by_review(
    pins: Pins | None,
    entries: Iterable[ToolEntry],
    *,
    instructions: str | None,
    patterns: Iterable[str],
    at: float,
) -> Pins:
    """The pins with tools as they are now. A review's word replaces whatever was pinned."""
    before = pins or Pins()
    return Pins(
        tools={**before.tools, **{entry.key.tool: pin_of(entry, "review", at) for entry in entries}},
        instructions=instructions,
        patterns=tuple(dict.fromkeys((*before.patterns, *patterns))),
    )


def pin_of(entry: ToolEntry, by: PinnedBy, at: float) -> Pin:
    """A tool as it is now."""
    digests = digests_of(entry.definition)
    definition = msgspec.Raw(entry.definition)
    return Pin(strict=digests.strict, loose=digests.loose, definition=definition, by=by, at=at)


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a name fits any of the patterns. Most are plain names, and there may be hundreds."""
    names = frozenset(patterns)
    globs = [pattern for pattern in patterns if is_glob(pattern)]
    return lambda tool: tool in names or any(fnmatchcase(tool, glob) for glob in globs)


def is_glob(pattern: str) -> bool:
    """Is it more than the name of one tool?"""
    return any(character in pattern for character in "*?[")


# In the store.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pins).decode


def pins_key(server: LoadedServer) -> str:
    """The same id for the same target has the same pins, whatever else its entry says.

    For a program it matters where it runs, since its name may lead to another file there.
    """
    folder = server.working_folder(server.config) if server.config and server.transport == "stdio" else None
    target = {name: server.entry[name] for name in _TARGET if name in server.entry}
    identity = (server.server_id, target, str(folder) if folder else None)
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def read_pins(value: bytes) -> Pins:
    """Read stored pins."""
    return _decode(value)


def written(pins: Pins) -> bytes:
    """Pins as they are stored."""
    return _encode(pins)


def joined(first_use: Pins, there: Pins | None) -> Pins:
    """The pins of a first use beside those that are there already, of which none is touched."""
    if there is None:
        return first_use
    return Pins(
        tools={**first_use.tools, **there.tools},
        instructions=there.instructions,
        patterns=tuple(dict.fromkeys((*there.patterns, *first_use.patterns))),
    )


def beside(first_use: Pins) -> Callable[[bytes | None], bytes]:
    """What to store so that the pins of a first use are there too."""
    return lambda stored: written(joined(first_use, _readable(stored) if stored is not None else None))


def record_review(store_path: Path, server: LoadedServer, review: Callable[[Pins | None], Pins]) -> None:
    """Change the pins of a server as a review says, and tell running hosts."""
    key = pins_key(server)
    with Database.open(store_path) as database:
        while True:
            found = database.get(NAMESPACE, key)
            pins = review(_readable(found.value) if found else None)
            try:
                database.put(NAMESPACE, key, written(pins), expect=found.version if found else None)
            except VersionConflict:
                continue  # another process pinned something meanwhile
            database.publish(REVIEWED, key.encode())
            return


def _readable(stored: bytes) -> Pins | None:
    try:
        return read_pins(stored)
    except msgspec.DecodeError:
        return None


async def save_first_use(store: Store, server: LoadedServer, pins: Pins) -> None:
    """Keep the pins of a first use. A review that another process saw meanwhile counts more."""
    await update(store, NAMESPACE, pins_key(server), beside(pins))
