"""The built-in servers `repo`, `docs`, `edit` and `shell`, alone or together as one."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.servers.docs.docs import docs_tool
from fairlead.servers.edit.tools import edit_tools
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import AnyTool
from fairlead.servers.repo.files import file_tools
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.repo.ripgrep import search_tool

if TYPE_CHECKING:
    from fairlead.servers.shell.tools import ShellAccess


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltinAccess:
    """Access of the built-in servers: folders, and pages of allowed domains."""

    roots: tuple[Path, ...]
    allow: Callable[[], Sequence[str]]
    """The sites whose pages may be read, as things are now."""
    cache: Path | None
    protected: Callable[[], Sequence[Path]] = tuple
    """Returns files and folders that `edit` leaves alone, whatever their names."""
    shell: "ShellAccess | None" = None
    """The sandbox of commands; only `shell` needs it."""


@contextmanager
def open_builtin_server(names: Iterable[str], reach: BuiltinAccess) -> Generator[McpServer]:
    """One server with the tools of all that are named, for the length of the block."""
    with ExitStack() as stack:
        tools: list[AnyTool] = []
        if "repo" in names:
            confinement = stack.enter_context(Confinement(reach.roots))
            tools += [search_tool(confinement), *file_tools(confinement)]
        if "edit" in names:
            tools += edit_tools(stack.enter_context(Confinement(reach.roots)), protected=reach.protected)
        if "docs" in names:
            cache = reach.cache / "docs" if reach.cache else None
            tools.append(docs_tool(allow=reach.allow, cache=cache))
        if "shell" in names:
            from fairlead.servers.shell.tools import shell_tools  # not on Windows, which has no sandbox

            assert reach.shell is not None
            tools += shell_tools(stack.enter_context(Confinement(reach.roots)), reach.shell)
        yield McpServer(_name(names), tools=tools)


def _name(names: Iterable[str]) -> str:
    return "-".join(["fairlead", *names])
