"""Pins of replicas: what one of them pinned or found changed holds at all, whichever a call comes to."""

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from fairlead.catalog.tools import read_tools
from fairlead.policy.pins import NAMESPACE, pin_by_review, pins_key, record_review
from fairlead.testing import ScriptedServer
from tests.gateway.cluster.cluster_support import ServedReplica, replicas
from tests.gateway.support import Raw, text_of
from tests.host.test_quarantine import CHANGED, ECHO, ChangingServer


async def echo(client: Raw) -> str:
    answer = await client.older("tools/call", name="x_echo", arguments={"what": "a"})
    return answer["error"]["message"] if "error" in answer else text_of(answer)


def approve(folder: Path, at: ServedReplica, *tools: dict[str, Any]) -> None:
    """Approve tools as `fairlead review` does, at the machine of any replica."""
    entries, _ = read_tools("x", iter([json.dumps(tool).encode() for tool in tools]))
    record_review(
        folder / "store.db",
        at.gateway.loaded.servers["x"],
        lambda pins: pin_by_review(pins, entries, instructions=None, patterns=["*"], at=time.time()),
    )


async def test_a_tool_that_changed_is_refused_at_every_replica_until_it_is_reviewed(
    tmp_path: Path,
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with replicas(tmp_path, 2, x=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = [Raw(http, f"{each.url}/mcp") for each in served]
        await first.begin()
        assert await echo(first) == '{"what": "a"}'
        store = served[0].gateway.host.store
        assert store is not None
        key = pins_key(served[0].gateway.loaded.servers["x"])
        while await store.get(NAMESPACE, key) is None:  # noqa: ASYNC110 - pins are saved in a moment
            await anyio.sleep(0.02)
        # The other replica has not connected to it before, and is held to what the first one pinned.
        server.say(CHANGED)
        await second.begin()
        assert await echo(second) != '{"what": "a"}'
        assert ScriptedServer(server.record).calls("echo") == 1

        approve(tmp_path, served[0], CHANGED)
        while await echo(second) != '{"what": "a"}':  # noqa: ASYNC110 - the store tells it
            await anyio.sleep(0.02)
