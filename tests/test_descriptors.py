"""What programs that are started inherit."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from fairlead.descriptors import keep_descriptors_back

LIST = "for f in /proc/self/fd/*; do readlink $f; done; true"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_program_gets_no_descriptor_that_it_is_not_given(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.touch()
    with mine.open() as held:
        os.set_inheritable(held.fileno(), True)
        with keep_descriptors_back():
            done = await anyio.run_process(["/bin/sh", "-c", LIST])
        assert os.get_inheritable(held.fileno()), "it is as it was"
    assert b"/dev/null" in done.stdout or b"pipe" in done.stdout
    assert b"mine" not in done.stdout


def test_a_descriptor_is_inheritable_again_when_the_last_block_has_ended(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with (tmp_path / "mine").open() as held:
        os.set_inheritable(held.fileno(), True)
        first, second = keep_descriptors_back(), keep_descriptors_back()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not os.get_inheritable(held.fileno())
        second.__exit__(None, None, None)
        assert os.get_inheritable(held.fileno())


def test_another_file_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).touch()
    old = os.open(tmp_path / "old", os.O_RDONLY)
    os.set_inheritable(old, True)
    with keep_descriptors_back():
        os.close(old)
        new = os.open(tmp_path / "new", os.O_RDONLY)
    assert new == old
    assert not os.get_inheritable(new)
    os.close(new)
