"""Explain what a server's tools may do for a caller: the answer, the rule and the line that decide it."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fairlead.actions.known_catalog import KnownCatalog, read_catalog
from fairlead.actions.saved_state import read_answers
from fairlead.catalog.tools import ToolKey
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig
from fairlead.config.principal import (
    LOCAL,
    OAUTH_SUBJECT,
    TOKEN_OWNER,
    GroupedPrincipal,
    bundles_granted,
    oauth_principal,
)
from fairlead.config.store_location import store_location
from fairlead.errors import Remedy, UnknownBundle
from fairlead.host.model.bundles import Selection
from fairlead.host.model.explain import Explainer, ToolExplanation, find_tool_keys, names_of

if TYPE_CHECKING:
    from fairlead.host.host import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class CallerView:
    """The caller that an explanation is for, and the bundle that they get."""

    caller: GroupedPrincipal
    bundle: str | None
    notes: list[str] = field(default_factory=list[str])
    """How the user's words were read."""


def view_for(
    loaded: LoadedConfig, principal: str = LOCAL, groups: Collection[str] = (), bundle: str | None = None
) -> CallerView:
    """The caller that a name means, and the bundle it gets.

    Args:
        loaded: The configuration.
        principal: A principal. A name without a prefix is a gateway token's, else a subject of the issuer.
        groups: The groups it is in.
        bundle: The bundle to explain; by default the only one that the gateway lets the caller use.

    Raises:
        UnknownBundle: The gateway does not let the caller use it, or there are several to choose from.
    """
    caller = GroupedPrincipal(find_principal(loaded, principal), frozenset(groups))
    notes: list[str] = []
    if caller.principal != principal:
        notes.append(f"`{principal}` is the principal `{caller.principal}`")
    allowed = _bundles_allowed(loaded, caller)
    if allowed is None or bundle in allowed:
        return CallerView(caller=caller, bundle=bundle, notes=notes)
    chosen = _only_bundle(caller, allowed, bundle)
    notes.append(f"the gateway lets `{caller.principal}` use the bundle `{chosen}`, and nothing else")
    return CallerView(caller=caller, bundle=chosen, notes=notes)


def find_principal(loaded: LoadedConfig, name: str) -> str:
    """The principal that a name means: a name without a prefix is a gateway token's, else an issuer's."""
    if name == LOCAL or name.startswith((TOKEN_OWNER, OAUTH_SUBJECT)):
        return name
    from fairlead.actions.tokens import named_tokens

    if any(
        name == (token.principal or token.name)
        for token in named_tokens(os.environ, store_location(os.environ, loaded.config.store)).read()
    ):
        return f"{TOKEN_OWNER}{name}"
    oauth = loaded.config.gateway.oauth
    return oauth_principal(oauth.issuer, name) if oauth is not None else name


def _only_bundle(caller: GroupedPrincipal, allowed: frozenset[str], bundle: str | None) -> str:
    who = f"`{caller.principal}`"
    if not allowed:
        raise UnknownBundle(
            f"the gateway does not let {who} in: `gateway.oauth.bundles` maps neither it nor its groups",
            hint="map it there, or name its groups",
            remedy=Remedy(input="group"),
        )
    names = " and ".join(f"`{name}`" for name in sorted(allowed))
    if bundle is not None:
        message = f"the gateway does not let {who} use the bundle `{bundle}`, but {names}"
    elif len(allowed) > 1:
        message = f"the gateway lets {who} use the bundles {names}, and nothing else"
    else:
        return min(allowed)
    raise UnknownBundle(message, hint="choose one of them", remedy=Remedy(input="bundle", value=min(allowed)))


def _bundles_allowed(loaded: LoadedConfig, caller: GroupedPrincipal) -> frozenset[str] | None:
    """The only bundles that the gateway lets a caller use; None for all."""
    if caller.principal.startswith(TOKEN_OWNER):
        from fairlead.actions.tokens import named_tokens

        owners = [
            token.owner
            for token in named_tokens(os.environ, store_location(os.environ, loaded.config.store)).read()
        ]
        tokens = [owner.bundles for owner in owners if owner.principal == caller.principal]
        limited = [bundles for bundles in tokens if bundles is not None]
        return frozenset[str]().union(*limited) if limited and len(limited) == len(tokens) else None
    oauth = loaded.config.gateway.oauth
    if oauth is None or not caller.principal.startswith(OAUTH_SUBJECT):
        return None
    return bundles_granted(oauth.bundles, oauth.issuer, caller)


