"""What a modern client is asked in rounds, and how what it can be asked decides what servers may ask."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from fairlead.gateway.client_session import ClientKey
from fairlead.gateway.request_context import MultiRoundContext, RequestIdentity, abilities_of
from tests.gateway.support import HANDSHAKE, MODERN, MODES, Raw, serving, text_of
from tests.host.asking import BOTH_ERAS, NAME_FORM, AskingServer

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
UNABLE: dict[str, Any] = {CAPABILITIES: {}}
ASKABLE: dict[str, Any] = {CAPABILITIES: {"elicitation": {}}}
WHO = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME_FORM}}
ROOTS = {"method": "roots/list"}
ADA = {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}


async def ask(client: Raw, questions: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Call the tool that asks; its result, whatever kind that is."""
    meta = more.pop("meta", ASKABLE)
    arguments = {"questions": questions}
    answer: Any = await client.modern("tools/call", meta=meta, name="a_ask", arguments=arguments, **more)
    return cast("list[dict[str, Any]]", answer)[-1] if isinstance(answer, list) else answer


async def test_a_question_keeps_the_key_its_server_gave_it(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        asked = (await ask(client, {"who": WHO}))["result"]
        assert asked["resultType"] == "input_required"
        assert [*asked["inputRequests"]] == ["who"]
        answers = {"inputResponses": {"who": ADA}, "requestState": asked["requestState"]}
        assert json.loads(text_of(await ask(client, {"who": WHO}, **answers))) == {"who": ADA}


async def test_answers_that_come_before_the_question_are_taken(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        answers = {"who": ADA, "nobody asked": ADA}
        done = await ask(client, {"who": WHO}, inputResponses=answers)
        assert json.loads(text_of(done)) == {"who": ADA}


async def test_every_round_has_a_state_of_its_own_and_no_other_is_taken(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, rounds=2)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        first = (await ask(client, {"who": WHO}))["result"]["requestState"]
        answer = {"inputResponses": {"who": ADA}}
        second = (await ask(client, {"who": WHO}, requestState=first, **answer))["result"]["requestState"]
        assert first != second
        for stale in (first, f"{second}x"):
            refused = await ask(client, {"who": WHO}, requestState=stale, **answer)
            assert refused["error"]["code"] == types.INVALID_PARAMS
        assert "result" in await ask(client, {"who": WHO}, requestState=second, **answer)


@pytest.mark.parametrize("version", BOTH_ERAS)
async def test_an_able_client_is_asked_even_after_one_that_is_not(tmp_path: Path, version: str) -> None:
    server = AskingServer(tmp_path / "record", version=version)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        assert "result" in await client.modern("tools/call", meta=UNABLE, name="a_echo", arguments={})
        asked = (await ask(client, {"who": WHO}))["result"]
        assert asked["resultType"] == "input_required"
        # The questions are its own: who cannot be asked is not told of them.
        assert "result" in await client.modern("tools/call", meta=UNABLE, name="a_echo", arguments={})


async def test_a_result_that_comes_before_the_answer_waits_for_the_client(tmp_path: Path) -> None:
    done, finished = anyio.Event(), anyio.Event()
    async with serving(tmp_path) as served:
        key = ClientKey("ada", None)
        client = await (await served.gateway.endpoint()).stateless(key, abilities_of(None))
        conversation = MultiRoundContext[str](client, RequestIdentity("tools/call", "x"), abilities_of(None))

        async def work() -> str:
            async with anyio.create_task_group() as asking:
                asking.start_soon(conversation.ask, types.ListRootsRequest(), "a")
                await done.wait()
                asking.cancel_scope.cancel()
            finished.set()
            return "done"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.run, work)
            asked = await conversation.next_round()
            assert isinstance(asked, types.InputRequiredResult)
            done.set()
            await finished.wait()
            await anyio.lowlevel.checkpoint()
            assert client.parked[conversation.state] is conversation
            assert await conversation.next_round() == "done"


async def test_a_call_that_is_given_up_may_have_been_carried_out(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served:
        endpoint = await served.gateway.endpoint()
        client = await endpoint.stateless(ClientKey("local", None), abilities_of(None))
        context = MultiRoundContext[str](client, RequestIdentity("tools/call", "t"), frozenset())

        async def never() -> str:
            client.tasks.cancel_scope.cancel()  # as when its session ends
            await anyio.sleep_forever()
            return ""

        client.tasks.start_soon(context.run, never)
        with pytest.raises(MCPError, match="given up") as raised:
            await context.next_round()
        assert raised.value.error.data == {"fairlead/delivery": "unknown"}


async def test_a_question_without_an_answer_holds_up_no_other_call(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        asked = (await ask(client, {"who": WHO}))["result"]
        again = (await ask(client, {"who": WHO}))["result"]
        assert "result" in await client.modern("tools/call", meta=ASKABLE, name="a_echo", arguments={})
        for round_ in (asked, again):
            answers = {"inputResponses": dict.fromkeys(round_["inputRequests"], ADA)}
            done = await ask(client, {"who": WHO}, requestState=round_["requestState"], **answers)
            assert "Ada" in text_of(done)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", BOTH_ERAS)
async def test_a_trusted_server_hears_where_the_client_works(tmp_path: Path, mode: Any, version: str) -> None:
    server = AskingServer(tmp_path / "record", version=version)

    async def list_roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///srv/work"), name="work")])

    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode=mode, list_roots_callback=list_roots) as client,
    ):
        result = await client.call_tool("a_ask", {"questions": {"where": ROOTS}})
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    assert json.loads(content.text) == {"where": {"roots": [{"uri": "file:///srv/work", "name": "work"}]}}


@pytest.mark.parametrize("entry", [{"trust": "untrusted", "allow_tools": ["*"]}, {"roots": ["."]}])
async def test_no_other_server_does(tmp_path: Path, entry: dict[str, Any]) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with serving(tmp_path, a=server.entry(**entry)) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        done = await ask(client, {"where": ROOTS}, meta={CAPABILITIES: {"roots": {}}})
    assert "inputRequests" not in done["result"]


@pytest.mark.requirement("HARD-79")
async def test_a_request_state_is_good_for_one_round_of_one_request_of_one_principal(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        mine, theirs = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp", "eve")
        state = (await ask(mine, {"who": WHO}))["result"]["requestState"]
        answer: dict[str, Any] = {"inputResponses": {"who": ADA}, "requestState": state}
        nonce, expires, seal = state.split(".")
        forged = [
            "",
            "x",
            "..",
            f"{nonce}.{int(expires) + 1000}.{seal}",
            f"{nonce}.{expires}.{'0' * 64}",
            f"{'0' * 32}.{expires}.{seal}",
            f"{nonce}.{expires}",
            f"{nonce}.-1.{seal}",
            f"{nonce}.{'9' * 400}.{seal}",
            f"{nonce}.٣.{seal}",
            f"{state}.",
            f" {state}",
            state.upper(),
        ]
        foreign = [
            await ask(theirs, {"who": WHO}, **answer),
            await ask(mine, {"who": ROOTS}, **answer),
            await ask(mine, {}, **answer),
            await mine.modern("tools/call", meta=ASKABLE, name="a_echo", arguments={}, **answer),
            *[await ask(mine, {"who": WHO}, **{**answer, "requestState": other}) for other in forged],
        ]
        assert {refused["error"]["code"] for refused in foreign} == {types.INVALID_PARAMS}
        # None of these cost the request anything; and once it has gone on, the state is used up.
        assert "Ada" in text_of(await ask(mine, {"who": WHO}, **answer))
        replayed = await ask(mine, {"who": WHO}, **answer)
        assert replayed["error"]["code"] == types.INVALID_PARAMS
        assert replayed["error"]["data"] == {"fairlead/delivery": "unknown"}


@pytest.mark.requirement("HARD-79")
async def test_a_request_state_that_comes_late_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        monkeypatch.setattr("fairlead.gateway.request_context.PARKED_SECONDS", -1.0)
        state = (await ask(client, {"who": WHO}))["result"]["requestState"]
        late = await ask(client, {"who": WHO}, requestState=state, inputResponses={"who": ADA})
        assert late["error"]["code"] == types.INVALID_PARAMS
        assert "too late" in late["error"]["message"]
        assert late["error"]["data"] == {"fairlead/delivery": "unknown"}


@pytest.mark.requirement("HARD-79")
async def test_two_that_come_back_at_once_with_one_state_are_not_both_served(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        state = (await ask(client, {"who": WHO}))["result"]["requestState"]
        answers: list[dict[str, Any]] = []

        async def come_back() -> None:
            answers.append(await ask(client, {"who": WHO}, requestState=state, inputResponses={"who": ADA}))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(come_back)
        assert sum("result" in answer for answer in answers) == 1
        assert sum("error" in answer for answer in answers) == 7
