"""The versions of what ours is compared with, as they are installed."""

import importlib.metadata
import json
import os
from pathlib import Path

from benchmarks.measuring import ROOT, name_peer

TOOLS = Path(os.environ.get("FAIRLEAD_BENCH_TOOLS", ROOT / ".bench-tools"))
INSTALL = "`benchmarks/install-gateways` installs it"
_PACKAGES = {
    "fastmcp": "fastmcp",
    "mcp-proxy": "mcp-proxy",
    "contextforge": "mcp-contextforge-gateway",
    "litellm": "litellm",
    "mcp-hub": "mcp-hub",
    "typescript": "@modelcontextprotocol/client",
}
"""The package in each folder of `TOOLS`."""


def is_installed(folder: str) -> bool:
    """Whether a folder of `TOOLS` is complete."""
    return (TOOLS / folder / ".installed").exists()


def name_installed(folder: str) -> None:
    """Note the version of the package in a folder of `TOOLS`, by its own metadata."""
    package = _PACKAGES[folder]
    described = TOOLS / folder / "node_modules" / package / "package.json"
    if described.exists():
        name_peer(package, json.loads(described.read_text(encoding="utf-8"))["version"])
        return
    paths = [str(path) for path in (TOOLS / folder / "lib").glob("python*/site-packages")]
    for found in importlib.metadata.Distribution.discover(name=package, path=paths):
        name_peer(package, found.version)


def name_own(package: str) -> None:
    """Note the version of a package of this environment."""
    name_peer(package, importlib.metadata.version(package))
