"""Artifacts of the local user: the stored rest of results that were too large."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from fairlead.config.load import LoadedConfig
from fairlead.config.principal import LOCAL
from fairlead.config.store_location import store_location
from fairlead.errors import UnknownArtifact
from fairlead.store.artifacts import SCHEME, Artifact, ArtifactFiles, RetentionLimits


async def list_artifacts(loaded: LoadedConfig, env: Mapping[str, str]) -> list[Artifact]:
    """The artifacts, newest first."""
    async with _open(loaded, env) as files:
        return await files.of(LOCAL) if files is not None else []


async def read_artifact(loaded: LoadedConfig, env: Mapping[str, str], handle: str) -> tuple[Artifact, bytes]:
    """Find an artifact and read its content.

    Args:
        loaded: The configuration.
        env: The environment, which says where the store is.
        handle: Its handle, or the start of one.

    Raises:
        UnknownArtifact: There is none, or the start could be that of several.
    """
    wanted = handle.removeprefix(SCHEME).rstrip("…")
    async with _open(loaded, env) as files:
        listed = await files.of(LOCAL) if files is not None and wanted else []
        meant = [artifact for artifact in listed if artifact.sha256.startswith(wanted)]
        if len(meant) > 1:
            raise UnknownArtifact(f"`{handle}` could be any of {len(meant)}", hint="write more of it")
        content = await files.content(meant[0]) if files is not None and meant else None
    if content is None:
        raise UnknownArtifact(f"there is no artifact `{handle}`", hint="run `fairlead artifacts`")
    return meant[0], content


async def clean_artifacts(loaded: LoadedConfig, env: Mapping[str, str], *, everything: bool) -> int:
    """Remove artifacts over the limits of age and size; with `everything`, all of them.

    Returns:
        How many were removed.
    """
    async with _open(loaded, env, for_reading=False) as files:
        if files is None:
            return 0
        return await (files.clear() if everything else files.tidy())


@asynccontextmanager
async def _open(
    loaded: LoadedConfig, env: Mapping[str, str], *, for_reading: bool = True
) -> AsyncGenerator[ArtifactFiles | None]:
    """Open the artifacts for the length of a block; None where there is no store yet."""
    from fairlead.store.artifact_contents import open_contents
    from fairlead.store.async_store import AsyncStore

    config = loaded.config
    location = store_location(env, config.store)
    if not location.exists():
        yield None
        return
    limits = RetentionLimits(
        max_bytes=config.artifacts.max_bytes, max_age_seconds=config.artifacts.max_age_days * 86_400.0
    )
    async with (
        AsyncStore.open(location, for_reading=for_reading) as store,
        open_contents(env, config) as contents,
    ):
        yield ArtifactFiles(store, contents, limits)
