import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from fairlead.connection.outcomes import SpawnFailed
from fairlead.connection.process.child import EXPIRE_SECONDS, ProcessLease
from fairlead.connection.process.guardian import Guardian
from fairlead.store.protocol import lease_now
from tests.connection.guarded_host import LEASE_SECONDS, RENEW_SECONDS
from tests.connection.process.test_guardian import is_alive, serving, until, wait_until
from tests.connection.servers import call_tool, hostile

SECONDS = 30
BUSY_SECONDS = 3.0
"""How much later than promised something may happen on a busy machine."""


@pytest.fixture
async def guardian() -> AsyncGenerator[Guardian]:
    guardian = Guardian()
    yield guardian
    guardian.close()


def lease_for(seconds: float) -> ProcessLease:
    return ProcessLease(lease_now() + seconds)


@contextmanager
def leased_host(folder: Path) -> Generator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A host that renews the lease of its servers, and the pids of all that must end with it."""
    argv = [sys.executable, "-m", "tests.connection.guarded_host", str(folder), "leased"]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert host.stdout is not None
    assert host.stderr is not None
    with host.stdout, host.stderr:
        try:
            pids = json.loads(host.stdout.readline())
            for _ in range(round(LEASE_SECONDS / RENEW_SECONDS) + 2):
                assert host.stderr.readline() == b"renewed\n"
            yield host, [*pids["servers"], *pids["grandchildren"]]
        finally:
            host.kill()
            host.wait()


@pytest.mark.slow
def test_the_servers_of_a_paused_host_end_with_their_lease_and_with_all_they_started(tmp_path: Path) -> None:
    with leased_host(tmp_path) as (host, everyone):
        assert all(map(is_alive, everyone)), "renewals kept them alive for longer than one lease"
        began = time.monotonic()
        host.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: not any(map(is_alive, everyone)), SECONDS)
        assert time.monotonic() - began < LEASE_SECONDS + EXPIRE_SECONDS + BUSY_SECONDS
        assert host.poll() is None


@pytest.mark.slow
def test_the_servers_of_a_killed_host_do_not_wait_for_their_lease(tmp_path: Path) -> None:
    with leased_host(tmp_path) as (host, everyone):
        host.kill()
        host.wait()
        assert wait_until(lambda: not any(map(is_alive, everyone)), LEASE_SECONDS)


async def test_a_server_ends_at_its_deadline_although_it_ignores_sigterm(
    guardian: Guardian, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    lease = lease_for(SECONDS)
    command = hostile("ignore-sigterm", f"grandchild={pid_file}", "serve", "sleep=600", lease=lease)
    async with serving(guardian, command) as server, serving(guardian) as neighbour:
        began = anyio.current_time()
        lease.end()
        await until(lambda: not is_alive(server.pid) and not is_alive(int(pid_file.read_text())))
        assert anyio.current_time() - began < EXPIRE_SECONDS + BUSY_SECONDS
        assert (await server.wait_closed()).kind in ("exited", "hung_up")
        await call_tool(neighbour, "echo")


async def test_one_lease_is_for_a_group_of_servers(guardian: Guardian) -> None:
    lease = lease_for(SECONDS)
    async with serving(guardian, hostile(lease=lease)) as one, serving(guardian, hostile(lease=lease)) as two:
        lease.extend(lease_now() + 2 * SECONDS)
        await call_tool(one, "echo")
        lease.end()
        await until(lambda: not is_alive(one.pid) and not is_alive(two.pid))


async def test_a_lease_that_has_ended_starts_nothing_and_is_not_renewed(guardian: Guardian) -> None:
    lease = lease_for(-0.001)
    lease.extend(lease_now() + SECONDS)
    assert lease.has_ended
    with pytest.raises(SpawnFailed, match="lease"):
        async with serving(guardian, hostile(lease=lease)):
            pass
    assert guardian.pid is None
