"""Tool names and globs in `allow_tools`, `deny_tools`, rules and approval modes.

A pattern without `*`, `?` and `[` is the name of one tool. Others are globs as in `fnmatch`, by case. A
server may give a tool a name such as `*`: written into a list it is escaped (`[*]`), and an escaped name
matches only that tool.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

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
    names, globs = _split(patterns)
    return tool in names or any(fnmatchcase(tool, glob) for glob in globs)


def refuses_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Does any pattern of a denylist match the tool? One that is spelled just like the tool does, too.

    Earlier releases wrote names into denylists without escaping them, and those must still hold.
    """
    return tool in patterns or matches_any(tool, patterns)


@lru_cache(maxsize=1024)
def _split(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names and the globs of a list: a review writes hundreds of names, and every call asks."""
    names = (exact_name(pattern) for pattern in patterns)
    return frozenset(name for name in names if name is not None), tuple(filter(is_glob, patterns))
