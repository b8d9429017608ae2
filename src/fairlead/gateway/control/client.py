"""Client of the control API: the part of a host that commands use, run by a gateway that is up already."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolEntry, read_tools
from fairlead.config.load import LoadedConfig
from fairlead.connection.transport.sse_parser import SseParser
from fairlead.errors import ConfigError, ConnectionLost, FairleadError, GatewayGone
from fairlead.gateway.carried_errors import CommandFailed, decode_error
from fairlead.gateway.control.protocol import (
    ANSWERS_PATH,
    ASKABLE,
    CONTROL_PATH,
    AllowTool,
    Askable,
    CallTool,
    CommandEvent,
    CommandProgress,
    CommandWork,
    ControlCommand,
    Done,
    ElicitationAsked,
    ElicitationReply,
    ElicitationWithdrawn,
    KnownServer,
    ListServers,
    ListTools,
    RestartedServer,
    RestartServer,
)
from fairlead.gateway.registry import RunningGateway, contents_of
from fairlead.jsonrpc.limits import LineTooLong
from fairlead.net.http import open_client

if TYPE_CHECKING:
    from fairlead.host.call import OnProgress
    from fairlead.host.operator import Operator


MAX_EVENT_BYTES: Final = 64 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_event = msgspec.json.Decoder(CommandEvent).decode
_definitions = msgspec.json.Decoder(list[msgspec.Raw]).decode
_restarted = msgspec.json.Decoder(RestartedServer).decode
_servers = msgspec.json.Decoder(dict[str, KnownServer]).decode


@asynccontextmanager
async def attach_to_gateway(
    running: RunningGateway, loaded: LoadedConfig, operator: "Operator"
) -> AsyncGenerator["ControlClient"]:
    """Use the host of a gateway for the length of the block. Nothing is started, and nothing ends with it.

    Args:
        running: The gateway.
        loaded: The configuration of the command, which the gateway compares with its own.
        operator: Answers elicitations for the user at the terminal.
    """
    async with open_client() as http:
        yield ControlClient(running, loaded, operator, http)


class ControlClient:
    """The part of a host that commands use, run by a gateway; elicitations are answered here.

    Raises what the host there raises, and `GatewayGone` where the gateway does not answer and nothing it was
    sent can have had an effect.
    """

    def __init__(
        self, running: RunningGateway, loaded: LoadedConfig, operator: "Operator", http: aiohttp.ClientSession
    ) -> None:
        self._running = running
        self._loaded = loaded
        self._operator = operator
        self._http = http

    async def tools_of(self, server_id: str) -> tuple[ToolEntry, ...]:
        """A server's tools: at once where they are known, else it is connected and listed."""
        return await self._tools(ListTools(server_id))

    async def connect(self, server_id: str) -> dict[str, FairleadError]:
        """Have the gateway list a server. Returns what went wrong."""
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
        confirmed: bool = False,
        full_result: bool = True,
    ) -> ToolResult:
        """Call a tool. The parameters are those of `Host.call`.

        Args:
            full_result: Accepted as `Host.call` does: over the control API the result is always whole.

        Raises:
            ConnectionLost: The gateway ended before it said what came of the call.
        """
        work = CallTool(
            server=server_id,
            tool=tool,
            arguments=dict(arguments),
            confirmed=confirmed,
            timeout_ms=request_timeout_ms,
        )
        return ToolResult(server_id, await self._run_command(work, on_progress), tool=tool)

    async def allow(self, server_id: str, tool: str) -> None:
        """Remember the user's approval of this tool as it is defined now."""
        await self._run_command(AllowTool(server_id, tool))

    async def restart(self, server_id: str) -> Sequence[str]:
        """End every connection that the gateway has to a server, and begin another.

        Returns:
            What the user should know besides.
        """
        return _restarted(await self._run_command(RestartServer(server_id))).notices

    async def servers(self, server_ids: tuple[str, ...], *, refresh: bool) -> dict[str, KnownServer]:
        """List what is known of servers, after listing those that never were; with `refresh`, all of them."""
        return _servers(await self._run_command(ListServers(server_ids, refresh=refresh)))

    async def _tools(self, work: ListTools) -> tuple[ToolEntry, ...]:
        return tuple(read_tools(work.server, iter(_definitions(await self._run_command(work))))[0])

    # One command.

    async def _run_command(self, work: CommandWork, on_progress: "OnProgress | None" = None) -> bytes:
        can: list[Askable] = [ability for ability in ASKABLE if ability in self._operator.abilities]
        try:
            command = ControlCommand(work, contents_of(self._loaded), tuple(can))
            async with self._post(CONTROL_PATH, command) as response:
                if response.status != 200:
                    raise self._gateway_gone(f"answered with status {response.status}")
                outcome = await self._outcome(response, on_progress)
        except aiohttp.ClientConnectorError as exc:
            raise self._gateway_gone("is not there any more") from exc
        except (aiohttp.ClientError, LineTooLong) as exc:
            raise self._broken_off(work) from exc
        if isinstance(outcome, CommandFailed):
            raise decode_error(outcome)
        if outcome is None:
            raise self._broken_off(work)
        return bytes(outcome.result)

    async def _outcome(
        self, response: aiohttp.ClientResponse, on_progress: "OnProgress | None"
    ) -> Done | CommandFailed | None:
        """Read the events of a command to its end. None where the stream ends before."""
        outcome: Done | CommandFailed | None = None
        failure: Exception | None = None
        elicitations: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as tasks:
            try:
                async for event in _events(response):
                    match event:
                        case CommandProgress():
                            if on_progress is not None:
                                await on_progress(event.progress, event.total, event.message)
                        case ElicitationAsked():
                            self._begin_to_ask(event, elicitations, tasks)
                        case ElicitationWithdrawn():
                            elicitations[event.id].cancel()
                        case Done() | CommandFailed():
                            outcome = event
            except (aiohttp.ClientError, LineTooLong) as exc:
                failure = exc  # kept out of the task group, which would wrap it
            tasks.cancel_scope.cancel()
        if failure is not None and outcome is None:
            raise failure
        return outcome

    # Elicitations.

    def _begin_to_ask(
        self, asked: ElicitationAsked, elicitations: dict[str, anyio.CancelScope], tasks: TaskGroup
    ) -> None:
        scope = elicitations[asked.id] = anyio.CancelScope()
        tasks.start_soon(self._ask, asked, scope)

    async def _ask(self, asked: ElicitationAsked, scope: anyio.CancelScope) -> None:
        # Loaded here: most commands meet no elicitation, and should not wait for the models of the protocol.
        from fairlead.gateway.control.elicitation import answer_elicitation

        with scope:
            config = self._loaded.server(asked.server).config
            assert config is not None, "a server without a configuration sends no elicitations"
            reply = await answer_elicitation(asked, config, self._operator)
            try:
                async with self._post(ANSWERS_PATH, reply):
                    pass
            except aiohttp.ClientError:
                return  # the stream ends as well, and that is where it is reported

    # Requests.

    @asynccontextmanager
    async def _post(
        self, path: str, message: ControlCommand | ElicitationReply
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send something over a connection of its own: one that cannot be made has carried nothing."""
        try:
            token = self._running.decide_token()
        except ConfigError as exc:
            raise self._gateway_gone("has a token that cannot be read") from exc
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self._running.url}{path}"
        async with self._http.post(url, data=_encode(message), headers=headers) as response:
            yield response

    def _gateway_gone(self, what: str) -> GatewayGone:
        return GatewayGone(f"the gateway at {self._running.url} {what}")

    def _broken_off(self, work: CommandWork) -> FairleadError:
        if not isinstance(work, CallTool):
            return self._gateway_gone("broke off")
        message = f"the gateway at {self._running.url} closed the connection before the result of the call"
        return ConnectionLost(work.server, message, delivery="unknown")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[CommandEvent]:
    stream = SseParser(MAX_EVENT_BYTES)
    async for chunk in response.content.iter_any():
        for event in stream.feed(chunk):
            yield _event(event.data)
