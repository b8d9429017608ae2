"""Merging of layers into one document that keeps the origin of every value.

Per server id, an entry with a target (`command`, `url`, `builtin`, `extension`) replaces the lower one whole;
an entry without one overlays it, object by object. `deny_tools` of an overlay adds to the list below it,
because denials only grow. `defaults` lie under every server.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.config.models import TARGETS, ServerLimits
from fairlead.config.paths import expand_home
from fairlead.config.sources import Layer
from fairlead.config.untyped import ISOLATED, as_list, as_object, has_path, is_list, is_object, value_at
from fairlead.config.validate import check, not_an_object
from fairlead.errors import Problem

FieldPath = tuple[str | int, ...]

USERS_KEYS = frozenset(
    {
        "allow_literal_secrets",
        "artifacts",
        "audit",
        "defaults",
        "docs",
        "gateway",
        "model",
        "search",
        "store",
        "tools",
    }
)
"""Sections that only the user's own file may set: not a file that came with a clone."""
STRICTNESS = {"allow": 0, "auto": 1, "ask": 2, "deny": 3}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ValueOrigin:
    """Place that set a value. Line and column are looked up on demand."""

    layer: Layer
    path: FieldPath

    @property
    def line(self) -> int | None:
        """Line in the layer's file, if it is a file."""
        position = self.layer.position(self.path)
        return position.line if position else None

    def __str__(self) -> str:
        line = self.line
        return self.layer.label if line is None else f"{self.layer.label}:{line}"

    def problem(self, message: str, path: FieldPath, **rest: Any) -> Problem:  # noqa: ANN401 - Problem's own fields
        """Problem at this place."""
        at = self.layer.position(self.path)
        line, column = (at.line, at.column) if at else (None, None)
        written = self.layer.original_path(path)
        return Problem(
            message=message,
            file=self.layer.label,
            path=path,
            written=None if written == path else written,
            line=line,
            column=column,
            **rest,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerSetting:
    """Value of one field in one layer."""

    value: Any
    origin: ValueOrigin


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerPart:
    """Entry of a server in one layer."""

    layer: Layer
    prefix: FieldPath
    entry: Any

    def setting(self, path: FieldPath) -> LayerSetting | None:
        """This layer's value of a field, if it has one."""
        if not has_path(self.entry, path):
            return None
        return LayerSetting(
            value=value_at(self.entry, path), origin=ValueOrigin(layer=self.layer, path=(*self.prefix, *path))
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ServerDefinition:
    """One server as all layers together describe it."""

    server_id: str
    defaults: tuple[LayerPart, ...]
    parts: tuple[LayerPart, ...]
    """Entries in effect, low to high: one with a target and the overlays above it."""
    replaced: tuple[LayerPart, ...]
    """Entries of lower layers that the one with a target replaced."""
    entry: Any
    """Merged entry, without defaults."""

    @property
    def source(self) -> Layer:
        """Layer with the target of this server."""
        return self.parts[0].layer

    def settings(self, path: FieldPath) -> Iterator[LayerSetting]:
        """Values of a field in every layer, the one in effect first."""
        return _settings((*reversed(self.parts), *reversed(self.defaults)), path)

    def list_replaced_settings(self, path: FieldPath) -> Iterator[LayerSetting]:
        """Values of a field in the replaced entries."""
        return _settings(self.replaced[::-1], path)

    def origin(self, path: FieldPath) -> ValueOrigin:
        """Origin of a field; for one that is not set, of what contains it."""
        for length in range(len(path), -1, -1):
            for part in (*reversed(self.parts), *reversed(self.defaults)):
                if setting := part.setting(path[:length]):
                    return setting.origin
        return ValueOrigin(layer=self.source, path=self.parts[0].prefix)


def _settings(parts: tuple[LayerPart, ...], path: FieldPath) -> Iterator[LayerSetting]:
    return (setting for part in parts if (setting := part.setting(path)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MergedConfig:
    """All layers as one document, with the origin of each value."""

    layers: tuple[Layer, ...]
    data: dict[str, Any]
    definitions: dict[str, ServerDefinition]
    problems: list[Problem] = field(default_factory=list[Problem])

    def origin(self, path: FieldPath) -> ValueOrigin | None:
        """Origin of the value at `path`, or of what contains it."""
        match path:
            case ("servers", str(server_id), *rest) if server_id in self.definitions:
                return self.definitions[server_id].origin(tuple(rest))
            case _:
                pass
        for length in range(len(path), 0, -1):
            for layer in reversed(self.layers):
                part = LayerPart(layer=layer, prefix=(), entry=layer.data)
                if setting := part.setting(path[:length]):
                    return setting.origin
        return None

    def rule_origins(self) -> list[ValueOrigin]:
        """Origin of each rule of `policy`; rules add up over the layers."""
        return [
            ValueOrigin(layer=layer, path=("policy", "rules", index))
            for layer in self.layers
            for index, _ in enumerate(as_list(as_object(layer.data.get("policy")).get("rules")))
        ]


def expand_extensions(layer: Layer, problems: list[Problem]) -> Layer:
    """A layer with an entry for each folder in `extensions`, under the name of the folder.

    An entry of that id without a target, in the same file, says more about it. What is wrong with one folder
    costs only that one.
    """
    if "extensions" not in layer.data:
        return layer
    data = {name: value for name, value in layer.data.items() if name != "extensions"}
    given: object = layer.data["extensions"]
    folders: list[object] = given if is_list(given) else [None]
    servers = dict(as_object(data.get("servers")))
    made = set[str]()
    for index, folder in enumerate(folders):
        path: FieldPath = ("extensions", index) if is_list(given) else ("extensions",)
        server_id = extension_id(layer, folder) if isinstance(folder, str) and folder else None
        message, hint = "must be a list of folders", 'write ["./tools"]'
        if is_list(given) and server_id is None:
            message = "must be the path of a folder, as a text that is not empty"
        if server_id is not None:
            problems += _extension_problems(layer, str(folder), server_id, path)
            entry = servers.get(server_id, {})
            if server_id not in made and is_object(entry) and not has_target(entry):
                made.add(server_id)
                servers[server_id] = {"extension": folder, **entry}
                continue
            message = f"there is a server `{server_id}` already"
            hint = f'write an entry with another id: "servers": {{"…": {{"extension": "{folder}"}}}}'
        problems.append(ValueOrigin(layer=layer, path=path).problem(message, path, hint=hint))
    if made or "servers" in data:
        # One that is malformed is for validation to report.
        data["servers"] = servers if made or is_object(data.get("servers")) else data["servers"]
    return replace(layer, data=data)


def _extension_problems(layer: Layer, folder: str, server_id: str, path: FieldPath) -> Iterator[Problem]:
    """What a user should know of a folder that became a server."""
    place = os.path.normpath(layer.base / expand_home(folder))
    origin = ValueOrigin(layer=layer, path=path)
    if "${" not in folder and not os.path.isdir(place):
        message = "is no folder that is there"
        yield origin.problem(message, path, severity="warning", hint="correct the path, or make the folder")
    if server_id != os.path.basename(place):
        hint = f'choose the id: "servers": {{"{server_id}": {{"extension": "{folder}"}}}}'
        message = f"is the server `{server_id}`: an id has only letters, digits, `_` and `-`"
        yield origin.problem(message, path, severity="warning", hint=hint)


def extension_id(layer: Layer, folder: str) -> str:
    """The id of the server of a folder in `extensions`: its name, as far as ids have such characters."""
    place = os.path.normpath(layer.base / expand_home(folder))
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", os.path.basename(place)).strip("-")[:64] or "extensions"


def merge(layers: list[Layer]) -> MergedConfig:
    """Merge layers, low to high, and report what a layer may not set."""
    problems: list[Problem] = []
    allowed: list[Layer] = []
    merged: dict[str, Any] = {}
    for layer in layers:
        described = expand_extensions(layer, problems)
        allowed.append(_filter_project_layer(described, allowed, as_object(merged.get("bundles")), problems))
        _merge_sections(merged, allowed[-1])
    definitions = _define(allowed)
    if definitions:
        merged["servers"] = {
            server_id: _entry_with_defaults(definition) for server_id, definition in definitions.items()
        }
    return MergedConfig(layers=tuple(allowed), data=merged, definitions=definitions, problems=problems)


def _filter_project_layer(
    layer: Layer, below: list[Layer], bundles: Mapping[str, Any], problems: list[Problem]
) -> Layer:
    """The part of a layer that counts: a project file adds only servers, bundles and narrowing rules.

    Nothing of it reaches a model or widens anything before the user consents to one of its servers, and a
    mistake in it takes nothing from the layers below. `bundles` are those of these layers.
    """
    problems += layer.warnings
    if layer.name != "project":
        return _without_bad_sections(layer, problems)
    kept = _drop_malformed(layer, below, problems)
    for key in layer.data:
        # A cloned repository must not choose where state and tokens go, or who may use the gateway.
        if key in USERS_KEYS and key in kept:
            del kept[key]
            problems += _setting_problems(layer, key)
    if isinstance(kept.get("policy"), dict):
        kept["policy"] = _narrowing_policy(layer, kept["policy"], problems)
    if is_object(kept.get("bundles")):
        kept["bundles"] = _own_bundles(layer, kept["bundles"], bundles, problems)
    if is_object(kept.get("servers")):
        described = {
            server_id: _drop_description(layer, server_id, entry, problems)
            for server_id, entry in kept["servers"].items()
        }
        kept["servers"] = _without_shared_logins(layer, described, problems)
    return replace(layer, data=kept)


def _setting_problems(layer: Layer, key: str) -> Iterator[Problem]:
    """Problems of a section that is the user's alone, each as the document has it (`toolsTtlMs`)."""
    own_file = "put it into your own file; `fairlead list` shows where that is"
    message = "a project file may not set this"
    moved: list[FieldPath] = [
        (key, name) for name in as_object(layer.data[key]) if layer.original_path((key, name))[0] != key
    ]
    for path in moved:
        hint = f"set it for each server, beside its `transport`; or {own_file}"
        yield ValueOrigin(layer=layer, path=path).problem(message, path, hint=hint)
    if not moved or len(moved) < len(layer.data[key]):
        yield ValueOrigin(layer=layer, path=(key,)).problem(message, (key,), hint=own_file)


def _without_bad_sections(layer: Layer, problems: list[Problem]) -> Layer:
    """A layer without malformed collections of entries, and without bad fields of `defaults`.

    Each costs only itself: validation of the merged document would find a bad default in every server.
    """
    kept = dict(layer.data)
    faults = [not_an_object(key, kept[key]) for key in ISOLATED if key in kept and not is_object(kept[key])]
    for fault in faults:
        del kept[str(fault.path[0])]
    if "defaults" in kept:
        found = [fault for fault in check({"defaults": kept["defaults"]}).faults if fault.is_isolated]
        repeated = [problem.path for problem in layer.faults if problem.path[0] == "defaults"]
        bad = {path[1] for path in (*(fault.path for fault in found), *repeated) if len(path) > 1}
        defaults = kept["defaults"]
        kept["defaults"] = {name: value for name, value in as_object(defaults).items() if name not in bad}
        faults += found
    for fault in faults:
        origin = ValueOrigin(layer=layer, path=fault.path)
        problems.append(origin.problem(fault.message, fault.path, hint=fault.hint))
    return replace(layer, data=kept)


def _drop_malformed(layer: Layer, below: list[Layer], problems: list[Problem]) -> dict[str, Any]:
    """A project's sections without values of a wrong type, which would replace the user's value."""
    refused: list[FieldPath] = []
    kept = dict(layer.data)
    for key in ("servers", "bundles", "policy"):
        if key in kept and not is_object(kept[key]):
            del kept[key]
            refused.append((key,))
    if is_object(policy := kept.get("policy")):
        approval = policy.get("approval")
        is_mode = isinstance(approval, str) and approval in STRICTNESS
        bad = {"rules": not is_list(policy.get("rules")), "approval": not is_mode}
        kept["policy"] = {name: value for name, value in policy.items() if not bad.get(name)}
        refused += [("policy", name) for name in policy if bad.get(name)]
    if servers := as_object(kept.get("servers")):
        defined = _define(below)
        kept["servers"] = dict(servers)
        for server_id in servers.keys() & defined.keys():
            path: FieldPath = ("servers", server_id)
            if not is_object(entry := servers[server_id]):
                del kept["servers"][server_id]
                refused.append(path)
            elif not has_target(entry):
                overlaid = as_object(defined[server_id].entry)
                kept["servers"][server_id] = _matching_types(overlaid, entry, path, refused)
    for path in refused:
        is_own = len(path) > 1 and path[0] == "servers" and _is_built_in(str(path[1]), below)
        counts = "the built-in setting" if is_own else "your own file"
        message = f"has the wrong type; it is ignored, and {counts} counts"
        origin = ValueOrigin(layer=layer, path=path)
        problems.append(origin.problem(message, path, severity="warning", hint="correct or remove it"))
    return kept


def _is_built_in(server_id: str, layers: Sequence[Layer]) -> bool:
    """Whether all that these layers say of a server comes with Fairlead."""
    named = [layer.name for layer in layers if server_id in as_object(layer.data.get("servers"))]
    return named == ["builtin"]


def _matching_types(
    below: dict[str, Any], above: dict[str, Any], path: FieldPath, refused: list[FieldPath]
) -> dict[str, Any]:
    """An overlay without nulls and values of another type than the one they would replace."""
    examples: dict[str, Any] = {"deny_tools": [], "allow_tools": [], "enabled": True}
    kept: dict[str, Any] = {}
    for name, value in above.items():
        example = below[name] if below.get(name) is not None else examples.get(name, value)
        if name == "approval" and value in ("ask", "deny") and is_object(example):
            kept[name] = _at_least(value, example)
        elif name == "approval" and isinstance(example, str) and is_object(value):
            # A mode for the whole server is the default beside modes by tool.
            kept[name] = {"default": example, **_matching_types({}, value, (*path, name), refused)}
        elif value is None or not isinstance(value, type(example)):
            refused.append((*path, name))
        elif is_object(value):
            kept[name] = _matching_types(as_object(below.get(name)), value, (*path, name), refused)
        else:
            kept[name] = value
    return kept


def _at_least(mode: str, approval: dict[str, Any]) -> dict[str, Any]:
    """Approval modes by tool, made as strict as a project's mode for the whole server."""

    def narrow(current: object) -> object:
        return current if STRICTNESS.get(str(current), 0) > STRICTNESS[mode] else mode

    tools = {name: narrow(own_mode) for name, own_mode in as_object(approval.get("tools")).items()}
    return {"default": narrow(approval.get("default")), "tools": tools}


def _own_bundles(
    layer: Layer, bundles: dict[str, Any], below: Mapping[str, Any], problems: list[Problem]
) -> dict[str, Any]:
    """A project's bundles, except those that would replace the user's."""
    for name in bundles.keys() & below.keys():
        path: FieldPath = ("bundles", name)
        message = "a project file may not replace a bundle of yours; yours counts"
        hint = "give the project's bundle another name"
        problems.append(
            ValueOrigin(layer=layer, path=path).problem(message, path, severity="warning", hint=hint)
        )
    return {name: bundle for name, bundle in bundles.items() if name not in below}


def _drop_description(layer: Layer, server_id: str, entry: Any, problems: list[Problem]) -> Any:  # noqa: ANN401 - any JSON value
    """A project's entry over the user's server, without a description of its own: models read those."""
    if has_target(entry) or "description" not in entry:
        return entry
    path: FieldPath = ("servers", server_id, "description")
    message = "a project file may not describe a server of yours; this is ignored"
    hint = "put it into your own file; `fairlead list` shows where that is"
    problems.append(ValueOrigin(layer=layer, path=path).problem(message, path, severity="warning", hint=hint))
    return {name: value for name, value in entry.items() if name != "description"}


def _without_shared_logins(layer: Layer, servers: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """A project's servers without login settings: a clone may not choose whose login is used."""
    kept = dict(servers)
    for server_id, entry in servers.items():
        if is_object(entry) and "login" in entry:
            path: FieldPath = ("servers", server_id, "login")
            kept[server_id] = {name: value for name, value in entry.items() if name != "login"}
            hint = "put it into your own file; `fairlead list` shows where that is"
            origin = ValueOrigin(layer=layer, path=path)
            problems.append(origin.problem("a project file may not set this", path, hint=hint))
    return kept


def _narrowing_policy(layer: Layer, policy: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    kept = dict(policy)
    refused: list[FieldPath] = []
    if kept.get("approval") in ("allow", "auto"):
        del kept["approval"]
        refused.append(("policy", "approval"))
    if isinstance(kept.get("rules"), list):
        rules = list(enumerate(as_list(kept["rules"])))
        refused += [("policy", "rules", index) for index, rule in rules if _allows(rule)]
        # The reason of a denial is shown to models as Fairlead's own words.
        kept["rules"] = [_without_reason(rule) for _, rule in rules if not _allows(rule)]
    for path in refused:
        origin = ValueOrigin(layer=layer, path=path)
        problems.append(origin.problem("a project file may only narrow: `ask` or `deny`", path))
    return kept


def _without_reason(rule: Any) -> Any:  # noqa: ANN401 - any JSON value
    return {name: value for name, value in rule.items() if name != "reason"} if is_object(rule) else rule


def _allows(rule: object) -> bool:
    return as_object(rule).get("action") == "allow"


def _merge_sections(merged: dict[str, Any], layer: Layer) -> None:
    """Merge all but servers: bundles replace by id, policy rules add up, other sections merge by field."""
    for key, value in layer.data.items():
        below: Any = merged.get(key)
        if key == "servers":
            if not isinstance(value, dict):
                merged[key] = value  # validation reports it
        elif key == "policy" and is_object(value) and is_object(below):
            merged[key] = _merge_policy(below, value, narrow=layer.name == "project")
        elif key == "bundles" and is_object(value):
            merged[key] = as_object(below) | value
        else:
            merged[key] = overlay(below, value)


def _merge_policy(below: dict[str, Any], above: dict[str, Any], *, narrow: bool) -> dict[str, Any]:
    result = {**below, **above}
    if isinstance(below.get("rules"), list) and isinstance(above.get("rules"), list):
        result["rules"] = [*below["rules"], *above["rules"]]
    if narrow and "approval" in below and "approval" in above:
        result["approval"] = max(
            below["approval"], above["approval"], key=lambda mode: STRICTNESS.get(mode, 0)
        )
    return result


def _define(layers: list[Layer]) -> dict[str, ServerDefinition]:
    defaults = tuple(
        LayerPart(layer=layer, prefix=("defaults",), entry=layer.data["defaults"])
        for layer in layers
        if isinstance(layer.data.get("defaults"), dict)
    )
    parts: dict[str, list[LayerPart]] = {}
    for layer in layers:
        for server_id, entry in as_object(layer.data.get("servers")).items():
            part = LayerPart(layer=layer, prefix=("servers", server_id), entry=entry)
            parts.setdefault(server_id, []).append(part)
    return {server_id: _definition(server_id, entries, defaults) for server_id, entries in parts.items()}


def _definition(
    server_id: str, entries: list[LayerPart], defaults: tuple[LayerPart, ...]
) -> ServerDefinition:
    start = max((index for index, part in enumerate(entries) if has_target(part.entry)), default=0)
    merged = entries[start].entry
    for part in entries[start + 1 :]:
        merged = overlay(merged, part.entry)
    return ServerDefinition(
        server_id=server_id,
        defaults=defaults,
        parts=tuple(entries[start:]),
        replaced=tuple(entries[:start]),
        entry=merged,
    )


def has_target(entry: object) -> bool:
    """Whether an entry has a target. A malformed entry replaces too, and is reported."""
    return not isinstance(entry, dict) or any(target in entry for target in TARGETS)


def overlay(below: Any, above: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Lay one entry over another: objects merge, `deny_tools` add up, everything else replaces."""
    if not is_object(below) or not is_object(above):
        return above
    result = dict(below)
    for key, value in above.items():
        if key == "deny_tools" and is_list(value) and is_list(below.get(key)):
            result[key] = [*below[key], *(tool for tool in value if tool not in below[key])]
        else:
            result[key] = overlay(below[key], value) if key in below else value
    return result


def _entry_with_defaults(definition: ServerDefinition) -> Any:  # noqa: ANN401 - any JSON value
    entry = as_object(definition.entry)
    if not definition.defaults or not entry:
        return definition.entry
    result: dict[str, Any] = {}
    for part in definition.defaults:
        result |= {key: value for key, value in part.entry.items() if key in ServerLimits.model_fields}
    return result | entry
