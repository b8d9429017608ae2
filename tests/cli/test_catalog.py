"""The commands that look into the catalog: search, cost, and why a tool is there or not."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

from fairlead.catalog import signatures
from fairlead.catalog.signatures import estimate, exact
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.cli.pty_support import at_terminal
from tests.cli.test_startup import modules_after
from tests.conftest import Machine, Outcome
from tests.fixtures import asking_stdio

Fairlead = Callable[..., Outcome]


def tool(name: str, description: str = "Does something useful.", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("find_symbol", "Locate where a symbol is defined.", symbol={"type": "string"}),
    tool("get-weather", "Tell the weather of a city.", city={"type": "string"}),
    tool("delete_everything", "Remove all files for good."),
]


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=TOOLS)


@pytest.fixture
def configure(machine: Machine, fairlead: Fairlead) -> Callable[..., Outcome]:
    """Write the user's file, one line for each entry of a section, and have its servers asked once."""

    def write(**sections: dict[str, Any]) -> Outcome:
        machine.write_user(json.dumps(sections, indent=1))
        return fairlead("tools")

    return write


def line_of(machine: Machine, text: str) -> str:
    """The place of the first line with a text, as commands print it."""
    lines = machine.user_file.read_text().splitlines()
    return f"{machine.user_file}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def explained(fairlead: Fairlead, *arguments: str) -> dict[str, Any]:
    (only,) = json.loads(fairlead("explain", "tool", *arguments, "--json").out)["tools"]
    return only


# Search


