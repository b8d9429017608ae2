"""Decision whether a tool may be called: a pure function of the configuration, with its reason.

First the lists: deny beats allow, a tool must be in both of two allowlists, and an untrusted server needs at
least one. Then rules and approval modes, the strictest that match: deny, ask, allow. A call that the user
confirmed passes an allowlist and needs no approval, but rules, modes and `deny_tools` still deny it. Where
nothing matches there is one default for every surface: tools of a trusted or built-in server follow their
annotations (`auto`), tools of an untrusted server need approval. Annotations of an untrusted server do not
count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import msgspec

from fairlead.catalog.tools import ToolEntry
from fairlead.config.load import LoadedRule, LoadedServer
from fairlead.config.merge import STRICTNESS, ValueOrigin
from fairlead.config.models import ApprovalMode, PolicyRule, Server
from fairlead.config.principal import LOCAL_CALLER, GroupedPrincipal
from fairlead.policy.arguments import ArgumentReadings, match
from fairlead.policy.tool_names import denies_any, escape_name, globs_in, matches_any, qualified_in
from fairlead.policy.tool_names import matches as fits


class _Annotations(msgspec.Struct, rename="camel"):
    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _Annotated(msgspec.Struct):
    annotations: _Annotations | None = None


_decode = msgspec.json.Decoder(_Annotated).decode


@lru_cache(maxsize=16_384)
def _annotations(definition: bytes) -> _Annotations:
    try:
        return _decode(definition).annotations or _Annotations()
    except (ValueError, RecursionError):
        return _Annotations()  # hints that cannot be read say nothing


def is_harmless(definition: bytes) -> bool:
    """Whether the definition annotates the tool read-only, and does not contradict that."""
    annotations = _annotations(definition)
    return annotations.read_only_hint is True and annotations.destructive_hint is not True


def is_destructive(definition: bytes) -> bool:
    """Whether the definition explicitly annotates the tool destructive."""
    return _annotations(definition).destructive_hint is True


def claims_of(definition: bytes) -> tuple[str, ...]:
    """Annotations of a definition in words, to show with an approval or a review."""
    return tuple(_claims(_annotations(definition)))


def _claims(annotations: _Annotations) -> Iterator[str]:
    if annotations.read_only_hint is not None:
        yield "read-only" if annotations.read_only_hint else "modifies data"
    if annotations.destructive_hint is not None and (
        annotations.destructive_hint or not annotations.read_only_hint
    ):
        yield "destructive" if annotations.destructive_hint else "not destructive"
    if annotations.idempotent_hint is not None and not annotations.read_only_hint:
        yield "idempotent" if annotations.idempotent_hint else "not idempotent"
    if annotations.open_world_hint is not None:
        yield "open-world" if annotations.open_world_hint else "closed-world"


Verdict = Literal["allow", "ask", "deny"]
_Claim = Literal["harmless", "destructive", "unknown"]

_MOST_SETTLED = 4096


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BundleFilter:
    """Tools of one server that a bundle selects. The user's own bundle can grant what the entry does not."""

    bundle: str
    allow_tools: tuple[str, ...] | None
    deny_tools: tuple[str, ...]
    grants: bool
    origin: ValueOrigin | None = None
    """Where the bundle says so; None for one that no file has."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Verdict with its reason, and what decided: a field of the server's entry or a bundle's, or a rule."""

    verdict: Verdict
    reason: str
    field: str | None = None
    bundle: str | None = None
    rule: LoadedRule | None = None
    is_administrators: bool = False
    """Whether the administrator's minimum approval mode decides it."""
    every_time: bool = False
    """Ask for every single call: a rule depends on its arguments, which no earlier approval covers."""


_ALLOWED = Decision(verdict="allow", reason="no rule matches")
_LISTED = Decision(verdict="allow", reason="listed in allow_tools", field="allow_tools")


