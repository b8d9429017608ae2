import random
import subprocess
import sys
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import read_query, weigh_clauses
from fairlead.catalog.search.search import MOST_HITS, search
from fairlead.catalog.tools import ToolKey
from tests.catalog.tools import TOOLS, document

INDEX = Index.build(TOOLS)


def names(query: str | list[str], index: Index = INDEX, **rest: object) -> list[str]:
    return [hit.key.tool for hit in search(index, query, **rest)]  # pyright: ignore[reportArgumentType]


# ── by name ──


@pytest.mark.requirement("NEED-11")
@pytest.mark.parametrize(
    "query",
    [
        "find_symbol",
        "find symbol",
        "findSymbol",
        "FIND-SYMBOL",
        "serena.find_symbol",
        "serena/find_symbol",
        "mcp__serena__find_symbol",
        "mcp_serena_find_symbol",
        "select:find_symbol",
        "Select: serena.find_symbol",
        "use `find_symbol` to see where renaming symbols in referencing code goes wrong",
    ],
)
def test_a_tool_called_by_its_name_comes_first(query: str) -> None:
    assert names(query)[0] == "find_symbol"


@pytest.mark.requirement("NEED-11")
def test_names_in_a_sentence_are_the_words_that_can_be_nothing_else() -> None:
    [query] = read_query(
        "Use\t`find_symbol`,\nthen fs.read_file (or postMessage). No U.S. state\x1cand: nothing_"
    )
    assert query.names[1:] == ("find_symbol", "fs.read_file", "postMessage", "U.S")


@pytest.mark.requirement("NEED-11")
def test_every_tool_is_first_when_asked_for_by_name() -> None:
    for tool in TOOLS:
        assert names(tool.name)[0] == tool.name


@pytest.mark.requirement("NEED-11")
def test_a_name_comes_before_tools_that_are_all_about_its_words() -> None:
    rival = document("rival", "symbol_finder", "Find symbol: find a symbol, find any symbol, symbol find.")
    assert names("find_symbol", INDEX.replace("rival", [rival]))[0] == "find_symbol"


@pytest.mark.requirement("NEED-11")
def test_a_name_as_it_is_written_comes_before_one_that_is_written_otherwise() -> None:
    index = Index.build(
        [document("a", "get-alerts"), document("b", "get_alerts"), document("c", "getAlerts")]
    )
    for name in ("get-alerts", "get_alerts", "getAlerts"):
        assert names(name, index)[0] == name


@pytest.mark.requirement("NEED-11")
def test_select_takes_short_names() -> None:
    prefixed = document("desk", "desk_tickets_close", "Be done with it.")
    index = INDEX.replace("desk", [prefixed])
    assert names("select:close", index) == ["desk_tickets_close"]
    assert names("select:tickets_close", index) == ["desk_tickets_close"]


def test_select_gives_exactly_what_it_names_however_many() -> None:
    asked = [tool.name for tool in TOOLS[:9]]
    assert sorted(names(f"select:{','.join(asked)}")) == sorted(asked)


def test_select_falls_back_to_words_where_there_is_no_such_name() -> None:
    assert names("select:weather_forecast")[0] == "get_forecast"


def test_a_server_named_with_the_tool_decides_among_namesakes() -> None:
    index = Index.build(
        [document("alpha", "search", "Search it."), document("beta", "search", "Ask around.")]
    )
    assert search(index, "beta.search")[0].key.server_id == "beta"
    assert search(index, "alpha search")[0].key.server_id == "alpha"


def test_one_word_is_a_topic_and_not_the_end_of_a_name() -> None:
    index = Index.build(
        [document("a", "no_weather", "Umbrellas."), document("b", "get", "Weather, weather.")]
    )
    assert all(hit.why.name is None for hit in search(index, "weather"))


def test_a_name_that_thousands_share_is_still_found() -> None:
    index = Index.build([document(f"s{number}", "search", f"Search {number}.") for number in range(1_500)])
    assert len(search(index, "search", limit=20)) == 20


def test_a_server_gains_nothing_by_many_spellings_of_a_name() -> None:
    spellings = ["".join(letters) for letters in product(*zip("readfile", "READFILE", strict=True))][:240]
    crowd = [
        document("a", name, "Read file. " + " ".join(f"z{number}x{each}" for each in range(9)))
        for number, name in enumerate(spellings)
    ]
    index = Index.build([*TOOLS, *crowd])
    for query in ("read file", "read_file", "readFile", "select:read_file"):
        found = [hit.key for hit in search(index, query, limit=2)]
        assert ToolKey("fs", "read_file") in found
    [first, *_] = search(index, "fs.read_file")
    assert first.key == ToolKey("fs", "read_file")
    for spelling in spellings[:3]:
        assert search(index, spelling)[0].key == ToolKey("a", spelling)


