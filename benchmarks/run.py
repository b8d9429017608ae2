"""All benchmarks, one after the other, and what they found as one page with plots.

    benchmarks/install-gateways          # once: what ours is compared with
    uv run --extra search --with fastmcp==4.1.2 python -m benchmarks.run [--quick] [--data DIR] [NAME …]

Each benchmark compares in one run, by turns, in a process of its own. What they found is kept in
`benchmarks/results.json`; tables and plots go from there into `benchmarks/RESULTS.md` and a page of the
documentation. With `--quick` or NAMEs nothing is written unless `--write` says so: numbers of a short run
only say that the benchmark works. What is written after a run of some benchmarks takes the place of theirs
alone. Ends with 1 where a benchmark failed, or, with `--complete`, where a peer was left out; a goal that is
missed is no failure.
"""

import argparse
import ast
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import ROOT, TABLES_VARIABLE
from benchmarks.plots import bars, lines

PLOTS: Final = "docs/benchmarks"
PAGES: Final = {"benchmarks/RESULTS.md": "../docs/benchmarks", "docs/benchmarks.md": "benchmarks"}
"""What is written, and where its plots are as seen from there."""
RESULTS: Final = "benchmarks/results.json"
"""What was found, by benchmark: the pages are made from it."""
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
    takes_data: bool = False
    """Whether it also reads sets of questions of others, which are not part of this project."""


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
    Benchmark(name="search", title="Finding tools", takes_data=True),
    Benchmark(name="adapters", title="Tools as providers take them", quick=()),
    Benchmark(name="call_frames", title="The frames of a call", quick=()),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What one call of `measuring.show` printed."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    numbers: list[list[float | None]]
    missed: list[list[str]] = field(default_factory=list[list[str]])
    """Of each goal that is missed: its row, its column, and what it says."""
    plot: list[str] | None = None
    """The columns to plot; None for the first that has numbers."""
    unit: str = ""
    about: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a benchmark ended, and what it found."""

    name: str
    status: int
    seconds: float
    tables: list[Table] = field(default_factory=list[Table])
    left_out: list[str] = field(default_factory=list[str])
    """What a whole run has and this had not."""
    peers: dict[str, str] = field(default_factory=dict[str, str])
    """The versions of what is compared with."""
    surroundings: str = ""
    """When, of what and where it was measured."""
    is_quick: bool = False

    @property
    def benchmark(self) -> Benchmark:
        """What it is the outcome of."""
        return next(benchmark for benchmark in BENCHMARKS if benchmark.name == self.name)


def run(benchmark: Benchmark, data: Path | None, *, quick: bool) -> Outcome:
    """Run one in a process of its own; what it prints is seen as it comes."""
    arguments = [*(benchmark.quick if quick else benchmark.full)]
    if benchmark.takes_data and data is not None:
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
        outcome = Outcome(
            name=benchmark.name,
            status=status,
            seconds=time.monotonic() - began,
            surroundings=_surroundings(),
            is_quick=quick,
        )
        return read_kept(outcome, Path(kept.name))


def read_kept(outcome: Outcome, path: Path) -> Outcome:
    """An outcome with what the benchmark kept."""
    left_out: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        match json.loads(line):
            case {"table": table}:
                outcome.tables.append(Table(**table))
            case {"left out": str(what)}:
                left_out[what] = None
            case {"peer": [str(name), str(version)]}:
                outcome.peers[name] = version
            case unknown:
                raise ValueError(f"a benchmark kept {unknown}")
    return replace(outcome, left_out=[*left_out])


def _surroundings() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    today = datetime.now(UTC).date().isoformat()
    python = f"Python {platform.python_version()} on {os.cpu_count()} processors"
    return f"on {today}, at {commit.stdout.strip() or 'no commit'}, with {python}"


# ── the page ──


class NothingToMergeWith(Exception):
    """There is a page, and not what it was made from: a partial run would take the rest of it away."""


def write_pages(
    outcomes: Sequence[Outcome], root: Path = ROOT, *, command: str = "", is_whole: bool = True
) -> None:
    """Write the pages and their plots, below the folder of the project.

    Args:
        outcomes: What was found.
        root: The folder of the project.
        command: What was run.
        is_whole: Whether all benchmarks were run; else those that were not stay as they are on the pages.

    Raises:
        NothingToMergeWith: If it is not whole, and nothing is known of the others.
    """
    kept = {} if is_whole else _read_results(root)
    former = [outcome for name, outcome in kept.items() if name not in {found.name for found in outcomes}]
    order = [benchmark.name for benchmark in BENCHMARKS]
    every = sorted([*former, *outcomes], key=lambda outcome: order.index(outcome.name))
    folder = root / PLOTS
    folder.mkdir(exist_ok=True)
    for drawn in folder.glob("*.svg"):
        drawn.unlink()
    for outcome in every:
        for number, table in enumerate(outcome.tables, 1):
            if drawing := _plot(table):
                (folder / _plot_name(outcome, number)).write_text(drawing, encoding="utf-8")
    for page, plots in PAGES.items():
        (root / page).write_text(_render(every, plots, command=command), encoding="utf-8")
    text = json.dumps([asdict(outcome) for outcome in every], indent=1, ensure_ascii=False)
    (root / RESULTS).write_text(text + "\n", encoding="utf-8")


def can_merge(root: Path = ROOT) -> bool:
    """Whether a partial run can be written without taking away what others found."""
    return (root / RESULTS).exists() or not any((root / page).exists() for page in PAGES)


def _read_results(root: Path) -> dict[str, Outcome]:
    if not can_merge(root):
        raise NothingToMergeWith(f"there is no {RESULTS}: run all benchmarks once")
    if not (root / RESULTS).exists():
        return {}
    known = {benchmark.name for benchmark in BENCHMARKS}
    found: list[dict[str, Any]] = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    outcomes: dict[str, Outcome] = {}
    for each in found:
        tables = [Table(**table) for table in each.pop("tables")]
        if each["name"] in known:
            outcomes[each["name"]] = Outcome(tables=tables, **each)
    return outcomes


def _plot_name(outcome: Outcome, number: int) -> str:
    return f"{outcome.name}-{number}.svg"


def _render(outcomes: Sequence[Outcome], plots: str, *, command: str) -> str:
    places = list(dict.fromkeys(outcome.surroundings for outcome in outcomes))
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`, {places[0] if len(places) == 1 else 'at several times: see each part'}.",
        "Ratios within a table hold on other machines; times do not.",
        *_caveat(outcomes),
        "",
        f"Left out: {', '.join(_left_out(outcomes)) or 'nothing'}.",
        *_versions(outcomes),
        "",
        "## Where we miss our own goals",
        "",
        *_missed(outcomes),
    ]
    for outcome in outcomes:
        lines += ["", f"## {outcome.benchmark.title}", "", *_description(outcome)]
        if len(places) > 1:
            lines += ["", f"Measured {outcome.surroundings}."]
        if outcome.status:
            lines += ["", f"**It failed**, with status {outcome.status}."]
        about = ""
        for number, table in enumerate(outcome.tables, 1):
            lines += ["", f"### {_text(table.title)}"]
            if table.about and table.about != about:  # of several tables of one part, the first
                lines += ["", table.about]
            about = table.about
            lines += ["", *_markdown(table)]
            if table.note:
                lines += ["", table.note]
            if _plot(table) is not None:
                lines += ["", f"![{_text(table.title)}]({plots}/{_plot_name(outcome, number)})"]
    return "\n".join(lines) + "\n"


def _text(title: str) -> str:
    """A title as Markdown that shows it as it is."""
    return re.sub(r"([\\\[\]`*_]|<(?=[A-Za-z/!]))", r"\\\1", title)


def _caveat(outcomes: Sequence[Outcome]) -> list[str]:
    short = [outcome.name for outcome in outcomes if outcome.is_quick]
    if not short:
        return []
    which = "all of this" if len(short) == len(outcomes) else ", ".join(short)
    return [f"In a short run, as {which} was, a goal may be missed, or met, by chance."]


def _left_out(outcomes: Sequence[Outcome]) -> list[str]:
    names = {outcome.name for outcome in outcomes}
    missing = [f"`{benchmark.name}`" for benchmark in BENCHMARKS if benchmark.name not in names]
    return [*dict.fromkeys([*missing, *(what for outcome in outcomes for what in outcome.left_out)])]


def _versions(outcomes: Sequence[Outcome]) -> list[str]:
    peers = {name: version for outcome in outcomes for name, version in outcome.peers.items()}
    if not peers:
        return []
    return ["", f"Compared with {', '.join(f'{name} {version}' for name, version in sorted(peers.items()))}."]


def _description(outcome: Outcome) -> list[str]:
    """What a benchmark measures, by its module's docstring, without its first lines of commands."""
    tree = ast.parse((ROOT / "benchmarks" / f"{outcome.name}.py").read_text(encoding="utf-8"))
    paragraphs = (ast.get_docstring(tree) or "").split("\n\n")
    words = [paragraph for paragraph in paragraphs if not paragraph.startswith("    ")]
    return ["\n\n".join([*words, f"`python -m benchmarks.{outcome.name}`"])]


