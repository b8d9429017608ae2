"""Ranking for an answer: hits, and the other tools of the servers that have the best of them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fairlead.catalog import signatures
from fairlead.catalog.catalog import Catalog, CatalogPart
from fairlead.catalog.search.evaluation import SearchQuestion
from fairlead.catalog.search.index import Index
from fairlead.catalog.search.memory import IsCurrent, MemoryMatch, PastQueries, PastQuery, ToolMemory
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.host.model import search_answers
from fairlead.host.model.search_answers import rank_tools
from fairlead.host.model.search_exam import measure_answers


def part(server_id: str, **descriptions: str) -> CatalogPart:
    entries = [
        ToolEntry(
            key=ToolKey(server_id, name),
            definition=json.dumps({"name": name, "description": text, "inputSchema": {}}).encode(),
            description=text,
        )
        for name, text in descriptions.items()
    ]
    return CatalogPart(server_id=server_id, tools=tuple(entries))


def test_names_of_a_server_with_few_tools_are_ordered_by_score_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_answers, "RANKED", 1)
    few = part("few", print_invoice="Print an invoice.", aaa="Else.", bbb="Nothing.", zzz="A sheet of paper.")
    ranked = rank_tools(Catalog([few]), ["print an invoice on paper"], server=None)
    assert [hit.key.tool for hit in ranked.hits] == ["print_invoice"]
    assert [key.tool for key in ranked.siblings["few"]] == ["zzz", "aaa", "bbb"]


class _CountedPast(PastQueries):
    """Past queries that count how often they are matched."""

    matched = 0

    def match(
        self, index: Index, query_terms: Iterable[str], is_current: IsCurrent
    ) -> dict[ToolKey, MemoryMatch]:
        self.matched += 1
        return super().match(index, query_terms, is_current)


def test_an_answer_is_ranked_once_and_not_again_for_each_of_its_servers() -> None:
    names = {f"handle_case_{each}": "Handle a case." if each % 2 else "Else." for each in range(30)}
    catalog = Catalog([part(f"s{each}", **names, **{f"own_{each}": "Something."}) for each in range(5)])
    past = _CountedPast(
        [
            ToolMemory(
                principal="",
                server_id="s0",
                tool="handle_case_0",
                definition_digest="",
                queries=[PastQuery(text="handle a case", sessions=["a"], last_used=1.0)],
            )
        ]
    )
    ranked = rank_tools(catalog, ["handle a case"], server=None, past=past)
    assert past.matched == 1
    assert ranked.siblings
    for keys in ranked.siblings.values():
        assert [key.tool for key in keys][-1].startswith("own_")


def test_answers_of_one_server_are_measured_among_its_tools() -> None:
    catalog = Catalog([part("a", print_invoice="Print an invoice."), part("b", print_bill="Print a bill.")])
    question = SearchQuestion(
        question_id="1", text="print", gold=(frozenset({"b.print_bill"}),), searches=("print",)
    )
    keys = {f"{tool.key.server_id}.{tool.key.tool}": tool.key for tool in catalog.tools}
    shown: Callable[[str | None], float] = lambda server: (  # noqa: E731
        measure_answers(catalog, [question], keys.get, server=server).signatures
    )
    assert (shown(None), shown("b"), shown("a")) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("content", [b"another vocabulary", b""])
def test_tokens_are_estimated_where_the_vocabulary_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """It would be replaced from the network otherwise."""

    def refuse(name: str) -> object:
        raise AssertionError(name)

    monkeypatch.setattr(signatures, "import_module", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"cl100k")
    (tmp_path / signatures.VOCABULARY).write_bytes(content)
    signatures.exact.cache_clear()
    try:
        assert signatures.exact() is None
    finally:
        signatures.exact.cache_clear()
