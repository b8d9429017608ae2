"""Answers that the user or a model gave after a server was taken out of the configuration."""

import json
import sys
from pathlib import Path

import anyio
import mcp_types as types
import pytest

from fairlead.host.host import Host
from fairlead.host.operator import Callbacks, FormAnswer, FormRequest, SampleRequest, UrlAnswer, UrlRequest
from tests.conftest import Machine
from tests.host.support import SECONDS, Running

ASKING = """
import json, pathlib, sys
record, request = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        version, info = message["params"]["protocolVersion"], {"name": "asking", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": message["id"], "result": result})
    elif method == "tools/list":
        send({"id": message["id"], "result": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        called = message["id"]
        send({"id": "q", **request})
    elif message.get("id") == "q":
        record.write_text(json.dumps(message))
        send({"id": called, "result": {"content": [{"type": "text", "text": "answered"}]}})
    elif method is not None and "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
"""
PROPERTIES = {"name": {"type": "string"}}
FORM = {"message": "who?", "requestedSchema": {"type": "object", "properties": PROPERTIES}}
URL = {"mode": "url", "message": "go", "url": "https://example.com/x", "elicitationId": "e"}
TEXT = {"role": "user", "content": {"type": "text", "text": "hi"}}
REQUESTS = {
    "form": {"method": "elicitation/create", "params": FORM},
    "url": {"method": "elicitation/create", "params": URL},
    "sampling": {"method": "sampling/createMessage", "params": {"messages": [TEXT], "maxTokens": 10}},
}


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "still there"])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_no_answer_goes_to_a_server_that_was_removed_while_it_was_made(
    machine: Machine, tmp_path: Path, kind: str, gone: bool
) -> None:
    asked, answered = anyio.Event(), anyio.Event()
    opened: list[str] = []

    async def wait() -> None:
        asked.set()
        await answered.wait()

    async def fill(request: FormRequest) -> FormAnswer:
        await wait()
        return FormAnswer(action="accept", content={"name": "Ada"})

    async def visit(request: UrlRequest) -> UrlAnswer:
        await wait()
        return "accept"

    async def open_url(url: str) -> bool:
        opened.append(url)
        return True

    async def sample(request: SampleRequest) -> types.CreateMessageResult:
        await wait()
        content = types.TextContent(type="text", text="Ada")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    operator = Callbacks(on_form=fill, on_url=visit, on_sample=sample, on_open_url=open_url)
    program, record = tmp_path / "asking.py", tmp_path / "record"
    program.write_text(ASKING)
    args = [str(program), str(record), json.dumps(REQUESTS[kind])]
    entry = {"command": sys.executable, "args": args, "trust": "trusted", "sampling": {"max_tokens": 1000}}
    config = machine.load(overrides={"servers": {"x": entry}, "policy": {"approval": "allow"}})
    with anyio.fail_after(SECONDS):
        async with Host.open(config, env=machine.env, cwd=machine.project, operator=operator) as host:
            call = Running(host, "x", "ask", {})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.run)
                await asked.wait()
                if gone:
                    host.remove("x")
                answered.set()
    reply = json.loads(record.read_text())
    assert ("result" in reply) is not gone, reply
    assert "Ada" not in json.dumps(reply) or not gone
    assert bool(opened) is (kind == "url" and not gone)
