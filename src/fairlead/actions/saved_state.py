"""State of servers in the store, read without starting servers or loading the SDK."""

import os
from dataclasses import dataclass
from typing import Final

import msgspec

from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.store_location import store_location
from fairlead.errors import StoreError
from fairlead.host.snapshots import (
    NAMESPACE,
    TROUBLE,
    LastFailure,
    Snapshot,
    read_snapshot,
    read_trouble,
    snapshot_key,
)
from fairlead.policy.approvals import NAMESPACE as APPROVALS
from fairlead.policy.approvals import KeptApproval, count_unreadable, read_kept
from fairlead.policy.consent import NAMESPACE as CONSENT
from fairlead.policy.consent import consent_store_key
from fairlead.policy.lockfile import LockedServer, locks_of
from fairlead.policy.pins import NAMESPACE as PINS
from fairlead.policy.pins import Pins, UntrustedPins, pins_key, read_pins
from fairlead.policy.quarantine import ScreenedListing, screen
from fairlead.policy.unreviewed import review_notes
from fairlead.policy.upgrade import read_before_defaults
from fairlead.store.opening import open_database_for_reading
from fairlead.store.protocol import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedState:
    """Stored state of a server: its listing, its last error, and whether it may start."""

    snapshot: Snapshot | None = None
    """What it offered, as it came."""
    screened: ScreenedListing | None = None
    """What may be offered of that."""
    pins: Pins | None = None
    """None where nothing is pinned, or it cannot be read: then `screened` lets nothing through."""
    trouble: LastFailure | None = None
    approved: bool = True
    before_defaults: bool = False
    """Whether its calls still need approval, as before annotations of trusted servers counted."""


def read_saved(loaded: LoadedConfig) -> dict[str, SavedState]:
    """Stored state of each configured server."""
    path = store_location(os.environ, loaded.config.store)
    if not path.exists():
        return {
            name: SavedState(approved=not server.needs_consent) for name, server in loaded.servers.items()
        }
    locks = locks_of(loaded.servers.values())
    with open_database_for_reading(path) as database:
        return {name: _read(database, server, locks.get(name)) for name, server in loaded.servers.items()}


def read_answers(loaded: LoadedConfig) -> list[tuple[str, KeptApproval]]:
    """The stored answers to approvals, each with its key in the store."""
    path = store_location(os.environ, loaded.config.store)
    if not path.exists():
        return []
    with open_database_for_reading(path) as database:
        return read_kept(database.scan(APPROVALS))


def note_unreadable_answers(loaded: LoadedConfig) -> str | None:
    """What to say of stored answers to approvals that cannot be read; None where all can."""
    path = store_location(os.environ, loaded.config.store)
    if not path.exists():
        return None
    with open_database_for_reading(path) as database:
        number = count_unreadable(database.scan(APPROVALS))
    if not number:
        return None
    which = "1 remembered answer cannot" if number == 1 else f"{number} remembered answers cannot"
    return f"{which} be read: damaged, or of a newer Fairlead. What cannot be read allows nothing"


UNREADABLE_ANSWERS_HINT: Final = (
    "answer again when a tool asks; where a newer Fairlead wrote them, use that one to see and forget them"
)


def notes_to_review(server: LoadedServer, saved: SavedState) -> tuple[str, ...]:
    """Reasons for a review of a server, as far as they are known without connecting."""
    listing = saved.snapshot.listing if saved.snapshot else None
    return review_notes(server, listing, saved.pins, before_defaults=saved.before_defaults)


def _read(database: Database, server: LoadedServer, lock: LockedServer | str | None) -> SavedState:
    key = snapshot_key(server)
    consent = server.consent
    approved = consent is None or database.get(CONSENT, consent_store_key(consent)) is not None
    stored, noted = database.get(NAMESPACE, key), database.get(TROUBLE, key)
    try:
        snapshot = read_snapshot(server.server_id, stored.value) if stored else None
        trouble = read_trouble(noted.value) if noted else None
    except msgspec.DecodeError:
        return SavedState(approved=approved, before_defaults=read_before_defaults(database, server))
    if trouble is not None and (trouble.is_cleared or (snapshot and snapshot.saved_at >= trouble.at)):
        trouble = None
    pins = _pins(database, server)
    # What a project file describes is not offered before the user approved it.
    screened = screen(server, snapshot.listing, pins, lock) if snapshot and approved else None
    known = None if isinstance(pins, UntrustedPins) else pins
    return SavedState(
        snapshot=snapshot,
        screened=screened,
        pins=known,
        trouble=trouble,
        approved=approved,
        before_defaults=read_before_defaults(database, server),
    )


def _pins(database: Database, server: LoadedServer) -> Pins | UntrustedPins | None:
    try:
        pinned = database.get(PINS, pins_key(server))
        return read_pins(pinned.value, server.server_id) if pinned else None
    except StoreError as exc:
        return UntrustedPins.because(exc)
