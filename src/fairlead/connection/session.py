"""A session with a server: negotiation of the protocol version, and requests in the form it wants.

The SDK's `ClientSession` handles requests and notifications of the server. Our own requests go straight to
the dispatcher, bytes in and bytes out.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
import msgspec
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_object
from fairlead.connection.deadlines import Deadline
from fairlead.connection.outcomes import HttpRejected, RequestFailed
from fairlead.connection.peer import AGENT_META_KEY, CALLER, IS_AGENT, SESSION_META_KEY, Introduction
from fairlead.connection.process.sandbox_state import (
    SANDBOX_ANSWER_SECONDS,
    SANDBOX_CAPABILITY,
    SANDBOX_METHOD,
)
from fairlead.connection.server_messages import (
    MAX_INSTRUCTIONS,
    MAX_RAW_INSTRUCTIONS,
    read_versions,
    repair_handshake,
)
from fairlead.connection.server_requests import ServerRequests
from fairlead.connection.tasks import NAME_PARAMETERS, supports_tasks
from fairlead.connection.tracing import TRACE
from fairlead.connection.transport.dispatcher import WireDispatcher

logger = logging.getLogger(__name__)

_NAMED = {**NAME_BEARING_METHODS, **NAME_PARAMETERS}
"""The parameter of each method that is sent as the header `Mcp-Name`."""

HeaderMap = Mapping[tuple[str, ...], str]


class Session:
    """One negotiated session. `modern` is the stateless protocol of 2026-07-28 and later.

    Args:
        dispatcher: The transport.
        sdk: The SDK's session on it, after the negotiation.
        introduction: What each stateless request says about the client.
        requests: The server's requests that are being answered.
        log_level: The level of log messages that stateless requests ask for.
    """

    def __init__(
        self,
        dispatcher: WireDispatcher,
        sdk: ClientSession,
        introduction: Introduction,
        requests: ServerRequests,
        log_level: types.LoggingLevel | None = None,
    ) -> None:
        version = sdk.protocol_version
        assert version is not None, "negotiate first"
        self.sdk = sdk
        self.dispatcher = dispatcher
        self._requests = requests
        self.version = version
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self.runs_tasks = not self.modern and supports_tasks(self.capabilities, modern=False)
        """Whether it is a server of 2025-11-25 with tools that may have to be called as tasks."""
        self._over_http = dispatcher.kind != "stdio"
        self._header_maps: dict[str, HeaderMap] = {}
        self._version_header = {MCP_PROTOCOL_VERSION_HEADER: version}
        self._introduction = introduction
        self._log_level = log_level
        self._stamped: dict[str, Any] = {}
        self.keeps_sessions = self.modern and SESSION_META_KEY in (self.capabilities.experimental or {})
        """Whether it is a gateway that keeps sessions for stateless requests."""
        # That gateway takes stateless requests without a key for those of one client, though ours are many.
        if self.keeps_sessions:
            introduction.name_session()

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """The server's declared capabilities."""
        return self.sdk.server_capabilities or types.ServerCapabilities()

    async def read_instructions(self) -> tuple[str | None, list[str]]:
        """The server's instructions, sanitized in steps, and the findings about them."""
        result = self.sdk.initialize_result or self.sdk.discover_result
        if result is None or result.instructions is None:
            return None, []
        cleaner = gate.Cleaner()
        cleaned = await gate.run(cleaner.text_steps(result.instructions))
        notes = [
            f"hidden in its instructions ({each.kind}): {each.sample}" for each in cleaner.found.values()
        ]
        was_cut = len(result.instructions) >= MAX_RAW_INSTRUCTIONS
        if was_cut:
            cleaned = cleaned[: max(0, len(cleaned) - gate.secret_reach())]  # half a secret may be at the end
        if was_cut or len(cleaned) > MAX_INSTRUCTIONS:
            notes.append(f"its instructions are cut off after {MAX_INSTRUCTIONS} characters")
        return cleaned[:MAX_INSTRUCTIONS], notes

    @property
    def mirrors_arguments(self) -> bool:
        """Whether arguments are also sent as headers where a tool declares that."""
        return self.modern and self._over_http

    def withdraw_requests(self) -> None:
        """Withdraw the server's requests: the call that they belong to was given up.

        A stateless server sends none of its own. Its elicitations come with answers and end with the call.
        """
        if not self.modern:
            self._requests.withdraw()

    def learn_headers(self, header_maps: dict[str, HeaderMap]) -> None:
        """Note which arguments of which tools go into headers as well."""
        self._header_maps = header_maps

    def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        *,
        deadline: Deadline,
        on_progress: ProgressFnT | None,
        more: Mapping[str, Any] | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> Awaitable[msgspec.Raw]:
        """Call a tool and return the result as the bytes that came. `more` goes into the parameters, too.

        Raises `DecisionOutdated` if `may_send` says no when it is about to be sent.
        """
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if more:
            params |= more
        options: CallOptions = {"on_progress": on_progress} if on_progress is not None else {}
        if self.modern:
            params["_meta"] = self._envelope()
        if (trace := TRACE.get()) is not None:
            params["_meta"] = {**params.get("_meta", {}), **trace.meta}
        if IS_AGENT.get():
            params["_meta"] = {**params.get("_meta", {}), AGENT_META_KEY: True}
        if self._over_http:
            options["headers"] = self._headers("tools/call", tool, arguments)
        return self.dispatcher.call_raw("tools/call", params, options, deadline, may_send)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        deadline: Deadline | None = None,
        on_progress: ProgressFnT | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> msgspec.Raw:
        """Send any other request and return the result as the bytes that came.

        Raises `DecisionOutdated` if `may_send` says no when it is about to be sent.
        """
        stamped = dict(params or {})
        if self.modern:
            stamped["_meta"] = {**self._envelope(), **stamped.get("_meta", {})}
        if (trace := TRACE.get()) is not None:
            stamped["_meta"] = {**stamped.get("_meta", {}), **trace.meta}
        name = stamped.get(_NAMED.get(method, ""))
        options: CallOptions = {"headers": self._headers(method, name)}
        if seconds is not None:
            options["timeout"] = seconds
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self.dispatcher.call_raw(method, stamped or None, options, deadline, may_send)

    async def send_sandbox_state(self) -> None:
        """Tell a server its sandbox, if it declares that it wants to know and runs on this machine."""
        state = self.dispatcher.sandbox_state
        if state is None or SANDBOX_CAPABILITY not in (self.capabilities.experimental or {}):
            return
        try:
            await self.request(SANDBOX_METHOD, state, seconds=SANDBOX_ANSWER_SECONDS)
        except MCPError:
            logger.info("a server would not take the state of its sandbox")

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        stamped = dict(params or {})
        if self.modern:
            stamped["_meta"] = {**self._envelope(), **stamped.get("_meta", {})}
        await self.dispatcher.notify(method, stamped or None, {"headers": self._headers(method)})

    def _envelope(self) -> dict[str, Any]:
        """The `_meta` of a stateless request for the current client; cached, since it rarely changes."""
        capabilities, caller = self._introduction.capabilities, CALLER.get()
        level = self._log_level if caller is None else caller.log_level or self._log_level
        last = self._stamped
        if last.get(CLIENT_CAPABILITIES_META_KEY) is capabilities and last.get(LOG_LEVEL_META_KEY) == level:
            return last
        self._stamped = {
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: self._introduction.client_info,
            CLIENT_CAPABILITIES_META_KEY: capabilities,
            **self._introduction.session,
        }
        # Stateless requests without a level get no log messages at all.
        if level is not None:
            self._stamped[LOG_LEVEL_META_KEY] = level
        return self._stamped

    def _headers(
        self, method: str, name: str | None = None, arguments: Mapping[str, Any] | msgspec.Raw | None = None
    ) -> dict[str, str]:
        if not self.modern:
            return self._version_header
        headers = {**self._version_header, MCP_METHOD_HEADER: method}
        if name is not None:
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            header_map = self._header_maps.get(name)
            if header_map and arguments:
                read = msgspec.json.decode(arguments) if isinstance(arguments, msgspec.Raw) else arguments
                headers |= mcp_param_headers(header_map, read)
        return headers


