"""Every benchmark still loads: a rename in the source has to reach them too."""

import importlib
import pkgutil
from pathlib import Path

import benchmarks
import pytest
from benchmarks.run import BENCHMARKS, Outcome, Table, write_pages


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_a_benchmark_can_be_loaded_and_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")

    assert module.__doc__


def test_the_page_of_results_has_tables_plots_and_the_missed_goals_first(tmp_path: Path) -> None:
    table = Table(
        title="A call <small>",
        columns=["caller", "CPU us/call", "goal"],
        rows=[["Host.call", "40.0", "5 x (goal >= 6 x) MISSED"], ["SDK | Client", "200", ""]],
        numbers=[[None, 40.0, None], [None, 200.0, None]],
    )
    growing = Table(
        title="Loading",
        columns=["servers", "ms"],
        rows=[["10", "1"], ["20", "2"]],
        numbers=[[10, 1.0], [20, 2.0]],
    )
    found = [
        Outcome(benchmark=BENCHMARKS[0], status=0, seconds=1.0, tables=[table, growing]),
        Outcome(benchmark=BENCHMARKS[1], status=3, seconds=1.0),
    ]
    for folder in ("benchmarks", "docs"):
        (tmp_path / folder).mkdir()
    write_pages(found, tmp_path)
    page = (tmp_path / "benchmarks" / "RESULTS.md").read_text()
    assert page.index("- A call <small>: Host.call: 5 x (goal >= 6 x) MISSED") < page.index("| caller |")
    assert "| SDK   Client | 200 |  |" in page
    assert "**It failed**, with status 3." in page
    assert (
        page.replace("../docs/benchmarks", "benchmarks") == (tmp_path / "docs" / "benchmarks.md").read_text()
    )
    plots = {path.name: path.read_text() for path in (tmp_path / "docs" / "benchmarks").iterdir()}
    assert all(f"(../docs/benchmarks/{name})" in page for name in plots)
    assert "<rect" in plots["calls-1.svg"]
    assert "A call &lt;small&gt;" in plots["calls-1.svg"]
    assert "<polyline" in plots["calls-2.svg"]
