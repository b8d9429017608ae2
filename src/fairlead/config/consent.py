"""What a person agrees to when they approve a server that a project file describes.

A project file is foreign until approved. Consent is bound to the file, the id and a digest of the whole entry
as it is written, references unexpanded, less the fields that can only narrow: change one argument, and the
question comes again.
"""

import json
from dataclasses import dataclass
from typing import Any

from fairlead.config.merge import Definition
from fairlead.config.shapes import as_object

NARROWING = frozenset({"deny_tools", "description"})
"""Fields that cannot make a server do more. `enabled` is one too, but only when it is false."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentKey:
    """One exact entry of one project file."""

    file: str
    server_id: str
    digest: str


def consent_key(definition: Definition) -> ConsentKey | None:
    """What must have been approved before this server may start; None where it is the user's own."""
    foreign = [part for part in definition.parts if part.layer.name == "project" and _widens(part.entry)]
    if not foreign:
        return None
    path = foreign[0].layer.path
    file = str(path.resolve()) if path else foreign[0].layer.label
    return ConsentKey(
        file=file, server_id=definition.server_id, digest=entry_digest(as_object(definition.entry))
    )


def entry_digest(entry: dict[str, Any]) -> str:
    """Digest an entry as it is written, less the fields that only narrow."""
    import hashlib  # loads a crypto library, which reading commands have no use for

    binding = {key: value for key, value in entry.items() if key not in NARROWING and key != "enabled"}
    text = json.dumps(binding, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _widens(entry: object) -> bool:
    return any(
        value is not False if key == "enabled" else key not in NARROWING
        for key, value in as_object(entry).items()
    )
