"""Every benchmark still loads: a rename in the source has to reach them too."""

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import benchmarks
import pytest
from benchmarks import callers, search
from benchmarks.callers import stdio_entry
from benchmarks.calls import web_server
from benchmarks.measuring import TABLES_VARIABLE, Goal, leave_out, name_peer, show
from benchmarks.plots import lines
from benchmarks.run import BENCHMARKS, NothingToMergeWith, Outcome, Table, read_kept, write_pages

from fairlead.catalog.search import score as ranking
from fairlead.catalog.search.evaluation import read_questions, read_tools
from tests.conformance.suite import TOOLS

SDKS = TOOLS.parent / "sdks"


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_a_benchmark_can_be_loaded_and_says_what_it_measures(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")

    assert module.__doc__


def test_every_benchmark_that_can_be_run_is_part_of_the_whole_run() -> None:
    folder = Path(benchmarks.__path__[0])
    programs = {path.stem for path in folder.glob("*.py") if '__name__ == "__main__"' in path.read_text()}

    assert programs - {"run"} == {benchmark.name for benchmark in BENCHMARKS}


TABLE = Table(
    title="A call <small>",
    columns=["caller", "CPU us/call", "busy p99 ms", "goal"],
    rows=[
        ["Host.call", "40.0", "7.0", "5 x (goal >= 6 x) MISSED; memory 1 MB (goal <= 2 MB) met"],
        ["SDK | Client", "200", "9.0", ""],
    ],
    numbers=[[None, 40.0, 7.0, None], [None, 200.0, 9.0, None]],
    missed=[["Host.call", "goal", "cheaper 5 x (goal >= 6 x) MISSED"]],
    plot=["busy p99 ms"],
    about="What it costs.",
    note="Machine factor 2.",
)
GROWING = Table(
    title="Loading",
    columns=["servers", "Host", "SDK"],
    rows=[["10", "1", "3"], ["20", "2", "9"]],
    numbers=[[10, 1.0, 3.0], [20, 2.0, 9.0]],
    plot=["Host", "SDK"],
    unit="ms",
)


def outcome(name: str, *tables: Table, **more: Any) -> Outcome:
    return Outcome(name=name, status=0, seconds=1.0, tables=[*tables], **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("benchmarks", "docs"):
        (tmp_path / name).mkdir()
    return tmp_path


def page_of(folder: Path) -> str:
    return (folder / "benchmarks" / "RESULTS.md").read_text()


def test_the_page_of_results_has_tables_plots_and_the_missed_goals_first(folder: Path) -> None:
    failed = Outcome(name="gateway", status=3, seconds=1.0)
    write_pages([outcome("calls", TABLE, GROWING), failed], folder)
    page = page_of(folder)
    missed = "- A call, from its caller; A call \\<small>; **Host.call**: cheaper 5 x (goal >= 6 x)\n"
    assert missed in page
    assert page.index(missed) < page.index("| caller |")
    assert "memory" not in page[: page.index("| caller |")], "a goal that is met is none that is missed"
    assert "| SDK   Client | 200 | 9.0 |  |" in page
    assert "**It failed**, with status 3." in page
    assert "What it costs." in page
    assert "Machine factor 2." in page
    assert page.replace("../docs/benchmarks", "benchmarks") == (folder / "docs" / "benchmarks.md").read_text()


def test_a_plot_shows_the_columns_that_it_is_to_show(folder: Path) -> None:
    write_pages([outcome("calls", TABLE, GROWING)], folder)
    plots = {path.name: path.read_text() for path in (folder / "docs" / "benchmarks").iterdir()}

    assert all(f"(../docs/benchmarks/{name})" in page_of(folder) for name in plots)
    assert "A call &lt;small&gt; — busy p99 ms" in plots["calls-1.svg"]
    assert plots["calls-2.svg"].count("<polyline") == 2
    assert "Loading: ms by servers" in plots["calls-2.svg"]


def test_the_page_says_what_was_run_what_was_left_out_and_what_was_compared_with(folder: Path) -> None:
    found = outcome("calls", TABLE, left_out=["mcp-hub"], peers={"mcp": "2.3.0"}, surroundings="on a day")
    write_pages([found], folder, command="python -m benchmarks.run --data 'a b'")
    head = page_of(folder)[: page_of(folder).index("## ")]

    assert "Written by `python -m benchmarks.run --data 'a b'`, on a day." in head
    assert "`gateway`" in head
    assert "mcp-hub." in head
    assert "Compared with mcp 2.3.0." in head


def test_what_is_written_after_some_benchmarks_leaves_the_others_as_they_are(folder: Path) -> None:
    write_pages([outcome("calls", TABLE), outcome("startup", GROWING)], folder)
    anew = replace(TABLE, title="A call, anew")
    write_pages([outcome("calls", anew)], folder, is_whole=False)

    assert "A call, anew" in page_of(folder)
    assert "small" not in page_of(folder)
    assert "### Loading" in page_of(folder)
    assert (folder / "docs" / "benchmarks" / "startup-1.svg").exists()


def test_a_page_that_nothing_is_known_of_is_not_overwritten_in_part(folder: Path) -> None:
    (folder / "benchmarks" / "RESULTS.md").write_text("as it was")
    with pytest.raises(NothingToMergeWith):
        write_pages([outcome("calls", TABLE)], folder, is_whole=False)

    assert page_of(folder) == "as it was"


def test_what_a_benchmark_shows_leaves_out_and_compares_with_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv(TABLES_VARIABLE, str(kept))
    met = Goal(value=1, at_most=2, unit=" MB", label="memory")
    missed = Goal(value=0.145, at_most=0.12, unit=" ms", factor=0.5, label="added")
    show("Title", ("what", "ms", "goal"), [("ours", 0.145, (met, missed)), ("other", 2.0, None)], plot="ms")
    leave_out("mcp-hub", "it is not installed")
    name_peer("mcp", "2.3.0")
    found = read_kept(Outcome(name="calls", status=0, seconds=1.0), kept)

    assert found.tables[0].missed == [
        ["ours", "goal", "added 0.145 ms (goal <= 0.06 ms: 0.12 ms x machine factor 0.50) MISSED"]
    ]
    assert found.tables[0].rows[0][1] == "0.145"
    assert found.left_out == ["mcp-hub"]
    assert found.peers == {"mcp": "2.3.0"}


def test_a_plot_over_decades_has_logarithmic_axes_and_one_without_begins_at_zero() -> None:
    assert "logarithmic" in lines("t", "bytes", "us", {"a": [(1, 1), (1000, 500)]})
    assert "logarithmic" not in lines("t", "servers", "s", {"a": [(1, 1), (50, 40)]})
    assert "logarithmic" not in lines("t", "bytes", "us", {"a": [(1, 0), (1000, 500)]})


@pytest.mark.parametrize("part", search.PARTS)
def test_search_is_measured_with_the_questions_of_this_project(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv(TABLES_VARIABLE, str(kept))
    monkeypatch.setattr(search, "encoder", lambda: None)
    monkeypatch.setattr(search, "slowness", lambda: 1.0)
    monkeypatch.setattr(ranking, "MANY_TOOLS", ranking.MANY_TOOLS)  # which it sets; set back afterwards
    search.PARTS[part](search.OWN, quick=True)

    assert read_kept(Outcome(name="search", status=0, seconds=1.0), kept).tables[0].rows


def test_every_question_of_this_project_has_its_tools() -> None:
    tools = {document.key.tool for document in read_tools(search.OWN / "own" / "tools.jsonl")}
    questions = read_questions(search.OWN / "own" / "queries.jsonl")

    assert len(tools) == 50
    assert {tool for question in questions for group in question.gold for tool in group} == tools


@pytest.mark.parametrize("kind", ["stdio", "json", "events"])
@pytest.mark.blocks_loop  # it waits for the process it starts
@pytest.mark.skipif(not (SDKS / ".installed").exists(), reason="tests/tools/install was not run")
async def test_the_typescript_client_makes_calls_and_says_what_they_cost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "typescript"
    folder.mkdir()
    (folder / "node_modules").symlink_to(SDKS / "node_modules")
    monkeypatch.setattr(callers, "TOOLS", tmp_path)
    with anyio.fail_after(60), web_server() as address:
        entry = stdio_entry() if kind == "stdio" else {"url": f"{address}/{kind}"}
        async with callers.typescript(entry) as make_calls:
            cost = await make_calls(32, 16, size=5)

    assert 0 < cost.cpu < 1
    assert 0 < cost.wall < 1
