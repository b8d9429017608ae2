"""What is typed after a name: words, in quotes where they have blanks, and NAME=VALUE."""

import shlex
from collections.abc import Iterable

from fairlead.errors import ArgumentsInvalid


def words_of(text: str) -> list[str]:
    """The words of a line, as a shell would read them. Nothing is expanded, and `\\` stands for itself."""
    reader = shlex.shlex(text, posix=True)
    reader.whitespace_split = True
    reader.commenters = reader.escape = ""
    try:
        return list(reader)
    except ValueError as exc:
        hint = 'a quote in a value goes into quotes of the other kind: name="it\'s"'
        raise ArgumentsInvalid("a quote has no partner", hint=hint) from exc


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
