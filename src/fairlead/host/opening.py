"""The two ways to run a host: for the length of a block, or until it is closed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar

import anyio

from fairlead.errors import FairleadError

P = ParamSpec("P")


class OpenedHost(Protocol):
    """A host as `HostOpening` uses it."""

    def close_with(self, close: Callable[[], Awaitable[None]], /) -> None:
        """Await this function in `aclose`: it ends the block that runs the host."""
        ...


HostT = TypeVar("HostT", bound=OpenedHost)


_RUNNING: Final[set[asyncio.Task[None]]] = set()
"""The tasks that run hosts. An event loop alone would not keep them."""


_HOW_TO_OPEN: Final = (
    "use `async with Host.open() as host` or `host = await Host.open()`;"
    " without asyncio, `with fairlead.open() as host`"
)


class HostOpening(Generic[HostT]):
    """Result of `Host.open`. Use it once: in `async with`, or awaited with `aclose` at the end.

    ```python
    async with Host.open() as host:  # closed at the end of the block
        ...

    host = await Host.open()  # in a notebook, or for the lifetime of an application
    ...
    await host.aclose()  # in any task
    ```
    """

    def __init__(self, run: AbstractAsyncContextManager[HostT]) -> None:
        self._run = run
        self._is_used = False

    async def __aenter__(self) -> HostT:
        self._use()
        return await self._run.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._run.__aexit__(kind, error, trace)

    def __await__(self) -> Generator[Any, None, HostT]:
        return self._open().__await__()

    def _use(self) -> None:
        if self._is_used:
            raise FairleadError(
                "this `Host.open()` was used already: it opens one host, once",
                hint="call `Host.open()` again for another host",
            )
        self._is_used = True

    async def _open(self) -> HostT:
        self._use()
        # In a task of its own: `asyncio.run` cancels the tasks that are left, and waits for them, before it
        # closes suspended generators, all at once.
        opened: asyncio.Future[HostT] = asyncio.get_running_loop().create_future()
        closing = anyio.Event()
        task = asyncio.create_task(self._own(opened, closing), name="Host.open")  # noqa: TID251 - owns the host
        _RUNNING.add(task)
        task.add_done_callback(_RUNNING.discard)

        async def close() -> None:
            closing.set()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

        try:
            await asyncio.wait([task, opened], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise
        if not opened.done():
            opened.cancel()
            task.result()  # raises why it cannot be opened
        host = opened.result()
        host.close_with(close)
        return host

    async def _own(self, opened: "asyncio.Future[HostT]", closing: anyio.Event) -> None:
        async with self._run as host:
            opened.set_result(host)
            await closing.wait()

    def __repr__(self) -> str:
        return "<a host that is not open yet: use `async with Host.open() as host` or `await Host.open()`>"

    if not TYPE_CHECKING:  # type checkers find these mistakes by themselves

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)  # what Python itself looks for
            raise AttributeError(f"there is no `{name}` before the host is open: {_HOW_TO_OPEN}")

        def __enter__(self) -> NoReturn:
            raise TypeError(f"`with Host.open()` lacks its `async`: {_HOW_TO_OPEN}")

        def __exit__(self, *_: object) -> None:
            """Never called: a block begins with both methods, or with an error that names neither."""


def host_opener(function: Callable[P, AsyncGenerator[HostT]]) -> Callable[P, HostOpening[HostT]]:
    """Decorate an async generator that yields a host, as `asynccontextmanager` does."""
    make = asynccontextmanager(function)

    @wraps(function)
    def opener(*args: P.args, **kwargs: P.kwargs) -> HostOpening[HostT]:
        return HostOpening(make(*args, **kwargs))

    return opener
