"""Every request over stdio or HTTP is answered, however odd its bytes are."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.gateway.support import HANDSHAKE, serving
from tests.gateway.test_tools import scripted
from tests.gateway.test_transports import PROGRAM

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


class Pipes:
    """A gateway over its pipes, to write any bytes to."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def write(self, data: bytes) -> None:
        await self._stdin.send(data)

    async def close(self) -> None:
        await self._stdin.aclose()

    async def answer(self, request_id: Any) -> dict[str, Any]:
        """The next answer with that id."""
        with anyio.fail_after(30):
            while True:
                line = await self._stdout.receive_until(b"\n", 10_000_000)
                message: dict[str, Any] = json.loads(line)
                if "method" not in message and message.get("id") == request_id:
                    return message

    async def begin(self, before: bytes = b"") -> None:
        await self.write(before + json.dumps(INITIALIZE).encode() + b"\n")
        assert "result" in await self.answer(0)
        await self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


@asynccontextmanager
async def piped(folder: Path) -> AsyncGenerator[Pipes]:
    env = {"HOME": str(folder), "PATH": os.environ.get("PATH", os.defpath), "FAIRLEAD_BUILTINS": "off"}
    document = {
        "servers": {"a": scripted(folder, "a", tools=["echo"]).entry()},
        "gateway": {"approval": "allow"},
    }
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(env), json.dumps(document), str(folder)]
    with anyio.fail_after(120):
        process = await anyio.open_process(arguments, stderr=None)
        try:
            pipes = Pipes(process)
            yield pipes
            await pipes.close()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            await process.aclose()


def call(request_id: int, arguments: str = "{}") -> bytes:
    params = f'{{"name":"a_echo","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":{params}}}'.encode()


def nested(depth: int) -> str:
    return '{"x":' + "[" * depth + "]" * depth + "}"


REPAIRED = {
    "half of a surrogate pair": call(1, '{"x":"\\ud83d"}'),
    "the other half": call(1, '{"x":"\\udc00!"}'),
    "half of a pair as a key": call(1, '{"\\ud83d":1}'),
    "nested 250 deep": call(1, nested(250)),
    "byte order mark": b"\xef\xbb\xbf" + call(1),
    "NUL before": b"\0" + call(1),
    "NUL and mark before": b"\0\xef\xbb\xbf" + call(1),
    "terminal escape before": b"\x1b[0m" + call(1),
    "carriage return after": call(1) + b"\r",
    "blanks around": b"  \t" + call(1) + b"  ",
    "id 1.0": call(1).replace(b'"id":1', b'"id":1.0'),
    "id 1e0": call(1).replace(b'"id":1', b'"id":1e0'),
    "no jsonrpc": call(1).replace(b'"jsonrpc":"2.0",', b""),
    "jsonrpc 1.0": call(1).replace(b'"2.0"', b'"1.0"'),
    "jsonrpc as a number": call(1).replace(b'"2.0"', b"2.0"),
    "batch": b"[" + call(1) + b"]",
    "batch of several": b"[" + call(7) + b"," + call(1) + b"]",
    "a big number": call(1, '{"x":' + "9" * 300 + "}"),
    "two members of one name": call(1).replace(b'"id":1', b'"id":3,"id":1'),
    "large": call(1, json.dumps({"x": "y" * 5_000_000})),
    "many values": call(1, json.dumps({"x": [0] * 60_000})),
}
REFUSED = {
    "number out of range": call(1, '{"x":1e999}'),
    "negative out of range": call(1, '{"x":[-1e400]}'),
    "NaN": call(1, '{"x":NaN}'),
    "Infinity": call(1, '{"x":-Infinity}'),
    "nested 100,000 deep": call(1, nested(100_000)),
    "params a list": call(1).replace(b'{"name":"a_echo","arguments":{}}', b"[1]"),
    "params a string": call(1).replace(b'{"name":"a_echo","arguments":{}}', b'"x"'),
    "arguments a list": call(1, "[1]"),
    "cut off": call(1)[:-3],
    "trailing comma": call(1, '{"x":1,}'),
    "two on a line": call(1) + call(1),
    "single quotes inside": call(1, "{'x':1}"),
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "method a number": call(1).replace(b'"tools/call"', b"5"),
    "control character in a string": call(1, '{"x":"a\x01b"}'),
    "a number with 10,000 digits": call(1, '{"x":' + "9" * 10_000 + "}"),
}
WITHOUT_ID = {
    "no JSON": b"hello",
    "empty object": b"{}",
    "empty batch": b"[]",
    "id true": call(1).replace(b'"id":1', b'"id":true'),
    "id a list": call(1).replace(b'"id":1', b'"id":[1]'),
}


