"""What the file tools cost: reading 200 KB, and listing 10,000 entries.

    uv run python -m benchmarks.files [--quick]

Handlers are called in this process, as a server calls them: the thread, the disk cache and the answer's model
are in the numbers, a transport is not. Listing is measured cut at the default too, as most calls will be.
"""

import argparse
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from benchmarks.measuring import Goal, in_turn, show
from fairlead.servers.framework.tools import AnyTool
from fairlead.servers.repo.files import file_tools
from fairlead.servers.repo.folders import Confinement

FILE_BYTES = 200_000
ENTRIES = 10_000


class Caller:
    """Nobody who would want to know how far the work is."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        pass


async def call(tool: AnyTool, arguments: dict[str, Any]) -> object:
    """Check the arguments and run the tool, as a server does."""
    return await tool.handler(Caller(), tool.input.model_validate(arguments))


def fill(folder: Path) -> None:
    """A file of 200 KB with some characters of more than a byte, a long one, and a folder of 10,000 files."""
    line = "def measure(value: int) -> str:  # größer als null\n"
    (folder / "file.py").write_bytes((line * FILE_BYTES).encode()[:FILE_BYTES])
    (folder / "long.log").write_bytes((line * 1_000_000).encode())
    (folder / "many").mkdir()
    for number in range(ENTRIES):
        (folder / "many" / f"file_{number:05}.py").write_text("pass\n")


async def bare(folder: Path) -> object:
    """What the system itself takes to list a folder with sizes."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.stat(follow_symlinks=False).st_size) for entry in entries]


async def measure(rounds: int) -> None:
    """Print what each call takes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        with Confinement([folder]) as confinement:
            read, list_dir = file_tools(confinement)
            whole: dict[str, Any] = {"path": "many", "maxEntries": ENTRIES}
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "readFile, 200 KB": partial(call, read, {"path": "file.py"}),
                "readFile, 100 lines at line 500,000": partial(
                    call, read, {"path": "long.log", "lineRange": [500_000, 500_099]}
                ),
                "listDir, 10,000 entries": partial(call, list_dir, whole),
                "os.scandir and stat alone, 10,000 entries": partial(bare, folder / "many"),
                "listDir, the first 2,000 of 10,000": partial(call, list_dir, {"path": "many"}),
            }
            costs = await in_turn(calls, rounds=rounds, count=4, concurrency=1)
    goals = {"readFile, 200 KB": 2, "listDir, 10,000 entries": 50}
    rows: list[tuple[object, ...]] = []
    for name, cost in costs.items():
        most = goals.get(name)
        goal = Goal(value=cost.wall * 1000, at_most=most, unit=" ms", label="took") if most else None
        rows.append((name, cost.cpu * 1000, cost.wall * 1000, goal))
    show("The file tools, in process", ("call", "CPU ms", "ms", "goal"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer rounds")
    anyio.run(measure, 5 if parser.parse_args().quick else 25)
