"""The call pipeline: consent, listing, arguments, approval, audit, sending under a deadline, events.

A tool that policy allows with any arguments follows a `CallPlan` and skips the parts that cannot change.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

import msgspec
from anyio import to_thread

from fairlead.catalog.definitions import definition_digest
from fairlead.catalog.results import ToolResult, says_error
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.catalog.schema.effort import is_flat_and_short
from fairlead.catalog.schema.validate import Check, check_of, fit_arguments
from fairlead.catalog.signatures import signature
from fairlead.catalog.tools import Listing
from fairlead.config.argument_types import fits
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.connection.deadlines import Deadline
from fairlead.connection.peer import LoginCount
from fairlead.errors import (
    ArgumentsInvalid,
    AuthRequired,
    CallDenied,
    CallFailed,
    ConsentRequired,
    FairleadError,
    ListFailed,
    ServerError,
    WrongType,
)
from fairlead.events import DOWN, McpToolCallBegin, McpToolCallEnd, McpToolCallProgress
from fairlead.host.call_arguments import encode_arguments
from fairlead.host.clearance import CallClearance
from fairlead.host.events import EventBus
from fairlead.host.managed_server import ManagedServer
from fairlead.host.permission import CallPermission, CallToDecide, Permit, ProposedCall, require_callable
from fairlead.host.records import HostRecords
from fairlead.host.running_calls import RunningCalls
from fairlead.policy.audit import AuditedCall, CallSubject
from fairlead.policy.consent import NAMESPACE, consent_store_key
from fairlead.policy.decision import CallPolicy, Decision
from fairlead.policy.quarantine import ScreenedListing
from fairlead.policy.results import MAX_AS_IT_CAME, ResultSource, as_it_came
from fairlead.servers.framework.tools import UNTRUSTED_RESULTS
from fairlead.store.protocol import Store


async def require_consent(managed: ManagedServer, store: Store | None) -> None:
    """Raise `ConsentRequired` unless a project's entry was approved. Each start checks again."""
    if not managed.awaits_consent:
        return
    key = await to_thread.run_sync(lambda: managed.server.consent)
    if key is not None:
        await require_approved(key, store)
    managed.set_approved(True)


async def require_approved(key: ConsentKey, store: Store | None) -> None:
    """Raise `ConsentRequired` unless exactly this was approved."""
    if store is not None and await store.get(NAMESPACE, consent_store_key(key)) is not None:
        return
    message = f"it comes from {key.file}, and you have not approved this entry and what it runs"
    if store is not None and await store.get(NAMESPACE, key.earlier) is not None:
        message = (
            f"it comes from {key.file}, which you approved with a version of Fairlead that did not"
            " look at what an entry runs: look at it once more"
        )
    raise ConsentRequired(key.server_id, message, hint=f"run `{command_line('approve', key.server_id)}`")


async def listing_of(managed: ManagedServer, store: Store | None, *, fresh: bool = False) -> Listing:
    """The listing of a server: the known one, or with `fresh` one of this run."""
    if managed.listing is not None and not fresh:
        return managed.listing
    connection = managed.live()
    await require_consent(managed, store)
    await connection.ready()
    error, logins = await _list_error(managed), LoginCount()
    while isinstance(error, AuthRequired):
        # It accepts connections without a login, and needs one before it lists anything.
        logins.add(error)
        await connection.log_in(error)
        await connection.ready()
        error = await _list_error(managed)
    if error is not None and (fresh or managed.listing is None):
        raise error
    if managed.listing is None:
        raise ListFailed(managed.server.server_id, "it was closed before it was listed")
    return managed.listing


async def _list_error(managed: ManagedServer) -> ServerError | None:
    """Wait until a connected server has been listed. Returns what went wrong, if anything did."""
    connection = managed.live()
    if connection.vitals.state in DOWN:
        connection.refresh()
    await managed.listed.wait()
    # It need not be in an error state any more: another caller, woken first, may have had it listed again.
    return None if connection.vitals.state == "ready" else connection.vitals.last_error


OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Awaited with progress, total and message whenever the server reports progress."""


class CallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one tool call, besides its arguments."""

    on_progress: OnProgress | None = None
    request_timeout_ms: int | None = None
    full_result: bool = False
    """The whole result, rather than what fits the result budget."""
    max_structured_bytes: int | None = None
    """A budget of its own for structured content; None: it shares the result budget."""
    is_from_gateway: bool = False
    """Whether it has a budget for structured content, and nothing else: what a gateway's calls have."""


