"""Goose: the extensions in `config.yaml`. Its secrets stay in its own keyring item."""

import re
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ImportedDocument,
    Location,
    config_home,
    paths_from_env,
    user,
)
from fairlead.config.dialects.fields import (
    FLAG,
    SECONDS,
    TOOL_NAMES,
    FieldContext,
    FieldMapping,
    Format,
    read_redundant,
    read_servers,
    report_if_equal,
    section,
    strings,
    table,
    text,
    texts,
    word,
)
from fairlead.config.dialects.references import (
    LITERAL,
    NotExpressible,
    Piece,
    ReferenceSyntax,
    build_syntax,
    in_our_words,
    variable,
)
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import as_list, as_object

_TYPES = {"stdio": "stdio", "streamable_http": "http", "sse": "sse"}
_ELSEWHERE = {
    "builtin": "is part of Goose",
    "platform": "is part of Goose",
    "frontend": "is part of an application on top of Goose",
    "inline_python": "is Python code inside the file",
}
_BUNDLED = "says that it came with Goose; ignored"


def _read_keys(value: object, spot: FieldContext) -> Entry:
    env: dict[str, str] = {}
    for name in strings(value):
        reference = variable(name)
        if reference is None:
            raise NotExpressible("has something that cannot be the name of a variable here")
        spot.inside(name).note(
            "is in Goose's own keyring item; set the environment variable of that name here"
        )
        env[name] = in_our_words([reference])
    return {"env": env}


def _note_keys(value: object, spot: FieldContext) -> Entry:
    _read_keys(value, spot)
    return {}


def _read_available(value: object, spot: FieldContext) -> Entry:
    """Read an allowlist; an empty list is no list there."""
    names = TOOL_NAMES.read(value, spot)
    return {"allow_tools": names} if names else {}


def _format(raw: object) -> Format:
    """Format of one extension: for a URL, variables are values for its headers, not an environment."""
    extension = as_object(raw)
    remote = extension.get("type") != "stdio"
    style = _reference_syntax(extension)
    return Format(
        title="Goose",
        fields=(
            FieldMapping("type", "transport", word(_TYPES)),
            FieldMapping("cmd", "command", text(LITERAL)),
            FieldMapping("args", "args", texts(LITERAL)),
            FieldMapping("uri", "url", text(style)),
            FieldMapping("headers", "headers", table(style)),
            FieldMapping("timeout", "request_timeout_ms", SECONDS),
            FieldMapping("enabled", "enabled", FLAG),
            FieldMapping("description", "description", text(LITERAL)),
        ),
        reading={
            "envs": read_redundant if remote else FieldMapping("envs", "env", table(LITERAL)).read,
            "env_keys": _note_keys if remote else _read_keys,
            "available_tools": _read_available,
            "name": read_redundant,
            "display_name": read_redundant,
            "bundled": report_if_equal(True, _BUNDLED),
        },
    )


def _reference_syntax(extension: dict[str, Any]) -> ReferenceSyntax:
    values, keys = as_object(extension.get("envs")), as_list(extension.get("env_keys"))

    def parse_reference(match: re.Match[str]) -> Piece | None:
        name = match[1] or match[2]
        value = values.get(name)
        return value if isinstance(value, str) else variable(name) if name in keys else None

    return build_syntax(r"\$\{\s*([A-Za-z_]\w*)\s*\}|\$([A-Za-z_]\w*)", parse_reference, lambda _: None)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Extensions that are MCP servers; the others are noted."""
    servers: dict[str, Any] = {}
    notes: list[ConversionNote] = []
    for name, raw in section(data, "extensions").items():
        reason = _ELSEWHERE.get(str(as_object(raw).get("type")))
        if reason is None:
            servers[name] = raw
        else:
            notes.append(
                ConversionNote(server_id=name, field="type", message=f"{reason}, not an MCP server; left out")
            )
    imported = read_servers(servers, _format)
    imported.notes.extend(notes)
    return imported


def locations(place: MachinePaths) -> list[Location]:
    """The one file."""
    default = config_home(place) / ("Block/goose/config" if place.platform == "win32" else "goose")
    folders = [root / "config" for root in paths_from_env(place, "GOOSE_PATH_ROOT")] or [default]
    return user(*(folder / "config.yaml" for folder in folders))


GOOSE = ConfigDialect(name="goose", title="Goose", syntax="yaml", locations=locations, read=read)
