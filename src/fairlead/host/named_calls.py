"""Calls by one name: `host.call("time.get_current_time", timezone="Europe/Berlin")`.

Such a call takes no options: all its keywords are arguments of the tool. Otherwise arguments that a model
chose, passed as keywords, could say `confirmed=True`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from fairlead.catalog.tools import ToolKey
from fairlead.config.argument_types import fits, require_types, wrong_type
from fairlead.config.principal import LOCAL
from fairlead.errors import UnknownServer, WrongType
from fairlead.host.call import DEFAULT_SETTINGS

NO_ARGUMENTS: Final[Mapping[str, Any]] = MappingProxyType({})
"""The second parameter of a call by one name, where there is none."""

_NO_OPTIONS: Final = (None, False, None, LOCAL, frozenset[str](), None, DEFAULT_SETTINGS)
_SEPARATOR = re.compile(r"[./]")  # in no id of a server, and in no public name


class _NamedTool(Protocol):
    @property
    def key(self) -> ToolKey: ...


class _NamedTools(Protocol):
    async def get(self, name: str) -> _NamedTool: ...


class NamingHost(Protocol):
    """A host as calls by name use it."""

    @property
    def tools(self) -> _NamedTools:
        """All tools by public name."""
        ...

    def configured(self, server_id: str) -> object:
        """The configuration of a server. Raises `UnknownServer`."""
        ...

    async def call(self, server_id: str, tool: str) -> object:
        """Call a tool."""
        ...


async def read_named_call(
    host: NamingHost,
    name: str,
    given: Mapping[str, Any],
    named: Mapping[str, Any],
    options: tuple[object, ...],
) -> tuple[ToolKey, Mapping[str, Any]]:
    """Read the parameters of a call by one name.

    Args:
        host: The host.
        name: `server.tool`, `server/tool`, or a public name such as a model sees.
        given: Arguments of the tool that came as a mapping.
        named: Arguments of the tool that came by keyword.
        options: What else `Host.call` was given: the third parameter, `confirmed`, `bundle_filter`,
            `principal`, `groups`, `default_mode` and the settings.

    Returns:
        The tool and its arguments.

    Raises:
        WrongType: There are options, or arguments of both kinds, or a parameter is of a wrong type.
        UnknownServer: No server has the id before the dot.
        FairleadError: What `Toolset.get` raises about a public name.
    """
    require_types(type(host).call, server_id=name)
    if not fits(given, Mapping):
        raise wrong_type(type(host).call, "tool", str, given)
    if options != _NO_OPTIONS:
        raise WrongType(
            "`Host.call` takes options only with server and tool apart; nothing was done",
            hint='write `host.call("server", "tool", {…}, confirmed=True)`; if an argument is named like an'
            " option, pass the arguments as a mapping",
        )
    if given and named:
        raise WrongType(
            "`Host.call` takes the tool's arguments as a mapping or by keyword, not both; nothing was done"
        )
    arguments = given or named
    if (found := _SEPARATOR.search(name)) is not None:
        server_id = name[: found.start()]
        host.configured(server_id)
        return ToolKey(server_id, name[found.end() :]), arguments
    try:
        host.configured(name)
    except UnknownServer:
        return (await host.tools.get(name)).key, arguments
    raise wrong_type(type(host).call, "tool", str, given, hint=f"write `{name}.TOOL`, with the tool's name")


def unexpected_keywords(named: Mapping[str, Any]) -> WrongType:
    """Error for keywords that are no options, in a call with server and tool apart."""
    return WrongType(
        f"`Host.call` has no option `{next(iter(named))}`; nothing was done",
        hint='pass arguments as a mapping, or by keyword with `host.call("server.tool", …)`',
    )