DEFAULT_SETTINGS = CallSettings()


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Precomputed plan for calls of a tool that policy allows with any arguments.

    Most calls are of such a tool, and nothing has changed since the last one: to look up the definition, the
    decision and the limits again took half of the time of a call.

    Nothing has to be told that a plan is outdated. It was made of a server's `screened` and `policy`, which
    are replaced whenever a listing, pin, lock, rule or entry changes, and it holds while they are the same.
    """

    screened: ScreenedListing
    policy: CallPolicy
    reason: str
    """Why the policy allows it."""
    check: Check
    subject: CallSubject
    source: ResultSource
    sources: dict[int, ResultSource]
    """The same with budgets of their own for structured content, by their bytes."""
    deadline: Callable[[], Deadline]
    is_held: bool
    """Whether its server is held to pins or a lock. Then it may have to be listed first."""


_MAX_PLANS = 4096
"""For each server: bundles come and go, and each has plans of its own."""


class CallRunner:
    """Runs every tool call of one host."""

    def __init__(
        self,
        records: HostRecords,
        permission: CallPermission,
        bus: EventBus,
        running: RunningCalls,
    ) -> None:
        self._store = records.store
        self._audit = records.audit
        self._artifacts = records.artifacts
        self._permission = permission
        self._bus = bus
        self.running = running

    def call(
        self, proposal: ProposedCall, arguments: Mapping[str, Any], settings: CallSettings
    ) -> Awaitable[ToolResult]:
        """Call a tool and return its result.

        Args:
            proposal: The server, the tool, and who calls.
            arguments: The arguments, by name.
            settings: Timeout, progress and size of the result.
        """
        plan, is_flat = self._plan(proposal), is_flat_and_short(arguments)
        if plan is None or not plan.check.accepts(arguments, is_flat=is_flat):
            return self._permit_and_run(proposal, arguments, settings)
        if is_flat:
            return self._run(proposal, arguments, settings, None, plan)
        audited = self._audit.begin_call(
            principal=proposal.principal,
            server=plan.source.server_id,
            tool=proposal.tool,
            arguments=arguments,
            definition_digest=plan.subject.definition_digest,
        )
        audited.record_decision("allow", plan.reason)
        return self._run(proposal, arguments, settings, audited, plan)

    async def _permit_and_run(
        self, proposal: ProposedCall, arguments: Mapping[str, Any], settings: CallSettings
    ) -> ToolResult:
        audited, call, permit = await self._request_permission(proposal, arguments)
        return await self._run(proposal, call.sent, settings, audited, None, self._clear(call, permit))

    def _clear(self, call: CallToDecide, permit: Permit | None) -> CallClearance:
        """The decision about a call that was permitted, to be renewed if it has to wait."""
        proposal, permission = call.proposal, self._permission
        return CallClearance(
            proposal, call.sent, call.policy, call.screened, permit, permission, self._look_into
        )

    def _plan(self, proposal: ProposedCall) -> CallPlan | None:
        """The plan for a tool that policy allows with any arguments; None for other tools."""
        managed = proposal.managed
        policy = managed.policy
        caller = proposal.caller if policy.tells_callers_apart else None
        key = proposal.tool, proposal.bundle_filter, caller, proposal.default_mode
        plan: CallPlan | None = managed.call_plans.get(key)
        # Is everything about the tool as it was when the plan was made?
        if (
            plan is not None
            and plan.screened is managed.screened
            and plan.policy is policy
            and not managed.awaits_consent
            and not (plan.is_held and managed.is_unchecked)
        ):
            return plan
        entry, screened = managed.entry(proposal.tool), managed.screened
        if entry is None or screened is None or managed.is_unchecked:
            return None
        # A rule about arguments has to see each call's own, so that there is nothing to plan.
        if managed.refusal(proposal.tool) is not None or proposal.argument_patterns:
            return None
        decision = proposal.decide()
        if decision.verdict != "allow":
            return None
        plan = CallPlan(
            screened=screened,
            policy=policy,
            reason=decision.reason,
            check=check_of(entry),
            subject=CallSubject(
                server=managed.server.server_id,
                tool=proposal.tool,
                definition_digest=definition_digest(entry.definition),
            ),
            source=_source(proposal, DEFAULT_SETTINGS),
            sources={},
            deadline=_deadline(managed, DEFAULT_SETTINGS),
            is_held=managed.is_held,
        )
        if len(managed.call_plans) >= _MAX_PLANS:
            managed.call_plans.clear()
        managed.call_plans[key] = plan
        return plan

    def require_possible(self, proposal: ProposedCall) -> None:
        """Raise the error that any call of a tool would be refused with, if there is one.

        Raises:
            CallDenied: Policy denies the tool, or it is quarantined.
            UnknownTool: Its definition cannot be used.
        """
        self._permission.refuse_hopeless(proposal)
        require_callable(proposal)

    async def begin(self, proposal: ProposedCall, arguments: Mapping[str, Any]) -> msgspec.Raw:
        """Call a tool, in the background if its server can, and return what comes first."""
        managed, tool = proposal.managed, proposal.tool
        audited, call, permit = await self._request_permission(proposal, arguments)
        audited.record_sent()
        try:
            raw = await managed.live().begin_tool(
                tool, call.sent, as_task=True, clearance=self._clear(call, permit)
            )
        except BaseException as exc:
            _record_failure(audited, exc)
            raise
        audited.record_result("begun", "done", size=len(raw))
        return raw

    async def deliver(self, raw: msgspec.Raw, proposal: ProposedCall) -> ToolResult:
        """Sanitize a result and cut it to the result budget."""
        source = _source(proposal, DEFAULT_SETTINGS)
        return await self._artifacts.deliver(raw, source, principal=proposal.principal)

    async def _request_permission(
        self, proposal: ProposedCall, arguments: Mapping[str, Any]
    ) -> tuple[AuditedCall, CallToDecide, Permit]:
        """Get permission for a call, asking the user if needed. Returns the call as it was decided about."""
        managed, tool = proposal.managed, proposal.tool
        entry = managed.entry(tool)
        try:
            encode_arguments(arguments)  # first of all: neither records nor schemas take what is no JSON
        except ArgumentsInvalid as exc:
            refused = self._audit.begin_call(
                principal=proposal.principal, server=managed.server.server_id, tool=tool, arguments={}
            )
            refused.record_refusal(exc.code)
            raise
        audited = self._audit.begin_call(
            principal=proposal.principal,
            server=managed.server.server_id,
            tool=tool,
            arguments=arguments,
            definition_digest=definition_digest(entry.definition) if entry else "",
        )
        try:
            known = entry is not None and managed.refusal(tool) is None
            if not known or managed.awaits_consent or managed.is_unchecked:
                await self._look_into(proposal)
            # After the arguments were fitted: the user is shown, and rules judge, what the server will get.
            call = CallToDecide(proposal, await self._fit_to_schema(managed, tool, arguments))
            decision = await self._decide(call)
            permit = await self._permission.permit(call, decision, audited.record_ask)
            if managed.is_unchecked:
                # Its connection ended while the user was asked, and the next run may list another tool.
                await self._look_into(proposal)
        except FairleadError as exc:
            if isinstance(exc, CallDenied):
                audited.record_decision("deny", str(exc))  # the words of other errors may quote the arguments
            audited.record_refusal(exc.code)
            raise
        audited.record_decision("allow", permit.reason, by=permit.by)
        return audited, call, permit

    async def _decide(self, call: CallToDecide) -> Decision:
        """The decision of policy about this very call, by a definition that is known unless it is allowed.

        Raises:
            CallDenied: It is quarantined.
            UnknownTool: Its definition cannot be used.
        """
        proposal = call.proposal
        require_callable(proposal)  # before paths are looked up
        decision = await call.decide()
        if decision.verdict == "allow" or proposal.managed.entry(proposal.tool) is not None:
            return decision
        # The user, and `auto`, must know the definition.
        await listing_of(proposal.managed, self._store)
        return await call.decide()

    async def _look_into(self, proposal: ProposedCall) -> None:
        """Check a tool that is not known for sure: consent, a listing of this run, quarantine."""
        managed, tool = proposal.managed, proposal.tool
        self._permission.refuse_hopeless(proposal)
        await require_consent(managed, self._store)
        if managed.is_unchecked or (managed.refusal(tool) is not None and not managed.is_listed):
            # It may have changed since it was last listed, and this call must not be what finds out.
            await listing_of(managed, self._store, fresh=True)
            self._permission.refuse_hopeless(proposal)
        require_callable(proposal)

    async def _fit_to_schema(
        self, managed: ManagedServer, tool: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The arguments as the tool wants them. What an earlier run saw is no reason to refuse any."""
        try:
            return _fit_to_schema(managed, tool, arguments)
        except ArgumentsInvalid:
            if managed.is_listed:
                raise
        await listing_of(managed, self._store, fresh=True)
        return _fit_to_schema(managed, tool, arguments)

    async def _run(
        self,
        proposal: ProposedCall,
        arguments: Mapping[str, Any] | msgspec.Raw,
        settings: CallSettings,
        audited: AuditedCall | None,
        plan: CallPlan | None,
        clearance: CallClearance | None = None,
    ) -> ToolResult:
        """Send a call that may be made. One that goes by a plan and has no record yet gets one here."""
        managed, tool, bus = proposal.managed, proposal.tool, self._bus
        connection = managed.connection or managed.live()
        call_id = self.running.number()
        source, deadline = _source_and_deadline(proposal, settings, plan)
        on_progress = partial(self._report_progress, call_id, settings.on_progress)
        begun = self._announce(call_id, proposal, source, arguments) if bus.has_listeners else None
        started = time.perf_counter()
        is_error, error = True, None
        if clearance is None:
            assert plan is not None
            clearance = CallClearance(
                proposal, arguments, plan.policy, plan.screened, None, self._permission, self._look_into
            )
        if audited is not None:
            audited.record_sent()
        else:
            assert plan is not None
            assert not isinstance(arguments, msgspec.Raw), "a plan is for arguments that were looked at"
            audited = self._audit.send(plan.subject, proposal.principal, arguments, plan.reason)
        try:
            self.running.begin(call_id)
            raw = await connection.call_tool(
                tool,
                arguments,
                on_progress=on_progress,
                deadline=deadline,
                clearance=clearance,
            )
            result = as_it_came(bytes(raw), source) if len(raw) <= MAX_AS_IT_CAME else None
            if result is None:
                result = await self._artifacts.deliver_cleaned(raw, source, principal=proposal.principal)
            if (notice := connection.take_notice()) is not None:
                result = result.with_note(notice)
            is_error, found = says_error(result.raw), result.remarks.findings
        except BaseException as exc:
            error = _record_failure(audited, exc)
            self.running.blame_user(call_id, source.server_id, exc)
            _blame_arguments(exc, arguments)
            raise
        else:
            audited.record_result(
                "tool_error" if is_error else "ok",
                "done",
                size=len(raw),
                findings=[finding.kind for finding in found] if found else (),
            )
        finally:
            self.running.end(call_id)
            if begun is not None:
                bus.emit(
                    McpToolCallEnd(
                        call_id=call_id,
                        server_id=source.server_id,
                        tool=tool,
                        seconds=time.perf_counter() - started,
                        is_error=is_error,
                        error=error,
                        principal=proposal.principal,
                        shape=begun.shape,
                        arguments=begun.arguments,
                    )
                )
        return result

    def _announce(
        self,
        call_id: int,
        proposal: ProposedCall,
        source: ResultSource,
        arguments: Mapping[str, Any] | msgspec.Raw,
    ) -> McpToolCallBegin:
        shape, values = self._audit.outline(arguments)
        begun = McpToolCallBegin(
            call_id=call_id,
            server_id=source.server_id,
            tool=proposal.tool,
            principal=proposal.principal,
            shape=shape,
            arguments=values,
        )
        self._bus.emit(begun)
        return begun

    async def _report_progress(
        self,
        call_id: int,
        on_progress: OnProgress | None,
        progress: float,
        total: float | None,
        message: str | None,
    ) -> None:
        # A server's text like any other: what is hidden in it reaches neither terminal nor model.
        message = gate.text(message) if message else None
        self._bus.emit(McpToolCallProgress(call_id=call_id, progress=progress, total=total, message=message))
        if on_progress is not None:
            await on_progress(progress, total, message)


