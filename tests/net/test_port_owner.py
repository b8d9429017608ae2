"""Who listens on a port: the message of a port that is taken names the process."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.errors import ListenFailed
from fairlead.net.listen import bind
from fairlead.net.port_owner import PortOwner, port_owner

SECONDS = 30
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 0), family=int(sys.argv[2])) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@contextmanager
def listening_program(host: str, family: socket.AddressFamily) -> Generator[tuple[int, int]]:
    """A program that listens; yields its process id and its port."""
    words = [sys.executable, "-c", LISTEN, host, str(int(family))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate(timeout=SECONDS)


@pytest.mark.parametrize(
    ("host", "family"),
    [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6)],
)
def test_the_process_that_has_a_port_is_named(host: str, family: socket.AddressFamily) -> None:
    with listening_program(host, family) as (pid, port):
        owner = port_owner(port)
        assert owner is not None
        assert owner.pid == pid
        assert owner.name.startswith("python")
        with pytest.raises(ListenFailed) as failed:
            bind(host, port)
    assert f"the port is in use by `{owner.name}` (process {pid})" in str(failed.value)
    assert failed.value.hint is not None
    assert "--port" in failed.value.hint


def test_a_free_port_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = port_owner(port)
        assert found is not None
        assert found.pid == os.getpid()
    assert port_owner(port) is None


def test_an_owner_reads_as_a_program_and_a_process() -> None:
    assert str(PortOwner(pid=7, name="node")) == "`node` (process 7)"


def test_a_descriptor_that_was_just_closed_does_not_hide_the_others(tmp_path: Path) -> None:
    process = tmp_path / "7"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("holder\n")
    (process / "fd" / "0").write_text("no link: reading it fails, as for one that is gone")
    (process / "fd" / "1").symlink_to("socket:[42]")
    (tmp_path / "net").mkdir()
    row = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 42 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{row}\n")
    assert port_owner(0x1F90, tmp_path) == PortOwner(pid=7, name="holder")
