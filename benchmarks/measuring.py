"""What every measurement here needs: rounds in turn, medians, this process's memory, and a table."""

import gc
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

ROOT = Path(__file__).parent.parent
IMPORT_MCP_MS = 605
"""What importing the SDK took, in ms of CPU over a bare Python, where absolute goals were set."""
Call = Callable[[], Awaitable[object]]
Elsewhere = Callable[[int, int], Awaitable["Cost"]]
"""Makes that many calls, so many at a time, in another process, and returns what they cost there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one call took, on average over a round: of this process's CPU, and of time."""

    cpu: float
    wall: float


async def spend(call: Call, count: int, concurrency: int, *, settle: float = 0.0) -> Cost:
    """Make `count` calls, `concurrency` at a time. What threads do in `settle` seconds after them counts."""

    async def work() -> None:
        for _ in range(count // concurrency):
            await call()

    made = count // concurrency * concurrency
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(concurrency):
            tasks.start_soon(work)
    taken = time.perf_counter() - wall
    await anyio.sleep(settle)
    return Cost(cpu=(time.process_time() - cpu) / made, wall=taken / made)


async def in_turn(
    calls: Mapping[str, Call],
    *,
    rounds: int,
    count: int,
    concurrency: int,
    settle: float = 0.0,
    elsewhere: Mapping[str, Elsewhere] | None = None,
) -> dict[str, Cost]:
    """The median cost of each call, with the rounds of all interleaved: what disturbs one disturbs all."""
    others = elsewhere or {}
    costs: dict[str, list[Cost]] = {name: [] for name in (*calls, *others)}
    for call in calls.values():
        await spend(call, concurrency, concurrency)
    for spend_there in others.values():
        await spend_there(count, concurrency)  # which a compiler that learns while it runs needs
    for _ in range(rounds):
        for name, call in calls.items():
            costs[name].append(await spend(call, count, concurrency, settle=settle))
        for name, spend_there in others.items():
            costs[name].append(await spend_there(count, concurrency))
    return {
        name: Cost(
            cpu=statistics.median(cost.cpu for cost in found),
            wall=statistics.median(cost.wall for cost in found),
        )
        for name, found in costs.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A number that is to be at least, or at most, another one.

    Args:
        value: What was measured.
        at_least: The least that is good enough.
        at_most: The most that is good enough.
        unit: What is written after each of them.
        label: What the number is, where a table's column does not say it.
        factor: How many times longer things take here than where the goal was set; it is scaled by that.
    """

    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    label: str = ""
    factor: float = 1.0

    @property
    def is_met(self) -> bool:
        """Whether the number is as it is to be."""
        low, high = self.at_least, self.at_most
        return (low is None or self.value >= low * self.factor) and (
            high is None or self.value <= high * self.factor
        )

    def __str__(self) -> str:
        low, high = self.at_least, self.at_most
        sign, limit = (">=", low) if low is not None else ("<=", high)
        assert limit is not None, "a goal has a limit"
        bound = f"{sign} {limit * self.factor:.3g}{self.unit}"
        if self.factor != 1.0:
            bound += f": {limit:.3g}{self.unit} x machine factor {self.factor:.2f}"
        label = f"{self.label} " if self.label else ""
        return f"{label}{self.value:.3g}{self.unit} (goal {bound}) {'met' if self.is_met else 'MISSED'}"


@cache
def slowness() -> float:
    """How many times longer things take now and here than where absolute goals were set; says so."""
    importing = statistics.median(_cpu_of_python("import mcp") - _cpu_of_python("pass") for _ in range(5))
    factor = importing * 1e3 / IMPORT_MCP_MS
    print(f"\n`import mcp` takes {factor:.2f} x what it took where absolute goals were set; they are scaled.")
    return factor


def _cpu_of_python(program: str) -> float:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


TABLES_VARIABLE = "FAIRLEAD_BENCHMARK_TABLES"
"""Names the file that `benchmarks.run` reads what was measured from, one JSON object on each line."""
_about: list[str] = []
"""What the tables that follow are about."""


def begin_part(part: Callable[..., object]) -> None:
    """Explain the tables that follow, on the page of results, with the docstring of what measures them."""
    _about[:] = [inspect.cleandoc(part.__doc__ or "")]


def show(
    title: str,
    columns: tuple[str, ...],
    rows: list[tuple[object, ...]],
    *,
    plot: str | Sequence[str] | None = None,
    unit: str = "",
    note: str = "",
) -> None:
    """Print a table; numbers go right, the first and the last column left.

    Args:
        title: What is measured.
        columns: The names of the columns.
        rows: The cells: numbers, texts, goals, or several of these in a tuple.
        plot: The columns that the page of results has a plot of, none if empty; the first that has numbers
            unless given.
        unit: What the numbers of several plotted columns are.
        note: What is to be known of this run, such as a machine factor.
    """
    cells = [columns, *(tuple(_cell(value) for value in row) for row in rows)]
    missed = [
        [_cell(row[0]), columns[index], str(goal)]
        for row in rows
        for index, value in enumerate(row)
        for goal in _goals(value)
        if not goal.is_met
    ]
    _keep(
        "table",
        {
            "title": title,
            "columns": columns,
            "rows": cells[1:],
            "numbers": [[value if isinstance(value, int | float) else None for value in row] for row in rows],
            "missed": missed,
            "plot": [plot] if isinstance(plot, str) else plot,
            "unit": unit,
            "about": "\n\n".join(_about),
            "note": note,
        },
    )
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        middle = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip(), flush=True)
    if note:
        print(note, flush=True)


def leave_out(what: str, why: str) -> None:
    """Say that something is not measured that a whole run has."""
    print(f"{what} is left out: {why}", flush=True)
    _keep("left out", what)


def name_peer(name: str, version: str) -> None:
    """Note the version of something that is compared with."""
    _keep("peer", [name, version])


def _keep(kind: str, what: object) -> None:
    if kept := os.environ.get(TABLES_VARIABLE):
        with Path(kept).open("a", encoding="utf-8") as file:
            file.write(json.dumps({kind: what}) + "\n")


def _goals(value: object) -> list[Goal]:
    several: tuple[object, ...] = value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType] - of anything
    return [each for each in several if isinstance(each, Goal)]


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        several: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType] - of anything
        return "; ".join(text for each in several if (text := _cell(each)))
    if isinstance(value, float):
        if 0 < abs(value) < 1:
            return f"{value:.3f}"
        return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return "" if value is None else str(value)


# ── memory ──


def resident() -> int:
    """How many bytes of memory this process holds now."""
    gc.collect()
    return _status("VmRSS")


def reset_peak() -> int:
    """Forget the peak so far, and return what is held now."""
    held = resident()
    Path("/proc/self/clear_refs").write_text("5")
    return held


def peak() -> int:
    """The most memory this process has held since `reset_peak`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split(None, 1)[0]) * 1024


# ── surroundings ──


@contextmanager
def machine() -> Generator[dict[str, str]]:
    """An environment whose home is an empty folder, so that nothing of the user's is read or changed."""
    with TemporaryDirectory() as folder:
        yield {"HOME": folder, "PATH": os.environ["PATH"]}


async def cancel_free(call: Call, seconds: float) -> float:
    """Time one call, in seconds, and fail rather than hang."""
    started = time.perf_counter()
    with anyio.fail_after(seconds):
        await call()
    return time.perf_counter() - started
