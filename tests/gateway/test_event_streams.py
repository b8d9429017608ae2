"""Messages in the event streams of handshake clients: large ones hold up nobody, and each arrives once."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import aiohttp
import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse
from sse_starlette import ServerSentEvent
from starlette.types import Message

from fairlead.gateway.client_session import ClientSession
from fairlead.gateway.event_streams import AnswerToCome, SseListener, write_event
from fairlead.testing.watchdog import watch_loop
from tests.fixtures import canned_stdio
from tests.gateway.support import Raw, serving

BLOB = "QUJD" * 1_900_000


def entry(folder: Path) -> dict[str, Any]:
    script: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"resources": {}},
            "serverInfo": {"name": "s", "version": "1"},
        },
        "resources/list": {"resources": [{"uri": "x:1", "name": "one"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [{"uri": "x:1", "blob": BLOB}]},
    }
    file = folder / "script.json"
    file.write_text(json.dumps(script))
    return {"command": sys.executable, "args": [canned_stdio.__file__, f"@{file}"], "trust": "trusted"}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("is_sse", [False, True])
async def test_a_large_answer_in_a_session_does_not_hold_the_loop(tmp_path: Path, is_sse: bool) -> None:
    read: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {}}
    async with serving(tmp_path, a=entry(tmp_path)) as served, aiohttp.ClientSession() as http:
        client = Raw(http, served.url + "/mcp")
        await client.begin()
        (listed,) = (await client.older("resources/list"))["result"]["resources"]
        read["params"] = {"uri": listed["uri"]}
        if not is_sse:
            with watch_loop(0.05):
                async with http.post(client.url, json=read, headers=client.headers) as response:
                    body = await response.read()
            assert response.content_type == "application/json"  # nothing was sent before it
            assert BLOB.encode() in body
            return
        async with http.get(f"{served.url}/sse", headers={"Authorization": "Bearer local"}) as stream:
            await stream.content.readline()
            address = (await stream.content.readline()).decode().removeprefix("data: ").strip()
            about = {"name": "c", "version": "1"}
            hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": about}
            started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            with watch_loop(0.05):
                for message in (greeting, started, read):
                    async with http.post(served.url + address, json=message) as posted:
                        assert posted.status == 202
                body = b""
                while BLOB.encode()[-40:] not in body[-400:]:
                    body += await stream.content.readany()
            assert b'"id":7' in body
            assert b"fairlead/" not in body.replace(b"fairlead/untrusted", b"")


async def test_an_event_whose_sending_was_cancelled_is_not_sent_in_place_of_another() -> None:
    came: list[bytes] = []

    async def send(message: Any) -> None:
        came.append(message["body"])

    listener = SseListener(cast("ClientSession", None), send, lambda _: None)
    listener.session_id = "known"
    into, out = anyio.create_memory_object_stream[SessionMessage](0)
    listener.write_to(into)
    with anyio.move_on_after(0) as scope:
        await listener.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="lost")))
    assert scope.cancelled_caught
    kept = JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": "line\nbreak\r"})
    async with into, out, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.send, SessionMessage(kept))
        placeholder = await out.receive()
        await listener.send_part({"body": placeholder.message.model_dump_json().encode()})
    assert came == [write_event(kept)]
    assert came[0].count(b"\n") == 3, "no line break of the data is one of the event"


def test_the_id_of_an_event_is_kept() -> None:
    message = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    assert write_event(message, "5").startswith(b"id: 5\r\nevent: message\r\ndata: {")


START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"Content-Type", b"text/event-stream"),
        (b"mcp-session-id", b"s"),
        (b"cache-control", b"no-cache"),
        (b"connection", b"keep-alive"),
    ],
}
NAMED: Message = {"type": "http.response.body", "body": b"id: 1\r\ndata: \r\n\r\n", "more_body": True}
PING: Message = {
    "type": "http.response.body",
    "body": ServerSentEvent(comment="ping - now").encode(),
    "more_body": True,
}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
ANSWER = JSONRPCResponse(jsonrpc="2.0", id=7, result={"content": []})
TOLD = JSONRPCNotification(
    jsonrpc="2.0", method="notifications/message", params={"level": "info", "data": "x"}
)


def event(message: JSONRPCResponse | JSONRPCNotification) -> Message:
    return {"type": "http.response.body", "body": write_event(message, "2"), "more_body": True}


async def sent(to_come: AnswerToCome, came: list[Message], *messages: Message) -> list[Message]:
    for message in messages:
        await to_come.send(message)
    return came


def response() -> tuple[AnswerToCome, list[Message]]:
    came: list[Message] = []

    async def send(message: Message) -> None:
        came.append(message)

    return AnswerToCome(send), came


async def test_an_answer_that_comes_first_is_json() -> None:
    to_come, came = response()
    start, body = await sent(to_come, came, START, NAMED, event(ANSWER), PING, END)
    assert json.loads(body["body"]) == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
    assert dict(start["headers"]) == {
        b"mcp-session-id": b"s",
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(body["body"]),
    }


@pytest.mark.parametrize("first", [event(TOLD), PING])
async def test_an_answer_that_something_comes_before_is_an_event(first: Message) -> None:
    to_come, came = response()
    every = (START, NAMED, first, event(ANSWER), END)
    assert await sent(to_come, came, *every) == [*every]
    assert not to_come.promise_json()


async def test_a_ping_does_not_begin_a_stream_for_an_answer_that_is_to_be_json() -> None:
    to_come, came = response()
    assert await sent(to_come, came, START, NAMED) == []
    assert to_come.promise_json()
    start, _ = await sent(to_come, came, PING, event(ANSWER), END)
    assert (b"content-type", b"application/json") in start["headers"]


async def test_a_stream_that_ends_without_an_answer_is_named_so_that_it_can_be_resumed() -> None:
    to_come, came = response()
    assert await sent(to_come, came, START, NAMED, END) == [START, NAMED, END]


async def test_what_is_no_event_stream_is_passed_on() -> None:
    to_come, came = response()
    refused: Message = {
        "type": "http.response.start",
        "status": 400,
        "headers": [(b"content-type", b"application/json")],
    }
    body: Message = {"type": "http.response.body", "body": b"{}"}
    assert await sent(to_come, came, refused, body) == [refused, body]
