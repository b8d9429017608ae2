"""What Tab completes: what is known at once, and then what servers suggest."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from fairlead.cli.output import printable
from fairlead.console.verb import Suggestion

Suggest = Callable[[str], Iterable[Suggestion]]
Ask = Callable[[str], Awaitable[Iterable[Suggestion]]]


class LineCompleter(Completer):
    """Has somebody suggest what may come next, given the line up to the cursor."""

    def __init__(self, suggest: Suggest, ask: Ask) -> None:
        self._suggest = suggest
        self._ask = ask

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What is known."""
        return _completions(self._suggest(document.text_before_cursor))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        """What is known, and then what a server says. Whoever types on does not wait for it."""
        for known in self.get_completions(document, complete_event):
            yield known
        for asked in _completions(await self._ask(document.text_before_cursor)):
            yield asked


def _completions(suggestions: Iterable[Suggestion]) -> Iterable[Completion]:
    """The suggestions that can be typed: a server's words among them must not steer the terminal."""
    for text, replaces, note in suggestions:
        if text.isprintable():
            yield Completion(text, start_position=-replaces, display_meta=printable(note))
