"""The Python frames of a warm tool call over stdio, from its caller down to the write of its bytes.

    uv run python -m benchmarks.call_frames [--cli] [--calls]

Prints the stack at the moment the bytes leave, and how many Python functions were called until then. With
`--cli`, the call is that of `fairlead call`, from the command's own function. Unlike times, these numbers are
the same on every machine.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import anyio

from benchmarks.callers import TOOL, open_host, stdio_entry
from benchmarks.measuring import ROOT, machine, show

WARM_CALLS = 20


class Recorder:
    """Remembers the stack at each write of a `tools/call` request.

    Args:
        is_first: Tells which frame the stack begins with.
    """

    def __init__(self, is_first: Callable[[FrameType], bool]) -> None:
        self._is_first = is_first
        self._calls: list[str] = []
        self.stack: list[str] = []
        self.called: list[str] = []
        """The functions that were called until then, in order."""

    def start(self) -> None:
        """Record from now on."""
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        """Record no more."""
        sys.setprofile(None)

    def show(self, *, calls: bool) -> None:
        """Print what was recorded."""
        if calls:
            print(*self.called, "", sep="\n")
        for depth, name in enumerate(self.stack):
            print(f"{depth:3} {name}")
        rows: list[tuple[object, ...]] = [
            (self.stack[0], len(self.stack) - 1, len(self.called)),
        ]
        columns = ("call", "frames below it", "Python calls until the bytes left")
        show("A warm call over stdio", columns, rows, plot=())

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            if self._is_first(frame):
                self._calls.clear()
            self._calls.append(_name(frame))
        elif event == "c_call" and argument is os.write and _writes_call(frame):
            self.stack = [*self._frames(frame)][::-1]
            self.called = [*self._calls]

    def _frames(self, frame: FrameType) -> Iterator[str]:
        while True:
            yield _name(frame)
            if self._is_first(frame) or frame.f_back is None:
                return
            frame = frame.f_back


def _writes_call(frame: FrameType) -> bool:
    """Whether a function is about to write a request for a tool call, which a variable of it has."""
    return any(
        b"tools/call" in bytes(value)
        for value in frame.f_locals.values()
        if isinstance(value, bytes | bytearray)
    )


def _name(frame: FrameType) -> str:
    place = Path(frame.f_code.co_filename)
    is_ours = place.is_relative_to(ROOT) and "site-packages" not in place.parts
    where = place.relative_to(ROOT).as_posix().removeprefix("src/fairlead/") if is_ours else place.name
    return f"{where}:{frame.f_code.co_qualname}"


async def of_host() -> Recorder:
    """The frames below `Host.call`."""
    recorder = Recorder(lambda frame: frame.f_code.co_qualname == "Host.call")
    async with open_host({"bench": stdio_entry()}) as host:
        for _ in range(WARM_CALLS):
            await host.call("bench", TOOL, {"size": 5})
        recorder.start()
        await host.call("bench", TOOL, {"size": 5})
        recorder.stop()
    return recorder


def of_command() -> Recorder:
    """The frames below the function of `fairlead call`."""
    from fairlead.cli.main import main

    recorder = Recorder(_is_command)
    with machine() as env:
        config = Path(env["HOME"]) / "fairlead.json"
        config.write_text(json.dumps({"servers": {"bench": {**stdio_entry(), "approval": "allow"}}}))
        os.environ["HOME"] = env["HOME"]
        wanted = ["call", "bench", TOOL, "--input", '{"size": 5}', "--yes"]
        sys.argv = ["fairlead", "--config", str(config), *wanted]
        with suppress(SystemExit):
            main()  # lists the server, as any first use does
        recorder.start()
        with suppress(SystemExit):
            main()
        recorder.stop()
    return recorder


def _is_command(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_qualname == "command" and code.co_filename.endswith("call_.py")


def main() -> None:
    """Print the stack."""
    parser = argparse.ArgumentParser(description="Print the frames of a tool call.")
    parser.add_argument("--cli", action="store_true", help="from `fairlead call` instead of `Host.call`")
    parser.add_argument("--calls", action="store_true", help="print every function that is called, too")
    arguments = parser.parse_args()
    recorder = of_command() if arguments.cli else anyio.run(of_host)
    recorder.show(calls=arguments.calls)


if __name__ == "__main__":
    main()
