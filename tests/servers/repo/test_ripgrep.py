"""The search tool, with ripgrep and without."""

import json
import os
import shutil
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.repo.ripgrep import SearchOutput, search_tool
from fairlead.testing import Link, write_tree
from tests.servers.calling import call, texts
from tests.servers.searching import PROGRAMS, found, paths, places, program

CASES = json.loads(Path(__file__).parents[2].joinpath("data", "ripgrep_argv_cases.json").read_text())

Search = Callable[..., Awaitable[SearchOutput]]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "repo", {})


@pytest.fixture
def confinement(repo: Path) -> Generator[Confinement]:
    with Confinement([repo]) as confinement:
        yield confinement


@pytest.fixture(params=PROGRAMS)
def tool(confinement: Confinement, request: pytest.FixtureRequest) -> AnyTool:
    if request.param == "ripgrep" and not shutil.which("rg"):
        pytest.skip("there is no ripgrep here")
    return search_tool(confinement, program=PROGRAMS[request.param])


@pytest.fixture
def search(tool: AnyTool) -> Search:
    def find(query: str, **rest: Any) -> Awaitable[SearchOutput]:
        return found(tool, query=query, **rest)

    return find


# ── what it finds ──


async def test_matches_say_where_they_are_and_what_they_say(repo: Path, tool: AnyTool) -> None:
    write_tree(repo, {"src": {"main.py": "import os\n\nprint('Hello')\n"}, "README.md": "# hello\n"})
    reply = await call(tool, {"query": "hello"})
    assert places(reply.output) == [("README.md", 1), ("src/main.py", 3)]
    assert [match.line_text for match in reply.output.matches] == ["# hello", "print('Hello')"]
    assert not reply.output.truncated
    assert texts(reply) == ["README.md:1: # hello\nsrc/main.py:3: print('Hello')"]


async def test_nothing_found_is_an_answer(tool: AnyTool) -> None:
    reply = await call(tool, {"query": "hello"})
    assert reply.output.matches == []
    assert texts(reply) == ["no matches"]


async def test_the_answer_says_who_searched(confinement: Confinement) -> None:
    assert (await found(search_tool(confinement), query="a")).engine == "ripgrep"
    assert (await found(search_tool(confinement, program=None), query="a")).engine == "python"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"query": "foo"}, [1, 2, 3]),
        ({"query": "Foo"}, [2]),
        ({"query": r"\Soo"}, [1, 2, 3]),
        ({"query": r"\Soo", "fixed": True}, []),
        ({"query": "foo", "case": "sensitive"}, [1]),
        ({"query": "FOO", "case": "insensitive"}, [1, 2, 3]),
        ({"query": "(?i)FoO", "case": "sensitive"}, [1, 2, 3]),
        ({"query": "a.b"}, [4, 5]),
        ({"query": "a.b", "fixed": True}, [4]),
    ],
)
async def test_case_counts_where_it_is_meant_to(
    repo: Path, tool: AnyTool, arguments: dict[str, Any], lines: list[int]
) -> None:
    write_tree(repo, {"a": "foo\nFoo\nFOO\na.b\naxb\n"})
    output = await found(tool, **arguments)
    assert [match.line_number for match in output.matches] == lines


async def test_lines_around_a_match_are_given_where_they_are_asked_for(repo: Path, tool: AnyTool) -> None:
    write_tree(repo, {"a": "1\n2\nneedle\n4\n5\n"})
    assert (await found(tool, query="needle")).matches[0].before is None
    reply = await call(tool, {"query": "needle", "context": 1})
    (match,) = reply.output.matches
    assert (match.before, match.after) == (["2"], ["4"])
    assert texts(reply) == ["a-2- 2\na:3: needle\na-4- 4"]


async def test_there_is_a_limit_and_the_answer_says_if_it_was_met(repo: Path, tool: AnyTool) -> None:
    write_tree(repo, {"a": "needle\n" * 60})
    default = await call(tool, {"query": "needle"})
    assert len(default.output.matches) == 50
    assert default.output.truncated
    assert "there may be more" in texts(default)[0]
    exact = await found(tool, query="needle", maxMatches=60)
    assert len(exact.matches) == 60
    assert not exact.truncated
    assert not (await found(tool, query="needle", maxMatches=1_000_000)).truncated


