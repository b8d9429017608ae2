"""Finding the protocol era that both sides speak."""

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
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

from fairlead.catalog import gate
from fairlead.connection.dispatcher import WireDispatcher
from fairlead.connection.http_outcomes import HttpRejected
from fairlead.connection.outcomes import RequestFailed
from fairlead.connection.peer import Introduction
from fairlead.connection.server_messages import repair_handshake

MAX_PROBE_SECONDS = 8.0
"""How long an unanswered probe may hold up the handshake that servers of the older era wait for."""

NO_VERDICT = frozenset({401, 403, 429, 502, 503, 504})
"""HTTP answers that say nothing about the era: a login is missing, or the server is not there just now."""


class SilentOnProbe(Exception):
    """The server answers neither the probe nor a handshake after it: begin anew, without the probe."""


class NoCommonVersion(RequestFailed):
    """The server chose a protocol version that Fairlead does not speak."""


class Negotiation:
    """Finds the era both sides speak: the modern probe first, unless the server is known to want a handshake.

    Any answer to the probe but a modern one leads to the handshake. No answer at all leads to one too, on the
    same connection, because a server that is slow to start looks just like that; `SilentOnProbe` says that
    the server answers neither, as some do that choke on a request they do not know.

    What is sent is ours rather than the SDK's, which would say of every client that can be asked anything
    that it can be asked everything; what comes back goes to the SDK's session.
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
        patience = min(MAX_PROBE_SECONDS, seconds / 4)
        version = LATEST_MODERN_VERSION
        for last_try in (False, True):
            supported: list[str] | None = None
            try:
                with anyio.fail_after(patience):
                    found = await self._discover(version)
                if found:
                    return
            except TimeoutError:
                await self._handshake_after_silence(seconds / 2)
                return
            except MCPError as exc:
                if isinstance(exc, HttpRejected) and exc.status in NO_VERDICT:
                    raise
                if exc.code == UNSUPPORTED_PROTOCOL_VERSION:
                    supported = _supported(exc)
            mutual = [known for known in MODERN_PROTOCOL_VERSIONS if known in (supported or ())]
            if mutual and not last_try:
                version = mutual[-1]
                continue
            if supported is not None and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                said = gate.text(f"it speaks only {', '.join(supported)}")
                raise NoCommonVersion(UNSUPPORTED_PROTOCOL_VERSION, said)
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

    async def _handshake_after_silence(self, seconds: float) -> None:
        try:
            with anyio.fail_after(seconds):
                await self._initialize()
        except TimeoutError:
            raise SilentOnProbe from None
        except MCPError as exc:
            # The probe did arrive, late, and made the connection a modern one.
            if exc.code != UNSUPPORTED_PROTOCOL_VERSION or not await self._discover(LATEST_MODERN_VERSION):
                raise


def _supported(exc: MCPError) -> list[str] | None:
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(exc.error.data).supported
    except ValidationError:
        return None
