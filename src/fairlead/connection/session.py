"""A negotiated conversation with a server: which era it speaks, and requests stamped the way that era wants.

The SDK's `ClientSession` negotiates, answers what the server asks, and knows the typed requests. The two hot
things, calling tools and listing, go past it: straight to the dispatcher, bytes in and bytes out.
"""

from collections.abc import Mapping
from typing import Any

import anyio
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
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from fairlead.connection.deadline import Deadline
from fairlead.connection.dispatcher import WireDispatcher
from fairlead.connection.http_outcomes import HttpRejected
from fairlead.connection.outcomes import RequestFailed

HeaderMap = Mapping[tuple[str, ...], str]

MAX_PROBE_SECONDS = 8.0
"""How long an unanswered probe may hold up the handshake that servers of the older era wait for."""

NO_VERDICT = frozenset({401, 403, 429, 502, 503, 504})
"""HTTP answers that say nothing about the era: a login is missing, or the server is not there just now."""


class SilentOnProbe(Exception):
    """The server answers neither the probe nor a handshake after it: begin anew, without the probe."""


class NoCommonVersion(RequestFailed):
    """The server chose a protocol version that nobody here speaks."""


class Session:
    """One negotiated session. `modern` is the stateless protocol of 2026-07-28 and later."""

    def __init__(
        self, dispatcher: WireDispatcher, sdk: ClientSession, client_info: types.Implementation
    ) -> None:
        version = sdk.protocol_version
        assert version is not None, "negotiate first"
        self.sdk = sdk
        self.dispatcher = dispatcher
        self.version = version
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self._over_http = dispatcher.kind != "stdio"
        self._header_maps: dict[str, HeaderMap] = {}
        self._version_header = {MCP_PROTOCOL_VERSION_HEADER: version}
        self._envelope: dict[str, Any] = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
            CLIENT_CAPABILITIES_META_KEY: {},
        }

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server says it can do."""
        return self.sdk.server_capabilities or types.ServerCapabilities()

    @property
    def instructions(self) -> str | None:
        """What the server wants a model to know."""
        return self.sdk.instructions

    @property
    def mirrors_arguments(self) -> bool:
        """Do arguments go into headers as well, where a tool wants them there?"""
        return self.modern and self._over_http

    def learn_headers(self, header_maps: dict[str, HeaderMap]) -> None:
        """Note which arguments of which tools go into headers as well."""
        self._header_maps = header_maps

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        *,
        deadline: Deadline,
        on_progress: ProgressFnT,
    ) -> msgspec.Raw:
        """Call a tool and return the result as the bytes that came."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        options: CallOptions = {"on_progress": on_progress}
        if self.modern:
            params["_meta"] = self._envelope
        if self._over_http:
            options["headers"] = self._headers("tools/call", tool, arguments)
        return await self.dispatcher.call_raw("tools/call", params, options, deadline)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        """Send any other request and return the result as the bytes that came."""
        stamped = dict(params or {})
        if self.modern:
            stamped["_meta"] = {**self._envelope, **stamped.get("_meta", {})}
        name = stamped.get(NAME_BEARING_METHODS.get(method, ""))
        options: CallOptions = {"headers": self._headers(method, name)}
        if seconds is not None:
            options["timeout"] = seconds
        return await self.dispatcher.call_raw(method, stamped or None, options)

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


async def negotiate(sdk: ClientSession, *, probe: bool, seconds: float) -> None:
    """Find the era both sides speak: the modern probe first, unless the server is known to want a handshake.

    Any answer to the probe but a modern one leads to the handshake. No answer at all leads to one too, on the
    same connection, because a server that is slow to start looks just like that; `SilentOnProbe` says that
    the server answers neither, as some do that choke on a request they do not know.
    """
    if not probe:
        await _initialize(sdk)
        return
    patience = min(MAX_PROBE_SECONDS, seconds / 4)
    version = LATEST_MODERN_VERSION
    for last_try in (False, True):
        supported: list[str] | None = None
        try:
            with anyio.fail_after(patience):
                found = await _discover(sdk, version)
            if found:
                return
        except TimeoutError:
            await _handshake_after_silence(sdk, seconds / 2)
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
            raise NoCommonVersion(UNSUPPORTED_PROTOCOL_VERSION, f"it speaks only {', '.join(supported)}")
        await _initialize(sdk)
        return


async def _discover(sdk: ClientSession, version: str) -> bool:
    try:
        result = types.DiscoverResult.model_validate(await sdk.send_discover(version))
    except ValidationError:
        return False  # an answer, but not a modern server's
    if not set(result.supported_versions) & set(MODERN_PROTOCOL_VERSIONS):
        return False
    sdk.adopt(result)
    return True


async def _initialize(sdk: ClientSession) -> None:
    try:
        await sdk.initialize()
    except RuntimeError as exc:  # how the SDK says that the server's version is unknown to it
        raise NoCommonVersion(UNSUPPORTED_PROTOCOL_VERSION, str(exc)) from exc


async def _handshake_after_silence(sdk: ClientSession, seconds: float) -> None:
    try:
        with anyio.fail_after(seconds):
            await _initialize(sdk)
    except TimeoutError:
        raise SilentOnProbe from None
    except MCPError as exc:
        # The probe did arrive, late, and made the connection a modern one.
        if exc.code != UNSUPPORTED_PROTOCOL_VERSION or not await _discover(sdk, LATEST_MODERN_VERSION):
            raise


def _supported(exc: MCPError) -> list[str] | None:
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(exc.error.data).supported
    except ValidationError:
        return None