def _missed(outcomes: Sequence[Outcome]) -> list[str]:
    found: list[str] = []
    for outcome in outcomes:
        for table in outcome.tables:
            for row, column, goal in table.missed:
                what = "" if column in ("goal", "") else f"{column}: "
                found.append(
                    f"- {outcome.benchmark.title}; {_text(table.title)}; **{_text(row)}**: "
                    f"{_text(what + goal.removesuffix(' MISSED'))}"
                )
    return found or ["None, in this run."]


def _markdown(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"[|\n]", " ", cell) for cell in cells) + " |"

    rule = "|" + "|".join("---:" if index > 0 else "---" for index in range(len(table.columns))) + "|"
    return [row(table.columns), rule, *(row(cells) for cells in table.rows)]


def _plot(table: Table) -> str | None:
    """The plotted columns: as lines where the rows are numbers that grow, else as bars."""
    columns = _first_of_numbers(table) if table.plot is None else table.plot
    if not columns:
        return None
    known = {column: _values(table, table.columns.index(column)) for column in columns}
    up = table.unit or columns[0]
    work = [row[0] for row in table.numbers]
    if all(value is not None for value in work):
        series = {
            column: [(x, y) for x, y in zip(work, values, strict=True) if x is not None and y is not None]
            for column, values in known.items()
        }
        series = {column: points for column, points in series.items() if points}
        return lines(table.title, table.columns[0], up, series, OURS) if series else None
    values = [
        (cells[0] if len(columns) == 1 else f"{cells[0]}: {column}", value)
        for index, cells in enumerate(table.rows)
        for column in columns
        if (value := known[column][index]) is not None
    ]
    return bars(table.title, up, values, OURS) if values else None


