"""`fairlead search` with a model behind an OpenAI-compatible API: as the searches of agents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.host.model.test_embeddings import MODEL, TOOLS_OF_SERVER, WITHOUT_A_WORD, EmbeddingServer
from tests.host.model.test_embeddings import embedding_server as embedding_server

Fairlead = Callable[..., Outcome]
needs_model = pytest.mark.skipif(
    not (MODEL / "model.safetensors").exists(), reason="no sentence model: run tests/tools/install"
)


def configure(machine: Machine, tmp_path: Path, url: str) -> None:
    entry = ScriptedServer(tmp_path / "record", tools=TOOLS_OF_SERVER).entry(trust="trusted")
    search: dict[str, Any] = {"embeddings": {"url": url, "model": "minilm"}, "memory": False}
    machine.write_user(json.dumps({"servers": {"x": entry}, "search": search}))


def found(outcome: Outcome) -> list[str]:
    assert outcome.status == 0, outcome.err
    return [tool["tool"] for tool in json.loads(outcome.out)["tools"]]


@needs_model
def test_the_command_finds_a_tool_without_a_word_in_common(
    fairlead: Fairlead, machine: Machine, tmp_path: Path, embedding_server: EmbeddingServer
) -> None:
    configure(machine, tmp_path, embedding_server.url)
    assert found(fairlead("search", WITHOUT_A_WORD, "--json"))[0] == "forecast"
    assert found(fairlead("search", WITHOUT_A_WORD, "--json"))[0] == "forecast"
    assert embedding_server.requests == ["minilm 4", "minilm 1", "minilm 1"], "vectors of tools are kept"


@needs_model
def test_questions_are_measured_with_the_model(
    fairlead: Fairlead, machine: Machine, tmp_path: Path, embedding_server: EmbeddingServer
) -> None:
    configure(machine, tmp_path, embedding_server.url)
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"id": "1", "query": WITHOUT_A_WORD, "gold": [["x.forecast"]]}))
    report = json.loads(fairlead("search", "--eval", str(questions), "--json").out)
    assert (report["recall@5"], report["shown_as_signature"]) == (1.0, 1.0)


def test_the_command_searches_by_words_when_the_model_is_away(
    fairlead: Fairlead, machine: Machine, tmp_path: Path
) -> None:
    configure(machine, tmp_path, "http://127.0.0.1:1/v1")
    shown = fairlead("search", "play", "music", "--json")
    assert found(shown) == ["play_song"]
    assert "the search is by words" in shown.err
    assert found(fairlead("search", WITHOUT_A_WORD, "--json")) == []
