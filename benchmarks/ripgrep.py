"""What the search tool costs over 100 MB of text: against ripgrep as such, and without ripgrep.

    uv run python -m benchmarks.ripgrep [--quick]

Handlers are called in this process, as a server calls them. `rg` alone is started from here too, as a person
would start it: unsorted, on all processors, to the last match. CPU is that of all processes together. Numbers
are the least of all rounds: whatever else runs on a machine delays one process or another.
"""

import argparse
import random
import resource
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.files import call
from benchmarks.measuring import Call, Cost, Goal, cancel_free, show
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.repo.ripgrep import search_tool

FILES = 5_000
FILE_BYTES = 20_000
NEEDLES = 40

QUERIES = {
    "a rare word": "rareNeedle",
    "a rare word in any case": "rareneedle",
    "one of three words": "class rareNeedle|def rareNeedle|zzzzzz",
    "no fixed text in it": r"\b[0-9]{13}\b",
    "in every line": "e",
}


def fill(folder: Path) -> None:
    """Folders of source files; some hold what is searched for."""
    chosen = random.Random(1)
    words = [
        "".join(chosen.choices("abcdefghijklmnoprstuvwy", k=chosen.randint(2, 10))) for _ in range(5_000)
    ]
    lines = ["    " * chosen.randint(0, 3) + " ".join(chosen.choices(words, k=8)) for _ in range(20_000)]
    for number in range(FILES):
        start = chosen.randrange(len(lines) - 1_000)
        text = "\n".join(lines[start : start + 1_000])[:FILE_BYTES]
        if number % (FILES // NEEDLES) == 0:
            text += "\ndef rareNeedle(self):\n"
        path = folder / f"package_{number % 50}" / f"module_{number // 50 % 10}" / f"file_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def alone(folder: Path, query: str) -> object:
    """`rg` without us."""
    argv = ["rg", "--no-config", "--line-number", "--smart-case", "-e", query, "--", "."]
    return subprocess.run(argv, cwd=folder, stdout=subprocess.DEVNULL, check=False)  # noqa: ASYNC221 - nothing waits


async def measure(rounds: int) -> None:
    """Print what each search takes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        with Confinement([folder]) as confinement:
            tool, fallback = search_tool(confinement), search_tool(confinement, program=None)
            for title, query in QUERIES.items():
                calls: dict[str, Call] = {
                    "rg alone": partial(alone, folder, query),
                    "the tool": partial(call, tool, {"query": query}),
                    "the tool, in Python": partial(call, fallback, {"query": query}),
                }
                report(f"{title}: {query}", await least(calls, rounds))


async def least(calls: Mapping[str, Call], rounds: int) -> dict[str, Cost]:
    """The least each call took, with the rounds of all interleaved."""
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, made in calls.items():
            before = cpu_seconds()
            wall = await cancel_free(made, 60)
            costs[name].append(Cost(cpu=cpu_seconds() - before, wall=wall))
    return {
        name: Cost(cpu=min(cost.cpu for cost in all_), wall=min(cost.wall for cost in all_))
        for name, all_ in costs.items()
    }


def cpu_seconds() -> float:
    """The CPU time of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def report(title: str, costs: dict[str, Cost]) -> None:
    """One table, with the goals."""
    alone = costs["rg alone"].wall
    goals = {
        "the tool": Goal(
            value=(costs["the tool"].wall - alone) * 1000, at_most=15, unit=" ms more", label="than rg alone:"
        ),
        "the tool, in Python": Goal(
            value=costs["the tool, in Python"].wall / alone, at_most=25, unit=" x", label="to rg alone:"
        ),
    }
    rows: list[tuple[object, ...]] = [
        (name, cost.cpu * 1000, cost.wall * 1000, goals.get(name)) for name, cost in costs.items()
    ]
    show(title, ("search", "CPU ms", "ms", "goal"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer rounds")
    anyio.run(measure, 3 if parser.parse_args().quick else 15)
