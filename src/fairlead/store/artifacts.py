"""What did not fit into results: files named by their content, and whose each of them is.

The files are in one folder that only the user can enter; who may read which is in the store. The same content
is one file, however many it belongs to. What is too old goes, and where all together take too much, the
oldest.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import anyio.to_thread
import msgspec

from fairlead.errors import StoreError, VersionConflict
from fairlead.store.protocol import ANY, Store, StoredValue

NAMESPACE = "artifacts"
SCHEME = "artifact://"
LOOK_SECONDS = 60.0
"""How long others may fill the folder before anybody looks whether it is too full."""
ABANDONED_SECONDS = 3600.0
"""A file that has belonged to nobody for so long is not about to be somebody's."""


ResultT = TypeVar("ResultT")
ArgumentTs = TypeVarTuple("ArgumentTs")


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one: whose it is, what it is, and where it came from."""

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
        """How one asks for it."""
        return f"{SCHEME}{self.sha256}"

    @property
    def is_text(self) -> bool:
        """Can it be read, rather than looked at or listened to?"""
        return self.media_type.startswith("text/") or self.media_type.endswith(("/json", "+json", "+xml"))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Artifact).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionLimits:
    """How much is kept, and for how long."""

    max_bytes: int
    max_age_seconds: float


class ArtifactFiles:
    """The artifacts of a store, in a folder. Every method may raise `StoreError`, and nothing else."""

    def __init__(self, store: Store, folder: Path, limits: RetentionLimits) -> None:
        self._store = store
        self._folder = folder
        self._limits = limits
        self._looked_at = -LOOK_SECONDS
        self._bytes = 0

    async def keep(self, artifact: Artifact, content: bytes | memoryview) -> None:
        """Keep an artifact; the same one again is as new."""
        if artifact.size > self._limits.max_bytes:
            message = f"an artifact of {artifact.size:,} bytes is more than may be kept"
            raise StoreError(message, hint="raise `artifacts.max_bytes`")
        await self._in_thread(_write, self._folder, artifact.sha256, content)
        await self._store.put(NAMESPACE, _key(artifact), _encode(artifact), expect=ANY, durable=False)
        self._bytes += artifact.size
        late = time.monotonic() - self._looked_at >= LOOK_SECONDS
        if late or self._bytes > self._limits.max_bytes:
            await self.tidy()

    async def find(self, principal: str, sha256: str) -> Artifact | None:
        """The artifact, if it is this principal's and not too old. Nobody learns what others have."""
        stored = await self._store.get(NAMESPACE, f"{principal}/{sha256}")
        artifact = _read(stored) if stored else None
        # A principal's name may hold a slash, and so may what somebody asks for: the key alone does not tell.
        mine = artifact is not None and artifact.principal == principal and not self._is_old(artifact)
        return artifact if mine else None

    async def content(self, artifact: Artifact) -> bytes | None:
        """What is in it; None where the file is gone or not what it was."""
        content = await self._in_thread(_read_file, self._folder / artifact.sha256)
        return content if content is not None and len(content) == artifact.size else None

    async def of(self, principal: str) -> list[Artifact]:
        """What belongs to a principal, newest first."""
        found = filter(None, map(_read, await self._store.scan(NAMESPACE, f"{principal}/")))
        mine = (one for one in found if one.principal == principal and not self._is_old(one))
        return sorted(mine, key=lambda one: one.created, reverse=True)

    async def tidy(self) -> int:
        """Remove what is too old or too much, and files that belong to nobody. Returns how many went."""
        return await self._remove_but(self._limits.max_bytes)

    async def clear(self) -> int:
        """Remove all of them, whosever they are."""
        return await self._remove_but(-1)

    async def _remove_but(self, max_bytes: int) -> int:
        self._looked_at = time.monotonic()
        stored = await self._store.scan(NAMESPACE)
        staying, going = self._partition_by_size(stored, max_bytes)
        removed = [entry.key for entry in going if await self._forget(entry)]
        gone = {key.rpartition("/")[2] for key in removed} - staying.keys()
        patience = ABANDONED_SECONDS if max_bytes >= 0 else 0.0
        await self._in_thread(_sweep, self._folder, gone, staying.keys(), patience)
        self._bytes = sum(staying.values())
        return len(removed)

    def _partition_by_size(
        self, stored: Sequence[StoredValue], max_bytes: int
    ) -> tuple[dict[str, int], list[StoredValue]]:
        """The sizes of the files that stay, and the entries that go."""
        known = [(_read(entry), entry) for entry in stored]
        known.sort(key=lambda pair: pair[0].created if pair[0] else 0.0, reverse=True)
        staying: dict[str, int] = {}
        going: list[StoredValue] = []
        room = max_bytes
        for artifact, entry in known:  # the newest first: the oldest are what there is no room for
            if artifact is None or self._is_old(artifact):
                going.append(entry)
                continue
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
            return False  # somebody has just kept it anew

    def _is_old(self, artifact: Artifact) -> bool:
        return time.time() - artifact.created > self._limits.max_age_seconds

    async def _in_thread(
        self, function: Callable[[*ArgumentTs], ResultT], *arguments: *ArgumentTs
    ) -> ResultT:
        try:
            return await anyio.to_thread.run_sync(function, *arguments)
        except OSError as exc:
            hint = "check that the disk has space and the folder can be written"
            raise StoreError(f"artifacts in `{self._folder}`: {exc.strerror}", hint=hint) from exc


def _key(artifact: Artifact) -> str:
    return f"{artifact.principal}/{artifact.sha256}"


def _read(stored: StoredValue) -> Artifact | None:
    try:
        return _decode(stored.value)
    except msgspec.DecodeError:
        return None  # of another version of this program


def _write(folder: Path, name: str, content: bytes | memoryview) -> None:
    """Write a file in one step: whoever looks sees all of it, or nothing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(folder / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _sweep(folder: Path, gone: Set[str], staying: Set[str], patience: float) -> None:
    """Remove the files of what is gone, and those that nobody has known for a while."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                abandoned = time.time() - file.stat(follow_symlinks=False).st_mtime >= patience
                if file.name in gone or (file.name not in staying and abandoned):
                    os.unlink(file.path)
