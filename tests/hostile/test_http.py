"""Hostile servers over HTTP: each mode costs its caller an error at most, and other servers nothing."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile import http_program
from tests.hostile.exam import SURFACES, examine


@contextmanager
def hostile_server(mode: str) -> Generator[str]:
    """Run the server in a process of its own; its URL."""
    argv = [sys.executable, "-I", "-S", http_program.__file__, mode]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("mode", http_program.MODES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_hostile_server_holds_nobody_up(surface: str, mode: str, tmp_path: Path) -> None:
    with hostile_server(mode) as url:
        await examine(SURFACES[surface], tmp_path, {"url": url})
