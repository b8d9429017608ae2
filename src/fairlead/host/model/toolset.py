"""Toolsets: the tools of a bundle or of all servers, for a model to list, search and call by public name."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from fairlead.adapters import anthropic, gemini, openai
from fairlead.adapters.definition import Caller as AdaptedCaller
from fairlead.bounded_repr import count
from fairlead.catalog.catalog import Catalog, CatalogTool
from fairlead.catalog.results import ToolResult, says_error
from fairlead.catalog.search.memory import PastQueries
from fairlead.catalog.search.score import SemanticIndex
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.argument_types import check_types, wrong_type
from fairlead.config.command_lines import command_line
from fairlead.config.principal import LOCAL
from fairlead.errors import (
    AuthRequired,
    ClientRegistrationRequired,
    FairleadError,
    RunCancelled,
    ServerError,
    UnknownTool,
)
from fairlead.events import DOWN
from fairlead.host.background import (
    AT_ONCE,
    load_off_loop,
    run_in_background,
    run_off_loop,
    size_of_catalog,
    size_of_tools,
)
from fairlead.host.call import OnProgress
from fairlead.host.model.bundles import Selection
from fairlead.host.model.catalogs import cost_of, has_reading, is_direct
from fairlead.host.model.meta_tools import MetaTools, SearchOutcome
from fairlead.host.model.provider_tools import ProviderTools
from fairlead.host.model.resource_tools import ArtifactTools, ReadingTools
from fairlead.host.model.search_answers import RankedTools, rank_tools
from fairlead.host.model.toolset_host import ToolsetHost
from fairlead.host.model.vision import strip_images
from fairlead.host.search_memory import SearchSession
from fairlead.host.server_status import ServerStatus

if TYPE_CHECKING:
    from pydantic_ai import Tool as PydanticTool

    from fairlead.adapters.export import Loss
    from fairlead.adapters.langchain import FairleadTool
    from fairlead.config.dialects.dialect import ExportedDocument

AdaptedT = TypeVar("AdaptedT")
FoundT = TypeVar("FoundT")

PATIENCE_SECONDS = 15.0
"""How long to wait for servers that were never listed, before the tools of the others are returned."""

CATALOG_SECONDS = 1.0
"""How long to wait for a large catalog to be made where servers took all of the time."""

_MOST_NAME_CHARACTERS = 200
"""How much of a wrong name is compared with the names of tools."""

MAX_LOGIN_HINTS = 5
"""How many servers that need a login are named in one hint."""

SETTLE_SECONDS = 2.0
"""How long to wait for a list that a server announced as changed."""


class Toolset:
    """The tools of a selection: `host.tools` for all servers, `host.toolset("name")` for a bundle.

    Tools of servers that were listed before are there at once; other servers are connected first.

    ```python
    found = await host.tools.search("what time is it")
    result = await host.tools.call("time.get_current_time", {"timezone": "UTC"})
    ```
    """

    def __init__(
        self,
        host: ToolsetHost,
        selection: Selection,
        principal: str = LOCAL,
        groups: frozenset[str] = frozenset(),
        session: SearchSession | None = None,
        patience: float | None = None,
    ) -> None:
        self._host = host
        self.selection = selection
        self.principal = principal
        """The identity that its calls are made for."""
        self.groups = groups
        """The groups that the principal is a member of."""
        self.session = session or SearchSession()
        """What its agent searched for and was shown."""
        self._patience = PATIENCE_SECONDS if patience is None else patience
        """How long it waits for a server from its start on."""
        self._meta = MetaTools(self)
        self._reading = ReadingTools(host, selection, principal)
        self._artifacts = ArtifactTools(host.artifacts, principal)

    # Listing and search.

    def __repr__(self) -> str:
        known = count(len(self.catalog), "known tool")
        return f"<Toolset of {self.selection.name or 'all servers'}: {known}>"

    @property
    def catalog(self) -> Catalog:
        """The tools that are known now. Contacts no server."""
        return self._host.catalog(self.selection)

    @property
    def unavailable(self) -> dict[str, str]:
        """The enabled servers that cannot be used now, each with the reason."""
        return {
            status.server_id: status.last_error or status.state
            for status in self._host.status()
            if self.selection.has(status.server_id) and status.enabled and status.state in DOWN
        }

    @property
    def unavailable_to_model(self) -> dict[str, str]:
        """The servers that cannot be used now, without the words of an untrusted one, which errors quote."""
        known = self.unavailable
        return {
            status.server_id: known[status.server_id]
            if self._host.is_trusted(status.server_id)
            else self._describe_state(status)
            for status in self._host.status()
            if status.server_id in known
        }

    def _describe_state(self, status: ServerStatus) -> str:
        if status.state in ("auth_required", "needs_client_registration"):
            return f"it needs a login: {self._host.login_hint(status.server_id)}"
        return f"it does not work; the user can see why: `{command_line('status', status.server_id)}`"

    @check_types
    async def ready(self, *, seconds: float | None = None) -> "Toolset":
        """Connect the servers that were never listed and wait for them.

        A server that failed before is retried in the background and not waited for.

        Args:
            seconds: How long to wait at most. If not given, each server is waited for until 15 s after its
                start, however often this is called.

        Returns:
            This toolset.
        """
        await self._host.notice_consents()
        unknown = [
            status
            for status in self._host.status()
            if self.selection.has(status.server_id) and status.enabled and status.tools is None
        ]
        # One that was lost before it was listed is idle, and no call of its unknown tools would connect it.
        failed = (each.server_id for each in unknown if each.last_error and each.state in ("error", "idle"))
        self._host.retry(*failed)
        untried = [status.server_id for status in unknown if status.last_error is None]
        if seconds is None:
            # One that hangs would hold up each search and each step of a model, for as long as it does.
            left = {name: self._patience - self._connecting_seconds(name) for name in untried}
            untried = [name for name in untried if left[name] > 0]
            seconds = max((left[name] for name in untried), default=self._patience)
        with anyio.move_on_after(seconds) as wait:
            if untried:
                await self._host.connect(*untried)
        left = max(wait.deadline - anyio.current_time(), CATALOG_SECONDS if seconds else 0)
        with anyio.move_on_after(left):
            await self._host.wait_for_catalog(self.selection)
        return self

    def _connecting_seconds(self, server_id: str) -> float:
        connection = self._host.servers.get_known(server_id).connection
        return connection.vitals.connecting_seconds if connection is not None else 0.0

    async def wait_until_settled(self) -> "Toolset":
        """Wait, at most `SETTLE_SECONDS`, for lists that servers have just announced as changed.

        A model whose call added a tool then sees it in its next step.

        Returns:
            This toolset.
        """
        with anyio.move_on_after(SETTLE_SECONDS):
            for managed in self._host.servers:
                connection = managed.connection
                chosen = connection is not None and self.selection.has(managed.server.server_id)
                if connection is not None and chosen and connection.vitals.state == "ready":
                    await connection.up_to_date.wait()
        return self

    async def list(self) -> tuple[CatalogTool, ...]:
        """Every tool that may be called, ordered by public name."""
        return (await self.ready()).catalog.tools

    @check_types
    async def get(self, name: str) -> CatalogTool:
        """The tool with a public name. Servers are waited for only if the name is not known yet.

        Args:
            name: The public name, or `server.tool`.

        Raises:
            CallDenied: The tool is denied or quarantined.
            AuthRequired: The name is that of a server whose tools are known only after a login.
            ClientRegistrationRequired: The same, and a client has to be registered first.
            UnknownTool: There is no such tool, or its definition cannot be used.
        """
        known = self.catalog.find_tool(name)
        return known or self.find((await self.ready()).catalog, name)

    def find(self, catalog: Catalog, name: str) -> CatalogTool:
        """The tool that a name stands for in a catalog.

        Args:
            catalog: Where to look.
            name: Its public name, or `server.tool` as search results show it.

        Raises:
            CallDenied: The tool is denied or quarantined.
            AuthRequired: The name is that of a server whose tools are known only after a login.
            ClientRegistrationRequired: The same, and a client has to be registered first.
            UnknownTool: There is no such tool, or its definition cannot be used.
        """
        tool = catalog.find_tool(name)
        if tool is None:
            if (status := self._needs_login(name)) is not None:
                hint = self._login_step(status)
                if status.state == "needs_client_registration":
                    raise ClientRegistrationRequired(
                        status.server_id, "its tools are not known before a client is registered", hint=hint
                    )
                raise AuthRequired(status.server_id, "its tools are not known before a login", hint=hint)
            if (key := catalog.find_hidden_tool(name)) is not None:
                # Raises why it is not offered, and what settles that.
                self._host.calls.require_possible(
                    self._host.propose(
                        key.server_id,
                        key.tool,
                        self.selection.bundle_filter(key.server_id),
                        self.principal,
                        groups=self.groups,
                        default_mode=self.selection.approval,
                    )
                )
            # The name of a tool that is not there is no reason to hold up the event loop.
            near = _nearest_tool(catalog, name) if size_of_catalog(catalog) <= AT_ONCE else None
            hint = f"did you mean `{near}`?" if near else self.login_hint()
            raise UnknownTool(f"no tool is called `{name}`", hint=hint)
        return tool

    def waiting_for_login(self) -> Mapping[str, str]:
        """The servers that list nothing before a login, and what the user does about each."""
        return {status.server_id: self._login_step(status) for status in self._waiting()}

    def _waiting(self) -> Sequence[ServerStatus]:
        return [
            status
            for status in self._host.status()
            if status.state in ("auth_required", "needs_client_registration")
            and status.tools is None
            and self.selection.has(status.server_id)
        ]

    def _login_step(self, status: ServerStatus) -> str:
        if status.state == "needs_client_registration" and status.hint:
            return status.hint  # what to register: a login would only say the same
        return self._host.login_hint(status.server_id)

    def login_hint(self) -> str | None:
        """The way to log in to the servers that need it; None if no server does."""
        hints = [
            f"`{status.server_id}`: {self._login_step(status)}"
            for status in self._waiting()[:MAX_LOGIN_HINTS]
        ]
        return f"these servers need a login first: {'; '.join(hints)}" if hints else None

    def _needs_login(self, name: str) -> ServerStatus | None:
        """The server that a tool's name begins with, if it lists nothing before a login."""
        begun = name.removeprefix("mcp_")
        named = [
            status
            for status in self._waiting()
            if begun.startswith((f"{status.server_id}_", f"{status.server_id}."))
        ]
        return max(named, key=lambda status: len(status.server_id), default=None)

    @check_types
    async def search(
        self, queries: str | Sequence[str], *, server: str | None = None, limit: int = 5
    ) -> SearchOutcome:
        """Search the tools by what they do.

        Args:
            queries: One query, or several whose hits are merged.
            server: Search this server alone.
            limit: How many hits to return at most.

        Returns:
            The best hits first, and the servers that could not be searched.
        """
        how = await self._make_search_aids(queries)
        hits = await how.run(
            lambda: how.catalog.find(
                queries,
                server=server,
                limit=limit,
                by_meaning=how.by_meaning,
                past=how.past,
                meaning=how.meaning,
            )
        )
        # Any of several servers with the same tool may be called for it.
        found_by = {key: hit.query for hit in reversed(hits) for key in (*hit.twins, hit.key)}
        self.session.note_search([queries] if isinstance(queries, str) else queries, found_by, (), ())
        return SearchOutcome(hits=hits, unavailable=self.unavailable)

    async def rank(self, queries: Sequence[str], *, server: str | None = None) -> RankedTools:
        """Search the tools by what they do, for an answer to a model."""
        how = await self._make_search_aids(queries)
        return await how.run(
            lambda: rank_tools(
                how.catalog,
                queries,
                server=server,
                by_meaning=how.by_meaning,
                past=how.past,
                meaning=how.meaning,
            )
        )

    async def _make_search_aids(self, queries: str | Sequence[str]) -> "_SearchAids":
        """Inputs of a search, as configured: the tools, memory, vectors, an embedding model."""
        catalog = (await self.ready()).catalog
        selection = self.selection
        past = await self._host.search_memory.recall(self.principal) if selection.remembers else None
        meaning: SemanticIndex | None = None
        if selection.embeddings is not None:
            await run_off_loop(lambda: catalog.index, size_of_catalog(catalog))
            meaning = await self._host.embeddings.compare(selection.embeddings, catalog, queries)
        by_meaning = selection.search == "meaning"
        return _SearchAids(catalog=catalog, past=past, meaning=meaning, by_meaning=by_meaning)

    async def note_call(self, key: ToolKey, result: ToolResult) -> None:
        """Remember which search led to a call that did not fail, if one did."""
        if not self.selection.remembers or says_error(result.raw):
            return
        queries = self.session.take_queries(key)
        tool = self.catalog.of(key) if queries else None
        if tool is not None:
            await self._host.search_memory.remember(self.principal, tool.entry, queries, self.session.id)

    # Definitions for models.

    @check_types
    async def definitions(self, *, seconds: float | None = None) -> tuple[tuple[str, ToolEntry], ...]:
        """The definitions to give to a model: the tools themselves, or meta-tools in their place.

        Args:
            seconds: How long to wait for servers that were never listed; 0 to wait for none. If not given,
                until 15 s after their start.

        Returns:
            Pairs of public name and definition.
        """
        if seconds != 0:
            await self.ready(seconds=seconds)
        catalog = self.catalog
        direct = await run_off_loop(partial(self._direct, catalog), size_of_catalog(catalog))
        meta = self._meta.entries() if len(direct) < len(catalog) else ()
        reading = self._reading.entries() if self._has_reading() else ()
        # Even before anything is kept: a list of tools that changes costs a provider's cache of all of it.
        artifacts = self._artifacts.entries() if catalog.tools and self._host.artifacts.are_kept else ()
        return (*meta, *reading, *artifacts, *((tool.name, tool.entry) for tool in direct))

    async def is_direct(self) -> bool:
        """Whether a model gets all tools themselves, and no meta-tools in their place."""
        catalog = (await self.ready()).catalog
        direct = await run_off_loop(partial(self._direct, catalog), size_of_catalog(catalog))
        return len(direct) == len(catalog)

    def _direct(self, catalog: Catalog) -> Sequence[CatalogTool]:
        cost = cost_of(catalog)
        return [tool for tool in catalog.tools if is_direct(tool.key, self.selection, cost)]

    def _has_reading(self) -> bool:
        ids = [status.server_id for status in self._host.status() if self._reading.may_read(status.server_id)]
        return has_reading(self.selection, filter(None, map(self._host.listing, ids)))

    # Without `vision` images in results are stored as artifacts, and the model gets a note with the handle.

    @check_types
    async def for_openai(
        self, *, api: openai.Api = "responses", strict: bool = False, vision: bool = True
    ) -> ProviderTools:
        """The tools in the format of OpenAI's APIs.

        Args:
            api: For the Responses or the Chat Completions API.
            strict: Ask for strict schemas, where a tool's schema allows that.
            vision: Whether the model takes images.
        """
        adapt = partial(openai.to_openai, api=api, strict=strict)
        return ProviderTools(self, await self._adapt(adapt), vision=vision)

    async def for_anthropic(self, *, vision: bool = True) -> ProviderTools:
        """The tools in the format of Anthropic's Messages API. `vision`: whether the model takes images."""
        return ProviderTools(self, await self._adapt(anthropic.to_anthropic), vision=vision)

    async def for_gemini(self, *, vision: bool = True) -> ProviderTools:
        """The tools in the format of the Gemini API. `vision`: whether the model takes images."""
        return ProviderTools(self, await self._adapt(gemini.to_gemini), vision=vision)

    async def for_langchain(self, *, vision: bool = True) -> "Sequence[FairleadTool]":
        """The tools for LangChain and LangGraph. `vision`: whether the model takes images.

        Raises:
            ImportError: The extra `langchain` is not installed.
        """
        await load_off_loop("fairlead.adapters.langchain")
        from fairlead.adapters.langchain import to_langchain

        made = await self._adapt(
            lambda entry, name: to_langchain(entry, name, self._caller(name, vision=vision))
        )
        return [tool for tool in made if tool is not None]

    async def for_pydantic_ai(self, *, vision: bool = True) -> "Sequence[PydanticTool[Any]]":
        """The tools for Pydantic AI. `vision`: whether the model takes images.

        Raises:
            ImportError: The extra `pydantic-ai` is not installed.
        """
        await load_off_loop("fairlead.adapters.pydantic_ai")
        from fairlead.adapters.pydantic_ai import to_pydantic_ai

        made = await self._adapt(
            lambda entry, name: to_pydantic_ai(entry, name, self._caller(name, vision=vision))
        )
        return [tool for tool in made if tool is not None]

    def to_codex_mcp_servers_config(self, *, lose: Collection["Loss"] = ()) -> "ExportedDocument":
        """The servers of the selection as Codex has them in `config.toml`: `document["mcp_servers"]`.

        ```python
        exported = host.tools.to_codex_mcp_servers_config()
        print(exported.document["mcp_servers"], exported.notes)
        ```

        Tools are those that may be called here, by their exact names; secrets stay references. Built-in
        servers, project servers without consent and servers with restrictions that Codex does not support are
        left out, and named in `notes`. `fairlead export --to codex` writes the same.

        Args:
            lose: The restrictions to leave out rather than a server: `tools`, `rules`, `approval`, `sandbox`.
        """
        from fairlead.adapters.export import export_to_codex

        chosen = [managed for managed in self._host.servers if self.selection.has(managed.server.server_id)]
        return export_to_codex(
            [managed.server for managed in chosen],
            known={each.server.server_id: each.screened for each in chosen if each.screened is not None},
            approved=[each.server.server_id for each in chosen if not each.awaits_consent],
            lose=lose,
            filters=self.selection.servers,
        )

    async def _adapt(self, make: Callable[[ToolEntry, str], AdaptedT]) -> Sequence[AdaptedT]:
        """Adapt every offered definition, off the event loop where there are many."""
        offered = await self.definitions()
        size = size_of_tools([entry for _, entry in offered])
        return await run_off_loop(lambda: [make(entry, name) for name, entry in offered], size)

    def _caller(self, name: str, *, vision: bool) -> AdaptedCaller:
        async def call(_key: ToolKey, arguments: dict[str, Any]) -> ToolResult:
            result = await self.answer(name, arguments)
            return result if vision else await self.without_images(result)

        return call

    # Calls.

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        confirmed: bool = False,
    ) -> ToolResult:
        """Call a tool or a meta-tool by its public name.

        Args:
            name: The public name.
            arguments: Its arguments, by name.
            on_progress: Awaited with progress, total and message whenever the server reports progress.
            confirmed: The user saw and confirmed this very call, so that policy need not ask.

        Returns:
            The result, within the result budget.

        Raises:
            FairleadError: What `get` and `Host.call` raise.
        """
        if type(name) is not str:  # not by `check_types`, which would cost every call some microseconds
            raise wrong_type(Toolset.call, "name", str, name)
        for own in (self._meta, self._reading, self._artifacts):
            if own.has(name):
                return await own.call(name, {} if arguments is None else arguments)
        tool = await self.get(name)
        result = await self._host.call(
            tool.key.server_id,
            tool.key.tool,
            arguments,
            on_progress=on_progress,
            confirmed=confirmed,
            bundle_filter=self.selection.bundle_filter(tool.key.server_id),
            principal=self.principal,
            groups=self.groups,
            default_mode=self.selection.approval,
        )
        if self.session.has_searched:
            await self.note_call(tool.key, result)
        return result

    async def answer(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool for a model: errors become results with `is_error` that the model can read.

        Args:
            name: The public name.
            arguments: Its arguments, by name.

        Raises:
            RunCancelled: The user cancelled the run.
        """
        try:
            return await self.call(name, arguments)
        except RunCancelled:
            raise  # the user wants the run to end, not the model to try something else
        except FairleadError as exc:
            return self.error_result(exc)

    async def without_images(self, result: ToolResult) -> ToolResult:
        """A result for a model that takes no images: each is stored, and a note with the handle is there."""
        return await strip_images(result, self._host.artifacts, self.principal)

    def error_result(self, error: FairleadError) -> ToolResult:
        """An error result for a failed call. Text that may come from an untrusted server is marked."""
        untrusted = isinstance(error, ServerError) and not self._host.is_trusted(error.server_id)
        return ToolResult.from_error(error, untrusted=untrusted)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SearchAids:
    """Inputs of a search besides its query: tools, memory and vectors."""

    catalog: Catalog
    past: PastQueries | None
    meaning: SemanticIndex | None
    by_meaning: bool

    async def run(self, find: Callable[[], FoundT]) -> FoundT:
        """Run a search, off the event loop where it takes long."""
        if self.by_meaning:  # the first one loads a model
            return await run_in_background(find)
        return await run_off_loop(find, size_of_catalog(self.catalog))


def _nearest_tool(catalog: Catalog, name: str) -> str | None:
    """The offered tool that a wrong name may mean: of the server that it names, else the nearest spelling.

    A name that looks for a server's tool is never answered with another server's: which of its tools are
    hidden is no concern of the caller, and no server is to catch calls that were meant for another one.
    """
    begun = name.removeprefix("mcp_")[:_MOST_NAME_CHARACTERS]
    owners = [each for each in catalog.offerings if begun.startswith((f"{each}.", f"{each}_", f"{each}/"))]
    owner = max(owners, key=len) if owners else None
    tools = [tool for tool in catalog.tools if owner in (None, tool.key.server_id)]
    shown = [catalog.display_name(tool.key) for tool in tools]
    wanted = begun if owner is None else f"{owner}.{begun[len(owner) + 1 :]}"
    if near := get_close_matches(wanted, shown, 1, 0.7):
        return near[0]
    if owner is None or not tools:
        return None
    hits = catalog.find(name, server=owner, limit=1)
    return catalog.display_name(hits[0].key) if hits else None
