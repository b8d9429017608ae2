"""Findings in tool definitions: hidden characters, and text that looks like prompt injection.

They are advice for reviewers; nothing is refused for them.
"""

from collections.abc import Iterator
from itertools import islice

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import MAX_FINDINGS, DefinitionFinding, hidden_text, texts
from fairlead.catalog.sanitize.text import inspect, reveal_hidden, suspicious
from fairlead.catalog.tools import ToolEntry
from fairlead.config.untyped import is_list, is_object

__all__ = ["DefinitionFinding", "findings_of", "has_findings", "words_of"]


def findings_of(entry: ToolEntry) -> tuple[DefinitionFinding, ...]:
    """Findings in a tool's definition: hidden characters first, then suspicious text."""
    return _find(entry) if has_findings(entry) else ()


def has_findings(entry: ToolEntry) -> bool:
    """Whether there are findings in a tool's definition, computed once per entry."""
    return entry.derive(_has_findings)


def words_of(finding: DefinitionFinding) -> str:
    """Description of a finding."""
    where = reveal_hidden(finding.where)
    if finding.kind == "suspicious":
        return f"its {where} looks suspicious: it {finding.sample}"
    return f"{where} hides {finding.kind} characters ({finding.count}): {reveal_hidden(finding.sample)}"


def _find(entry: ToolEntry) -> tuple[DefinitionFinding, ...]:
    try:
        advice = tuple(islice(_advice(entry), MAX_FINDINGS))
    except (ValueError, RecursionError):
        return ()  # an unreadable definition is not offered
    return (*hidden_text(entry), *advice)


def _advice(entry: ToolEntry) -> Iterator[DefinitionFinding]:
    for where, text in texts(entry.read()):
        for advice in suspicious(text):
            yield DefinitionFinding(
                where=gate.mask_secrets(where), kind="suspicious", count=1, sample=gate.mask_secrets(advice)
            )


def _has_findings(entry: ToolEntry) -> bool:
    # A definition has dozens of short texts, and most have nothing to find: all are first looked at as one.
    # A quotation mark between them is no letter, space or line end, so what is found in one of them is also
    # found in the whole. What is found across two is none: that needs the closer look.
    try:
        whole = '"'.join(_strings(entry.read()))
    except (ValueError, RecursionError):
        return False
    return bool(inspect(whole).findings or suspicious(whole)) and bool(_find(entry))


def _strings(value: object) -> Iterator[str]:
    """Every text in a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif is_list(value):
        for item in value:
            yield from _strings(item)
    elif is_object(value):
        for name, item in value.items():
            yield name
            yield from _strings(item)
