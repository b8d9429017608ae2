from collections.abc import Iterator
from dataclasses import fields
from itertools import chain

import pytest

from fairlead.catalog.search import memory as memory_module
from fairlead.catalog.search.index import Index
from fairlead.catalog.search.memory import (
    MOST_QUERIES_OF_TOOL,
    MOST_QUERY_CHARACTERS,
    MOST_SESSIONS,
    CurrentMemory,
    PastQueries,
    PastQuery,
    ToolMemory,
)
from fairlead.catalog.search.query import read_query, split_clauses
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


def test_one_session_alone_lifts_no_tool_over_the_best_match_by_words() -> None:
    """Also not one that has some of the words, as a tool made to be called by mistake would."""
    index = Index.build(
        [
            document("github", "create_issue", "Create an issue in a repository."),
            document("evil", "log_issue", "Log an issue to the tracker."),
            document("evil", "note_issue", "Note an issue."),
            document("fs", "read_file", "Read a file."),
        ]
    )
    query = "create an issue in the repository"

    def found(*remembered: ToolMemory) -> list[str]:
        return [hit.key.tool for hit in search(index, query, memory=recalling(*remembered))]

    led, other = ToolKey("evil", "log_issue"), ToolKey("evil", "note_issue")
    assert found(memory_of(led, query))[:2] == ["create_issue", "log_issue"]
    assert found(memory_of(led, query, "log an issue"), memory_of(other, query))[0] == "create_issue"
    # What another session asked of the tool has to be like the query, too.
    astray = memory_of(led, query)
    astray.add(["log what the tracker says about an issue"], "another session", 3.0)
    assert found(astray)[0] == "create_issue"
    assert found(memory_of(led, query, sessions=2))[0] == "log_issue"
    own = found(memory_of(ToolKey("github", "create_issue"), query))
    assert own[0] == "create_issue"


def test_of_tools_that_one_session_each_was_led_to_the_likelier_stays_first() -> None:
    near = memory_of(NOTE.key, "ship the website to the customers of tomorrow")
    same = memory_of(DEPLOY.key, "ship the website")
    assert names("ship the website", near, same) == ["ship_parcel", "rollout", "jot"]


def test_a_query_without_terms_is_neither_remembered_nor_matched() -> None:
    blank = memory_of(DEPLOY.key, "help", "???", "what can you do")
    assert blank.queries == []
    # Earlier versions remembered them.
    blank.queries = [PastQuery(text="help", sessions=["one"], last_used=1.0)]
    for query in ("help", "???", "what can you do", "", "ship a parcel"):
        assert names(query, blank) == names(query)


def test_words_between_clauses_do_not_hide_the_same_query() -> None:
    text = "open the branch next push my commit finally merge the pull request"
    often = [memory_of(ToolKey("other", f"t{each}"), f"push branch {each}") for each in range(300)]
    crowd = [memory_of(ToolKey("o", f"t{each}"), f"{text} {each}") for each in range(120)]
    past = PastQueries([memory_of(DEPLOY.key, text, sessions=2), *often, *crowd])
    [query] = read_query(text)
    match = past.match(INDEX, chain.from_iterable(query.clauses), is_there)[DEPLOY.key]
    assert match.score > 0.8


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

    def count(text: str) -> Iterator[tuple[str, ...]]:
        read.append(text)
        return split_clauses(text)

    monkeypatch.setattr(memory_module, "split_clauses", count)
    before = PastQueries([memory_of(DEPLOY.key, "ship the website"), memory_of(NOTE.key, "buy milk")])
    now = [memory_of(DEPLOY.key, "ship the website"), memory_of(NOTE.key, "buy milk", "ship milk")]
    read.clear()
    after = PastQueries(now, before)
    assert read == ["buy milk", "ship milk"]
    for words in (["ship"], ["milk"], ["ship", "websit"]):
        assert after.match(INDEX, words, is_there) == PastQueries(now).match(INDEX, words, is_there)


def test_a_tool_that_is_put_into_the_past_is_as_if_all_was_read_anew() -> None:
    milk = memory_of(NOTE.key, "buy milk")
    past = PastQueries([memory_of(DEPLOY.key, "ship the website", "roll it out"), milk])
    grown = memory_of(DEPLOY.key, "ship the website")
    for number in range(5):
        grown.add(["ship the website", f"ship version {number}"], f"later {number}", 10.0 + number)
        past.put(grown)
        anew = PastQueries([grown, milk])
        assert len(past) == len(anew) == 2 + len(grown.queries) - 1
        for words in (["ship"], ["milk"], ["ship", "websit"], ["roll"], ["version", "ship"]):
            assert past.match(INDEX, words, is_there) == anew.match(INDEX, words, is_there)
    other = memory_of(NOTE.key, "ship milk", digest="changed")
    past.put(other)
    assert past.match(INDEX, ["milk"], is_there) == PastQueries([grown, other]).match(
        INDEX, ["milk"], is_there
    )


def test_searches_of_two_catalogs_at_once_do_not_mix_how_rare_words_are() -> None:
    """Rarities are worked out for an index once, and two threads may search two indexes."""
    other = Index.build([document("b", f"u{each}", f"other thing{each}") for each in range(40)])
    past = PastQueries([memory_of(DEPLOY.key, "ship the website"), memory_of(NOTE.key, "ship thing1")])
    alone = [past.match(index, ["ship", "websit"], is_there) for index in (INDEX, other)]

    class _Interrupting(Index):
        """Another search of the same past takes place while a word's rarity is looked up."""

        def rarity(self, term: str) -> float:
            past.match(other, ["ship", "thing1"], is_there)
            return super().rarity(term)

    interrupted = _Interrupting(**{field.name: getattr(INDEX, field.name) for field in fields(INDEX)})
    assert past.match(interrupted, ["ship", "websit"], is_there) == alone[0]
    assert past.match(interrupted, ["ship", "websit"], is_there) == alone[0]
    assert past.match(other, ["ship", "websit"], is_there) == alone[1]


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
