"""What searches led to is remembered per principal; answers to models are short and show nothing twice."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.catalog.search.memory import PastQuery, ToolMemory
from fairlead.catalog.signatures import estimate
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.store_location import StoreLocation
from fairlead.errors import CallDenied
from fairlead.host import search_memory
from fairlead.host.host import Host
from fairlead.host.model.search_answers import ANSWER_TOKENS, SIGNATURE_TOKENS
from fairlead.host.search_memory import (
    FRESH_SECONDS,
    MAX_AGE_SECONDS,
    MOST_QUERIES,
    NAMESPACE,
    SearchMemory,
    keep_newest,
    memory_prefix,
    read_memory,
)
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import StoredValue
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.redis_server import redis_server

SECONDS = 30


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties][:1]}
    return {"name": name, "description": description, "inputSchema": schema}


ECHO = tool("echo", "Say something back.", text={"type": "string"}, times={"type": "integer"})
SHIP = tool("ship_parcel", "Ship a parcel to an address.")


@asynccontextmanager
async def hosting(machine: Machine, **document: Any) -> AsyncGenerator[Host]:
    with anyio.fail_after(SECONDS):
        document = {"policy": {"approval": "allow"}, "tools": {"mode": "meta"}, **document}
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            yield host


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=[ECHO, SHIP])


async def first(host: Host, query: str, principal: str = "local") -> str:
    found = await host.toolset(principal=principal).search(query)
    return found.hits[0].key.tool


async def search_and_call(host: Host, query: str, name: str = "x.echo", principal: str = "local") -> None:
    """One session: a search whose answer names the tool, and a call of it."""
    tools = await host.toolset(principal=principal).for_openai()
    await tools.call("mcp_search_tools", {"queries": [query]})
    await tools.call("mcp_call_tool", {"name": name, "arguments": {"text": "hi"}})


async def test_what_a_search_led_to_is_found_by_the_next_one_of_that_principal_alone(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, servers={"x": server.entry()}) as host:
        assert await first(host, "ship the website") == "ship_parcel"
        for _ in range(2):
            await search_and_call(host, "ship the website", principal="ada")
        assert await first(host, "ship the website", "ada") == "echo"
        assert await first(host, "ship the website", "bob") == "ship_parcel"
        assert await first(host, "ship the website") == "ship_parcel"
    async with hosting(machine, servers={"x": server.entry()}) as host:  # it outlives the process
        assert await first(host, "ship the website", "ada") == "echo"
        assert await host.search_memory.forget("bob") == 0
        assert await host.search_memory.forget("ada") == 1
        assert await first(host, "ship the website", "ada") == "ship_parcel"


async def test_what_is_kept_are_the_queries_and_never_the_arguments(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, servers={"x": server.entry()}) as host:
        await search_and_call(host, "ship the website")
        assert host.store is not None
        [kept] = await host.store.scan(NAMESPACE)
        assert b"ship the website" in kept.value
        assert b"hi" not in kept.value.replace(b"ship", b"")


async def test_calls_that_fail_or_are_denied_do_not_count(machine: Machine, server: ScriptedServer) -> None:
    rules = [{"action": "deny", "tool": "echo", "arguments": {"text": "secret*"}}]
    async with hosting(
        machine, servers={"x": server.entry()}, policy={"approval": "allow", "rules": rules}
    ) as host:
        tools = host.tools
        await tools.call("mcp_search_tools", {"queries": ["ship the website"]})
        wrong = await tools.call("mcp_call_tool", {"name": "x.echo", "arguments": {}})
        assert wrong.is_error
        with pytest.raises(CallDenied):
            await tools.call("x.echo", {"text": "secret one"})
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []


async def test_a_tool_that_no_search_showed_is_not_remembered(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, servers={"x": server.entry()}) as host:
        await host.tools.call("x.echo", {"text": "hi"})
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []


async def test_a_setting_turns_it_off(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, servers={"x": server.entry()}, search={"memory": False}) as host:
        await search_and_call(host, "ship the website")
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []


async def test_a_changed_definition_clears_what_is_remembered_of_a_tool(tmp_path: Path) -> None:
    key = ToolKey("x", "echo")
    before = ToolEntry(key=key, definition=b'{"name":"echo","inputSchema":{"type":"object"}}')
    after = ToolEntry(
        key=key, definition=b'{"name":"echo","description":"New.","inputSchema":{"type":"object"}}'
    )
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store)
        await memory.remember("ada", before, ["one"], "s1")
        await memory.remember("ada", before, ["two"], "s2")
        assert len(await memory.recall("ada")) == 2
        await memory.remember("ada", after, ["three"], "s3")
        assert len(await memory.recall("ada")) == 1


async def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    entry = ToolEntry(key=ToolKey("x", "echo"), definition=b'{"name":"echo","inputSchema":{}}')
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store, lambda: now[0])
        await memory.remember("ada", entry, ["one"], "s1")
        assert len(await memory.recall("ada")) == 1
        now[0] += MAX_AGE_SECONDS + 1
        assert len(await SearchMemory(store, lambda: now[0]).recall("ada")) == 0
        assert await store.scan(NAMESPACE, memory_prefix("ada")) == []


def entry_of(name: str) -> ToolEntry:
    definition = f'{{"name":"{name}","inputSchema":{{}}}}'.encode()
    return ToolEntry(key=ToolKey("x", name), definition=definition)


async def stored_texts(store: AsyncStore, principal: str = "ada") -> list[str]:
    stored = await store.scan(NAMESPACE, memory_prefix(principal))
    return sorted(past.text for memory in read_memory(stored) for past in memory.queries)


async def test_what_is_old_leaves_the_store_also_where_its_tool_is_still_in_use(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store, lambda: now[0])
        await memory.remember("ada", entry_of("echo"), ["once private"], "s1")
        now[0] += MAX_AGE_SECONDS / 2
        await memory.remember("ada", entry_of("echo"), ["halfway"], "s2")
        now[0] += MAX_AGE_SECONDS / 2 + 1
        assert len(await SearchMemory(store, lambda: now[0]).recall("ada")) == 1
        assert await stored_texts(store) == ["halfway"]
        now[0] += MAX_AGE_SECONDS / 2
        await memory.remember("ada", entry_of("echo"), ["new"], "s3")
        assert await stored_texts(store) == ["new"]


async def test_what_is_too_much_leaves_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_memory, "MOST_QUERIES", 3)
    now = [1_000_000_000.0]
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store, lambda: now[0])
        for number in range(6):
            now[0] += 1
            await memory.remember("ada", entry_of(f"tool{number % 2}"), [f"query {number}"], "s")
        assert len(await SearchMemory(store, lambda: now[0]).recall("ada")) == 3
        assert await stored_texts(store) == ["query 3", "query 4", "query 5"]
        # Also where nothing but this process changes it.
        await memory.recall("ada")
        for number in range(6, 9):
            now[0] += 1
            await memory.remember("ada", entry_of(f"tool{number % 2}"), [f"query {number}"], "s")
        now[0] += FRESH_SECONDS
        assert len(await memory.recall("ada")) == 3
        assert await stored_texts(store) == ["query 6", "query 7", "query 8"]
        again = await memory.recall("ada")
        now[0] += FRESH_SECONDS
        assert await memory.recall("ada") is again


async def test_what_is_old_is_forgotten_also_by_a_process_that_goes_on(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store, lambda: now[0])
        await memory.remember("ada", entry_of("echo"), ["query one"], "s1")
        now[0] += 10
        await memory.remember("ada", entry_of("echo"), ["query two"], "s2")
        assert len(await memory.recall("ada")) == 2
        now[0] += MAX_AGE_SECONDS - 5
        assert len(await memory.recall("ada")) == 1
        assert await stored_texts(store) == ["query two"]


async def test_a_memory_expires_in_the_store_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_memory, "MAX_AGE_SECONDS", 0.05)
    async with AsyncStore.open(tmp_path / "store.db") as store:
        await SearchMemory(store).remember("ada", entry_of("echo"), ["one"], "s1")
        with anyio.fail_after(SECONDS):
            while await store.scan(NAMESPACE):  # noqa: ASYNC110 - nothing happens when a value expires
                await anyio.sleep(0.01)


async def test_a_call_does_not_make_the_next_search_read_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000_000.0]
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store, lambda: now[0])
        await memory.remember("ada", entry_of("echo"), ["one"], "s1")
        assert len(await memory.recall("ada")) == 1
        scans: list[str] = []
        scan = store.scan

        async def count(namespace: str, prefix: str = "") -> Sequence[StoredValue]:
            scans.append(prefix)
            return await scan(namespace, prefix)

        monkeypatch.setattr(store, "scan", count)
        await memory.remember("ada", entry_of("echo"), ["two"], "s1")
        await memory.remember("ada", entry_of("other"), ["three"], "s1")
        await memory.remember("bob", entry_of("echo"), ["four"], "s1")
        past = await memory.recall("ada")
        assert len(past) == 3
        assert scans == []
        now[0] += FRESH_SECONDS  # nothing but our own changes: what was read is still right
        assert await memory.recall("ada") is past
        assert len(scans) == 1


async def test_what_one_principal_remembers_does_not_make_another_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store)
        await memory.remember("ada", entry_of("echo"), ["one"], "s1")
        scans: list[str] = []
        scan = store.scan

        async def meanwhile(namespace: str, prefix: str = "") -> Sequence[StoredValue]:
            scans.append(prefix)
            stored = await scan(namespace, prefix)
            await memory.remember("bob", entry_of("echo"), ["two"], "s1")
            return stored

        monkeypatch.setattr(store, "scan", meanwhile)
        await memory.recall("ada")
        await memory.recall("ada")
        assert len(scans) == 1


async def test_a_call_after_a_search_for_a_courtesy_breaks_no_later_search(
    machine: Machine, tmp_path: Path
) -> None:
    """`help` has no terms: what was remembered of it once made later searches fail."""
    helping = ScriptedServer(tmp_path / "record", tools=[tool("help", "Show usage."), ECHO, SHIP])
    async with hosting(machine, servers={"x": helping.entry()}) as host:
        await search_and_call(host, "help")
        assert host.store is not None
        assert await host.store.scan(NAMESPACE) == []
        for query in ("help", "what can you do", "???"):
            tools = await host.toolset().for_openai()
            assert not (await tools.call("mcp_search_tools", {"queries": [query]})).is_error
        assert await first(host, "help") == "help"


async def test_what_another_process_remembers_and_forgets_is_noticed(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    entry = ToolEntry(key=ToolKey("x", "echo"), definition=b'{"name":"echo","inputSchema":{}}')
    async with AsyncStore.open(tmp_path / "store.db") as store:
        one, other = SearchMemory(store, lambda: now[0]), SearchMemory(store, lambda: now[0])
        assert len(await one.recall("ada")) == 0
        await other.remember("ada", entry, ["one"], "s1")
        now[0] += 60
        assert len(await one.recall("ada")) == 1
        await other.forget("ada")
        now[0] += 60
        assert len(await one.recall("ada")) == 0


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_what_searches_led_to_is_kept_in_any_store(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        location: StoreLocation = tmp_path / "store.db"
        if kind == "redis":
            location = stack.enter_context(redis_server(tmp_path)).location
        async with AsyncStore.open(location) as store, AsyncStore.open(location) as other_store:
            memory, other = SearchMemory(store), SearchMemory(other_store)
            for number in range(3):
                await memory.remember("ada", entry_of("echo"), ["ship the website"], f"s{number}")
                await other.remember("ada", entry_of("echo"), ["ship it"], f"t{number}")
            await memory.remember("bob", entry_of("echo"), ["private"], "s")
            for each in (SearchMemory(store), SearchMemory(other_store)):
                assert len(await each.recall("ada")) == 2
                assert len(await each.recall("bob")) == 1
            [stored] = read_memory(await store.scan(NAMESPACE, memory_prefix("ada")))
            assert sorted(len(past.sessions) for past in stored.queries) == [3, 3]
            assert await other.forget("ada") == 2
            assert len(await SearchMemory(store).recall("ada")) == 0


async def test_what_is_forgotten_while_it_is_read_is_not_used_by_the_next_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ToolEntry(key=ToolKey("x", "echo"), definition=b'{"name":"echo","inputSchema":{}}')
    async with AsyncStore.open(tmp_path / "store.db") as store:
        memory = SearchMemory(store)
        await memory.remember("ada", entry, ["one"], "s1")
        scan = store.scan

        async def scan_and_forget(namespace: str, prefix: str = "") -> Sequence[StoredValue]:
            monkeypatch.undo()
            stored = await scan(namespace, prefix)
            assert await memory.forget("ada") == 1
            return stored

        monkeypatch.setattr(store, "scan", scan_and_forget)
        await memory.recall("ada")
        assert len(await memory.recall("ada")) == 0


def test_only_so_much_is_remembered() -> None:
    many = [
        ToolMemory(
            principal="ada",
            server_id="x",
            tool=f"tool_{number}",
            definition_digest="",
            queries=[
                PastQuery(text=f"q {number} {which}", sessions=["s"], last_used=number) for which in "ab"
            ],
        )
        for number in range(MOST_QUERIES)
    ]
    kept = keep_newest(many, 0.0)
    assert sum(len(memory.queries) for memory in kept) == MOST_QUERIES
    assert min(past.last_used for memory in kept for past in memory.queries) == MOST_QUERIES / 2


async def test_a_search_and_a_call_of_the_tools_of_a_host_belong_together(
    machine: Machine, server: ScriptedServer
) -> None:
    """The way that `Toolset` documents: `host.tools` is another toolset each time."""
    for _ in range(2):  # what one process alone searched for outdoes nothing
        async with hosting(machine, servers={"x": server.entry()}) as host:
            assert await first(host, "ship the website") == "ship_parcel"
            await host.tools.search("ship the website")
            await host.tools.call("mcp_search_tools", {"queries": ["ship the website"]})
            await host.tools.call("x.echo", {"text": "hi"})
            await host.toolset(principal="ada").call("x.echo", {"text": "hi"})
    async with hosting(machine, servers={"x": server.entry()}) as host:
        assert await first(host, "ship the website") == "echo"
        assert await host.search_memory.forget("ada") == 0
        again = await host.tools.call("mcp_search_tools", {"queries": ["website to ship"]})
        more = await host.tools.call("mcp_search_tools", {"queries": ["ship my website"]})
        assert again.text == more.text  # another agent may ask: what one was shown, it has not seen


# ── answers ──


async def test_an_answer_shows_short_signatures_and_says_where_there_is_more(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, servers={"x": server.entry()}) as host:
        told = await host.tools.call("mcp_search_tools", {"queries": ["say something back"]})
        assert told.text.splitlines()[0] == "x.echo(text: str, …) — Say something back."


async def test_nothing_is_shown_twice_in_a_session_unless_it_is_asked_for_again(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, servers={"x": server.entry()}) as host:
        tools = host.tools
        one = await tools.call("mcp_search_tools", {"queries": ["say something back"]})
        other = await tools.call("mcp_search_tools", {"queries": ["say a thing"]})
        same = await tools.call("mcp_search_tools", {"queries": ["say something back"]})
        assert other.text.splitlines()[0] == "shown before: x.echo"
        assert same.text == one.text
        new = await host.tools.call("mcp_search_tools", {"queries": ["say something back"]})
        assert new.text == one.text


async def test_names_of_siblings_are_ordered_by_score_and_fit_a_budget(
    machine: Machine, tmp_path: Path
) -> None:
    many = [tool(f"handle_{'long_' * 10}case_{number}", "Handles a case.") for number in range(300)]
    servers = {
        f"s{number}": ScriptedServer(tmp_path / f"s{number}", tools=[*many, ECHO]).entry()
        for number in range(2)
    }
    async with hosting(machine, servers=servers) as host:
        told = await host.tools.call("mcp_search_tools", {"queries": ["handle a case"], "limit": 5})
        assert told.structured is not None
        assert len(told.structured["tools"]) == 5
        assert told.structured["siblings"]
        assert estimate(told.text) <= ANSWER_TOKENS * 1.05


@pytest.mark.parametrize(("parameters", "shown"), [(0, 12), (12, 8)])
async def test_short_signatures_leave_room_for_more_of_them(
    machine: Machine, tmp_path: Path, parameters: int, shown: int
) -> None:
    needed = {f"detail_{each}": {"type": "string"} for each in range(parameters)}
    schema = {"type": "object", "properties": needed, "required": [*needed]}
    many = [{**tool(f"handle_case_{number}", "Handles it."), "inputSchema": schema} for number in range(40)]
    server = ScriptedServer(tmp_path / "record", tools=many)
    async with hosting(machine, servers={"x": server.entry()}) as host:
        told = await host.tools.call("mcp_search_tools", {"queries": ["handle a case"]})
        assert told.structured is not None
        assert len(told.structured["tools"]) == shown
        assert estimate(told.text) <= ANSWER_TOKENS * 1.05
        more = await host.toolset().call("mcp_search_tools", {"queries": ["handle a case"], "limit": 20})
        assert more.structured is not None
        assert len(more.structured["tools"]) == 20


async def test_an_answer_is_short_where_one_tool_stands_out(machine: Machine, tmp_path: Path) -> None:
    servers = {
        f"s{number}": ScriptedServer(
            tmp_path / f"s{number}", tools=[tool(f"case_{number}", "A case of something else.")]
        ).entry()
        for number in range(12)
    }
    best = ScriptedServer(tmp_path / "best", tools=[tool("print_invoice", "Print an invoice on paper.")])
    async with hosting(machine, servers={**servers, "best": best.entry()}) as host:
        query = "print an invoice on paper in case"
        told = await host.tools.call("mcp_search_tools", {"queries": [query]})
        assert told.structured is not None
        assert told.structured["tools"][0].startswith("best.print_invoice")
        assert len(told.structured["tools"]) == 8
        assert not told.structured["siblings"]


async def test_hits_that_get_no_signature_are_named_also_where_each_is_of_another_server(
    machine: Machine, tmp_path: Path
) -> None:
    servers = {
        f"s{number}": ScriptedServer(
            tmp_path / f"s{number}", tools=[tool(f"handle_case_{number}", f"Handles case {'x' * number}.")]
        ).entry()
        for number in range(15)
    }
    async with hosting(machine, servers=servers) as host:
        told = await host.tools.call("mcp_search_tools", {"queries": ["handle a case"], "limit": 5})
        assert told.structured is not None
        assert len(told.structured["siblings"]) == 10


async def test_the_same_tool_of_another_server_is_remembered_when_it_is_called(
    machine: Machine, tmp_path: Path
) -> None:
    servers = {
        name: ScriptedServer(tmp_path / f"of {name}", tools=[ECHO]).entry() for name in ("mine", "work")
    }
    async with hosting(machine, servers=servers) as host:
        for _ in range(2):
            await search_and_call(host, "say something back", "work.echo")
        [hit, *_] = (await host.tools.search("say something back")).hits
        assert (hit.key, hit.twins) == (ToolKey("work", "echo"), (ToolKey("mine", "echo"),))


async def test_what_a_line_names_as_the_same_is_not_named_again(machine: Machine, tmp_path: Path) -> None:
    offered = {"mine": [ECHO], "work": [ECHO, SHIP, tool("say_bye", "Say goodbye.")]}
    servers = {
        name: ScriptedServer(tmp_path / f"of {name}", tools=tools).entry() for name, tools in offered.items()
    }
    async with hosting(machine, servers=servers) as host:
        tools = host.tools
        told = await tools.call("mcp_search_tools", {"queries": ["say something back"]})
        assert "(the same: work.echo)" in told.text
        assert told.text.splitlines()[-1] == "also work: ship_parcel"
        later = await tools.call("mcp_search_tools", {"queries": ["goodbye"]})
        assert later.text == "shown before: work.say_bye"


async def test_a_line_names_only_a_few_servers_with_the_same_tool(machine: Machine, tmp_path: Path) -> None:
    servers = {f"s{each}": ScriptedServer(tmp_path / f"s{each}", tools=[ECHO]).entry() for each in range(9)}
    async with hosting(machine, servers=servers) as host:
        told = await host.tools.call("mcp_search_tools", {"queries": ["say something back"]})
        [line] = [line for line in told.text.splitlines() if "the same" in line]
        assert line.endswith("(the same: s1.echo, s2.echo, s3.echo, s4.echo, …)")


async def test_an_answer_fits_its_budget_however_long_signatures_are(
    machine: Machine, tmp_path: Path
) -> None:
    """The longest are cut to names of parameters, so that eight are shown all the same."""
    choices = [f"some_choice_value_{each}" for each in range(8)]
    needed = {f"a_rather_long_name_{each}": {"type": "string", "enum": choices} for each in range(20)}
    schema = {"type": "object", "properties": needed, "required": [*needed]}
    many = [{**tool(f"handle_case_{each}", "Handle it."), "inputSchema": schema} for each in range(20)]
    short = tool("handle_case", "Handle a case.", case={"type": "string"})
    server = ScriptedServer(tmp_path / "record", tools=[short, *many])
    async with hosting(machine, servers={"x": server.entry()}) as host:
        told = await host.toolset().call("mcp_search_tools", {"queries": ["handle a case"]})
        assert told.structured is not None
        assert len(told.structured["tools"]) == 8
        assert "x.handle_case(case: str) — Handle a case." in told.structured["tools"]
        assert sum(map(estimate, told.structured["tools"])) <= SIGNATURE_TOKENS * 1.05
        [cut, *_] = [line for line in told.structured["tools"] if "handle_case_" in line]
        assert "(a_rather_long_name_0, a_rather_long_name_1, a_rather_long_name_2" in cut
        assert cut.endswith(", …) — Handle it.")
        assert estimate(told.text) <= ANSWER_TOKENS * 1.05
        more = await host.toolset().call("mcp_search_tools", {"queries": ["handle a case"], "limit": 20})
        assert more.structured is not None
        assert len(more.structured["tools"]) == 20
        assert estimate(more.text) <= SIGNATURE_TOKENS * 20 / 8 * 1.05


async def test_servers_that_are_away_are_named_once_in_a_session_and_only_a_few(
    machine: Machine, server: ScriptedServer
) -> None:
    away = {f"away{each}": {"command": "/nonexistent/program"} for each in range(30)}
    async with hosting(machine, servers={"x": server.entry(), **away}) as host:
        tools = host.toolset()
        told = await tools.call("mcp_search_tools", {"queries": ["say something back"]})
        lines = [line for line in told.text.splitlines() if line.startswith("not available: ")]
        assert len(lines) == 6
        assert lines[0].startswith("not available: away0: ")
        assert lines[-1] == "not available: 25 more"
        assert estimate(told.text) <= ANSWER_TOKENS
        later = await tools.call("mcp_search_tools", {"queries": ["ship a parcel"]})
        assert "not available" not in later.text
        again = await tools.call("mcp_search_tools", {"queries": ["say something back"]})
        assert again.text == told.text
        asked = await tools.call("mcp_search_tools", {"queries": ["anything"], "server": "away17"})
        assert not asked.is_error
        assert (
            "not available: away17: "
            in (await host.toolset().call("mcp_list_tools", {"server": "away17"})).text
        )


@pytest.mark.parametrize("name", ["mcp_search_tools", "mcp_list_tools"])
async def test_a_server_that_is_not_there_is_an_error_that_names_the_nearest(
    machine: Machine, server: ScriptedServer, name: str
) -> None:
    async with hosting(machine, servers={"github": server.entry(), "files": server.entry()}) as host:
        asked = {"queries": ["say something"]} if name == "mcp_search_tools" else {}
        tools = await host.toolset().for_openai()
        for wrong in ("git-hub", "GitHub"):
            told = await tools.call(name, {**asked, "server": wrong})
            assert told.is_error
            assert f"no server with tools is called `{wrong}`" in told.text
            assert "did you mean `github`?" in told.text
        told = await tools.call(name, {**asked, "server": "z"})
        assert told.is_error
        assert not (await tools.call(name, {**asked, "server": "github"})).is_error