class CallPolicy:
    """Policy for calls to one server.

    Args:
        server: The server as it is configured.
        before_defaults: Whether it was configured before trusted servers followed their annotations. Then its
            calls still need approval until it is reviewed (see `policy.upgrade`).
    """

    def __init__(self, server: LoadedServer, *, before_defaults: bool = False) -> None:
        self.server = server
        self._before_defaults = before_defaults
        self.tells_callers_apart = any(
            loaded.rule.principal is not None for loaded in (*server.rules, *server.admin_rules)
        )
        """Whether any rule names a principal or a group."""
        self._settled: dict[tuple[object, ...], _SettledDecision] = {}

    def decide(  # noqa: PLR0913 - all that a decision depends on
        self,
        tool: str,
        bundle_filter: BundleFilter | None = None,
        *,
        entry: ToolEntry | None = None,
        arguments: ArgumentReadings | None = None,
        caller: GroupedPrincipal = LOCAL_CALLER,
        default: ApprovalMode | None = None,
        confirmed: bool = False,
    ) -> Decision:
        """Decide whether a tool may be called; without `arguments`, whether it may be with harmless ones.

        Args:
            tool: The tool's own name.
            bundle_filter: The tools that a bundle selects from the server.
            entry: The tool's definition, where it is known.
            arguments: The readings of the arguments that `argument_patterns` names.
            caller: The principal of the call.
            default: The surface's approval mode (`gateway.approval`), for tools that no rule and no other
                mode matches.
            confirmed: The user confirmed this very call: then an allowlist without the tool asks only.

        Returns:
            The verdict with its reason and origin.
        """
        settled = self._settle(tool, bundle_filter, caller, default, confirmed=confirmed)
        decision = settled.by_claim[_read_annotation(self.server, entry)]
        if arguments is None or not settled.looking or decision.verdict == "deny":
            return decision
        return _apply_argument_rules(decision, settled.looking, arguments)

    def argument_patterns(
        self,
        tool: str,
        bundle_filter: BundleFilter | None = None,
        caller: GroupedPrincipal = LOCAL_CALLER,
        *,
        confirmed: bool = False,
    ) -> tuple[Mapping[str, str], ...]:
        """Argument globs of all rules about a tool: `decide` needs readings of the arguments they name."""
        return self._settle(tool, bundle_filter, caller, None, confirmed=confirmed).patterns

    def denial_of_server(self, caller: GroupedPrincipal = LOCAL_CALLER) -> Decision | None:
        """The rule that denies a caller the whole server: every tool, with any arguments; None for no such.

        It is about what the server has to read as well, which no rule can name otherwise.
        """
        every = (*self.server.rules, *self.server.admin_rules)
        denials = (
            loaded
            for loaded in every
            if loaded.rule.action == "deny" and loaded.rule.tool is None and not loaded.rule.arguments
        )
        return next((_by_rule(loaded) for loaded in denials if loaded.is_for(caller)), None)

    def _settle(
        self,
        tool: str,
        bundle_filter: BundleFilter | None,
        caller: GroupedPrincipal,
        default: ApprovalMode | None,
        *,
        confirmed: bool,
    ) -> "_SettledDecision":
        key = (tool, bundle_filter, default, caller if self.tells_callers_apart else None, confirmed)
        settled = self._settled.get(key)
        if settled is None:
            if len(self._settled) == _MOST_SETTLED:
                self._settled.clear()  # callers can name unlisted tools without end
            usual = _default_mode(self.server, default, before_defaults=self._before_defaults)
            settled = _settle(self.server, tool, caller, usual)
            lists = (
                decide_by_lists(self.server.config, tool, bundle_filter, server_id=self.server.server_id)
                if self.server.config
                else _ALLOWED
            )
            if lists.verdict == "deny":
                settled = _combine_with_lists(settled, lists, confirmed=confirmed)
            self._settled[key] = settled
        return settled


class _SettledDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Decision about a tool before a call's arguments are known."""

    by_claim: Mapping[_Claim, Decision]
    """By the trusted annotation of the tool."""
    looking: tuple[LoadedRule, ...]
    """Rules that depend on arguments."""
    patterns: tuple[Mapping[str, str], ...] = ()
    """Argument globs of those rules."""


_CLAIMS: tuple[_Claim, ...] = ("harmless", "destructive", "unknown")


