"""Permission of calls: the decision of policy and, where it says ask, the user's approval."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

import anyio
import anyio.to_thread
import msgspec
from msgspec import structs

from fairlead.catalog.definitions import digests_of
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import mask_tool
from fairlead.catalog.sanitize.text import reveal_hidden
from fairlead.catalog.tools import ToolKey
from fairlead.config.argument_types import fits, require_types, wrong_type
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedRule
from fairlead.config.models import ApprovalMode
from fairlead.config.principal import LOCAL, LOCAL_CALLER, GroupedPrincipal
from fairlead.config.runners import runs_elsewhere
from fairlead.errors import (
    ApprovalRequired,
    CallDenied,
    FairleadError,
    RunCancelled,
    UnknownTool,
    WrongType,
)
from fairlead.host.call_arguments import fix_arguments
from fairlead.host.managed_server import ManagedServer
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest, Operator
from fairlead.policy.approvals import Approvals, RememberedApproval
from fairlead.policy.arguments import ArgumentReadings, PathContext, read_arguments
from fairlead.policy.decision import BundleFilter, CallPolicy, Decision, claims_of
from fairlead.policy.pins import pins_key
from fairlead.policy.quarantine import ScreenedListing
from fairlead.policy.review import hint_to_undeny, hint_to_write
from fairlead.policy.tool_names import review_command, written_name
from fairlead.servers.framework.tools import PREVIEW_METHOD

PREVIEW_SECONDS: Final = 5.0
"""How long a built-in server may take to tell what a call would change."""
MAX_PREVIEW_BYTES: Final = 64_000

READING_SECONDS: Final = 5.0
"""How long the file system may take to resolve the paths in a call's arguments."""


_APPROVAL_MODES: Final = get_args(ApprovalMode)


class ProposedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as policy decides about it: server, tool, principal and bundle filter, without arguments."""

    managed: ManagedServer
    tool: str
    bundle_filter: BundleFilter | None
    principal: str
    confirmed: bool
    """The user saw and confirmed this very call."""
    groups: frozenset[str] = frozenset()
    """The groups of the principal, as its token says."""
    default_mode: ApprovalMode | None = None
    """The approval mode of tools that no rule and no other mode matches, where the surface has one."""

    @property
    def name(self) -> str:
        """Its tool for messages, as `server.tool`."""
        return written_name(self.managed.server.server_id, self.tool)

    @property
    def caller(self) -> GroupedPrincipal:
        """The principal and its groups, or the local user where no rule names principals."""
        if not self.managed.policy.tells_callers_apart:
            return LOCAL_CALLER
        return GroupedPrincipal(self.principal, self.groups)

    def decide(self, arguments: ArgumentReadings | None = None) -> Decision:
        """The decision of policy about it."""
        return self.managed.policy.decide(
            self.tool,
            self.bundle_filter,
            entry=self.managed.entry(self.tool),
            arguments=arguments,
            caller=self.caller,
            default=self.default_mode,
            confirmed=self.confirmed,
        )

    @property
    def argument_patterns(self) -> tuple[Mapping[str, str], ...]:
        """The argument globs of the rules about its tool."""
        return self.managed.policy.argument_patterns(
            self.tool, self.bundle_filter, self.caller, confirmed=self.confirmed
        )


def check_proposal(  # noqa: PLR0913 - the parts of a proposal
    function: Callable[..., Any],
    server_id: str,
    tool: str,
    bundle_filter: BundleFilter | None,
    principal: str,
    groups: frozenset[str],
    default_mode: ApprovalMode | None,
) -> None:
    """Raise `WrongType`, in the name of `function`, where a part of a proposed call is of a wrong type."""
    if not (
        type(server_id) is type(tool) is type(principal) is str
        and type(groups) is frozenset
        and (bundle_filter is None or type(bundle_filter) is BundleFilter)
        and (default_mode is None or default_mode in _APPROVAL_MODES)
    ):
        require_types(function, server_id=server_id)
        if type(tool) is not str:
            raise wrong_type(function, "tool", str, tool)
        require_types(
            function,
            principal=principal,
            groups=groups,
            bundle_filter=bundle_filter,
            default_mode=default_mode,
        )


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call may be made, and whether policy or the user decided that."""

    by: Literal["policy", "person", "earlier answer"]
    reason: str
    approval: RememberedApproval | None = None
    """The identity of the call that the user approved, where its definition is known."""


