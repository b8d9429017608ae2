"""Search by meaning with word vectors: needs the extra `fairlead[search]`.

The vector of a text is the mean of those of its tokens, which is quick, local and small. The vectors come
with the `wordllama` package. Only its files are read: importing it would load an HTTP client and set up the
logging of the whole process.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.catalog.search.index import Index, SearchDocument, document_text
from fairlead.catalog.tools import ToolKey
from fairlead.config.command_lines import extra_hint
from fairlead.errors import FairleadError

try:
    import numpy as np
    from safetensors.numpy import load
    from tokenizers import Tokenizer
except ImportError as exc:
    raise FairleadError("searching by meaning needs more packages", hint=extra_hint("search")) from exc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_COARSE = 64
"""Dimensions that select candidates, of 256. The first are trained to be used alone; to read the rest for
candidates only is a quarter of the work."""
_COARSE_LOOKS = 6
"""Candidates for each wanted tool."""

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class Encoder:
    """Encoder of texts to unit vectors, or 0 where a text has no token."""

    def __init__(self, vectors: "Vectors", tokenizer: Tokenizer) -> None:
        self._vectors = vectors
        self._tokenizer = tokenizer
        # A token never crosses a word, and words repeat: most texts need no tokenizer.
        self._tokens = lru_cache(maxsize=32_768)(self._tokens_of)

    @classmethod
    def load(cls) -> "Encoder":
        """Load the encoder from the files of the installed package. Nothing is downloaded."""
        folder = _package_folder()
        weights = load((folder / _WEIGHTS).read_bytes())["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        tokenizer.no_padding()
        return cls(np.ascontiguousarray(weights, dtype=np.float32), tokenizer)

    def encode(self, texts: Sequence[str]) -> "Vectors":
        """One row for each text."""
        rows = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            tokens = [*chain.from_iterable(map(self._tokens, text.split()))]
            if tokens:
                np.add.reduce(self._vectors.take(tokens, axis=0), axis=0, out=row)
                row /= sqrt(row.dot(row)) or 1.0
        return rows

    def _tokens_of(self, word: str) -> tuple[int, ...]:
        # One by one: encoding a batch starts threads, which do not go with forking processes.
        return tuple(self._tokenizer.encode(word, add_special_tokens=False).ids)


@lru_cache(maxsize=1)
def load_shared_encoder() -> Encoder:
    """The encoder of this process, loaded once."""
    return Encoder.load()


class ToolVectors:
    """Vectors of the tools of one index, by slot: a `SemanticIndex`."""

    def __init__(self, encoder: Encoder, index: Index, rows: "Vectors") -> None:
        self._encoder = encoder
        self._index = index
        self._coarse = np.ascontiguousarray(rows[:, :_COARSE])
        self._rest = np.ascontiguousarray(rows[:, _COARSE:])

    @classmethod
    def build(cls, encoder: Encoder, index: Index, documents: Iterable[SearchDocument]) -> "ToolVectors":
        """Vectors of all tools in an index, which was built from these documents."""
        return cls(encoder, Index(), encoder.encode([])).renew(index, documents)

    def renew(self, index: Index, documents: Iterable[SearchDocument]) -> "ToolVectors":
        """Vectors for an index that was derived from this one's, with the documents that are new in it."""
        texts: Mapping[ToolKey, str] = {document.key: document_text(document) for document in documents}
        known = np.hstack((self._coarse, self._rest))
        rows = np.zeros((len(index.tools), known.shape[1]), dtype=np.float32)
        kept = min(len(rows), len(known))
        rows[:kept] = known[:kept]
        before = (*self._index.tools, *[None] * len(index.tools))
        changed = [slot for slot, tool in enumerate(index.tools) if tool is not before[slot]]
        rows[changed] = self._encoder.encode([texts.get(index.tools[slot].key, "") for slot in changed])
        return ToolVectors(self._encoder, index, rows)

    def compare(self, text: str) -> "Comparison":
        """Compare all tools with a text."""
        [row] = self._encoder.encode([text])
        return Comparison(self._coarse, self._rest, row)


class Comparison:
    """Similarity of each tool to one text."""

    def __init__(self, coarse: "Vectors", rest: "Vectors", row: "Vectors") -> None:
        # Row by row, not as one product: that uses threads, which wait for a busy machine.
        self._coarse = np.vecdot(coarse, row[:_COARSE])
        self._rest = rest
        self._row = row[_COARSE:]

    def nearest(self, count: int, at_least: float) -> list[int]:
        """Slots of the most similar tools, above a threshold."""
        looks = min(count * _COARSE_LOOKS, len(self._coarse))
        looked_at = np.argpartition(self._coarse, -looks)[-looks:]
        cosines = self._cosines(looked_at)
        best = np.argsort(cosines)[-count:]
        return looked_at[best[cosines[best] >= at_least]].tolist()

    def of(self, slots: Sequence[int]) -> list[float]:
        """Similarity of each of these: from 0 to 1."""
        return self._cosines(np.asarray(slots, dtype=np.intp)).clip(0.0, 1.0).tolist()

    def _cosines(self, slots: "NDArray[np.intp]") -> "Vectors":
        return self._coarse[slots] + np.vecdot(self._rest[slots], self._row)


def _package_folder() -> Path:
    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise FairleadError("searching by meaning needs more packages", hint=extra_hint("search"))
    return Path(found.submodule_search_locations[0])
