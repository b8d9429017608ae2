"""The configuration of a program that runs for long: read again when its files change."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import anyio

from fairlead.config.load import LoadedConfig
from fairlead.config.paths import user_file
from fairlead.config.sources import PROJECT_FILES
from fairlead.errors import ConfigError
from fairlead.gateway.gateway import Gateway

WATCH_SECONDS = 1.0

logger = logging.getLogger(__name__)


class LiveConfiguration:
    """What a gateway runs with. `load` reads it anew."""

    def __init__(self, gateway: Gateway, load: Callable[[], LoadedConfig]) -> None:
        self._gateway = gateway
        self._load = load

    @property
    def loaded(self) -> LoadedConfig:
        """As it is in effect."""
        return self._gateway.loaded

    async def reload(self) -> None:
        """Read the files again, and have the gateway take them over."""
        await self._gateway.reload(self._load())

    async def watch(self) -> None:
        """Reload whenever a file changes, until cancelled. One that does not load changes nothing."""
        seen = self._stamps()
        while True:
            await anyio.sleep(WATCH_SECONDS)
            stamps = self._stamps()
            if stamps == seen:
                continue
            seen = stamps
            try:
                await self.reload()
            except ConfigError as exc:
                logger.warning(
                    "the configuration does not load, so the old one stays", extra={"reason": str(exc)}
                )
            else:
                logger.info("configuration reloaded")

    def _stamps(self) -> dict[Path, tuple[int, int, int] | None]:
        used = [layer.path for layer in self.loaded.layers if layer.path is not None]
        possible = [user_file(os.environ), *(Path.cwd() / name for name in PROJECT_FILES)]
        return {path: _stamp(path) for path in (*used, *possible)}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
