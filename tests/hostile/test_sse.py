"""Hostile servers over HTTP+SSE, the transport of 2024-11-05: what holds over HTTP holds over it."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile import sse_program
from tests.hostile.exam import SURFACES, examine


@contextmanager
def hostile_server(mode: str, record: Path) -> Generator[str]:
    """Run the server in a process of its own; its URL."""
    argv = [sys.executable, "-I", "-S", sse_program.__file__, mode, str(record)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/sse"
        finally:
            process.kill()


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("mode", sse_program.MODES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_hostile_event_stream_blocks_no_other(surface: str, mode: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with hostile_server(mode, record) as url:
        await examine(SURFACES[surface], tmp_path, {"transport": "sse", "url": url})
    lines = [line.split() for line in record.read_text().splitlines()] if record.exists() else []
    step, _ = sse_program.MODES[mode]
    assert {at for at, _ in lines} == {step}, "it never came to its attack"
    assert any(int(sent) for _, sent in lines) == (mode not in sse_program.SILENT)
