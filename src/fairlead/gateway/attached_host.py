"""A host that runs elsewhere: in a gateway that is up already, which does what a command wants of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from fairlead.catalog.entries import ToolEntry, read_tools
from fairlead.catalog.results import ToolResult
from fairlead.config.load import LoadedConfig
from fairlead.connection.eventstream import EventStream
from fairlead.errors import ConfigError, ConnectionLost, FairleadError, GatewayGone
from fairlead.gateway.errands import (
    ANSWERS,
    ASKABLE,
    PATH,
    AllowTool,
    Askable,
    Asked,
    CallTool,
    Done,
    Errand,
    Event,
    Failed,
    KnownServer,
    ListServers,
    ListTools,
    Progressed,
    Reply,
    RestartServer,
    Withdrawn,
    Work,
    raised,
)
from fairlead.gateway.running import Running, contents_of
from fairlead.jsonrpc.limits import LineTooLong
from fairlead.net.client import open_client

if TYPE_CHECKING:
    from fairlead.host.calls import OnProgress
    from fairlead.host.operator import Operator

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_event = msgspec.json.Decoder(Event).decode
_definitions = msgspec.json.Decoder(list[msgspec.Raw]).decode
_servers = msgspec.json.Decoder(dict[str, KnownServer]).decode


@asynccontextmanager
async def attached_host(
    running: Running, loaded: LoadedConfig, operator: "Operator"
) -> AsyncGenerator["AttachedHost"]:
    """Use the host of a gateway for the length of the block. Nothing is started, and nothing ends with it."""
    async with open_client() as http:
        yield AttachedHost(running, loaded, operator, http)


class AttachedHost:
    """The part of a host that commands use, done by a gateway. Its person is asked here.

    Raises what the host there raises, and `GatewayGone` where the gateway cannot be asked and nothing it was
    asked can have had an effect.
    """

    def __init__(
        self, running: Running, loaded: LoadedConfig, operator: "Operator", http: aiohttp.ClientSession
    ) -> None:
        self._running = running
        self._loaded = loaded
        self._operator = operator
        self._http = http

    async def tools_of(self, server_id: str) -> tuple[ToolEntry, ...]:
        """A server's tools: at once where they are known, else it is connected and asked."""
        return await self._tools(ListTools(server_id))

    async def connect(self, server_id: str) -> dict[str, FairleadError]:
        """Have a server say what it offers. Returns what went wrong."""
        try:
            await self._tools(ListTools(server_id, fresh=True))
        except GatewayGone:
            raise
        except FairleadError as exc:
            return {server_id: exc}
        return {}

    async def call(  # noqa: PLR0913 - the parts of one call
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: "OnProgress | None" = None,
        request_timeout_ms: int | None = None,
        reviewed: bool = False,
        whole: bool = True,
    ) -> ToolResult:
        """Call a tool; its result is always `whole`. `ConnectionLost` if nobody knows what became of it."""
        work = CallTool(
            server=server_id,
            tool=tool,
            arguments=dict(arguments),
            reviewed=reviewed,
            timeout_ms=request_timeout_ms,
        )
        return ToolResult(server_id, await self._done(work, on_progress))

    async def allow(self, server_id: str, tool: str) -> None:
        """Remember a person's yes: this tool, as it is defined now, is not asked about again."""
        await self._done(AllowTool(server_id, tool))

    async def restart(self, server_id: str) -> None:
        """End every connection that the gateway has to a server, and begin another."""
        await self._done(RestartServer(server_id))

    async def servers(self, server_ids: tuple[str, ...], *, refresh: bool) -> dict[str, KnownServer]:
        """What is known of servers, after asking those that never were; with `refresh`, all of them."""
        return _servers(await self._done(ListServers(server_ids, refresh=refresh)))

    async def _tools(self, work: ListTools) -> tuple[ToolEntry, ...]:
        return tuple(read_tools(work.server, iter(_definitions(await self._done(work))))[0])

    # One errand.

    async def _done(self, work: Work, on_progress: "OnProgress | None" = None) -> bytes:
        can: list[Askable] = [ability for ability in ASKABLE if ability in self._operator.abilities]
        try:
            errand = Errand(work, contents_of(self._loaded), tuple(can))
            async with self._post(PATH, errand) as response:
                if response.status != 200:
                    raise self._gone(f"answered with status {response.status}")
                outcome = await self._outcome(response, on_progress)
        except aiohttp.ClientConnectorError as exc:
            raise self._gone("is not there any more") from exc
        except (aiohttp.ClientError, LineTooLong) as exc:
            raise self._broken_off(work) from exc
        if isinstance(outcome, Failed):
            raise raised(outcome)
        if outcome is None:
            raise self._broken_off(work)
        return bytes(outcome.result)

    async def _outcome(
        self, response: aiohttp.ClientResponse, on_progress: "OnProgress | None"
    ) -> Done | Failed | None:
        """Follow an errand to its end. None where the stream ends before."""
        outcome: Done | Failed | None = None
        failure: Exception | None = None
        questions: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as tasks:
            try:
                async for event in _events(response):
                    match event:
                        case Progressed():
                            if on_progress is not None:
                                await on_progress(event.progress, event.total, event.message)
                        case Asked():
                            self._begin_to_ask(event, questions, tasks)
                        case Withdrawn():
                            questions[event.id].cancel()
                        case Done() | Failed():
                            outcome = event
            except (aiohttp.ClientError, LineTooLong) as exc:
                failure = exc  # kept out of the task group, which would wrap it
            tasks.cancel_scope.cancel()
        if failure is not None and outcome is None:
            raise failure
        return outcome

    # Questions.

    def _begin_to_ask(self, asked: Asked, questions: dict[str, anyio.CancelScope], tasks: TaskGroup) -> None:
        scope = questions[asked.id] = anyio.CancelScope()
        tasks.start_soon(self._ask, asked, scope)

    async def _ask(self, asked: Asked, scope: anyio.CancelScope) -> None:
        from fairlead.gateway.errand_questions import answered  # which loads the SDK, and few servers ask

        with scope:
            config = self._loaded.server(asked.server).config
            assert config is not None, "nobody can be asked by a server that cannot run"
            reply = await answered(asked, config, self._operator)
            try:
                async with self._post(ANSWERS, reply):
                    pass
            except aiohttp.ClientError:
                return  # the stream ends as well, and that is where it is told

    # Requests.

    @asynccontextmanager
    async def _post(self, path: str, message: Errand | Reply) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send something over a connection of its own: one that cannot be made has carried nothing."""
        try:
            token = self._running.decide_token()
        except ConfigError as exc:
            raise self._gone("has a token that cannot be read") from exc
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self._running.url}{path}"
        async with self._http.post(url, data=_encode(message), headers=headers) as response:
            yield response

    def _gone(self, what: str) -> GatewayGone:
        return GatewayGone(f"the gateway at {self._running.url} {what}")

    def _broken_off(self, work: Work) -> FairleadError:
        if not isinstance(work, CallTool):
            return self._gone("broke off")
        message = f"the gateway at {self._running.url} broke off before it said what came of the call"
        return ConnectionLost(work.server, message, delivery="unknown")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    stream = EventStream(MAX_EVENT_BYTES)
    async for chunk in response.content.iter_any():
        for event in stream.feed(chunk):
            yield _event(event.data)
