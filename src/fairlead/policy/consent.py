"""Consent to servers of project files, recorded for the exact entry."""

import json
import time
from collections.abc import Iterable

from fairlead.config.consent import ConsentKey
from fairlead.config.store_location import StoreLocation
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY

NAMESPACE = "consent"


def record_consent(store_path: StoreLocation, keys: Iterable[ConsentKey]) -> None:
    """Record consent to exactly these entries."""
    approved = json.dumps({"approved_at": time.time()}).encode()
    with open_database(store_path) as database:
        for key in keys:
            database.put(NAMESPACE, consent_store_key(key), approved, expect=ANY)


def has_consent(store_path: StoreLocation, key: ConsentKey) -> bool:
    """Whether the user consented to exactly this entry."""
    if not store_path.exists():
        return False
    with open_database(store_path) as database:
        return database.get(NAMESPACE, consent_store_key(key)) is not None


def consent_store_key(key: ConsentKey) -> str:
    """Key of a consent in the store."""
    return f"{key.file}\0{key.server_id}\0{key.digest}"
