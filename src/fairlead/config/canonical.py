"""Conversion of other document shapes that are read directly into Fairlead's own format.

Three shapes are known by their content, wherever a file, a variable or a program hands a document over:

- an entry of `servers` whose `transport` is an object: `{"type": "http", "url": …, "authProviderId": …}`;
- a bundle of one server: `{"serverId": …, "mode": …, "allowTools": […], "denyTools": […]}`;
- servers below `mcp`, as in Codelia's `config.json`, whose texts have no references: `${…}` stays as it is.

Values stay as they are, good or bad: validation judges them, and `CanonicalDocument.original_path` tells
where a value stands in the document. Nothing is guessed, left out or renamed: a key that no shape has is a
fault.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.config.faults import Path, ValidationFault, suggestion
from fairlead.config.untyped import is_list, is_object

TRANSPORT_KEYS: Mapping[str, str] = {
    "type": "transport",
    "url": "url",
    "headers": "headers",
    "authProviderId": "auth_provider_id",
    "command": "command",
    "args": "args",
    "cwd": "cwd",
    "env": "env",
}
"""Keys of a nested `transport`, and the fields they are here."""
BUNDLE_KEYS: Mapping[str, str] = {"allowTools": "allow_tools", "denyTools": "deny_tools"}
"""Keys of a bundle of one server, and the fields of its server that they are here."""

_BUNDLE_FIELDS = ("mode", "description", "names", "always_direct", "token_budget", "resources", "prompts")
_TTL = "toolsTtlMs"
_MEANT_ID = "did you mean `serverId`?"


@dataclass(kw_only=True, slots=True)
class CanonicalDocument:
    """A document in Fairlead's own format, and where each value stands in the text."""

    data: dict[str, Any]
    shape: str | None = None
    """Name of the dialect with such documents: `toolloop` or `codelia`; None for Fairlead's own format."""
    faults: list[ValidationFault] = field(default_factory=list[ValidationFault])
    warnings: list[ValidationFault] = field(default_factory=list[ValidationFault])
    """What has no effect, though it is allowed."""
    places: dict[Path, Path] = field(default_factory=dict[Path, Path])
    """Where a value stands in the document, by its path here; of the rest, by what contains it."""

    def original_path(self, path: Path) -> Path:
        """Path in the document of the value that is at `path` here."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return (*self.places[path[:length]], *path[length:])
        return path

    def fault(self, path: Path, written: Path, message: str, hint: str | None = None) -> None:
        """Note what is wrong with the entry or section that `path` leads into."""
        fault = ValidationFault(path=path, written=written, message=message, hint=hint, is_isolated=True)
        self.faults.append(fault)

    def new_faults(self, faults: Iterable[ValidationFault]) -> Iterator[ValidationFault]:
        """Faults that validation found, as the document spells them, without those that are noted already."""
        noted = {fault.written for fault in self.faults}
        for fault in faults:
            written = self.original_path(fault.path)
            if written not in noted:
                yield replace(fault, written=written)


def canonicalize(data: dict[str, Any]) -> CanonicalDocument:
    """Convert a document of any known shape to Fairlead's own format; one that has it stays unchanged."""
    result = CanonicalDocument(data=dict(data))
    if "mcp" in data:
        _lift_servers(result)
    if is_object(servers := result.data.get("servers")):
        result.data["servers"] = {name: _server(result, name, entry) for name, entry in servers.items()}
    if is_object(bundles := result.data.get("bundles")):
        result.data["bundles"] = {name: _bundle(result, name, bundle) for name, bundle in bundles.items()}
    if _TTL in result.data:
        _default_ttl(result)
    return result


def _lift_servers(result: CanonicalDocument) -> None:
    """Take the servers out of `mcp`."""
    section = result.data.pop("mcp")
    if not is_object(section):
        result.fault(("mcp",), ("mcp",), "must be an object", 'write `"mcp": {"servers": {…}}`')
        return
    for key in section:
        if key != "servers":
            result.fault(("mcp", key), ("mcp", key), "unknown key", _hint_below_mcp(key, section[key]))
    result.shape = "codelia"
    if "servers" not in section:
        return
    if not is_object(section["servers"]):
        result.fault(("mcp", "servers"), ("mcp", "servers"), "must be an object")
        return
    if not is_object(own := result.data.get("servers", {})):
        result.fault(("servers",), ("servers",), "must be an object")
        own = {}
    lifted: dict[str, Any] = {}
    for name, entry in section["servers"].items():
        path, written = ("servers", name), ("mcp", "servers", name)
        if name in own:
            # Either of the two may be the one that restricts more, so that neither counts.
            result.fault(path, written, "is in `servers` too", "remove or rename one of them")
            continue
        result.places[path] = written
        lifted[name] = _without_idle_env(result, name, _literal(entry))
    result.data["servers"] = own | lifted


