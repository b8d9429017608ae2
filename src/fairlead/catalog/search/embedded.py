"""Tools as vectors of any embedding model, to search by meaning: needs the extra `fairlead[search]`.

The model is elsewhere: this compares vectors that it made, of tools and of queries.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlead.catalog.search.index import Index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


def unit_vector(values: Sequence[float]) -> bytes:
    """A vector of length 1 as bytes. Raises `ValueError` for one without a direction."""
    vector = np.asarray(values, dtype=np.float32)
    length = float(np.linalg.norm(vector))
    if vector.ndim != 1 or not np.isfinite(length) or not length:
        raise ValueError("not a vector")
    return (vector / np.float32(length)).tobytes()


class EmbeddedTools:
    """The vectors of all tools of an index, by slot.

    Args:
        index: The tools.
        vectors: Their vectors as bytes, in the order of their slots; None for a free slot, empty for a text
            that the model refused.
    """

    def __init__(self, index: Index, vectors: Sequence[bytes | None]) -> None:
        self.index = index
        sizes = Counter(len(vector) for vector in vectors if vector)
        size = self.bytes_each = max(sizes, key=lambda size: (sizes[size], size), default=0)
        """Bytes of one vector, as most of them have."""
        # What another model of the same name made does not fit, and is like nothing.
        rows = [vector if vector and len(vector) == size else bytes(size) for vector in vectors]
        self._rows = np.frombuffer(b"".join(rows), dtype=np.float32).reshape(len(rows), size // 4)

    def for_queries(self, vectors: Mapping[str, bytes]) -> "EmbeddedQueries":
        """Compare with the queries of these texts."""
        return EmbeddedQueries(self._rows, vectors)


class EmbeddedQueries:
    """Tools, to be compared with a few texts whose vectors are known: a `SemanticIndex`."""

    def __init__(self, rows: "Vectors", vectors: Mapping[str, bytes]) -> None:
        self._rows = rows
        self._vectors = vectors

    def compare(self, text: str) -> "EmbeddedComparison":
        """Compare all tools with one of the texts."""
        vector = np.frombuffer(self._vectors.get(text, b""), dtype=np.float32)
        if len(vector) != self._rows.shape[1]:
            return EmbeddedComparison(np.zeros(len(self._rows), dtype=np.float32))
        return EmbeddedComparison(np.vecdot(self._rows, vector))


class EmbeddedComparison:
    """Similarity of each tool to one text.

    Models differ in how similar texts are that have nothing in common, so that is taken for 0.
    """

    def __init__(self, cosines: "Vectors") -> None:
        usual = float(cosines.mean()) if len(cosines) else 0.0
        self._likeness = ((cosines - usual) / max(1 - usual, 1e-6)).clip(0.0, 1.0)

    def nearest(self, count: int, at_least: float) -> list[int]:
        """Slots of the most similar tools, above half of a threshold: 0 is what is usual here."""
        best = np.argsort(self._likeness)[-count:]
        return best[self._likeness[best] >= at_least / 2].tolist()

    def of(self, slots: Sequence[int]) -> list[float]:
        """Similarity of each of these: from 0 to 1."""
        return self._likeness[np.asarray(slots, dtype=np.intp)].tolist()
