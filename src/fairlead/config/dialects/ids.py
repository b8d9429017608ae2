"""Server ids from whatever names other programs allow."""

import re
import unicodedata
from collections.abc import Iterable

from fairlead.config.dialects.dialect import Note

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LENGTH = 64


def server_ids(names: Iterable[str], notes: list[Note]) -> dict[str, str]:
    """The id each name gets: itself where it can be one, else something readable and unique, with a note."""
    names = list(names)
    ids = {name: name for name in names if _ID.fullmatch(name)}
    taken = set(ids)
    for name in names:
        if name not in ids:
            ids[name] = _unique(_readable(name), taken)
            taken.add(ids[name])
            notes.append(
                Note(server_id=ids[name], field="id", message=f"was `{name}`, which cannot be an id here")
            )
    return ids


def _readable(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", plain).strip("-")[:_LENGTH] or "server"


def _unique(wish: str, taken: set[str]) -> str:
    candidate, count = wish, 1
    while candidate in taken:
        count += 1
        suffix = f"-{count}"
        candidate = wish[: _LENGTH - len(suffix)] + suffix
    return candidate