def _hint_below_mcp(key: str, value: object) -> str | None:
    """Hint for a key next to `mcp.servers`, where no other belongs."""
    if is_object(value) and value.get("type") in ("local", "remote"):
        return "this looks like opencode's file; run `fairlead import FILE` to take its servers over"
    if key in ("bundles", _TTL):
        return f'it stands at the top level, next to `mcp`: `"{key}": …`'
    return suggestion(str(key), ["servers"])


def _literal(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A value whose texts mean themselves: that format expands nothing."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if is_object(value):
        return {name: _literal(item) for name, item in value.items()}
    return [_literal(item) for item in value] if is_list(value) else value


def _without_idle_env(result: CanonicalDocument, name: str, entry: Any) -> Any:  # noqa: ANN401 - any JSON value
    """That format lets a server at a URL have `env`, which nothing reads."""
    if not is_object(entry) or "env" not in entry or entry.get("transport") != "http":
        return entry
    result.warnings.append(
        ValidationFault(
            path=("servers", name, "env"),
            written=("mcp", "servers", name, "env"),
            message="has no effect on a server at a URL",
            hint="remove it; `headers` are sent with every request",
        )
    )
    return {field: value for field, value in entry.items() if field != "env"}


def _server(result: CanonicalDocument, name: str, entry: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Entry whose transport is not nested any more."""
    if not is_object(entry) or not is_object(nested := entry.get("transport")):
        return entry
    result.shape = result.shape or "toolloop"
    path = ("servers", name)
    written = result.original_path(path)
    for theirs, ours in TRANSPORT_KEYS.items():
        result.places[*path, ours] = (*written, "transport", theirs)
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if key == _TTL:
            result.places[*path, "tools_ttl_ms"] = (*written, key)
            flat["tools_ttl_ms"] = value
        elif key in TRANSPORT_KEYS:
            message = f"stands in `transport` too: `{key}`" if key in nested else "belongs into `transport`"
            result.fault((*path, key), (*written, key), message)
        elif key != "transport":
            flat[key] = value
    for key, value in nested.items():
        if key in TRANSPORT_KEYS:
            flat[TRANSPORT_KEYS[key]] = value
        else:
            hint = (
                suggestion(str(key), TRANSPORT_KEYS) or "a field of Fairlead's own stands next to `transport`"
            )
            result.fault((*path, key), (*written, "transport", key), "unknown key", hint)
    if "type" not in nested:
        result.fault(path, (*written, "transport"), "has no `type`: needs `stdio`, `http` or `sse`")
    return flat


def _bundle(result: CanonicalDocument, name: str, bundle: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Bundle with its server in `servers`."""
    known = ("serverId", *BUNDLE_KEYS)
    if not is_object(bundle) or not _is_of_one_server(result, bundle):
        return bundle
    result.shape = result.shape or "toolloop"
    path = ("bundles", name)
    server_id = bundle.get("serverId")
    if not isinstance(server_id, str):
        message = "must be a string" if "serverId" in bundle else "is missing"
        result.fault((*path, "serverId"), (*path, "serverId"), message)
        server_id = "serverId"  # of no server, so that the rest is judged too
    tools: dict[str, Any] = {}
    shaped: dict[str, Any] = {"servers": {server_id: tools}}
    within = (*path, "servers", server_id)
    result.places[*path, "servers"] = path
    result.places[within] = (*path, "serverId")
    for key, value in bundle.items():
        if key in BUNDLE_KEYS:
            tools[BUNDLE_KEYS[key]] = value
            result.places[*within, BUNDLE_KEYS[key]] = (*path, key)
        elif key in _BUNDLE_FIELDS:
            shaped[key] = value
        elif key == _TTL:
            result.fault((*path, key), (*path, key), "unknown key", "it is a setting of the server")
        elif key != "serverId":
            hint = suggestion(str(key), (*known, *_BUNDLE_FIELDS))
            result.fault((*path, key), (*path, key), "unknown key", hint)
    return shaped


def _is_of_one_server(result: CanonicalDocument, bundle: dict[str, Any]) -> bool:
    """Whether a bundle names one server: by a key of that shape, one that is close to it, or its document."""
    if "servers" in bundle:
        return False
    if result.shape == "toolloop":
        return True
    own = [field for field in _BUNDLE_FIELDS if field not in bundle]
    return any(
        key in ("serverId", *BUNDLE_KEYS)
        or (isinstance(value, str) and suggestion(str(key), ("serverId", *own)) == _MEANT_ID)
        for key, value in bundle.items()
        if key not in _BUNDLE_FIELDS
    )


def _default_ttl(result: CanonicalDocument) -> None:
    """Take a time for all servers into `defaults`."""
    defaults = result.data.get("defaults", {})
    place = ("defaults", "tools_ttl_ms")
    if not is_object(defaults) or "tools_ttl_ms" in defaults:
        result.fault((_TTL,), (_TTL,), "is in `defaults` too", "remove one of them")
        del result.data[_TTL]
        return
    result.data["defaults"] = {**defaults, "tools_ttl_ms": result.data.pop(_TTL)}
    result.places[place] = (_TTL,)