def _settle(
    server: LoadedServer, tool: str, caller: GroupedPrincipal, usual: "_DefaultAnswer"
) -> _SettledDecision:
    """Apply rules and modes to a tool, regardless of the lists."""
    assert server.config is not None, "only servers with a valid entry are called"
    every = (*server.rules, *server.admin_rules)
    rules = [loaded for loaded in every if _is_about(loaded.rule, server, tool) and loaded.is_for(caller)]
    plain = [_by_rule(loaded) for loaded in rules if not loaded.rule.arguments]
    looking = tuple(loaded for loaded in rules if loaded.rule.arguments)
    return _SettledDecision(
        by_claim={claim: _strictest(server, tool, plain, claim, usual) for claim in _CLAIMS},
        looking=looking,
        patterns=tuple(loaded.rule.arguments for loaded in looking),
    )


def _combine_with_lists(settled: _SettledDecision, lists: Decision, *, confirmed: bool) -> _SettledDecision:
    """Combine with the lists, which refuse the tool.

    A call that the user confirmed passes an allowlist, so rules and modes must still be able to deny it.
    Otherwise a rule or the administrator that denies the tool is named rather than an allowlist, since a
    review would not help.
    """
    # A denylist is final: not even the user's confirmation of the very call passes it.
    if lists.field == "deny_tools":
        return _SettledDecision(by_claim=dict.fromkeys(_CLAIMS, lists), looking=())
    if confirmed:
        ask = msgspec.structs.replace(lists, verdict="ask")
        by_claim = {
            claim: ask if decision.verdict == "allow" else decision
            for claim, decision in settled.by_claim.items()
        }
        return msgspec.structs.replace(settled, by_claim=by_claim)
    by_claim: dict[_Claim, Decision] = {
        claim: decision if decision.verdict == "deny" and _is_beyond_reviews(decision) else lists
        for claim, decision in settled.by_claim.items()
    }
    return _SettledDecision(by_claim=by_claim, looking=())


def _is_beyond_reviews(decision: Decision) -> bool:
    """Whether a rule or the administrator decides, which a review cannot change."""
    return decision.rule is not None or decision.is_administrators


def _is_about(rule: PolicyRule, server: LoadedServer, tool: str) -> bool:
    if rule.tool is None:
        return True
    # A name written without escapes, or after its server's id, still narrows; it does not allow.
    if rule.action != "allow":
        return denies_any(server.server_id, tool, (rule.tool,))
    return fits(tool, rule.tool)


@dataclass(frozen=True, kw_only=True, slots=True)
class _DefaultAnswer:
    """Default where no rule and no mode matches a tool."""

    mode: ApprovalMode
    reason: str | None = None
    """Why this is the default; None where `mode` was configured."""


def _default_mode(
    server: LoadedServer, configured: ApprovalMode | None, *, before_defaults: bool
) -> _DefaultAnswer:
    """The default mode: `policy.approval`, else the surface's setting, else by the server's trust."""
    if (mode := server.approval or configured) is not None:
        return _DefaultAnswer(mode=mode)
    if server.transport == "builtin":
        return _DefaultAnswer(mode="auto", reason="its server is built in")
    assert server.config is not None
    if server.config.trust != "trusted":
        reason = "its server is untrusted, and no rule allows this tool without approval"
        return _DefaultAnswer(mode="ask", reason=reason)
    if before_defaults:
        reason = "its server was trusted before annotations counted, and has not been reviewed since"
        return _DefaultAnswer(mode="ask", reason=reason)
    return _DefaultAnswer(mode="auto", reason="its server is trusted")


def _strictest(
    server: LoadedServer, tool: str, by_rules: list[Decision], claim: _Claim, usual: _DefaultAnswer
) -> Decision:
    assert server.config is not None
    decisions = [*by_rules]
    own = approval_mode_of(server.config, tool, server.server_id)
    if own is not None:
        mode, pattern = own
        where = " for its server" if pattern is None else f" for `{pattern}`"
        decisions.append(_by_mode(mode, where, "approval", claim=claim))
    elif not decisions:
        decisions.append(_by_default(usual, claim))
    if server.admin_approval is not None:
        least = _by_mode(server.admin_approval, _BY_ADMINISTRATOR, None, claim=claim)
        decisions.append(msgspec.structs.replace(least, is_administrators=True))
    # Rules, the entry's mode and the administrator's minimum only narrow each other, in any order.
    return max(decisions, key=lambda decision: STRICTNESS[decision.verdict])


