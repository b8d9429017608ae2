"""The processes that search: that they agree, and that none is left behind."""

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ToolFailed
from fairlead.servers.repo import engines, ripgrep
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.repo.ripgrep import SearchOutput, search_tool
from fairlead.testing import write_tree
from tests.real.processes import children
from tests.servers.calling import call
from tests.servers.searching import PROGRAMS, found, paths, places, program

SECONDS = 30


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "repo", {})


@pytest.fixture
def confinement(repo: Path) -> Generator[Confinement]:
    with Confinement([repo]) as confinement:
        yield confinement


@pytest.fixture(autouse=True)
def any_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script stand in for ripgrep, with whatever that starts."""
    needed = engines.find_needed_files

    def everything(script: str) -> tuple[Path, ...]:
        return needed(script) or (Path("/"),)

    monkeypatch.setattr(engines, "find_needed_files", everything)


# ── the same on both ──

TEXTS = {
    "code.py": "import os\n\n\ndef needle(a, b):\n    return a[0] + b['x'] * 42\n\n# needle NEEDLE Needle\n",
    "words.txt": "école ÉCOLE straße\nma\u017fk mask MASK\n日本 needle\n\n   \n\ttab\nlast line without end",
    "windows.txt": b"needle one\r\ntwo needle\r\n\r\n",
    "utf16.txt": "\ufeffneedle in utf-16\nzwei\n".encode("utf-16-le"),
    "bom.txt": b"\xef\xbb\xbfneedle with bom\n",
    "latin.txt": b"needle caf\xe9\n",
    "binary.bin": b"needle\0\n",
    "late.bin": b"needle early\n" + b"filler needle\n" * 10_000 + b"\0 needle late\n",
    "long.txt": "x" * 3_000 + "needle" + "y" * 3_000 + "\nneedle\n",
    "many.log": "needle\n" * 30,
    "empty": "",
    ".gitignore": "*.log\n!kept.log\n/build/\n",
    "kept.log": "needle\n",
    "build": {"out.py": "needle\n"},
    "sub": {
        ".ignore": "skipped/**\n",
        "build": {"out.py": "needle\n"},
        "skipped": {"a": "needle\n"},
        "a-b": "needle\n",
        "a": {"z": "needle\n", ".gitignore": "z\n"},
        "a.txt": "needle\n",
        "B": "needle\n",
        "é": "needle\n",
    },
    ".hidden": {"a": "needle\n"},
}
QUERIES = [
    {"query": "needle"},
    {"query": "needle", "maxMatches": 2000, "context": 2},
    {"query": "needle", "maxMatches": 3, "context": 1},
    {"query": "NEEDLE"},
    {"query": "needle", "case": "sensitive", "globs": ["*.py", "sub/**"]},
    {"query": "needle", "globs": ["!sub", "!*.bin"]},
    {"query": "needle", "globs": [".hidden/**", "*.log"]},
    {"query": "^needle"},
    {"query": "needle$"},
    {"query": r"needle\s*$"},
    {"query": "^$"},
    {"query": r"^\s*$"},
    {"query": r"\bneedle\b.*\bneedle\b"},
    {"query": "école"},
    {"query": "mask"},
    {"query": "STRASSE|straße", "case": "insensitive"},
    {"query": r"import|return\s+a\[0\]"},
    {"query": r"\d{2}"},
    {"query": r"[^\x00-\x7f]", "globs": ["!latin.txt"]},
    {"query": "b['x'] * 42", "fixed": True},
    {"query": "x*", "maxMatches": 20},
    {"query": "without end$"},
    {"query": "(?i)NEEDLE (one|IN)"},
    {"query": "in utf-16"},
]


@pytest.mark.parametrize("arguments", QUERIES, ids=json.dumps)
async def test_both_engines_find_the_same_in_the_same_order(
    repo: Path, confinement: Confinement, arguments: dict[str, Any]
) -> None:
    write_tree(repo, TEXTS)
    by_ripgrep = await found(search_tool(confinement), **arguments)
    by_python = await found(search_tool(confinement, program=None), **arguments)
    assert by_python.matches == by_ripgrep.matches
    assert by_python.truncated == by_ripgrep.truncated
    assert by_ripgrep.matches
    assert (by_ripgrep.engine, by_python.engine) == ("ripgrep", "python")


async def test_of_very_many_matches_both_engines_give_the_first(repo: Path, confinement: Confinement) -> None:
    files = {f"file_{number:02}": "needle\n" * 60 for number in range(60)}
    write_tree(repo, {"deep": files, "other": files})
    for arguments in ({"query": "needle"}, {"query": "needle", "maxMatches": 100, "context": 2}):
        by_ripgrep = await found(search_tool(confinement), **arguments)
        by_python = await found(search_tool(confinement, program=None), **arguments)
        assert by_ripgrep.matches == by_python.matches
        assert by_ripgrep.truncated
        assert set(paths(by_ripgrep)) <= {"deep/file_00", "deep/file_01"}


NAMES = ["a", "ab", "b.py", "keep.log", "src", "dist", ".env", ".github", "x y", "é.txt", "[x].py", "#h"]
RULES = [
    "*.log", "!keep.log", "/a", "a/", "src/", "/src/*.py", "**/ab", "ab/**", "src/**/b.py", "*", "!*/",
    "!*.py", "!.env", "!.github", "[ab].py", "[!b].py", "*.{py,txt}", r"\#h", "# no", "a*b*", "é*", "**",
    "/*", "*/b.py", "{x", "x\\ y", "b.*  ", "src/**", "!.git",
]  # fmt: skip
GLOBS = [
    "*.py",
    "src/**",
    "src",
    "!*.log",
    "**",
    "*.{py,log}",
    ".github/**",
    ".env",
    "./src/*.py",
    "!src/a",
    "!#h",
]

ignore_files = st.dictionaries(
    st.sampled_from([".gitignore", ".ignore", ".rgignore"]),
    st.lists(st.sampled_from(RULES), min_size=1, max_size=4).map("\n".join),
    max_size=2,
)


def joined(parts: tuple[dict[str, Any], dict[str, str]]) -> dict[str, Any]:
    return parts[0] | parts[1]


def folders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A folder with files and folders of these names, and with ignore files."""
    named = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=5)
    return st.tuples(named, ignore_files).map(joined)


