import pytest

from fairlead.catalog.search import memory as memory_module
from fairlead.catalog.search.index import Index
from fairlead.catalog.search.memory import (
    MOST_QUERIES_OF_TOOL,
    MOST_QUERY_CHARACTERS,
    MOST_SESSIONS,
    CurrentMemory,
    PastQueries,
    ToolMemory,
)
from fairlead.catalog.search.search import search
from fairlead.catalog.search.tokenize import terms
from fairlead.catalog.tools import ToolKey
from tests.catalog.tools import document

DEPLOY = document("ops", "rollout", "Roll a version out to a stage.")
NOTE = document("notes", "jot", "Jot something down.")
SHIP = document("mail", "ship_parcel", "Ship a parcel to an address.")
INDEX = Index.build([DEPLOY, NOTE, SHIP])


def memory_of(tool: ToolKey, *texts: str, sessions: int = 1, digest: str = "now") -> ToolMemory:
    memory = ToolMemory(
        principal="local", server_id=tool.server_id, tool=tool.tool, definition_digest=digest, queries=[]
    )
    for number in range(sessions):
        memory.add(texts, f"session {number}", 1.0 + number)
    return memory


def is_there(key: ToolKey, digest: str) -> bool:
    return True


def recalling(*remembered: ToolMemory) -> CurrentMemory:
    return CurrentMemory(PastQueries(remembered), lambda _, digest: digest == "now")


def names(query: str, *remembered: ToolMemory) -> list[str]:
    return [hit.key.tool for hit in search(INDEX, query, memory=recalling(*remembered))]


def test_a_tool_is_found_by_what_was_asked_before_it_was_called() -> None:
    assert names("ship the website") == ["ship_parcel"]
    assert names("ship the website", memory_of(DEPLOY.key, "ship the website", sessions=2))[0] == "rollout"
    twice = memory_of(DEPLOY.key, "ship the website", sessions=2)
    assert names("the website is to be shipped", twice)[0] == "rollout"
    # One session alone may have been led astray.
    assert names("ship the website", memory_of(DEPLOY.key, "ship the website")) == ["ship_parcel", "rollout"]


def test_a_memory_of_other_things_changes_nothing() -> None:
    assert names("ship a parcel", memory_of(NOTE.key, "buy milk")) == names("ship a parcel")


def test_a_tool_that_changed_is_not_remembered() -> None:
    old = memory_of(DEPLOY.key, "ship the website", digest="before")
    assert names("ship the website", old) == ["ship_parcel"]


def test_a_tool_that_is_gone_is_not_remembered() -> None:
    assert names("ship the website", memory_of(ToolKey("gone", "x"), "ship the website")) == ["ship_parcel"]


def test_a_hit_says_what_it_was_remembered_by() -> None:
    memory = recalling(memory_of(DEPLOY.key, "ship the website", sessions=2))
    [first, *_] = search(INDEX, "ship the website", memory=memory)
    assert first.why.remembered is not None
    assert first.why.remembered[0] == "ship the website"
    assert "called before after 'ship the website'" in str(first.why)


def test_one_session_gains_nothing_by_repetition_and_several_do() -> None:
    once, often = memory_of(DEPLOY.key, "ship the website"), memory_of(DEPLOY.key, "ship the website")
    for _ in range(100):
        often.add(["ship the website"], "session 0", 2.0)
    [match] = PastQueries([once]).match(INDEX, ["ship", "websit"], is_there).values()
    [same] = PastQueries([often]).match(INDEX, ["ship", "websit"], is_there).values()
    several = memory_of(DEPLOY.key, "ship the website", sessions=20)
    [more] = PastQueries([several]).match(INDEX, ["ship", "websit"], is_there).values()
    assert match.score == same.score < more.score <= 1
    assert len(several.queries[0].sessions) == MOST_SESSIONS


