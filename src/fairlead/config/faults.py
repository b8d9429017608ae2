"""Faults of a document, before their file and line are known, and the hints that name what was meant."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]

SERVER_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Id of a server or bundle: safe in names of tools, paths and command lines."""
BAD_ID = "an id is 1 to 64 letters, digits, `_` or `-`"


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationFault:
    """A fault at a path of a document, before its file and line are known."""

    path: Path
    message: str
    hint: str | None = None
    is_isolated: bool = False
    """Whether it costs only what it concerns, though that is no entry: an unknown key at the top level, a
    section, a field of a section that is safe without it, or a granted bundle that does not exist."""
    written: Path | None = None
    """The path as the document spells it, where that is not Fairlead's own format."""


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Hint `did you mean …?` where one of the known words, but the word itself, is close."""
    import difflib

    known = [name for name in known if name != word]
    close = difflib.get_close_matches(word.lower(), {name.lower(): name for name in known}, n=1, cutoff=0.6)
    matches = [name for name in known if name.lower() == close[0]] if close else []
    return f"did you mean `{matches[0]}`?" if matches else None