@pytest.mark.requirement("HARD-85")
async def test_every_line_over_stdio_is_answered_under_its_id(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipes:
        await pipes.begin(b"\xef\xbb\xbf")
        for name, line in REPAIRED.items():
            await pipes.write(line + b"\n")
            answer = await pipes.answer(1)
            assert "result" in answer, (name, answer)
            assert not answer["result"].get("isError"), (name, answer)
        for name, line in REFUSED.items():
            await pipes.write(line + b"\n")
            answer = await pipes.answer(1)
            assert answer.get("error", {}).get("code") in (-32700, -32600, -32602), (name, answer)
            assert len(answer["error"]["message"]) < 1_000
        for name, line in WITHOUT_ID.items():
            await pipes.write(line + b"\n")
            answer = await pipes.answer(None)
            assert answer["error"]["code"] in (-32700, -32600), (name, answer)
        await pipes.write(call(1).replace(b'"id":1', b'"id":1.5') + b"\n")
        assert (await pipes.answer(1.5))["error"]["code"] == -32600
        await pipes.write(call(9) + b"\n")
        assert "result" in await pipes.answer(9)


async def test_what_is_under_way_at_the_end_of_stdin_is_answered(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipes:
        await pipes.begin()
        await pipes.write(call(1) + b"\n" + call(2))
        await pipes.close()
        assert "result" in await pipes.answer(1)
        assert "result" in await pipes.answer(2)


@pytest.mark.requirement("HARD-71")
async def test_every_body_over_http_is_answered_under_its_id(tmp_path: Path) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with (
        serving(tmp_path, a=scripted(tmp_path, "a", tools=["echo"]).entry()) as served,
        aiohttp.ClientSession() as http,
    ):

        async def post(body: bytes) -> tuple[int, dict[str, Any], str | None]:
            async with http.post(f"{served.url}/mcp", data=body, headers=headers) as response:
                text = await response.text()
                if response.content_type == "text/event-stream":
                    text = [line for line in text.splitlines() if line.startswith("data: {")][-1][6:]
                return response.status, json.loads(text or "null"), response.headers.get("mcp-session-id")

        abilities: list[dict[str, Any]] = [{}, {"elicitation": {}}]
        for capabilities in abilities:  # the fast path, and the SDK's server
            headers.pop("mcp-session-id", None)
            opening = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": capabilities}}
            status, _, session = await post(b"\xef\xbb\xbf" + json.dumps(opening).encode())
            assert status == 200
            assert session
            headers["mcp-session-id"] = session
            await post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            for name, body in REPAIRED.items():
                if "batch" in name or name in ("large", "nested 250 deep"):
                    continue
                status, answer, _ = await post(body)
                assert (status, answer["id"]) == (200, 1), (name, answer)
                assert "result" in answer, (name, answer)
            for name, body in {
                **REFUSED,
                "invalid UTF-8": call(1, '{"x":"?"}').replace(b"?", b"\xe9"),
            }.items():
                status, answer, _ = await post(body)
                assert answer["id"] == 1, (name, answer)
                assert "error" in answer, (name, answer)
            for body in (REPAIRED["nested 250 deep"], b"\xef\xbb\xbf" + call(1, nested(600))):
                status, answer, _ = await post(body)
                assert answer["id"] == 1, answer
            for name, body in WITHOUT_ID.items():
                status, answer, _ = await post(body)
                assert status == 400, (name, answer)
                assert "error" in answer, (name, answer)
