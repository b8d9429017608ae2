"""What of the Windows child is not Windows: its tasks carry a conversation, and notice its end."""

import anyio
import pytest

from fairlead.connection.outcomes import ConnectionClosed, SpawnFailed
from fairlead.connection.process.child import Child, Command
from fairlead.connection.process.windows import WindowsChild
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import call_json, call_tool, hostile, running


class WindowsDispatcher(StdioDispatcher):
    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self.complained = anyio.Event()

    async def _start_child(self) -> Child:
        return await WindowsChild.start(self._command, self)

    def on_stderr(self, data: bytes) -> None:
        super().on_stderr(data)
        self.complained.set()


async def test_a_call_goes_there_and_back() -> None:
    async with WindowsDispatcher(hostile("stderr=hello")) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert await call_json(dispatcher, "echo", text="x" * 1_000_000) == {"text": "x" * 1_000_000}
            assert dispatcher.pid
            await dispatcher.complained.wait()

    assert dispatcher.returncode == 0
    assert dispatcher.stderr.tail.lines == ("hello",)


async def test_a_crash_fails_whoever_waits() -> None:
    async with WindowsDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20), pytest.raises(ConnectionClosed) as caught:
            await call_tool(dispatcher, "crash")

    assert caught.value.ending.kind == "exited"


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(SpawnFailed, match="no-such-program"):
        async with WindowsDispatcher(Command(argv=("no-such-program",))):
            pass
