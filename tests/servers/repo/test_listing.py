"""Listing folders, as a model asks for it."""

import os
import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool, Reply
from fairlead.servers.repo import files
from fairlead.servers.repo.files import ListDirOutput, file_tools
from fairlead.servers.repo.folders import Confinement
from tests.servers.calling import call, texts

List = Callable[..., Awaitable[Reply[ListDirOutput]]]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    return repo


@pytest.fixture(params=[True, False], ids=["strict", "checked"])
def tools(repo: Path, request: pytest.FixtureRequest) -> Generator[tuple[AnyTool, ...]]:
    with Confinement([repo], is_strict=request.param) as confinement:
        yield file_tools(confinement)


@pytest.fixture
def list_dir(tools: tuple[AnyTool, ...]) -> List:
    async def list_dir(**arguments: Any) -> Reply[ListDirOutput]:
        return await call(tools[1], arguments)

    return list_dir


def shown(reply: Reply[ListDirOutput]) -> list[str]:
    return [entry.name for entry in reply.output.entries]


async def test_a_folder_is_listed_in_order_with_sizes(repo: Path, list_dir: List) -> None:
    (repo / "src").mkdir()
    (repo / "zoo.txt").write_text("12345")
    (repo / "a.txt").touch()
    (repo / "link").symlink_to("a.txt")
    os.mkfifo(repo / "pipe")
    reply = await list_dir()
    dumped = reply.output.model_dump(by_alias=True, exclude_none=True)
    assert dumped == {
        "path": ".",
        "entries": [
            {"name": "a.txt", "type": "file", "sizeBytes": 0},
            {"name": "link", "type": "link"},
            {"name": "pipe", "type": "other"},
            {"name": "src", "type": "dir"},
            {"name": "zoo.txt", "type": "file", "sizeBytes": 5},
        ],
        "truncated": False,
    }
    assert texts(reply) == ["a.txt  0\nlink  (link)\npipe  (neither file nor folder)\nsrc/\nzoo.txt  5"]


async def test_an_empty_folder_says_so(repo: Path, list_dir: List) -> None:
    (repo / "src").mkdir()
    reply = await list_dir(path="src/")
    assert (reply.output.path, reply.output.entries) == ("src", [])
    assert texts(reply) == ["(nothing is in here)"]


@pytest.mark.requirement("HARD-56")
async def test_odd_names_are_listed_escaped(repo: Path, list_dir: List) -> None:
    folder = repo / os.fsdecode(b"odd\xfe")
    folder.mkdir()
    for name in (b"bad\xff", b"two\nlines", "\u202eevil".encode(), b"back\\slash"):
        (folder / os.fsdecode(name)).touch()
    reply = await list_dir(recursive=True)
    expected = [r"odd\xfe", r"odd\xfe/back\\slash", r"odd\xfe/bad\xff", r"odd\xfe/two\x0alines"]
    assert sorted(shown(reply)) == sorted([*expected, r"odd\xfe/\u202eevil"])
    reply.output.model_dump_json().encode()
    assert len(texts(reply)[0].splitlines()) == 5


async def test_of_a_large_folder_the_first_names_are_listed(repo: Path, list_dir: List) -> None:
    for number in range(50):
        (repo / f"{number:02}").touch()
    reply = await list_dir(maxEntries=10)
    assert shown(reply) == [f"{number:02}" for number in range(10)]
    assert reply.output.truncated
    assert texts(reply)[0].endswith("(this is not all: ask for more entries, or for a folder below)")
    assert not (await list_dir(maxEntries=50)).output.truncated


async def test_a_folder_without_end_is_not_read_to_the_end(
    repo: Path, list_dir: List, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_NAMES_LOOKED_AT", 20)
    for number in range(50):
        (repo / f"{number:02}").touch()
    reply = await list_dir(maxEntries=1e9)
    assert (len(reply.output.entries), reply.output.truncated) == (20, True)


@pytest.fixture
def tree(repo: Path) -> Path:
    for path in ("b/two/deep/er.txt", "b/one.txt", "a.txt", "b.txt", ".git/config", "c/.git/HEAD"):
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).touch()
    (repo / "b" / "loop").symlink_to("..")
    return repo