def _by_default(usual: _DefaultAnswer, claim: _Claim) -> Decision:
    if usual.reason is None:
        return _by_mode(usual.mode, "", None, claim=claim)
    if usual.mode == "auto":
        verdict: Verdict = "allow" if claim == "harmless" else "ask"
        return Decision(verdict=verdict, reason=f"{usual.reason}, and {_CLAIM_WORDS[claim]}")
    return Decision(verdict="ask", reason=usual.reason)


_CLAIM_WORDS: Mapping[_Claim, str] = {
    "harmless": "the tool is annotated read-only",
    "destructive": "the tool is annotated destructive",
    "unknown": "the tool is not annotated read-only",
}


def _apply_argument_rules(
    decision: Decision, rules: tuple[LoadedRule, ...], arguments: ArgumentReadings
) -> Decision:
    found = [(loaded, match(loaded.rule.arguments, arguments, narrows=_narrows(loaded))) for loaded in rules]
    narrower = [
        _by_rule(loaded) if matched == "yes" else _ask_in_doubt(loaded)
        for loaded, matched in found
        if matched != "no" and _narrows(loaded)
    ]
    if narrower:
        strictest = max(narrower, key=lambda other: STRICTNESS[other.verdict])
        return msgspec.structs.replace(strictest, every_time=strictest.verdict == "ask")
    # An allowing rule for these arguments replaces only the default, not a rule's or a mode's decision.
    allowing = [loaded for loaded, matched in found if matched == "yes"]
    by_default = decision.field is None and decision.rule is None and not decision.is_administrators
    if allowing and decision.verdict == "ask" and by_default:
        return _by_rule(allowing[0])
    return decision


def _narrows(loaded: LoadedRule) -> bool:
    return loaded.rule.action != "allow"


def _ask_in_doubt(loaded: LoadedRule) -> Decision:
    """Ask where a narrowing rule may match."""
    if loaded.origin is not None and loaded.origin.layer.name == "project":
        # Its file may be a stranger's, and a model reads this as our own words: nothing of it is quoted.
        where = f"the project's policy rule at {loaded.origin}"
    else:
        globs = ", ".join(f"`{name}: {glob}`" for name, glob in loaded.rule.arguments.items())
        where = f"a policy rule that says `{loaded.rule.action}` for {globs}"
    reason = f"{where} may apply to these arguments"
    return Decision(verdict="ask", reason=reason, rule=loaded)


def _by_rule(loaded: LoadedRule) -> Decision:
    rule = loaded.rule
    reason = rule.reason or f"a policy rule says `{rule.action}`"
    return Decision(verdict=rule.action, reason=reason, rule=loaded)


_BY_ADMINISTRATOR: Final = " at least, as the administrator requires"


def _by_mode(mode: ApprovalMode, where: str, field: str | None, *, claim: _Claim) -> Decision:
    reason = f"approval is `{mode}`{where}"
    if mode == "auto":
        verdict: Verdict = "allow" if claim == "harmless" else "ask"
        return Decision(verdict=verdict, reason=f"{reason}, and {_CLAIM_WORDS[claim]}", field=field)
    return Decision(verdict=mode, reason=reason, field=field)


