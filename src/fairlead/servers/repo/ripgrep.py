"""The search tool of the built-in `repo` server: ripgrep where it is installed, else a scan in Python."""

import os
import re
import shutil
import time
from functools import partial
from typing import Annotated, Literal

import anyio
from anyio import to_thread
from mcp_types import TextContent, ToolAnnotations
from pydantic import AfterValidator, Field

from fairlead.bubblewrap import find_program
from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.repo import engines
from fairlead.servers.repo.engines import Runner
from fairlead.servers.repo.folders import Confinement, Root, display_path, is_private
from fairlead.servers.repo.ignores import GlobFilter, GlobInvalid, IgnoreRules, glob_filter
from fairlead.servers.repo.matches import Match, MatchReader, as_text, clean_line
from fairlead.servers.repo.scan import ScanQuery

DEADLINE_SECONDS = 20.0
"""How long a search may take; what it has found by then is the answer."""

MOST_MATCHES = 2_000
SEARCHES_AT_ONCE = 4

Engine = Literal["ripgrep", "python"]


class SearchInput(ToolModel):
    """Input of the search tool."""

    query: Annotated[str, Field(min_length=1, max_length=1000)]
    """A regular expression in ripgrep's syntax, matched within lines; no look-around, no backreferences."""
    globs: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default_factory=list[str], max_length=32
    )
    """Only files that one of these fits: `*.py`, `src/**`, `.github/**`; `!tests/**` leaves files out."""
    max_matches: Annotated[int, Field(ge=1), AfterValidator(lambda value: min(value, MOST_MATCHES))] = 50
    """How many matching lines to return; 2000 at most."""
    case: Literal["smart", "sensitive", "insensitive"] = "smart"
    """`smart`: case counts only if the query has a capital letter."""
    fixed: bool = False
    """Take the query as plain text, not as a regular expression."""
    context: Annotated[int, Field(ge=0, le=10)] = 0
    """How many lines to return above and below each match."""


class SearchOutput(ToolModel):
    """Output of the search tool."""

    matches: list[Match]
    truncated: bool
    """Whether there may be more: the limit was reached, or the time was up."""
    ms: int
    engine: Engine


def search_tool(confinement: Confinement, *, program: str | None = "rg") -> AnyTool:
    """The tool that searches all of `confinement`, which stays the caller's to close.

    `program` is ripgrep, by name or path; None has Python do it.
    """
    return ToolDefinition(
        name="repo.ripgrep",
        title="Search in files",
        description=(
            "Search the text of the project's files, as ripgrep does. Matching lines come in the order of "
            "their paths. Left out are files that .gitignore or .ignore name, binary and very large files, "
            "links, and hidden files unless a glob names them."
        ),
        input=SearchInput,
        output=SearchOutput,
        handler=_Searcher(confinement, _find_program(program, confinement)).search,
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _find_program(program: str | None, confinement: Confinement) -> str | None:
    """The absolute path of a program, from outside of the folders that are searched."""
    if program is None or os.path.isabs(program):
        return program and shutil.which(program)
    return find_program(program, os.environ.get("PATH"), (root.path for root in confinement.roots))


class _Searcher:
    """Searches one confinement, a few times at once at most."""

    def __init__(self, confinement: Confinement, program: str | None) -> None:
        self._confinement = confinement
        self._program = program
        self._turns = anyio.Semaphore(SEARCHES_AT_ONCE)

    async def search(self, _: ToolContext, request: SearchInput) -> Reply[SearchOutput]:
        """Answer one call."""
        if not set("\n\0").isdisjoint(request.query):
            raise ToolFailed(
                "a match is within one line, so the query must be", hint="search for one of its lines"
            )
        started = time.monotonic()
        engine: Engine = "ripgrep" if self._program else "python"
        reader = MatchReader(limit=request.max_matches, context=request.context)
        async with self._turns:
            with anyio.move_on_after(DEADLINE_SECONDS) as deadline:
                engine = await self._search_in_thread(request, reader)
        output = SearchOutput(
            matches=reader.matches,
            truncated=reader.is_full or deadline.cancel_called,
            ms=round((time.monotonic() - started) * 1000),
            engine=engine,
        )
        return Reply(output=output, content=(TextContent(text=_in_words(output)),))

    async def _search_in_thread(self, request: SearchInput, reader: MatchReader) -> Engine:
        """Search without holding up the event loop. If this is cancelled, it ends when the search has."""
        runner = Runner()
        outcome: Engine | ToolFailed | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_cancelled, runner)
            try:
                outcome = await to_thread.run_sync(self._search_roots, request, reader, runner)
            except ToolFailed as error:
                # From inside it would arrive as one of a group.
                outcome = error
            tasks.cancel_scope.cancel()
        assert outcome
        if isinstance(outcome, ToolFailed):
            raise outcome
        return outcome

    def _search_roots(self, request: SearchInput, reader: MatchReader, runner: Runner) -> Engine:
        engine: Engine = "ripgrep" if self._program else "python"
        for root in self._confinement.roots:
            engine = self._search_root(root, request, reader, runner)
            if reader.is_full:
                break
        return engine

    def _search_root(self, root: Root, request: SearchInput, reader: MatchReader, runner: Runner) -> Engine:
        wanted = _build_glob_filter(request.globs, root)
        search = ScanQuery(
            query=request.query,
            is_fixed=request.fixed,
            is_sensitive=_is_sensitive(request),
            context=request.context,
            # One more, to know that there are more, and those that are lines around the last.
            limit=request.max_matches + 1 + request.context,
            narrowing=wanted.lines,
            with_hidden=wanted.names_hidden,
        )
        reader.begin(partial(_visible_path, root, IgnoreRules(wanted.lines)))
        with self._confinement.folder(root.name if root.prefix else ".") as folder:
            if self._program and engines.ripgrep(self._program, runner, folder, search, reader):
                return "ripgrep"
            engines.scan(runner, folder, search, reader)
            return "python"


async def _stop_when_cancelled(runner: Runner) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        runner.stop()


def _is_sensitive(request: SearchInput) -> bool:
    if request.case != "smart":
        return request.case == "sensitive"
    # The capital in `\S` is none.
    letters = request.query if request.fixed else re.sub(r"\\.", "", request.query)
    return any(map(str.isupper, letters))


def _build_glob_filter(globs: list[str], root: Root) -> GlobFilter:
    """Filter for a caller's globs."""
    try:
        return glob_filter(_below(root, glob) for glob in globs)
    except GlobInvalid as error:
        raise ToolFailed(
            f"invalid glob {clean_line(str(error))}", hint="globs are like `*.py`, `src/**` or `!tests/**`"
        ) from error


def _below(root: Root, glob: str) -> str:
    """A glob without the name of the root it begins with, as paths do where there are several."""
    path = glob.removeprefix("!").removeprefix("/")
    if not root.prefix or not f"{path}/".startswith(root.prefix):
        return glob
    return ("!" if glob.startswith("!") else "") + "/" + (path[len(root.prefix) :] or "**")


def _visible_path(root: Root, rules: IgnoreRules, path: str) -> str | None:
    """Path for display, or None if it is not to be shown.

    ripgrep lets a `.gitignore` bring back what globs leave out, and has no notion of what is private.
    """
    names = path.split("/")
    if any(map(is_private, names)) or rules.leave_out(path):
        return None
    return display_path(root, names)


def _in_words(output: SearchOutput) -> str:
    text = as_text(output.matches) or "no matches"
    if output.truncated:
        text += "\n\n(there may be more: narrow the query or the globs, or raise maxMatches)"
    return text
