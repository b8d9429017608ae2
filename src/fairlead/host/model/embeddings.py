"""Search by meaning with a model behind an OpenAI-compatible API: `search.embeddings`.

The vectors of tools are made in the background and kept in the store by digest; until all are there, and
whenever the API is away, the search goes on by words. A search waits for the vector of its query only, and
once the API failed for nothing, until a trial in the background succeeds. A text that the model refuses costs
itself alone: it is like nothing.
"""

import hashlib
import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import has_slow_numbers
from fairlead.catalog.search.query import read_query
from fairlead.catalog.search.score import SemanticIndex
from fairlead.config.models import EmbeddingSettings
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.references import resolve
from fairlead.errors import FairleadError, StoreError
from fairlead.host.background import load_off_loop, run_off_loop
from fairlead.store.protocol import ANY, Store

NAMESPACE: Final = "embeddings"
BATCH: Final = 32
"""Texts in one request."""
QUERY_SECONDS: Final = 2.0
"""How long a search waits for the vector of its query."""
BATCH_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 30.0
"""How long an API that failed is left alone, before the next search has it tried in the background."""

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_VALUES = 8_192
_KNOWN_QUERIES = 256
_KNOWN_INDEXES = 8
_REFUSALS = frozenset({400, 413, 422, 500})
"""Statuses of APIs for a text that is empty, too long, or makes their model fail."""
_PROBE = "search"
"""A text that no model refuses, unless it refuses all."""
_SPARE = 1_000
"""Vectors in the store of tools that are gone, up to which they stay."""

logger = logging.getLogger(__name__)


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _EmbeddingsResponse(msgspec.Struct):
    data: list[_Embedding]


class EmbeddingFailed(Exception):
    """The API gave no vectors. It never leaves this module: the search goes on by words."""


class EmbeddingRefused(EmbeddingFailed):
    """The API gave no vectors of these texts. It may of others."""


