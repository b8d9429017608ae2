"""Tools as they are typed at the command line.

A server chooses the names of its tools. None of them may change what a typed word means: `all` and `none` are
keywords, commas separate names, and a name that could be read in another way, too, has a spelling that
cannot (`typed_name`), which is what hints print.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from fairlead.catalog.entries import ToolKey
from fairlead.config.command_lines import command_line
from fairlead.policy.tool_patterns import escape_name

ALL: Final = "all"
NONE: Final = "none"
_QUALIFIED: Final = re.compile(r"^([a-zA-Z0-9_-]{1,64})/")


def typed_name(key: ToolKey) -> str:
    """How `--allow` and the like name this tool and no other, whatever characters its name has."""
    name = escape_name(key.typed_tool).replace(",", "[,]")
    if name in (ALL, NONE):
        return f"[{name[0]}]{name[1:]}"
    # What stands before a slash could be the id of a server, and then the rest is a tool of that server.
    return _QUALIFIED.sub(r"\1[/]", name)


def owner_of(name: str, server_ids: Collection[str]) -> str | None:
    """The server whose tools alone a name means: `ID/TOOL`, where there is such a server."""
    owner, slash, _ = name.partition("/")
    return owner if slash and owner in server_ids else None


def split_names(word: str) -> list[str]:
    """The names in a word: separated by commas, but for those in brackets (`a[,]b`)."""
    return [name.strip() for name in _split(word)]


def _split(word: str) -> Iterator[str]:
    start = position = 0
    while position < len(word):
        if word[position] == ",":
            yield word[start:position]
            start = position + 1
        elif word[position] == "[":
            # As in globs, a bracket right after the opening one is a character, and one never closed is one.
            closing = word.find("]", position + 2)
            position = closing if closing > 0 else position
        position += 1
    yield word[start:]


def review_command(key: ToolKey) -> str:
    """The command that allows one tool."""
    return command_line("review", key.server_id, options=("--allow", typed_name(key)))
