"""Commands and gateways before a server whose stream never ends: they answer, and end when told."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cli.gateway_support import INITIALIZE, Up, command, gateway
from tests.conftest import Machine
from tests.connection.transport.test_pacing import endless

pytestmark = pytest.mark.slow


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(up: Up, message: Mapping[str, Any]) -> None:
    headers = {
        "Authorization": f"Bearer {up.token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(up.url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize("flood", ["comments", "logs"])
def test_a_call_to_an_endless_server_ends(machine: Machine, flood: str) -> None:
    with endless(flood, "get") as entry:
        machine.write_user(json.dumps({"servers": {"x": entry}}))
        done = subprocess.run(
            command("call", "x", "echo"),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=machine.project,
            env=machine.env,
            check=False,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "echoed")


@pytest.mark.requirement("HARD-67")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("flood", ["comments", "logs"])
def test_a_gateway_before_an_endless_server_stays_calm_and_stops_when_told(
    machine: Machine, flood: str
) -> None:
    with endless(flood, "get") as entry:
        machine.write_user(json.dumps({"servers": {"x": {**entry, "lazy": False, "sharing": "shared"}}}))
        with gateway(machine) as up:
            ask(up, INITIALIZE)
            time.sleep(3)  # its start, and the burst of the stream
            spent, began = cpu_seconds(up.process.pid), time.monotonic()
            time.sleep(4)
            assert cpu_seconds(up.process.pid) - spent < 0.5 * (time.monotonic() - began)
            began = time.monotonic()
            returncode, _ = up.stop()
            assert returncode == 0
            assert time.monotonic() - began < 20  # 5 s, on a busy machine
