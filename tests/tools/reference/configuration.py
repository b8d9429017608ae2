"""The reference of `fairlead.json`, from the JSON Schema that its models make."""

import json
from collections.abc import Mapping
from typing import Any, Final

from fairlead.config.json_schema import json_schema
from tests.tools.reference.markdown import code, table

_TITLES: Final = {
    "StdioServer": "A server that is a program",
    "RemoteServer": "A server at a URL",
    "BuiltinServer": "A server that comes with Fairlead",
    "ExtensionServer": "A server that is a folder of Python files",
    "Server": "Every server",
    "ApprovalSettings": "Approval modes of a server",
    "SandboxSettings": "Sandbox of a server",
    "SamplingSettings": "Sampling by a server",
    "OAuthSettings": "Login to a server",
    "IdentityProvider": "Identity provider of a login",
    "ServerLimits": "Defaults of all servers",
    "Bundle": "A bundle",
    "BundleServer": "A server in a bundle",
    "PolicySettings": "Policy",
    "PolicyRule": "A rule of the policy",
    "ToolSettings": "Tools",
    "SearchSettings": "Search",
    "EmbeddingSettings": "A model for search by meaning",
    "DocsSettings": "Documentation reader",
    "GatewaySettings": "Gateway",
    "GatewayOAuth": "Tokens of your own issuer",
    "AgentSettings": "The gateway's agent",
    "ModelSettings": "Model",
    "StoreSettings": "Store",
    "AuditSettings": "Audit log",
    "ArtifactSettings": "Artifacts",
    "BucketSettings": "A bucket for artifacts",
}
"""The sections by their models, in the order of the page."""
_SERVERS: Final = ("StdioServer", "RemoteServer", "BuiltinServer", "ExtensionServer")
_LEFT_OUT: Final = {"Overlay"}
"""All fields of the four kinds of servers once more."""

_INTRODUCTION = """# Configuration

Every field of `fairlead.json`, from the models that read it. `fairlead schema` prints the same as JSON
Schema for editors, [`examples/fairlead.json`](../sample-file.md) shows most of it at work, and `fairlead
explain setting NAME` says what is in effect here and which line of which file set it. Strings may have
references to secrets (`${NAME}`, `${file:path}`, `${keyring:service/user}`).

An entry of `servers` has one target, which says what kind of server it is: `command`, `url`, `builtin` or
`extension`. One without a target lies over the entry of the same id in a lower layer, and may have any field
of that kind of server.

## The file

"""


def configuration_page() -> str:
    """The page: the file itself, and a section for each kind of object in it."""
    schema = json_schema()
    definitions: dict[str, Any] = {
        name: definition
        for name, definition in schema["$defs"].items()
        if name not in _LEFT_OUT and "properties" in definition
    }
    common = _common(definitions)
    definitions["Server"] = {"description": "The fields of all four kinds of servers.", "properties": common}
    assert definitions.keys() == _TITLES.keys(), "every section has its title and its place"
    parts = [_INTRODUCTION, _fields(schema)]
    for name, title in _TITLES.items():
        definition = definitions[name]
        parts += [f"\n## {title}\n\n", _described(definition)]
        if name in _SERVERS:
            parts.append(f"It has these fields beside those of [every server]({_anchor('Server')}).\n\n")
            own = {key: field for key, field in definition["properties"].items() if key not in common}
            definition = {**definition, "properties": own}
        parts.append(_fields(definition))
    return "".join(parts)


def _common(definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are the same in each kind of server."""
    first, *others = (definitions[name]["properties"] for name in _SERVERS)
    return {key: field for key, field in first.items() if all(each.get(key) == field for each in others)}


def _anchor(name: str) -> str:
    return "#" + _TITLES[name].lower().replace("'", "").replace(" ", "-")


def _described(definition: Mapping[str, Any]) -> str:
    text = str(definition.get("description", "")).strip()
    return f"{text}\n\n" if text else ""


def _fields(definition: Mapping[str, Any]) -> str:
    required = set(definition.get("required", ()))
    rows = [
        (code(name), _type(field), _default(field, name in required), str(field.get("description", "")))
        for name, field in definition["properties"].items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _default(field: Mapping[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = field.get("default")
    return "" if value in (None, {}, []) else code(json.dumps(value, ensure_ascii=False))


def _type(field: Mapping[str, Any]) -> str:
    """The type in words, with links to the sections of objects."""
    if name := field.get("$ref"):
        last = str(name).rpartition("/")[2]
        return "any server field" if last in _LEFT_OUT else f"[{_TITLES[last]}]({_anchor(last)})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in field:
            kinds = [_type(each) for each in field[key] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        return ", ".join(code(json.dumps(each)) for each in field["enum"])
    if "const" in field:
        return code(json.dumps(field["const"]))
    return _simple(field)


def _simple(field: Mapping[str, Any]) -> str:
    kind = str(field.get("type", "any JSON"))
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    values: Any = field.get("additionalProperties")
    if kind == "object" and values not in (None, True, False):
        return f"object; each value: {_type(values)}"
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    return kind
