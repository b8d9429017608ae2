"""Pins: digests of a server's tools as they were reviewed or first used.

Tools of an untrusted server are held to their pins. A trusted server may add and change tools, except those
that were reviewed. Tools that the user allows without a review are pinned on first use, together with the
allowlist's patterns: a tool that appears later under an old pattern is new, one that a new pattern allows is
not.

Each pin records the format of its digests. A pin of an older format is compared by that format's digests, and
is extended to the current one where the tool is unchanged, so that an upgrade quarantines nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from fairlead.catalog.definitions import FORMAT, entry_digests, visible_definition, without_default_texts
from fairlead.catalog.sanitize.definitions import mask_tool
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.models import CHILD_TRANSPORTS, Server
from fairlead.config.store_location import StoreLocation
from fairlead.errors import StoreError, ValueTooLarge, VersionConflict
from fairlead.policy.decision import BundleFilter
from fairlead.policy.tool_names import matches_any
from fairlead.store.opening import open_database
from fairlead.store.protocol import Database, Store, update
from fairlead.store.sqlite_file import NO_DEFINITION, text_digest

NAMESPACE = "pins"
MAX_PINS_BYTES = 32 * 1024 * 1024
"""Most bytes that the pins of one server may take in the store: twice what it may list as a rule."""
_PIN_BYTES = 256
"""Size of a pin without its definition, roughly."""
REVIEWED = "pins reviewed"
"""Topic that is published when a review changed pins."""

PinChange = Literal["defaults", "changed", "new"]
"""Difference of a tool from its pin: only texts of schema defaults, anything else, or it has no pin."""
PinnedBy = Literal["review", "first use"]
InstructionsState = Literal["new", "changed", "refused"]
"""Why instructions are withheld: never accepted, changed since then, or refused as they are now."""

_TARGET = ("command", "args", "url", "account", "builtin", "extension")


class Pin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool when it was pinned. The definition is stored to show what changed."""

    strict: str
    loose: str
    definition: msgspec.Raw
    by: PinnedBy
    at: float
    format: int = 1
    """Format of both digests; pins of the first releases do not record it."""

    @property
    def has_definition(self) -> bool:
        """Whether the pinned definition is known; a migration of the store may have dropped it."""
        return bytes(self.definition) != NO_DEFINITION


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """Pins of one server. None is a server never pinned; empty ones are a server without tools."""

    tools: dict[str, Pin] = {}
    instructions: str | None = None
    patterns: tuple[str, ...] = ()
    """Patterns of the allowlists under which tools were pinned."""
    refused: str | None = None
    """Digest of the instructions that a review refused: there is nothing to decide until they change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UntrustedPins:
    """Why the pins of a server cannot be used, with a hint. Its tools are held back until that is fixed."""

    reason: str
    hint: str | None = None

    @classmethod
    def because(cls, error: StoreError) -> "UntrustedPins":
        """The store cannot be read."""
        return cls(reason=f"its pins cannot be trusted: {error}", hint=error.hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class PinDifferences:
    """Differences of a listing from the pins. A tool that is not in `tools` has not changed."""

    tools: Mapping[str, PinChange] = field(default_factory=dict[str, PinChange])
    instructions_changed: bool = False


UNCHANGED = PinDifferences()


def check(pins: Pins, listing: Listing) -> PinDifferences:
    """Compare a listing with the pins. A pinned tool that is missing has not changed: it may come back."""
    verdicts: dict[str, PinChange] = {
        entry.key.tool: verdict for entry in listing.tools if (verdict := _change(pins, entry)) is not None
    }
    return PinDifferences(
        tools=verdicts, instructions_changed=are_instructions_new(listing.instructions, pins)
    )


def are_instructions_new(instructions: str | None, pins: Pins) -> bool:
    """Whether a server's instructions differ from the pinned ones."""
    if instructions is None or instructions == pins.instructions:
        return False
    return pins.instructions != text_digest(instructions)  # an earlier release kept only the digest


