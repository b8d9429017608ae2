"""Fairlead: one MCP host for every agent.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.config.load import LoadedConfig, LoadedServer, load_config
    from fairlead.config.models import Config
    from fairlead.config.sources import discover_config_path
    from fairlead.config.validate import parse_config
    from fairlead.errors import ConfigError, FairleadError
    from fairlead.host.host import Host
    from fairlead.host.results import ToolResult

__all__ = [
    "Config",
    "ConfigError",
    "FairleadError",
    "Host",
    "LoadedConfig",
    "LoadedServer",
    "ToolResult",
    "discover_config_path",
    "load_config",
    "parse_config",
]

_HOMES = {
    "Config": "fairlead.config.models",
    "ConfigError": "fairlead.errors",
    "FairleadError": "fairlead.errors",
    "Host": "fairlead.host.host",
    "LoadedConfig": "fairlead.config.load",
    "LoadedServer": "fairlead.config.load",
    "ToolResult": "fairlead.host.results",
    "discover_config_path": "fairlead.config.sources",
    "load_config": "fairlead.config.load",
    "parse_config": "fairlead.config.validate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