@lru_cache(maxsize=64)
def _gateway_settings(max_structured_bytes: int) -> CallSettings:
    """The settings of nearly all calls through a gateway: the same object for the same budget."""
    return CallSettings(max_structured_bytes=max_structured_bytes, is_from_gateway=True)


def call_settings(
    on_progress: OnProgress | None,
    request_timeout_ms: int | None,
    max_structured_bytes: int | None,
    *,
    full: bool,
) -> CallSettings:
    """The settings of a call; the same object for all that want nothing special.

    Raises:
        ArgumentsInvalid: The timeout is no positive number.
        WrongType: Another option is of a wrong type.
    """
    if request_timeout_ms is not None:
        _require_duration(request_timeout_ms)
    if on_progress is None and request_timeout_ms is None and max_structured_bytes is None and not full:
        return DEFAULT_SETTINGS
    if on_progress is not None and not callable(on_progress):
        raise WrongType("`on_progress` is a coroutine function or None; nothing was called")
    if type(max_structured_bytes) is int:
        if on_progress is None and request_timeout_ms is None and not full:
            return _gateway_settings(max_structured_bytes)
    elif not fits(max_structured_bytes, int | None):
        raise WrongType("`max_structured_bytes` is a whole number or None; nothing was called")
    return CallSettings(
        on_progress=on_progress,
        request_timeout_ms=request_timeout_ms,
        full_result=full,
        max_structured_bytes=max_structured_bytes,
    )