@pytest.mark.requirement("NEED-11")
def test_a_search_puts_an_exact_name_first_and_starts_nothing_that_is_known(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    for words in (["find_symbol"], ["find symbol"], ["find", "symbol"]):
        outcome = fairlead("search", *words)
        assert outcome.status == 0
        assert outcome.out.splitlines()[1].split()[1] == "code.find_symbol"
    first = json.loads(fairlead("search", "weather in a city", "--json").out)["tools"][0]
    assert (first["server"], first["tool"]) == ("code", "get-weather")
    assert first["name"].startswith("mcp_code_get-weather_")
    assert first["signature"].startswith("code.get-weather(")
    assert first["score"] > 0
    assert server.starts == 1


def test_a_search_says_what_brought_each_tool(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    plain, with_reasons = fairlead("search", "find_symbol"), fairlead("search", "find_symbol", "--explain")
    assert "WHY" not in plain.out
    assert "named as 'find_symbol'" in with_reasons.out


@pytest.mark.requirement("NEED-11")
def test_a_search_names_the_servers_that_could_not_be_looked_through(
    fairlead: Fairlead, machine: Machine, server: ScriptedServer
) -> None:
    gone = {"command": "/nowhere/at-all"}
    machine.write_user(json.dumps({"servers": {"code": server.entry(), "gone": gone}}))
    outcome = fairlead("search", "weather")
    assert outcome.status == 4
    assert "get-weather" in outcome.out
    assert "`gone`" in outcome.err
    assert "/nowhere/at-all" in outcome.err
    report = json.loads(fairlead("search", "weather", "--json").out)
    assert "/nowhere/at-all" in report["unavailable"]["gone"]
    assert fairlead("search", "weather", "--server", "code").status == 0


def test_a_search_finds_what_agents_may_use_and_says_so_of_the_rest(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry(deny_tools=["delete_*"])})
    outcome = fairlead("search", "delete_everything")
    assert "delete_everything" not in outcome.out
    assert "code.delete_everything is not for agents" in outcome.err
    configure(servers={"code": server.entry(trust="untrusted")})
    assert "no tools that agents may use" in fairlead("search", "weather").err


def test_a_search_stays_within_a_server_and_a_bundle(
    fairlead: Fairlead, configure: Callable[..., Outcome], tmp_path: Path, server: ScriptedServer
) -> None:
    other = ScriptedServer(
        tmp_path / "other", tools=[tool("weather_alert", "Warn of bad weather in a city.")]
    )
    bundles: dict[str, Any] = {"small": {"servers": {"sky": {}}}}
    configure(servers={"code": server.entry(), "sky": other.entry()}, bundles=bundles)
    assert "sky" in fairlead("search", "weather").out
    assert "sky" not in fairlead("search", "weather", "--server", "code").out
    assert "get-weather" not in fairlead("search", "weather", "--bundle", "small").out
    assert "no server `code`" in fairlead("search", "x", "--bundle", "small", "--server", "code").err
    assert "no bundle `smal`" in fairlead("search", "x", "--bundle", "smal").err
    assert "did you mean `small`" in fairlead("search", "x", "--bundle", "smal").err


def test_a_search_needs_words_or_a_file(fairlead: Fairlead) -> None:
    assert fairlead("search").status == 2


def test_the_search_is_measured_on_questions_of_ones_own(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    questions = [
        {"id": "a", "query": "is it going to rain: weather", "gold": [["code/get-weather", "other/rain"]]},
        {"id": "b", "query": "where is this symbol defined", "gold": [["code.find_symbol"]]},
        {"id": "c", "query": "play some music", "gold": [["code/play"]]},
    ]
    file = machine.project / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    outcome = fairlead("search", "--eval", str(file), "--json")
    assert outcome.status == 0
    report = json.loads(outcome.out)
    assert report["questions"] == 3
    assert report["recall@5"] == report["mrr"] == pytest.approx(2 / 3)
    assert [question["id"] for question in report["failed"]] == ["c"]
    shown = fairlead("search", "--eval", str(file), "--explain")
    assert "66.7 %" in shown.out
    assert "play some music" in shown.out
    assert "agents have no tool code/play" in shown.err
    file.write_text("")
    assert fairlead("search", "--eval", str(file)).status == 1


def test_answers_are_measured_among_the_tools_of_the_server_that_is_asked(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry(), "copy": server.entry()})
    file = machine.project / "questions.jsonl"
    file.write_text(json.dumps({"id": "a", "query": "weather", "gold": [["code.get-weather"]]}))

    def shown(*options: str) -> float:
        return json.loads(fairlead("search", "--eval", str(file), "--json", *options).out)["shown_or_named"]

    assert (shown(), shown("--server", "code"), shown("--server", "copy")) == (1.0, 1.0, 0.0)


def test_a_file_of_questions_may_have_sessions_and_is_measured_with_a_memory_too(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    questions = [
        {"id": "a", "query": "raincoat today", "gold": [["code.get-weather"]]},
        {"id": "b", "query": "raincoat tomorrow", "gold": [["code.get-weather"]]},
        {
            "id": "c",
            "queries": ["where is a symbol defined", "weather of a city"],
            "gold": [["code.get-weather"], ["code.find_symbol"]],
        },
    ]
    file = machine.project / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    report = json.loads(fairlead("search", "--eval", str(file), "--json").out)
    assert report["second_half_without_memory"] == pytest.approx(0.5)
    assert report["second_half_with_memory"] == pytest.approx(1)
    assert report["shown_as_signature"] <= report["shown_or_named"] <= 1
    assert 0 < report["tokens_per_answer"] < 750


def test_what_searches_led_to_is_shown_and_forgotten(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, tmp_path: Path
) -> None:
    echo = tool("echo", "Say something back.", text={"type": "string"})
    server = ScriptedServer(tmp_path / "record", tools=[echo, TOOLS[0]])
    configure(servers={"code": server.entry()}, policy={"approval": "allow"})

    async def use(principal: str) -> None:
        with anyio.fail_after(120):
            async with Host.open(env=machine.env, cwd=machine.project) as host:
                for _ in range(2):
                    tools = host.toolset(principal=principal)
                    await tools.search("say a symbol")
                    await tools.call("code.echo", {"text": "hi"})

    anyio.run(use, "local")
    anyio.run(use, "ada")
    why = fairlead("search", "say a symbol", "--why")
    assert "called before after 'say a symbol'" in why.out
    report = json.loads(fairlead("search", "say a symbol", "--json").out)
    [found] = [each for each in report["tools"] if each["tool"] == "echo"]
    assert found["why"]["remembered"]["query"] == "say a symbol"
    # Agents found both; what this moved is said, also of what it moved down.
    assert "past searches found it" in why.out or "past searches moved it from place" in why.out
    assert "without past searches at place 1" in why.out
    left = fairlead("search", "say a symbol", "--why", "--limit", "1")
    assert "without past searches also: " in left.err
    assert "without past searches also: " not in fairlead("search", "say a symbol", "--limit", "1").err
    report = json.loads(fairlead("search", "--eval", "past", "--json").out)
    assert (report["questions"], report["recall@5"]) == (1, 1.0)
    assert "forgot what 1 query led to" in fairlead("search", "--forget").err
    assert "called before" not in fairlead("search", "say a symbol", "--why").out
    assert "no search is remembered" in fairlead("search", "--forget").err
    nothing = fairlead("search", "--eval", "past")
    assert (nothing.status, "no search is remembered" in nothing.err) == (1, True)
    counts = json.loads(fairlead("forget", "principal", "ada", "--yes", "--json").out)["counts"]
    assert counts["search history"] == 1
    assert fairlead("search", "say", "--forget").status == 2


# Cost


@pytest.mark.requirement("NEED-3")
def test_the_cost_of_tools_is_shown_by_server_and_by_tool_and_for_each_way_to_hand_them_over(
    fairlead: Fairlead, configure: Callable[..., Outcome], tmp_path: Path, server: ScriptedServer
) -> None:
    many = [tool(f"tool_{number}", f"Handles case {number} of the many there are.") for number in range(300)]
    big = ScriptedServer(tmp_path / "big", tools=many)
    configure(servers={"big": big.entry(), "code": server.entry(deny_tools=["delete_*"])})
    report = json.loads(fairlead("tools", "--cost", "--json").out)
    assert [entry["server"] for entry in report["servers"]] == ["big", "code"]
    assert report["servers"][1] | {"tokens": 0} == {"server": "code", "tools": 3, "offered": 2, "tokens": 0}
    assert sum(entry["tokens"] for entry in report["servers"]) == report["direct"] > report["token_budget"]
    assert report["configured"] == report["meta"] + report["artifacts"] <= 700
    assert 0 < report["search"] < report["meta"] + 700
    of_tool = {entry["tool"]: entry for entry in report["tools"]}
    own = estimate(msgspec.json.encode(many[7]).decode())
    assert of_tool["tool_7"]["tokens"] == own + estimate("[big/tool_7]")
    assert (of_tool["tool_7"]["offered"], of_tool["tool_7"]["direct"]) == (True, False)
    assert not of_tool["delete_everything"]["offered"]

    shown = fairlead("tools", "--cost")
    assert "2 of 3" in shown.out
    assert all(way in shown.out for way in ("direct", "meta", "search"))
    assert "0 of 302 tools direct" in shown.err
    one = fairlead("tools", "code", "--cost").out
    assert "find_symbol" in one
    assert "tool_7" not in one
    assert fairlead("tools", "--cost", "--schema").status == 2


async def test_the_cost_is_of_what_a_host_hands_over(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    bundles: dict[str, Any] = {
        "mixed": {"servers": {"code": {"mode": "meta"}}, "always_direct": ["get-*"]},
        "plain": {"servers": {"code": {}}, "mode": "direct"},
        "reading": {"servers": {"code": {}, "notes": {}}, "prompts": True},
    }
    notes = {"command": sys.executable, "args": [asking_stdio.__file__, "{}"], "trust": "trusted"}
    servers = {"code": server.entry(), "notes": notes}
    await anyio.to_thread.run_sync(lambda: configure(servers=servers, bundles=bundles))
    for bundle in bundles:
        output = await anyio.to_thread.run_sync(
            lambda name: fairlead("tools", "--cost", "--json", "--bundle", name).out, bundle
        )
        report = json.loads(output)
        with anyio.fail_after(30):
            async with Host.open(env=machine.env, cwd=machine.project) as host:
                offered = await host.toolset(bundle).definitions()
        direct = {entry.key.tool for _, entry in offered if entry.key.server_id in servers}
        assert {entry["tool"] for entry in report["tools"] if entry["direct"]} == direct
        origins = [entry.key.origin for _, entry in offered if entry.key.server_id in servers]
        definitions = sum(estimate(entry.definition) for _, entry in offered)
        assert report["configured"] == definitions + sum(map(estimate, origins))


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A tokenizer that is installed, and for which every character is a token."""

    class Encoding:
        def encode(self, text: str, disallowed_special: object) -> list[str]:
            return list(text)

    def get_encoding(name: str) -> Encoding:
        return Encoding()

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=get_encoding))
    (tmp_path / "vocabulary").mkdir()
    (tmp_path / "vocabulary" / signatures.VOCABULARY).touch()
    monkeypatch.setattr(signatures, "VOCABULARY_DIGEST", hashlib.sha256().hexdigest())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "vocabulary"))
    exact.cache_clear()
    yield
    exact.cache_clear()


@pytest.mark.usefixtures("tokenizer")
def test_the_cost_is_exact_where_the_tokenizer_is_at_hand(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    report = json.loads(fairlead("tools", "--cost", "--json").out)
    assert report["exact"]
    # Counted is what clients see: the fields one by one, each as it came.
    fields = [
        {name: msgspec.Raw(json.dumps(value).encode()) for name, value in each.items()} for each in TOOLS
    ]
    origins = [f"[code/{each['name']}]" for each in TOOLS]
    assert report["direct"] == sum(len(msgspec.json.encode(each)) for each in fields) + len("".join(origins))
    assert "o200k" in fairlead("tools", "--cost").err


def test_a_terminal_shows_a_bar_for_each_server(
    configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry()})
    with at_terminal("tools", "--cost", env=machine.env, cwd=machine.project) as person:
        assert person.waits() == 0
        assert "▇▇▇" in person.seen
    with at_terminal("tools", "--cost", env={**machine.env, "NO_COLOR": "1"}, cwd=machine.project) as person:
        assert person.waits() == 0
        assert "\x1b[3" not in person.seen  # no colour


# Explain


@pytest.mark.requirement("NEED-26")
def test_a_denied_tool_is_explained_down_to_the_line_of_the_pattern(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    configure(servers={"code": server.entry(deny_tools=["nothing", "get-*"])})
    outcome = fairlead("explain", "tool", "get-weather")
    assert outcome.status == 0
    assert outcome.out.startswith("code.get-weather: denied\n")
    assert f"listed in deny_tools, as `get-*`  [{line_of(machine, 'get-*')}]" in outcome.out
    allowed = explained(fairlead, "find_symbol")
    assert allowed["state"] == "direct"
    assert allowed["rule"]["place"] == line_of(machine, '"trust"')
    assert server.starts == 1


@pytest.mark.requirement("NEED-26")
def test_deny_beats_allow_and_an_untrusted_server_needs_an_allow_list(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    rules = {"allow_tools": ["get-*", "delete_everything"], "deny_tools": ["delete_everything"]}
    configure(servers={"code": server.entry(trust="untrusted", **rules)})
    assert explained(fairlead, "get-weather")["rule"] == {
        "reason": "listed in allow_tools, as `get-*`",
        "place": line_of(machine, "get-*"),
    }
    assert explained(fairlead, "delete_everything")["because"]["reason"] == "listed in deny_tools"
    missing = explained(fairlead, "find_symbol")
    assert (missing["state"], missing["because"]["reason"]) == ("denied", "not listed in allow_tools")
    assert missing["because"]["place"] == line_of(machine, '"allow_tools"')
    configure(servers={"code": server.entry(trust="untrusted")})
    assert "the tool has not been reviewed" in explained(fairlead, "find_symbol")["because"]["reason"]


@pytest.mark.requirement("NEED-26")
@pytest.mark.parametrize(
    "form", ["get-weather", "code/get-weather", "code.get-weather", "code__get-weather", "public"]
)
def test_a_tool_is_found_by_each_of_its_names_and_hyphens_survive(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer, form: str
) -> None:
    configure(servers={"code": server.entry(allow_tools=["get-weather"])})
    name = explained(fairlead, "code/get-weather")["name"]
    assert name.startswith("mcp_code_get-weather_")
    row = explained(fairlead, name if form == "public" else form)
    assert (row["server"], row["tool"], row["state"]) == ("code", "get-weather", "direct")


def test_a_name_that_several_servers_have_is_explained_for_each(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    configure(servers={"one": server.entry(), "two": server.entry(deny_tools=["find_symbol"])})
    shown = fairlead("explain", "tool", "find_symbol").out
    assert "one.find_symbol: direct" in shown
    assert "two.find_symbol: denied" in shown


def test_a_tool_behind_meta_tools_is_explained_with_what_put_it_there(
    fairlead: Fairlead, configure: Callable[..., Outcome], machine: Machine, server: ScriptedServer
) -> None:
    tools = {"token_budget": 10, "always_direct": ["get-*"]}
    bundles = {"work": {"servers": {"code": {"mode": "meta", "deny_tools": ["delete_*"]}}, "mode": "direct"}}
    configure(servers={"code": server.entry()}, tools=tools, bundles=bundles)
    deferred = explained(fairlead, "find_symbol")
    assert deferred["state"] == "deferred"
    assert "the budget is 10" in deferred["because"]["reason"]
    assert deferred["because"]["place"] == line_of(machine, "token_budget")
    assert "mcp_search_tools" in fairlead("explain", "tool", "find_symbol").out
    direct = explained(fairlead, "get-weather")
    assert direct["state"] == "direct"
    assert direct["because"]["place"] == line_of(machine, "always_direct")
    of_bundle = explained(fairlead, "find_symbol", "--bundle", "work")
    assert of_bundle["because"] == {"reason": "`mode` is `meta`", "place": line_of(machine, '"mode": "meta"')}
    denied = explained(fairlead, "delete_everything", "--bundle", "work")
    assert denied["state"] == "denied"
    assert denied["because"]["place"] == line_of(machine, '"delete_*"')


def test_a_tool_whose_server_is_not_there_is_explained_with_that(
    fairlead: Fairlead, configure: Callable[..., Outcome], server: ScriptedServer
) -> None:
    servers = {"code": server.entry(), "other": server.entry()}
    bundles: dict[str, Any] = {"work": {"servers": {"other": {}}}}
    configure(servers=servers, bundles=bundles)
    outside = explained(fairlead, "code/find_symbol", "--bundle", "work")
    assert (outside["state"], outside["rule"]) == ("unavailable", None)
    assert "no server `code`" in outside["because"]["reason"]
    assert fairlead("disable", "code", "--scope", "user").status == 0
    off = explained(fairlead, "code/find_symbol")
    assert (off["state"], off["because"]["reason"]) == ("unavailable", "its server is disabled")
    assert "fairlead enable code" in fairlead("explain", "tool", "code/find_symbol").out


@pytest.mark.requirement("NEED-11")
def test_a_server_that_went_down_is_named_where_its_tools_are_found(
    fairlead: Fairlead, configure: Callable[..., Outcome], tmp_path: Path, server: ScriptedServer
) -> None:
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    configure(servers={"code": server.entry(command=str(program))})
    program.unlink()
    assert fairlead("tools", "--refresh").status == 4
    for command in (["search", "find_symbol"], ["explain", "tool", "find_symbol"]):
        outcome = fairlead(*command)
        assert outcome.status == 0
        assert "find_symbol" in outcome.out
        assert f"no program {program}" in outcome.out + outcome.err


def test_a_tool_that_cannot_be_used_is_explained(
    fairlead: Fairlead, configure: Callable[..., Outcome], tmp_path: Path
) -> None:
    remote = {"name": "far", "inputSchema": {"$ref": "https://example.org/schema.json"}}
    large = {"name": "odd", "inputSchema": {"type": "object", "enum": [*range(20_001)]}}
    server = ScriptedServer(tmp_path / "record", tools=[remote, large])
    configure(servers={"code": server.entry()})
    far = explained(fairlead, "far")
    assert far["state"] == "rejected"
    assert "https://example.org/schema.json" in far["because"]["reason"]
    assert explained(fairlead, "odd")["state"] == "rejected"


@pytest.mark.requirement("NEED-11")
def test_a_tool_nobody_knows_is_an_error_that_names_who_could_not_be_asked(
    fairlead: Fairlead, machine: Machine, server: ScriptedServer
) -> None:
    gone = {"command": "/nowhere/at-all"}
    machine.write_user(json.dumps({"servers": {"code": server.entry(), "gone": gone}}))
    outcome = fairlead("explain", "tool", "find_symbl")
    assert outcome.status == 1
    assert "did you mean `code.find_symbol`" in outcome.err
    assert "/nowhere/at-all" in outcome.err
    assert fairlead("explain", "tool", "find_symbol").status == 0


def test_a_server_of_a_project_that_nobody_approved_is_named_and_not_started(
    fairlead: Fairlead, machine: Machine, server: ScriptedServer
) -> None:
    machine.write_project(json.dumps({"servers": {"theirs": server.entry()}}))
    for command in (["search", "weather"], ["tools"], ["explain", "tool", "get-weather"], ["lint"]):
        outcome = fairlead(*command)
        assert outcome.status in (1, 3, 4)
        assert "fairlead approve theirs" in outcome.err
    assert server.starts == 0


def test_a_server_whose_entry_is_wrong_is_named_with_what_is_wrong(
    fairlead: Fairlead, machine: Machine, server: ScriptedServer
) -> None:
    wrong = {"command": "x", "nonsense": 1}
    machine.write_user(json.dumps({"servers": {"code": server.entry(), "wrong": wrong}}))
    for command in (["search", "weather"], ["tools"], ["lint"]):
        outcome = fairlead(*command)
        assert outcome.status == 4
        assert "servers.wrong.nonsense" in outcome.err


# All of them


@pytest.mark.parametrize("scheme", ["stable", "readable"])
async def test_names_are_those_that_a_host_gives(
    fairlead: Fairlead, machine: Machine, tmp_path: Path, scheme: str
) -> None:
    odd = ["search_tools", "list tools", "ümlaut", "a" * 90, "Search_Tools"]
    servers = {
        name: ScriptedServer(tmp_path / name, tools=[tool(each) for each in odd]).entry()
        for name in ("mcp", "x")
    }
    machine.write_user(json.dumps({"servers": servers, "tools": {"names": scheme}}))
    with anyio.fail_after(30):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            names = {str(each.key): each.name for each in await host.tools.list()}
    assert len(names) == 10
    for key, name in names.items():
        assert explained(fairlead, key)["name"] == name


def test_what_a_server_says_cannot_steer_the_terminal(
    fairlead: Fairlead, configure: Callable[..., Outcome], tmp_path: Path
) -> None:
    hostile = tool("echo\x1b[2J", "Clear \x1b[2J the screen\u202e.")
    server = ScriptedServer(tmp_path / "record", tools=[hostile])
    configure(servers={"code": server.entry()})
    commands = (
        ["search", "clear the screen", "--explain"],
        ["tools", "code", "--cost"],
        ["explain", "tool", "echo\x1b[2J"],
        ["explain", "tool", "nothing"],
        ["lint"],
    )
    for command in commands:
        outcome = fairlead(*command)
        assert "\x1b" not in outcome.out + outcome.err
        assert "\u202e" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "weather"),
        ("tools",),
        ("tools", "--cost"),
        ("explain", "tool", "find_symbol"),
        ("lint",),
    ],
)
def test_what_is_known_is_shown_without_loading_the_sdk(
    configure: Callable[..., Outcome], server: ScriptedServer, arguments: tuple[str, ...]
) -> None:
    configure(servers={"code": server.entry()})
    assert not modules_after(*arguments) & {"mcp", "aiohttp", "starlette", "rich", "numpy"}
    assert server.starts == 1
