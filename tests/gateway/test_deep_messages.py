"""Errors and log lines of a server that are nested deeper than clients can read."""

import json
import sys
from pathlib import Path

import aiohttp
import pydantic_core
import pytest

from tests.gateway.support import HANDSHAKE, MODERN, Raw, serving, text_of

SERVER = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

deep = 1
for _ in range(DEPTH):
    deep = {"a": deep}
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked.get("method")
    if method == "initialize":
        offers = {"tools": {}, "logging": {}}
        about = {"name": "deep", "version": "1"}
        send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": about})
    elif method == "tools/list":
        schema = {"type": "object"}
        send(id=number, result={"tools": [{"name": each, "inputSchema": schema} for each in ("fail", "log")]})
    elif method == "tools/call" and asked["params"]["name"] == "fail":
        send(id=number, error={"code": -32000, "message": "it does not work", "data": deep})
    elif method == "tools/call":
        send(method="notifications/message", params={"level": "error", "data": deep})
        send(id=number, result={"content": [{"type": "text", "text": "done"}]})
    elif number is not None:
        send(id=number, result={})
"""


@pytest.mark.requirement("HARD-87")
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("depth", [150, 300, 600])
async def test_deep_data_of_errors_and_logs_costs_only_itself(
    tmp_path: Path, version: str, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "deep.py"
    program.write_text(SERVER.replace("DEPTH", str(depth)))
    entry = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"], "trust": "trusted"}
    async with (
        serving(tmp_path, config={"gateway": {"mode": "direct"}}, s=entry) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        if version == HANDSHAKE:
            await client.begin(version=version)
            await client.older("logging/setLevel", level="debug")
        request = client.modern if version == MODERN else client.older
        failed = await request("tools/call", name="s_fail", arguments={})
        logged = await request("tools/call", name="s_log", arguments={})
    for answer in (failed, logged):
        pydantic_core.from_json(json.dumps(answer))  # it refuses what is nested 200 levels deep
    assert "it does not work" in json.dumps(failed)
    assert text_of(logged) == "done"
    assert "Traceback" not in caplog.text
