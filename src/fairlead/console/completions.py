"""What servers offer and suggest, for whoever types: what is known at once, the rest while they type on."""

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio

from fairlead.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.catalog.entries import Listing
    from fairlead.catalog.offers import Offer, Prompt, ResourceTemplate
    from fairlead.host.contents import Completion
    from fairlead.host.host import Host

OfferT = TypeVar("OfferT", bound="Offer")

FRESH_SECONDS: Final = 60.0
"""How long a suggestion is taken for granted."""
ANSWER_SECONDS: Final = 3.0
"""How long a server may take: whoever waits longer has typed it themselves."""
MOST_KEPT: Final = 500


class Completions:
    """What one console knows of its servers' offers and suggestions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offers: dict[tuple[str, type[Offer]], tuple[Listing, tuple[Any, ...]]] = {}
        self._values: dict[Hashable, tuple[float, tuple[str, ...]]] = {}

    def offers(self, host: "Host", kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
        """What a server is known to offer of that kind. Contacts nobody."""
        try:
            listing = host.listing(server_id)
        except FairleadError:  # its entry is not sound, which is said elsewhere
            return ()
        if listing is None:
            return ()
        known = self._offers.get((server_id, kind))
        if known is None or known[0] is not listing:
            from fairlead.host.offers import offers_in

            known = self._offers[server_id, kind] = listing, offers_in(listing, kind, server_id)
        return cast("tuple[OfferT, ...]", known[1])

    async def of_prompt(
        self, host: "Host", prompt: "Prompt", argument: str, value: str, others: Mapping[str, str]
    ) -> tuple[str, ...]:
        """What a server suggests for an argument of a prompt; nothing where it cannot say, or not in time."""
        key = prompt.server_id, "prompt", prompt.name, argument, value, tuple(others.items())
        return await self._suggested(
            key,
            lambda: host.prompts.complete(prompt.server_id, prompt.name, argument, value, others=others),
        )

    async def of_template(
        self, host: "Host", template: "ResourceTemplate", blank: str, value: str, others: Mapping[str, str]
    ) -> tuple[str, ...]:
        """The same for a blank of a template."""
        server_id, uri = template.server_id, template.uri_template
        key = server_id, "template", uri, blank, value, tuple(others.items())
        return await self._suggested(
            key, lambda: host.resources.complete(server_id, uri, blank, value, others=others)
        )

    async def _suggested(self, key: Hashable, ask: "Callable[[], Awaitable[Completion]]") -> tuple[str, ...]:
        known = self._values.get(key)
        if known is not None and self._clock() - known[0] < FRESH_SECONDS:
            return known[1]
        with anyio.move_on_after(ANSWER_SECONDS):
            try:
                values = (await ask()).values
            except FairleadError:
                return ()  # a suggestion that cannot be had is none, and no reason to disturb anybody
            if len(self._values) >= MOST_KEPT:
                self._values.clear()
            self._values[key] = self._clock(), values
            return values
        return ()
