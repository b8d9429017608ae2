"""What earlier runs left behind, read without starting or contacting anything or loading the SDK."""

import os
from dataclasses import dataclass

import msgspec

from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.host.snapshots import (
    NAMESPACE,
    TROUBLE,
    Snapshot,
    Trouble,
    read_snapshot,
    read_trouble,
    snapshot_key,
)
from fairlead.policy.consent import NAMESPACE as CONSENT
from fairlead.policy.consent import stored_under
from fairlead.store.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What is known of a server: what it offered, what went wrong since, whether it may start."""

    snapshot: Snapshot | None = None
    trouble: Trouble | None = None
    approved: bool = True


def read_saved(loaded: LoadedConfig) -> dict[str, Saved]:
    """What is known of each configured server."""
    path = store_file(os.environ, loaded.config.store.path)
    if not path.exists():
        return {name: Saved(approved=server.consent is None) for name, server in loaded.servers.items()}
    with Database.open(path) as database:
        return {name: _read(database, server) for name, server in loaded.servers.items()}


def _read(database: Database, server: LoadedServer) -> Saved:
    key = snapshot_key(server)
    consent = server.consent
    approved = consent is None or database.get(CONSENT, stored_under(consent)) is not None
    stored, noted = database.get(NAMESPACE, key), database.get(TROUBLE, key)
    try:
        snapshot = read_snapshot(server.server_id, stored.value) if stored else None
        trouble = read_trouble(noted.value) if noted else None
    except msgspec.DecodeError:
        return Saved(approved=approved)
    if trouble is not None and snapshot is not None and snapshot.saved_at >= trouble.at:
        trouble = None
    return Saved(snapshot=snapshot, trouble=trouble, approved=approved)