@dataclass(eq=False, slots=True)
class _Line:
    """The calls that wait to ask about one tool."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    length: int = 0


class CallToDecide:
    """A proposed call with its arguments, to be decided by the rules that are in force at that moment.

    Rules change while a call waits, and a new one may look at other arguments, or at the same by another
    glob: the readings of before never decide by the rules of now.
    """

    def __init__(self, proposal: ProposedCall, arguments: Mapping[str, Any]) -> None:
        self.proposal = proposal
        self._fixed: tuple[Mapping[str, Any], msgspec.Raw] | None = None
        self._arguments = arguments
        self._patterns: tuple[Mapping[str, str], ...] = ()
        """The argument globs of the rules that `_readings` were made for."""
        self._readings: ArgumentReadings | None = None
        self.policy: CallPolicy | None = None
        """What decided about it last."""
        self.screened: ScreenedListing | None = None
        """The listing that had its definition then."""

    @property
    def shown(self) -> Mapping[str, Any]:
        """The arguments that rules look at and the user is shown: from now on, these are the ones sent."""
        if self._fixed is None:
            self._fixed = fix_arguments(self._arguments)
        return self._fixed[0]

    @property
    def sent(self) -> Mapping[str, Any] | msgspec.Raw:
        """What is sent to the server."""
        return self._fixed[1] if self._fixed is not None else self._arguments

    async def decide(self, *, anew: bool = False) -> Decision:
        """The decision of policy about it, by the rules as they are when this returns.

        Args:
            anew: Whether paths are looked up once more, after a wait.

        Raises:
            CallDenied: It is quarantined, or the file system does not answer.
            UnknownTool: Its definition cannot be used.
        """
        while anew or self._patterns != self.proposal.argument_patterns:
            anew, patterns = False, self.proposal.argument_patterns
            self._readings = await _read_for_rules(self.proposal, patterns, self.shown) if patterns else None
            self._patterns = patterns
        require_callable(self.proposal)
        self.policy, self.screened = self.proposal.managed.policy, self.proposal.managed.screened
        decision = self.proposal.decide(self._readings)
        if decision.verdict == "ask" and self._fixed is None:
            self._fixed = fix_arguments(self._arguments)  # before any wait: what was decided about is sent
        return decision

    @property
    def needs_approval(self) -> bool:
        """Whether policy still says `ask` now; False where that takes another look at the arguments."""
        proposal = self.proposal
        if proposal.managed.is_retired or self._patterns != proposal.argument_patterns:
            return False
        return proposal.decide(self._readings).verdict == "ask"


@dataclass(eq=False, slots=True)
class _WaitingCall:
    """A call that waits for the user's approval."""

    call: CallToDecide
    scope: anyio.CancelScope


