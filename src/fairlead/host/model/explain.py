"""Explain why a model gets a tool directly, behind meta-tools or not at all, with the file and line."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fairlead.catalog.catalog import Absence, Catalog
from fairlead.catalog.naming import NameTable, name_tools
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey, unescape_name
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.merge import FieldPath, ValueOrigin
from fairlead.config.untyped import as_list, value_at
from fairlead.host.model.bundles import Selection
from fairlead.host.model.catalogs import cost_of, is_direct, mode_for
from fairlead.policy.decision import CallPolicy, Decision, Verdict, approval_mode_of, decide_by_lists
from fairlead.policy.tool_names import denies_any, matches, means_key

_LISTS = frozenset({"allow_tools", "deny_tools", "trust"})

ToolState = Literal["direct", "deferred", "unavailable"] | Absence
"""Given to a model as it is, or behind the meta-tools; its server is not there; or why it is not offered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """A reason, and where it is configured. Without a place, it is a built-in default."""

    reason: str
    place: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolExplanation:
    """Explanation of one tool: whether models get it, what decides about its calls, and where that is set."""

    key: ToolKey
    state: ToolState
    because: Reason
    """Why it is in that state."""
    rule: Reason | None
    """Why it is offered or not; None if its server is not selected, or its entry is not valid."""
    verdict: Verdict | None
    """The decision about its calls; None as above."""
    approval: Reason | None
    """Why that happens."""
    name: str
    naming: str
    """Its public name, and why that differs from its own name."""
    gateway_verdict: Verdict | None = None
    """The decision about its calls over a gateway, if `gateway.approval` changes it."""
    remembered: bool = False
    """Whether an approval is remembered, so that its calls need none."""

    @property
    def answer(self) -> str:
        """Its state in one or two words: allow, ask, deny, held back, unavailable."""
        if self.state == "quarantined":
            return "held back"
        return self.verdict or "unavailable"

    @property
    def decided_by(self) -> Reason:
        """The reason for its permission, and where that is configured."""
        return self.because if self.approval is None or self.state == "quarantined" else self.approval


def names_of(config: LoadedConfig, listings: Mapping[str, Listing]) -> NameTable:
    """The public names of all tools."""
    keys = [entry.key for listing in listings.values() for entry in listing.tools]
    rejected = [ToolKey(name, tool.name) for name, listing in listings.items() for tool in listing.rejected]
    first_party = {key for key in keys if config.servers[key.server_id].is_built_in}
    return name_tools(sorted({*keys, *rejected}), config.config.tools.names, first_party=first_party)


def find_tool_keys(name: str, names: NameTable) -> list[ToolKey]:
    """The tools that the user may mean: by `server.tool`, another spelling, a public name, or a tool's own.

    `server.tool` means that tool alone, also where other servers have one of that name. Where nothing else is
    meant, `readFile` is the built-in server's `repo.readFile`.
    """
    server_id, _, tool = name.partition(".")
    exact = {tool, unescape_name(tool), name, unescape_name(name)}
    of_server = [key for key in names.names if key.server_id == server_id]
    if found := [key for key in of_server if key.tool in exact or key.shown_tool == tool]:
        return found
    found = [key for key, public in names.names.items() if name == public or means_key(name, key)]
    return found or [key for key in names.names if key.tool == f"{key.server_id}.{name}"]