async def test_odd_names_and_odd_lines_are_made_fit_to_be_shown(repo: Path, search: Search) -> None:
    (repo / os.fsdecode(b"bad\xff")).write_bytes(b"needle \xff\x1b[31m\r\n")
    (repo / "new\nline").write_text("needle" + "x" * 5_000)
    output = await search("needle")
    assert paths(output) == [r"bad\xff", r"new\x0aline"]
    assert output.matches[0].line_text == "needle \ufffd\ufffd[31m"
    assert output.matches[1].line_text == "needle" + "x" * 494 + "…"


async def test_only_text_files_inside_the_project_are_searched(repo: Path, search: Search) -> None:
    write_tree(repo.parent / "outside", {"secret": "needle"})
    write_tree(
        repo,
        {
            "file": "needle",
            "binary": b"needle\n\0",
            "to-file": Link("file"),
            "to-outside": Link("../outside"),
            ".hidden": "needle",
            ".gitignore": "ignored\n!.git\n",
            "ignored": "needle",
            ".git": {"config": "needle"},
            "sub": {".GIT": {"config": "needle"}},
        },
    )
    os.mkfifo(repo / "pipe")
    assert paths(await search("needle")) == ["file"]
    assert paths(await search("needle", globs=["**", ".*"])) == [".hidden", "file"]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (["*.py"], ["src/main.py"]),
        (["src/**"], ["src/main.py", "src/notes.md"]),
        (["src"], ["src/main.py", "src/notes.md"]),
        (["!src/**"], ["README.md"]),
        (["*.md", "!README.*"], ["src/notes.md"]),
        (["*.{md,py}", "!/src"], ["README.md"]),
        (["**"], ["README.md", "src/main.py", "src/notes.md"]),
        (["build.log", "keep.log"], []),
        ([".github/**"], [".github/ci.yml"]),
        ([".env"], []),
        (["-x"], []),
        (["--pre=./evil.sh"], []),
    ],
)
async def test_globs_only_ever_narrow_a_search(
    repo: Path, search: Search, globs: list[str], expected: list[str]
) -> None:
    write_tree(
        repo,
        {
            "README.md": "needle",
            "src": {"main.py": "needle", "notes.md": "needle", "node_modules": {"a.py": "needle"}},
            ".gitignore": "node_modules/\n.env\n*.log\n",
            ".github": {"ci.yml": "needle"},
            ".env": "needle",
            "build.log": "needle",
        },
    )
    assert paths(await search("needle", globs=globs)) == expected


async def test_an_ignore_file_brings_nothing_back_that_globs_leave_out(repo: Path, search: Search) -> None:
    write_tree(
        repo,
        {".gitignore": "!a.log\n!sub/\n", "a.log": "needle", "a.py": "needle", "sub": {"a.py": "needle"}},
    )
    assert paths(await search("needle", globs=["*.py", "!sub"])) == ["a.py"]


async def test_several_folders_are_searched_one_after_another(tmp_path: Path) -> None:
    roots = [
        write_tree(tmp_path / name, {"src": {"a.py": "needle\n"}, "b.md": "needle\n"})
        for name in ("two", "one")
    ]
    with Confinement(roots) as confinement:
        for program in PROGRAMS.values():
            tool = search_tool(confinement, program=program)
            everything = ["two/b.md", "two/src/a.py", "one/b.md", "one/src/a.py"]
            assert paths(await found(tool, query="needle")) == everything
            assert paths(await found(tool, query="needle", globs=["one/src/**"])) == ["one/src/a.py"]
            assert paths(await found(tool, query="needle", globs=["one"])) == everything[2:]
            assert paths(await found(tool, query="needle", globs=["one/*.py"])) == []
            assert paths(await found(tool, query="needle", globs=["!two/", "*.py"])) == ["one/src/a.py"]
            some = await found(tool, query="needle", maxMatches=3)
            assert paths(some) == everything[:3]
            assert some.truncated


