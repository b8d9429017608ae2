"""Search with an embeddings API that hangs and comes back, what it is sent and what is kept of it."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fairlead.catalog.catalog import Catalog, CatalogPart
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.models import EmbeddingSettings
from fairlead.config.secrets.masking import SECRETS
from fairlead.host.host import Host
from fairlead.host.model import embeddings
from fairlead.host.model.embeddings import NAMESPACE
from fairlead.testing import ScriptedServer
from tests.conftest import Machine

SECONDS = 60
TOPICS = {"courier": 0, "music": 1, "rain": 2}
WITHOUT_A_WORD = "take a raincoat"


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("dispatch_courier", "Hand a package to a courier.", recipient_address={"type": "string"}),
    tool("play_song", "Play music."),
    tool("forecast", "Tell whether it will rain tomorrow."),
]


class Model:
    """A model behind an API, which answers while `answers` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = anyio.Event()
        self.answers.set()

    async def answer(self, request: web.Request) -> web.Response:
        texts: Sequence[str] = (await request.json())["input"]
        self.asked += texts
        await self.answers.wait()
        vectors = [[1.0 if word in text.lower() else 0.01 for word in TOPICS] for text in texts]
        return web.json_response({"data": [{"index": at, "embedding": v} for at, v in enumerate(vectors)]})


@asynccontextmanager
async def serving(model: Model) -> AsyncGenerator[dict[str, str]]:
    """The settings of a model that is served."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", model.answer)
    with anyio.fail_after(SECONDS):
        async with TestServer(app, shutdown_timeout=0) as served:
            yield {"url": str(served.make_url("/v1")), "model": "m"}


@asynccontextmanager
async def searching(machine: Machine, tmp_path: Path, model: Model) -> AsyncGenerator[Host]:
    """A host whose model has had its turn with the tools."""
    async with serving(model) as settings:
        entry = ScriptedServer(tmp_path / "record", tools=TOOLS).entry()
        document = {"servers": {"x": entry}, "search": {"embeddings": settings, "memory": False}}
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            await host.tools.search("music")
            await host.embeddings.wait()
            yield host


async def found(host: Host, query: str) -> list[str]:
    return [hit.key.tool for hit in (await host.tools.search(query)).hits]


async def test_only_the_first_search_waits_for_a_model_that_hangs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    async with searching(machine, tmp_path, model) as host:
        assert (await found(host, WITHOUT_A_WORD))[0] == "forecast"
        model.answers = anyio.Event()
        monkeypatch.setattr(embeddings, "PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(embeddings, "QUERY_SECONDS", 0.1)
        assert await found(host, "wear a raincoat") == []
        monkeypatch.setattr(embeddings, "QUERY_SECONDS", 10 * SECONDS)
        for _ in range(3):  # though it is time to try again: that is done beside them
            assert await found(host, "wear a raincoat") == []
            assert await found(host, "play music") == ["play_song"]
        model.answers.set()
        await host.embeddings.wait()
        assert model.asked.count("search") == 1
        assert (await found(host, "wear a raincoat"))[0] == "forecast"


async def test_a_model_that_still_hangs_is_tried_again_later(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    async with searching(machine, tmp_path, model) as host:
        model.answers = anyio.Event()
        monkeypatch.setattr(embeddings, "PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(embeddings, "QUERY_SECONDS", 0.1)
        assert await found(host, "wear a raincoat") == []
        for trials in (1, 2):
            assert await found(host, "wear a raincoat") == []
            await host.embeddings.wait()
            assert model.asked.count("search") == trials


async def test_a_vector_that_is_pushed_out_while_others_are_made_is_not_missed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_KNOWN_QUERIES", 2)
    model = Model()
    async with searching(machine, tmp_path, model) as host:
        await host.tools.search("rain")
        monkeypatch.setattr(embeddings, "QUERY_SECONDS", SECONDS)
        model.answers = anyio.Event()
        hits: list[str] = []

        async def search_both() -> None:
            outcome = await host.tools.search(["rain", "a courier"])
            hits.extend(hit.key.tool for hit in outcome.hits)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(search_both)
            with anyio.fail_after(SECONDS):
                while "a courier" not in model.asked:  # noqa: ASYNC110 - a server has it
                    await anyio.sleep(0.01)
            waiting, model.answers = model.answers, anyio.Event()
            model.answers.set()
            for other in ("one", "two", "three"):
                await host.tools.search(other)
            waiting.set()
        assert {"forecast", "dispatch_courier"} <= {*hits}


async def test_a_secret_in_a_query_is_not_sent(machine: Machine, tmp_path: Path) -> None:
    model = Model()
    async with searching(machine, tmp_path, model) as host:
        SECRETS.learn("correct-horse-battery-staple")
        await found(host, "rain with correct-horse-battery-staple")
        assert model.asked[-1].startswith("rain with ")
        assert "correct-horse" not in model.asked[-1]


async def test_the_names_of_parameters_are_part_of_what_is_embedded(machine: Machine, tmp_path: Path) -> None:
    model = Model()
    async with searching(machine, tmp_path, model):
        [text] = [text for text in model.asked if "courier" in text]
        assert "recipient" in text


async def test_catalogs_that_are_in_use_keep_their_vectors_beside_each_other(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bundles of a host, each with more tools than may be spare."""
    monkeypatch.setattr(embeddings, "_SPARE", 0)

    def catalog(server_id: str, count: int) -> Catalog:
        entries = [
            ToolEntry(
                key=ToolKey(server_id, f"{server_id}_{each}"),
                definition=json.dumps({"name": f"{server_id}_{each}", "inputSchema": {}}).encode(),
                description=f"Rain {each}.",
            )
            for each in range(count)
        ]
        return Catalog([CatalogPart(server_id=server_id, tools=tuple(entries))])

    async def make(host: Host, settings: EmbeddingSettings, catalog: Catalog) -> None:
        if await host.embeddings.compare(settings, catalog, "rain") is None:
            await host.embeddings.wait()
            assert await host.embeddings.compare(settings, catalog, "rain") is not None

    model = Model()
    async with (
        serving(model) as served,
        Host.open(overrides={"servers": {}}, env=machine.env, cwd=machine.project) as host,
    ):
        assert host.store is not None
        settings = EmbeddingSettings(**served)
        many, few = catalog("many", 9), catalog("few", 2)
        await make(host, settings, many)
        await make(host, settings, few)
        assert len(await host.store.scan(NAMESPACE)) == 11
        del many
        await make(host, settings, catalog("other", 2))
        assert len(await host.store.scan(NAMESPACE)) == 4
