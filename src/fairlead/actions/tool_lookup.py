"""Find the tool that a user names: `server.tool`, another spelling, or its own name if that is unique."""

from collections.abc import Collection, Sequence

from fairlead.actions.known_catalog import read_catalog
from fairlead.catalog.tools import ToolEntry, ToolKey, find_tool
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, UnknownServer, UnknownTool
from fairlead.host.model.explain import find_tool_keys, names_of
from fairlead.policy.tool_names import owners_of

_MOST_NAMED = 8


def locate_tool(loaded: LoadedConfig, name: str, tool: str | None = None) -> ToolKey:
    """The server and the tool that the user names, as far as that is known without contacting a server.

    Args:
        loaded: The configuration.
        name: `server.tool`, `server/tool`, `server__tool`, a public name, or the tool's own. With `tool`, the
            server's id.
        tool: The tool's name, where it was typed apart from the server's id.

    Returns:
        Its key. The tool's name is as it was typed where the server's tools are not known.

    Raises:
        UnknownServer: There is no such server.
        UnknownTool: No known tool has that name.
        ConfigError: It may mean several; the hint names them.
    """
    if tool is not None:
        return ToolKey(loaded.server(name).server_id, tool)
    owners = owners_of(name, loaded.servers)
    if owners and name == ".".join(owners[0]):
        return ToolKey(*owners[0])  # means that tool alone, also where other servers have one of that name
    names = names_of(loaded, read_catalog(loaded).listings)
    known = find_tool_keys(name, names)
    if len(known) == 1:
        return known[0]
    if len(known) > 1:
        raise ambiguous(name, known)
    if len(owners) == 1:
        return ToolKey(*owners[0])
    if owners:
        raise ambiguous(name, [ToolKey(*owner) for owner in owners])
    raise _not_found_error(loaded, name, list(names.names))


def ambiguous(name: str, keys: Collection[ToolKey]) -> ConfigError:
    """Error for a name that several tools have."""
    some = [f"`{key.qualified}`" for key in sorted(keys)[:_MOST_NAMED]]
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return ConfigError(
        f"`{name}` may mean {' or '.join(some)}{more}", hint="type one of these: the server, a dot, the tool"
    )


def find_entry(key: ToolKey, tools: Sequence[ToolEntry], *, typed_apart: bool = False) -> ToolEntry | None:
    """The listed tool that was named.

    Args:
        key: As `locate_tool` says.
        tools: The tools of the server.
        typed_apart: Whether the tool's name was typed apart from the server's id, and so means itself first.

    Raises:
        ConfigError: The server has a tool of that name, and another that is called `server.tool` itself.
    """
    found, whole = find_tool(key.tool, tools), find_tool(f"{key.server_id}.{key.tool}", tools)
    if found is not None and whole is not None and not typed_apart:
        raise ConfigError(
            f"`{key.server_id}` has a tool `{found.key.typed_tool}` and a tool `{whole.key.typed_tool}`",
            hint=f"type the server and the tool as two words: "
            f"`{command_line('call', key.server_id, whole.key.typed_tool)}`",
        )
    if found is not None or whole is not None:
        return found or whole
    for _, rest in owners_of(key.tool, (key.server_id,)):
        if (found := find_tool(rest, tools)) is not None:
            return found
    return None


def no_such_tool(key: ToolKey, tools: Sequence[ToolEntry]) -> UnknownTool:
    """Error for an unknown tool of a server, with the one that may be meant."""
    near = suggestion(key.tool, [entry.key.typed_tool for entry in tools])
    meant = next((entry.key for entry in tools if near == f"did you mean `{entry.key.typed_tool}`?"), None)
    return UnknownTool(
        f"`{key.server_id}` has no tool `{key.tool}`",
        hint=f"did you mean `{meant.qualified}`?"
        if meant
        else f"run `{command_line('tools', key.server_id)}`",
    )


def _not_found_error(loaded: LoadedConfig, name: str, keys: Sequence[ToolKey]) -> UnknownServer | UnknownTool:
    if name in loaded.servers:
        return UnknownTool(
            f"`{name}` is a server: say which of its tools", hint=f"run `{command_line('tools', name)}`"
        )
    spelled = {key.qualified: key for key in keys}
    near = suggestion(name, spelled) or suggestion(name, [key.typed_tool for key in keys])
    for mark in (".", "/", ":", "__"):
        owner, found, rest = name.partition(mark)
        if found and owner and rest:
            meant = suggestion(owner, loaded.servers)
            hint = near or (meant.replace("`?", f".{rest}`?") if meant else None)
            return UnknownServer(
                f"there is no server `{owner}`",
                hint=hint or "run `fairlead list` to see the configured servers",
            )
    return UnknownTool(
        f"no tool that is known is called `{name}`",
        hint=near or "write the server before it, as in `time.get_current_time`; `fairlead tools` lists them",
    )
