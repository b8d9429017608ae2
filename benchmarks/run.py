"""All benchmarks, one after the other, and what they found as one page with plots.

    benchmarks/install-gateways          # once: what ours is compared with
    uv run --extra search --with fastmcp python -m benchmarks.run [--quick] [--data DIR] [NAME …]

Each benchmark compares in one run, by turns, in a process of its own. Tables and plots go into
`benchmarks/RESULTS.md` and a page of the documentation. With `--quick` or NAMEs nothing is written unless
`--write` says so: numbers of a short run only say that the benchmark works. Ends with 1 where a benchmark
failed; a goal that is missed is no failure.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import ROOT, TABLES_VARIABLE
from benchmarks.plots import bars, line

PLOTS: Final = "docs/benchmarks"
PAGES: Final = {"benchmarks/RESULTS.md": "../docs/benchmarks", "docs/benchmarks.md": "benchmarks"}
"""What is written, and where its plots are as seen from there."""
SECONDS: Final = 3600.0
"""The longest that one benchmark may take."""
OURS: Final = ("Host", "connection", "fairlead", "Fairlead", "ours", "console")
"""How the names of our own rows begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A module of this folder, and how it is run."""

    name: str
    title: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--quick",)
    needs_data: bool = False
    """Whether it reads sets of questions or catalogs of others, which are not part of this project."""


BENCHMARKS: Final = (
    Benchmark(name="calls", title="A call, from its caller"),
    Benchmark(name="gateway", title="A call through a gateway"),
    Benchmark(name="policy", title="What safety costs"),
    Benchmark(name="replicas", title="A store that replicas share"),
    Benchmark(name="start", title="Starting servers"),
    Benchmark(name="startup", title="The command line"),
    Benchmark(name="catalog", title="Large catalogs"),
    Benchmark(
        name="dashboard", title="The dashboard", quick=("--tools", "500", "--servers", "10", "--rounds", "3")
    ),
    Benchmark(name="sanitize", title="Looking for hidden text", quick=()),
    Benchmark(name="files", title="The file tools"),
    Benchmark(name="ripgrep", title="Searching files"),
    Benchmark(
        name="soak",
        title="Under load, with servers killed",
        full=("--minutes", "10"),
        quick=("--minutes", "0.2"),
    ),
    Benchmark(name="search", title="Finding tools", needs_data=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What one call of `measuring.show` printed."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    numbers: list[list[float | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a benchmark ended, and what it found."""

    benchmark: Benchmark
    status: int
    seconds: float
    tables: list[Table] = field(default_factory=list[Table])


def run(benchmark: Benchmark, data: Path | None, *, quick: bool) -> Outcome:
    """Run one in a process of its own; what it prints is seen as it comes."""
    arguments = [*(benchmark.quick if quick else benchmark.full)]
    if benchmark.needs_data:
        arguments += ["--data", str(data)]
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as kept:
        env = {**os.environ, TABLES_VARIABLE: kept.name}
        began = time.monotonic()
        print(f"\n== {benchmark.name}: {benchmark.title}", flush=True)
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{benchmark.name}", *arguments],
                cwd=ROOT,
                env=env,
                timeout=SECONDS,
                check=False,
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = -1
        tables = [Table(**json.loads(text)) for text in Path(kept.name).read_text().splitlines()]
    return Outcome(benchmark=benchmark, status=status, seconds=time.monotonic() - began, tables=tables)


# ── the page ──


def write_pages(outcomes: Sequence[Outcome], root: Path = ROOT, *, quick: bool = False) -> None:
    """Write the pages and their plots, below the folder of the project. `quick`: of a short run."""
    folder = root / PLOTS
    folder.mkdir(exist_ok=True)
    for former in folder.glob("*.svg"):
        former.unlink()
    for outcome in outcomes:
        for number, table in enumerate(outcome.tables, 1):
            if drawing := _plot(table):
                (folder / _plot_name(outcome, number)).write_text(drawing, encoding="utf-8")
    for page, plots in PAGES.items():
        (root / page).write_text(_render(outcomes, plots, quick=quick), encoding="utf-8")


