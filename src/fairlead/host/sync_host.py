"""The synchronous host: `with fairlead.open() as host:`. Every verb of `Host`, each of which waits.

There is one bridge, `_wait`: it makes a blocking method of an asynchronous one, with the same parameters and
documentation. The host runs in the event loop of a `LoopThread`, so that all of this can be used in any
thread, in several at once, and in a notebook whose own loop is running.
"""

import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import partial, wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from anyio import to_thread

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolKey
from fairlead.config.load import LoadedConfig
from fairlead.events import Event
from fairlead.host.events import EventStream
from fairlead.host.extensions import ExtensionMessages
from fairlead.host.host import Host
from fairlead.host.loop_thread import LoopThread, fail_after
from fairlead.host.model.provider_tools import ProviderTools
from fairlead.host.model.toolset import Toolset
from fairlead.host.offers.prompts import Prompts
from fairlead.host.offers.resources import Resources
from fairlead.host.offers.skills import Skills
from fairlead.host.offers.tasks import Tasks
from fairlead.host.operator import Callbacks
from fairlead.host.records import Artifacts

if TYPE_CHECKING:
    from pydantic_ai import Tool as PydanticTool

    from fairlead.adapters.export import Loss
    from fairlead.adapters.langchain import FairleadTool
    from fairlead.config.dialects.dialect import ExportedDocument

P = ParamSpec("P")
R = TypeVar("R")
ItemT = TypeVar("ItemT")
_END: Final = object()


class _SyncFacade:
    """Blocking facade of an object that lives in the host's event loop."""

    def __init__(self, thread: LoopThread, target: Any) -> None:  # noqa: ANN401 - each subclass has its own
        self._thread = thread
        self._target = target

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._target!r}>"