def test_one_session_gains_nothing_by_other_words_for_the_same() -> None:
    texts = ["ship the website", "ship our website", "the website is to be shipped", "website: ship it now"]
    once, reworded = memory_of(DEPLOY.key, texts[0]), memory_of(DEPLOY.key, *texts)
    assert names("ship a website", once) == names("ship a website", reworded) == ["ship_parcel", "rollout"]
    assert names("ship a website", memory_of(DEPLOY.key, *texts, sessions=2))[0] == "rollout"


def test_many_queries_of_one_server_do_not_keep_out_those_of_another() -> None:
    mine = memory_of(DEPLOY.key, "ship the website", sessions=2)
    crowd = [
        memory_of(ToolKey("crowd", f"tool_{tool}"), *[f"ship the website {tool} {n}" for n in range(9)])
        for tool in range(3)
    ]
    found = PastQueries([mine, *crowd]).match(INDEX, ["ship", "websit"], is_there)
    assert max(found, key=lambda key: found[key].score) == DEPLOY.key


def test_the_same_query_again_is_found_among_any_number_that_share_its_words() -> None:
    often = [memory_of(ToolKey("other", f"t{each}"), f"ship the website v{each}") for each in range(300)]
    wanted = memory_of(DEPLOY.key, "ship the website", sessions=2)
    for remembered in ((wanted, *often), (*often, wanted)):
        match = PastQueries(remembered).match(INDEX, terms("the website to ship"), is_there)[DEPLOY.key]
        assert match.text == "ship the website"


def test_of_many_queries_with_a_word_the_newest_are_looked_at() -> None:
    often = [memory_of(ToolKey("other", f"t{each}"), f"ship item{each}") for each in range(300)]
    new = memory_of(DEPLOY.key)
    new.add(["ship website"], "s", 1e9)
    assert DEPLOY.key in PastQueries([new, *often]).match(INDEX, terms("ship it today"), is_there)


def test_of_a_memory_that_grew_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def count(text: str) -> list[str]:
        read.append(text)
        return terms(text)

    monkeypatch.setattr(memory_module, "terms", count)
    before = PastQueries([memory_of(DEPLOY.key, "ship the website"), memory_of(NOTE.key, "buy milk")])
    now = [memory_of(DEPLOY.key, "ship the website"), memory_of(NOTE.key, "buy milk", "ship milk")]
    read.clear()
    after = PastQueries(now, before)
    assert read == ["buy milk", "ship milk"]
    for words in (["ship"], ["milk"], ["ship", "websit"]):
        assert after.match(INDEX, words, is_there) == PastQueries(now).match(INDEX, words, is_there)


def test_so_many_queries_of_a_tool_are_remembered_and_the_oldest_go_first() -> None:
    memory = memory_of(DEPLOY.key)
    for number in range(MOST_QUERIES_OF_TOOL + 5):
        memory.add([f"query {number} " + "x" * 1000], "s", float(number))
    assert len(memory.queries) == MOST_QUERIES_OF_TOOL
    assert min(past.last_used for past in memory.queries) == 5.0
    assert all(len(past.text) <= MOST_QUERY_CHARACTERS for past in memory.queries)


def test_a_memory_ages() -> None:
    memory = memory_of(DEPLOY.key, "ship it", sessions=1)
    memory.add(["send it"], "s", 10.0)
    memory.age(5.0)
    assert [past.text for past in memory.queries] == ["send it"]


def test_a_name_comes_before_what_is_remembered() -> None:
    assert names("ship_parcel", memory_of(DEPLOY.key, "ship_parcel"))[0] == "ship_parcel"
    assert names("select:ship_parcel", memory_of(DEPLOY.key, "ship_parcel")) == ["ship_parcel"]


def test_only_the_tools_of_one_server_where_that_is_asked_for() -> None:
    memory = recalling(memory_of(DEPLOY.key, "ship the website"))
    assert [hit.key.tool for hit in search(INDEX, "ship the website", server="mail", memory=memory)] == [
        "ship_parcel"
    ]
