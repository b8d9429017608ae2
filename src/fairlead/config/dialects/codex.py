"""Codex: `config.toml`, which names environment variables in fields of their own and has no references."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ExportedDocument,
    ImportedDocument,
    Location,
    distinct,
    path_from_env,
    upward,
    user,
)
from fairlead.config.dialects.fields import (
    COMMAND_LINE,
    FLAG,
    MILLISECONDS,
    PORT,
    SECONDS,
    TOOL_NAMES,
    FieldContext,
    FieldMapping,
    Format,
    is_pattern,
    items,
    mapping,
    read_allowlist,
    read_servers,
    report_if_equal,
    report_ignored,
    scopes,
    section,
    string,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import (
    LITERAL,
    NotExpressible,
    in_our_words,
    plain_variable_name,
    variable,
)
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import is_object

_BEARER = "Bearer "
_MODE = word({"approve": "allow", "prompt": "ask", "auto": "auto"})


def _variable(name: object, before: str = "") -> str:
    reference = variable(string(name))
    if reference is None:
        raise NotExpressible("has something that cannot be the name of a variable here")
    return in_our_words([before, reference])


def _read_env_vars(value: object, spot: FieldContext) -> Entry:
    env: dict[str, str] = {}
    for item in items(value):
        described = mapping(item) if is_object(item) else {"name": item}
        if described.get("source") not in (None, "local"):
            spot.note(f"takes `{described.get('name')}` from somewhere else; taken from the environment here")
        env[string(described.get("name"))] = _variable(described.get("name"))
    return {"env": env}


def _read_env_headers(value: object, _: FieldContext) -> Entry:
    return {"headers": {header: _variable(name) for header, name in mapping(value).items()}}


def _read_bearer(value: object, _: FieldContext) -> Entry:
    return {"headers": {"Authorization": _variable(value, _BEARER)}}


def _read_mode(value: object, spot: FieldContext) -> str:
    if value == "writes":
        spot.note("asks only about writes, which is not supported here; all calls need approval")
        return "ask"
    return _MODE.read(value, spot)


def _read_tools(value: object, spot: FieldContext) -> Entry:
    modes: dict[str, str] = {}
    for name, settings in mapping(value).items():
        for key, mode in mapping(settings).items():
            if key != "approval_mode":
                spot.inside(f"{name}.{key}").note("is not known here; ignored")
            elif is_pattern(name):
                spot.inside(name).note("would be a pattern here; ignored")
            else:
                modes[name] = _read_mode(mode, spot.inside(name))
    return {"approval": {"tools": modes}} if modes else {}


def _write_env(value: object, spot: FieldContext) -> dict[str, Any]:
    env = mapping(value)
    passed = [name for name, item in env.items() if plain_variable_name(string(item)) == name]
    literal = table(LITERAL).write({name: item for name, item in env.items() if name not in passed}, spot)
    return ({"env": literal} if literal else {}) | ({"env_vars": passed} if passed else {})


def _write_headers(value: object, spot: FieldContext) -> dict[str, Any]:
    literal: dict[str, str] = {}
    from_env: dict[str, str] = {}
    theirs: dict[str, Any] = {}
    for header, item in mapping(value).items():
        bearer = (
            plain_variable_name(string(item), before=_BEARER) if header.lower() == "authorization" else None
        )
        if bearer:
            theirs["bearer_token_env_var"] = bearer
        elif name := plain_variable_name(item):
            from_env[header] = name
        else:
            literal[header] = item
    if from_env:
        theirs["env_http_headers"] = from_env
    if literal := table(LITERAL).write(literal, spot):
        theirs["http_headers"] = literal
    return theirs


def _write_approval(value: object, spot: FieldContext) -> dict[str, Any]:
    approval = mapping(value) if is_object(value) else {"default": value}
    theirs: dict[str, Any] = {}
    if (default := approval.get("default")) is not None:
        theirs["default_tools_approval_mode"] = _MODE.write(default, spot)
    tools: dict[str, Any] = {}
    for name, mode in mapping(approval.get("tools", {})).items():
        if mode == "deny" or is_pattern(name):
            spot.inside(f"tools.{name}").note("not supported by Codex; left out")
        else:
            tools[name] = {"approval_mode": _MODE.write(mode, spot)}
    return theirs | ({"tools": tools} if tools else {})


FORMAT = Format(
    title="Codex",
    fields=(
        FieldMapping("command", "command", text(LITERAL)),
        FieldMapping("args", "args", texts(LITERAL)),
        FieldMapping("cwd", "cwd", text(LITERAL)),
        FieldMapping("env", "env", table(LITERAL)),
        FieldMapping("url", "url", text(LITERAL)),
        FieldMapping("http_headers", "headers", table(LITERAL)),
        FieldMapping("http_headers_helper", "headers_helper", COMMAND_LINE),
        FieldMapping("enabled", "enabled", FLAG),
        FieldMapping("required", "required", FLAG),
        FieldMapping("startup_timeout_sec", "startup_timeout_ms", SECONDS),
        FieldMapping("startup_timeout_ms", "startup_timeout_ms", MILLISECONDS),
        FieldMapping("tool_timeout_sec", "request_timeout_ms", SECONDS),
        FieldMapping("enabled_tools", "allow_tools", TOOL_NAMES),
        FieldMapping("disabled_tools", "deny_tools", TOOL_NAMES),
        FieldMapping("scopes", "oauth.scope", scopes(LITERAL)),
        FieldMapping("oauth.client_id", "oauth.client_id", text(LITERAL)),
        FieldMapping("oauth.callback_port", "oauth.callback_port", PORT),
    ),
    reading={
        "env_vars": _read_env_vars,
        "env_http_headers": _read_env_headers,
        "bearer_token_env_var": _read_bearer,
        "bearer_token": report_ignored(
            "is refused by Codex too; put the token into the environment or the keyring"
        ),
        "enabled_tools": read_allowlist,
        "default_tools_approval_mode": lambda value, spot: {"approval": {"default": _read_mode(value, spot)}},
        "tools": _read_tools,
        "oauth_resource": report_ignored("cannot be set here; the server's own metadata says it"),
        "auth": report_if_equal("chatgpt", "logs in with a ChatGPT session, which only Codex has"),
        "environment_id": report_ignored("says where Codex runs it; it runs on this machine here"),
        "supports_parallel_tool_calls": report_ignored("has no equivalent here"),
        "omit_tools_from": report_ignored("has no equivalent here"),
        "name": report_ignored("is only a label; ignored"),
    },
    writing={"env": _write_env, "headers": _write_headers, "approval": _write_approval},
    targets={"stdio": {}, "http": {}},
    overlays=True,
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers, and a note for each other setting of Codex about MCP."""
    imported = read_servers(section(data, "mcp_servers"), FORMAT)
    imported.notes.extend(
        ConversionNote(server_id=None, field=key, message="is a setting of Codex for all servers; ignored")
        for key in data
        if key.startswith("mcp_") and key != "mcp_servers"
    )
    return imported


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers as `[mcp_servers.…]` tables."""
    notes: list[ConversionNote] = []
    return ExportedDocument(document={"mcp_servers": write_servers(entries, FORMAT, notes)}, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """Project files here and above, then the user's."""
    home = path_from_env(place, "CODEX_HOME", place.home / ".codex")
    return distinct(upward(place, ".codex/config.toml"), user(home / "config.toml"))


CODEX = ConfigDialect(name="codex", title="Codex", syntax="toml", locations=locations, read=read, write=write)
