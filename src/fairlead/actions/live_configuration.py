"""The configuration of a program that runs for long: read again when its files change."""

import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from fairlead.config.extension_files import extension_stamp
from fairlead.config.load import LoadedConfig
from fairlead.config.paths import LOCK_NAME, user_file
from fairlead.config.sources import PROJECT_FILES
from fairlead.errors import ConfigError
from fairlead.policy.lockfile import lock_path

WATCH_SECONDS = 1.0

logger = logging.getLogger(__name__)


def log_reload(problem: ConfigError | None) -> None:
    """Log that the files changed, and whether they load."""
    if problem is None:
        logger.info("configuration reloaded")
    else:
        logger.warning(
            "the configuration does not load, so the old one stays", extra={"reason": str(problem)}
        )


class LiveConfiguration:
    """Configuration of a running program. `load` reads the files, `take` applies the result."""

    def __init__(
        self,
        loaded: LoadedConfig,
        load: Callable[[], LoadedConfig],
        take: Callable[[LoadedConfig], Awaitable[None]],
    ) -> None:
        self.loaded = loaded
        """As it is in effect."""
        self.on_reload: Callable[[LoadedConfig], None] = lambda _: None
        """Called with each configuration that is taken over."""
        self.spread: Callable[[], Awaitable[None]] | None = None
        """Has the other processes of the same gateway read theirs again, where there are any."""
        self._load = load
        self._take = take
        self._reloading = anyio.Lock()
        self._seen = self._stamps()

    async def reload(self) -> None:
        """Read the files again, and have the program apply them. Raises where they do not load."""
        await self.reload_here()
        if self.spread is not None:
            await self.spread()

    async def reload_here(self) -> None:
        """Reload in this process alone: others that watch the same files do so themselves."""
        # Edits and the watch of files come at once: what was read last has to be taken over last.
        async with self._reloading:
            self._seen = self._stamps()
            loaded = self._load()
            await self._take(loaded)
            self.loaded = loaded
            self.on_reload(loaded)

    async def watch(self, on_outcome: Callable[[ConfigError | None], None] = log_reload) -> None:
        """Reload whenever a file changes, until cancelled. One that does not load changes nothing."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if self._stamps() == self._seen:
                continue
            try:
                await self.reload_here()
            except ConfigError as exc:
                on_outcome(exc)
            else:
                on_outcome(None)

    def _stamps(self) -> dict[Path, tuple[int, int, int] | str | None]:
        used = [layer.path for layer in self.loaded.layers if layer.path is not None]
        possible = [user_file(os.environ), *(Path.cwd() / name for name in PROJECT_FILES)]
        files = [*used, *possible]
        locks = [path.with_name(LOCK_NAME) for path in files]
        locks += [path for server in self.loaded.servers.values() if (path := lock_path(server)) is not None]
        extensions = [path for server in self.loaded.servers.values() if (path := server.extension_path)]
        stamps = {path: extension_stamp(path) for path in extensions}
        return {path: _stamp(path) for path in (*files, *locks)} | stamps


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