def _require_duration(milliseconds: object) -> None:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    if not is_number or not 0 <= cast("float", milliseconds) < math.inf:
        raise ArgumentsInvalid(
            f"`request_timeout_ms` is a number of milliseconds, not {milliseconds!r}; nothing was called",
            hint="give a whole number such as 30000, or leave it out for the server's own timeout",
        )


def _source_and_deadline(
    proposal: ProposedCall, settings: CallSettings, plan: CallPlan | None
) -> tuple[ResultSource, Callable[[], Deadline]]:
    """Source of the result, and a factory of the call's deadline: those of the plan, if they fit."""
    if plan is not None and settings is DEFAULT_SETTINGS:
        return plan.source, plan.deadline
    if plan is None or not settings.is_from_gateway:
        return _source(proposal, settings), _deadline(proposal.managed, settings)
    budget = settings.max_structured_bytes or 0
    source = plan.sources.get(budget)
    if source is None:
        source = plan.sources[budget] = _source(proposal, settings)
    return source, plan.deadline


def _source(proposal: ProposedCall, settings: CallSettings) -> ResultSource:
    """Source of the result, with its budget."""
    managed, tool = proposal.managed, proposal.tool
    entry, server_id = managed.entry(tool), managed.server.server_id
    is_untrusted = tool in UNTRUSTED_RESULTS or f"{server_id}.{tool}" in UNTRUSTED_RESULTS
    return ResultSource(
        server_id=server_id,
        tool=tool,
        trusted=managed.config.trust == "trusted" and not is_untrusted,
        limit=None if settings.full_result else managed.config.max_result_bytes,
        max_structured_bytes=settings.max_structured_bytes,
        definition=entry.definition if entry else None,
    )