# ── a query is a pattern ──


@pytest.fixture
def evil_ran(repo: Path) -> Callable[[], bool]:
    """Whether a program in the project was run."""
    left_behind = repo / "it-ran"
    program(repo, f": > {left_behind}\ncat", name="evil.sh")
    return left_behind.exists


@pytest.mark.requirement("HARD-57")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["query"])
async def test_a_query_is_a_pattern_never_an_option(
    repo: Path, tool: AnyTool, evil_ran: Callable[[], bool], case: dict[str, str]
) -> None:
    query, expected = case["query"], case["expect"]
    write_tree(repo, {"text": f"before\n{query}\nroot:x:0:0:\n"})
    if expected.startswith("validation error"):
        with pytest.raises(ValidationError):
            await found(tool, query=query)
    elif "invalid regex" in expected:
        with pytest.raises(ToolFailed, match="invalid regular expression: unclosed group"):
            await found(tool, query=query)
    else:
        assert "pattern" in expected
        assert ("text", 2) in places(await found(tool, query=query))
    assert not evil_ran()


@pytest.mark.requirement("HARD-57")
@pytest.mark.parametrize(
    "glob", ["--pre=./evil.sh", "-f/etc/passwd", "\n--pre=./evil.sh", "x\0--pre=./evil.sh"]
)
async def test_a_glob_is_a_glob_never_an_option(
    repo: Path, search: Search, evil_ran: Callable[[], bool], glob: str
) -> None:
    write_tree(repo, {"text": "needle"})
    if glob.isprintable():
        assert (await search("needle", globs=[glob])).matches == []
    else:
        with pytest.raises(ToolFailed, match="invalid glob"):
            await search("needle", globs=[glob])
    assert not evil_ran()


@pytest.mark.requirement("HARD-57")
async def test_a_configuration_of_ripgrep_is_not_read(
    repo: Path, search: Search, evil_ran: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(repo, {"config": "--pre=./evil.sh\n", "text": "needle"})
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(repo / "config"))
    assert paths(await search("needle")) == ["text"]
    assert not evil_ran()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("(", "invalid regular expression: unclosed group"),
        ("[", "invalid regular expression: unclosed character class"),
        ("a(?=b)", "invalid regular expression: look-around"),
        (r"(a)\1", "invalid regular expression: backreferences are not supported"),
        ("a{", "invalid regular expression: "),
        (r"a\nb", "invalid regular expression: "),
        ("a\nb", "within one line"),
        ("a\0b", "within one line"),
    ],
)
async def test_what_is_no_pattern_is_refused_with_the_reason(search: Search, query: str, reason: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await search(query)
    assert str(caught.value).startswith(reason) or reason in str(caught.value)
    assert caught.value.hint
    assert str(caught.value).isprintable()


async def test_what_is_special_can_be_searched_for_as_it_is(repo: Path, search: Search) -> None:
    write_tree(repo, {"a": "f(x\n"})
    assert places(await search("f(x", fixed=True)) == [("a", 1)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "a" * 1001},
        {"query": "\ud800"},
        {"query": "a", "maxMatches": 0},
        {"query": "a", "context": 11},
        {"query": "a", "context": -1},
        {"query": "a", "case": "upper"},
        {"query": "a", "globs": [""]},
        {"query": "a", "globs": ["a"] * 33},
        {"query": "a", "path": "."},
    ],
    ids=repr,
)
async def test_arguments_that_do_not_fit_are_refused(tool: AnyTool, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        await call(tool, arguments)


def test_the_tool_says_what_it_takes_and_that_it_only_reads(confinement: Confinement) -> None:
    tool = search_tool(confinement)
    assert tool.name == "repo.ripgrep"
    assert tool.annotations
    assert tool.annotations.read_only_hint
    schema = tool.input.model_json_schema(by_alias=True)
    assert schema["required"] == ["query"]
    assert set(schema["properties"]) == {"query", "globs", "maxMatches", "case", "fixed", "context"}
    assert all("description" in field for field in schema["properties"].values())