def instructions_state(instructions: str | None, pins: Pins | None) -> InstructionsState | None:
    """Why a guarded server's instructions are withheld; None where there are none, or they were accepted."""
    if instructions is None:
        return None
    if pins is None:
        return "new"
    if not are_instructions_new(instructions, pins):
        return None
    if pins.refused == text_digest(instructions):
        return "refused"
    return "new" if pins.instructions is None else "changed"


def check_reviewed(pins: Pins, listing: Listing) -> PinDifferences:
    """Compare a trusted server's listing with its reviewed pins; its other tools may change."""
    return PinDifferences(
        tools={
            entry.key.tool: "changed"
            for entry in listing.tools
            if (pin := pins.tools.get(entry.key.tool)) is not None
            and pin.by == "review"
            and change_since(pin, entry) == "changed"
        }
    )


def _change(pins: Pins, entry: ToolEntry) -> PinChange | None:
    pin = pins.tools.get(entry.key.tool)
    if pin is None:
        return "new" if matches_any(entry.key.tool, pins.patterns) else None
    return change_since(pin, entry)


def change_since(pin: Pin, entry: ToolEntry) -> PinChange | None:
    """Difference of a tool from its pin; None where there is none."""
    # Where secrets are masked in a definition, only the digests tell whether it is the same.
    if entry.listed_digests is None and bytes(pin.definition) == entry.definition:
        return None
    return change_of(pin.strict, pin.loose, entry, pin.format)


def change_of(strict: str, loose: str, entry: ToolEntry, format: int = FORMAT) -> PinChange | None:  # noqa: A002
    """Difference of a tool from these digests of this format; None where there is none."""
    digests = entry_digests(entry, format)
    if digests.strict == strict:
        return None
    return "defaults" if digests.loose == loose else "changed"


def extend(pins: Pins, listing: Listing) -> Pins | None:
    """Extend pins of an older format to the current one, for tools that did not change.

    Definitions that a migration of the store dropped are filled in for tools that are still the same.

    Args:
        pins: The current pins.
        listing: What the server lists, unchanged.

    Returns:
        The extended pins; None where there is nothing to extend.
    """
    extended = {
        entry.key.tool: _renew_pin(pin, entry)
        for entry in listing.tools
        if (pin := pins.tools.get(entry.key.tool)) is not None
        and entry.listed_digests is None  # else it is extended when the server lists it again
        and _is_extensible(pin, change_since(pin, entry))
    }
    instructions = pins.instructions
    if listing.instructions is not None and instructions == text_digest(listing.instructions):
        instructions = listing.instructions
    if not extended and instructions == pins.instructions:
        return None
    return msgspec.structs.replace(pins, tools={**pins.tools, **extended}, instructions=instructions)


def _is_extensible(pin: Pin, change: PinChange | None) -> bool:
    if pin.format < FORMAT:
        return change in (None, "defaults")
    return change is None and not pin.has_definition


def _renew_pin(pin: Pin, entry: ToolEntry) -> Pin:
    definition = entry.definition
    if change_since(pin, entry) == "defaults":
        definition = without_default_texts(definition, bytes(pin.definition))
    return pin_of(replace(entry, definition=definition), pin.by, pin.at)


# Which tools are pinned.


def is_guarded(server: LoadedServer) -> bool:
    """Whether each tool of a server needs a pin: not where it is trusted or built in."""
    return may_be_pinned(server) and server.config is not None and server.config.trust == "untrusted"


def may_be_pinned(server: LoadedServer) -> bool:
    """Whether a review pins the tools of a server: not of a built-in one."""
    return server.config is not None and server.transport not in ("builtin", "in_process")


