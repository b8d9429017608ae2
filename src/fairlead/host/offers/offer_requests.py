"""Requests about resources and prompts: lists of one server or of all, contents, completions."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import msgspec
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog.repair.content import repair_completion
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import clean_offers
from fairlead.catalog.sanitize.slices import has_slow_numbers
from fairlead.catalog.tools import Listing, PromptOffer, ResourceOffer, ResourceTemplate, ServerOffer
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, CallRejected, FairleadError
from fairlead.events import Event
from fairlead.host.background import AT_ONCE, run_off_loop, size_of_definitions
from fairlead.host.offers.contents import CleanAnswer, CombinedList, Completion, require_few_values

if TYPE_CHECKING:
    from fairlead.connection.connection import Connection
    from fairlead.host.managed_server import ServerStatus

OfferT = TypeVar("OfferT", bound=ServerOffer)
AnswerT = TypeVar("AnswerT", bound=CleanAnswer)

MAX_VALUE_BYTES = 4096
MAX_COMPLETION_VALUES = 100_000
"""In one completion result. Only the first hundred suggestions are used; the rest is only parsed."""

_LISTS: dict[type[ServerOffer], str] = {
    ResourceOffer: "resources/list",
    ResourceTemplate: "resources/templates/list",
    PromptOffer: "prompts/list",
}


class OfferHost(Protocol):
    """What resources and prompts need of a host."""

    @property
    def known_offers(self) -> "KnownOffers":
        """Cache of parsed offers."""
        ...

    def status(self) -> "list[ServerStatus]":
        """The state of every server."""
        ...

    async def offers(self, server_id: str) -> Listing:
        """The listing of a server, which is connected only if it was never listed."""
        ...

    async def reach(self, server_id: str) -> "Connection":
        """The connection of a server, open or not."""
        ...

    def is_untrusted(self, server_id: str) -> bool:
        """Whether what this server says is untrusted content."""
        ...

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Events from now on, for the length of the block."""
        ...


def _every(server_id: str) -> bool:
    return True


async def gather(
    host: OfferHost,
    kind: type[OfferT],
    server_id: str | None,
    *,
    among: Callable[[str], bool] = _every,
) -> CombinedList[OfferT]:
    """The offers of one server, or of all. A server that fails costs only its own."""
    if server_id is not None:
        return CombinedList(items=await _of_one(host, kind, server_id), failures={})
    found: dict[str, tuple[OfferT, ...]] = {}
    failures: dict[str, FairleadError] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await host.known_offers.read(await host.offers(name), kind, name)
        except FairleadError as exc:
            failures[name] = exc

    names = [status.server_id for status in host.status() if status.enabled and among(status.server_id)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(ask, name)
    items = tuple(item for name in names for item in found.get(name, ()))
    return CombinedList(items=items, failures=failures)


async def _of_one(host: OfferHost, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
    listing = await host.offers(server_id)
    known = await host.known_offers.read(listing, kind, server_id)
    if known:
        return known
    # Some offer what they did not declare, and were not asked for it when they connected.
    connection = await host.reach(server_id)
    asked = await connection.list_undeclared(_LISTS[kind])
    return await _read_off_loop(server_id, kind, tuple(asked))


async def fetch(
    host: OfferHost, kind: type[AnswerT], server_id: str, method: str, params: Mapping[str, Any]
) -> AnswerT:
    """Fetch the contents of a resource or prompt, cleaned and masked.

    Args:
        host: The host to reach the server with.
        kind: What the answer is.
        server_id: The server.
        method: The method of the request, which is safe to repeat.
        params: Its parameters.

    Raises:
        CallFailed: No answer came, or it cannot be parsed.
    """
    connection = await host.reach(server_id)
    raw = await connection.request(method, params, safe_to_repeat=True)
    return await kind.read(server_id, raw, untrusted=host.is_untrusted(server_id))


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
    await require_few_values(server_id, bytes(raw), MAX_COMPLETION_VALUES)
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


class KnownOffers:
    """Cache of parsed offers, by server and kind: parsed again when the list or a known secret changes."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, type[ServerOffer]], tuple[tuple[bytes, ...], int, tuple[Any, ...]]] = {}

    async def read(self, listing: Listing, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
        """The offers of one kind in a listing. Many or large ones are parsed off the event loop."""
        known = self.known(listing, kind, server_id)
        if known is not None:
            return known
        definitions, generation = _definitions(listing, kind), gate.generation()
        offers = await _read_off_loop(server_id, kind, definitions)
        self._read[server_id, kind] = definitions, generation, offers
        return offers

    def known(self, listing: Listing, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...] | None:
        """The same without waiting: None where there is too much to read at once, and it was not read yet."""
        definitions, generation = _definitions(listing, kind), gate.generation()
        known = self._read.get((server_id, kind))
        if known is not None and known[0] is definitions and known[1] == generation:
            return known[2]
        if size_of_definitions(definitions) > AT_ONCE:
            return None
        offers = tuple(clean_offers(server_id, kind, definitions))
        self._read[server_id, kind] = definitions, generation, offers
        return offers


async def _read_off_loop(
    server_id: str, kind: type[OfferT], definitions: tuple[bytes, ...]
) -> tuple[OfferT, ...]:
    return await run_off_loop(
        lambda: tuple(clean_offers(server_id, kind, definitions)), size_of_definitions(definitions)
    )


def _definitions(listing: Listing, kind: type[ServerOffer]) -> tuple[bytes, ...]:
    definitions: dict[type[ServerOffer], tuple[bytes, ...]] = {
        ResourceOffer: listing.resources,
        ResourceTemplate: listing.templates,
        PromptOffer: listing.prompts,
    }
    return definitions[kind]