MAX_PROBE_SECONDS = 8.0
"""How long an unanswered probe may delay the handshake that older servers wait for."""

NO_VERDICT = frozenset({401, 403, 429, 502, 503, 504})
"""HTTP statuses that say nothing about the protocol version: a login is missing, or the server is down."""


class SilentOnProbe(Exception):
    """The server answers neither the probe nor a handshake after it: begin anew, without the probe."""


class NoCommonVersion(RequestFailed):
    """The server chose a protocol version that Fairlead does not speak."""


class Negotiation:
    """Negotiates the protocol version: a stateless probe first, unless a handshake is known to be needed.

    Any other answer to the probe leads to the handshake. No answer at all leads to one too, on the same
    connection, because a server that is slow to start looks just like that; `SilentOnProbe` means that the
    server answers neither, as some do that choke on a request they do not know.

    What is sent is ours rather than the SDK's, which would declare all capabilities for every client that
    has any; what comes back goes to the SDK's session.
    """

    def __init__(self, dispatcher: WireDispatcher, sdk: ClientSession, introduction: Introduction) -> None:
        self._dispatcher = dispatcher
        self._sdk = sdk
        self._introduction = introduction

    async def run(self, *, probe: bool, seconds: float) -> None:
        """Negotiate, within so many seconds."""
        if not probe:
            await self._initialize()
            return
        # Some old servers never answer a request they do not know: the handshake needs most of the time.
        patience = min(MAX_PROBE_SECONDS, seconds / 4)
        version = LATEST_MODERN_VERSION
        for last_try in (False, True):
            supported: list[str] | None = None
            try:
                with self._dispatcher.start_clock(patience):
                    found = await self._discover(version)
                if found:
                    return
            except TimeoutError:
                await self._handshake_after_silence(seconds / 2)
                return
            except MCPError as exc:
                # A missing login or an outage must not be remembered as "speaks an old version".
                if isinstance(exc, HttpRejected) and exc.status in NO_VERDICT:
                    raise
                if exc.code == UNSUPPORTED_PROTOCOL_VERSION:
                    supported = read_supported_versions(exc)
            mutual = [known for known in MODERN_PROTOCOL_VERSIONS if known in (supported or ())]
            if mutual and not last_try:
                version = mutual[-1]
                continue
            if supported is not None and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                message = gate.text(f"it speaks only {', '.join(supported)}")
                raise NoCommonVersion(UNSUPPORTED_PROTOCOL_VERSION, message)
            await self._initialize()
            return

    async def _discover(self, version: str) -> bool:
        envelope = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: self._introduction.client_info,
            CLIENT_CAPABILITIES_META_KEY: self._introduction.capabilities,
        }
        method = "server/discover"
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        options: CallOptions = {"headers": headers, "cancel_on_abandon": False}
        raw = await self._dispatcher.send_raw_request(method, {"_meta": envelope}, options)
        try:
            result = types.DiscoverResult.model_validate(repair_handshake(raw), by_name=False)
        except ValidationError:
            return False  # an answer, but not a modern server's
        if not set(result.supported_versions) & set(MODERN_PROTOCOL_VERSIONS):
            return False
        self._sdk.adopt(result)
        self._dispatcher.note_negotiated(None)
        return True

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": self._introduction.handshake_capabilities,
            "clientInfo": self._introduction.client_info,
        }
        options: CallOptions = {"cancel_on_abandon": False}
        raw = await self._dispatcher.send_raw_request("initialize", params, options)
        result = types.InitializeResult.model_validate(repair_handshake(raw), by_name=False)
        if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            message = (
                f"it chose version {gate.text(result.protocol_version, 100)}, which Fairlead does not speak"
            )
            raise NoCommonVersion(UNSUPPORTED_PROTOCOL_VERSION, message)
        self._sdk.adopt(result)
        version = {MCP_PROTOCOL_VERSION_HEADER: result.protocol_version}
        await self._dispatcher.notify("notifications/initialized", None, {"headers": version})
        self._dispatcher.note_negotiated(raw)

    async def _handshake_after_silence(self, seconds: float) -> None:
        try:
            with self._dispatcher.start_clock(seconds):
                await self._initialize()
        except TimeoutError:
            raise SilentOnProbe from None
        except MCPError as exc:
            # The probe did arrive, late, and made the connection a modern one.
            if exc.code != UNSUPPORTED_PROTOCOL_VERSION or not await self._discover(LATEST_MODERN_VERSION):
                raise


def read_supported_versions(exc: MCPError) -> list[str] | None:
    """Versions that a refusal names; None where it names none, which says nothing about the handshake."""
    return read_versions(as_object(exc.error.data).get("supported")) or None
