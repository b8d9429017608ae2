"""Tool names and globs in `allow_tools`, `deny_tools`, rules and approval modes.

A pattern without `*`, `?` and `[` is the name of one tool. Others are globs as in `fnmatch`, by case. A
server may give a tool a name such as `*`: written into a list it is escaped (`[*]`), and an escaped name
matches only that tool.

Tools as they are typed at the command line.

A server chooses the names of its tools. None of them may change what a typed word means: `all` and `none` are
keywords, commas separate names, and a name that could be read in another way, too, has a spelling that
cannot (`typed_name`), which is what hints print.
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from fairlead.catalog.tools import ToolKey
from fairlead.config.command_lines import command_line

_WILD: Final = re.compile(r"[*?\[]")
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")
_ESCAPED_NAME: Final = re.compile(r"(?:[^*?\[]|\[[*?\[]\])*+", re.DOTALL)


def escape_name(tool: str) -> str:
    """The pattern that matches this tool and no other."""
    return _WILD.sub(r"[\g<0>]", tool)


def exact_name(pattern: str) -> str | None:
    """The one name that a pattern matches; None where it is a glob."""
    if not _WILD.search(pattern):
        return pattern
    return _ESCAPED.sub(r"\1", pattern) if _ESCAPED_NAME.fullmatch(pattern) else None


def is_glob(pattern: str) -> bool:
    """Is it more than the name of one tool?"""
    return exact_name(pattern) is None


def matches(tool: str, pattern: str) -> bool:
    """Does the pattern match the tool?"""
    name = exact_name(pattern)
    return tool == name if name is not None else fnmatchcase(tool, pattern)


def matches_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Does any of the patterns match the tool?"""
    names, globs = _names_and_globs(patterns)
    return tool in names or any(fnmatchcase(tool, glob) for glob in globs)


def refuses_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Does any pattern of a denylist match the tool? One that is spelled just like the tool does, too.

    Earlier releases wrote names into denylists without escaping them, and those must still hold.
    """
    return tool in patterns or matches_any(tool, patterns)


@lru_cache(maxsize=1024)
def _names_and_globs(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names and the globs of a list: a review writes hundreds of names, and every call asks."""
    names = (exact_name(pattern) for pattern in patterns)
    return frozenset(name for name in names if name is not None), tuple(filter(is_glob, patterns))


ALL: Final = "all"
NONE: Final = "none"
_QUALIFIED: Final = re.compile(r"^([a-zA-Z0-9_-]{1,64})/")


def command_line_name(key: ToolKey) -> str:
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
    return [name.strip() for name in _split_at_commas(word)]


def _split_at_commas(word: str) -> Iterator[str]:
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
    return command_line("review", key.server_id, options=("--allow", command_line_name(key)))