trees = folders(st.recursive(st.just("needle\n"), folders, max_leaves=20))


@given(tree=trees, globs=st.lists(st.sampled_from(GLOBS), max_size=3))
@settings(max_examples=15)
def test_both_engines_leave_out_the_same_files(tree: dict[str, Any], globs: list[str]) -> None:
    async def both(root: Path) -> list[SearchOutput]:
        with Confinement([root]) as confinement:
            tools = [search_tool(confinement, program=program) for program in PROGRAMS.values()]
            return [await found(tool, query="needle", globs=globs, maxMatches=2000) for tool in tools]

    with TemporaryDirectory() as folder:
        by_ripgrep, by_python = anyio.run(both, write_tree(Path(folder), tree))
    assert paths(by_python) == paths(by_ripgrep)


# ── the process ──


async def test_a_search_without_end_costs_no_more_than_the_first_matches(
    tmp_path: Path, confinement: Confinement
) -> None:
    before = children()
    endless = program(tmp_path, r"while :; do printf './a\0001:needle\n'; done")
    output = await found(search_tool(confinement, program=endless), query="needle")
    assert len(output.matches) == 50
    assert output.truncated
    assert children() == before


async def test_when_the_time_is_up_the_answer_is_what_was_found(
    tmp_path: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "DEADLINE_SECONDS", 1.5)
    before = children()
    slow = program(tmp_path, r"printf './a\0001:needle\n'; exec /bin/sleep 1000")
    output = await found(search_tool(confinement, program=slow), query="needle")
    assert places(output) == [("a", 1)]
    assert output.truncated
    assert children() == before


@pytest.mark.parametrize(
    "loop",
    [
        "asyncio",
        pytest.param("uvloop", marks=pytest.mark.skipif(sys.platform == "win32", reason="there is none")),
    ],
)
def test_a_cancelled_call_leaves_no_process_behind(repo: Path, tmp_path: Path, loop: str) -> None:
    hanging = program(tmp_path, "exec /bin/sleep 1000")

    async def cancelled() -> set[int]:
        before = children()
        with Confinement([repo]) as confinement, anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, search_tool(confinement, program=hanging), {"query": "needle"})
                while not children() - before:  # noqa: ASYNC110 - a process sends no events
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        return children() - before

    assert anyio.run(cancelled, backend_options={"use_uvloop": loop == "uvloop"}) == set()


@pytest.mark.parametrize("which", PROGRAMS)
def test_it_works_on_the_other_event_loop_too(repo: Path, which: str) -> None:
    write_tree(repo, {"a": "needle"})

    async def search() -> SearchOutput:
        with Confinement([repo]) as confinement:
            return await found(search_tool(confinement, program=PROGRAMS[which]), query="needle", globs=["a"])

    output = anyio.run(search, backend_options={"use_uvloop": True})
    assert (paths(output), output.engine) == (["a"], which)


async def test_many_searches_at_once_all_get_their_turn(repo: Path, confinement: Confinement) -> None:
    write_tree(repo, {"a": "needle"})
    tool = search_tool(confinement)
    outputs: list[SearchOutput] = []

    async def one() -> None:
        outputs.append(await found(tool, query="needle"))

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(one)
    assert [paths(output) for output in outputs] == [["a"]] * 12


