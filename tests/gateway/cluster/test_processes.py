"""Gateways in processes of their own with one Redis: what becomes of calls and sessions when one ends."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.gateway_support import INITIALIZE
from tests.gateway.test_replicas import Replica, eventually, replica
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "s_wait", "arguments": {}},
}
ECHO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "s_echo", "arguments": {}},
}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis", "--appendfsync", "everysec") as server:
        yield server


def begin(at: Replica, token: str) -> dict[str, str]:
    """Begin a session at a replica, and return the headers of its requests."""
    opened = {"Authorization": f"Bearer {token}"}
    eventually(lambda: at.send("/mcp", INITIALIZE, **opened)[0] == 200)
    _, headers, _ = at.send("/mcp", INITIALIZE, **opened)
    session = {**opened, "Mcp_Session_Id": headers["mcp-session-id"]}
    at.send("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
    # A server that is slow to start on a busy machine is listed once it is there.
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    eventually(lambda: b"s_wait" in at.send("/mcp", message, **session)[2])
    return session


class Waiting:
    """A call of the tool that never answers, made in a thread."""

    def __init__(self, at: Replica, session: dict[str, str]) -> None:
        self.answer: tuple[int, bytes] | None = None
        self._thread = threading.Thread(target=self._run, args=(at, session), daemon=True)
        self._thread.start()

    def _run(self, at: Replica, session: dict[str, str]) -> None:
        status, _, body = at.send("/mcp", CALL, **session)
        self.answer = status, body

    def seconds_until_answered(self) -> float:
        began = time.monotonic()
        self._thread.join(60)
        assert self.answer is not None
        return time.monotonic() - began

    def require_unknown(self) -> None:
        assert self.answer is not None
        status, text = self.answer
        body: Any = json.loads(text)
        assert (status, body["id"], body["result"]["isError"]) == (200, 2, True)
        assert body["result"]["_meta"]["fairlead/delivery"] == "unknown"


def metric(at: Replica, sample: str) -> int:
    """The number that a replica shows for something."""
    lines = at.up.get("/metrics")[1].decode().splitlines()
    return next(int(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


def replicas_known_to(at: Replica) -> int:
    return metric(at, 'fairlead_replicas{state="serving"}')


def open_calls(at: Replica) -> int:
    return metric(at, "fairlead_forwarded_requests_open")


def test_replicas_that_are_killed_suspended_or_stopped(tmp_path: Path, redis: RedisServer) -> None:
    with ExitStack() as stack:
        names = ("first", "second", "third", "fourth")
        first, second, third, fourth = (
            stack.enter_context(replica(tmp_path / name, redis)) for name in names
        )
        made: str = json.loads(first.run("gateway", "token", "add", "ada", "--json"))["token"]
        eventually(lambda: replicas_known_to(first) == len(names))

        # Killed: its calls end at once, with what is known of them, and its sessions are to begin anew.
        session = begin(second, made)
        call = Waiting(first, session)
        eventually(lambda: open_calls(first) == 1)
        second.up.process.kill()
        assert call.seconds_until_answered() < 3
        call.require_unknown()
        # The system closes what a killed process had open one by one: a moment longer it may seem to listen.
        eventually(lambda: first.send("/mcp", ECHO, **session)[0] == 404)

        # Suspended: they end once its lease has.
        session = begin(third, made)
        call = Waiting(first, session)
        eventually(lambda: open_calls(first) == 1)
        third.up.process.send_signal(signal.SIGSTOP)
        try:
            assert call.seconds_until_answered() < 10
            call.require_unknown()
            assert first.send("/mcp", ECHO, **session)[0] == 404
        finally:
            third.up.process.send_signal(signal.SIGCONT)
        eventually(lambda: replicas_known_to(first) == 3)
        assert first.send("/mcp", ECHO, **session)[0] == 200

        # Stopped: it is not ready from then on, its peers know at once, and it ends by itself.
        session = begin(fourth, made)
        assert fourth.up.get("/readyz")[0] == 200
        Waiting(fourth, session)  # keeps it from ending at once
        eventually(lambda: metric(fourth, "fairlead_calls_running") == 1)
        fourth.up.process.terminate()
        eventually(lambda: fourth.up.get("/readyz")[0] == 503)
        _, headers, _ = fourth.send("/mcp", INITIALIZE, Authorization=f"Bearer {made}")
        elsewhere = {"Authorization": f"Bearer {made}", "Mcp_Session_Id": headers["mcp-session-id"]}
        fourth.up.process.wait(30)
        eventually(lambda: replicas_known_to(first) == 2)
        assert first.send("/mcp", ECHO, **session)[0] == 404
        assert first.send("/mcp", {"jsonrpc": "2.0", "id": 4, "method": "ping"}, **elsewhere)[0] == 200


def test_sessions_go_on_without_their_store_and_new_ones_wait_for_it(
    tmp_path: Path, redis: RedisServer
) -> None:
    with (
        replica(tmp_path / "owner", redis) as owner,
        replica(tmp_path / "other", redis) as other,
    ):
        made: str = json.loads(owner.run("gateway", "token", "add", "ada", "--json"))["token"]
        session = begin(owner, made)
        opened = {"Authorization": f"Bearer {made}"}
        eventually(lambda: other.send("/mcp", ECHO, **session)[0] == 200)
        redis.kill()
        # Once the lease of each has ended, they take no new sessions …
        for each in (owner, other):
            eventually(lambda each=each: each.up.get("/readyz")[0] == 503)
            status, headers, body = each.send("/mcp", INITIALIZE, **opened)
            assert (status, headers["retry-after"]) == (503, "2")
            assert b"store" in body
        # … and those that there are go on, because their owner answers by itself.
        for each in (owner, other):
            assert each.send("/mcp", ECHO, **session)[0] == 200
        redis.start()
        for each in (owner, other):
            eventually(lambda each=each: each.up.get("/readyz")[0] == 200)
        assert other.send("/mcp", ECHO, **session)[0] == 200
        assert other.send("/mcp", INITIALIZE, **opened)[0] == 200
