"""Tool names and globs in `allow_tools`, `deny_tools`, rules, approval modes and on the command line.

A pattern without `*`, `?` and `[` is the name of one tool; others are globs as in `fnmatch`, by case. Servers
choose the names of their tools, and none may change what a pattern or a typed word means: in lists a name
such as `*` is escaped (`[*]`); on the command line, where `all` and `none` are keywords and commas separate
names, hints print an unambiguous spelling (`command_line_name`). There a tool is written `server.tool`;
`server/tool`, `server:tool` and `server__tool` mean the same (`owners_of`).
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, get_args

from fairlead.catalog.tools import ToolKey, slug, unescape_name
from fairlead.config.command_lines import command_line
from fairlead.config.models import BuiltinName

_WILD: Final = re.compile(r"[*?\[]")
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")
_ESCAPED_NAME: Final = re.compile(r"(?:[^*?\[]|\[[*?\[]\])*+", re.DOTALL)


def escape_name(tool: str) -> str:
    """Pattern that matches this tool and no other."""
    return _WILD.sub(r"[\g<0>]", tool)


def exact_name(pattern: str) -> str | None:
    """The one name that a pattern matches; None where it is a glob."""
    if not _WILD.search(pattern):
        return pattern
    return _ESCAPED.sub(r"\1", pattern) if _ESCAPED_NAME.fullmatch(pattern) else None


def is_glob(pattern: str) -> bool:
    """Whether a pattern can match more than one tool."""
    return exact_name(pattern) is None


def matches(tool: str, pattern: str) -> bool:
    """Whether the pattern matches the tool."""
    name = exact_name(pattern)
    return tool == name if name is not None else fnmatchcase(tool, pattern)


def matches_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Whether any of the patterns matches the tool."""
    names, globs = _names_and_globs(patterns)
    return tool in names or any(fnmatchcase(tool, glob) for glob in globs)


def globs_in(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that can match more than one tool."""
    return _names_and_globs(patterns)[1]


def refuses_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Whether any pattern of a denylist matches the tool, or is spelled just like it.

    Earlier releases wrote names into denylists without escaping them, and those must still hold.
    """
    return tool in patterns or matches_any(tool, patterns)


def denies_any(server_id: str, tool: str, patterns: tuple[str, ...]) -> bool:
    """Whether any pattern that narrows (of a denylist or a rule) means a tool, however it is spelled.

    Besides the tool's own name these are the spellings that the command line takes: `server.tool` and the
    like, and the name of a built-in server's tool without its server. A denial must not lapse because it was
    written as tools are printed. What allows goes by a tool's own name alone.
    """
    if refuses_any(tool, patterns):
        return True
    if not patterns or not server_id:
        return False
    own = tool.removeprefix(f"{server_id}.")
    if own != tool and refuses_any(own, patterns):
        return True
    after = tuple(rest for _, rest in qualified_in(server_id, patterns))
    return bool(after) and (refuses_any(tool, after) or refuses_any(own, after))


@lru_cache(maxsize=1024)
def qualified_in(server_id: str, patterns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The patterns that begin with the server's id, each with what follows it."""
    return tuple((pattern, rest) for pattern in patterns for _, rest in owners_of(pattern, (server_id,)))


@lru_cache(maxsize=1024)
def _names_and_globs(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Split a list into names and globs: a review writes hundreds of names, and every call is checked."""
    names = (exact_name(pattern) for pattern in patterns)
    return frozenset(name for name in names if name is not None), tuple(filter(is_glob, patterns))


ALL: Final = "all"
NONE: Final = "none"
_QUALIFIED: Final = re.compile(r"^([a-zA-Z0-9_-]{1,64})/")
_LOOKS_QUALIFIED: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}(?:[.:]|__)")
_BUILTIN: Final = frozenset(get_args(BuiltinName))
_MARK: Final = re.compile(r"[./:]")
_DOUBLE: Final = "__"


def command_line_name(key: ToolKey, *, long: bool = False) -> str:
    """Spelling for `--allow` and the like that means this tool and no other, for any name.

    Args:
        key: The tool.
        long: Whether its server is to have the id of a built-in one without being it: then
            `repo.repo.readFile` rather than `repo.readFile`.
    """
    name = escape_name(key.typed_tool).replace(",", "[,]")
    if name in (ALL, NONE):
        return f"[{name[0]}]{name[1:]}"
    # Tools of built-in servers are named after them, and none is called by the rest alone.
    if not long and key.server_id in _BUILTIN and name.startswith(f"{key.server_id}."):
        return name
    # Text before a mark could be a server's id, and then the rest would be a tool of that server.
    name = _QUALIFIED.sub(r"\1[/]", name)
    return f"{key.server_id}.{name}" if _LOOKS_QUALIFIED.match(name) else name


def qualified_name(key: ToolKey) -> str:
    """The same with the server's id, for where other servers may have a tool of that name."""
    name, prefix = command_line_name(key), f"{key.server_id}."
    return name if name.startswith(prefix) else f"{prefix}{name}"


def written_name(server_id: str, tool: str) -> str:
    """Name of a tool with its server's id for messages: as `qualified_name`, but not escaped for a shell."""
    if server_id in _BUILTIN and tool.startswith(f"{server_id}."):
        return tool
    return f"{server_id}.{tool}"


def owners_of(name: str, server_ids: Collection[str]) -> list[tuple[str, str]]:
    """Readings of a name as a server's id and the name of its tool, with a mark between them.

    Ids have no `.`, `/` or `:`, so what is before such a mark can be one server only. Without such a reading,
    there can be several with `__`, which ids and tools may have.
    """
    if (mark := _MARK.search(name)) and (owner := name[: mark.start()]) in server_ids:
        return [(owner, name[mark.end() :])] if name[mark.end() :] else []
    found: list[tuple[str, str]] = []
    start = name.find(_DOUBLE)
    while start > 0:
        rest = name[start + len(_DOUBLE) :]
        if rest and (owner := name[:start]) in server_ids:
            found.append((owner, rest))
        start = name.find(_DOUBLE, start + 1)
    return found


def means_key(name: str, key: ToolKey) -> bool:
    """Whether a typed name means this tool: its own name, alone or after its server's in any spelling.

    Names of the gateway's and the readable scheme count, too.
    """
    if name in (key.tool, key.shown_tool) or unescape_name(name) == key.tool:
        return True
    if not name.startswith((key.server_id, slug(key.server_id))):
        return False
    own = {key.tool, key.shown_tool, key.typed_tool}
    if any(rest in own for _, rest in owners_of(name, (key.server_id,))):
        return True
    server, tool = slug(key.server_id), slug(key.tool)
    return name in (f"{server}_{tool}", f"{server}__{tool}")


def split_names(word: str) -> list[str]:
    """Split a word at commas, except in brackets (`a[,]b`)."""
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
    """Command that reviews one tool."""
    return command_line("review", key.server_id, options=("--allow", command_line_name(key)))