def _wait(verb: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """The blocking form of an asynchronous method."""
    return _call(verb)  # type: ignore[return-value] - what can be awaited is awaited


def _call(verb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method that is called in the event loop, where all that the host has belongs."""

    @wraps(verb)
    def call(self: _SyncFacade, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("on_progress") is not None:
            kwargs["on_progress"] = _in_thread(kwargs["on_progress"])
        return self._thread.run(lambda: verb(self._target, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class SyncIterator(Generic[ItemT]):
    """An asynchronous iterator as a plain one. Each step may be bounded with `host.fail_after`."""

    def __init__(self, thread: LoopThread, items: Any) -> None:  # noqa: ANN401 - an iterator, perhaps a stream
        self._thread = thread
        self._items = items

    def __iter__(self) -> Iterator[ItemT]:
        return self

    def __next__(self) -> ItemT:
        if self._thread.is_stopped:
            raise StopIteration
        item: Any = self._thread.run(lambda: anext(self._items, _END))
        if item is _END:
            raise StopIteration
        return item

    def close(self) -> None:
        """End the iteration."""
        if isinstance(self._items, EventStream) and not self._thread.is_stopped:
            self._thread.run(self._items.close)

    def __enter__(self) -> "SyncIterator[ItemT]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SyncIterator of {self._items!r}>"


class SyncProviderTools(_SyncFacade):
    """`ProviderTools` whose `call` waits."""

    _target: ProviderTools
    call = _wait(ProviderTools.call)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The definitions for the provider's API. Tools that it would refuse are left out."""
        return self._target.definitions

    @property
    def refused(self) -> dict[str, str]:
        """The tools that the provider would refuse, each with the reason."""
        return self._target.refused


class SyncToolset(_SyncFacade):
    """A `Toolset` whose verbs wait: `host.tools`, `host.toolset("bundle")`."""

    _target: Toolset
    list = _wait(Toolset.list)
    get = _wait(Toolset.get)
    search = _wait(Toolset.search)
    definitions = _wait(Toolset.definitions)
    is_direct = _wait(Toolset.is_direct)
    call = _wait(Toolset.call)
    answer = _wait(Toolset.answer)

    def to_codex_mcp_servers_config(self, *, lose: Collection["Loss"] = ()) -> "ExportedDocument":
        """The servers of the selection as Codex has them: see `Toolset.to_codex_mcp_servers_config`."""
        return self._thread.run(lambda: self._target.to_codex_mcp_servers_config(lose=lose))

    @property
    def catalog(self) -> Catalog:
        """The tools that are known now. Contacts no server."""
        return self._thread.run(lambda: self._target.catalog)

    @property
    def unavailable(self) -> dict[str, str]:
        """The enabled servers that cannot be used now, each with the reason."""
        return self._thread.run(lambda: self._target.unavailable)

    def ready(self, *, seconds: float = 15.0) -> "SyncToolset":
        """Connect the servers that were never listed and wait for them.

        Args:
            seconds: The most to wait; those that take longer go on starting.
        """
        self._thread.run(lambda: self._target.ready(seconds=seconds))
        return self

    def for_openai(self, **options: Any) -> SyncProviderTools:  # noqa: ANN401 - those of `Toolset.for_openai`
        """The tools in the format of OpenAI's APIs. Takes what `Toolset.for_openai` takes."""
        made = self._thread.run(lambda: self._target.for_openai(**options))
        return SyncProviderTools(self._thread, made)

    def for_anthropic(self, *, vision: bool = True) -> SyncProviderTools:
        """The tools in the format of Anthropic's Messages API. `vision`: whether the model takes images."""
        made = self._thread.run(lambda: self._target.for_anthropic(vision=vision))
        return SyncProviderTools(self._thread, made)

    def for_gemini(self, *, vision: bool = True) -> SyncProviderTools:
        """The tools in the format of the Gemini API. `vision`: whether the model takes images."""
        made = self._thread.run(lambda: self._target.for_gemini(vision=vision))
        return SyncProviderTools(self._thread, made)

    def for_langchain(self, *, vision: bool = True) -> "Sequence[FairleadTool]":
        """The tools for LangChain and LangGraph: `invoke` works, and `ainvoke` on any event loop."""
        from fairlead.adapters.langchain import to_langchain

        answer = partial(self._answer, vision=vision)
        made = [to_langchain(entry, name, self._caller(name, vision)) for name, entry in self.definitions()]
        return [
            tool.model_copy(update={"call_waiting": partial(answer, tool.name)})
            for tool in made
            if tool is not None
        ]

    def for_pydantic_ai(self, *, vision: bool = True) -> "Sequence[PydanticTool[Any]]":
        """The tools for Pydantic AI, for agents on any event loop and for `run_sync`."""
        from fairlead.adapters.pydantic_ai import to_pydantic_ai

        made = [to_pydantic_ai(entry, name, self._caller(name, vision)) for name, entry in self.definitions()]
        return [tool for tool in made if tool is not None]

    def _answer(self, name: str, arguments: Mapping[str, Any], *, vision: bool) -> ToolResult:
        result: ToolResult = self.answer(name, arguments)
        return result if vision else self._thread.run(lambda: self._target.without_images(result))

    def _caller(
        self,
        name: str,
        vision: bool,  # noqa: FBT001 - always given
    ) -> Callable[[ToolKey, dict[str, Any]], Awaitable[ToolResult]]:
        answer = partial(self._answer, name, vision=vision)

        async def call(_key: ToolKey, arguments: dict[str, Any]) -> ToolResult:
            return await to_thread.run_sync(answer, arguments, abandon_on_cancel=True)

        return call


class SyncResources(_SyncFacade):
    """`Resources` whose verbs wait: `host.resources`."""

    list = _wait(Resources.list)
    templates = _wait(Resources.templates)
    read = _wait(Resources.read)
    complete = _wait(Resources.complete)
    expand = staticmethod(Resources.expand)

    def watch(self, server_id: str, *uris: str) -> AbstractContextManager["SyncIterator[str]"]:
        """Watch resources: `with host.resources.watch("files", uri) as changed: for uri in changed: …`."""
        return _Watch(self._thread, partial(self._target.watch, server_id, *uris))


class _Watch(AbstractContextManager[SyncIterator[str]]):
    def __init__(self, thread: LoopThread, begin: Callable[[], Any]) -> None:
        self._thread = thread
        self._block = thread.enter(begin)

    def __enter__(self) -> SyncIterator[str]:
        return SyncIterator(self._thread, self._block.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


class SyncPrompts(_SyncFacade):
    """`Prompts` whose verbs wait: `host.prompts`."""

    list = _wait(Prompts.list)
    get = _wait(Prompts.get)
    complete = _wait(Prompts.complete)


class SyncTasks(_SyncFacade):
    """`Tasks` whose verbs wait: `host.tasks`."""

    begin = _wait(Tasks.begin)
    get = _wait(Tasks.get)
    result = _wait(Tasks.result)
    cancel = _wait(Tasks.cancel)
    list = _wait(Tasks.list)
    known = _wait(Tasks.known)


class SyncExtensionMessages(_SyncFacade):
    """`ExtensionMessages` whose verbs wait: `host.custom`."""

    declares = _wait(ExtensionMessages.declares)
    request = _wait(ExtensionMessages.request)
    request_unchanged = _wait(ExtensionMessages.request_unchanged)
    notify = _wait(ExtensionMessages.notify)


class SyncSkills(_SyncFacade):
    """`Skills` whose verbs wait: `host.skills(server_id)`."""

    list = _wait(Skills.list)
    load = _wait(Skills.load)
    read = _wait(Skills.read)


class SyncArtifacts(_SyncFacade):
    """`Artifacts` whose verbs wait: `host.artifacts`."""

    read = _wait(Artifacts.read)
    whole = _wait(Artifacts.whole)
    of = _wait(Artifacts.of)


class SyncHost(_SyncFacade):
    """A host whose verbs wait: what `fairlead.open()` returns. See `Host` for what they do.

    ```python
    with fairlead.open() as host:
        print(host.call("time.get_current_time", timezone="Europe/Berlin").text)
        for entry in host.tools_of("time"):
            print(entry.name)
    ```

    It can be used in several threads at once, and where an event loop is running, such as in a notebook.
    Ctrl-C cancels the call that is waited for. `with host.fail_after(seconds):` bounds all in the block.
    """

    _target: Host

    def __init__(self, thread: LoopThread, host: Host) -> None:
        super().__init__(thread, host)
        thread.at_end = host.aclose
        self.resources = SyncResources(thread, host.resources)
        self.prompts = SyncPrompts(thread, host.prompts)
        self.tasks = SyncTasks(thread, host.tasks)
        self.custom = SyncExtensionMessages(thread, host.custom)
        self.artifacts = SyncArtifacts(thread, host.artifacts)

    login_hint = _call(Host.login_hint)
    status = _call(Host.status)
    connect = _wait(Host.connect)
    connect_all = _wait(Host.connect_all)
    retry = _call(Host.retry)
    require = _wait(Host.require)
    reload = _wait(Host.reload)
    add = _wait(Host.add)
    remove = _call(Host.remove)
    configured = _call(Host.configured)
    is_trusted = _call(Host.is_trusted)
    is_untrusted = _call(Host.is_untrusted)
    listing = _call(Host.listing)
    tools_of = _wait(Host.tools_of)
    list_now = _wait(Host.list_now)
    offers = _wait(Host.offers)
    describe = _wait(Host.describe)
    call = _wait(Host.call)
    allow = _wait(Host.allow)
    allow_for_session = _call(Host.allow_for_session)
    notice_consents = _wait(Host.notice_consents)
    fail_after = staticmethod(fail_after)

    @property
    def config(self) -> LoadedConfig:
        """The configuration in force."""
        return self._target.config

    @property
    def tools(self) -> SyncToolset:
        """The tools of every enabled server."""
        return self.toolset()

    def toolset(
        self, bundle: str | None = None, *, principal: str = "local", groups: frozenset[str] = frozenset()
    ) -> SyncToolset:
        """The tools of a bundle. Takes what `Host.toolset` takes."""
        chosen = self._thread.run(lambda: self._target.toolset(bundle, principal=principal, groups=groups))
        return SyncToolset(self._thread, chosen)

    def skills(self, server_id: str) -> SyncSkills:
        """The skills that a server offers to models."""
        return SyncSkills(self._thread, self._thread.run(lambda: self._target.skills(server_id)))

    def events(self, *, calls: bool = True) -> "SyncIterator[Event]":
        """Events from now on, as a plain iterator: `for event in host.events(): …`. It ends with the host.

        Args:
            calls: Include the events of single calls.
        """
        return SyncIterator(self._thread, self._thread.run(lambda: self._target.events(calls=calls)))

    def close(self, server_id: str | None = None) -> None:
        """Close the host, in bounded time; or all connections to one server, which the next use reconnects.

        Args:
            server_id: The server; the whole host if not given.
        """
        if server_id is not None:
            self._thread.run(lambda: self._target.close(server_id))
        else:
            self._thread.stop()

    def __enter__(self) -> "SyncHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        thread: LoopThread | None = self.__dict__.get("_thread")
        if thread is not None and not thread.is_stopped:
            warnings.warn("a host was not closed", ResourceWarning, source=self, stacklevel=2)
            thread.stop(wait=False)


def _in_thread(function: Any) -> Callable[..., Awaitable[Any]]:  # noqa: ANN401 - checked where it is used
    """A plain function as an asynchronous one: it runs in a thread, and may use the host and wait."""
    if iscoroutinefunction(function) or not callable(function):
        return function

    async def call(*args: Any) -> Any:  # noqa: ANN401 - what the function takes and returns
        return await to_thread.run_sync(function, *args, abandon_on_cancel=True)

    return call


def _with_plain_callbacks(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `Host.open`, with an operator whose plain functions run in threads."""
    operator = options.get("operator")
    if not isinstance(operator, Callbacks):
        return {**options}
    given = {each.name: getattr(operator, each.name) for each in fields(operator) if each.name != "on_notify"}
    asynchronous = {name: _in_thread(function) for name, function in given.items() if function is not None}
    return {**options, "operator": replace(operator, **asynchronous)}


def _like(_: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters of another, for type checkers."""
    return lambda function: function


@_like(Host.open)
def open(*args: Any, **options: Any) -> SyncHost:  # noqa: A001, ANN401 - as `open` of files; those of `Host.open`
    """Open a host for programs without an event loop. Takes what `Host.open` takes.

    ```python
    import fairlead

    with fairlead.open() as host:
        result = host.call("time.get_current_time", timezone="Europe/Berlin")
    ```

    Without `with`, call `close` at the end; a host that is still open when the program exits is closed then.
    The functions of `Callbacks` may be plain ones here: they run in threads of their own.

    Raises:
        ConfigError: The configuration cannot be used.
        ServerError: A server configured with `required: true` is not ready.
    """
    thread = LoopThread()
    try:
        return SyncHost(thread, thread.run(lambda: Host.open(*args, **_with_plain_callbacks(options))))
    except BaseException:
        thread.stop()
        raise