async def test_our_environment_is_not_handed_on(
    tmp_path: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    spy = program(tmp_path, r"printf './a\0001:'; /usr/bin/env | /usr/bin/tr '\n' ' '; echo")
    [match] = (await found(search_tool(confinement, program=spy), query="needle")).matches
    assert "PWD" in match.line_text
    assert "SECRET_TOKEN" not in match.line_text


@pytest.mark.parametrize(
    "script",
    ["echo 'error: Found argument --sort' >&2; exit 2", "echo 'rg: unrecognized flag --null' >&2; exit 2"],
)
async def test_a_ripgrep_that_is_too_old_is_not_used(
    repo: Path, tmp_path: Path, confinement: Confinement, script: str
) -> None:
    write_tree(repo, {"a": "needle"})
    output = await found(search_tool(confinement, program=program(tmp_path, script)), query="needle")
    assert (paths(output), output.engine) == (["a"], "python")


async def test_a_ripgrep_that_is_gone_is_not_missed(
    repo: Path, tmp_path: Path, confinement: Confinement
) -> None:
    write_tree(repo, {"a": "needle"})
    path = program(tmp_path, "exit 0")
    tool = search_tool(confinement, program=path)
    os.remove(path)
    output = await found(tool, query="needle")
    assert (paths(output), output.engine) == (["a"], "python")


async def test_a_ripgrep_in_the_project_is_not_found_by_a_relative_path(
    repo: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(repo, "printf './it\\0001:ran\\n'")
    monkeypatch.chdir(repo)
    monkeypatch.setenv("PATH", ".")
    output = await found(search_tool(confinement), query="needle")
    assert (output.matches, output.engine) == ([], "python")


async def test_a_ripgrep_in_the_project_is_not_run_however_it_is_found(
    repo: Path, tmp_path: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Path(program(repo, "printf './it\\0001:ran\\n'"))
    (also := tmp_path / "also").mkdir()
    (also / "rg").symlink_to(planted)
    monkeypatch.setenv("PATH", os.pathsep.join((str(planted.parent), str(also))))
    output = await found(search_tool(confinement), query="needle")
    assert (output.matches, output.engine) == ([], "python")


async def test_files_that_cannot_be_read_do_not_spoil_the_answer(
    tmp_path: Path, confinement: Confinement
) -> None:
    partly = program(tmp_path, r"printf './a\0001:needle\n'; exit 2")
    assert paths(await found(search_tool(confinement, program=partly), query="needle")) == ["a"]


async def test_where_ripgrep_dies_python_searches_and_if_that_dies_it_is_an_error(
    tmp_path: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = program(tmp_path, "kill -9 $$")
    assert (await found(search_tool(confinement, program=dying), query="needle")).engine == "python"
    monkeypatch.setattr(sys, "executable", dying)
    with pytest.raises(ToolFailed, match="interrupted"):
        await found(search_tool(confinement, program=None), query="needle")


async def test_with_nothing_to_search_with_the_error_says_so(
    confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ToolFailed, match="no ripgrep here, and no Python"):
        await found(search_tool(confinement, program=None), query="needle")


@pytest.mark.parametrize("which", PROGRAMS)
async def test_a_folder_that_was_replaced_is_not_searched(
    repo: Path, confinement: Confinement, which: str
) -> None:
    tool = search_tool(confinement, program=PROGRAMS[which])
    os.rename(repo, f"{repo}-moved")
    with pytest.raises(ToolFailed, match="moved or replaced"):
        await found(tool, query="needle")
    write_tree(repo, {"a": "needle"})
    with pytest.raises(ToolFailed, match="moved or replaced"):
        await found(tool, query="needle")


@pytest.mark.parametrize("which", PROGRAMS)
async def test_it_works_where_folders_cannot_be_opened_as_such(repo: Path, which: str) -> None:
    write_tree(repo, {"a": {"b": "needle"}})
    with Confinement([repo], is_strict=False) as confinement:
        output = await found(search_tool(confinement, program=PROGRAMS[which]), query="needle")
    assert (paths(output), output.engine) == (["a/b"], which)


@pytest.mark.requirement("HARD-57")
async def test_an_expression_that_takes_for_ever_is_stopped_in_time(
    repo: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "DEADLINE_SECONDS", 3.0)
    write_tree(repo, {"a": "aaaa\n", "b": "a" * 60 + "!\n", "c": "aaaa\n"})
    before, ticks = children(), 0
    outputs: list[SearchOutput] = []

    async with anyio.create_task_group() as tasks:

        async def search() -> None:
            outputs.append(await found(search_tool(confinement, program=None), query="^(a+)+$"))
            tasks.cancel_scope.cancel()

        tasks.start_soon(search)
        while not tasks.cancel_scope.cancel_called:
            await anyio.sleep(0.02)
            ticks += 1
    assert places(outputs[0]) == [("a", 1)]
    assert outputs[0].truncated
    # The event loop went on meanwhile: it would have had no turn at all.
    assert ticks > 5
    assert children() == before