@pytest.mark.requirement("HARD-55")
async def test_a_link_is_listed_but_not_followed(repo: Path, list_dir: List) -> None:
    (repo.parent / "secret").write_text("secret")
    (repo / "link").symlink_to(repo.parent)
    assert shown(await list_dir(recursive=True)) == ["link"]


async def test_each_folder_of_a_tree_is_followed_by_what_is_in_it(tree: Path, list_dir: List) -> None:
    reply = await list_dir(recursive=True)
    assert shown(reply) == [
        ".git",
        "a.txt",
        "b",
        "b/loop",
        "b/one.txt",
        "b/two",
        "b/two/deep",
        "b/two/deep/er.txt",
        "b.txt",
        "c",
        "c/.git",
    ]
    assert not reply.output.truncated
    assert shown(await list_dir(path="b", recursive=True))[-1] == "two/deep/er.txt"


async def test_a_tree_is_listed_as_deep_as_asked_for(tree: Path, list_dir: List) -> None:
    assert shown(await list_dir(path="b")) == ["loop", "one.txt", "two"]
    for arguments in ({"recursive": True, "depth": 2}, {"depth": 2}):
        assert shown(await list_dir(path="b", **arguments)) == ["loop", "one.txt", "two", "two/deep"]


async def test_where_a_tree_does_not_fit_its_upper_levels_are_listed(tree: Path, list_dir: List) -> None:
    reply = await list_dir(recursive=True, maxEntries=7)
    assert shown(reply) == [".git", "a.txt", "b", "b/loop", "b/one.txt", "b.txt", "c"]
    assert reply.output.truncated


async def test_a_folder_that_goes_away_does_not_hide_the_others(
    tree: Path, list_dir: List, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removing(name: str) -> bool:
        if name == "two":
            (tree / "b" / "two").rename(tree.parent / "gone")
        return name == ".git"

    monkeypatch.setattr(files, "is_private", removing)
    reply = await list_dir(recursive=True)
    assert "c/.git" in shown(reply)
    assert "b/two/deep" not in shown(reply)
    assert reply.output.truncated


async def test_a_folder_can_be_listed_while_it_changes(repo: Path, list_dir: List) -> None:
    for number in range(200):
        (repo / f"{number:03}").touch()
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for number in range(0, 200, 2):
                (repo / f"{number:03}").unlink()
                (repo / f"{number:03}").touch()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            names = set(shown(await list_dir()))
            assert names >= {f"{number:03}" for number in range(1, 200, 2)}
    finally:
        done.set()
        thread.join(30)
    assert not thread.is_alive()


async def test_a_file_or_a_missing_folder_cannot_be_listed(tree: Path, list_dir: List) -> None:
    with pytest.raises(ToolFailed, match=r"`a\.txt` is a file, not a folder"):
        await list_dir(path="a.txt")
    with pytest.raises(ToolFailed, match="there is no `b/twoo`") as caught:
        await list_dir(path="b/twoo")
    assert caught.value.hint == "did you mean `b/two`?"


async def test_with_several_roots_the_top_is_the_list_of_them(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "another"
    other.mkdir()
    (other / "x.txt").touch()
    with Confinement([tree, other]) as confinement:
        read, list_dir = file_tools(confinement)
        assert "one of the folders `repo`, `another`" in list_dir.description
        top = await call(list_dir, {})
        assert shown(top) == ["another", "repo"]
        assert texts(top) == ["another/\nrepo/"]
        assert shown(await call(list_dir, {"depth": 2}))[:3] == ["another", "another/x.txt", "repo"]
        inner = await call(list_dir, {"path": "another"})
        assert (inner.output.path, shown(inner)) == ("another", ["x.txt"])
        assert (await call(read, {"path": "another/x.txt"})).output.path == "another/x.txt"
