import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.catalog.search.index import Index, SearchDocument
from fairlead.catalog.search.search import search
from fairlead.catalog.tools import ToolKey
from tests.catalog.tools import TOOLS, document

QUERIES = ["find symbol", "list issues of a repository", "weather in a city", "file", "get", "escalated"]


def results(index: Index) -> list[list[tuple[ToolKey, float]]]:
    return [[(hit.key, hit.score) for hit in search(index, query, limit=20)] for query in QUERIES]


def of(server_id: str) -> list[SearchDocument]:
    return [tool for tool in TOOLS if tool.key.server_id == server_id]


def test_an_index_knows_how_many_tools_it_has() -> None:
    assert len(Index()) == 0
    assert len(Index.build(TOOLS)) == len(TOOLS)


def test_of_two_tools_with_one_key_the_first_counts() -> None:
    first, second = document("s", "tool", "Paint a wall."), document("s", "tool", "Bake a cake.")
    index = Index.build([first, second])
    assert len(index) == 1
    assert search(index, "wall")
    assert not search(index, "cake")


def test_replacing_a_server_leaves_the_index_before_as_it_was() -> None:
    index = Index.build(TOOLS)
    before = results(index)
    changed = index.replace("weather", [document("weather", "tide_table", "High and low water.")])
    assert results(index) == before
    assert search(index, "warnings")
    assert not search(index, "tide")
    assert not search(changed, "warnings")
    assert search(changed, "tide")
    assert len(changed) == len(index) - 1


def test_a_server_without_tools_is_gone() -> None:
    index = Index.build(TOOLS).replace("github", [])
    assert "github" not in index.servers
    assert not search(index, "repository")
    assert len(index) == len(TOOLS) - len(of("github"))
    assert index.replace("github", []) is index


def test_the_same_tools_again_are_the_same_index() -> None:
    index = Index.build(TOOLS)
    assert index.replace("github", reversed(of("github"))) is index


def test_only_changed_tools_are_read_again() -> None:
    index = Index.build(TOOLS)
    first, *others = of("github")
    changed = index.replace("github", [replace(first, description="Something else."), *others])
    kept = {tool.key for tool in index.tools if any(tool is other for other in changed.tools)}
    assert kept == {tool.key for tool in TOOLS} - {first.key}


def test_a_changed_tool_stays_where_it_is_and_shares_what_did_not_change() -> None:
    index = Index.build(TOOLS)
    first, *others = of("github")
    changed = index.replace("github", [replace(first, description=f"{first.description} Anew."), *others])
    [before], [after] = (
        [slot for slot, tool in enumerate(each.tools) if tool.key == first.key] for each in (index, changed)
    )
    assert after == before
    assert search(changed, "anew")[0].key == first.key
    assert changed.postings["weather"] is index.postings["weather"]
    assert all(changed.names[ending] is slots for ending, slots in index.names.items())


def test_a_tool_may_change_its_name() -> None:
    first, *others = of("weather")
    changed = Index.build(TOOLS).replace("weather", [replace(first, name="tide_table"), *others])
    assert search(changed, "select:tide_table")[0].key == first.key
    assert all(hit.why.name is None for hit in search(changed, f"select:{first.name}"))
    assert len(changed) == len(TOOLS)


def test_what_a_server_says_of_itself_holds_for_all_its_tools() -> None:
    index = Index.build(TOOLS)
    assert {hit.key.server_id for hit in search(index, "earth")} == {"weather"}
    anew = [replace(tool, server_description="Tides and currents.") for tool in of("weather")]
    changed = index.replace("weather", anew)
    assert not search(changed, "earth")
    assert {hit.key.tool for hit in search(changed, "currents")} == {"get_forecast", "get_alerts"}


@given(st.randoms(use_true_random=False))
def test_results_do_not_depend_on_how_the_index_came_about(chance: random.Random) -> None:
    index = Index()
    servers = sorted({tool.key.server_id for tool in TOOLS})
    for _ in range(8):
        server_id = chance.choice(servers)
        index = index.replace(server_id, chance.sample(of(server_id), chance.randint(0, len(of(server_id)))))
    chance.shuffle(servers)
    for server_id in servers:
        index = index.replace(server_id, of(server_id))
    assert len(index) == len(TOOLS)
    assert results(index) == results(Index.build(TOOLS))


def test_a_term_in_the_server_and_in_the_tool_counts_as_in_one_text() -> None:
    plain = document("s", "sail", "Sail a boat.")
    both = replace(plain, server_description="Boats.")
    [once], [twice] = search(Index.build([plain]), "boat"), search(Index.build([both]), "boat")
    assert once.why.terms[0][1] < twice.why.terms[0][1] < 2 * once.why.terms[0][1]


def test_parameters_are_searched_however_deep() -> None:
    schema: dict[str, Any] = {
        "properties": {"order": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Order"}]}},
        "$defs": {"Order": {"properties": {"lines": {"items": {"properties": {"voucher": {}}}}}}},
    }
    index = Index.build([replace(document("shop", "buy"), input_schema=schema)])
    assert search(index, "voucher")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5},
        {"properties": {"a": None, "b": True, "c": {"enum": 3, "description": 4, "items": []}}},
        {"anyOf": {"type": "string"}},
        {"properties": {"a": {"enum": ["x", 1, None]}}},
    ],
)
def test_a_schema_of_any_shape_can_be_indexed(schema: dict[str, Any]) -> None:
    assert search(Index.build([replace(document("s", "paint"), input_schema=schema)]), "paint")


def test_a_schema_that_goes_deep_does_not_take_the_index_along() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"properties": {"inner": schema}}
    assert len(Index.build([replace(document("s", "paint"), input_schema=schema)])) == 1


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("text", ["'" + "/" * 40_000, "'" + "a/" * 20_000, "'/ " * 13_000, "'" * 40_000])
def test_a_quote_that_does_not_end_is_read_in_a_time_that_grows_with_its_length(text: str) -> None:
    schema = {"properties": {f"p{number}": {"description": text} for number in range(20)}}
    began = time.process_time()
    Index.build([replace(document("s", "paint"), input_schema=schema)])
    assert time.process_time() - began < 2  # it was minutes


def test_the_data_of_examples_is_not_what_a_tool_is_about() -> None:
    zone = {"description": "A zone, such as 'Asia/Tokyo', \"a@b.org\" or `x:y`, 'plain' or it's o'clock/now."}
    index = Index.build([document("s", "paint", zone=zone)])
    assert not any(search(index, word) for word in ("tokyo", "org", "y"))
    assert all(search(index, word) for word in ("zone", "plain", "clock", "now"))


def test_a_name_without_letters_can_be_indexed() -> None:
    index = Index.build([document("s", "***", "Paint a wall.")])
    assert search(index, "wall")
    assert not search(index, "***")