class ToolEmbeddings:
    """The vectors of the tools of all hosts in a process: `host.embeddings`."""

    def __init__(
        self,
        store: Store | None,
        http: Callable[[], aiohttp.ClientSession],
        tasks: TaskGroup,
        env: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._http = http
        self._tasks = tasks
        self._env = env
        self._clock = clock
        self._vectors: dict[str, bytes] = {}
        self._read: set[str] = set()
        """Prefixes of models whose vectors were read from the store."""
        self._queries: OrderedDict[str, bytes] = OrderedDict()
        self._indexes: OrderedDict[int, Any] = OrderedDict()
        self._wanted: WeakKeyDictionary[Catalog, frozenset[str]] = WeakKeyDictionary()
        """The keys of the vectors that each catalog in use needs."""
        self._under_way: anyio.Event | None = None
        self._retry_at: dict[str, float] = {}
        """By prefix of a model that is away, when it is to be tried again."""
        self._trials: dict[str, anyio.Event] = {}

    async def compare(
        self, settings: EmbeddingSettings, catalog: Catalog, queries: str | Sequence[str]
    ) -> SemanticIndex | None:
        """The tools of a catalog, to be compared with queries; None where words have to do."""
        try:
            await load_off_loop("fairlead.catalog.search.embedded")
        except ImportError:
            logger.warning("`search.embeddings` needs the extra `search`: the search is by words")
            return None
        if not catalog.tools:
            return None
        tools = await self._tools(settings, catalog)
        if tools is None or self._is_away(settings):
            return None
        texts = [queries] if isinstance(queries, str) else queries
        query_texts = [query.text for text in texts for query in read_query(text)]
        try:
            with anyio.fail_after(QUERY_SECONDS):
                vectors = await self._query_vectors(settings, query_texts)
            if any(vector and len(vector) != tools.bytes_each for vector in vectors.values()):
                self._forget_vectors(_prefix(settings))
                raise EmbeddingFailed("its vectors have another length: those of the tools are made anew")
            return tools.for_queries(vectors)
        except (EmbeddingFailed, TimeoutError) as exc:
            self._pause(settings, exc)
            return None

    def _is_away(self, settings: EmbeddingSettings) -> bool:
        """Whether the API failed and no trial has succeeded since. One begins here when it is time."""
        prefix = _prefix(settings)
        if prefix not in self._retry_at:
            return False
        if self._clock() >= self._retry_at[prefix] and prefix not in self._trials:
            self._trials[prefix] = anyio.Event()
            self._tasks.start_soon(self._try, settings)
        return True

    async def _try(self, settings: EmbeddingSettings) -> None:
        """Try an API that failed, with as much patience as a search would have."""
        prefix = _prefix(settings)
        try:
            with anyio.fail_after(QUERY_SECONDS):
                await self._request(settings, [_PROBE])
            self._retry_at.pop(prefix, None)
        except (EmbeddingFailed, TimeoutError) as exc:
            self._pause(settings, exc)
        finally:
            self._trials.pop(prefix).set()

    async def wait(self) -> None:
        """Wait for what is under way: the vectors of tools, and trials of an API that failed."""
        for waiting in (self._under_way, *self._trials.values()):
            if waiting is not None:
                await waiting.wait()

    async def _tools(self, settings: EmbeddingSettings, catalog: Catalog) -> Any:  # noqa: ANN401 - an extra
        """The vectors of a catalog's tools; None while some are missing, which are then made."""
        from fairlead.catalog.search.embedded import EmbeddedTools

        prefix = _prefix(settings)
        index = catalog.index
        known = self._indexes.get(id(index))
        if known is not None and known[0] is index and known[1] == prefix:
            self._wanted[catalog] = known[3]
            return known[2]
        texts = await run_off_loop(catalog.texts_for_vectors, len(catalog))
        await self._read_stored(prefix)
        digests = {key: prefix + _digest(text) for key, text in texts.items()}
        wanted = self._wanted[catalog] = frozenset(digests.values())
        missing = {digests[key]: text for key, text in texts.items() if digests[key] not in self._vectors}
        if missing:
            # This is a trial, too, where the API failed before.
            if self._under_way is None and self._clock() >= self._retry_at.get(prefix, 0.0):
                self._under_way = anyio.Event()
                self._tasks.start_soon(self._embed_tools, settings, missing)
            return None
        vectors = [self._vectors.get(digests.get(tool.key, "")) for tool in index.tools]
        made = await run_off_loop(lambda: EmbeddedTools(index, vectors), len(vectors))
        self._indexes[id(index)] = (index, prefix, made, wanted)
        if len(self._indexes) > _KNOWN_INDEXES:
            self._indexes.popitem(last=False)
        return made

    async def _read_stored(self, prefix: str) -> None:
        if prefix in self._read or self._store is None:
            return
        try:
            stored = await self._store.scan(NAMESPACE, prefix)
        except StoreError:
            logger.warning("vectors of tools cannot be read", exc_info=True)
            return
        self._vectors.update({value.key: value.value for value in stored})
        self._read.add(prefix)

    async def _embed_tools(self, settings: EmbeddingSettings, missing: Mapping[str, str]) -> None:
        """Make the vectors of tools, batch by batch; what was made is kept, also after a later failure."""
        try:
            keys = [*missing]
            for start in range(0, len(keys), BATCH):
                some = keys[start : start + BATCH]
                with anyio.fail_after(BATCH_SECONDS):
                    vectors = await self._embed(settings, [missing[key] for key in some])
                made = dict(zip(some, vectors, strict=True))
                self._vectors.update(made)
                await self._keep(made)
            self._retry_at.pop(_prefix(settings), None)
            await self._drop_spare(_prefix(settings))
        except (EmbeddingFailed, TimeoutError) as exc:
            self._pause(settings, exc)
        finally:
            if self._under_way is not None:
                self._under_way.set()
            self._under_way = None

    async def _keep(self, made: Mapping[str, bytes]) -> None:
        if self._store is not None:
            try:
                # Not what was refused: a later process asks again.
                kept = [(NAMESPACE, key, value) for key, value in made.items() if value]
                await self._store.put_all(kept)
            except StoreError:
                logger.warning("vectors of tools are not kept", exc_info=True)

    async def _drop_spare(self, prefix: str) -> None:
        """Delete vectors of tools that are in no catalog any more, once there are many."""
        wanted = frozenset[str]().union(*self._wanted.values())
        spare = [key for key in self._vectors if key.startswith(prefix) and key not in wanted]
        if len(spare) <= max(_SPARE, len(wanted)):
            return
        for key in spare:
            del self._vectors[key]
            if self._store is not None:
                try:
                    await self._store.delete(NAMESPACE, key, expect=ANY)
                except StoreError:
                    return

    def _forget_vectors(self, prefix: str) -> None:
        """Forget what a model made, since another one has its name now. The store's are overwritten."""
        for vectors in (self._vectors, self._queries):
            for key in [key for key in vectors if key.startswith(prefix)]:
                del vectors[key]
        self._indexes.clear()

    async def _query_vectors(self, settings: EmbeddingSettings, texts: Iterable[str]) -> dict[str, bytes]:
        """The vectors of queries. What is known to be a secret is not sent."""
        prefix = _prefix(settings)
        masked = {text: gate.mask_secrets(text) for text in texts}
        keys = {text: prefix + _digest(sent) for text, sent in masked.items()}
        # Taken now: other searches may push them out meanwhile.
        known = {key: self._queries[key] for key in keys.values() if key in self._queries}
        for key in known:
            self._queries.move_to_end(key)
        new = {key: masked[text] for text, key in keys.items() if key not in known}
        if new:
            made = dict(zip(new, await self._embed(settings, [*new.values()]), strict=True))
            known |= made
            self._queries.update(made)
        while len(self._queries) > _KNOWN_QUERIES:
            self._queries.popitem(last=False)
        return {text: known[key] for text, key in keys.items()}

    async def _embed(self, settings: EmbeddingSettings, texts: Sequence[str]) -> list[bytes]:
        """Vectors of texts, empty for each that the model refuses. Raises `EmbeddingFailed`."""
        try:
            return await self._request(settings, texts)
        except EmbeddingRefused:
            await self._request(settings, [_PROBE])  # or is it everything that it refuses?
            return await self._embed_halves(settings, texts)

    async def _embed_halves(self, settings: EmbeddingSettings, texts: Sequence[str]) -> list[bytes]:
        """Vectors of texts that were refused together."""
        if len(texts) == 1:
            return [b""]
        found: list[bytes] = []
        middle = len(texts) // 2
        for half in (texts[:middle], texts[middle:]):
            try:
                found += await self._request(settings, half)
            except EmbeddingRefused:
                found += await self._embed_halves(settings, half)
        return found

    async def _request(self, settings: EmbeddingSettings, texts: Sequence[str]) -> list[bytes]:
        """Have the API make vectors. The caller limits the time. Raises `EmbeddingFailed`."""
        from fairlead.catalog.search.embedded import unit_vector

        body = json.dumps({"model": settings.model, "input": [*texts]}).encode()
        try:
            headers = {"Content-Type": "application/json", **self._authorization(settings)}
            url = settings.url.rstrip("/") + "/embeddings"
            # No redirects: a key is not sent elsewhere.
            async with self._http().post(url, data=body, headers=headers, allow_redirects=False) as response:
                if response.status in _REFUSALS:
                    raise EmbeddingRefused(f"HTTP status {response.status}")
                if response.status != 200:
                    raise EmbeddingFailed(f"HTTP status {response.status}")
                raw = await response.content.read(_MAX_ANSWER_BYTES + 1)
                while not response.content.at_eof() and len(raw) <= _MAX_ANSWER_BYTES:
                    raw += await response.content.read(_MAX_ANSWER_BYTES + 1 - len(raw))
        except (aiohttp.ClientError, OSError, FairleadError) as exc:
            raise EmbeddingFailed(type(exc).__name__) from exc
        if len(raw) > _MAX_ANSWER_BYTES:
            raise EmbeddingFailed("the answer is too large")
        return await run_off_loop(lambda: _read_vectors(raw, len(texts), unit_vector), len(texts) * 8)

    def _authorization(self, settings: EmbeddingSettings) -> dict[str, str]:
        if settings.api_key is None:
            return {}
        key = resolve(settings.api_key, env=self._env, base=Path(os.curdir))
        SECRETS.learn(key)
        return {"Authorization": f"Bearer {key}"}

    def _pause(self, settings: EmbeddingSettings, reason: BaseException) -> None:
        self._retry_at[_prefix(settings)] = self._clock() + PAUSE_SECONDS
        logger.warning("the embedding model is away: the search is by words", extra={"reason": repr(reason)})


def _read_vectors(raw: bytes, count: int, unit_vector: Callable[[Sequence[float]], bytes]) -> list[bytes]:
    if has_slow_numbers(raw):  # no vector of a model has them, and no other thread runs while they are parsed
        raise EmbeddingFailed("the answer has a vector that cannot be used")
    try:
        data = sorted(msgspec.json.decode(raw, type=_EmbeddingsResponse).data, key=lambda each: each.index)
        if len(data) != count or any(len(each.embedding) > _MAX_VALUES for each in data):
            raise EmbeddingFailed("not as many vectors as texts, or too long ones")
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as exc:
        raise EmbeddingFailed("the answer is not one of an embeddings API") from exc
    try:
        return [unit_vector(each.embedding) for each in data]
    except (ValueError, OverflowError) as exc:
        raise EmbeddingRefused("a vector has no direction") from exc


def _prefix(settings: EmbeddingSettings) -> str:
    return _digest(json.dumps((settings.url, settings.model)))[:16] + "/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
