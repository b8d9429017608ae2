"""ripgrep in repositories made to harm: it sees the folder and nothing else, in little memory and time."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from fairlead.servers.repo import engines
from fairlead.servers.repo.files import file_tools
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.repo.landlock import ReadAccess, landlock_version, start_confined
from fairlead.servers.repo.ripgrep import SearchOutput, search_tool
from fairlead.servers.repo.scan import ScanQuery
from fairlead.testing import write_tree
from tests.servers.calling import call
from tests.servers.repo.test_folder_races import exchange
from tests.servers.searching import found, paths

SECONDS = 60
MEGABYTES = 600

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Landlock and bubblewrap are Linux"),
    pytest.mark.requirement("HARD-70"),
]

with_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    write_tree(tmp_path / "outside", {"inner": {"secret.txt": "needle SECRET\n"}, "ignore": "a.txt\n"})
    return write_tree(tmp_path / "repo", {"a.txt": "needle\n", "sub": {"inner": {"b.txt": "needle\n"}}})


async def search(repo: Path, **arguments: object) -> SearchOutput:
    with Confinement([repo]) as confinement, anyio.fail_after(SECONDS):
        return await found(search_tool(confinement), query="needle", **arguments)


def largest_child() -> int:
    """The most memory that any child of this process ever had, in KiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def assert_little_memory(before: int) -> None:
    """Earlier children may have had more; one that had not since is what was searched with.

    A child has the memory of this process until it executes something else, and that is not counted either.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert largest_child() <= max(before, own, MEGABYTES * 1024)


EVERYTHING = ["a.txt", "sub/inner/b.txt"]
IGNORES = (".gitignore", ".ignore", ".rgignore", "sub/.gitignore", "sub/inner/.ignore")


@pytest.mark.parametrize("ignore", IGNORES)
@pytest.mark.parametrize(
    "target", ["/dev/zero", "/dev/stdin", "/proc/self/mem", "../outside/ignore", "/dev/random"]
)
async def test_an_ignore_file_that_leads_out_is_not_read(repo: Path, ignore: str, target: str) -> None:
    before = largest_child()
    (repo / ignore).symlink_to(target)
    assert paths(await search(repo)) == EVERYTHING
    assert_little_memory(before)


@pytest.mark.parametrize("ignore", IGNORES)
async def test_a_pipe_in_place_of_an_ignore_file_holds_nothing_up(repo: Path, ignore: str) -> None:
    os.mkfifo(repo / ignore)
    output = await search(repo)
    assert paths(output) == EVERYTHING
    assert output.engine == "python"
    assert output.ms < 15_000


async def test_pipes_and_sockets_by_the_hundred_are_passed_by(repo: Path) -> None:
    for number in range(500):
        os.mkfifo(repo / f"pipe{number}.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(repo)  # the name of a socket is short
        try:
            listening.bind("socket.txt")
        finally:
            os.chdir(here)
        assert paths(await search(repo)) == EVERYTHING


@pytest.mark.parametrize("ignore", [".gitignore", "sub/.ignore"])
@pytest.mark.parametrize("shape", ["sparse", "globs"])
async def test_an_ignore_file_without_end_costs_a_bounded_amount(repo: Path, ignore: str, shape: str) -> None:
    before = largest_child()
    with (repo / ignore).open("wb") as file:
        if shape == "sparse":
            file.truncate(100 << 30)
        else:
            file.write(b"\n".join(b"*.x%d{a,b,c,d}" % number for number in range(300_000)))
    assert paths(await search(repo)) == EVERYTHING
    assert_little_memory(before)


async def test_what_git_would_read_elsewhere_has_no_say(repo: Path) -> None:
    outside = repo.parent / "outside"
    (repo / ".git").write_text(f"gitdir: {outside}\n")
    (outside / "info").mkdir()
    (outside / "info" / "exclude").write_text("a.txt\n")
    (outside / "config").write_text(f"[core]\n\texcludesFile = {outside}/ignore\n")
    (repo.parent / ".gitignore").write_text("*.txt\n")
    (repo / "sub" / ".git").symlink_to(outside)
    assert paths(await search(repo)) == EVERYTHING


async def test_links_in_circles_and_links_out_are_not_followed(repo: Path) -> None:
    (repo / "loop").symlink_to(".")
    (repo / "sub" / "up").symlink_to("..")
    (repo / "away").symlink_to(repo.parent / "outside")
    (repo / "secret.txt").symlink_to(repo.parent / "outside" / "inner" / "secret.txt")
    assert paths(await search(repo)) == EVERYTHING


async def test_a_sparse_file_of_a_hundred_gigabytes_is_passed_by_and_read_in_part(repo: Path) -> None:
    with (repo / "huge.txt").open("wb") as file:
        file.truncate(100 << 30)
    assert paths(await search(repo)) == EVERYTHING
    with Confinement([repo]) as confinement:
        output = (await call(file_tools(confinement)[0], {"path": "huge.txt"})).output
    assert output.truncated
    assert output.total_bytes == 100 << 30


# ── races ──


@contextmanager
def swapped(one: Path, other: Path) -> Generator[None]:
    """Exchange two paths over and over."""
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            exchange(one, other)

    threads = [threading.Thread(target=swap) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(SECONDS)


@with_landlock
@pytest.mark.parametrize("place", ["sub", "sub/inner"])
def test_no_race_leads_a_confined_ripgrep_out_of_the_folder(repo: Path, place: str) -> None:
    target = repo.parent / "outside"
    (repo / "link").symlink_to(target if place == "sub" else target / "inner")
    for number in range(40):
        write_tree(repo / "many" / f"d{number}", {"file.txt": "needle\n"})
    inside = 0
    with (
        Confinement([repo]) as confinement,
        confinement.folder(".") as folder,
        swapped(repo / place, repo / "link"),
    ):
        needed = engines.find_needed_files(_ripgrep())
        descriptors = [os.open(path, os.O_PATH) for path in needed]
        assert folder.fd is not None
        reach = ReadAccess(folders=[folder.fd], files=[], programs=descriptors)
        command = [_ripgrep(), "--no-config", "--no-mmap", "needle", "."]
        try:
            for _ in range(300):
                with open(os.devnull, "rb") as nothing:
                    process = start_confined(
                        lambda nothing=nothing: subprocess.Popen(
                            command, cwd=repo, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                        ),
                        reach,
                    )
                said, _ = process.communicate(timeout=SECONDS)
                assert b"SECRET" not in said
                inside += b"needle" in said
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    assert inside == 300


def _ripgrep() -> str:
    return shutil.which("rg") or pytest.skip("there is no ripgrep here")


async def test_no_race_has_the_tool_show_what_is_outside(repo: Path) -> None:
    (repo / "link").symlink_to(repo.parent / "outside")
    with Confinement([repo]) as confinement, swapped(repo / "sub", repo / "link"):
        tool = search_tool(confinement)
        with anyio.fail_after(2 * SECONDS):
            for _ in range(60):
                output = await found(tool, query="needle|root|SECRET")
                assert not [match for match in output.matches if "SECRET" in match.line_text]


# ── what confines ──


@with_landlock
def test_a_confined_process_reads_beneath_its_folders_only(repo: Path) -> None:
    cat = "/bin/cat"
    descriptors = [os.open(path, os.O_PATH) for path in engines.find_needed_files(cat)]
    folder = os.open(repo, os.O_PATH)

    def run(path: Path) -> subprocess.CompletedProcess[bytes]:
        with open(os.devnull, "rb") as nothing:
            return start_confined(
                lambda: subprocess.run([cat, path], stdin=nothing, capture_output=True, check=False),
                ReadAccess(folders=[folder], files=[], programs=descriptors),
            )

    assert run(repo / "a.txt").stdout == b"needle\n"
    for outside in (repo.parent / "outside" / "ignore", Path("/etc/passwd"), Path("/proc/self/environ")):
        assert run(outside).returncode != 0
    (repo / "link").symlink_to("/etc/passwd")
    assert run(repo / "link").returncode != 0
    # The rest of this process is as free as before.
    assert (repo.parent / "outside" / "ignore").read_text() == "a.txt\n"
    for descriptor in (*descriptors, folder):
        os.close(descriptor)


async def test_without_landlock_bubblewrap_confines(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if engines._bubblewrap(repo) is None:  # pyright: ignore[reportPrivateUsage]
        pytest.skip("bubblewrap cannot be used here")
    monkeypatch.setattr(engines, "landlock_version", lambda: 0)
    (repo / "sub" / ".gitignore").symlink_to("/dev/zero")
    output = await search(repo, globs=["*.txt"])
    assert paths(output) == EVERYTHING
    assert output.engine == "ripgrep"
    (repo / "sub" / ".gitignore").unlink()
    os.mkfifo(repo / "sub" / ".gitignore")
    assert (await search(repo)).engine == "python"


def test_limits_hold_before_bubblewrap_starts_the_search(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if engines._bubblewrap(repo) is None:  # pyright: ignore[reportPrivateUsage]
        pytest.skip("bubblewrap cannot be used here")
    monkeypatch.setattr(engines, "landlock_version", lambda: 0)
    # In place of ripgrep, a shell in the same box says which limits it was started with.

    def shell_command(*_: object, **__: object) -> list[str]:
        return [SHELL, "-c", "ulimit -v; ulimit -t; ulimit -c; ulimit -f"]

    monkeypatch.setattr(engines, "ripgrep_command", shell_command)
    search = ScanQuery(
        query="x", is_fixed=True, is_sensitive=True, context=0, limit=1, narrowing=(), with_hidden=False
    )
    with (
        Confinement([repo]) as confinement,
        confinement.folder(".") as folder,
        engines._confine_ripgrep(SHELL, folder, None) as confine,  # pyright: ignore[reportPrivateUsage]
    ):
        assert confine is not None
        command = confine(search, "none").command
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    limits = [engines.MAX_MEMORY // 1024, engines.MAX_CPU_SECONDS, 0, 0]
    assert said.stdout.decode().split() == [*map(str, limits)], said.stderr


SHELL = os.path.realpath("/bin/sh")


async def test_without_either_python_searches(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "landlock_version", lambda: 0)

    def none_works(root: Path) -> None:
        assert root.is_dir()

    monkeypatch.setattr(engines, "_bubblewrap", none_works)
    (repo / ".gitignore").symlink_to("/dev/zero")
    output = await search(repo)
    assert paths(output) == EVERYTHING
    assert output.engine == "python"
