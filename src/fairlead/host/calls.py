"""A tool call on its way: fitted, permitted, announced, sent under its clock, and announced again."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from fairlead.catalog import gate
from fairlead.catalog.cleaning import clean_tool
from fairlead.catalog.digest import definition_digest
from fairlead.catalog.results import ToolResult
from fairlead.catalog.signatures import signature
from fairlead.catalog.validation import fit_arguments
from fairlead.connection.deadline import Deadline
from fairlead.errors import ArgumentsInvalid, CallDenied, FairleadError
from fairlead.events import CallFinished, CallProgressed, CallStarted
from fairlead.host.bus import EventBus
from fairlead.host.member import Member
from fairlead.host.permission import Permission, Proposal, fixed, read_for_rules, require_callable
from fairlead.host.readiness import listing_of, require_consent
from fairlead.host.records import Records
from fairlead.policy.audit import AuditedCall
from fairlead.policy.results import Source
from fairlead.servers.definition import UNTRUSTED_RESULTS

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how far a call is: progress, total and a message, as far as the server says."""


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to know of a call, and allows it."""

    on_progress: OnProgress | None = None
    request_timeout_ms: int | None = None
    whole: bool = False
    """The result as large as it is, rather than what of it a model may be handed."""
    max_structured_bytes: int | None = None
    """Structured content up to this size beside the budget, for a program that checks it; None: within it."""


class Calls:
    """The way of every tool call of one host, whoever makes it."""

    def __init__(
        self, records: Records, permission: Permission, bus: EventBus, ids: Iterator[int] | None = None
    ) -> None:
        self._store = records.store
        self._audit = records.audit
        self._artifacts = records.artifacts
        self._permission = permission
        self._bus = bus
        self.ids = ids or count(1)
        """What calls are known by. Hosts beside each other have the same, so that no two calls do."""

    async def call(
        self, proposal: Proposal, arguments: Mapping[str, Any], options: CallOptions
    ) -> ToolResult:
        """Call a tool and return its result."""
        audited, sent = await self._permitted(proposal, arguments)
        return await self._run(proposal, sent, options, audited)

    async def begin(self, proposal: Proposal, arguments: Mapping[str, Any]) -> msgspec.Raw:
        """Call a tool, in the background if its server can, and return what comes first."""
        member, tool = proposal.member, proposal.tool
        audited, sent = await self._permitted(proposal, arguments)
        audited.sent()
        try:
            raw = await member.live().begin_tool(tool, sent, as_task=True)
        except BaseException as exc:
            _failed(audited, exc)
            raise
        audited.returned("begun", "done", size=len(raw))
        return raw

    async def deliver(
        self,
        raw: msgspec.Raw,
        proposal: Proposal,
        *,
        whole: bool = False,
        max_structured_bytes: int | None = None,
    ) -> ToolResult:
        """A result as it may be handed on: nothing hidden in it, and no larger than it may be."""
        member, tool = proposal.member, proposal.tool
        entry = member.entry(tool)
        source = Source(
            server_id=member.server.server_id,
            tool=tool,
            trusted=member.config.trust == "trusted" and tool not in UNTRUSTED_RESULTS,
            limit=None if whole else member.config.max_result_bytes,
            max_structured_bytes=max_structured_bytes,
            definition=entry.definition if entry else None,
        )
        return await self._artifacts.deliver(raw, source, principal=proposal.principal)

    async def _permitted(
        self, proposal: Proposal, arguments: Mapping[str, Any]
    ) -> tuple[AuditedCall, Mapping[str, Any] | msgspec.Raw]:
        """The arguments to send once the call may be made: those that were decided about, and no others."""
        member, tool = proposal.member, proposal.tool
        entry = member.entry(tool)
        audited = self._audit.proposed(
            principal=proposal.principal,
            server=member.server.server_id,
            tool=tool,
            arguments=arguments,
            definition_digest=definition_digest(entry.definition) if entry else "",
        )
        try:
            known = entry is not None and member.refusal(tool) is None
            if not known or member.awaits_consent or member.is_unchecked:
                await self._look_into(proposal)
            fit = await self._fitted(member, tool, arguments)
            shown: Mapping[str, Any] = fit
            sent: Mapping[str, Any] | msgspec.Raw = fit
            readings = None
            if proposal.argument_patterns:
                # Fixed before they are read: what the rules looked at is what is sent.
                shown, sent = fixed(fit)
                readings = await read_for_rules(proposal, shown)
            permit = self._permission.granted(proposal, readings)
            if permit is None:
                if member.entry(tool) is None:
                    # A person, and `auto`, must know what it is about.
                    await listing_of(member, self._store)
                if readings is None:
                    shown, sent = fixed(fit)
                permit = await self._permission.permit(proposal, shown, readings, audited.asked)
        except FairleadError as exc:
            if isinstance(exc, CallDenied):
                audited.decided("deny", str(exc))  # the words of other errors may quote the arguments
            audited.refused(exc.code)
            raise
        audited.decided("allow", permit.reason, by=permit.by)
        return audited, sent

    async def _look_into(self, proposal: Proposal) -> None:
        """See that a tool which is not known, or not known for sure, can be called at all."""
        member, tool = proposal.member, proposal.tool
        self._permission.refuse_hopeless(proposal)
        await require_consent(member, self._store)
        if member.is_unchecked or (member.refusal(tool) is not None and not member.is_listed):
            # It may have changed since it was last listed, and this call must not be what finds out.
            await listing_of(member, self._store, fresh=True)
            self._permission.refuse_hopeless(proposal)
        require_callable(proposal)

    async def _fitted(self, member: Member, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments as the tool wants them. What an earlier run saw is no reason to refuse any."""
        try:
            return _fitted(member, tool, arguments)
        except ArgumentsInvalid:
            if member.is_listed:
                raise
        await listing_of(member, self._store, fresh=True)
        return _fitted(member, tool, arguments)

    async def _run(
        self,
        proposal: Proposal,
        arguments: Mapping[str, Any] | msgspec.Raw,
        options: CallOptions,
        audited: AuditedCall,
    ) -> ToolResult:
        member, tool, bus = proposal.member, proposal.tool, self._bus
        server_id, connection, config = member.server.server_id, member.live(), member.config
        call_id = next(self.ids)

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            message = gate.text(message) if message else None
            bus.emit(CallProgressed(call_id=call_id, progress=progress, total=total, message=message))
            if options.on_progress is not None:
                await options.on_progress(progress, total, message)

        def deadline() -> Deadline:
            idle = options.request_timeout_ms or config.request_timeout_ms
            return Deadline(idle / 1000, config.max_request_ms / 1000)

        if bus.has_listeners:
            bus.emit(CallStarted(call_id=call_id, server_id=server_id, tool=tool))
        started = time.perf_counter()
        is_error, error = True, None
        audited.sent()
        try:
            raw = await connection.call_tool(tool, arguments, on_progress=progressed, deadline=deadline)
            result = await self.deliver(
                raw, proposal, whole=options.whole, max_structured_bytes=options.max_structured_bytes
            )
            is_error = result.is_error
        except BaseException as exc:
            error = _failed(audited, exc)
            raise
        else:
            kinds = [finding.kind for finding in result.remarks.findings]
            outcome = "tool_error" if is_error else "ok"
            audited.returned(outcome, "done", size=len(result.original), findings=kinds)
        finally:
            if bus.has_listeners:
                bus.emit(
                    CallFinished(
                        call_id=call_id,
                        server_id=server_id,
                        tool=tool,
                        seconds=time.perf_counter() - started,
                        is_error=is_error,
                        error=error,
                    )
                )
        return result


def _failed(audited: AuditedCall, exc: BaseException) -> str:
    """Record how a call that was sent failed, and say it in a word."""
    if not isinstance(exc, FairleadError):
        audited.returned("cancelled", "unknown")
        return "cancelled"
    audited.returned(exc.code, exc.delivery)
    return exc.code


def _fitted(member: Member, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as the tool's schema wants them, as far as it is known. Raises `ArgumentsInvalid`."""
    entry = member.entry(tool)
    if entry is None:
        return arguments  # the server knows better
    fit = fit_arguments(entry, arguments)
    if fit.verdict.outcome == "invalid" and member.config.check_arguments:
        problems = "\n".join(f"  {problem}" for problem in fit.verdict.problems)
        message = (
            f"the arguments do not fit the schema of `{entry.key}`, which Fairlead checked before the call,"
            f" so it was not called:\n{problems}"
        )
        # What does not fit is told in the words of the server's schema.
        raise ArgumentsInvalid(
            gate.text(message, 4 * gate.MAX_TEXT_BYTES),
            hint=f"it takes {signature(clean_tool(entry).entry)};"
            f' if the schema is wrong, set "check_arguments": false for server `{entry.key.server_id}`',
        )
    return fit.arguments
