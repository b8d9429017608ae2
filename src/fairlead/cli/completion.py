"""Completion of servers, tools, prompts, bundles, tokens, agents and formats by the shell.

Everything comes from files and from what earlier runs saved; no server is started. This module is loaded only
while a shell completes.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import click
from click.shell_completion import CompletionItem

from fairlead.cli.options import complete_server, load
from fairlead.config.load import LoadedConfig
from fairlead.errors import FairleadError

MOST_SHOWN: Final = 500

Completer = Callable[[click.Context, str], Iterable[str]]


def _servers(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return complete_server(ctx, click.Argument(["server_id"]), incomplete)


def _tools_of(loaded: LoadedConfig, server_ids: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The tools that are known of servers, as `server.tool` and alone."""
    from fairlead.actions.saved_state import read_saved

    wanted = {name: server for name, server in loaded.servers.items() if name in set(server_ids)}
    for saved in read_saved(replace(loaded, servers=wanted)).values():
        for entry in saved.snapshot.listing.tools if saved.snapshot else ():
            yield entry.key.qualified, entry.key.typed_tool


def _tools(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """`server.tool`; after a comma, as `--allow` takes several, the next one."""
    before, comma, last = incomplete.rpartition(",")
    loaded = load(ctx)
    owner = last.partition(".")[0]
    servers = [owner] if "." in last else [name for name in loaded.servers if name.startswith(last)]
    return [f"{before}{comma}{name}" for name, _ in _tools_of(loaded, servers) if name.startswith(last)]


def _servers_or_tools(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """A server, or `server.tool`: the tools of a server once it is named whole."""
    servers = list(_servers(ctx, incomplete))
    named = "." in incomplete or len(servers) == 1
    return [*servers, *(_tools(ctx, incomplete) if named else ())]


def _second_word(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """The tool alone, after its server's id as a word of its own."""
    first = ctx.params.get("name") or ctx.params.get("server_id")
    return [tool for _, tool in _tools_of(load(ctx), [str(first)]) if tool.startswith(incomplete)]


def _prompts(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from fairlead.actions.saved_state import read_saved
    from fairlead.catalog.tools import PromptOffer, read_offers

    server_id = str(ctx.params.get("server_id"))
    loaded = load(ctx)
    wanted = {name: server for name, server in loaded.servers.items() if name == server_id}
    for saved in read_saved(replace(loaded, servers=wanted)).values():
        if saved.snapshot is not None:
            offers = read_offers(server_id, PromptOffer, saved.snapshot.listing.prompts)
            yield from (prompt.name for prompt in offers)


def _bundles(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return load(ctx).config.bundles


def _tokens(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from fairlead.gateway.access.tokens import token_file

    return [token.name for token in token_file(os.environ).read()]


def _agents(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from fairlead.config.dialects.registry import ALL

    return [dialect.name for dialect in ALL]


def _connectable_agents(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from fairlead.gateway.install import AGENTS

    return AGENTS


_BY_NAME: Final[Mapping[str, Completer]] = {
    "server_id": _servers,
    "server_ids": _servers,
    "server": _servers,
    "only": _servers,
    "require": _servers,
    "bundle": _bundles,
    "bundles": _bundles,
    "agent": _agents,
    "allow": _tools,
    "ask": _tools,
    "deny": _tools,
}
"""Completers by the name of the parameter, for every command."""

_BY_COMMAND: Final[Mapping[tuple[str, str], Completer]] = {
    ("add", "selection"): _servers_or_tools,
    ("add", "without"): _tools,
    ("audit", "tool"): _tools,
    ("call", "name"): _tools,
    ("call", "words"): _second_word,
    ("tool", "name"): _tools,
    ("tools", "server_id"): _servers_or_tools,
    ("forget", "tool"): _second_word,
    ("prompt", "name"): _prompts,
    ("principal", "name"): _tokens,
    ("login", "name"): _servers,
    ("remove", "name"): _tokens,
    ("gateway", "install"): _connectable_agents,
    ("gateway", "uninstall"): _connectable_agents,
    ("show", "agent"): _connectable_agents,
}
"""By the name of the command and of its parameter."""


def attach_completers(command: click.Command) -> None:
    """Have the parameters of a command, and of those below it, completed by what is known."""
    for parameter in command.params:
        name = parameter.name or ""
        completer = _BY_COMMAND.get((command.name or "", name)) or _BY_NAME.get(name)
        if completer is not None and not isinstance(parameter.type, click.Choice):
            vars(parameter)["shell_complete"] = partial(_complete, completer)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            attach_completers(below)


def _complete(completer: Completer, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        found = sorted(name for name in completer(ctx, incomplete) if name.startswith(incomplete))
    except FairleadError:
        return []  # a shell completes nothing rather than print an error into the prompt
    usable = (name for name in found if name.isprintable() and " " not in name)
    return [CompletionItem(name) for name, _ in zip(usable, range(MOST_SHOWN), strict=False)]
