"""Records of a host: the store, the audit log, and artifacts.

An artifact is the part of a result that exceeded the result budget. It belongs to the principal of the call
and is read page by page.
"""

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.argument_types import check_types
from fairlead.config.models import ArtifactSettings as ArtifactLimits
from fairlead.config.models import Config
from fairlead.config.principal import LOCAL
from fairlead.config.store_location import RedisLocation, store_location
from fairlead.errors import StoreError, UnknownArtifact
from fairlead.host.search_memory import SearchMemory
from fairlead.policy.audit import AuditLog
from fairlead.policy.results import (
    MAX_AS_IT_CAME,
    KeptArtifact,
    ResultSource,
    as_it_came,
    prepare_result_steps,
)
from fairlead.store.artifact_contents import ContentPlace, open_contents
from fairlead.store.artifacts import SCHEME, Artifact, ArtifactFiles, RetentionLimits
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import Store

PAGE_CHARACTERS = 20_000
LONGEST_PAGE = 100_000
SECONDS_OF_A_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactPage:
    """A page of an artifact: some characters of a text, or all bytes of anything else."""

    artifact: Artifact
    total: int
    """How many characters, or bytes, there are."""
    start: int = 0
    text: str | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)

    @property
    def next_start(self) -> int | None:
        """Start of the next page; None at the end."""
        end = self.start + len(self.text) if self.text is not None else self.total
        return end if end < self.total else None


class Artifacts:
    """The artifacts of a host: `host.artifacts`. Without a store there are none, and calls work as ever."""

    def __init__(self, store: Store | None, contents: ContentPlace | None, limits: ArtifactLimits) -> None:
        self._files: ArtifactFiles | None = None
        if store is not None and limits.max_bytes > 0:
            seconds = limits.max_age_days * SECONDS_OF_A_DAY
            kept = RetentionLimits(max_bytes=limits.max_bytes, max_age_seconds=seconds)
            self._files = ArtifactFiles(store, contents, kept)

    @property
    def are_kept(self) -> bool:
        """Whether artifacts can be stored."""
        return self._files is not None

    async def deliver(
        self, raw: msgspec.Raw | bytes, source: ResultSource, *, principal: str = LOCAL
    ) -> ToolResult:
        """Prepare a server's result within its budget, and store what did not fit for the principal.

        What cannot be kept, because the disk is full or there is no store, costs only itself.
        """
        if len(raw) <= MAX_AS_IT_CAME and (result := as_it_came(bytes(raw), source)) is not None:
            return result
        return await self.deliver_cleaned(raw, source, principal=principal)

    async def deliver_cleaned(
        self, raw: msgspec.Raw | bytes, source: ResultSource, *, principal: str = LOCAL
    ) -> ToolResult:
        """Like `deliver`, for a result that cannot stay as it came (see `as_it_came`)."""
        prepared = await gate.run(prepare_result_steps(raw, source, keeping=self._files is not None))
        if prepared.kept and not await self._keep(prepared.kept, source, principal):
            return (await gate.run(prepare_result_steps(raw, source, keeping=False))).result
        return prepared.result

    @check_types
    async def keep(
        self, content: bytes, media_type: str, source: ResultSource, *, principal: str = LOCAL
    ) -> str | None:
        """Store an artifact.

        Args:
            content: Its bytes.
            media_type: What they are.
            source: The server and tool that they come from.
            principal: Who may read it.

        Returns:
            Its handle; None if it cannot be stored.
        """
        kept = KeptArtifact(
            content=content, media_type=media_type, sha256=hashlib.sha256(content).hexdigest()
        )
        saved = self._files is not None and await self._keep((kept,), source, principal)
        return kept.handle if saved else None

    @check_types
    async def read(
        self, handle: str, *, principal: str = LOCAL, start: int = 0, length: int = PAGE_CHARACTERS
    ) -> ArtifactPage:
        """Read a part of a text artifact, or all of any other.

        Args:
            handle: The artifact.
            principal: Whose artifact.
            start: The first character.
            length: How many characters.

        Raises:
            UnknownArtifact: The principal has none with that handle, even if another principal does.
        """
        artifact, content = await self.whole(handle, principal=principal)
        if not artifact.is_text:
            return ArtifactPage(artifact=artifact, total=len(content), data=content)
        text = await gate.run(gate.file_steps(content))
        return ArtifactPage(
            artifact=artifact, total=len(text), start=start, text=text[start : start + length]
        )

    @check_types
    async def whole(self, handle: str, *, principal: str = LOCAL) -> tuple[Artifact, bytes]:
        """An artifact and all that is in it, as it was kept. Raises `UnknownArtifact`."""
        if self._files is not None:
            artifact = await self._files.find(principal, handle.removeprefix(SCHEME))
            content = await self._files.content(artifact) if artifact is not None else None
            if artifact is not None and content is not None:
                return artifact, content
        hint = "artifacts are kept for a while only; call the tool again"
        raise UnknownArtifact(f"there is no artifact `{gate.text(handle, 100)}`", hint=hint)

    @check_types
    async def of(self, principal: str = LOCAL) -> Sequence[Artifact]:
        """The artifacts of a principal, newest first."""
        return await self._files.of(principal) if self._files is not None else ()

    async def _keep(self, kept: Sequence[KeptArtifact], source: ResultSource, principal: str) -> bool:
        assert self._files is not None
        try:
            for one in kept:
                artifact = Artifact(
                    sha256=one.sha256,
                    principal=principal,
                    media_type=one.media_type,
                    size=len(one.content),
                    server_id=source.server_id,
                    tool=source.tool,
                    untrusted=not source.trusted,
                    created=time.time(),
                )
                await self._files.keep(artifact, one.content)
        except StoreError:
            logger.warning("an artifact is not kept", extra={"server": source.server_id}, exc_info=True)
            return False
        return True


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRecords:
    """Records of a host. Without a store nothing is remembered, and tools that need pins are not offered."""

    store: Store | None
    audit: AuditLog
    artifacts: Artifacts
    search_memory: SearchMemory
    store_error: StoreError | None = None
    """Why there is no store."""


async def open_records(stack: AsyncExitStack, config: Config, env: Mapping[str, str]) -> HostRecords:
    """Open the store, the audit log and the artifacts that a configuration names, until the stack is left.

    Raises:
        ConfigError: There is a bucket for artifacts, and no shared store.
        StoreError: A shared store cannot be used.
    """
    store: Store | None = None
    failure: StoreError | None = None
    location = store_location(env, config.store)
    try:
        store = await stack.enter_async_context(AsyncStore.open(location))
    except StoreError as exc:
        if isinstance(location, RedisLocation):
            raise  # without the pins and denials of all replicas this one must not serve
        failure = exc
        logger.warning("no store: nothing is remembered", exc_info=True)
    contents = await stack.enter_async_context(open_contents(env, config))
    return HostRecords(
        store=store,
        audit=await AuditLog.open(store, config.audit),
        artifacts=Artifacts(store, contents, config.artifacts),
        search_memory=SearchMemory(store),
        store_error=failure,
    )
