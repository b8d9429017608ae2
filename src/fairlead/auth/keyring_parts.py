"""Texts of any length in the system's keyring, which on some platforms takes short ones only."""

import sys
from typing import Final

from fairlead.config import keyrings

SERVICE: Final = "fairlead"
PART_CHARACTERS: Final = 1200 if sys.platform == "win32" else 30_000
"""Windows keeps 2,560 bytes, and two for each character. Others have no limit that a login would meet."""


def put(name: str, text: str) -> int | None:
    """Keep a text under a name. Returns in how many parts, or None where no keyring here would."""
    parts = [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
    for number, part in enumerate(parts):
        if not keyrings.put(SERVICE, f"{name}/{number}", part):
            return None
    return len(parts)


def get(name: str, parts: int) -> str | None:
    """The text under a name, or None where a part of it is gone."""
    texts = [keyrings.get(SERVICE, f"{name}/{number}") for number in range(parts)]
    return "".join(text for text in texts if text is not None) if None not in texts else None


def delete(name: str, parts: int) -> None:
    """Remove a text."""
    for number in range(parts):
        keyrings.delete(SERVICE, f"{name}/{number}")
