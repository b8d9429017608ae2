"""Approvals of calls: answer those that wait at gateways, and forget answers that are remembered."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.saved_state import read_answers
from fairlead.catalog.tools import unescape_name
from fairlead.config.load import LoadedConfig
from fairlead.config.untyped import as_list
from fairlead.errors import ConfigError, ConnectFailed, UnknownTool
from fairlead.gateway.registry import APPROVALS_PATH, RunningGateway, answering, find, sources_of
from fairlead.policy.approvals import NAMESPACE, KeptApproval, by_tool, withdraw
from fairlead.policy.tool_names import denies_any, owners_of, written_name
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY

if TYPE_CHECKING:
    from fairlead.host.operator import ApprovalAnswer, ApprovalRequest
    from fairlead.policy.approvals import Approvals

_SHOWN: Final = ("server", "tool", "principal", "arguments", "reason", "claims", "remember", "preview")
APPROVAL_ANSWERS: Final[Sequence["ApprovalAnswer"]] = ("once", "session", "always", "no")
"""What can be said to a call that waits."""


# Calls that wait at gateways, from the same process and from others.


class PendingCall(Protocol):
    """A call that waits for approval."""

    @property
    def id(self) -> str:
        """The id that an answer names."""
        ...

    @property
    def request(self) -> "ApprovalRequest":
        """The call, and why it needs approval."""
        ...

    @property
    def created(self) -> float:
        """Since when it waits, in seconds since 1970."""
        ...


class ApprovalQueue(Protocol):
    """The calls of this process that wait for approval."""

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """All of them or one principal's, the oldest first."""
        ...

    async def answer(self, id: str, answer: "ApprovalAnswer", *, principal: str | None = None) -> bool:  # noqa: A002 - what it is called there
        """Answer one. False where it waits no more, or is not the principal's to answer."""
        ...


async def answer_call(
    context: ActionContext,
    queue: ApprovalQueue,
    call_id: str,
    answer: "ApprovalAnswer",
    *,
    decides_for: str | None,
) -> list[Notice] | None:
    """Answer a call that waits in this process; the audit record says who answered, and where.

    Args:
        context: Who answers.
        queue: The calls that wait.
        call_id: The call.
        answer: The answer.
        decides_for: The only principal whose calls the user may answer; None for all.

    Returns:
        What the user should know about it; None where the call waits no more, or is not theirs to answer.
    """
    from anyio import to_thread

    call = next((each for each in queue.pending(decides_for) if each.id == call_id), None)
    if call is None or not await queue.answer(call_id, answer, principal=decides_for):
        return None
    request = call.request
    details = {"tool": request.tool, "answer": answer, **_for(context, request.principal)}
    return await to_thread.run_sync(partial(context.record, "answer approval", request.server_id, **details))


def _for(context: ActionContext, principal: str) -> dict[str, str]:
    """The principal of the call, for an audit record of another principal's answer."""
    return {} if principal == context.principal else {"for": principal}


def gateway_if_any(loaded: LoadedConfig) -> RunningGateway | None:
    """The gateway that runs with this configuration, if there is one."""
    return find(os.environ, sources_of(loaded))


def gateways_running(env: Mapping[str, str] = os.environ) -> list[RunningGateway]:
    """Every gateway of this user that answers, with any configuration."""
    return answering(env)


def pending_calls(
    gateways: Sequence[RunningGateway],
) -> tuple[list[dict[str, Any]], list[ConnectFailed]]:
    """The calls that wait at gateways, and the errors of gateways that did not answer."""
    answers, failures = _ask_each(gateways)
    found = (call for answer in answers for call in as_list(answer.get("pending")))
    return list({call["id"]: call for call in found}.values()), failures


