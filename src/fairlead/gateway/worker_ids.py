"""Numbers of workers in the ids that they give out: any of them knows whose an id is without asking."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

NO_OWNER: Final = ""
"""What ids begin with in a gateway of one process."""

_PREFIX = re.compile(r"w([1-9][0-9]{0,2})-")


def prefix_of(number: int) -> str:
    """Prefix of the ids that a worker gives out."""
    return f"w{number}-"


def owner_of(text: str) -> int | None:
    """The number of the worker that gave out an id; None where the id has none."""
    found = _PREFIX.match(text)
    return int(found[1]) if found is not None else None


def home_of(name: bytes, living: Iterable[int]) -> int | None:
    """The worker that a name belongs to, the same at all workers: of those that live, by the highest digest.

    A worker that comes or goes moves only the names that are, or will be, its own.
    """
    return max(living, key=lambda number: hashlib.sha256(b"%d\0" % number + name).digest(), default=None)
