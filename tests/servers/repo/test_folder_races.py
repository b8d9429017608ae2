"""Reading while somebody swaps what is read for links that lead out."""

import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from fairlead.errors import ToolFailed
from fairlead.servers.repo.folders import Confinement

LEAST_SECONDS, MOST_SECONDS = 1.0, 20.0
HERE, EXCHANGE = -100, 2
SYSTEM = ctypes.CDLL(None)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    for place in ("repo", "outside"):
        folder = tmp_path / place / "folder" / "inner"
        folder.mkdir(parents=True)
        (folder / "file").write_text(place)
        (folder / f"in_{place}").touch()
    return tmp_path / "repo"


def exchange(one: Path, other: Path) -> None:
    """Give two paths each other's name, in one step where the system can: that is the hardest to notice."""
    if (
        not hasattr(SYSTEM, "renameat2")
        or SYSTEM.renameat2(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) != 0
    ):
        between = one.with_name("between")
        one.rename(between)
        other.rename(one)
        between.rename(other)


@contextmanager
def swapping(path: Path, other: Path) -> Generator[None]:
    """Exchange two paths in another thread, as often as that goes."""
    done = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            exchange(path, other)
            swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(MOST_SECONDS)
        assert not thread.is_alive()
        assert swaps


def outcomes(read: Callable[[], str]) -> Counter[str]:
    """What reading gave, over and over for a second, or longer until it was both allowed and refused."""
    seen: Counter[str] = Counter()
    started = time.monotonic()
    while (passed := time.monotonic() - started) < MOST_SECONDS:
        try:
            seen[read()] += 1
        except ToolFailed:
            seen["refused"] += 1
        if passed > LEAST_SECONDS and seen["repo"] and seen["refused"]:
            break
    return seen


def read_file(confinement: Confinement, path: str) -> str:
    with confinement.file(path) as file:
        return os.read(file.fd, 100).decode()


def list_folder(confinement: Confinement, path: str) -> str:
    with confinement.folder(path) as folder, folder.scan() as entries:
        return next(entry.name for entry in entries if entry.name.startswith("in_")).removeprefix("in_")


@pytest.mark.requirement("HARD-55")
@pytest.mark.parametrize("swapped", ["folder", "folder/inner", "folder/inner/file"])
def test_no_swap_of_a_name_for_a_link_ever_leads_out(repo: Path, swapped: str) -> None:
    (repo / "link").symlink_to(repo.parent / "outside" / swapped)
    with Confinement([repo]) as confinement, swapping(repo / swapped, repo / "link"):
        seen = outcomes(lambda: read_file(confinement, "folder/inner/file"))
    assert set(seen) == {"repo", "refused"}


@pytest.mark.requirement("HARD-55")
def test_no_listing_ever_shows_what_is_outside(repo: Path) -> None:
    (repo / "link").symlink_to(repo.parent / "outside" / "folder")
    with Confinement([repo]) as confinement, swapping(repo / "folder", repo / "link"):
        seen = outcomes(lambda: list_folder(confinement, "folder/inner"))
    assert set(seen) == {"repo", "refused"}


@pytest.mark.requirement("HARD-55")
async def test_no_swap_of_a_file_for_a_pipe_ever_hangs(repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    with Confinement([repo]) as confinement, swapping(repo / "folder" / "inner" / "file", repo / "pipe"):
        read = partial(read_file, confinement, "folder/inner/file")
        with anyio.fail_after(2 * MOST_SECONDS):
            seen = await to_thread.run_sync(outcomes, read, abandon_on_cancel=True)
    assert set(seen) == {"repo", "refused"}
