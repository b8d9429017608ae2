"""What one principal's session says and hears beside another's, at a server that both share."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.gateway.support import Raw, Served, serving, until
from tests.gateway.test_principals import ALICE, BOB
from tests.host.asking import BOTH_ERAS, AskingServer

Heard = list[dict[str, Any]]


@asynccontextmanager
async def listening(
    http: aiohttp.ClientSession, served: Served, name: str
) -> AsyncGenerator[tuple[Raw, Heard]]:
    """A session of a principal, and what comes on its event stream."""
    client, heard = Raw(http, f"{served.url}/mcp", name), Heard()
    await client.begin()

    async def listen(stream: aiohttp.ClientResponse) -> None:
        async for line in stream.content:
            if line.startswith(b"data:") and line[5:].strip():
                heard.append(json.loads(line[5:]))

    headers = {**client.headers, "Accept": "text/event-stream"}
    async with http.get(client.url, headers=headers) as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(listen, stream)
        yield client, heard
        tasks.cancel_scope.cancel()


def uris_in(heard: Heard) -> list[str]:
    return [
        each["params"]["uri"] for each in heard if each.get("method") == "notifications/resources/updated"
    ]


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize("version", BOTH_ERAS)
async def test_subscriptions_of_one_principal_are_not_heard_or_ended_by_another(
    tmp_path: Path, version: str
) -> None:
    server = AskingServer(tmp_path / "record", version=version)
    async with (
        serving(tmp_path, a=server.entry(sharing="shared")) as served,
        aiohttp.ClientSession() as http,
        listening(http, served, ALICE) as (alice, alices),
        listening(http, served, BOB) as (bob, bobs),
    ):
        for client, uri in ((alice, "test://a"), (bob, "test://b")):
            assert "result" in await client.older("resources/subscribe", uri=uri)
        for uri in ("test://a", "test://a"):
            await bob.older("resources/unsubscribe", uri=uri)
        for uri in ("test://a", "test://b", "test://c"):
            await bob.older("tools/call", name="a_update", arguments={"uri": uri})
        with anyio.fail_after(20):
            await until(lambda: bool(uris_in(alices)) and bool(uris_in(bobs)))
    assert (uris_in(alices), uris_in(bobs)) == (["test://a"], ["test://b"])


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize("version", BOTH_ERAS)
async def test_requests_of_one_principal_are_not_cancelled_or_reported_to_another(
    tmp_path: Path, version: str
) -> None:
    server = AskingServer(tmp_path / "record", version=version)
    async with (
        serving(tmp_path, a=server.entry(sharing="shared")) as served,
        aiohttp.ClientSession() as http,
        listening(http, served, ALICE) as (alice, alices),
        listening(http, served, BOB) as (bob, bobs),
    ):
        await bob.older("logging/setLevel", level="debug")
        answers: list[Any] = []

        async def call() -> None:
            meta = {"progressToken": "same"}
            answers.append(await alice.older("tools/call", 7, name="a_progress", arguments={}, _meta=meta))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(20):
                await until(lambda: bool(server.heard("tools/call")))
            for request_id in (7, "7", "same", 1, 0, "a_progress"):
                cancelled = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
                status, _, _ = await bob.post({"jsonrpc": "2.0", **cancelled})
                assert status == 202
            said = {"level": "error", "data": "of bob's"}
            meta = {"progressToken": "same"}
            await bob.older("tools/call", 7, name="a_log", arguments=said, _meta=meta)
            assert not answers
            assert not server.heard("notifications/cancelled")
            tasks.cancel_scope.cancel()
    assert "of bob's" not in json.dumps(alices)
    assert "progress" not in json.dumps(bobs)
