"""Fairlead: one MCP host for every agent.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.catalog.results import ToolResult
    from fairlead.config.load import LoadedConfig, LoadedServer, load_config
    from fairlead.config.models import Config
    from fairlead.config.sources import discover_config_path
    from fairlead.config.validate import parse_config
    from fairlead.errors import ConfigError, FairleadError
    from fairlead.host.host import Host
    from fairlead.host.operator import Callbacks, Operator
    from fairlead.servers.framework.server import McpServer
    from fairlead.servers.framework.tools import Reply, ToolContext, ToolDefinition, ToolModel

__all__ = [
    "Callbacks",
    "Config",
    "ConfigError",
    "FairleadError",
    "Host",
    "LoadedConfig",
    "LoadedServer",
    "McpServer",
    "Operator",
    "Reply",
    "ToolContext",
    "ToolDefinition",
    "ToolModel",
    "ToolResult",
    "discover_config_path",
    "load_config",
    "parse_config",
]

_HOMES = {
    "Callbacks": "fairlead.host.operator",
    "Config": "fairlead.config.models",
    "ConfigError": "fairlead.errors",
    "FairleadError": "fairlead.errors",
    "Host": "fairlead.host.host",
    "LoadedConfig": "fairlead.config.load",
    "LoadedServer": "fairlead.config.load",
    "McpServer": "fairlead.servers.framework.server",
    "Operator": "fairlead.host.operator",
    "Reply": "fairlead.servers.framework.tools",
    "ToolContext": "fairlead.servers.framework.tools",
    "ToolDefinition": "fairlead.servers.framework.tools",
    "ToolModel": "fairlead.servers.framework.tools",
    "ToolResult": "fairlead.catalog.results",
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