def is_held(server: LoadedServer, pins: "Pins | UntrustedPins | None") -> bool:
    """Whether any tool is held to a pin: all of an untrusted server, the reviewed ones of a trusted one."""
    if is_guarded(server) or not isinstance(pins, Pins):
        return is_guarded(server)
    return may_be_pinned(server) and has_review(pins)


def has_review(pins: Pins) -> bool:
    """Whether any tool was pinned by a review, rather than on first use."""
    return any(pin.by == "review" for pin in pins.tools.values())


def allow_patterns(server: Server, bundle_filter: BundleFilter | None = None) -> tuple[str, ...]:
    """Patterns that allow tools of a server: those of its entry, else those of a bundle that grants."""
    if server.allow_tools is not None:
        return server.allow_tools
    return bundle_filter.allow_tools or () if bundle_filter is not None and bundle_filter.grants else ()


def pin_on_first_use(
    pins: Pins | None, listing: Listing, patterns: Iterable[str], at: float, withheld: Iterable[str] = ()
) -> Pins | None:
    """Pin every tool that a new pattern allows, except those `withheld`; None where nothing is new."""
    before = pins or Pins(instructions=listing.instructions)
    known = frozenset(before.patterns)
    new = tuple(pattern for pattern in patterns if pattern not in known)
    if not new:
        return None
    left_out = before.tools.keys() | set(withheld)
    found: dict[str, Pin] = {}
    room = MAX_PINS_BYTES - sum(map(_size, before.tools.values()))
    for entry in listing.tools:
        if entry.key.tool not in left_out and matches_any(entry.key.tool, new):
            pin = pin_of(entry, "first use", at)
            room -= _size(pin) + len(entry.key.tool)
            if room < 0:
                break  # the rest is new, and waits for a review
            found[entry.key.tool] = pin
    return msgspec.structs.replace(before, tools={**before.tools, **found}, patterns=(*before.patterns, *new))


def _size(pin: Pin) -> int:
    return len(pin.definition) + _PIN_BYTES


def pin_by_review(
    pins: Pins | None,
    entries: Iterable[ToolEntry],
    *,
    instructions: str | None,
    patterns: Iterable[str],
    at: float,
    refused: str | None = None,
) -> Pins:
    """Pin tools as they are now, replacing earlier pins; with the accepted and the refused instructions."""
    before = pins or Pins()
    return Pins(
        tools={**before.tools, **{entry.key.tool: pin_of(entry, "review", at) for entry in entries}},
        instructions=instructions,
        patterns=tuple(dict.fromkeys((*before.patterns, *patterns))),
        refused=refused,
    )


def pin_of(entry: ToolEntry, by: PinnedBy, at: float) -> Pin:
    """Pin of a tool as it is now."""
    digests = entry_digests(entry)
    definition = entry.derive(_displayable_definition)
    return Pin(
        strict=digests.strict,
        loose=digests.loose,
        definition=msgspec.Raw(definition),
        by=by,
        at=at,
        format=FORMAT,
    )


def _displayable_definition(entry: ToolEntry) -> bytes:
    entry = mask_tool(entry).entry  # shown later by processes that do not know the secrets
    try:
        return visible_definition("tool", entry.definition)
    except (ValueError, RecursionError):
        return entry.definition


# In the store.

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pins).decode


def pins_key(server: LoadedServer) -> str:
    """Key of a server's pins: its id and target, independent of the rest of its entry.

    A program's working directory is part of it, since its name may lead to another file there.
    """
    folder = (
        server.working_folder(server.config)
        if server.config and server.transport in CHILD_TRANSPORTS
        else None
    )
    target = {name: server.entry[name] for name in _TARGET if name in server.entry}
    identity = (server.server_id, target, str(folder) if folder else None)
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def read_pins(value: bytes, server_id: str) -> Pins:
    """Decode stored pins.

    Raises:
        StoreError: They are damaged, or a newer release wrote them.
    """
    try:
        pins = _decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError) as exc:
        raise StoreError(
            f"the pins of `{server_id}` are damaged: {exc}",
            hint=f"run `{command_line('review', server_id)}` to review every tool and pin it again",
        ) from exc
    if any(pin.format > FORMAT or pin.format < 1 for pin in pins.tools.values()):
        raise StoreError(
            f"the pins of `{server_id}` were written by a newer Fairlead", hint="update Fairlead"
        )
    return pins


