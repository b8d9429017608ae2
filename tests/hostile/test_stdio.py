"""Hostile servers over stdio: each mode costs its caller an error at most, and other servers nothing."""

import sys
from pathlib import Path

import pytest

from tests.hostile import stdio_program
from tests.hostile.exam import SURFACES, examine, is_alive, pids_in


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("mode", stdio_program.MODES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_hostile_server_blocks_no_other(surface: str, mode: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    arguments = ["-I", "-S", stdio_program.__file__, mode, str(pids)]

    await examine(SURFACES[surface], tmp_path, {"command": sys.executable, "args": arguments})

    assert (tmp_path / "pids.attacked").exists()
    assert not [pid for pid in pids_in(pids) if is_alive(pid)]