class CallPermission:
    """Decides about the calls of one host. One approval at a time is open for each tool and principal."""

    def __init__(
        self,
        operator: Operator,
        approvals: Approvals,
        config: Callable[[], LoadedConfig],
        filter_in_force: Callable[[LoadedConfig, str, str], BundleFilter | None],
    ) -> None:
        self._operator = operator
        self._approvals = approvals
        self._config = config
        self._filter_in_force = filter_in_force
        self._lines: dict[tuple[str, str, str], _Line] = {}
        self._waiting: set[_WaitingCall] = set()

    def refuse_hopeless(self, proposal: ProposedCall) -> None:
        """Raise `CallDenied` if the tool is denied with any arguments, before a server is contacted."""
        refusal = proposal.managed.refusal(proposal.tool)
        if refusal is not None and refusal.kind == "quarantined":
            require_callable(proposal)  # for the others, the server may have mended its definition
        decision = proposal.decide()
        if decision.verdict == "deny":
            raise denial(proposal, decision)

    def current(self, proposal: ProposedCall) -> ProposedCall:
        """The same call under its bundle, and its gateway's approval mode, as they are configured now.

        Raises:
            CallDenied: There is no such bundle any more, or it does not have the server.
        """
        old, mode, config = proposal.bundle_filter, proposal.default_mode, self._config()
        now = old
        if old is not None and old.origin is not None:  # else a program's own, which no file changes
            now = self._filter_in_force(config, old.bundle, proposal.managed.server.server_id)
            if now is None:
                raise CallDenied(
                    f"`{proposal.name}` was not called: while it waited, it was taken out of the bundle"
                    f" `{old.bundle}`"
                )
        if mode is not None:
            mode = config.config.gateway.approval
        if (now, mode) == (old, proposal.default_mode):
            return proposal
        return structs.replace(proposal, bundle_filter=now, default_mode=mode)

    async def permit(
        self, call: CallToDecide, decision: Decision, on_approval_request: Callable[[], None]
    ) -> Permit:
        """Permit a call that policy allows, and ask the user where policy says `ask`.

        Args:
            call: The call.
            decision: What policy decided about it just now.
            on_approval_request: Called before the user is prompted.

        Raises:
            CallDenied: Policy or the user denied it.
            ApprovalRequired: The operator cannot ask.
        """
        proposal = call.proposal
        permit = await self._permit_unasked(call, decision)
        if permit is not None:
            return permit
        # Fails rather than waits: without a user the call would hang until its client gives up.
        if "approve" not in self._operator.abilities:
            raise _approval_required_error(proposal, decision)
        is_recorded = False
        async with self._alone(proposal):
            while True:
                # Meanwhile a review may have settled it, and the answer to an earlier call may hold for it.
                decision = await self._decide_again(call)
                permit = await self._permit_unasked(call, decision)
                if permit is None:
                    if not is_recorded:
                        on_approval_request()
                        is_recorded = True
                    permit = await self._ask(call, decision)
                if permit is not None:
                    return permit

    def decide_again(self) -> None:
        """Apply changed rules and modes to the calls that wait for approval."""
        for waiting in [*self._waiting]:
            if not self._needs_approval(waiting.call):
                waiting.scope.cancel()

    def _needs_approval(self, call: CallToDecide) -> bool:
        """Whether policy still says `ask`; a call whose bundle is gone is decided where it waits."""
        try:
            call.proposal = self.current(call.proposal)
        except CallDenied:
            return False
        return call.needs_approval

    async def _decide_again(self, call: CallToDecide) -> Decision:
        """Decide on a call that waited: meanwhile a review or an edit may have denied or allowed it.

        Raises:
            CallDenied: Its server is no longer there as it was, it is quarantined, or its bundle is gone.
        """
        call.proposal = self.current(call.proposal)
        decision = await call.decide(anew=True)
        if call.proposal.managed.is_retired:
            raise CallDenied(
                f"`{call.proposal.name}` was not called: while it waited for an answer, its server was"
                " disabled or changed",
                hint="check it with `fairlead status`, then call it again",
            )
        return decision

    async def is_still_approved(self, approval: RememberedApproval | None) -> bool:
        """Whether an earlier answer still holds: it may have been withdrawn, by another process too."""
        return approval is not None and await self._approvals.look_up(approval)

    async def allow_always(self, proposal: ProposedCall) -> None:
        """Remember an approval of a tool as it is defined now. Raises `UnknownTool` if it is not known."""
        await self._approvals.allow_always(_require_approval_key(proposal))

    def allow_for_session(self, proposal: ProposedCall) -> None:
        """The same for as long as this host is open."""
        self._approvals.allow_for_session(_require_approval_key(proposal))

    @asynccontextmanager
    async def _alone(self, proposal: ProposedCall) -> AsyncGenerator[None]:
        """Wait until no other approval of this tool is open for this principal."""
        key = (proposal.principal, proposal.managed.server.server_id, proposal.tool)
        line = self._lines.setdefault(key, _Line())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[key]

    async def _permit_unasked(self, call: CallToDecide, decision: Decision) -> Permit | None:
        """Permit a call by policy, the user's confirmation or an earlier answer; None where none does."""
        proposal = call.proposal
        if decision.verdict == "allow":
            return Permit(by="policy", reason=decision.reason)
        if decision.verdict == "deny":
            raise denial(proposal, decision)
        # After `deny`: the user's word for this very call stands in for an answer, not for a rule.
        if proposal.confirmed:
            return Permit(by="person", reason="confirmed by user", approval=approval_of(proposal))
        approval = approval_of(proposal)
        if approval is None or decision.every_time or not await self._approvals.look_up(approval):
            return None
        now = await call.decide()  # rules may have changed while the store was read
        if now.verdict == "deny":
            raise denial(proposal, now)
        if now.every_time or approval != approval_of(proposal):
            return None
        return Permit(by="earlier answer", reason="approved by user earlier", approval=approval)

    async def _ask(self, call: CallToDecide, decision: Decision) -> Permit | None:
        """Ask the user; None where rules changed before the answer, so that the call is decided anew."""
        proposal = call.proposal
        server_id, entry = proposal.managed.server.server_id, proposal.managed.entry(proposal.tool)
        approval = approval_of(proposal)
        request = ApprovalRequest(
            server_id=server_id,
            tool=proposal.tool,
            arguments=dict(call.shown),
            reason=decision.reason,
            claims=claims_of(entry.definition) if entry else (),
            remember=approval is not None and not decision.every_time,
            principal=proposal.principal,
            hint=_hint_to_allow(proposal, decision),
            preview=await _preview(proposal, call.shown),
        )
        revision = await self._approvals.revision(server_id)
        answer: ApprovalAnswer | None = None
        waiting = _WaitingCall(call, anyio.CancelScope())
        self._waiting.add(waiting)
        try:
            # `decide_again` sees it from here on; a change before that is seen here.
            if not self._needs_approval(call):
                return None
            with waiting.scope:
                answer = await self._operator.approve(request)
        finally:
            self._waiting.discard(waiting)
        if waiting.scope.cancelled_caught:
            return None
        # The tool may have been reviewed, denied or disabled while the approval was open.
        now = await self._decide_again(call)
        if now.verdict == "deny":
            raise denial(call.proposal, now)
        if not fits(answer, ApprovalAnswer):  # None or False must not count as a yes
            raise WrongType(
                f"`{proposal.name}` was not called: the operator's answer is not valid",
                hint="`approve` returns `once`, `session`, `always`, `no` or `cancel`",
            )
        if answer == "no":
            raise CallDenied(
                f"`{proposal.name}` was not called: the user denied it",
                hint="do not try it again unless the user asks for it",
            )
        if answer == "cancel":
            raise RunCancelled(f"`{proposal.name}` was not called: the run was cancelled")
        # A tool that changed while the approval was open is not the tool that was approved.
        same = approval is not None and approval == approval_of(proposal)
        if approval is not None and same and not (decision.every_time or now.every_time):
            if answer == "session":
                self._approvals.allow_for_session(approval, revision)
            elif answer == "always":
                await self._approvals.allow_always(approval)
        return Permit(by="person", reason=f"approved by user (`{answer}`)", approval=approval)


