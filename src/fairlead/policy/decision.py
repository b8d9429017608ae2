"""May a tool be called? A pure function of what the configuration says, with the reason in the result.

First the lists: deny beats allow, of two allow lists a tool must be in both, and an untrusted server needs at
least one. What they let through is decided by rules and approval modes, the strictest of those that speak of
it: deny, then ask, then allow. Where nothing does, a person is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fairlead.catalog.entries import ToolEntry
from fairlead.config.load import LoadedRule, LoadedServer
from fairlead.config.merge import STRICTNESS
from fairlead.config.models import ApprovalMode, Server
from fairlead.policy.arguments import ArgumentReadings, match
from fairlead.policy.claims import is_destructive, is_harmless
from fairlead.policy.tool_patterns import exact_name, is_glob, matches_any, refuses_any
from fairlead.policy.tool_patterns import matches as fits

Verdict = Literal["allow", "ask", "deny"]
Unsaid = ApprovalMode | Literal["reviewed"]
"""What holds where nothing speaks of a tool. `reviewed`: what the lists let through may be called, unless its
server, which we trust, says that it destroys things: for agents that ask their person themselves."""
_Claim = Literal["harmless", "destructive", "unknown"]

_MOST_SETTLED = 4096


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Within:
    """What a bundle takes from a server. One that the user wrote can grant what the entry does not."""

    bundle: str
    allow_tools: tuple[str, ...] | None
    deny_tools: tuple[str, ...]
    grants: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A verdict, why, and who decided: a field of the server's entry or of a bundle's, or a rule."""

    verdict: Verdict
    reason: str
    field: str | None = None
    bundle: str | None = None
    rule: LoadedRule | None = None
    every_time: bool = False
    """Ask about each single call: a rule looks at its arguments, and no earlier answer speaks of those."""


_ALLOWED = Decision(verdict="allow", reason="no rule says otherwise")
_LISTED = Decision(verdict="allow", reason="it is in allow_tools", field="allow_tools")


class CallPolicy:
    """What the configuration says about calls to one server, ready to be asked about each of them."""

    def __init__(self, server: LoadedServer, unsaid: Unsaid = "ask") -> None:
        self.server = server
        self._unsaid: Unsaid = unsaid
        self._settled: dict[tuple[str, Within | None], _Settled] = {}

    def decide(
        self,
        tool: str,
        within: Within | None = None,
        *,
        entry: ToolEntry | None = None,
        arguments: ArgumentReadings | None = None,
    ) -> Decision:
        """May a tool be called? Without `arguments`: may it ever, with arguments that no rule is against?

        Args:
            tool: The tool's own name.
            within: What a bundle takes from the server.
            entry: The tool's definition, where it is known.
            arguments: The readings of the arguments that `argument_patterns` names.
        """
        settled = self._settle(tool, within)
        decision = settled.by_claim[_believed_claim(self.server, entry)]
        if arguments is None or not settled.looking or decision.verdict == "deny":
            return decision
        return _looked_at(decision, settled.looking, arguments)

    def argument_patterns(self, tool: str, within: Within | None = None) -> tuple[Mapping[str, str], ...]:
        """The argument globs of all rules about a tool: `decide` needs readings of what they name."""
        return self._settle(tool, within).patterns

    def _settle(self, tool: str, within: Within | None) -> "_Settled":
        settled = self._settled.get((tool, within))
        if settled is None:
            if len(self._settled) == _MOST_SETTLED:
                self._settled.clear()  # tools that were never listed can be asked for without end
            settled = self._settled[tool, within] = _settle(self.server, tool, within, self._unsaid)
        return settled


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settled:
    """All that can be said about a tool before there is a call."""

    by_claim: Mapping[_Claim, Decision]
    """By what its server says of its effects, if that is believed."""
    looking: tuple[LoadedRule, ...]
    """The rules that look at arguments."""
    patterns: tuple[Mapping[str, str], ...] = ()
    """The argument globs of those rules."""


_CLAIMS: tuple[_Claim, ...] = ("harmless", "destructive", "unknown")


def _settle(server: LoadedServer, tool: str, within: Within | None, unsaid: Unsaid) -> _Settled:
    assert server.config is not None, "nobody calls a server whose entry is not sound"
    lists = listed(server.config, tool, within)
    if lists.verdict == "deny":
        return _Settled(by_claim=dict.fromkeys(_CLAIMS, lists), looking=())
    every = (*server.rules, *server.admin_rules)
    rules = [loaded for loaded in every if loaded.rule.tool is None or _is_about(loaded, tool)]
    plain = [_by_rule(loaded) for loaded in rules if not loaded.rule.arguments]
    looking = tuple(loaded for loaded in rules if loaded.rule.arguments)
    return _Settled(
        by_claim={claim: _strictest(server, tool, plain, claim, unsaid) for claim in _CLAIMS},
        looking=looking,
        patterns=tuple(loaded.rule.arguments for loaded in looking),
    )


def _is_about(loaded: LoadedRule, tool: str) -> bool:
    pattern = loaded.rule.tool
    assert pattern is not None, "it speaks of some tools"
    # A name that was written without escapes still narrows; it does not allow.
    return fits(tool, pattern) or (pattern == tool and loaded.rule.action != "allow")


def _strictest(
    server: LoadedServer, tool: str, by_rules: list[Decision], claim: _Claim, unsaid: Unsaid
) -> Decision:
    assert server.config is not None
    said, harmless = [*by_rules], claim == "harmless"
    own = _own_mode(server.config, tool)
    if own is not None:
        said.append(_by_mode(*own, "approval", harmless=harmless))
    elif not said:
        said.append(_by_default(server, claim, unsaid))
    if server.admin_approval is not None:
        said.append(
            _by_mode(server.admin_approval, " at least, says the administrator", None, harmless=harmless)
        )
    return max(said, key=lambda decision: STRICTNESS[decision.verdict])


