"""One tool call on its way: announced, sent under its clock, and announced again with how it went."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.catalog.entries import Listing
from fairlead.catalog.results import ToolResult
from fairlead.catalog.signatures import signature
from fairlead.catalog.validation import fit_arguments
from fairlead.connection.deadline import Deadline
from fairlead.errors import ArgumentsInvalid, CallDenied, FairleadError
from fairlead.events import CallFinished, CallProgressed, CallStarted
from fairlead.host.bus import EventBus
from fairlead.host.member import Member
from fairlead.policy.decision import Within, decide

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how far a call is: progress, total and a message, as far as the server says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What is to be called, and what the caller wants to know and allow."""

    call_id: int
    tool: str
    arguments: Mapping[str, Any] | msgspec.Raw
    on_progress: OnProgress | None = None
    request_timeout_ms: int | None = None


def check_policy(member: Member, tool: str, within: Within | None, *, reviewed: bool) -> None:
    """Raise `CallDenied` where the configuration does not let this tool be called.

    A person who looked at the call may allow what is not on the allow list, but not what is denied.
    """
    decision = decide(member.config, tool, within)
    if decision.verdict == "deny" and not (reviewed and decision.field != "deny_tools"):
        server_id = member.server.server_id
        origin = None
        if decision.field is not None and decision.bundle is None:
            origin = member.server.definition.origin((decision.field,))
        where = f" ({origin})" if origin else ""
        hint = f"add it to `allow_tools`, or call it yourself: `fairlead call {server_id} {tool} --yes`"
        raise CallDenied(f"`{server_id}/{tool}` may not be called: {decision.reason}{where}", hint=hint)


def rejection(listing: Listing | None, tool: str) -> str | None:
    """Why a tool cannot be offered, if that is so."""
    if listing is None or not listing.rejected:
        return None
    reason = next((rejected.reason for rejected in listing.rejected if rejected.name == tool), None)
    if reason is None or any(entry.key.tool == tool for entry in listing.tools):
        return None  # of a tool that is listed twice, the first counts
    return reason


def fitted(member: Member, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as the tool's schema wants them, as far as it is known. Raises `ArgumentsInvalid`."""
    entry = member.entry(tool)
    if entry is None:
        return arguments  # the server knows better
    fit = fit_arguments(entry, arguments)
    if fit.verdict.outcome == "invalid":
        problems = "\n".join(f"  {problem}" for problem in fit.verdict.problems)
        message = f"the arguments do not fit `{entry.key}`, so it was not called:\n{problems}"
        raise ArgumentsInvalid(message, hint=f"it takes {signature(entry)}")
    return fit.arguments


async def run_call(member: Member, call: Call, bus: EventBus) -> ToolResult:
    """Send a call and return its result."""
    server_id = member.server.server_id
    connection, config = member.live(), member.config

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        bus.emit(CallProgressed(call_id=call.call_id, progress=progress, total=total, message=message))
        if call.on_progress is not None:
            await call.on_progress(progress, total, message)

    def deadline() -> Deadline:
        idle = call.request_timeout_ms or config.request_timeout_ms
        return Deadline(idle / 1000, config.max_request_ms / 1000)

    if bus.has_listeners:
        bus.emit(CallStarted(call_id=call.call_id, server_id=server_id, tool=call.tool))
    started = time.perf_counter()
    is_error, error = True, "cancelled"
    try:
        raw = await connection.call_tool(call.tool, call.arguments, on_progress=progressed, deadline=deadline)
        result = ToolResult(server_id, raw)
        is_error, error = result.is_error, None
    except FairleadError as exc:
        error = exc.code
        raise
    finally:
        if bus.has_listeners:
            bus.emit(
                CallFinished(
                    call_id=call.call_id,
                    server_id=server_id,
                    tool=call.tool,
                    seconds=time.perf_counter() - started,
                    is_error=is_error,
                    error=error,
                )
            )
    return result
