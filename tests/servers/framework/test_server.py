"""Servers made of tool definitions: in this process, over HTTP in both eras, over stdio."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ImageContent, TextContent, ToolAnnotations

from fairlead.errors import ListenFailed, ToolFailed
from fairlead.net.http import open_client
from fairlead.net.listen import bind
from fairlead.servers.framework.http import own_token, serving_http
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.testing import open_host

SECONDS = 30
PARROT_PROGRAM = """
import anyio
from tests.servers.framework.test_server import parrot
anyio.run(parrot().serve_stdio)
"""


class Question(ToolModel):
    """What is asked."""

    text: str
    """What to say."""
    how_often: int = 1


class Answer(ToolModel):
    """What is answered."""

    said: str
    remark: str | None = None


async def say(context: ToolContext, question: Question) -> Answer | Reply[Answer]:
    await context.progress(1, 2, "thinking")
    match question.text:
        case "fail":
            raise ToolFailed("there is nothing to say", hint="say something else")
        case "break":
            raise ZeroDivisionError("a secret in an error")
        case "picture":
            picture = ImageContent(data="aGk=", mime_type="image/png")
            return Reply(output=Answer(said="see"), content=(picture,))
        case text:
            return Answer(said=" ".join([text] * question.how_often))


SAY = ToolDefinition(
    name="parrot.say",
    description="Say something.",
    input=Question,
    output=Answer,
    handler=say,
    annotations=ToolAnnotations(read_only_hint=True),
)


def parrot() -> McpServer:
    return McpServer("parrot", version="3", instructions="Speak slowly.", tools=[SAY])


async def test_a_server_of_the_programs_own_is_used_like_any_other(tmp_path: Path) -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, total, message))

    async with open_host(tmp_path, bird=parrot()) as host:
        (tool,) = await host.tools_of("bird")
        definition = tool.read()
        result = await host.call("bird", "parrot.say", {"text": "hi", "howOften": 2}, on_progress=progressed)
        (status,) = host.status()

    assert definition["inputSchema"] == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say."},
            "howOften": {"type": "integer", "default": 1},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert definition["outputSchema"]["required"] == ["said"]
    assert definition["annotations"]["readOnlyHint"] is True
    assert result.structured == {"said": "hi hi"}
    assert result.text == '{"said": "hi hi"}'
    assert reports == [(1, 2, "thinking")]
    assert (status.transport, status.state, status.version) == ("in_process", "ready", "2026-07-28")


async def test_what_one_program_brought_is_not_taken_for_what_another_does(tmp_path: Path) -> None:
    async with open_host(tmp_path, bird=parrot()) as host:
        await host.require(["bird"])
    other = McpServer("other", tools=[replace(SAY, name="other.say")])
    async with open_host(tmp_path, bird=other) as host:
        assert host.listing("bird") is None
        assert [tool.key.tool for tool in await host.tools_of("bird")] == ["other.say"]


async def test_what_a_tool_cannot_do_it_says_to_the_model(tmp_path: Path) -> None:
    async with open_host(tmp_path, bird=parrot()) as host:
        failed = await host.call("bird", "parrot.say", {"text": "fail"})
        wrong = await host.call("bird", "parrot.say", {"text": 7, "hoften": "x"})
        broken = await host.call("bird", "parrot.say", {"text": "break"})

    assert (failed.is_error, failed.text) == (True, "there is nothing to say\n\nhint: say something else")
    assert wrong.is_error
    assert "hoften: Extra inputs" in wrong.text
    assert broken.is_error
    assert "secret" not in broken.text


async def test_content_of_its_own_stands_beside_the_structured_output(tmp_path: Path) -> None:
    async with open_host(tmp_path, bird=parrot()) as host:
        result = await host.call("bird", "parrot.say", {"text": "picture"})

    assert [block["type"] for block in result.content] == ["image"]
    assert result.structured == {"said": "see"}


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match=r"parrot\.say"):
        parrot().register(SAY)


async def test_a_tool_that_is_registered_after_the_list_was_read_is_in_the_next_one() -> None:
    server = parrot()
    with anyio.fail_after(SECONDS):
        async with server.serve(token="s3cret") as endpoint:
            async with sdk_client(endpoint.url, "s3cret", "auto") as client:
                before = await client.list_tools()
            server.register(replace(SAY, name="parrot.repeat"))
            async with sdk_client(endpoint.url, "s3cret", "auto") as client:
                after = await client.list_tools()

    assert [tool.name for tool in before.tools] == ["parrot.say"]
    assert [tool.name for tool in after.tools] == ["parrot.say", "parrot.repeat"]


@asynccontextmanager
async def sdk_client(url: str, token: str, mode: Literal["auto", "legacy"]) -> AsyncGenerator[Client]:
    """The SDK's own client, as anybody else's would be."""
    import httpx2

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_both_eras_are_served(mode: Literal["auto", "legacy"]) -> None:
    with anyio.fail_after(SECONDS):
        async with parrot().serve() as endpoint:
            assert endpoint.token is not None
            async with sdk_client(endpoint.url, endpoint.token, mode) as client:
                listed = await client.list_tools()
                result = await client.call_tool("parrot.say", {"text": "hello"})
                version = client.protocol_version

    assert [tool.name for tool in listed.tools] == ["parrot.say"]
    assert result.structured_content == {"said": "hello"}
    assert isinstance(result.content[0], TextContent)
    assert (version >= "2026-07-28") == (mode == "auto")


async def test_over_http_a_host_uses_it_with_its_token(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with parrot().serve(token="s3cret") as endpoint:
            headers = {"Authorization": "Bearer s3cret"}
            entry = {"url": endpoint.url, "headers": headers, "trust": "trusted"}
            async with open_host(tmp_path, bird=entry) as host:
                result = await host.call("bird", "parrot.say", {"text": "hello"})

    assert result.structured == {"said": "hello"}


async def post(url: str, **headers: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with open_client() as client, client.post(url, json=body, headers=accept | headers) as response:
        return response.status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "s3cret"}, 401),
        ({"Authorization": "Bearer s3cret", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Authorization": "Bearer s3cret", "Origin": "null"}, 403),
        ({"Authorization": "Bearer s3cret", "Host": "evil.test"}, 421),
    ],
)
async def test_who_has_no_token_or_comes_from_elsewhere_is_turned_away(
    headers: dict[str, str], status: int
) -> None:
    with anyio.fail_after(SECONDS):
        async with parrot().serve(token="s3cret") as endpoint:
            assert await post(endpoint.url, **headers) == status


async def test_a_port_that_is_taken_says_so() -> None:
    with bind("127.0.0.1", 0) as taken, pytest.raises(ListenFailed) as raised:
        bind("127.0.0.1", taken.getsockname()[1])
    assert raised.value.hint is not None
    assert "--port" in raised.value.hint


async def test_serving_ends_with_the_block() -> None:
    with anyio.fail_after(SECONDS):
        async with parrot().serve() as endpoint:
            pass
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(endpoint.url)


async def test_several_servers_share_a_port() -> None:
    with anyio.fail_after(SECONDS):
        servers: dict[str, Any] = {"/one": parrot().sdk_server(), "/two": parrot().sdk_server()}
        async with (
            serving_http(servers, token=None) as endpoint,
            Client(f"{endpoint.url}/one") as one,
            Client(f"{endpoint.url}/two") as two,
        ):
            first = await one.call_tool("parrot.say", {"text": "one"})
            second = await two.call_tool("parrot.say", {"text": "two"})

    assert (first.structured_content, second.structured_content) == ({"said": "one"}, {"said": "two"})


def test_a_token_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = own_token(path)
    assert len(token) > 30
    assert own_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.write_text("\n")
    assert len(own_token(path)) > 30  # nothing at all opens no door


async def test_over_stdio_it_is_a_command_like_any_other(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    entry = {"command": sys.executable, "args": ["-c", PARROT_PROGRAM], "cwd": root, "trust": "trusted"}
    async with open_host(tmp_path, seconds=60, bird=entry) as host:
        result = await host.call("bird", "parrot.say", {"text": "hello"})

    assert result.structured == {"said": "hello"}


LINE = (
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"parrot.say","arguments":{"text":"hi"}}}'
)


def odd_lines() -> Mapping[str, tuple[bytes, object]]:
    """Lines as clients may send them, and what each is answered with: a result, or the code of an error."""
    sound = LINE.encode()
    repaired = {
        "byte order mark": b"\xef\xbb\xbf" + sound,
        "NUL before": b"\0" + sound,
        "NUL within": sound.replace(b'"hi"', b'"h\\u0000i"'),
        "invalid UTF-8": sound.replace(b'"hi"', b'"caf\xe9"'),
        "half of a surrogate pair": sound.replace(b'"hi"', b'"\\ud83d"'),
        "terminal escape before": b"\x1b[0m" + sound,
        "carriage return": sound + b"\r",
        "blanks around": b"  " + sound + b"\t",
        "id 1.0": sound.replace(b'"id":1', b'"id":1.0'),
        "no jsonrpc": sound.replace(b'"jsonrpc":"2.0",', b""),
        "batch": b"[" + sound + b"]",
        "large": sound.replace(b'"hi"', b'"%b"' % (b"x" * 3_000_000)),
    }
    refused = {
        "no JSON": (b"hello", -32700),
        "half a line": (sound[: len(sound) // 2], -32700),
        "two on a line": (sound + sound, -32700),
        "empty object": (b"{}", -32600),
        "empty batch": (b"[]", -32600),
        "id null": (sound.replace(b'"id":1', b'"id":null'), -32600),
        "id a list": (sound.replace(b'"id":1', b'"id":[1]'), -32600),
        "NaN": (sound.replace(b'"hi"', b"NaN"), -32700),
        "params a list": (sound.replace(b'"params":{', b'"params":[1],"x":{'), -32602),
        "nested": (sound.replace(b'"hi"', b"[" * 100_000 + b"]" * 100_000), -32700),
        "only NUL and text": (b"\0\0x", -32700),
        "a number": (b"5", -32600),
        "oversize": (sound.replace(b'"hi"', b'"%b"' % (b"x" * 65 * 1024 * 1024)), -32700),
    }
    return {name: (line, "result") for name, line in repaired.items()} | refused


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize("kind", ["library", "command line"])
async def test_over_stdio_a_bad_line_costs_only_itself(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", PARROT_PROGRAM]
    lines = odd_lines()
    if kind == "command line":
        (project := tmp_path / "project").mkdir()
        command = [sys.executable, "-m", "fairlead", "serve", "repo", "--stdio", "--root", str(project)]
        asked = b'"parrot.say","arguments":{"text":'
        lines = {
            name: (line.replace(asked, b'"repo.readFile","arguments":{"path":'), wanted)
            for name, (line, wanted) in lines.items()
        }
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with anyio.fail_after(120):
        process = await anyio.open_process(command, cwd=Path(__file__).parents[3], env=env)
        assert process.stdin
        assert process.stdout
        answers = BufferedByteReceiveStream(process.stdout)

        async def ask(line: bytes) -> dict[str, Any]:
            assert process.stdin
            await process.stdin.send(line + b"\n")
            while True:
                message = json.loads(await answers.receive_until(b"\n", 50_000_000))
                if "method" not in message:
                    return message

        try:
            started = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
            assert (await ask(json.dumps(started).encode()))["id"] == 0
            await process.stdin.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n\n \n')
            for name, (line, wanted) in lines.items():
                answer = await ask(line)
                code = answer.get("error", {}).get("code")
                assert "result" in answer if wanted == "result" else code == wanted, (name, f"{answer}"[:300])
            await process.stdin.send(LINE.encode())  # half a line no more: the client closes stdin after it
            await process.stdin.aclose()
            assert json.loads(await answers.receive_until(b"\n", 50_000_000))["id"] == 1
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.aclose()