def test_a_server_gains_nothing_by_many_names_that_end_as_another() -> None:
    crowd = [document("a", f"x{number}_send_mail", "Send mail.") for number in range(300)]
    index = Index.build([*crowd, document("work", "company_send_mail", "Send mail.")])
    assert {hit.key.server_id for hit in search(index, "send mail", limit=50) if hit.why.name} == {
        "a",
        "work",
    }


# ── by words ──


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What will the weather be like in Oslo?", "get_forecast"),
        ("open a bug report in a repository", "create_issue"),
        ("rename a function", "rename_symbol"),
        ("show the channels", "listChannels"),
        ("read files", "read_file"),
        ("which ones are escalated", "get_queue"),
        ("make a pull request", "create_pull_request"),
        ("messages", "postMessage"),
    ],
)
def test_a_tool_is_found_by_what_it_does(query: str, expected: str) -> None:
    assert expected in names(query)[:3]


def test_each_of_several_steps_finds_its_tool() -> None:
    query = (
        "Read the file notes.txt. Then post it to a channel. Finally get the forecast for the city of Oslo."
    )
    assert {"read_file", "postMessage", "get_forecast"} <= set(names(query))


def test_what_is_too_short_for_a_step_goes_with_its_neighbour() -> None:
    [query] = read_query(
        "Ask Dr. Smith about the weather forecast. Then list the open issues of a repository."
    )
    assert len(query.clauses) == 2
    [first, second] = query.clauses
    assert {"smith", "weather"} <= {*first}
    assert {"list", "issu"} <= {*second}


def test_several_queries_each_get_their_best() -> None:
    assert set(names(["weather forecast", "rename symbol", "post message"])[:3]) == {
        "get_forecast",
        "rename_symbol",
        "postMessage",
    }


def test_several_queries_may_find_the_same_tool_first() -> None:
    both = names(["weather forecast", "forecast"])
    assert both[0] == "get_forecast"
    assert both.count("get_forecast") == 1


def test_two_words_find_what_is_written_as_one() -> None:
    index = Index.build(
        [document("a", "list_webhooks"), document("b", "list_hooks"), document("c", "list_web")]
    )
    assert names("web hooks", index)[0] in {"list_webhooks", "list_hooks"}
    assert "list_webhooks" in names("web hooks", index)


def test_related_words_find_less_than_the_words_themselves() -> None:
    index = Index.build(
        [document("a", "erase_note"), document("b", "delete_note"), document("c", "add_note")]
    )
    assert names("delete the note", index)[:2] == ["delete_note", "erase_note"]


def test_a_word_stands_for_its_topic_and_not_the_other_way_round() -> None:
    index = Index.build(
        [
            document("a", "forecast", "Shows the weather."),
            document("b", "stall", "Sells an umbrella."),
            document("c", "rest", "Does something else."),
        ]
    )
    assert names("will I need an umbrella", index) == ["stall", "forecast"]
    assert names("weather", index) == ["forecast"]


def test_a_word_that_no_tool_has_counts_more_by_what_it_stands_for() -> None:
    weather = document("a", "forecast", "Shows the weather.")
    known, unknown = (
        Index.build([weather, document("b", "stall", f"Sells a {thing}.")])
        for thing in ("umbrella", "parasol")
    )
    [query] = read_query("umbrella")
    impacts = [weigh_clauses(index, query)[0]["weather"] for index in (known, unknown)]
    assert 1.9 * impacts[0] < impacts[1] <= 2 * impacts[0]


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("somewhere to stay for two nights", "find_hotels"),
        ("how do I get rid of this entry", "delete_record"),
        ("tell me whenever the page changes", "create_page_monitor"),
        ("swap all commas for dots", "replace_text"),
        ("how far is it on foot", "get_directions"),
        ("translate this into German", "translate_text"),
        ("is the fridge door closed", "read_device_state"),
    ],
)
def test_everyday_words_find_the_words_of_tools(query: str, tool: str) -> None:
    tools = {
        "find_hotels": "Search hotels and other accommodation.",
        "delete_record": "Deletes a record from a collection.",
        "create_page_monitor": "Creates a monitor for a web page.",
        "replace_text": "Replaces text in a document.",
        "get_directions": "Directions and distance between two locations.",
        "translate_text": "Translates a text to another language.",
        "read_device_state": "Reads the state of a smart home device.",
    }
    index = Index.build([document("x", name, description) for name, description in tools.items()])
    assert names(query, index)[0] == tool


