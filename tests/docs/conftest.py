"""A server that examples of the documentation can call."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Machine

TIME_SERVER = """
import json, sys
from datetime import datetime
from zoneinfo import ZoneInfo

def tool(name, *arguments):
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": [*arguments]}
    return {"name": name, "inputSchema": schema}

tools = [
    tool("get_current_time", "timezone"),
    tool("convert_time", "source_timezone", "time", "target_timezone"),
]
noon = datetime.fromisoformat("2026-11-19T12:00:00+00:00")
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
        zone = message["params"]["arguments"]["timezone"]
        there = noon.astimezone(ZoneInfo(zone))
        now = {
            "timezone": zone,
            "datetime": there.isoformat(timespec="seconds"),
            "day_of_week": there.strftime("%A"),
            "is_dst": bool(there.dst()),
        }
        content = [{"type": "text", "text": json.dumps(now, indent=2)}]
        reply["result"] = {"content": content, "structuredContent": now}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"""
"""`uvx mcp-server-time` at a moment that does not pass: `test_time_server.py` compares the two."""


@pytest.fixture
def time_server(machine: Machine, tmp_path: Path) -> None:
    """The user has one server, `time`, whose tools may be called."""
    program = tmp_path / "time_server.py"
    program.write_text(TIME_SERVER)
    entry = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"], "approval": "allow"}
    machine.write_user(json.dumps({"servers": {"time": entry}}))