def explain_server_tools(loaded: LoadedConfig, server_id: str, view: CallerView) -> list[ToolExplanation]:
    """Explain the tools of a server as far as they are known. Contacts no server."""
    found = read_catalog(loaded, view.bundle, view.caller)
    keys = [key for key in names_of(loaded, found.listings).names if key.server_id == server_id]
    return explain_tools(found, keys, view)


def find_tools(found: KnownCatalog, name: str) -> list[ToolKey]:
    """The known tools that a name may mean: a public name, or a tool's own, alone or after its server's."""
    return find_tool_keys(name, names_of(found.loaded, found.listings))


def explain_tools(found: KnownCatalog, keys: Iterable[ToolKey], view: CallerView) -> list[ToolExplanation]:
    """Explain tools of a catalog to a caller."""
    names = names_of(found.loaded, found.listings)
    explainer = Explainer(found.loaded, found.selection, found.catalog, names, found.before_defaults)
    return _explain(found.loaded, explainer, keys, view.caller.principal)


async def explain_live_tools(
    host: "Host",
    loaded: LoadedConfig,
    server_id: str,
    selection: Selection,
    *,
    most: int | None = None,
    only: str | None = None,
) -> list[ToolExplanation]:
    """Explain the tools of a server to the local user, as a running host has them.

    Args:
        host: The host.
        loaded: The configuration that it runs with.
        server_id: The server.
        selection: The selection as which its tools are offered.
        most: How many of its tools to explain, the first by name; all if None.
        only: The one tool to explain, by its own name; all if None.

    Returns:
        The explanations; none where the server was not listed yet.
    """
    from anyio import to_thread

    catalog = host.catalog(selection)
    # Not the servers that are part of this program: no entry says anything about them.
    known = [each for each in host.servers if each.server.server_id in loaded.servers and each.screened]
    listings = {each.server.server_id: each.screened.listing for each in known if each.screened}
    before_defaults = {each.server.server_id for each in known if each.before_defaults}

    def explain() -> list[ToolExplanation]:
        own = {server_id: listings[server_id]}
        keys = [key for key in names_of(loaded, own).names if only is None or key.tool == only][:most]
        # Tools that are offered have a name already: to name all of 10,000 takes longer than all else here.
        is_offered = all(catalog.of(key) for key in keys)
        names = names_of(loaded, own if is_offered else listings)
        explainer = Explainer(loaded, selection, catalog, names, before_defaults)
        return _explain(loaded, explainer, keys, LOCAL)

    return await to_thread.run_sync(explain) if server_id in listings else []


def _explain(
    loaded: LoadedConfig, explainer: Explainer, keys: Iterable[ToolKey], principal: str
) -> list[ToolExplanation]:
    return _with_answers(loaded, [explainer.explain(key) for key in keys], principal)


def _with_answers(
    loaded: LoadedConfig, explained: Sequence[ToolExplanation], principal: str
) -> list[ToolExplanation]:
    """The same, with what was answered for good: such calls are made, though the configuration asks."""
    kept = [found for _, found in read_answers(loaded) if found.principal == principal]
    answered = {(found.server_id, found.tool) for found in kept}

    def is_answered(tool: ToolExplanation) -> bool:
        return tool.verdict == "ask" and (tool.key.server_id, tool.key.tool) in answered

    return [replace(tool, remembered=is_answered(tool)) for tool in explained]


def reason_in_short(tool: ToolExplanation) -> str:
    """The reason for a tool's permission, in one line."""
    reason = tool.decided_by.reason
    if tool.gateway_verdict is not None:
        reason += f"; over a gateway: {tool.gateway_verdict}, by `gateway.approval`"
    if tool.remembered:
        reason += f"; allowed by a remembered answer: {describe_forgetting(tool)}"
    return reason


def describe_forgetting(tool: ToolExplanation) -> str:
    """The command that forgets the remembered approval of a tool."""
    command = command_line("approvals forget", tool.key.server_id, tool.key.typed_tool)
    return f"`{command}` forgets the approval"
