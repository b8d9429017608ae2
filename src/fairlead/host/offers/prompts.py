"""Prompts of servers, and completion of their arguments and of those of resource templates."""

from collections.abc import Mapping
from typing import Any

import msgspec
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog.repair.content import repair_completion
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import has_slow_numbers
from fairlead.catalog.tools import PromptOffer
from fairlead.config.argument_types import check_types
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, CallRejected
from fairlead.host.offers.contents import CombinedList, Completion, PromptResult, require_few_values
from fairlead.host.offers.listing import OfferHost, gather

MAX_VALUE_BYTES = 4096
MAX_VALUES = 100_000
"""In one completion result. Only the first hundred suggestions are used; the rest is only parsed."""


async def complete(
    host: OfferHost,
    server_id: str,
    reference: dict[str, str],
    argument: str,
    value: str,
    others: Mapping[str, str] | None,
) -> Completion:
    """Ask a server for completions of an argument. Values with hidden characters are left out."""
    connection = await host.reach(server_id)
    params: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": value}}
    if others:
        params["context"] = {"arguments": dict(others)}
    try:
        raw = await connection.request("completion/complete", params, safe_to_repeat=True)
    except CallRejected as exc:
        if exc.rpc_code != METHOD_NOT_FOUND:
            raise
        return Completion()  # the server does not support completion
    await require_few_values(server_id, bytes(raw), MAX_VALUES)
    try:
        if len(raw) > gate.MAX_PARSED_BYTES:
            raise ValueError("it is too large")
        if has_slow_numbers(bytes(raw)):
            raise ValueError("it is full of numbers near the limits of a double")
        said: object = gate.decode(bytes(raw))
        if not is_object(said):
            raise ValueError("it is not an object")
        found = msgspec.convert(repair_completion(said), Completion)
    except (ValueError, RecursionError) as exc:
        raise CallFailed(
            server_id, f"its completion cannot be read: {gate.text(str(exc))}", delivery="done"
        ) from gate.displayable_cause(exc)
    shown = tuple(value for value in found.values if gate.content(value, MAX_VALUE_BYTES) == value)
    return msgspec.structs.replace(found, values=shown)


class Prompts:
    """The prompts of all servers: `host.prompts`."""

    def __init__(self, host: OfferHost) -> None:
        self._host = host

    @check_types
    async def list(self, server_id: str | None = None) -> CombinedList[PromptOffer]:
        """The prompts of one server, or of all. Servers that were never listed are connected.

        Args:
            server_id: The server; all enabled servers if not given.

        Returns:
            The prompts, and the servers that could not be listed.
        """
        return await gather(self._host, PromptOffer, server_id)

    @check_types
    async def get(
        self, server_id: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> PromptResult:
        """Get a prompt with its arguments filled in.

        Args:
            server_id: The server.
            name: The prompt.
            arguments: Its arguments, by name.

        Raises:
            CallFailed: No result came.
        """
        connection = await self._host.reach(server_id)
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = await connection.request("prompts/get", params, safe_to_repeat=True)
        result = await PromptResult.read(server_id, raw, untrusted=self._host.is_untrusted(server_id))
        await result.prepare()
        return result

    @check_types
    async def complete(
        self,
        server_id: str,
        name: str,
        argument: str,
        value: str = "",
        *,
        others: Mapping[str, str] | None = None,
    ) -> Completion:
        """Complete an argument of a prompt.

        Args:
            server_id: The server.
            name: The prompt.
            argument: The argument to complete.
            value: What was typed so far.
            others: The arguments that have values already.

        Raises:
            CallFailed: No completion came, or it cannot be read.
        """
        reference = {"type": "ref/prompt", "name": name}
        return await complete(self._host, server_id, reference, argument, value, others)
