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
def hostile_server(mode: str, record: Path) -> Generator[str]:
    """Run the server in a process of its own; its URL."""
    argv = [sys.executable, "-I", "-S", http_program.__file__, mode, str(record)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("mode", http_program.MODES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_hostile_server_blocks_no_other(surface: str, mode: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with hostile_server(mode, record) as url:
        await examine(SURFACES[surface], tmp_path, {"url": url})

    require_attack(mode, record)


def require_attack(mode: str, record: Path) -> None:
    """Fail if the mode never acted, or if it meant to send something and nothing was sent."""
    lines = [line.split() for line in record.read_text().splitlines()] if record.exists() else []
    step, _ = http_program.MODES[mode]
    assert {at for at, _ in lines} == {step}
    assert any(int(sent) for _, sent in lines) == (mode not in http_program.SILENT)
