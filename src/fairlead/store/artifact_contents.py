"""Contents of artifacts: files in a folder, or objects of an S3-compatible bucket, encrypted.

A bucket is for replicas that share no folder. Its objects are encrypted with the cluster key and named by a
keyed digest: a reader of the bucket learns sizes and times, and cannot tell whether it has a known file.
"""

import contextlib
import hashlib
import hmac
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, TypeVarTuple

import anyio.to_thread

from fairlead.config.models import Config
from fairlead.config.store_location import RedisLocation, artifact_bucket, artifact_folder, store_location
from fairlead.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from fairlead.net.s3 import BucketClient
    from fairlead.store.cluster_key import ClusterKeys

ResultT = TypeVar("ResultT")
ArgumentTs = TypeVarTuple("ArgumentTs")

LIST_SECONDS: Final = 3600.0
"""Seconds between looks for objects of a bucket that no record is left of: a listing costs money."""
_OVERHEAD_BYTES: Final = 1024
_PURPOSE: Final = "artifact names"


class ContentPlace(Protocol):
    """Storage of the contents of artifacts, by the SHA-256 of each. Methods raise `StoreError` alone."""

    async def write(self, sha256: str, content: bytes | memoryview) -> None:
        """Write a content. Writing it again renews it."""
        ...

    async def read(self, sha256: str, size: int) -> bytes | None:
        """Read a content of that size; None where it is missing."""
        ...

    async def sweep(self, gone: Set[str], staying: Set[str], patience: float) -> None:
        """Delete the contents of removed artifacts, and those without a record for so many seconds."""
        ...


