import random
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.catalog.search import score
from fairlead.catalog.search.array_scores import ArraySums
from fairlead.catalog.search.index import CHAMPIONS, Index, SearchDocument
from fairlead.catalog.search.query import read_query, weigh_clauses
from fairlead.catalog.search.search import SearchHit, search
from fairlead.catalog.search.sums import PlainSums
from tests.catalog.search.test_vectors import vectors
from tests.catalog.tools import TOOLS, document

WORDS = (
    *("find", "list", "paint", "sail", "read", "write", "delete", "get"),
    *("file", "wall", "boat", "issue", "weather", "city", "user", "report"),
)
INDEX = Index.build(TOOLS)

chances = st.integers(0, 2**32).map(random.Random)
"""Catalogs and questions are large: drawn one by one from what Hypothesis gives they take seconds."""


@contextmanager
def arrays_from(count: int) -> Generator[None]:
    """Within this, arrays are used for so many tools, or more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "MANY_TOOLS", count)
        yield


def in_both_ways(index: Index, queries: str | list[str], **rest: object) -> tuple[SearchHit, ...]:
    """The hits, which must be the same: tools, order, scores and reasons."""
    with arrays_from(10**9):
        expected = search(index, queries, limit=20, **rest)  # pyright: ignore[reportArgumentType]
    with arrays_from(0):
        found = search(index, queries, limit=20, **rest)  # pyright: ignore[reportArgumentType]
    assert found == expected
    return found


def catalog(chance: random.Random, *, tools: int) -> list[SearchDocument]:
    """Tools that have so few words among them that many fit a query equally well."""

    def text(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(0, most)))

    about = [text(5) for _ in range(max(tools // 6, 1))]
    servers = [chance.randrange(len(about)) for _ in range(tools)]
    return [
        replace(
            document(f"server{server}", f"{text(3).replace(' ', '_')}_{number}", text(12)),
            server_description=about[server],
        )
        for number, server in enumerate(servers)
    ]


def question(chance: random.Random) -> str:
    steps = [" ".join(chance.choices([*WORDS, "nowhere"], k=chance.randint(1, 7))) for _ in range(9)]
    return ". ".join(steps[: chance.randint(1, 9)])


@settings(max_examples=40)
@given(chances, st.integers(1, 3 * CHAMPIONS))
def test_with_arrays_and_without_a_search_finds_the_same(chance: random.Random, tools: int) -> None:
    index = Index.build(catalog(chance, tools=tools))
    for _ in range(8):
        in_both_ways(index, question(chance))
    in_both_ways(index, [question(chance), question(chance)])
    in_both_ways(index, question(chance), server=chance.choice([*index.servers]))


@settings(max_examples=20)
@given(chances)
def test_sums_are_the_same_to_the_last_bit(chance: random.Random) -> None:
    index = Index.build(catalog(chance, tools=200))
    [query] = read_query(question(chance))
    clauses = weigh_clauses(index, query)
    slots = chance.sample(range(200), 50)
    plain, arrays = PlainSums(index, clauses), ArraySums(index, clauses)
    assert arrays.together(slots) == plain.together(slots)
    assert arrays.of_each(slots) == plain.of_each(slots)
    assert arrays.candidates(10, None) == plain.candidates(10, None)
    assert arrays.candidates(10, slots) == plain.candidates(10, slots)


@settings(max_examples=20)
@given(chances)
def test_a_changed_server_is_found_by_what_it_says_now(chance: random.Random) -> None:
    index = Index.build(catalog(chance, tools=150))
    for _ in range(4):
        in_both_ways(index, question(chance))
        server_id = f"server{chance.randrange(30)}"
        anew = catalog(chance, tools=chance.randint(0, 12))
        moved = [replace(tool, key=replace(tool.key, server_id=server_id)) for tool in anew]
        index = index.replace(server_id, moved)
    in_both_ways(index, question(chance))


@pytest.mark.parametrize(
    "queries",
    [
        "find symbol",
        "select:find_symbol, forecast",
        "select:no_such_tool",
        "nowhere",
        "",
        ["weather", "the weather tomorrow", "nowhere"],
        "List the issues of a repository. Then post a message in a channel. Finally, list the issues again.",
    ],
)
def test_every_kind_of_query_finds_the_same(queries: str | list[str]) -> None:
    for index in (INDEX, Index()):
        in_both_ways(index, queries)
        in_both_ways(index, queries, meaning=vectors(index))
        in_both_ways(index, queries, server="github")


def test_what_was_worked_out_of_postings_is_kept_while_they_stay_as_they_are() -> None:
    chance = random.Random(1)
    index = Index.build([*TOOLS, *catalog(chance, tools=3 * CHAMPIONS)])
    before = {term: (index.columns(term), index.champions(term)) for term in ("symbol", "paint", "rename")}
    renamed = [tool for tool in TOOLS if tool.key.server_id == "serena" and tool.name != "rename_symbol"]
    changed = index.replace("serena", renamed)
    assert changed.columns("paint") is before["paint"][0]
    assert changed.champions("paint") is before["paint"][1]
    assert changed.columns("symbol").length == before["symbol"][0].length - 1
    assert changed.columns("rename").length == 0
    assert index.columns("rename") is before["rename"][0]


def loaded(*, tools: int, missing: bool) -> str:
    """Whether a new process has loaded numpy, and what it finds, after a search among so many tools."""
    without = "sys.modules['numpy'] = None" if missing else ""
    code = (
        f"import sys\n{without}\n"
        "from fairlead.catalog.search.index import Index\n"
        "from fairlead.catalog.search.search import search\n"
        "from tests.catalog.tools import document\n"
        f"index = Index.build([document('s', f'tool_{{n}}', 'Paint a wall.') for n in range({tools})])\n"
        "found = search(index, 'wall')[0].key\n"
        "print(bool(sys.modules.get('numpy')), found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_numpy_is_loaded_only_where_it_is_there_and_pays() -> None:
    assert loaded(tools=score.MANY_TOOLS, missing=False) == "True s/tool_0"
    assert loaded(tools=score.MANY_TOOLS, missing=True) == "False s/tool_0"
    assert loaded(tools=score.MANY_TOOLS - 1, missing=False) == "False s/tool_0"
