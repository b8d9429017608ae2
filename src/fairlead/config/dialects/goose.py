"""Goose: the extensions in `config.yaml`. Its secrets are in a keyring item of its own, and stay there."""

import re
from typing import Any

from fairlead.config.dialects.dialect import Dialect, Entry, Imported, Location, Note
from fairlead.config.dialects.entries import Field, Format, noted_if, read_servers, section, silently
from fairlead.config.dialects.kinds import FLAG, SECONDS, TOOL_NAMES, Spot, strings, table, text, texts, word
from fairlead.config.dialects.places import config_home, named, user
from fairlead.config.dialects.references import (
    LITERAL,
    Piece,
    Style,
    Unfit,
    expanding,
    in_our_words,
    variable,
)
from fairlead.config.paths import Place
from fairlead.config.shapes import as_list, as_object

_TYPES = {"stdio": "stdio", "streamable_http": "http", "sse": "sse"}
_ELSEWHERE = {
    "builtin": "is part of Goose",
    "platform": "is part of Goose",
    "frontend": "is part of an application on top of Goose",
    "inline_python": "is Python code inside the file",
}
_BUNDLED = "says that it came with Goose; ignored"


def _read_keys(value: object, spot: Spot) -> Entry:
    env: dict[str, str] = {}
    for name in strings(value):
        reference = variable(name)
        if reference is None:
            raise Unfit("has something that cannot be the name of a variable here")
        spot.inside(name).note(
            "is in Goose's own keyring item; set the environment variable of that name here"
        )
        env[name] = in_our_words([reference])
    return {"env": env}


def _note_keys(value: object, spot: Spot) -> Entry:
    _read_keys(value, spot)
    return {}


def _read_available(value: object, spot: Spot) -> Entry:
    """An empty list is no list there."""
    names = TOOL_NAMES.read(value, spot)
    return {"allow_tools": names} if names else {}


def _format(raw: object) -> Format:
    """The format of one extension: at a URL, variables are no environment, but values for its headers."""
    extension = as_object(raw)
    remote = extension.get("type") != "stdio"
    style = _substituting(extension)
    return Format(
        title="Goose",
        fields=(
            Field("type", "transport", word(_TYPES)),
            Field("cmd", "command", text(LITERAL)),
            Field("args", "args", texts(LITERAL)),
            Field("uri", "url", text(style)),
            Field("headers", "headers", table(style)),
            Field("timeout", "request_timeout_ms", SECONDS),
            Field("enabled", "enabled", FLAG),
            Field("description", "description", text(LITERAL)),
        ),
        reading={
            "envs": silently if remote else Field("envs", "env", table(LITERAL)).read,
            "env_keys": _note_keys if remote else _read_keys,
            "available_tools": _read_available,
            "name": silently,
            "display_name": silently,
            "bundled": noted_if(True, _BUNDLED),
        },
    )


def _substituting(extension: dict[str, Any]) -> Style:
    values, keys = as_object(extension.get("envs")), as_list(extension.get("env_keys"))

    def meaning(match: re.Match[str]) -> Piece | None:
        name = match[1] or match[2]
        value = values.get(name)
        return value if isinstance(value, str) else variable(name) if name in keys else None

    return expanding(r"\$\{\s*([A-Za-z_]\w*)\s*\}|\$([A-Za-z_]\w*)", meaning, lambda _: None)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The extensions that are MCP servers; the others are noted."""
    servers: dict[str, Any] = {}
    notes: list[Note] = []
    for name, raw in section(data, "extensions").items():
        reason = _ELSEWHERE.get(str(as_object(raw).get("type")))
        if reason is None:
            servers[name] = raw
        else:
            notes.append(Note(server_id=name, field="type", message=f"{reason}, not an MCP server; left out"))
    imported = read_servers(servers, _format)
    imported.notes.extend(notes)
    return imported


def locations(place: Place) -> list[Location]:
    """The one file."""
    default = config_home(place) / ("Block/goose/config" if place.platform == "win32" else "goose")
    folders = [root / "config" for root in named(place, "GOOSE_PATH_ROOT")] or [default]
    return user(*(folder / "config.yaml" for folder in folders))


GOOSE = Dialect(name="goose", title="Goose", syntax="yaml", locations=locations, read=read)
