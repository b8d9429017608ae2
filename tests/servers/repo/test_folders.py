"""What can be opened below a root, and what cannot."""

import json
import os
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from fairlead.errors import ToolFailed
from fairlead.servers.repo.folders import CAN_BE_STRICT, Confinement, escape_name, is_private, similar

CASES: list[dict[str, str]] = json.loads(
    Path(__file__).parents[2].joinpath("data", "path_cases.json").read_text()
)
TESTED_ELSEWHERE = {"swap race dir<->symlink 5 s", "hardlink", "maxBytes=-1 / 1e12"}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with everything in it that could lead out, and what it would lead to."""
    repo = tmp_path / "repo"
    for folder in ("a/b", ".git"):
        (repo / folder).mkdir(parents=True)
    (repo / "README.md").write_text("read me")
    (repo / "a" / "b" / "inner.txt").write_text("inner")
    (repo / ".git" / "config").write_text("url = https://user:token@host")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "passwd").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    evil = tmp_path / "repo-evil"
    evil.mkdir()
    (evil / "f").write_text("secret")
    (repo / "linkdir").symlink_to(outside)
    (repo / "dev_zero_link").symlink_to("/dev/zero")
    os.mkfifo(repo / "pipe")
    monkeypatch.chdir(repo)  # the whole path would be too long for a socket
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
    return repo


@pytest.fixture(params=[True, False], ids=["strict", "checked"])
def confinement(repo: Path, request: pytest.FixtureRequest) -> Generator[Confinement]:
    with Confinement([repo], is_strict=request.param) as confinement:
        yield confinement


def read(confinement: Confinement, path: str) -> str:
    with confinement.file(path) as file:
        return os.read(file.fd, 1000).decode()


def listed(confinement: Confinement, path: str) -> list[str]:
    with confinement.folder(path) as folder, folder.scan() as entries:
        return sorted(entry.name for entry in entries)


async def refused(work: Callable[[], object]) -> ToolFailed:
    """The error of something that is refused, and refused at once."""
    with anyio.fail_after(10), pytest.raises(ToolFailed) as caught:
        await to_thread.run_sync(work, abandon_on_cancel=True)
    return caught.value


# ── the cases written down for this project ──


@pytest.mark.requirement("HARD-55")
@pytest.mark.parametrize("case", [case for case in CASES if case["path"] not in TESTED_ELSEWHERE], ids=ascii)
async def test_a_path_is_opened_or_refused_as_written_down(
    confinement: Confinement, case: dict[str, str]
) -> None:
    if case["expect"] == "ok":
        assert read(confinement, case["path"]) == "read me"
    else:
        await refused(lambda: read(confinement, case["path"]))
        await refused(lambda: listed(confinement, case["path"]))


def test_every_case_is_tested_somewhere() -> None:
    assert {case["path"] for case in CASES} >= TESTED_ELSEWHERE


# ── refusals say why ──


@pytest.mark.requirement("HARD-55")
@pytest.mark.parametrize(
    ("path", "reason", "hint"),
    [
        ("../secret", "has `..` in it", "start at the folder"),
        ("a/../README.md", "has `..` in it", "use `README.md`"),
        ("/etc/passwd", "is an absolute path", "start at the folder"),
        ("C:/Windows", "is an absolute path", "start at the folder"),
        ("c:x", "is an absolute path", "start at the folder"),
        ("a\\b", "holds a character", "put `/` between names"),
        ("a\0b", "holds characters that no path has", None),
        ("a\ud800b", "holds characters that no path has", None),
        ("linkdir", "is a link", "points out of the folder"),
        ("linkdir/passwd", "`linkdir` is a link", "points out of the folder"),
        ("pipe", "is a pipe", None),
        ("sock", "is a socket", None),
        ("a", "is a folder, not a file", "list it"),
        ("", "is a folder, not a file", "list it"),
        ("README.md/x", "is a file, not a folder", "read it"),
        ("x" * 300, "too long", None),
        ("Readme.txt", "there is no `Readme.txt`", "did you mean `README.md`?"),
        ("a/b/iner.txt", "there is no `a/b/iner.txt`", "did you mean `a/b/inner.txt`?"),
        ("nothing/like/it", "there is no `nothing`", None),
    ],
    ids=ascii,
)
async def test_a_refusal_says_why_and_what_to_do(
    confinement: Confinement, path: str, reason: str, hint: str | None
) -> None:
    error = await refused(lambda: read(confinement, path))
    assert reason in str(error)
    assert (hint or "") in (error.hint or "")
    assert "secret" not in (error.hint or "")


async def test_an_absolute_path_inside_is_refused_with_the_relative_one(
    confinement: Confinement, repo: Path
) -> None:
    error = await refused(lambda: read(confinement, f"{repo}/a/b/inner.txt"))
    assert error.hint == "use `a/b/inner.txt`"


@pytest.mark.parametrize("target", ["b/inner.txt", "../a/b/inner.txt", "{repo}/a/b/inner.txt"])
async def test_a_link_that_stays_inside_is_refused_with_its_target(
    confinement: Confinement, repo: Path, target: str
) -> None:
    (repo / "a" / "link").symlink_to(target.format(repo=repo))
    error = await refused(lambda: read(confinement, "a/link"))
    assert str(error) == "`a/link` is a link, and links are not followed"
    assert error.hint == "it points to `a/b/inner.txt`: use that path"


@pytest.mark.requirement("HARD-55")
async def test_a_device_is_refused_without_being_opened() -> None:
    with Confinement([Path("/dev")]) as devices:
        assert "is a device" in str(await refused(lambda: read(devices, "zero")))


@pytest.mark.requirement("HARD-55")
async def test_a_writer_that_waits_for_a_reader_of_its_pipe_is_not_woken(
    confinement: Confinement, repo: Path
) -> None:
    await refused(lambda: read(confinement, "pipe"))
    await refused(lambda: listed(confinement, "pipe"))
    with pytest.raises(OSError, match="No such device"):
        os.open(repo / "pipe", os.O_WRONLY | os.O_NONBLOCK)


# ── what works ──


@pytest.mark.parametrize("path", ["a/b/inner.txt", "./a//b/./inner.txt"])
def test_a_path_may_be_written_in_more_than_one_way(confinement: Confinement, path: str) -> None:
    with confinement.file(path) as file:
        assert file.shown == "a/b/inner.txt"
        assert file.stat.st_size == 5


@pytest.mark.parametrize("path", ["", ".", "./"])
def test_the_root_has_a_path(confinement: Confinement, path: str) -> None:
    with confinement.folder(path) as folder:
        assert folder.shown == "."
        assert folder.root is confinement.roots[0]
    assert "README.md" in listed(confinement, path)


def test_the_root_can_be_listed_by_two_at_a_time(confinement: Confinement) -> None:
    with confinement.folder(".") as one, confinement.folder(".") as other, one.scan() as entries:
        next(entries)
        with other.scan() as others:
            assert len(list(others)) == len(list(entries)) + 1


@pytest.mark.parametrize("folder", [".git", ".GIT", ".git.", ".g\u200cit", "GIT~1", ".hg", ".jj", ".svn"])
async def test_what_version_control_keeps_is_listed_but_not_read(repo: Path, folder: str) -> None:
    (repo / folder / "refs").mkdir(parents=True, exist_ok=True)
    (repo / folder / "refs" / "file").write_text("secret")
    with Confinement([repo]) as confinement:
        assert "refs" in listed(confinement, folder)
        error = await refused(lambda: read(confinement, f"{folder}/refs/file"))
        assert "can keep credentials" in str(error)


def test_a_file_named_git_is_a_file(confinement: Confinement, repo: Path) -> None:
    (repo / "a" / ".git").write_text("gitdir: ../.git/modules/a")
    (repo / "a" / ".gitignore").write_text("*.pyc")
    assert read(confinement, "a/.git").startswith("gitdir")
    assert read(confinement, "a/.gitignore") == "*.pyc"


def test_a_hard_link_is_the_file(confinement: Confinement, repo: Path) -> None:
    os.link(repo / ".." / "secret", repo / "hardlink")
    assert read(confinement, "hardlink") == "secret"


def test_no_descriptor_is_left_open(repo: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with Confinement([repo, repo / "a"]) as confinement:
        for path in (
            "repo/a/b/inner.txt",
            "repo/nothing",
            "repo/a/nothing",
            "repo/pipe",
            "repo/linkdir/passwd",
        ):
            try:
                read(confinement, path)
            except ToolFailed:
                continue
    with pytest.raises(ToolFailed):
        Confinement([repo, repo / "nothing"])
    assert len(os.listdir("/dev/fd")) == before


# ── the checked way, for systems that know no better ──


def test_this_system_can_be_strict(repo: Path) -> None:
    with Confinement([repo]) as confinement:
        assert confinement.is_strict is CAN_BE_STRICT
    with Confinement([repo], is_strict=False) as confinement:
        assert not confinement.is_strict
        assert confinement.roots[0].fd is None


@pytest.mark.requirement("HARD-55")
async def test_checking_also_refuses_names_that_mean_more_on_other_systems(repo: Path) -> None:
    (repo / "file:stream").write_text("")
    with Confinement([repo], is_strict=False) as confinement:
        assert "holds a character" in str(await refused(lambda: read(confinement, "file:stream")))


@pytest.mark.requirement("HARD-55")
async def test_checking_notices_a_folder_that_turned_into_a_link(repo: Path) -> None:
    with Confinement([repo], is_strict=False) as confinement, confinement.folder("a") as folder:
        (repo / "a").rename(repo / "moved")
        (repo / "a").symlink_to(repo / ".." / "outside")
        with pytest.raises(ToolFailed, match="leads out"), folder.file("passwd"):
            pass


async def test_a_folder_that_is_gone_when_a_name_is_looked_up_says_what_is_missing(repo: Path) -> None:
    with Confinement([repo], is_strict=False) as confinement, confinement.folder("a/b") as folder:
        (repo / "a").rename(repo / "moved")
        with pytest.raises(ToolFailed, match=r"there is no `a/b/inner\.txt`"), folder.file("inner.txt"):
            pass


# ── roots ──


def test_with_several_roots_paths_begin_with_their_names(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "repo"
    other.mkdir(parents=True)
    (other / "README.md").write_text("the other")
    with Confinement([repo, other, repo]) as confinement:
        assert [root.name for root in confinement.roots] == ["repo", "repo-2"]
        assert read(confinement, "repo/README.md") == "read me"
        assert read(confinement, "repo-2/README.md") == "the other"
        with confinement.folder("repo-2") as folder:
            assert folder.shown == "repo-2"
        with confinement.file("repo/a/b/inner.txt") as file:
            assert file.shown == "repo/a/b/inner.txt"


@pytest.mark.requirement("HARD-55")
@pytest.mark.parametrize("path", ["README.md", "other/README.md", "repo/../outside/passwd", ".", "repo"])
async def test_with_several_roots_only_their_names_lead_anywhere(
    repo: Path, tmp_path: Path, path: str
) -> None:
    with Confinement([repo, tmp_path / "repo-evil"]) as confinement:
        error = await refused(lambda: read(confinement, path))
    assert error.hint in {
        "paths start with one of `repo`, `repo-evil`",
        "list it instead",
        "use `outside/passwd`",
    }


@pytest.mark.requirement("HARD-55")
def test_the_home_folder_and_all_above_it_are_no_roots(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(repo / "a"))
    for folder in (Path("/"), repo / "a", repo, repo / "a" / "b" / "..", tmp_path):
        with pytest.raises(ToolFailed, match="holds more than a project"):
            Confinement([folder])
    with Confinement([repo / "a" / "b"]) as confinement:
        assert read(confinement, "inner.txt") == "inner"


def test_a_user_without_a_home_can_have_roots_too(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with Confinement([repo]) as confinement:
        assert read(confinement, "README.md") == "read me"
    with pytest.raises(ToolFailed, match="holds more than a project"):
        Confinement([Path("/")])


def test_a_link_to_the_home_folder_is_no_root(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(repo / "a"))
    (repo / "a" / "b" / "home").symlink_to(repo / "a")
    with pytest.raises(ToolFailed, match="holds more than a project"):
        Confinement([repo / "a" / "b" / "home"])


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("nothing", "is not a folder"), ("README.md", "is not a folder"), (".git", "credentials")],
)
def test_what_cannot_be_a_root_says_why(repo: Path, folder: str, reason: str) -> None:
    with pytest.raises(ToolFailed, match=reason):
        Confinement([repo / folder])


def test_no_root_at_all_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="no folder to read"):
        Confinement([])


async def test_a_removed_root_is_told_apart_from_an_empty_one(repo: Path) -> None:
    with Confinement([repo / "a" / "b"]) as confinement:
        (repo / "a" / "b" / "inner.txt").unlink()
        assert listed(confinement, ".") == []
        (repo / "a" / "b").rmdir()
        assert "was removed" in str(await refused(lambda: listed(confinement, ".")))


async def test_nothing_is_read_once_it_is_closed(confinement: Confinement) -> None:
    confinement.close()
    assert "no longer read" in str(await refused(lambda: read(confinement, "README.md")))


# ── names ──


@pytest.mark.requirement("HARD-56")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name.txt", "plain name.txt"),
        ("日本語　é.txt", "日本語　é.txt"),
        (os.fsdecode(b"bad\xff"), r"bad\xff"),
        ("two\nlines\x1b[31m", r"two\x0alines\x1b[31m"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("back\\slash", r"back\\slash"),
    ],
    ids=ascii,
)
def test_a_name_is_shown_so_that_nothing_in_it_is_hidden(name: str, shown: str) -> None:
    assert escape_name(name) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("readme.md", ["README.md", "README.rst"]),
        ("mian.py", ["main.py"]),
        ("tests", ["test"]),
        ("x", []),
        ("", []),
        ("unlike", []),
    ],
)
def test_names_that_may_have_been_meant_are_found(name: str, expected: list[str]) -> None:
    assert similar(name, ["main.py", "README.md", "README.rst", "test", "docs", "a"]) == expected


def test_names_made_to_be_compared_slowly_are_not() -> None:
    names = ["ab" * 120 + str(number) for number in range(2000)]
    started = time.process_time()
    similar("ba" * 120, names)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", ["git", ".gitignore", ".github", ".git-hooks", "", "...", ".svnx"])
def test_other_names_are_not_private(name: str) -> None:
    assert not is_private(name)
