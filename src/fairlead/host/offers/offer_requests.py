"""Requests about resources and prompts: lists of one server or of all, contents, completions."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog.repair.content import repair_completion
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import clean_offers
from fairlead.catalog.sanitize.slices import has_slow_numbers
from fairlead.catalog.tools import Listing, PromptOffer, ResourceOffer, ResourceTemplate, ServerOffer
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, CallRejected, FairleadError, ListFailed
from fairlead.events import Event
from fairlead.host.background import AT_ONCE, run_off_loop, size_of_definitions
from fairlead.host.offers.contents import CleanAnswer, CombinedList, Completion, require_few_values

if TYPE_CHECKING:  # commands that only read what is known do without connections
    from fairlead.host.server_access import ServerAccess

OfferT = TypeVar("OfferT", bound=ServerOffer)
AnswerT = TypeVar("AnswerT", bound=CleanAnswer)

PATIENCE_SECONDS = 15.0
"""How long a list of all servers' offers waits for a server from its start on."""
_LATE_SECONDS = 0.2
"""How long it waits for one that takes longer."""

MAX_VALUE_BYTES = 4096
MAX_COMPLETION_VALUES = 100_000
"""In one completion result. Only the first hundred suggestions are used; the rest is only parsed."""

_LISTS: dict[type[ServerOffer], str] = {
    ResourceOffer: "resources/list",
    ResourceTemplate: "resources/templates/list",
    PromptOffer: "prompts/list",
}


class KnownOffers:
    """Cache of parsed offers, by server and kind: parsed again when the list or a known secret changes."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, type[ServerOffer]], tuple[tuple[bytes, ...], int, tuple[Any, ...]]] = {}

    async def read(self, listing: Listing, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
        """The offers of one kind in a listing. Many or large ones are parsed off the event loop."""
        known = self.read_known(listing, kind, server_id)
        if known is not None:
            return known
        definitions, generation = _definitions(listing, kind), gate.generation()
        offers = await _read_off_loop(server_id, kind, definitions)
        self._read[server_id, kind] = definitions, generation, offers
        return offers

    def read_known(self, listing: Listing, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...] | None:
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


def _every(server_id: str) -> bool:
    return True


class OfferRequests:
    """Requests to servers about resources and prompts.

    Args:
        servers: The servers of the host.
        known: Cache of parsed offers.
    """

    def __init__(self, servers: "ServerAccess", known: KnownOffers) -> None:
        self._servers = servers
        self._known = known

    async def gather(
        self, kind: type[OfferT], server_id: str | None, *, among: Callable[[str], bool] = _every
    ) -> CombinedList[OfferT]:
        """The offers of one server, or of all. A server that fails costs only its own.

        Args:
            kind: Which offers.
            server_id: The server; all enabled servers if None.
            among: Tells which of all servers to ask.

        Raises:
            ListFailed: The one server does not list what it offers.
        """
        if server_id is not None:
            return CombinedList(items=await self._of_one(kind, server_id), failures={})
        found: dict[str, tuple[OfferT, ...]] = {}
        failures: dict[str, FairleadError] = {}

        async def ask(name: str) -> None:
            connection = self._servers.inspect(name).connection
            # From its start on, so that one that hangs is waited for once.
            waited = connection.vitals.connecting_seconds if connection is not None else 0.0
            with anyio.move_on_after(max(PATIENCE_SECONDS - waited, _LATE_SECONDS)) as wait:
                try:
                    found[name] = await self._known.read(await self._servers.offers(name), kind, name)
                except FairleadError as exc:
                    failures[name] = exc
            if wait.cancelled_caught:
                failures[name] = ListFailed(name, f"it was not listed within {PATIENCE_SECONDS:g} s")

        enabled = [status.server_id for status in self._servers.statuses() if status.enabled]
        names = [name for name in enabled if among(name)]
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(ask, name)
        items = tuple(item for name in names for item in found.get(name, ()))
        return CombinedList(items=items, failures=failures)

    async def _of_one(self, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
        listing = await self._servers.offers(server_id)
        known = await self._known.read(listing, kind, server_id)
        if known:
            return known
        # Some offer what they did not declare, which is not listed when they connect.
        connection = await self._servers.reach(server_id)
        undeclared = await connection.list_undeclared(_LISTS[kind])
        return await _read_off_loop(server_id, kind, tuple(undeclared))

    async def fetch(
        self, kind: type[AnswerT], server_id: str, method: str, params: Mapping[str, Any]
    ) -> AnswerT:
        """Fetch the contents of a resource or prompt, cleaned and masked.

        Args:
            kind: What the answer is.
            server_id: The server.
            method: The method of the request, which is safe to repeat.
            params: Its parameters.

        Raises:
            CallFailed: No answer came, or it cannot be parsed.
        """
        connection = await self._servers.reach(server_id)
        try:
            raw = await connection.request(method, params, safe_to_repeat=True)
        except CallRejected as exc:
            if exc.rpc_code == METHOD_NOT_FOUND and exc.hint is None:
                exc.hint = f"it offers no {method.partition('/')[0]}"
            raise
        return await kind.read(server_id, raw, untrusted=self._servers.is_untrusted(server_id))

    async def complete(
        self,
        server_id: str,
        reference: dict[str, str],
        argument: str,
        value: str,
        others: Mapping[str, str] | None,
    ) -> Completion:
        """Ask a server for completions of an argument. Values with hidden characters are left out.

        Args:
            server_id: The server.
            reference: The prompt or resource template, as `completion/complete` names it.
            argument: The argument to complete.
            value: What was typed so far.
            others: The arguments that have values already.

        Raises:
            CallFailed: No completion came, or it cannot be read.
        """
        connection = await self._servers.reach(server_id)
        params: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": value}}
        if others:
            params["context"] = {"arguments": dict(others)}
        try:
            raw = await connection.request("completion/complete", params, safe_to_repeat=True)
        except CallRejected as exc:
            if exc.rpc_code != METHOD_NOT_FOUND:
                raise
            return Completion()  # the server does not support completion
        return await _read_completion(server_id, bytes(raw))

    @asynccontextmanager
    async def watch(self, server_id: str, uris: tuple[str, ...]) -> AsyncGenerator[AsyncIterator[Event]]:
        """Subscribe to resources of a server; yields all events of the host from then on.

        Args:
            server_id: The server.
            uris: The resources.

        Raises:
            CallFailed: The server refused the subscription.
        """
        connection = await self._servers.reach(server_id)
        # Events first: a change that is reported while the subscription is being made is not missed.
        async with self._servers.events() as events, connection.watching(uris):
            yield events


async def _read_completion(server_id: str, raw: bytes) -> Completion:
    await require_few_values(server_id, raw, MAX_COMPLETION_VALUES)
    try:
        if len(raw) > gate.MAX_PARSED_BYTES:
            raise ValueError("it is too large")
        if has_slow_numbers(raw):
            raise ValueError("its numbers take too long to read (very long, or near the limits of floats)")
        decoded: object = gate.decode(raw)
        if not is_object(decoded):
            raise ValueError("it is not an object")
        found = msgspec.convert(repair_completion(decoded), Completion)
    except (ValueError, RecursionError) as exc:
        raise CallFailed(
            server_id, f"its completion cannot be read: {gate.text(str(exc))}", delivery="done"
        ) from gate.displayable_cause(exc)
    shown = tuple(value for value in found.values if gate.content(value, MAX_VALUE_BYTES) == value)
    return msgspec.structs.replace(found, values=shown)


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
