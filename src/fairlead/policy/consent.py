"""Remember which servers of project files the user has approved, entry by exact entry."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.config.consent import ConsentKey
from fairlead.store.protocol import ANY
from fairlead.store.sqlite import Database

NAMESPACE = "consent"


def record_consent(store_path: Path, keys: Iterable[ConsentKey]) -> None:
    """Approve exactly these entries."""
    approved = json.dumps({"approved_at": time.time()}).encode()
    with Database.open(store_path) as database:
        for key in keys:
            database.put(NAMESPACE, consent_store_key(key), approved, expect=ANY)


def has_consent(store_path: Path, key: ConsentKey) -> bool:
    """Was exactly this entry approved?"""
    if not store_path.exists():
        return False
    with Database.open(store_path) as database:
        return database.get(NAMESPACE, consent_store_key(key)) is not None


def is_outdated(store_path: Path, key: ConsentKey) -> bool:
    """Did an earlier version, which looked at less, record an approval of this entry?"""
    if not key.earlier or not store_path.exists():
        return False
    with Database.open(store_path) as database:
        return database.get(NAMESPACE, key.earlier) is not None


def consent_store_key(key: ConsentKey) -> str:
    """The store's key of an approval."""
    return f"{key.file}\0{key.server_id}\0{key.digest}"
