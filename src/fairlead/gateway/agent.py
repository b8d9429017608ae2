"""The gateway's agent: the model loop, offered to clients as the tools `agent.run` and `agent.reply`.

It is a server in the gateway's process, so that rules, audit and events are those of every call. It works in
the course of the client's request: its calls are decided for that client's principal and bundle, and its
approvals and elicitations go where those of the request go.
"""

import os
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Final

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, TextContent, ToolAnnotations
from pydantic import ConfigDict, Field

from fairlead.catalog.results import ToolResult
from fairlead.config.load import LoadedConfig
from fairlead.config.models import AGENT_ID, AgentSettings
from fairlead.connection.peer import CALLER, IS_AGENT
from fairlead.errors import ConfigError, FairleadError, ToolFailed
from fairlead.gateway.agent_sessions import AgentSession, AgentSessions, SessionOwner, busy_session
from fairlead.gateway.client_session import ClientSession
from fairlead.gateway.request_context import ClientResult, RequestContext, ServerRequest
from fairlead.gateway.workers.member import PoolMember
from fairlead.host.call import OnProgress
from fairlead.host.model.bundles import Selection, select
from fairlead.host.model.toolset import Toolset
from fairlead.host.search_memory import SearchSession
from fairlead.loop.events import (
    RunEvent,
    RunFinished,
    RunOutcome,
    StepFinished,
    StepRetried,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from fairlead.loop.model_choice import SETTING_HINT, choose_model
from fairlead.loop.provider import ChatModel
from fairlead.loop.run import RunLimits, run_task
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import Reply, ToolContext, ToolDefinition, ToolModel

CALL_SECONDS: Final = 3_600.0
"""How long one call of the agent may take."""
MAX_RUNS_OF_PRINCIPAL: Final = 8
"""How many runs of one principal may be under way."""
MAX_TASK_CHARACTERS: Final = 200_000
MAX_PROBLEMS: Final = 20
_WRITING_SECONDS: Final = 5.0
"""How often progress is reported while the model writes."""

Task = Annotated[str, Field(min_length=1, max_length=MAX_TASK_CHARACTERS)]
Steps = Annotated[int, Field(ge=1, le=1_000)]
Tokens = Annotated[int, Field(ge=1)]


class _AgentModel(ToolModel):
    """Base of the agent's inputs and outputs: names on the wire as in the documentation."""

    model_config = ConfigDict(alias_generator=None)


class AgentRunInput(_AgentModel):
    """Input of `agent.run`: a task."""

    task: Task
    """What to do, with everything that is needed to do it."""
    bundle: str | None = None
    """The bundle whose tools it gets; all of yours if left out."""
    max_steps: Steps | None = None
    max_tokens: Tokens | None = None


class AgentReplyInput(_AgentModel):
    """Input of `agent.reply`: a message in a session."""

    session: str
    """The session, as a result of this server names it."""
    text: Task
    max_steps: Steps | None = None
    max_tokens: Tokens | None = None


class AgentProblem(_AgentModel):
    """A call of the agent that failed."""

    tool: str
    error: str
    hint: str | None = None


class AgentOutput(_AgentModel):
    """Output of `agent.run` and `agent.reply`: how a run ended."""

    session: str
    """For `agent.reply`."""
    outcome: RunOutcome
    text: str
    """What the agent said last."""
    steps: int
    input_tokens: int
    output_tokens: int
    problems: list[AgentProblem]
    """The calls that failed, the first few: for want of an approval, say."""


class NestedContext(RequestContext):
    """Context of a call that the agent makes in the course of a client's request, and in its name."""

    def __init__(self, outer: RequestContext) -> None:
        super().__init__(outer.client, abilities=outer.abilities, log_level=outer.log_level)
        self.names_servers = outer.names_servers
        self._outer = outer

    @property
    def is_parked(self) -> bool:
        """Whether the client's request waits for its answers."""
        return self._outer.is_parked

    async def ask(self, request: ServerRequest, server_id: str) -> ClientResult:
        """Send a server's request in the course of the client's request."""
        answer = await self._outer.put(request, server_id)
        if answer is None:
            raise MCPError(INVALID_REQUEST, "the request this belongs to was given up")
        return answer

    async def tell(self, notification: types.ServerNotification) -> None:
        """Send a notification that belongs to the client's request."""
        await self._outer.tell(notification)


class AgentToolset(Toolset):
    """The tools of the agent: those of the client's selection, called as the client calls them."""

    def __init__(
        self, client: ClientSession, request: RequestContext, bundle: str | None, searches: SearchSession
    ) -> None:
        super().__init__(client.host, select_tools(client, bundle), *client.caller, session=searches)
        self._client = client
        self._request = request
        self._bundle = bundle

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        confirmed: bool = False,
    ) -> ToolResult:
        """Call a tool as the client would: the same rules, connections and elicitations."""
        own = (self._meta, self._reading, self._artifacts)
        if any(tools.has(name) for tools in own):
            return await super().call(name, arguments)
        server_id = (await self.get(name)).key.server_id
        context = NestedContext(self._request)
        with self._client.requests.track(context):
            async with self._client.at(context, server_id) as host:
                # Selected anew: the configuration may have changed since the run began.
                selection = select_tools(self._client, self._bundle)
                toolset = Toolset(host, selection, *self._client.caller, session=self.session)
                return await toolset.call(name, arguments, on_progress=on_progress)


