"""What is fuzzed: one module per target, whose `check(data)` raises where an invariant does not hold.

The same functions run over the corpus and random bytes in the normal tests (`tests/exam/test_fuzz.py`), and
under atheris, which looks for inputs that reach new code (`tests/tools/fuzz`).
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

Check: TypeAlias = Callable[[bytes], None]

CORPUS = Path(__file__).parents[1] / "corpus"
NAMES = tuple(sorted(folder.name for folder in CORPUS.iterdir()))


def load(name: str) -> Check:
    """The function that checks one input of a target."""
    return import_module(f"{__name__}.{name}").check


def seeds(name: str) -> list[Path]:
    """The corpus of a target, and inputs that once found a bug."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())


class Choices:
    """Takes choices from the beginning of an input, so that a fuzzer can change them one by one."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def number(self, limit: int) -> int:
        """A number below the limit; 0 where the input has ended."""
        first, self.rest = self.rest[:1], self.rest[1:]
        return first[0] % limit if first else 0

    def chunks(self, data: bytes, most: int = 64) -> list[bytes]:
        """The data in pieces of 1 to `most` bytes."""
        sizes = [1 + self.number(most) for _ in range(1 + self.number(8))]
        pieces: list[bytes] = []
        while data:
            size = sizes[len(pieces) % len(sizes)]
            pieces.append(data[:size])
            data = data[size:]
        return pieces


def split(data: bytes) -> tuple[Choices, bytes]:
    """Choices and content: the first line of an input, and all after it."""
    head, _, content = data.partition(b"\n")
    return Choices(head), content