class Explainer:
    """Explains which tools of a selection are offered, under which names, and why others are not.

    Args:
        config: The configuration.
        selection: Which tools.
        catalog: The tools that are offered.
        names: The public names of all tools, also of those that are not offered.
        before_defaults: The servers that keep the stricter permission defaults of an earlier release.
    """

    def __init__(
        self,
        config: LoadedConfig,
        selection: Selection,
        catalog: Catalog,
        names: NameTable,
        before_defaults: Collection[str] = (),
    ) -> None:
        self._before_defaults = before_defaults
        self._config = config
        self._selection = selection
        self._over_gateway = replace(selection, approval=config.config.gateway.approval)
        self._catalog = catalog
        self._names = names
        self._cost = cost_of(catalog)
        self._entries: dict[str, dict[ToolKey, ToolEntry]] = {}
        self._policies: dict[str, CallPolicy] = {}

    def explain(self, key: ToolKey) -> ToolExplanation:
        """Explain why a tool is offered, or why it is not."""
        server = self._config.servers[key.server_id]
        offered = self._catalog.of(key)
        name = offered.name if offered else self._names.names[key]
        absence = self._absence(server, key)
        if absence is not None:
            return ToolExplanation(
                key=key,
                state="unavailable",
                because=absence,
                rule=None,
                verdict=None,
                approval=None,
                name=name,
                naming=_explain_name(key, name),
            )
        assert server.config is not None
        bundle_filter = self._selection.bundle_filter(key.server_id)
        by_lists = decide_by_lists(server.config, key.tool, bundle_filter, server_id=key.server_id)
        rule = self._rule(server, key.tool, by_lists)
        policy = self._policies.get(key.server_id)
        if policy is None:
            policy = CallPolicy(server, before_defaults=key.server_id in self._before_defaults)
            self._policies[key.server_id] = policy
        decision = self._selection.decide(policy, key.tool, self._entry(key))
        over_gateway = self._over_gateway.decide(policy, key.tool, self._entry(key)).verdict
        approval = self._approval(server, key.tool, decision) if decision.field not in _LISTS else rule
        state, because = self._state(key, approval)
        return ToolExplanation(
            key=key,
            state=state,
            because=because,
            rule=rule,
            verdict=decision.verdict,
            approval=approval,
            name=name,
            naming=_explain_name(key, name),
            gateway_verdict=over_gateway if over_gateway != decision.verdict else None,
        )

    def _entry(self, key: ToolKey) -> ToolEntry | None:
        entries = self._entries.get(key.server_id)
        if entries is None:
            offering = self._catalog.offerings.get(key.server_id)
            entries = {entry.key: entry for entry in offering.tools} if offering else {}
            self._entries[key.server_id] = entries
        return entries.get(key)

    def _absence(self, server: LoadedServer, key: ToolKey) -> Reason | None:
        """Why the tool's server is not there at all."""
        bundle = self._selection.name
        if not self._selection.has(key.server_id):
            place = _place(self._config, ("bundles", bundle or "", "servers"))
            reason = f"the bundle `{bundle}` has no server `{key.server_id}`"
            return Reason(reason=reason, place=place)
        if server.config is None or not server.usable:
            place = str(server.definition.origin(() if server.enabled else ("enabled",)))
            reason = "its entry is not valid" if server.enabled else "its server is disabled"
            return Reason(reason=reason, place=place)
        return None

    def _state(self, key: ToolKey, denial: Reason) -> tuple[ToolState, Reason]:
        hidden = self._catalog.hidden.get(key)
        if hidden is None:
            return self._explain_delivery(key)
        if hidden.absence == "denied":
            return hidden.absence, denial
        place = hidden.origin or ("its pin" if hidden.absence == "quarantined" else "its definition")
        return hidden.absence, Reason(reason=hidden.reason, place=place)

    def _explain_delivery(self, key: ToolKey) -> tuple[ToolState, Reason]:
        """Whether an offered tool is given directly or behind meta-tools."""
        selection, section = self._selection, _section(self._selection)
        mode = selection.modes.get(key.server_id, selection.mode)
        behind = mode_for(key.server_id, selection, self._cost) == "meta"
        if behind and selection.keeps_direct(key.tool):
            field, reason = (*section, "always_direct"), "`always_direct` names it"
        elif mode == "auto":
            field = (*section, "token_budget")
            reason = (
                f"{len(self._catalog)} tools are about {self._cost:,} tokens, and the budget is"
                f" {selection.token_budget:,}"
            )
        else:
            own = ("servers", key.server_id) if key.server_id in selection.modes else ()
            field = (*section, *own, "mode")
            reason = f"`mode` is `{mode}`"
        direct = is_direct(key, selection, self._cost)
        return "direct" if direct else "deferred", Reason(reason=reason, place=_place(self._config, field))

    def _approval(self, server: LoadedServer, tool: str, decision: Decision) -> Reason:
        """Reason for a decision after the allowlists: a rule, an approval mode, or the default."""
        if decision.rule is not None:
            return Reason(reason=decision.reason, place=str(decision.rule.origin or "the administrator"))
        if decision.field == "approval" and server.config is not None:
            mode = approval_mode_of(server.config, tool, server.server_id)
            path = ("approval", "tools", mode[1]) if mode and mode[1] is not None else ("approval", "default")
            return Reason(reason=decision.reason, place=str(server.definition.origin(path)))
        if decision.is_administrators:
            return Reason(reason=decision.reason, place="the administrator's policy")
        places = [("policy", "approval")]
        if self._selection.approval is not None:
            places.append(("gateway", "approval"))
        written = (place for path in places if (place := _place(self._config, path)) is not None)
        return Reason(reason=decision.reason, place=next(written, None))

    def _rule(self, server: LoadedServer, tool: str, decision: Decision) -> Reason:
        """The list behind a decision, down to the line of the pattern where one matches."""
        field = decision.field or "trust"
        if decision.bundle is not None:
            path = ("bundles", decision.bundle, "servers", server.server_id, field)
            lists = [(value_at(self._config.merged.data, path), self._config.origin(*path))]
        else:
            lists = [(setting.value, setting.origin) for setting in server.definition.settings((field,))]
        narrows = field == "deny_tools"
        for pattern, origin in _patterns(ToolKey(server.server_id, tool), lists, narrows=narrows):
            spelling = "" if pattern == tool else f", as `{pattern}`"
            return Reason(reason=f"{decision.reason}{spelling}", place=str(origin))
        reason = decision.reason if decision.field else "its server is trusted, and no rule matches"
        origin = lists[0][1] if lists else server.definition.origin((field,))
        return Reason(reason=reason, place=str(origin) if origin else None)


def _patterns(
    key: ToolKey, lists: Iterable[tuple[object, ValueOrigin | None]], *, narrows: bool
) -> Iterator[tuple[str, ValueOrigin]]:
    """The patterns that mean a tool, each with its place. Those of a denylist mean it in any spelling."""

    def means(pattern: str) -> bool:
        if narrows:
            return denies_any(key.server_id, key.tool, (pattern,))
        return pattern == key.tool or matches(key.tool, pattern)

    for value, origin in lists:
        for index, pattern in enumerate(as_list(value)):
            if origin and isinstance(pattern, str) and means(pattern):
                yield pattern, ValueOrigin(layer=origin.layer, path=(*origin.path, index))


def _section(selection: Selection) -> tuple[str, ...]:
    return ("tools",) if selection.name is None else ("bundles", selection.name)


def _place(config: LoadedConfig, path: FieldPath) -> str | None:
    """Place where a setting is configured; None if it is not."""
    return str(config.origin(*path)) if value_at(config.merged.data, path) is not None else None


def _explain_name(key: ToolKey, name: str) -> str:
    if key.tool in name:
        return "its server's id and its own name as it is, so that no two tools share one"
    if all(character.isascii() and (character.isalnum() or character in "_-") for character in key.tool):
        return f"cut to {len(name)} characters, which is what every provider takes"
    return "what a provider would not take in a name is written `_`"
