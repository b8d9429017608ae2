"""Gateways in processes of their own that share one server process: its owner is killed, paused, stopped."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway.cluster.peer_transport import MEMORY_LOST
from tests.connection.process.test_guardian import is_alive
from tests.gateway.cluster.test_processes import metric
from tests.gateway.test_replicas import Replica, eventually, replica
from tests.host.asking import MODERN, AskingServer
from tests.redis_server import RedisServer, redis_server

BUSY_SECONDS = 5.0
"""How much later than promised something may happen on a busy machine."""
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis", "--appendonly", "no") as server:
        yield server


def ask(at: Replica, token: str, method: str, **params: Any) -> dict[str, Any]:
    """Make a request as a stateless client."""
    message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {**params, "_meta": META}}
    headers = {"Authorization": f"Bearer {token}", "Mcp_Protocol_Version": MODERN, "Mcp_Method": method}
    if "name" in params:
        headers["Mcp_Name"] = params["name"]
    status, _, body = at.send("/mcp", message, **headers)
    assert status == 200, body
    result: dict[str, Any] = json.loads(body)["result"]
    return result


def call(at: Replica, token: str) -> dict[str, Any]:
    return ask(at, token, "tools/call", name="a_pid", arguments={})


def pid_of(result: dict[str, Any]) -> int:
    assert not result.get("isError"), result
    return int(result["content"][0]["text"])


@pytest.mark.slow
def test_a_shared_server_goes_on_elsewhere_when_its_owner_is_killed_paused_or_stopped(
    tmp_path: Path, redis: RedisServer
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, tools=["pid", "echo"])
    entry = {**server.entry(), "approval": "allow", "trust": "trusted"}
    with ExitStack() as stack:
        names = ("first", "second", "third", "fourth")
        first, second, third, fourth = (
            stack.enter_context(replica(tmp_path / name, redis, a=entry)) for name in names
        )
        made: str = json.loads(first.run("gateway", "token", "add", "ada", "--json"))["token"]
        for each in (first, second, third, fourth):
            eventually(lambda at=each: "a_pid" in json.dumps(ask(at, made, "tools/list")))
        pid = pid_of(call(first, made))
        assert {pid_of(call(each, made)) for each in (second, third, fourth)} == {pid}

        # Killed: its process ends at once, and the next call starts it anew, once the lease has ended.
        first.up.process.kill()
        first.up.process.wait(30)
        began = time.monotonic()
        told = call(second, made)
        assert time.monotonic() - began < 7 + BUSY_SECONDS
        assert MEMORY_LOST in told["content"][-1]["text"]
        assert pid_of(told) != pid
        assert pid_of(call(third, made)) == (pid := pid_of(told))

        # Paused: its process is gone before another is there.
        second.up.process.send_signal(signal.SIGSTOP)
        try:
            told = call(third, made)
            if told.get("isError"):  # it was on its way when the owner fell silent
                assert told["_meta"]["fairlead/delivery"] == "unknown"
                told = call(third, made)
            assert not is_alive(pid)
            assert pid_of(told) != pid
            assert metric(third, "fairlead_owned_servers ") == 1
            pid = pid_of(told)
        finally:
            second.up.process.send_signal(signal.SIGCONT)
        assert pid_of(call(second, made)) == pid, "it is no longer the owner"
        eventually(lambda: metric(second, "fairlead_owned_servers ") == 0)
        assert metric(second, "fairlead_lease_losses_total") == 1

        # Stopped: at once.
        third.up.process.terminate()
        third.up.process.wait(30)
        began = time.monotonic()
        assert pid_of(call(fourth, made)) != pid
        assert time.monotonic() - began < 2 + BUSY_SECONDS
        assert len(server.notes("started")) == 4
