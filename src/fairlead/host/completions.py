"""Ask a server what an argument could be."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog import gate
from fairlead.catalog.content import repair_completion
from fairlead.catalog.slices import has_slow_numbers
from fairlead.config.shapes import is_object
from fairlead.errors import CallFailed, CallRejected
from fairlead.host.contents import Completion, require_few_values

if TYPE_CHECKING:
    from fairlead.host.host import Host


MAX_VALUE_BYTES = 4096
MAX_VALUES = 100_000
"""Of an answer. Only the first hundred suggestions are looked at; the rest is but parsed."""


async def complete(
    host: "Host",
    server_id: str,
    reference: dict[str, str],
    argument: str,
    value: str,
    others: Mapping[str, str] | None,
) -> Completion:
    """What the argument could be, as far as `value` begins it. Values that hide something are left out."""
    connection = await host.reach(server_id)
    params: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": value}}
    if others:
        params["context"] = {"arguments": dict(others)}
    try:
        raw = await connection.request("completion/complete", params, safe_to_repeat=True)
    except CallRejected as exc:
        if exc.rpc_code != METHOD_NOT_FOUND:
            raise
        return Completion()  # it has no suggestions to make
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
        ) from gate.shown_cause(exc)
    shown = tuple(value for value in found.values if gate.content(value, MAX_VALUE_BYTES) == value)
    return msgspec.structs.replace(found, values=shown)