def _deadline(managed: ManagedServer, settings: CallSettings) -> Callable[[], Deadline]:
    """A factory of the call's deadline: a new one each time that it is sent."""
    idle = settings.request_timeout_ms or managed.config.request_timeout_ms
    return partial(Deadline, idle / 1000, managed.config.max_request_ms / 1000)


def _blame_arguments(error: BaseException, arguments: Mapping[str, Any] | msgspec.Raw) -> None:
    """Raise `ArgumentsInvalid` where arguments are the reason why a call was not sent.

    They are encoded once, where they are sent; only here it is said what is wrong with them.
    """
    is_unsent = isinstance(error, CallFailed) and error.delivery == "not_sent"
    if is_unsent and not isinstance(arguments, msgspec.Raw):
        encode_arguments(arguments)


def _record_failure(audited: AuditedCall, exc: BaseException) -> str:
    """Record the failure of a call that was sent. Returns its error code."""
    if not isinstance(exc, FairleadError):
        # The server may have carried it out: only the wait for it has ended.
        audited.record_result("cancelled", "unknown")
        return "cancelled"
    audited.record_result(exc.code, exc.delivery)
    return exc.code


def _fit_to_schema(managed: ManagedServer, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as the tool's schema wants them, as far as it is known. Raises `ArgumentsInvalid`."""
    entry = managed.entry(tool)
    if entry is None:
        return arguments  # the server knows better
    fit = fit_arguments(entry, arguments)
    if fit.verdict.outcome == "invalid" and managed.config.check_arguments:
        problems = "\n".join(f"  {problem}" for problem in fit.verdict.problems)
        message = (
            f"the arguments do not fit the schema of `{entry.key.qualified}`, which Fairlead checked before"
            f" the call, so it was not called:\n{problems}"
        )
        # What does not fit is told in the words of the server's schema.
        raise ArgumentsInvalid(
            gate.text(message, 4 * gate.MAX_TEXT_BYTES),
            hint=f"it takes {signature(clean_tool(entry).entry)};"
            f' if the schema is wrong, set "check_arguments": false for server `{entry.key.server_id}`',
        )
    return fit.arguments