def _values(table: Table, index: int) -> list[float | None]:
    return [row[index] if index < len(row) else None for row in table.numbers]


def _first_of_numbers(table: Table) -> list[str]:
    for index, column in enumerate(table.columns[1:], 1):
        values = _values(table, index)
        known = [value for value in values if value is not None]
        if len(known) >= 2 and len(known) >= len(values) / 2:
            return [column]
    return []


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short runs, to see that each works")
    parser.add_argument("--complete", action="store_true", help="fail where a peer is left out")
    parser.add_argument("--data", type=Path, help="a folder with sets of questions of others, for `search`")
    parser.add_argument(
        "--write", action="store_true", help="write the pages after a short or partial run, too"
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(names)}")
    words = [*(sys.argv[1:] if argv is None else argv)]
    given: Any = parser.parse_args(words)
    if unknown := sorted(set(given.names) - set(names)):
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    is_whole = not given.names
    is_written = given.write or not (given.quick or given.names)
    if is_written and not is_whole and not can_merge():
        parser.error(
            f"there is no {RESULTS} to merge with: run all benchmarks before some of them are written"
        )
    chosen = [benchmark for benchmark in BENCHMARKS if is_whole or benchmark.name in given.names]
    outcomes = [run(benchmark, given.data, quick=given.quick) for benchmark in chosen]
    if is_written:
        write_pages(
            outcomes, command=shlex.join(["python", "-m", "benchmarks.run", *words]), is_whole=is_whole
        )
    print()
    for outcome in outcomes:
        result = "passed" if outcome.status == 0 else "FAILED"
        without = f", without {', '.join(outcome.left_out)}" if outcome.left_out else ""
        counted = f"{outcome.seconds:6.0f} s, {len(outcome.tables)} tables{without}"
        print(f"{outcome.name:<11} {result} {counted}")
    is_short = given.complete and any(outcome.left_out for outcome in outcomes)
    return 1 if is_short or any(outcome.status for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
