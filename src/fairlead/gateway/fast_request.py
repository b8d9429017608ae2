"""Requests as the fast path reads them: the parts that decide how they are answered, and no more."""

from functools import lru_cache
from typing import Any, Final

import mcp_types as types
import msgspec
from msgspec import UNSET, Raw, UnsetType

from fairlead.catalog.sanitize.slices import has_slow_numbers
from fairlead.connection.peer import AGENT_META_KEY, SESSION_META_KEY

_UNREADABLE: Final = (ValueError, RecursionError)
"""What reading JSON raises: `msgspec`'s errors, and `UnicodeDecodeError`, which is none of them."""


class FastMeta(msgspec.Struct):
    """The `_meta` of a request."""

    version: str | None = msgspec.field(name=types.PROTOCOL_VERSION_META_KEY, default=None)
    capabilities: Raw = msgspec.field(name=types.CLIENT_CAPABILITIES_META_KEY, default=Raw())
    client_info: Raw = msgspec.field(name=types.CLIENT_INFO_META_KEY, default=Raw())
    log_level: Raw = msgspec.field(name=types.LOG_LEVEL_META_KEY, default=Raw())
    progress_token: Raw = msgspec.field(name="progressToken", default=Raw())
    session: object = msgspec.field(name=SESSION_META_KEY, default=None)
    agent: Raw = msgspec.field(name=AGENT_META_KEY, default=Raw())
    traceparent: object = None
    tracestate: object = None


class FastParams(msgspec.Struct, rename="camel"):
    """The parameters of a request, whichever its method."""

    name: str = ""
    arguments: dict[str, Any] | None = None
    cursor: str | None = None
    request_id: int | str | None = None
    input_responses: Raw = Raw()
    request_state: Raw = Raw()
    task: Raw = Raw()
    meta: FastMeta = msgspec.field(name="_meta", default_factory=FastMeta)


class FastRequest(msgspec.Struct):
    """A request, as far as the fast path needs to know it."""

    method: str
    jsonrpc: str
    id: int | str | UnsetType = UNSET
    params: FastParams = msgspec.field(default_factory=FastParams)

    @property
    def is_plain(self) -> bool:
        """Whether it wants an answer, without progress, log messages or rounds, and is no agent's."""
        params = self.params
        extras = (params.meta.log_level, params.meta.progress_token, params.meta.agent)
        rounds = (params.input_responses, params.request_state, params.task)
        return self.id is not UNSET and self.jsonrpc == "2.0" and not any(map(len, (*extras, *rounds)))


_decode = msgspec.json.Decoder(FastRequest).decode


class ClientInfo(msgspec.Struct, frozen=True):
    """What a client says of itself."""

    name: str = ""
    version: str = ""

    @property
    def shown(self) -> str | None:
        """Its name and version, for display."""
        return f"{self.name} {self.version}".strip() or None


@lru_cache(maxsize=1024)
def read_client_info(info: bytes) -> ClientInfo:
    """Parse a request's `clientInfo`."""
    try:
        return msgspec.json.decode(info, type=ClientInfo)
    except _UNREADABLE:
        return ClientInfo()


def read_request(body: bytes) -> FastRequest | None:
    """Parse a request; None for one that the fast path does not answer."""
    try:
        if not body.isascii():
            body.decode()  # `msgspec` does not look into the names that it passes over
        return None if has_slow_numbers(body) else _decode(body)
    except _UNREADABLE:
        return None
