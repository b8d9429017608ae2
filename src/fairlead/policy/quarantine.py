"""Quarantine: which tools of a listing may be offered and called, by pins, lockfile and valid schemas.

`ScreenedListing` alone answers whether a tool is held back. Every surface asks it each time; it is rebuilt
when the listing, the pins, the lock or a finding of another connection to the server changes.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from fairlead.catalog.catalog import usable_tool
from fairlead.catalog.definitions import without_default_texts
from fairlead.catalog.repair.protocol_versions import valid_listing
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import SECRET_IN_NAME, Listing, ToolEntry, ToolKey
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.paths import LOCK_NAME
from fairlead.policy.decision import BundleFilter
from fairlead.policy.lockfile import LockedServer, check_lock
from fairlead.policy.pins import (
    UNCHANGED,
    InstructionsState,
    PinDifferences,
    Pins,
    UntrustedPins,
    allow_patterns,
    check,
    check_reviewed,
    instructions_state,
    is_guarded,
    may_be_pinned,
    pin_of,
    pin_on_first_use,
)

MAX_REMEMBERED = 4096
"""Most answers that one `ScreenedListing` caches: callers may name tools that no server ever listed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRefusal:
    """Why a tool may not be called now, regardless of rules and approvals."""

    kind: Literal["quarantined", "rejected", "unlisted"]
    """Held back by pins or a lock; invalid definition; or not listed by a server that needs pins."""
    reason: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ScreenedListing:
    """Listing of the visible, valid and reviewed definitions, and the tools in quarantine."""

    listing: Listing
    """Without changed texts of defaults and changed instructions; its `notes` say what waits for a review."""
    quarantined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why each of these tools may not be used."""
    hint: str | None = None
    """Hint that ends the quarantine by pins."""
    lock_hint: str | None = None
    """Hint that ends the quarantine by a lock, which a review does not."""
    locked_out: frozenset[str] = frozenset()
    """Quarantined tools that only a lock holds back."""
    needs_pins: bool = False
    """Whether an unlisted tool is refused, since it cannot have a pin."""
    _answers: dict[str, CallRefusal | None] = field(
        default_factory=dict[str, "CallRefusal | None"], repr=False
    )

    @cached_property
    def _entries(self) -> dict[str, ToolEntry]:
        return {entry.key.tool: entry for entry in self.listing.tools}

    def entry(self, tool: str) -> ToolEntry | None:
        """Visible definition of a tool; None where it is not listed."""
        return self._entries.get(tool)

    def refusal(self, tool: str) -> CallRefusal | None:
        """Why a tool may not be called now; None where only the policy decides."""
        try:
            return self._answers[tool]
        except KeyError:
            if len(self._answers) >= MAX_REMEMBERED:
                self._answers.clear()
            answer = self._answers[tool] = self._refusal(tool)
            return answer

    def _refusal(self, tool: str) -> CallRefusal | None:
        reason = self.quarantined.get(tool)
        if reason is not None:
            hint = self.lock_hint if tool in self.locked_out else self.hint
            return CallRefusal(kind="quarantined", reason=reason, hint=hint)
        entry = self.entry(tool)
        if entry is not None:
            rejected = entry.derive(usable_tool).rejected
            return CallRefusal(kind="rejected", reason=rejected) if rejected is not None else None
        # Rejected tools are kept under names that are safe to show.
        names = (tool, gate.content(tool), gate.text(tool))
        rejected = next((each.reason for each in self.listing.rejected if each.name in names), None)
        if rejected is None and ToolKey("", tool).holds_secret:
            rejected = SECRET_IN_NAME
        if rejected is not None:
            return CallRefusal(kind="rejected", reason=rejected)
        if any(each.is_unnamed for each in self.listing.rejected):
            reason = "its server lists definitions that cannot be parsed, and it may be one of these"
            return CallRefusal(kind="unlisted", reason=reason)
        if self.needs_pins:
            return CallRefusal(kind="unlisted", reason="its server does not list it, so it cannot be pinned")
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedListing:
    """Listing with its first use and screening computed ahead, and the values they were computed from."""

    server: LoadedServer
    listing: Listing
    pins: Pins | UntrustedPins | None
    lock: LockedServer | str | None
    first_use: Pins | None
    screened: ScreenedListing
    """Including the pins of the first use, where there are any."""

    def is_about(
        self,
        server: LoadedServer,
        listing: Listing,
        pins: Pins | UntrustedPins | None,
        lock: LockedServer | str | None,
    ) -> bool:
        """Whether it was computed from these very objects."""
        return self.server is server and self.listing is listing and self.pins is pins and self.lock is lock


def prepare(
    server: LoadedServer, listing: Listing, pins: Pins | UntrustedPins | None, lock: LockedServer | str | None
) -> PreparedListing:
    """Compute what takes long about a listing, so that the event loop does not have to.

    Runs in a thread: tools cache what is computed about them, and nothing else changes.

    Args:
        server: The server.
        listing: What it offers.
        pins: Its pins; None if it has none yet.
        lock: Its entry in the lockfile, or why that cannot be read.
    """
    pinned = first_use(server, listing, pins, lock, at=time.time())
    screened = screen(server, listing, pinned or pins, lock)
    # Digests and schema checks are cached on the entries here, in the thread, for the event loop to find.
    for entry in screened.listing.tools:
        entry.derive(usable_tool)
    if is_guarded(server):
        for entry in listing.tools:
            pin_of(entry, "first use", 0)
    return PreparedListing(
        server=server, listing=listing, pins=pins, lock=lock, first_use=pinned, screened=screened
    )


def first_use(
    server: LoadedServer,
    listing: Listing,
    pins: Pins | UntrustedPins | None,
    lock: LockedServer | str | None,
    *,
    at: float,
    bundle_filter: BundleFilter | None = None,
) -> Pins | None:
    """Pins with what an allowlist allows for the first time; None where that is nothing.

    Args:
        server: Its configuration.
        listing: What it lists, unchanged.
        pins: Its pins. Unreadable ones (`UntrustedPins`) are not replaced.
        lock: Its lock; tools that it holds back are not pinned.
        at: The time of the new pins.
        bundle_filter: The bundle whose allowlist counts where the server has none of its own.
    """
    if server.config is None or not is_guarded(server) or isinstance(pins, UntrustedPins):
        return None
    patterns = allow_patterns(server.config, bundle_filter)
    if not patterns or (pins is not None and set(patterns) <= set(pins.patterns)):
        return None
    # What the lockfile holds back must not be pinned: a pin made now would outlive the lock.
    locked_out = screen(server, listing, None, lock).quarantined
    return pin_on_first_use(pins, listing, patterns, at, locked_out)


def screen(
    server: LoadedServer,
    listing: Listing,
    pins: Pins | UntrustedPins | None,
    lock: LockedServer | str | None,
    elsewhere: Mapping[str, str] | None = None,
) -> ScreenedListing:
    """Hold a server's listing to its pins and lock.

    Args:
        server: Its configuration.
        listing: What it lists, unchanged.
        pins: Its pins; `UntrustedPins` lets nothing through.
        lock: Its lock; a text is why it cannot be read, and nothing is let through.
        elsewhere: Quarantine reasons by tool of a newer listing over another connection.

    Returns:
        The listing to offer, and the tools in quarantine.
    """
    guarded = is_guarded(server)
    visible = listing.derive(valid_listing)
    unknown = lock if isinstance(lock, str) else None
    hint = f"run `{command_line('review', server.server_id)}` to see what changed and decide"
    lock_hint = _lock_hint(server.server_id)
    if unknown is not None:
        lock_hint = f"restore {LOCK_NAME}, or write a new one with `fairlead lock`"
    if isinstance(pins, UntrustedPins):
        if guarded:
            unknown, hint = pins.reason, pins.hint or hint
        pins = None
    if unknown is not None:
        # Fail closed: without readable pins or lock there is no telling which definitions the user has seen.
        reasons = {entry.key.tool: unknown for entry in visible.tools}
        return ScreenedListing(
            listing=replace(visible, instructions=None, notes=(*visible.notes, unknown)),
            quarantined=reasons,
            hint=lock_hint if unknown == lock else hint,
            needs_pins=guarded,
        )
    by_pins = _by_pins(server, pins, listing) if pins is not None else UNCHANGED
    by_lock = check_lock(lock, listing) if lock is not None and not isinstance(lock, str) else UNCHANGED
    # Before its first review no one has seen what an untrusted server says of itself.
    is_unseen = guarded and pins is None and visible.instructions is not None
    if by_pins == UNCHANGED and by_lock == UNCHANGED and not elsewhere and not is_unseen:
        return ScreenedListing(listing=visible, needs_pins=guarded)
    pinned_out, locked_out = _quarantine_by_pins(by_pins, pins), _quarantine_by_lock(by_lock)
    quarantined = {**(elsewhere or {}), **locked_out, **pinned_out}
    withheld = is_unseen or by_pins.instructions_changed or by_lock.instructions_changed
    said = instructions_state(listing.instructions, pins) if by_pins.instructions_changed else None
    notes = (*visible.notes, *_notes(server.server_id, by_pins, by_lock, said))
    return ScreenedListing(
        listing=replace(
            visible,
            tools=tuple(_as_known(entry, pins, by_pins, by_lock) for entry in visible.tools),
            instructions=None if withheld else visible.instructions,
            notes=notes,
        ),
        quarantined=quarantined,
        hint=hint,
        lock_hint=lock_hint,
        locked_out=frozenset(locked_out.keys() - pinned_out.keys()),
        needs_pins=guarded,
    )


def _by_pins(server: LoadedServer, pins: Pins, listing: Listing) -> PinDifferences:
    if is_guarded(server):
        return check(pins, listing)
    return check_reviewed(pins, listing) if may_be_pinned(server) else UNCHANGED


def _quarantine_by_pins(verdicts: PinDifferences, pins: Pins | None) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for tool, change in verdicts.tools.items():
        if change == "new":
            reasons[tool] = "it is new and has not been reviewed"
        elif change == "changed" and pins is not None:
            since = "it was reviewed" if pins.tools[tool].by == "review" else "it was first used"
            reasons[tool] = f"its definition has changed since {since}"
    return reasons


def _quarantine_by_lock(verdicts: PinDifferences) -> dict[str, str]:
    return {
        tool: f"it is not in {LOCK_NAME}" if change == "new" else f"it differs from {LOCK_NAME}"
        for tool, change in verdicts.tools.items()
        if change != "defaults"
    }


def _as_known(
    entry: ToolEntry, pins: Pins | None, by_pins: PinDifferences, by_lock: PinDifferences
) -> ToolEntry:
    """The tool without unreviewed texts of defaults, where it is otherwise the same."""
    tool = entry.key.tool
    if by_lock.tools.get(tool) == "defaults":
        return entry.derive(_without_default_texts, None)
    if by_pins.tools.get(tool) == "defaults" and pins is not None:
        known = bytes(pins.tools[tool].definition)
        return entry.derive(_without_default_texts, known)
    return entry


def _without_default_texts(entry: ToolEntry, known: bytes | None) -> ToolEntry:
    return replace(entry, definition=without_default_texts(entry.definition, known))


def _notes(
    server_id: str, by_pins: PinDifferences, by_lock: PinDifferences, said: InstructionsState | None
) -> Iterator[str]:
    changed = sum(change == "changed" for change in by_pins.tools.values())
    new = sum(change == "new" for change in by_pins.tools.values())
    unlocked = sum(change != "defaults" for change in by_lock.tools.values())
    review = f"run `{command_line('review', server_id)}`"
    if changed:
        yield f"{changed} {'tool' if changed == 1 else 'tools'} changed: {review}"
    if new:
        yield f"{'1 tool is' if new == 1 else f'{new} tools are'} new: {review}"
    if said in _WITHHELD:
        yield f"its instructions {_WITHHELD[said]} and are withheld: {review}"
    if unlocked or by_lock.instructions_changed:
        tools = "1 tool differs" if unlocked == 1 else f"{unlocked} tools differ"
        yield f"{tools if unlocked else 'its instructions differ'} from {LOCK_NAME}: {_lock_hint(server_id)}"


_WITHHELD: Mapping[InstructionsState | None, str] = {"new": "were not reviewed", "changed": "changed"}


def _lock_hint(server_id: str) -> str:
    only = ("--only", server_id)
    check, accept = command_line("lock", options=("--check", *only)), command_line("lock", options=only)
    return f"run `{check}` to see what differs, `{accept}` to accept it"