async def _preview(proposal: ProposedCall, arguments: Mapping[str, Any]) -> str | None:
    """Change that a call of a built-in server would make; None where it has no preview.

    Other servers get no preview request: they might take it for the call.
    """
    managed = proposal.managed
    if managed.server.transport != "builtin":
        return None
    params = {"name": proposal.tool, "arguments": dict(arguments)}
    with anyio.move_on_after(PREVIEW_SECONDS):
        try:
            raw = await managed.live().request(PREVIEW_METHOD, params, safe_to_repeat=True)
        except FairleadError:
            return None  # the user is prompted all the same, and sees the arguments
        preview = msgspec.json.decode(raw, type=_PreviewResult).preview
        # What is hidden in a file is shown: the user decides by what this says.
        return None if preview is None else gate.content(reveal_hidden(preview), MAX_PREVIEW_BYTES)
    return None


class _PreviewResult(msgspec.Struct):
    preview: str | None = None


async def _read_for_rules(
    proposal: ProposedCall, patterns: tuple[Mapping[str, str], ...], arguments: Mapping[str, Any]
) -> ArgumentReadings:
    """The readings of the arguments that rules look at.

    Symbolic links are looked up in a thread, since a file system may hang; one that does not answer in time
    raises `CallDenied`.
    """
    context = _path_context(proposal.managed)
    # A network drive may hang for minutes, and its thread cannot be interrupted: it is left behind.
    with anyio.move_on_after(READING_SECONDS):
        return await anyio.to_thread.run_sync(
            read_arguments, patterns, arguments, context, abandon_on_cancel=True
        )
    raise CallDenied(
        f"`{proposal.name}` was not called: a rule looks at its arguments, and the file system"
        f" did not say in {READING_SECONDS:.0f} s where their paths lead",
        hint="check that network drives are reachable, then call it again",
    )


def _path_context(managed: ManagedServer) -> PathContext:
    """Meaning of relative paths and `~` for a server: known for a local process, not for a remote one."""
    server, config = managed.server, managed.config
    declared: Mapping[str, str] = getattr(config, "env", {})
    homes = [declared.get("HOME"), os.environ.get("HOME"), os.path.expanduser("~")]
    known = dict.fromkeys(home for home in homes if home and home.startswith("/"))
    argv = (str(getattr(config, "command", None) or ""), *getattr(config, "args", ()))
    if server.transport in ("http", "sse") or runs_elsewhere(argv):
        return PathContext(cwd=None, homes=tuple(known))
    folder = server.working_folder(config)
    return PathContext(cwd=os.path.abspath(folder) if folder else os.getcwd(), homes=tuple(known))