def approval_mode_of(server: Server, tool: str, server_id: str) -> tuple[ApprovalMode, str | None] | None:
    """Approval mode of a tool in its server's entry.

    Returns:
        The mode and its pattern: the exact name, else the strictest glob, else None for the default. A mode
        that asks or denies holds for the other spellings of a tool, too (see `denies_any`).
    """
    approval = server.approval
    if approval is None or isinstance(approval, str):
        return (approval, None) if approval else None
    named = escape_name(tool)  # the one pattern that matches no other tool; a review writes thousands
    if named in approval.tools:
        return approval.tools[named], named
    patterns = tuple(approval.tools)
    found = [glob for glob in globs_in(patterns) if fits(tool, glob)]
    others = [pattern for pattern, _ in qualified_in(server_id, patterns)]
    own = tool.removeprefix(f"{server_id}.")
    if own != tool:
        others += [escape_name(own), *globs_in(patterns)]
    found += [
        pattern
        for pattern in others
        if approval.tools.get(pattern) in ("ask", "deny") and denies_any(server_id, tool, (pattern,))
    ]
    if found:
        # Not the longest or the first glob: a server chooses its tools' names, and so which globs match.
        strictest = max(found, key=lambda pattern: STRICTNESS[approval.tools[pattern]])
        return approval.tools[strictest], strictest
    return (approval.default, None) if approval.default else None


def stricter_than_review(server: LoadedServer, tool: str, answer: Verdict) -> Decision | None:
    """The rule or administrator's mode that stays stricter than a review's answer about a tool, if any."""
    every = (*server.rules, *server.admin_rules)
    about = [
        loaded for loaded in every if _is_about(loaded.rule, server, tool) and loaded.is_for(LOCAL_CALLER)
    ]
    found = [_by_rule(loaded) for loaded in about if not loaded.rule.arguments]
    if server.admin_approval in ("ask", "deny"):
        least = _by_mode(server.admin_approval, _BY_ADMINISTRATOR, None, claim="unknown")
        found.append(msgspec.structs.replace(least, is_administrators=True))
    strictest = max(found, key=lambda decision: STRICTNESS[decision.verdict], default=None)
    return strictest if strictest and STRICTNESS[strictest.verdict] > STRICTNESS[answer] else None


def _read_annotation(server: LoadedServer, entry: ToolEntry | None) -> _Claim:
    # An untrusted server could annotate anything as read-only to be called without approval.
    if server.config is None or server.config.trust != "trusted" or entry is None:
        return "unknown"
    if is_harmless(entry.definition):
        return "harmless"
    return "destructive" if is_destructive(entry.definition) else "unknown"


def decide_by_lists(
    server: Server, tool: str, bundle_filter: BundleFilter | None = None, *, server_id: str = ""
) -> Decision:
    """Decide by the allowlists and denylists of an entry and a bundle: deny beats allow.

    Args:
        server: The configuration of the server.
        tool: The tool's own name.
        bundle_filter: The tools that a bundle selects from the server.
        server_id: The server's id, which a denylist may name before the tool (`server.tool`).
    """
    if denies_any(server_id, tool, server.deny_tools):
        return Decision(verdict="deny", reason="listed in deny_tools", field="deny_tools")
    if bundle_filter is not None:
        refused = _refusal_by_bundle(server_id, tool, bundle_filter)
        if refused is not None:
            return refused
    if server.allow_tools is not None:
        if matches_any(tool, server.allow_tools):
            return _LISTED
        return Decision(verdict="deny", reason="not listed in allow_tools", field="allow_tools")
    if server.trust == "trusted":
        return _ALLOWED
    if bundle_filter is not None and bundle_filter.grants and bundle_filter.allow_tools is not None:
        reason = f"listed in allow_tools of the bundle `{bundle_filter.bundle}`"
        return Decision(verdict="allow", reason=reason, field="allow_tools", bundle=bundle_filter.bundle)
    reason = "its server is untrusted, and the tool has not been reviewed"
    return Decision(verdict="deny", reason=reason, field="trust")


def _refusal_by_bundle(server_id: str, tool: str, bundle_filter: BundleFilter) -> Decision | None:
    if denies_any(server_id, tool, bundle_filter.deny_tools):
        reason = f"listed in deny_tools of the bundle `{bundle_filter.bundle}`"
        return Decision(verdict="deny", reason=reason, field="deny_tools", bundle=bundle_filter.bundle)
    if bundle_filter.allow_tools is not None and not matches_any(tool, bundle_filter.allow_tools):
        reason = f"not listed in allow_tools of the bundle `{bundle_filter.bundle}`"
        return Decision(verdict="deny", reason=reason, field="allow_tools", bundle=bundle_filter.bundle)
    return None
