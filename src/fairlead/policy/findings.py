"""What a reviewer should look at in a tool's definition: hidden text, and words that look like an attack.

The words are advice. Nothing is refused for them: who means harm finds others, and who means none uses some.
"""

from collections.abc import Iterator
from itertools import islice

from fairlead.catalog import gate
from fairlead.catalog.cleaning import MAX_FINDINGS, Finding, hidden_text, texts
from fairlead.catalog.entries import ToolEntry
from fairlead.catalog.sanitise import suspicious

__all__ = ["Finding", "findings_of"]


def findings_of(entry: ToolEntry) -> tuple[Finding, ...]:
    """All there is to say about a tool as its server defined it: what it hides first, then its words."""
    try:
        advice = tuple(islice(_advice(entry), MAX_FINDINGS))
    except (ValueError, RecursionError):
        return ()  # nobody can read it, so nobody is offered it
    return (*hidden_text(entry), *advice)


def _advice(entry: ToolEntry) -> Iterator[Finding]:
    for where, text in texts(entry.read()):
        for advice in suspicious(text):
            yield Finding(where=gate.masked(where), kind="suspicious", count=1, sample=gate.masked(advice))
