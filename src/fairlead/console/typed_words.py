"""Parsing of what follows a verb: words, in quotes where they have blanks, and NAME=VALUE.

Also what Tab suggests in their place.
"""

import shlex
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from fairlead.errors import ArgumentsInvalid

MOST_SUGGESTED: Final = 200
"""How many suggestions there are at most; typing on narrows them."""


class Suggestion(NamedTuple):
    """A completion, and the number of characters before the cursor that it replaces."""

    text: str
    replaces: int = 0
    """How many characters before the cursor it takes the place of."""
    note: str = ""
    """Its description, next to it in the menu."""


def suggest(typed: str, words: Iterable[str | tuple[str, str]]) -> list[Suggestion]:
    """The first words that begin with what was typed; a pair is a word and a note about it."""
    pairs = ((word, "") if isinstance(word, str) else word for word in words)
    found = (Suggestion(word, len(typed), note) for word, note in pairs if word.startswith(typed))
    return [*islice(found, MOST_SUGGESTED)]


def words_of(text: str) -> list[str]:
    """Split a line into words as a shell does, without expansion; a backslash stands for itself."""
    reader = shlex.shlex(text, posix=True)
    reader.whitespace_split = True
    reader.commenters = reader.escape = ""
    try:
        return list(reader)
    except ValueError as exc:
        hint = 'a quote in a value goes into quotes of the other kind: name="it\'s"'
        raise ArgumentsInvalid("a quote has no partner", hint=hint) from exc


def option_of(words: Sequence[str], name: str) -> tuple[list[str], str | None]:
    """The words without `NAME VALUE` or `NAME=VALUE`, and the value; None where it is not there."""
    rest, value = [*words], None
    for place, word in enumerate(words):
        option, equals, given = word.partition("=")
        if option != name:
            continue
        if not equals and place + 1 == len(words):
            raise ArgumentsInvalid(f"`{name}` which?")
        value = given if equals else words[place + 1]
        del rest[place : place + (1 if equals else 2)]
        break
    return rest, value


def pairs_of(words: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, as names and values. Raises `ArgumentsInvalid` for what has another name, or none."""
    wanted = [*names]
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in wanted:
            takes = ", ".join(f"{name}=…" for name in wanted) or "nothing"
            raise ArgumentsInvalid(f"`{word}` is not understood here", hint=f"it takes {takes}")
        pairs[name] = value
    return pairs
