"""Search with an embeddings API that refuses some texts, or whose model changes."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fairlead.host.host import Host
from fairlead.host.model import embeddings
from fairlead.host.model.embeddings import NAMESPACE
from fairlead.testing import ScriptedServer
from tests.conftest import Machine

SECONDS = 60
TOPICS = {"courier": 0, "music": 1, "rain": 2, "raincoat": 2}
WITHOUT_A_WORD = "take a raincoat"

Embed = Callable[[Sequence[str]], list[list[float]] | int]
"""Returns the vectors of texts, or the status of a refusal."""


def tool(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}


TOOLS = [
    tool("dispatch_courier", "Hand a package to a courier."),
    tool("play_song", "Play music."),
    tool("forecast", "Tell whether it will rain tomorrow."),
    tool("cursed", "Cursed text."),
]


def vector(text: str, size: int = 8) -> list[float]:
    values = [0.01] * size
    for word, place in TOPICS.items():
        if word in text.lower():
            values[place] = 1.0
    return values


@asynccontextmanager
async def searching(machine: Machine, tmp_path: Path, embed: Embed) -> AsyncGenerator[Host]:
    """A host whose model is this one, and has had its turn with the tools."""

    async def answer(request: web.Request) -> web.Response:
        found = embed((await request.json())["input"])
        if isinstance(found, int):
            return web.Response(status=found)
        return web.json_response(
            {"data": [{"index": at, "embedding": each} for at, each in enumerate(found)]}
        )

    app = web.Application()
    app.router.add_post("/v1/embeddings", answer)
    with anyio.fail_after(SECONDS):
        async with TestServer(app) as served:
            settings = {"url": str(served.make_url("/v1")), "model": "m"}
            entry = ScriptedServer(tmp_path / "record", tools=TOOLS).entry()
            document = {"servers": {"x": entry}, "search": {"embeddings": settings, "memory": False}}
            async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
                await host.tools.search("music")
                await host.embeddings.wait()
                yield host


async def first(host: Host, query: str) -> str | None:
    hits = (await host.tools.search(query)).hits
    return hits[0].key.tool if hits else None


@pytest.mark.parametrize("refused", ["", "  ", "x " * 900, "???"])
async def test_a_query_that_the_model_refuses_does_not_cost_the_next_one(
    machine: Machine, tmp_path: Path, refused: str
) -> None:
    def embed(texts: Sequence[str]) -> list[list[float]] | int:
        if any(not text.strip() or len(text) > 1_000 for text in texts):
            return 400
        return [[0.0] * 8 if text == "???" else vector(text) for text in texts]

    async with searching(machine, tmp_path, embed) as host:
        await host.tools.search(refused)
        assert await first(host, WITHOUT_A_WORD) == "forecast"


@pytest.mark.parametrize("answer", [[0.0] * 8, [1.0] * 9, 400, 500], ids=str)
async def test_a_tool_that_the_model_refuses_costs_no_other_its_vector(
    machine: Machine, tmp_path: Path, answer: list[float] | int
) -> None:
    def embed(texts: Sequence[str]) -> list[list[float]] | int:
        cursed = [text for text in texts if "cursed" in text]
        if cursed and isinstance(answer, int):
            return answer
        return [answer if text in cursed and isinstance(answer, list) else vector(text) for text in texts]

    async with searching(machine, tmp_path, embed) as host:
        assert await first(host, WITHOUT_A_WORD) == "forecast"
        assert await first(host, "cursed text") == "cursed"
        assert host.store is not None
        assert all(value.value for value in await host.store.scan(NAMESPACE))


async def test_a_model_that_refuses_everything_is_asked_two_times_and_left_alone(
    machine: Machine, tmp_path: Path
) -> None:
    asked: list[int] = []

    def embed(texts: Sequence[str]) -> int:
        asked.append(len(texts))
        return 400

    async with searching(machine, tmp_path, embed) as host:
        assert await first(host, "play music") == "play_song"
    assert len(asked) == 2


async def test_vectors_are_made_anew_for_another_model_of_the_same_name(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "PAUSE_SECONDS", 0.0)
    size = 8

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [vector(text, size) for text in texts]

    async with searching(machine, tmp_path, embed) as host:
        assert await first(host, WITHOUT_A_WORD) == "forecast"
        size = 5
        assert await first(host, "is a raincoat useful") is None  # by words, this once
        await first(host, "raincoats")
        await host.embeddings.wait()
        assert await first(host, WITHOUT_A_WORD) == "forecast"
        assert host.store is not None
        assert {len(value.value) for value in await host.store.scan(NAMESPACE)} == {5 * 4}
