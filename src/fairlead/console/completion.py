"""Tab completion: what is known at once, then what servers suggest.

What servers offer and suggest for completion: what is known at once, the rest while the user types on.
"""

import operator
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as PromptCompletion
from prompt_toolkit.document import Document

from fairlead.console.typed_words import Suggestion
from fairlead.errors import FairleadError
from fairlead.terminal.output import printable

if TYPE_CHECKING:
    from fairlead.catalog.tools import Listing, PromptOffer, ResourceTemplate, ServerOffer
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import Completion


Suggest = Callable[[str], Iterable[Suggestion]]
FetchSuggestions = Callable[[str], Awaitable[Iterable[Suggestion]]]


class LineCompleter(Completer):
    """Completer of the line up to the cursor."""

    def __init__(self, suggest: Suggest, ask: FetchSuggestions) -> None:
        self._suggest = suggest
        self._ask = ask

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[PromptCompletion]:
        """The completions that are known."""
        return _completions(self._suggest(document.text_before_cursor))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[PromptCompletion]:
        """The known completions, and then a server's own. Typing on does not wait for them."""
        for known in self.get_completions(document, complete_event):
            yield known
        for completion in _completions(await self._ask(document.text_before_cursor)):
            yield completion


def _completions(suggestions: Iterable[Suggestion]) -> Iterable[PromptCompletion]:
    """The suggestions that can be typed: a server's words among them must not steer the terminal."""
    for text, replaces, note in suggestions:
        if text.isprintable():
            yield PromptCompletion(text, start_position=-replaces, display_meta=printable(note))


OfferT = TypeVar("OfferT", bound="ServerOffer")

FRESH_SECONDS: Final = 60.0
"""How long a suggestion is taken for granted."""
ANSWER_SECONDS: Final = 3.0
"""How long a server may take to suggest: by then it is typed."""
MOST_KEPT: Final = 500
MOST_PROMPTS: Final = 10_000
"""How many prompts can be typed as verbs: to name them takes a microsecond each."""


def _listing_of(host: "Host", server_id: str) -> "Listing | None":
    try:
        return host.listing(server_id)
    except FairleadError:  # its entry is not sound, which is said elsewhere
        return None


class Completions:
    """Cache of servers' offers and suggestions, for completion."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prompts: tuple[tuple[tuple[PromptOffer, ...], ...], Mapping[str, PromptOffer]] = ((), {})
        self._values: dict[Hashable, tuple[float, tuple[str, ...]]] = {}

    def offers(self, host: "Host", kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
        """The known offers of a server of one kind. Contacts no server, and waits for nothing.

        A long list is not there before `read_offers` has read it.
        """
        listing = _listing_of(host, server_id)
        return () if listing is None else host.known_offers.read_known(listing, kind, server_id) or ()

    async def read_offers(self, host: "Host") -> bool:
        """Read the known offers of servers, off the event loop where they are many.

        Returns:
            Whether there was anything that had not been read.
        """
        from fairlead.catalog.tools import PromptOffer, ResourceOffer, ResourceTemplate

        has_read = False
        for status in host.status():
            listing = _listing_of(host, status.server_id) if status.enabled else None
            if listing is None:
                continue
            for kind in (PromptOffer, ResourceOffer, ResourceTemplate):
                if host.known_offers.read_known(listing, kind, status.server_id) is None:
                    await host.known_offers.read(listing, kind, status.server_id)
                    has_read = True
        return has_read

    def prompts(self, host: "Host", named: "Callable[[PromptOffer], str]") -> "Mapping[str, PromptOffer]":
        """The known prompts, by the name of their verb."""
        from fairlead.catalog.tools import PromptOffer

        offered = tuple(
            self.offers(host, PromptOffer, status.server_id) for status in host.status() if status.enabled
        )
        before = self._prompts[0]
        if len(before) != len(offered) or not all(map(operator.is_, before, offered)):
            by_name: dict[str, PromptOffer] = {}
            for prompt in islice(chain.from_iterable(offered), MOST_PROMPTS):
                by_name.setdefault(named(prompt), prompt)
            self._prompts = offered, by_name
        return self._prompts[1]

    async def of_prompt(
        self, host: "Host", prompt: "PromptOffer", argument: str, value: str, others: Mapping[str, str]
    ) -> tuple[str, ...]:
        """A server's completions of a prompt's argument; none where it has none, or not in time."""
        key = prompt.server_id, "prompt", prompt.name, argument, value, tuple(others.items())
        return await self._complete_cached(
            key,
            lambda: host.prompts.complete(prompt.server_id, prompt.name, argument, value, others=others),
        )

    async def of_template(
        self, host: "Host", template: "ResourceTemplate", blank: str, value: str, others: Mapping[str, str]
    ) -> tuple[str, ...]:
        """A server's completions of a template's variable, likewise."""
        server_id, uri = template.server_id, template.uri_template
        key = server_id, "template", uri, blank, value, tuple(others.items())
        return await self._complete_cached(
            key, lambda: host.resources.complete(server_id, uri, blank, value, others=others)
        )

    async def _complete_cached(
        self, key: Hashable, ask: "Callable[[], Awaitable[Completion]]"
    ) -> tuple[str, ...]:
        known = self._values.get(key)
        if known is not None and self._clock() - known[0] < FRESH_SECONDS:
            return known[1]
        with anyio.move_on_after(ANSWER_SECONDS):
            try:
                values = (await ask()).values
            except FairleadError:
                return ()  # a suggestion that cannot be had is none, and no error
            if len(self._values) >= MOST_KEPT:
                self._values.clear()
            self._values[key] = self._clock(), values
            return values
        return ()