def select_tools(client: ClientSession, bundle: str | None) -> Selection:
    """Select the agent's tools for a client: never more than the client itself may use, and never itself.

    Raises:
        ToolFailed: The client's endpoint serves another bundle alone.
        UnknownBundle: There is no such bundle.
    """
    own = client.endpoint.bundle
    if bundle is None or bundle == own:
        chosen = client.selection
    elif own is not None:
        raise ToolFailed(f"this endpoint serves the bundle `{own}` alone", hint="leave out `bundle`")
    else:
        # A client that is granted only some bundles is not let in at the endpoint that serves everything.
        chosen = select(client.endpoint.gateway.loaded, bundle, client.caller)
        chosen = replace(chosen, approval=client.selection.approval)
    return replace(chosen, left_out=frozenset({AGENT_ID}))


class AgentTools:
    """The tools `agent.run` and `agent.reply`, and the sessions that they share."""

    def __init__(self, env: Mapping[str, str] | None = None, member: PoolMember | None = None) -> None:
        """Work with the model of the configuration; `member` is this process among workers, if there are."""
        self.sessions = AgentSessions(member)
        self._env = os.environ if env is None else env
        self._runs: Counter[str] = Counter()

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way."""
        return bool(self._runs)

    def server(self) -> McpServer:
        """The server with these tools."""
        annotations = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
        return McpServer(
            AGENT_ID,
            call_seconds=CALL_SECONDS,
            tools=[
                ToolDefinition(
                    name="run",
                    title="Have an agent do a task",
                    description="Has a model carry out a task with the tools of this gateway, and returns"
                    " what it says at the end. Its calls follow the same rules as yours.",
                    input=AgentRunInput,
                    output=AgentOutput,
                    handler=self._run,
                    annotations=annotations,
                ),
                ToolDefinition(
                    name="reply",
                    title="Answer the agent",
                    description="Goes on with a session of agent.run: the agent knows what was said.",
                    input=AgentReplyInput,
                    output=AgentOutput,
                    handler=self._reply,
                    annotations=annotations,
                ),
            ],
        )

    async def _run(self, context: ToolContext, given: AgentRunInput) -> Reply[AgentOutput]:
        request, client = _require_client()
        model = await self._model(client)
        session = AgentSession(
            id=self.sessions.new_id(),
            owner=SessionOwner.of(client),
            provider=model.provider,
            bundle=given.bundle,
        )
        limits = _limits(client, given.max_steps, given.max_tokens)
        return await self._work(context, request, session, model, given.task, limits)

    async def _reply(self, context: ToolContext, given: AgentReplyInput) -> Reply[AgentOutput]:
        request, client = _require_client()
        model = await self._model(client)
        session = await self.sessions.find(given.session, SessionOwner.of(client))
        if session.is_busy:
            raise busy_session()
        if session.provider != model.provider:
            raise ToolFailed(
                "the gateway has a model of another provider now, which cannot go on with this session",
                hint="begin another with `agent.run`",
            )
        limits = _limits(client, given.max_steps, given.max_tokens)
        return await self._work(context, request, session, model, given.text, limits)

    async def _model(self, client: ClientSession) -> ChatModel:
        loaded = client.endpoint.gateway.loaded
        require_model(loaded)
        try:
            # Not here: a key may come from a file or a keyring.
            return await anyio.to_thread.run_sync(choose_model, loaded, None, self._env)
        except ConfigError as exc:
            raise ToolFailed(str(exc), hint=exc.hint) from exc

    async def _work(
        self,
        context: ToolContext,
        request: RequestContext,
        session: AgentSession,
        model: ChatModel,
        text: str,
        limits: RunLimits,
    ) -> Reply[AgentOutput]:
        client = _client_of(request)
        messages = [*session.messages]  # a run that fails or is cancelled leaves the session as it was
        report = _RunReport(context)
        IS_AGENT.set(True)  # for this call's task and those it starts
        try:
            with self._count_run(session):
                await report.begin()
                toolset = AgentToolset(client, request, session.bundle, session.searches)
                async with run_task(toolset, model, text, bounds=limits, history=messages) as events:
                    async for event in events:
                        await report.take(event)
        except ToolFailed:
            raise
        except FairleadError as exc:
            raise ToolFailed(str(exc), hint=exc.hint) from exc
        finished = report.finished
        assert finished is not None, "every run ends with this event, or raises"
        self.sessions.keep(session, messages)
        return _reply(session, finished, report.problems)

    @contextmanager
    def _count_run(self, session: AgentSession) -> Generator[None]:
        """Count a run of a principal. Raises `ToolFailed` where too many are under way."""
        principal = session.owner.caller.principal
        if self._runs[principal] >= MAX_RUNS_OF_PRINCIPAL:
            raise ToolFailed(f"{MAX_RUNS_OF_PRINCIPAL} runs are under way already", hint="try again later")
        self._runs[principal] += 1
        session.is_busy = True
        try:
            yield
        finally:
            session.is_busy = False
            self._runs[principal] -= 1
            if not self._runs[principal]:
                del self._runs[principal]


def require_model(loaded: LoadedConfig) -> None:
    """Raise `ToolFailed` where the configuration names no model."""
    if loaded.config.model is None:
        raise ToolFailed("the gateway has no model for its agent", hint=SETTING_HINT)


def _require_client() -> tuple[RequestContext, ClientSession]:
    """Return the client's request that the present call is made in the course of.

    Raises:
        ToolFailed: An agent makes the call, be it this gateway's or one in front, or no client does.
    """
    if IS_AGENT.get():
        raise ToolFailed("an agent run cannot start another agent run", hint="do it with the other tools")
    request = CALLER.get()
    if not isinstance(request, RequestContext):
        raise ToolFailed("only clients of the gateway can use the agent", hint="call it over MCP")
    return request, _client_of(request)


def _client_of(request: RequestContext) -> ClientSession:
    client = request.client
    assert isinstance(client, ClientSession), "every request comes from a client"
    return client


def _limits(client: ClientSession, steps: int | None, tokens: int | None) -> RunLimits:
    """Limits of a run: those a client asks for, within the configured ones."""
    most = client.endpoint.gateway.loaded.config.gateway.agent or AgentSettings()
    of_tokens = [limit for limit in (tokens, most.max_tokens) if limit is not None]
    return RunLimits(
        max_steps=min(steps or RunLimits().max_steps, most.max_steps),
        max_tokens=min(of_tokens, default=None),
    )


class _RunReport:
    """Tells the client of a run's progress, and keeps what its result needs."""

    def __init__(self, context: ToolContext) -> None:
        self.finished: RunFinished | None = None
        self.problems: list[AgentProblem] = []
        self._context = context
        self._count = 0
        self._step = 1
        self._last = 0.0

    async def begin(self) -> None:
        """Report the first request to the model."""
        await self._tell("thinking")

    async def take(self, event: RunEvent) -> None:
        """Note what happened, and report it: tools by name, without arguments and results."""
        match event:
            case TextDelta():
                if time.monotonic() - self._last > _WRITING_SECONDS:
                    await self._tell("writing")
            case StepRetried():
                await self._tell(f"asking the model again in {event.seconds:.0f} s")
            case ToolCalled():
                await self._tell(f"calling {event.tool}")
            case ToolReturned():
                if event.error is not None and len(self.problems) < MAX_PROBLEMS:
                    self.problems.append(AgentProblem(tool=event.tool, error=event.error, hint=event.hint))
                await self._tell(f"{event.tool} {'failed' if event.result.is_error else 'returned'}")
            case StepFinished():
                self._step = event.step + 1
            case RunFinished():
                self.finished = event

    async def _tell(self, words: str) -> None:
        self._count += 1
        self._last = time.monotonic()
        await self._context.progress(self._count, message=f"step {self._step}: {words}")


def _reply(session: AgentSession, finished: RunFinished, problems: list[AgentProblem]) -> Reply[AgentOutput]:
    output = AgentOutput(
        session=session.id,
        outcome=finished.outcome,
        text=finished.text,
        steps=finished.steps,
        input_tokens=finished.usage.input_tokens,
        output_tokens=finished.usage.output_tokens,
        problems=problems,
    )
    failed = [f"{each.tool}: {each.error}" + (f" ({each.hint})" if each.hint else "") for each in problems]
    words = [
        finished.text,
        f"outcome: {finished.outcome}; agent.reply goes on with the session {session.id}",
        *(f"failed: {line}" for line in failed),
    ]
    return Reply(output=output, content=(TextContent(text="\n\n".join(filter(None, words))),))


def require_free_id(loaded: LoadedConfig) -> None:
    """Raise `ConfigError` where a server has the id of the agent: neither may stand in for the other."""
    if AGENT_ID in loaded.servers:
        raise ConfigError(
            f"a server is called `{AGENT_ID}`, as the gateway's agent is",
            hint="give that server another id, or leave out `--agent` and `gateway.agent`",
        )