def test_who_says_much_says_it_in_more_than_one_way_and_gets_no_related_words() -> None:
    index = Index.build([document("a", "erase_note", "Erase it."), document("b", "add_tag", "Add a tag.")])
    assert names("delete", index) == ["erase_note"]
    assert names("delete " + " ".join(f"zq{letter}" for letter in "bcdfg"), index) == ["erase_note"]
    assert names("delete " + " ".join(f"zq{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"), index) == []


def test_a_brand_is_found_however_it_is_written() -> None:
    index = Index.build(
        [document("a", "sync", "Sync with GitHub."), document("b", "sync2", "Sync with Jira.")]
    )
    for query in ("github", "GitHub", "Github"):
        assert names(query, index) == ["sync"]


def test_text_without_spaces_is_found() -> None:
    index = Index.build(
        [document("cn", "weather", "查询指定城市的天气预报"), document("cn", "train", "查询火车票余票")]
    )
    assert names("北京的天气", index) == ["weather"]
    assert names("火车票", index)[0] == "train"


def test_only_the_tools_of_one_server_where_that_is_asked_for() -> None:
    assert set(names("list", server="fs")) <= {"read_file", "write_file", "list_directory"}
    assert names("list", server="fs")[0] == "list_directory"
    assert names("find_symbol", server="fs") == []
    assert names("list", server="nowhere") == []


def test_the_best_tools_are_shown_even_if_one_server_has_them_all() -> None:
    crowd = [
        document("crowd", f"note_{word}", "Keep a note.") for word in ("one", "two", "three", "four", "five")
    ]
    other = document("other", "remark", "Keep a remark, or note that there is none.")
    found = search(Index.build([*crowd, other]), "keep a note", limit=5)
    assert [hit.key.server_id for hit in found] == ["crowd"] * 5


TIMES = [
    document("time", "get_current_time", "Get current time in a specific timezone"),
    document("time", "convert_time", "Convert time between timezones, for example to 'Asia/Tokyo'"),
]


def test_a_question_asks_to_get_something() -> None:
    zone = {"type": "object", "properties": {"zone": {"description": "IANA name (e.g., 'Asia/Tokyo')."}}}
    tools = [TIMES[0], replace(TIMES[1], input_schema=zone, description="Convert time between timezones")]
    assert names("what time is it in Tokyo", Index.build(tools)) == ["get_current_time", "convert_time"]
    assert names("convert time to Tokyo", Index.build(tools))[0] == "convert_time"
    for question in (
        "whats the time in Tokyo",
        "tell me the time in Tokyo",
        "Could you please tell me what time it is in Tokyo",
    ):
        assert names(question, Index.build(tools))[0] == "get_current_time"


@pytest.mark.parametrize(
    "query", ["nowhere", "somewhat", "rows where the status is done", "one which is old"]
)
def test_a_word_of_questions_within_a_query_asks_nothing(query: str) -> None:
    [read] = read_query(query)
    assert read.implied == ()


def test_a_value_stands_for_what_it_is() -> None:
    tools = [
        document("fs", "write_file", "Create a new file or overwrite an existing one."),
        document("fs", "read_file", "Read a file."),
        document("mail", "send_email", "Send an email."),
        document("web", "fetch", "Fetch a url."),
        document("notes", "write_memory", "Write a memory."),
    ]
    index = Index.build(tools)
    for query in ("save at /x.md", "Saving the a/b test at ./x.md", "save as x.md", "stored in out/x.json"):
        assert names(query, index)[0] == "write_file"
    assert names("read /x.md", index)[0] == "read_file"
    assert names("tell ada@example.org", index)[0] == "send_email"
    assert names("look at https://example.org/", index)[0] == "fetch"


def test_abbreviations_of_the_trade_are_known() -> None:
    tools = [*TIMES, document("slides", "create_presentation", "Create a new presentation.")]
    assert names("PPT", Index.build(tools)) == ["create_presentation"]


def test_a_server_that_the_query_names_comes_first() -> None:
    tools = [
        document("jira", "create_issue", "Create an issue."),
        document("linear", "create_issue", "Create an issue with cycle, estimate, label and assignee."),
    ]
    for server in ("jira", "linear"):
        [first, *_] = search(Index.build(tools), f"create an issue in {server}")
        assert first.key.server_id == server


def test_the_same_tool_at_two_servers_is_one_hit_that_names_both() -> None:
    index = Index.build([document(account, "send_mail", "Send a mail.") for account in ("home", "work")])
    [hit] = search(index, "send a mail")
    assert (hit.key, hit.twins) == (ToolKey("home", "send_mail"), (ToolKey("work", "send_mail"),))