def _by_default(server: LoadedServer, claim: _Claim, unsaid: Unsaid) -> Decision:
    if server.approval is None and unsaid == "reviewed":
        if claim == "destructive":
            return Decision(verdict="ask", reason="its server says that it may destroy things")
        return Decision(verdict="allow", reason="it was let through, and nothing says to ask")
    usual: ApprovalMode = "ask" if unsaid == "reviewed" else unsaid
    if usual == "ask" and server.transport == "builtin":
        usual = "auto"
    return _by_mode(server.approval or usual, "", None, harmless=claim == "harmless")


def _looked_at(decision: Decision, rules: tuple[LoadedRule, ...], arguments: ArgumentReadings) -> Decision:
    found = [(loaded, match(loaded.rule.arguments, arguments, narrows=_narrows(loaded))) for loaded in rules]
    narrower = [
        _by_rule(loaded) if matched == "yes" else _by_doubt(loaded)
        for loaded, matched in found
        if matched != "no" and _narrows(loaded)
    ]
    if narrower:
        strictest = max(narrower, key=lambda other: STRICTNESS[other.verdict])
        return replace(strictest, every_time=strictest.verdict == "ask")
    # An allowance for these arguments answers only what no rule and no mode decided: the default question.
    allowing = [loaded for loaded, matched in found if matched == "yes"]
    if allowing and decision.verdict == "ask" and decision.field is None and decision.rule is None:
        return _by_rule(allowing[0])
    return decision


def _narrows(loaded: LoadedRule) -> bool:
    return loaded.rule.action != "allow"


def _by_doubt(loaded: LoadedRule) -> Decision:
    """What holds where a rule that narrows may match: the user decides."""
    globs = ", ".join(f"`{name}: {glob}`" for name, glob in loaded.rule.arguments.items())
    reason = f"a rule of the policy that says `{loaded.rule.action}` for {globs} may apply to these arguments"
    return Decision(verdict="ask", reason=reason, rule=loaded)


def _by_rule(loaded: LoadedRule) -> Decision:
    rule = loaded.rule
    reason = rule.reason or f"a rule of the policy says `{rule.action}`"
    return Decision(verdict=rule.action, reason=reason, rule=loaded)


def _by_mode(mode: ApprovalMode, where: str, field: str | None, *, harmless: bool) -> Decision:
    said = f"approval is `{mode}`{where}"
    if mode == "auto":
        why = "it is said to do no harm" if harmless else "it may do harm, or nobody we trust says otherwise"
        return Decision(verdict="allow" if harmless else "ask", reason=f"{said}: {why}", field=field)
    if field is None and mode == "ask":
        said = "nothing says that it may be called without asking"
    return Decision(verdict=mode, reason=said, field=field)


def _own_mode(server: Server, tool: str) -> tuple[ApprovalMode, str] | None:
    """The mode of a tool as its server's entry says: by its name, else by the strictest glob, else any."""
    said = server.approval
    if said is None or isinstance(said, str):
        return (said, " for its server") if said else None
    named = next((pattern for pattern in said.tools if exact_name(pattern) == tool), None)
    if named is not None:
        return said.tools[named], f" for `{tool}`"
    globs = [glob for glob in said.tools if is_glob(glob) and fits(tool, glob)]
    if globs:
        strictest = max(globs, key=lambda glob: STRICTNESS[said.tools[glob]])
        return said.tools[strictest], f" for `{strictest}`"
    return (said.default, " for its server") if said.default else None


def _believed_claim(server: LoadedServer, entry: ToolEntry | None) -> _Claim:
    if server.config is None or server.config.trust != "trusted" or entry is None:
        return "unknown"
    if is_harmless(entry.definition):
        return "harmless"
    return "destructive" if is_destructive(entry.definition) else "unknown"


def listed(server: Server, tool: str, within: Within | None = None) -> Decision:
    """What the lists of an entry and a bundle say: deny beats allow, and nothing is allowed by accident."""
    if refuses_any(tool, server.deny_tools):
        return Decision(verdict="deny", reason="it is in deny_tools", field="deny_tools")
    if within is not None and (refused := _refused_within(tool, within)) is not None:
        return refused
    if server.allow_tools is not None:
        if matches_any(tool, server.allow_tools):
            return _LISTED
        return Decision(verdict="deny", reason="it is not in allow_tools", field="allow_tools")
    if server.trust == "trusted":
        return _ALLOWED
    if within is not None and within.grants and within.allow_tools is not None:
        reason = f"it is in allow_tools of the bundle `{within.bundle}`"
        return Decision(verdict="allow", reason=reason, field="allow_tools", bundle=within.bundle)
    return Decision(verdict="deny", reason="an untrusted server needs allow_tools", field="trust")


def _refused_within(tool: str, within: Within) -> Decision | None:
    if refuses_any(tool, within.deny_tools):
        reason = f"it is in deny_tools of the bundle `{within.bundle}`"
        return Decision(verdict="deny", reason=reason, field="deny_tools", bundle=within.bundle)
    if within.allow_tools is not None and not matches_any(tool, within.allow_tools):
        reason = f"it is not in allow_tools of the bundle `{within.bundle}`"
        return Decision(verdict="deny", reason=reason, field="allow_tools", bundle=within.bundle)
    return None
