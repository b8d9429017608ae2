"""What every measurement here needs: rounds in turn, medians, this process's memory, and a table."""

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
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
    calls: Mapping[str, Call], *, rounds: int, count: int, concurrency: int, settle: float = 0.0
) -> dict[str, Cost]:
    """The median cost of each call, with the rounds of all interleaved: what disturbs one disturbs all."""
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    for call in calls.values():
        await spend(call, concurrency, concurrency)
    for _ in range(rounds):
        for name, call in calls.items():
            costs[name].append(await spend(call, count, concurrency, settle=settle))
    return {
        name: Cost(
            cpu=statistics.median(cost.cpu for cost in found),
            wall=statistics.median(cost.wall for cost in found),
        )
        for name, found in costs.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A number that is to be at least, or at most, another one."""

    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        low, high = self.at_least, self.at_most
        met = (low is None or self.value >= low) and (high is None or self.value <= high)
        bound = f">= {low:.3g}" if low is not None else f"<= {high:.3g}"
        return f"{self.value:.3g}{self.unit} (goal {bound}{self.unit}) {'met' if met else 'MISSED'}"


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
"""Names the file that `benchmarks.run` reads what was measured from, one table on each line."""


def show(title: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print a table; numbers go right, the first and the last column left."""
    cells = [columns, *(tuple(_cell(value) for value in row) for row in rows)]
    if kept := os.environ.get(TABLES_VARIABLE):
        numbers = [[value if isinstance(value, int | float) else None for value in row] for row in rows]
        table = {"title": title, "columns": columns, "rows": cells[1:], "numbers": numbers}
        with Path(kept).open("a", encoding="utf-8") as file:
            file.write(json.dumps(table) + "\n")
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        middle = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip(), flush=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
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