def test_tools_of_one_name_that_do_different_things_are_two() -> None:
    index = Index.build(
        [document("a", "search", "Search the web."), document("b", "search", "Find flights now.")]
    )
    assert {hit.key.server_id for hit in search(index, "search")} == {"a", "b"}


def test_a_hit_says_why() -> None:
    [first, *_] = search(INDEX, "weather forecast for a city")
    assert {term for term, _ in first.why.terms} >= {"weather", "forecast", "citi"}
    assert "forecast" in str(first.why)
    assert str(search(INDEX, "get_alerts")[0].why).startswith("named as 'get_alerts'")


# ── what somebody might do ──


def test_repetition_gains_nothing() -> None:
    once = document("honest", "paint", "Paint a wall in a colour.", colour={"type": "string"})
    often = replace(
        once,
        key=ToolKey("loud", "paint"),
        description=f"{once.description} " + "paint wall colour " * 200,
    )
    first, second = (Index.build([tool]) for tool in (once, often))
    for query in ("paint a wall", "colour", "paint wall colour"):
        [one], [other] = search(first, query), search(second, query)
        assert dict(one.why.terms) == dict(other.why.terms)


def test_saying_everything_does_not_win_over_saying_what_it_does() -> None:
    greedy = document(
        "greedy", "do_it_all", " ".join(f"{tool.name} {tool.description}" for tool in TOOLS) * 3
    )
    index = INDEX.replace("greedy", [greedy])
    for query in ("weather forecast for a city", "rename a function", "list the issues of a repository"):
        assert names(query, index)[0] != "do_it_all"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "select:",
        "select:,,",
        "the of and",
        "?!…",
        "\x00\x1b[31m",
        "\ud800",
        "select:" + "a," * 999,
    ],
)
def test_a_query_that_asks_for_nothing_finds_nothing(query: str) -> None:
    assert search(INDEX, query) == ()


def test_no_queries_find_nothing() -> None:
    assert search(INDEX, []) == ()
    assert search(Index(), "weather") == ()


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    "text", [" " * 2_000 + "x", "." * 2_000 + "x", "\n" * 2_000 + "x", "save " * 400, "what is " * 250]
)
def test_a_query_of_one_thing_repeated_is_read_at_once(text: str) -> None:
    seconds: list[float] = []
    for _ in range(3):
        began = time.process_time()
        read_query(text)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.03


def test_clauses_end_where_sentences_and_lines_do() -> None:
    [read] = read_query(
        "open big red doors.\nclose big red doors!?\n\npaint small green walls... wash old cars"
    )
    assert [clause[0] for clause in read.clauses] == ["open", "close", "paint", "wash"]


def test_a_query_without_end_is_read_as_far_as_it_makes_sense() -> None:
    assert names("weather forecast " * 100_000)[0] == "get_forecast"
    assert len(search(INDEX, ["file"] * 1_000)) <= 5


@given(st.text(max_size=200), st.integers(-5, 1_000))
def test_any_query_gets_an_answer_of_at_most_so_many(query: str, limit: int) -> None:
    hits = search(INDEX, query, limit=limit)
    assert len(hits) <= max(1, min(limit, MOST_HITS), query.count(",") + 1)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@given(st.lists(st.sampled_from([word for tool in TOOLS for word in tool.description.split()]), max_size=12))
def test_the_order_of_the_tools_does_not_matter(words: list[str]) -> None:
    shuffled = random.Random(len(words)).sample(TOOLS, len(TOOLS))
    query = " ".join(words)
    assert search(INDEX, query) == search(Index.build(shuffled), query)


def test_what_every_tool_says_still_finds_them() -> None:
    index = Index.build([document("s", f"tool_{number}", "Paint a wall.") for number in range(3_000)])
    assert len(search(index, "wall")) == 5


def test_ties_are_broken_by_key() -> None:
    tools = [document(f"s{number:03}", f"tool_{number:03}x", "Paint a wall.") for number in range(400)]
    expected = [ToolKey(f"s{number:03}", f"tool_{number:03}x") for number in range(5)]
    for order in (tools, tools[::-1]):
        assert [hit.key for hit in search(Index.build(order), "paint a wall")] == expected


def test_searching_loads_nothing_heavy() -> None:
    heavy = {"numpy", "mcp", "pydantic", "anyio", "aiohttp", "tokenizers"}
    code = f"import sys, fairlead.catalog.search.search; print(*{heavy!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