def denial(proposal: ProposedCall, decision: Decision) -> CallDenied:
    """The error for a call that may not be made: what decides it and where, and what would allow it."""
    origin = None
    if decision.rule is not None:
        origin = decision.rule.origin
    elif decision.field is not None and decision.bundle is None:
        origin = proposal.managed.server.definition.origin((decision.field,))
    # Where the operator's files are is for the operator: another principal gets the reason without the path.
    where = f" ({origin})" if origin and proposal.principal == LOCAL else ""
    return CallDenied(
        f"`{proposal.name}` may not be called: {decision.reason}{where}",
        hint=_hint_to_allow(proposal, decision),
    )


def _hint_to_allow(proposal: ProposedCall, decision: Decision) -> str:
    """The one command or edit that allows the call, or makes it need no approval."""
    server, key = proposal.managed.server, ToolKey(proposal.managed.server.server_id, proposal.tool)
    call = f"`{command_line('call', key.server_id, key.typed_tool, options=('--yes',))}`"
    if decision.rule is not None:
        place = _place_of_rule(proposal, decision.rule)
        if decision.verdict == "deny":
            return f"a rule denies it: change that rule in {place}"
        return f"call it yourself, with its arguments: {call}; or change the rule in {place}"
    if decision.bundle is not None:
        field = f"bundles.{decision.bundle}.servers.{key.server_id}.{decision.field}"
        return f"change `{field}` in {_place_of_bundle(proposal, decision)}, or call it yourself: {call}"
    if decision.is_administrators:
        if decision.verdict == "deny":
            return "the administrator of this machine denies it, and would have to allow it"
        return f"call it yourself, with its arguments: {call}"
    is_local = proposal.principal == LOCAL
    kept = hint_to_undeny(server, key, shows_files=is_local) if decision.field == "deny_tools" else None
    by_hand = hint_to_write(server) if is_local else None
    return kept or by_hand or f"run `{review_command(key)}` to allow it"


def _place_of_bundle(proposal: ProposedCall, decision: Decision) -> str:
    origin = proposal.bundle_filter.origin if proposal.bundle_filter is not None else None
    if origin is None or proposal.principal != LOCAL:
        return "the gateway's configuration"
    return str(replace(origin, path=(*origin.path, decision.field or "allow_tools")))


def _place_of_rule(proposal: ProposedCall, rule: LoadedRule) -> str:
    if rule.origin is None:
        return "the administrator's policy"
    return str(rule.origin) if proposal.principal == LOCAL else "the gateway's configuration"


def _approval_required_error(proposal: ProposedCall, decision: Decision) -> ApprovalRequired:
    return ApprovalRequired(
        f"`{proposal.name}` must be approved, and there is no one to ask: {decision.reason}",
        hint=_hint_to_allow(proposal, decision),
    )


def require_callable(proposal: ProposedCall) -> None:
    """Raise unless the tool may be called now, as far as pins, locks and its definition go.

    Raises:
        CallDenied: It is quarantined.
        UnknownTool: Its definition cannot be used, or its server, which needs pins, does not list it.
    """
    refusal = proposal.managed.refusal(proposal.tool)
    if refusal is None:
        return
    server_id = proposal.managed.server.server_id
    if refusal.kind == "quarantined":
        raise CallDenied(f"`{proposal.name}` may not be called: {refusal.reason}", hint=refusal.hint)
    if refusal.kind == "unlisted":
        raise UnknownTool(
            f"`{server_id}` has no tool `{proposal.tool}`: {refusal.reason}",
            hint=f"run `{command_line('tools', server_id)}` to see its tools",
        )
    raise UnknownTool(
        f"`{server_id}` defines `{proposal.tool}` in a way that cannot be used: {refusal.reason}"
    )


def _require_approval_key(proposal: ProposedCall) -> RememberedApproval:
    """Identity of an approval. Raises if the tool is quarantined, or its definition is not known."""
    require_callable(proposal)
    approval = approval_of(proposal)
    if approval is None:
        raise UnknownTool(f"the definition of `{proposal.name}` is not known")
    return approval


def approval_of(proposal: ProposedCall) -> RememberedApproval | None:
    """Identity of an approval; None if the tool is not known, so that nothing can be remembered."""
    entry = proposal.managed.find_listed_entry(proposal.tool)
    if entry is None:
        return None
    server = proposal.managed.server
    return RememberedApproval(
        principal=proposal.principal,
        server_id=server.server_id,
        server_digest=pins_key(server),
        tool=proposal.tool,
        # Some servers write another default into their schemas at every start, which is no other tool. The
        # answers that earlier releases kept are bound to format 1, and pins see to all else.
        definition_digest=digests_of(mask_tool(entry).entry.definition, 1).loose,
    )