def equal_calls(pending: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group equal pending calls: made by several sessions, or retried."""
    found: dict[str, list[dict[str, Any]]] = {}
    for call in pending:
        about = {name: call.get(name) for name in _SHOWN}
        found.setdefault(json.dumps(about, sort_keys=True), []).append(call)
    return list(found.values())


def gateway_here(loaded: LoadedConfig) -> RunningGateway:
    """The gateway that runs with this configuration; an error if none does."""
    running = gateway_if_any(loaded)
    if running is None:
        raise ConfigError("no gateway runs with this configuration", hint="start it with `fairlead gateway`")
    return running


def answers_to(same: Sequence[dict[str, Any]]) -> list[str]:
    """The possible answers to a group of equal calls."""
    return [*APPROVAL_ANSWERS] if all(call["remember"] for call in same) else ["once", "no"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenAnswer:
    """Outcome of answering a call that waited at a running gateway."""

    is_taken: bool
    """False where the call waits no more."""
    failures: list[ConnectFailed]
    """The errors of gateways that did not answer."""
    notices: list[Notice]


def give_answer(
    context: ActionContext, gateways: Sequence[RunningGateway], call_id: str, answer: str
) -> GivenAnswer:
    """Answer a call that waits at a running gateway, which records it as `answer_call` does."""
    message = {"id": call_id, "answer": answer, "surface": context.surface}
    answers, failures = _ask_each(gateways, message)
    failures += [ConnectFailed("gateway", str(each["error"])) for each in answers if "error" in each]
    return GivenAnswer(
        is_taken=any(each.get("answered") is True for each in answers),
        failures=failures,
        notices=[Notice(message=str(said)) for each in answers for said in as_list(each.get("notices"))],
    )


def _ask_each(
    gateways: Sequence[RunningGateway], message: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[ConnectFailed]]:
    """Send a command to each gateway. One that fails does not keep the others from answering."""
    answers: list[dict[str, Any]] = []
    failures: list[ConnectFailed] = []
    for running in gateways:
        try:
            answers.append(running.ask(APPROVALS_PATH, message))
        except ConnectFailed as exc:
            failures.append(exc)
    return answers, failures


# Answers that are remembered.


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedAnswer:
    """A remembered approval of a tool's calls."""

    keys: Sequence[str]
    """Several where the tool or its server changed and was approved again."""
    server_id: str
    tool: str
    principal: str
    approved_at: float | None = None
    """Since when, in seconds since 1970; None where it ends with the session."""

    @property
    def name(self) -> str:
        """The tool for messages, as `server.tool`."""
        return written_name(self.server_id, self.tool)


def answers_for_good(loaded: LoadedConfig) -> list[RememberedAnswer]:
    """The stored approvals, sorted by server and tool."""
    return _group(read_answers(loaded))


def answers_of_sessions(
    gateways: Sequence[RunningGateway],
) -> tuple[list[RememberedAnswer], list[ConnectFailed]]:
    """The approvals for a session of a gateway's client, and the errors of gateways that did not answer."""
    answers, failures = _ask_each(gateways)
    found = {
        RememberedAnswer(
            keys=(), server_id=str(one["server"]), tool=str(one["tool"]), principal=str(one["principal"])
        )
        for answer in answers
        for one in as_list(answer.get("sessions"))
    }
    return sorted(found, key=lambda one: (one.server_id, one.tool, one.principal)), failures


async def answers_in_effect(approvals: "Approvals") -> list[RememberedAnswer]:
    """The approvals in effect in a host: those of its session first, then the stored ones."""
    of_session = [
        RememberedAnswer(keys=(one.key,), server_id=one.server_id, tool=one.tool, principal=one.principal)
        for one in await approvals.of_session()
    ]
    return of_session + _group(await approvals.list_kept())


def _group(kept: Iterable[tuple[str, KeptApproval]]) -> list[RememberedAnswer]:
    return [
        RememberedAnswer(
            keys=keys,
            server_id=newest.server_id,
            tool=newest.tool,
            principal=newest.principal,
            approved_at=newest.approved_at,
        )
        for keys, newest in by_tool(kept)
    ]


def answers_about(
    remembered: Iterable[RememberedAnswer], server_id: str, tool: str | None = None
) -> list[RememberedAnswer]:
    """The remembered approvals of one tool, or of all tools of a server.

    Args:
        remembered: All that are remembered.
        server_id: The server; without `tool`, also `server.tool` in any spelling.
        tool: The tool.

    Raises:
        UnknownTool: There is none.
    """
    every = [*remembered]
    if tool is None:
        # To forget an answer narrows, so that it is forgotten in each reading of the name.
        read = owners_of(server_id, {one.server_id for one in every})
        found = [one for owner, rest in read for one in _about(every, owner, rest)]
        found += [one for one in every if one.server_id == server_id and one not in found]
    else:
        found = _about(every, server_id, tool)
    if not found:
        what = f"`{tool}` of `{server_id}`" if tool else f"`{server_id}`"
        raise UnknownTool(f"no answer about {what} is remembered", hint="run `fairlead approvals`")
    return found


def _about(remembered: Iterable[RememberedAnswer], server_id: str, tool: str) -> list[RememberedAnswer]:
    of_server = [one for one in remembered if one.server_id == server_id]
    return [one for one in of_server if denies_any(server_id, one.tool, (tool, unescape_name(tool)))]


def forget_approvals(
    context: ActionContext, answers: Sequence[RememberedAnswer], approvals: "Approvals | None" = None
) -> list[Notice]:
    """Forget remembered approvals: calls of their tools need approval again.

    Approvals for a session of other tools of their servers end as well.

    Args:
        context: Who does so.
        answers: What to forget.
        approvals: Those of the host of this process, where it has one: they are cached there. Then this runs
            in a worker thread of its event loop.

    Returns:
        What the user should know about it.
    """
    keys = [key for one in answers for key in one.keys]
    if approvals is not None:
        from anyio import from_thread

        for key in keys:
            from_thread.run(approvals.forget, key)
    else:
        with open_database(context.store) as database:
            for key in keys:
                database.delete(NAMESPACE, key, expect=ANY)
            for server_id in {one.server_id for one in answers}:
                withdraw(database, server_id)
    notices: list[Notice] = []
    for one in answers:
        about = _for(context, one.principal)
        notices += context.record("forget approval", one.server_id, tool=one.tool, **about)
    return notices
