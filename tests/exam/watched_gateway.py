"""`fairlead` with a clock that jumps and a watched loop: `python -m tests.exam.watched_gateway WORDS`.

`EXAM_CLOCK` is a file with one number, by how many seconds `time.time` is wrong. `EXAM_WATCHDOG` is a file
that gets, in the end, for how many seconds the loop was held at worst, and by what.
"""

import mmap
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

OFFSET = struct.Struct("d")
LIMIT_SECONDS = 0.5
"""As in every other test that runs a loop."""


def shift_clock(path: str) -> None:
    """Have the time of day be wrong by what a file says, from now on."""
    with open(path, "rb") as file:
        offset = mmap.mmap(file.fileno(), OFFSET.size, prot=mmap.PROT_READ)
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + OFFSET.unpack_from(offset)[0]
    time.time_ns = lambda: real_ns() + int(OFFSET.unpack_from(offset)[0] * 1e9)


def watch(path: str) -> None:
    """Have the loop that the command runs watched, and what was seen written to a file."""
    import anyio

    from fairlead.testing.watchdog import LoopWatchdog

    run: Callable[..., Any] = anyio.run

    def run_watched(main: Callable[..., Awaitable[Any]], *args: object, **options: Any) -> object:
        async def watched() -> object:
            watchdog = LoopWatchdog(LIMIT_SECONDS)
            watchdog.start()
            try:
                return await main(*args)
            finally:
                watchdog.stop()
                with open(path, "w", encoding="utf-8") as file:  # noqa: ASYNC230 - nothing runs any more
                    file.write(f"{watchdog.worst.seconds}\n{watchdog.worst}")

        return run(watched, **options)

    anyio.run = run_watched


def main() -> None:
    """Run the command."""
    shift_clock(os.environ["EXAM_CLOCK"])
    watch(os.environ["EXAM_WATCHDOG"])
    from fairlead.cli.main import run

    sys.exit(int(run(sys.argv[1:])))


if __name__ == "__main__":
    main()
