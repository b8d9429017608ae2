"""Artifacts: parts of results over their budget, named by a digest of their content.

The contents are files of one folder; the store records which principal may read which. A shared store has the
content of small ones, too, and large ones are in a folder that all replicas share, or in a bucket. Equal
content is kept once, however many principals have it. Old artifacts are removed, and where all together take
too much, the oldest of the principals that have the most.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import msgspec

from fairlead.errors import StoreError, VersionConflict
from fairlead.store.artifact_contents import ContentPlace
from fairlead.store.protocol import ANY, Store, StoredValue

NAMESPACE = "artifacts"
CONTENT = "artifact content"
"""Namespace of the contents that a shared store has, by their digests."""
SCHEME = "artifact://"
MAX_BYTES_IN_STORE = 4 * 1024 * 1024
"""The largest content that a shared store has: it is in memory there."""
LOOK_SECONDS = 60.0
"""Seconds between checks of the folder's size."""
TIDY_SECONDS = 2.0
"""How long a result waits for old artifacts to be removed: a bucket may not answer. The rest goes later."""
ABANDONED_SECONDS = 3600.0
"""A file without a record for this long is not about to get one."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """Record of one artifact: its principal, type, size and origin."""

    sha256: str
    principal: str
    media_type: str
    size: int
    server_id: str
    tool: str
    untrusted: bool
    created: float

    @property
    def handle(self) -> str:
        """The `artifact://` handle to read it by."""
        return f"{SCHEME}{self.sha256}"

    @property
    def is_text(self) -> bool:
        """Whether its content is text."""
        return self.media_type.startswith("text/") or self.media_type.endswith(("/json", "+json", "+xml"))


logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Artifact).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionLimits:
    """Most bytes of all artifacts, and the longest time one is stored."""

    max_bytes: int
    max_age_seconds: float


class ArtifactFiles:
    """Artifacts of a store. Every method may raise `StoreError`, and nothing else.

    Args:
        store: Has the records, and small contents if it is shared.
        contents: Has the contents; None where the replicas of a shared store have no place for large ones.
        limits: How much is stored, and for how long.
    """

    def __init__(self, store: Store, contents: ContentPlace | None, limits: RetentionLimits) -> None:
        self._store = store
        self._contents = contents
        self._limits = limits
        self._looked_at = -LOOK_SECONDS
        self._bytes = 0

    async def keep(self, artifact: Artifact, content: bytes | memoryview) -> None:
        """Store an artifact; storing the same one again renews it."""
        if artifact.size > self._limits.max_bytes:
            message = f"an artifact of {artifact.size:,} bytes is over the limit"
            raise StoreError(message, hint="raise `artifacts.max_bytes`")
        await self._write(artifact, content)
        await self._store.put(NAMESPACE, _key(artifact), _encode(artifact), expect=ANY, durable=False)
        self._bytes += artifact.size
        late = time.monotonic() - self._looked_at >= LOOK_SECONDS
        if late or self._bytes > self._limits.max_bytes:
            await self._tidy_meanwhile()

    async def find(self, principal: str, sha256: str) -> Artifact | None:
        """Artifact of this principal, unless expired. Other principals' artifacts are not revealed."""
        stored = await self._store.get(NAMESPACE, f"{principal}/{sha256}")
        artifact = _read(stored) if stored else None
        # Names of principals and handles may hold a slash: the key alone is ambiguous.
        mine = artifact is not None and artifact.principal == principal and not self._is_old(artifact)
        return artifact if mine else None

    async def content(self, artifact: Artifact) -> bytes | None:
        """Content of an artifact; None where the file is missing or changed."""
        content: bytes | None = None
        if self._is_in_store(artifact):
            stored = await self._store.get(CONTENT, artifact.sha256)
            content = stored.value if stored is not None else None
        elif self._contents is not None:
            content = await self._contents.read(artifact.sha256, artifact.size)
        return content if content is not None and len(content) == artifact.size else None

    async def of(self, principal: str) -> list[Artifact]:
        """Artifacts of a principal, newest first."""
        found = filter(None, map(_read, await self._store.scan(NAMESPACE, f"{principal}/")))
        mine = (one for one in found if one.principal == principal and not self._is_old(one))
        return sorted(mine, key=lambda one: one.created, reverse=True)

    async def tidy(self) -> int:
        """Remove expired artifacts, those over the limit, and files without a record. Returns the count."""
        return await self._remove_but(self._limits.max_bytes)

    async def _tidy_meanwhile(self) -> None:
        """Tidy up while a result waits: not for long, and without failing what was just stored."""
        try:
            with anyio.move_on_after(TIDY_SECONDS):
                await self.tidy()
        except StoreError as exc:
            logger.warning("old artifacts are not removed", extra={"reason": str(exc)})

    async def clear(self) -> int:
        """Remove all artifacts of all principals."""
        return await self._remove_but(-1)

    async def _remove_but(self, max_bytes: int) -> int:
        self._looked_at = time.monotonic()
        stored = await self._store.scan(NAMESPACE)
        staying, going = self._partition_by_size(stored, max_bytes)
        removed = [entry.key for entry in going if await self._forget(entry)]
        gone = {key.rpartition("/")[2] for key in removed} - staying.keys()
        if self._store.is_shared:
            for name in gone:
                await self._store.delete(CONTENT, name, expect=ANY)
        if self._contents is not None:
            patience = ABANDONED_SECONDS if max_bytes >= 0 else 0.0
            in_store = {one.sha256 for one in filter(None, map(_read, going)) if self._is_in_store(one)}
            await self._contents.sweep(gone - in_store, staying.keys(), patience)
        self._bytes = sum(staying.values())
        return len(removed)

    def _partition_by_size(
        self, stored: Sequence[StoredValue], max_bytes: int
    ) -> tuple[dict[str, int], list[StoredValue]]:
        """Sizes of the files to keep, and the entries to remove."""
        known: list[tuple[Artifact, StoredValue]] = []
        going: list[StoredValue] = []
        for entry in stored:
            artifact = _read(entry)
            if artifact is None or self._is_old(artifact):
                going.append(entry)
            else:
                known.append((artifact, entry))
        staying: dict[str, int] = {}
        room = max_bytes
        for artifact, entry in _by_share(known):
            room -= 0 if artifact.sha256 in staying else artifact.size
            if room < 0:
                going.append(entry)
            else:
                staying[artifact.sha256] = artifact.size
        return staying, going

    async def _forget(self, entry: StoredValue) -> bool:
        try:
            return await self._store.delete(NAMESPACE, entry.key, expect=entry.version)
        except VersionConflict:
            return False  # it was just stored again

    def _is_in_store(self, artifact: Artifact) -> bool:
        return self._store.is_shared and artifact.size <= MAX_BYTES_IN_STORE

    async def _write(self, artifact: Artifact, content: bytes | memoryview) -> None:
        if self._is_in_store(artifact):
            ends = self._limits.max_age_seconds
            await self._store.put(
                CONTENT, artifact.sha256, bytes(content), expect=ANY, durable=False, expires_in=ends
            )
        elif self._contents is not None:
            await self._contents.write(artifact.sha256, content)
        else:
            raise StoreError(
                f"an artifact of {artifact.size:,} bytes is too large for a shared store",
                hint="set `artifacts.s3` to a bucket, or `artifacts.folder` to a shared folder",
            )

    def _is_old(self, artifact: Artifact) -> bool:
        return time.time() - artifact.created > self._limits.max_age_seconds


def _by_share(known: list[tuple[Artifact, StoredValue]]) -> list[tuple[Artifact, StoredValue]]:
    """Artifacts in the order in which there is room for them.

    Each comes after what its principal has that is newer: a flood of one principal's removes its own, and not
    those of others.
    """
    known.sort(key=lambda pair: pair[0].created, reverse=True)
    used: Counter[str] = Counter()
    ranked: list[tuple[int, int]] = []
    for number, (artifact, _) in enumerate(known):
        used[artifact.principal] += artifact.size
        ranked.append((used[artifact.principal], number))
    return [known[number] for _, number in sorted(ranked)]


def _key(artifact: Artifact) -> str:
    return f"{artifact.principal}/{artifact.sha256}"


def _read(stored: StoredValue) -> Artifact | None:
    try:
        return _decode(stored.value)
    except msgspec.DecodeError:
        return None  # of another version of Fairlead
