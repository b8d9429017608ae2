"""A server that examples of the documentation can call."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Machine

TIME_SERVER = """
import json, sys
properties = {"timezone": {"type": "string"}}
schema = {"type": "object", "properties": properties}
tools = [{"name": "get_current_time", "inputSchema": schema}]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "time", "version": "1"}
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        reply["result"] = {"tools": tools}
    elif message["method"] == "tools/call":
        now = {"timezone": message["params"].get("arguments", {}).get("timezone"), "hour": 12}
        content = [{"type": "text", "text": json.dumps(now)}]
        reply["result"] = {"content": content, "structuredContent": now}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def time_server(machine: Machine, tmp_path: Path) -> None:
    """The user has one server, `time`, whose tool may be called."""
    program = tmp_path / "time_server.py"
    program.write_text(TIME_SERVER)
    entry = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"], "approval": "allow"}
    machine.write_user(json.dumps({"servers": {"time": entry}}))