class _StoredPins(Pins, frozen=True, kw_only=True, omit_defaults=True):
    """Pins as they are stored: with the server that they are of, for `fairlead forget`."""

    server_id: str = ""


def encode_pins(pins: Pins, server_id: str = "") -> bytes:
    """Encode pins for the store."""
    fields = {name: getattr(pins, name) for name in Pins.__struct_fields__}
    return _encode(_StoredPins(**fields, server_id=server_id))


def merge_pins(first_use: Pins, there: Pins | None) -> Pins:
    """Merge the pins of a first use into stored pins, without changing those."""
    if there is None:
        return first_use
    kept = {tool: _newer(first_use.tools.get(tool), pin) for tool, pin in there.tools.items()}
    return msgspec.structs.replace(
        there,
        tools={**first_use.tools, **kept},
        patterns=tuple(dict.fromkeys((*there.patterns, *first_use.patterns))),
    )


def _newer(ours: Pin | None, there: Pin) -> Pin:
    """The stored pin, unless ours is the same one extended to a newer format."""
    is_extended = ours is not None and ours.format > there.format
    return ours if ours and is_extended and (ours.by, ours.at) == (there.by, there.at) else there


def add_first_use(first_use: Pins, server_id: str) -> Callable[[bytes | None], bytes]:
    """Store update that adds the pins of a first use. Damaged pins are left unchanged."""
    return lambda stored: encode_pins(
        merge_pins(first_use, read_pins(stored, server_id) if stored is not None else None), server_id
    )


def record_review(
    store_path: StoreLocation, server: LoadedServer, review: Callable[[Pins | None], Pins]
) -> None:
    """Change the pins of a server by a review, and notify running hosts.

    Args:
        store_path: The file of the store.
        server: The server.
        review: Returns the new pins for the present ones. Called again if another process wrote meanwhile.

    Raises:
        StoreError: The pins would be larger than `MAX_PINS_BYTES`, or the store cannot be written.
    """
    key = pins_key(server)
    with open_database(store_path) as database:
        while True:
            version, before = _to_review(database, key, server.server_id)
            pins = review(before)
            value = encode_pins(pins, server.server_id)
            if len(value) > MAX_PINS_BYTES:
                raise StoreError(
                    f"the pins of `{server.server_id}` would take {len(value)} bytes,"
                    f" more than the limit of {MAX_PINS_BYTES}",
                    hint="allow fewer of its tools",
                )
            try:
                database.put(NAMESPACE, key, value, expect=version)
            except VersionConflict:
                continue  # another process pinned something meanwhile
            database.publish(REVIEWED, key.encode())
            return


def _to_review(database: Database, key: str, server_id: str) -> tuple[int | None, Pins | None]:
    """Stored pins and their version; None where they are damaged or too large to read."""
    try:
        found = database.get(NAMESPACE, key)
    except ValueTooLarge as exc:
        return exc.version, None
    return (found.version, _reviewable(found.value, server_id)) if found else (None, None)


def _reviewable(stored: bytes, server_id: str) -> Pins | None:
    """Stored pins; None where they are damaged, so that a review pins again what it saw and nothing else."""
    try:
        return read_pins(stored, server_id)
    except StoreError as exc:
        if isinstance(exc.__cause__, ValueError | RecursionError):
            return None
        raise


async def save_first_use(store: Store, server: LoadedServer, pins: Pins) -> None:
    """Store the pins of a first use. A review that another process recorded meanwhile takes precedence."""
    await update(store, NAMESPACE, pins_key(server), add_first_use(pins, server.server_id))
