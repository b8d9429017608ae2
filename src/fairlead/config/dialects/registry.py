"""All dialects: by name, by the shape of a document, and by the files on this machine."""

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairlead.config.dialects.claude import CLAUDE
from fairlead.config.dialects.claude_desktop import CLAUDE_DESKTOP
from fairlead.config.dialects.cline import CLINE
from fairlead.config.dialects.codelia import CODELIA
from fairlead.config.dialects.codex import CODEX
from fairlead.config.dialects.cursor import CURSOR
from fairlead.config.dialects.dialect import ConfigDialect, Location
from fairlead.config.dialects.gemini import GEMINI
from fairlead.config.dialects.goose import GOOSE
from fairlead.config.dialects.opencode import OPENCODE
from fairlead.config.dialects.toolloop import TOOLLOOP
from fairlead.config.dialects.vscode import VSCODE
from fairlead.config.dialects.windsurf import WINDSURF
from fairlead.config.dialects.zed import ZED
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets.references import strings
from fairlead.config.untyped import as_object, is_object, value_at
from fairlead.errors import ConfigError

ALL: tuple[ConfigDialect, ...] = (
    CLAUDE,
    CLAUDE_DESKTOP,
    CLINE,
    CODELIA,
    CODEX,
    CURSOR,
    GEMINI,
    GOOSE,
    OPENCODE,
    TOOLLOOP,
    VSCODE,
    WINDSURF,
    ZED,
)

_BY_NAME = {dialect.name: dialect for dialect in ALL}


def by_name(name: str) -> ConfigDialect:
    """Dialect of that name. Raises `ConfigError` with the likeliest one if there is none."""
    if dialect := _BY_NAME.get(name):
        return dialect
    close = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(sorted(_BY_NAME))}"
    raise ConfigError(f"unknown format `{name}`", hint=hint)


def is_agent(name: str) -> bool:
    """Whether a dialect has this name."""
    return name in _BY_NAME


def find(place: MachinePaths) -> list[tuple[ConfigDialect, Location]]:
    """Every existing file of another format."""
    return [
        (dialect, location)
        for dialect in ALL
        for location in dialect.locations(place)
        if _is_there(location.path)
    ]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder we may not enter holds nothing for us
        return False


def detect(data: dict[str, Any]) -> ConfigDialect | None:
    """Dialect a document is most likely in, by its shape; None where none fits."""
    return next((dialect for dialect, fits in _SHAPES if fits(data)), None)


def _entries(data: dict[str, Any], *path: str) -> Iterator[dict[str, Any]]:
    """Objects in the section at that path, if it is one."""
    yield from filter(is_object, as_object(value_at(data, path)).values())


def _has(*keys: str) -> Callable[[dict[str, Any]], bool]:
    """Whether the document has `mcpServers`, with an entry that has one of these keys."""
    return lambda data: any(key in entry for entry in _entries(data, "mcpServers") for key in keys)


def _speaks(words: str) -> Callable[[dict[str, Any]], bool]:
    return lambda data: any(
        words in text for entry in _entries(data, "mcpServers") for _, text in strings(entry)
    )


def _is_object(data: dict[str, Any], key: str) -> bool:
    return is_object(data.get(key))


def _types(data: dict[str, Any], *path: str) -> list[object]:
    return [entry.get("type") for entry in _entries(data, *path)]


def _like_toolloop(data: dict[str, Any]) -> bool:
    nested = any(isinstance(entry.get("transport"), dict) for entry in _entries(data, "servers"))
    return nested or any("serverId" in entry for entry in _entries(data, "bundles"))


def _like_vscode(data: dict[str, Any]) -> bool:
    flat = any({"type", "command", "url"} & set(entry) for entry in _entries(data, "servers"))
    return flat or (_is_object(data, "servers") and isinstance(data.get("inputs"), list))


def _like_opencode(data: dict[str, Any]) -> bool:
    types = [*_types(data, "mcp"), *_types(data, "mcp", "servers")]
    return "local" in types or "remote" in types or "opencode.ai" in str(data.get("$schema"))


def _like_cline(data: dict[str, Any]) -> bool:
    peculiar = _has("autoApprove", "transportType", "transport", "oauthClient")
    return peculiar(data) or "streamableHttp" in _types(data, "mcpServers")


def _like_gemini(data: dict[str, Any]) -> bool:
    peculiar = _has("httpUrl", "includeTools", "excludeTools", "trust", "tcp", "authProviderType")
    return peculiar(data) or bool({"allowed", "excluded"} & set(as_object(data.get("mcp"))))


# The first that fits; the most general come last.
_SHAPES: tuple[tuple[ConfigDialect, Callable[[dict[str, Any]], bool]], ...] = (
    (CODEX, lambda data: _is_object(data, "mcp_servers")),
    (ZED, lambda data: _is_object(data, "context_servers")),
    (TOOLLOOP, _like_toolloop),
    (VSCODE, _like_vscode),
    (GOOSE, lambda data: any("type" in entry for entry in _entries(data, "extensions"))),
    (OPENCODE, _like_opencode),
    (CODELIA, lambda data: any(True for _ in _entries(data, "mcp", "servers"))),
    (CLINE, _like_cline),
    (WINDSURF, _has("serverUrl", "disabledTools", "alwaysAllow")),
    (GEMINI, _like_gemini),
    (CLAUDE, lambda data: _is_object(data, "projects") or _has("headersHelper", "alwaysLoad", "oauth")(data)),
    (CURSOR, lambda data: _has("envFile", "auth")(data) or _speaks("${env:")(data)),
    (CLAUDE_DESKTOP, lambda data: _is_object(data, "mcpServers") and "globalShortcut" in data),
    (CLAUDE, lambda data: _is_object(data, "mcpServers")),
)