def _plot_name(outcome: Outcome, number: int) -> str:
    return f"{outcome.benchmark.name}-{number}.svg"


def _render(outcomes: Sequence[Outcome], plots: str, *, quick: bool) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    today = datetime.now(UTC).date().isoformat()
    command = "python -m benchmarks.run" + (" --quick" if quick else "")
    place = f"with Python {platform.python_version()} on {os.cpu_count()} processors"
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}` on {today}, at {commit.stdout.strip()}, {place}.",
        "Ratios within a table hold on other machines; times do not."
        + (" In a short run, as this was, a goal may be missed, or met, by chance." if quick else ""),
        "",
        "## Where we miss our own goals",
        "",
        *_missed(outcomes),
    ]
    for outcome in outcomes:
        lines += ["", f"## {outcome.benchmark.title}", "", f"`python -m benchmarks.{outcome.benchmark.name}`"]
        if outcome.status:
            lines += ["", f"**It failed**, with status {outcome.status}."]
        for number, table in enumerate(outcome.tables, 1):
            lines += ["", f"### {table.title}", "", *_markdown(table)]
            if _plot(table) is not None:
                lines += ["", f"![{table.title}]({plots}/{_plot_name(outcome, number)})"]
    return "\n".join(lines) + "\n"


def _missed(outcomes: Sequence[Outcome]) -> list[str]:
    found = [
        f"- {table.title}: {row[0]}: {cell}"
        for outcome in outcomes
        for table in outcome.tables
        for row in table.rows
        for cell in row
        if "MISSED" in cell
    ]
    return found or ["None, in this run."]


def _markdown(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"[|\n]", " ", cell) for cell in cells) + " |"

    rule = "|" + "|".join("---:" if index > 0 else "---" for index in range(len(table.columns))) + "|"
    return [row(table.columns), rule, *(row(cells) for cells in table.rows)]


def _plot(table: Table) -> str | None:
    """The first column of numbers: as a line where the rows are numbers that grow, else as bars."""
    for index, column in enumerate(table.columns[1:], 1):
        values = [row[index] if index < len(row) else None for row in table.numbers]
        known = [(cells, value) for cells, value in zip(table.rows, values, strict=True) if value is not None]
        if len(known) < 2 or len(known) < len(values) / 2:
            continue
        work = [row[0] for row in table.numbers]
        if all(value is not None for value in work):
            points = [(x, y) for x, y in zip(work, values, strict=True) if x is not None and y is not None]
            return line(table.title, table.columns[0], column, points)
        return bars(table.title, column, [(cells[0], value) for cells, value in known], OURS)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short runs, to see that each works")
    parser.add_argument("--data", type=Path, help="the folder with sets of questions, for `search`")
    parser.add_argument(
        "--write", action="store_true", help="write the pages after a short or partial run, too"
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(names)}")
    given: Any = parser.parse_args(argv)
    if unknown := sorted(set(given.names) - set(names)):
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    outcomes: list[Outcome] = []
    for benchmark in BENCHMARKS:
        if given.names and benchmark.name not in given.names:
            continue
        if benchmark.needs_data and given.data is None:
            print(f"\n== {benchmark.name}: left out, it needs --data DIR")
            continue
        outcomes.append(run(benchmark, given.data, quick=given.quick))
    if given.write or not (given.quick or given.names):
        write_pages(outcomes, quick=given.quick)
    print()
    for outcome in outcomes:
        result = "passed" if outcome.status == 0 else "FAILED"
        print(f"{outcome.benchmark.name:<10} {result} {outcome.seconds:6.0f} s, {len(outcome.tables)} tables")
    return 1 if any(outcome.status for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
