"""The servers that come with Fairlead: `repo` and `docs`, alone or together as one."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.servers.confine import Confinement
from fairlead.servers.definition import AnyTool
from fairlead.servers.docs import docs_tool
from fairlead.servers.files import file_tools
from fairlead.servers.ripgrep import search_tool
from fairlead.servers.server import McpServer

NAMES = ("repo", "docs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What the built-in servers can see: folders, and pages of allowed domains."""

    roots: tuple[Path, ...]
    allow: Callable[[], Sequence[str]]
    """The sites whose pages may be read, as things are now."""
    cache: Path | None


@contextmanager
def built_in_server(names: Iterable[str], reach: Reach) -> Generator[McpServer]:
    """One server with the tools of all that are named, for the length of the block."""
    with ExitStack() as stack:
        tools: list[AnyTool] = []
        if "repo" in names:
            confinement = stack.enter_context(Confinement(reach.roots))
            tools += [search_tool(confinement), *file_tools(confinement)]
        if "docs" in names:
            cache = reach.cache / "docs" if reach.cache else None
            tools.append(docs_tool(allow=reach.allow, cache=cache))
        yield McpServer(_name(names), tools=tools)


def _name(names: Iterable[str]) -> str:
    return "-".join(["fairlead", *names])