class ArtifactFolder:
    """Files in one folder that only the user can enter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, sha256: str, content: bytes | memoryview) -> None:
        """Write a file atomically."""
        await self._in_thread(_write, self._folder, sha256, content)

    async def read(self, sha256: str, size: int) -> bytes | None:
        """Read a file; None where it is missing."""
        return await self._in_thread(_read_file, self._folder / sha256)

    async def sweep(self, gone: Set[str], staying: Set[str], patience: float) -> None:
        """Delete the files of removed artifacts, and those without a record for a while."""
        await self._in_thread(_sweep, self._folder, gone, staying, patience)

    async def _in_thread(
        self, function: Callable[[*ArgumentTs], ResultT], *arguments: *ArgumentTs
    ) -> ResultT:
        try:
            return await anyio.to_thread.run_sync(function, *arguments)
        except OSError as exc:
            hint = "check that the disk has space and the folder can be written"
            raise StoreError(f"artifacts in `{self._folder}`: {exc.strerror}", hint=hint) from exc


class ArtifactBucket:
    """Encrypted objects of a bucket.

    Args:
        client: The bucket.
        keys: The cluster keys.
        prefix: What the names of the objects begin with.
    """

    def __init__(self, client: "BucketClient", keys: "ClusterKeys", prefix: str) -> None:
        self.name = f"bucket {client.address}"
        self._client = client
        self._keys = keys
        self._prefix = prefix
        self._name_keys = keys.derive(_PURPOSE)
        # One bucket may serve several clusters: what is another's is never swept.
        marks = "|".join(_mark(key) for key in self._name_keys)
        self._own_name = re.compile(rf"{re.escape(prefix)}(?:{marks})-[0-9a-f]{{64}}")
        self._listed_at = float("-inf")

    async def write(self, sha256: str, content: bytes | memoryview) -> None:
        """Encrypt and write an object."""
        name = self._name(self._name_keys[0], sha256)
        sealed = await anyio.to_thread.run_sync(self._keys.seal, bytes(content), name.encode())
        await self._client.put(name, sealed)

    async def read(self, sha256: str, size: int) -> bytes | None:
        """Read and decrypt an object; None where it is missing. Raises `StoreError` if it was changed."""
        for key in self._name_keys:  # an older key's objects have names of that key
            name = self._name(key, sha256)
            sealed = await self._client.get(name, size + _OVERHEAD_BYTES)
            if sealed is not None:
                return await anyio.to_thread.run_sync(self._open, sealed, name)
        return None

    def _open(self, sealed: bytes, name: str) -> bytes:
        try:
            return self._keys.open(sealed, name.encode())
        except StoreError as exc:
            raise StoreError(
                f"an artifact in {self.name} was changed, or encrypted with another cluster key",
                hint="find out who else writes to this bucket; then call the tool again",
            ) from exc

    async def sweep(self, gone: Set[str], staying: Set[str], patience: float) -> None:
        """Delete the objects of removed artifacts, and now and then those without a record."""
        for sha256 in gone:
            for key in self._name_keys:
                await self._client.delete(self._name(key, sha256))
        if patience and time.monotonic() - self._listed_at < LIST_SECONDS:
            return
        self._listed_at = time.monotonic()
        known = {self._name(key, sha256) for sha256 in staying for key in self._name_keys}
        for found in await self._client.list(self._prefix):
            abandoned = time.time() - found.modified >= patience
            if abandoned and found.name not in known and self._own_name.fullmatch(found.name):
                await self._client.delete(found.name)

    async def check(self) -> None:
        """Write, read and delete a small object, to see that all of it works. Raises `StoreError`."""
        sha256, content = os.urandom(32).hex(), os.urandom(100)
        await self.write(sha256, content)
        found = await self.read(sha256, len(content))
        await self._client.delete(self._name(self._name_keys[0], sha256))
        await self._client.list(f"{self._prefix}{_mark(self._name_keys[0])}-{sha256}")
        if found != content:
            raise StoreError(f"{self.name} does not give back what was written")

    def _name(self, key: bytes, sha256: str) -> str:
        return f"{self._prefix}{_mark(key)}-{hmac.digest(key, sha256.encode(), 'sha256').hex()}"


def _mark(key: bytes) -> str:
    """Prefix of the names of one cluster key."""
    return hmac.digest(key, b"mark", hashlib.sha256).hex()[:8]


@asynccontextmanager
async def open_contents(env: Mapping[str, str], config: Config) -> AsyncGenerator[ContentPlace | None]:
    """Open where the configuration has contents, for the length of the block.

    Yields:
        The place; None where a Redis store has small ones, and there is no place for large ones.

    Raises:
        ConfigError: A bucket is configured without a Redis store, whose cluster key encrypts it.
        StoreError: There is no cluster key, or a reference has no value.
    """
    bucket = artifact_bucket(env, config)
    if bucket is None:
        folder = artifact_folder(env, config)
        yield ArtifactFolder(folder) if folder is not None else None
        return
    location = store_location(env, config.store)
    if not isinstance(location, RedisLocation):
        raise ConfigError(
            "`artifacts.s3` is for replicas that share a store: it is encrypted with their cluster key",
            hint="set `store` to a `redis://…` address, or use `artifacts.folder`",
        )
    from fairlead.net.s3 import BucketAddress, S3Credentials, open_bucket
    from fairlead.store.cluster_key import ClusterKeys

    keys = ClusterKeys(await anyio.to_thread.run_sync(location.cluster_keys))
    place = await anyio.to_thread.run_sync(bucket.resolve)
    address = BucketAddress(endpoint=place.endpoint, bucket=place.bucket, region=place.region)

    def read_credentials() -> S3Credentials:
        found = bucket.resolve()
        return S3Credentials(
            access_key=found.access_key, secret_key=found.secret_key, session_token=found.session_token
        )

    async with open_bucket(address, read_credentials, env) as client:
        yield ArtifactBucket(client, keys, place.prefix)


def _write(folder: Path, name: str, content: bytes | memoryview) -> None:
    """Write a file atomically."""
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
    """Delete the files of removed artifacts, and those without a record for a while."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                abandoned = time.time() - file.stat(follow_symlinks=False).st_mtime >= patience
                if file.name in gone or (file.name not in staying and abandoned):
                    os.unlink(file.path)
