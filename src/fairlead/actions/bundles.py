"""Make bundles, the named selections of servers and tools, and remove them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.actions.config_edits import EditOutcome, record_edit, require_sound, settle
from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.known_catalog import read_catalog
from fairlead.actions.tokens import named_tokens
from fairlead.actions.tool_lookup import ambiguous
from fairlead.catalog.tools import ToolKey, find_tool
from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, remove_value, set_value
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget, file_of_layer
from fairlead.config.load import LoadedConfig
from fairlead.config.merge import ValueOrigin
from fairlead.config.untyped import as_object
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, Remedy, UnknownBundle
from fairlead.policy.tool_names import owners_of

_GLOB: Final = re.compile(r"[*?\[]")
LIST_HINT: Final = "run `fairlead bundle list` to see the bundles"


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleDraft:
    """A bundle as a user describes it."""

    selection: Sequence[str]
    """`SERVER` for all of its tools, `SERVER.TOOL` for one or a glob."""
    without: Sequence[str] = ()
    """Tools to leave out, as `SERVER.TOOL`."""
    mode: str | None = None
    """How tools are offered: `direct`, `meta` or `auto`."""
    description: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedBundle:
    """Outcome of removing a bundle."""

    target: EditTarget
    """The file that it was removed from."""
    edit: EditOutcome
    tokens: list[str] = field(default_factory=list[str])
    """Tokens that are for this bundle alone, and so open nothing any more."""


def make_bundle(
    context: ActionContext, target: EditTarget, name: str, draft: BundleDraft, *, replace: bool
) -> EditOutcome:
    """Write a bundle into a file, and have it take effect. A running gateway serves it at `/mcp/NAME`.

    Args:
        context: Who makes it.
        target: The file.
        name: The name of the bundle.
        draft: What is in it.
        replace: May a bundle of the same name be replaced?

    Raises:
        UnknownServer: There is no such server.
        ConfigInvalid: Loading would refuse the bundle. Nothing was written.
        ConfigError: The file has a bundle of that name already, or a tool may be that of several servers.
    """
    loaded = context.loaded
    entry = _entry(loaded, draft)
    known = {server_id: {"command": "true"} for server_id in loaded.servers}
    require_sound(context, {"servers": known, "bundles": {name: entry}})
    notices = _unknown_tools(loaded, as_object(entry["servers"]))

    def change(text: str) -> str:
        if name in _bundles_in(text, target) and not replace:
            raise ConfigError(
                f"there is a bundle `{name}` in {target.path} already",
                hint="use another name, or overwrite it",
                field="name",
                remedy=Remedy(input="replace"),
            )
        return set_value(text, ("bundles", name), entry)

    is_new = not target.path.exists()
    edit_file(target.path, change, create=EMPTY_FILE)
    edit = settle(context, target, [], is_new=is_new)
    edit.notices.extend(notices)
    record_edit(context, edit, "add bundle", "", name=name)
    return edit


def remove_bundle(context: ActionContext, name: str, *, scope: str | None = None) -> RemovedBundle:
    """Remove a bundle from one file. A token that is limited to this bundle is useless then.

    Args:
        context: Who removes it.
        name: The name of the bundle.
        scope: Whose file to remove it from; by default the one that defines it.

    Raises:
        UnknownBundle: The file has no such bundle, or there is none of that name.
        ConfigUnwritable: It is not in a file that Fairlead edits.
    """
    target = context.chosen_target(scope) or _defining_file(context.loaded, name)

    def change(text: str) -> str:
        present = _bundles_in(text, target)
        if name not in present:
            raise _unknown(context.loaded, name, f"there is no bundle `{name}` in {target.path}")
        return remove_value(text, ("bundles", name))

    named = named_tokens(context.env, context.store).read()  # before the edit: the store may be away
    edit_file(target.path, change, create=EMPTY_FILE)
    edit = settle(context, target, [])
    record_edit(context, edit, "remove bundle", "", name=name)
    tokens = [token.name for token in named if token.bundles == (name,)]
    return RemovedBundle(target=target, edit=edit, tokens=tokens)


def _defining_file(loaded: LoadedConfig, name: str) -> EditTarget:
    """The file that defines a bundle: an edit of another one would have no effect."""
    origin = _origin(loaded, name)
    if origin is None:
        raise _unknown(loaded, name, f"there is no bundle `{name}`")
    return file_of_layer(origin.layer, f"the bundle `{name}`", hint="remove it there by hand")


def _origin(loaded: LoadedConfig, name: str) -> ValueOrigin | None:
    """Where a bundle is defined; None where none of the name is, not even one that is left out as invalid."""
    is_defined = name in as_object(loaded.merged.data.get("bundles"))
    return loaded.origin("bundles", name) if is_defined else None


def _unknown(loaded: LoadedConfig, name: str, message: str) -> UnknownBundle:
    origin = _origin(loaded, name)
    if origin is not None:
        return UnknownBundle(
            message, hint=f"it is in {origin.layer.label}, and is removed there if no scope is named"
        )
    return UnknownBundle(message, hint=suggestion(name, loaded.config.bundles) or LIST_HINT)


def _entry(loaded: LoadedConfig, draft: BundleDraft) -> dict[str, Any]:
    allowed = _by_server(loaded, draft.selection)
    denied = _by_server(loaded, draft.without)
    if not allowed:
        raise ConfigError("a bundle needs a server at least", hint="name one: `SERVER`, or `SERVER.TOOL`")
    for server_id, tools in denied.items():
        if not tools or server_id not in allowed:
            raise ConfigError(
                f"`{server_id}` cannot be left out",
                hint="leave out tools, as `SERVER.TOOL`, of servers that are in the bundle",
            )
    servers = {
        server_id: {
            **({"allow_tools": [*tools]} if tools else {}),
            **({"deny_tools": [*denied[server_id]]} if server_id in denied else {}),
        }
        for server_id, tools in allowed.items()
    }
    more = {"mode": draft.mode, "description": draft.description}
    return {"servers": servers, **{key: value for key, value in more.items() if value}}


def _by_server(loaded: LoadedConfig, words: Iterable[str]) -> dict[str, list[str]]:
    """The tools that are named of each server; none where the server is named as a whole."""
    found: dict[str, list[str]] = {}
    whole: set[str] = set()
    for word in words:
        owners = [] if word in loaded.servers else owners_of(word, loaded.servers)
        if len(owners) > 1:
            raise ambiguous(word, [ToolKey(*owner) for owner in owners])
        if owners:
            server_id, tool = owners[0]
            found.setdefault(server_id, []).append(tool)
        else:
            server_id = loaded.server(word.partition(".")[0]).server_id  # raises where there is none
            found.setdefault(server_id, [])
            whole.add(server_id)
    return {server_id: [] if server_id in whole else tools for server_id, tools in found.items()}


def _unknown_tools(loaded: LoadedConfig, servers: Mapping[str, Any]) -> list[Notice]:
    """Name the tools that a server is known not to have: a typo would be an empty bundle."""
    listings = read_catalog(loaded).listings
    return [
        Notice(
            message=f"`{server_id}` has no tool `{tool}` that is known",
            hint=suggestion(tool, [entry.key.tool for entry in listings[server_id].tools]),
        )
        for server_id, taken in servers.items()
        if server_id in listings
        for tool in (*as_object(taken).get("allow_tools", ()), *as_object(taken).get("deny_tools", ()))
        if not _GLOB.search(tool) and find_tool(tool, listings[server_id].tools) is None
    ]


def _bundles_in(text: str, target: EditTarget) -> dict[str, Any]:
    return as_object(as_object(jsonc.parse(text, file=str(target.path)).data).get("bundles"))
