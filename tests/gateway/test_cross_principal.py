"""What one principal of a gateway left behind, and another one asks for by its exact name."""

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.connection.peer import SESSION_META_KEY
from fairlead.errors import UnknownArtifact
from fairlead.gateway.control.server import ANSWERS_PATH, CONTROL_PATH
from fairlead.gateway.gateway import GatewayOptions
from fairlead.host.offers.tasks import KnownTask
from fairlead.host.operator import ApprovalAnswer
from tests.conftest import Machine
from tests.gateway.access.test_scopes import PERSON, guarded_gateway
from tests.gateway.support import MODERN, Raw, Served, serving, text_of, until
from tests.gateway.test_elicitation import ADA, WHO
from tests.gateway.test_principals import ALICE, BOB
from tests.gateway.test_tools import scripted
from tests.host.asking import AskingServer
from tests.host.test_artifacts import PROGRAM

OTHERS = (
    BOB,
    "local",
    "token:alic",
    "token:alice2",
    "TOKEN:ALICE",
    "token:alice/",
    "token",
    "token:alice/..",
)
"""Names that are not `token:alice`."""
PARROT: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-I", "-S", "-c", PROGRAM],
    "allow_tools": ["answer"],
    "approval": "allow",
    "max_result_bytes": 2000,
}


async def call(http: aiohttp.ClientSession, served: Served, principal: str, name: str, **given: Any) -> Any:
    """The answer to a call of one principal."""
    client = Raw(http, f"{served.url}/mcp", principal)
    return await client.modern("tools/call", name=name, arguments=given)


async def keep(http: aiohttp.ClientSession, served: Served, principal: str, secret: str) -> str:
    """Have a result kept that is too large to be handed over; its handle."""
    result = json.dumps({"content": [{"type": "text", "text": f"{secret} " * 500}]})
    said = str(await call(http, served, principal, "x_answer", result=result))
    assert "artifact://" in said
    return "artifact://" + said.partition("artifact://")[2][:64]


@pytest.mark.requirement("HARD-80")
async def test_an_artifact_is_read_by_its_own_principal_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, x=PARROT) as served, aiohttp.ClientSession() as http:
        handle = await keep(http, served, ALICE, "alices")
        assert "alices" in str(await call(http, served, ALICE, "mcp_read_artifact", handle=handle))
        artifacts = served.gateway.host.artifacts
        digest = handle.removeprefix("artifact://")
        spellings = (
            handle,
            digest,
            f"{ALICE}/{digest}",
            f"artifact://{ALICE}/{digest}",
            f"../{ALICE}/{digest}",
        )
        for other in OTHERS:
            assert await artifacts.of(other) == []
            for spelling in spellings:
                with pytest.raises(UnknownArtifact):
                    await artifacts.read(spelling, principal=other)
                answer = await call(http, served, other, "mcp_read_artifact", handle=spelling)
                assert "error" in answer or answer["result"]["isError"]
                assert "alices" not in str(answer)
                read = await Raw(http, f"{served.url}/mcp", other).modern("resources/read", uri=spelling)
                assert "error" in read
                assert "alices" not in str(read)
        # The same bytes of two principals are one file, and two artifacts.
        assert await keep(http, served, BOB, "alices") == handle
        assert "alices" in str(await call(http, served, BOB, "mcp_read_artifact", handle=handle))


@pytest.mark.requirement("HARD-80")
async def test_the_control_api_reads_no_artifact_of_another_principal(
    machine: Machine, tmp_path: Path
) -> None:
    config = {"servers": {"x": PARROT}}
    async with guarded_gateway(machine, tmp_path, config) as up:
        served = Served(gateway=up.gateway, url=up.url, env={})
        handle = await keep(up.http, served, up.tokens.add("alice"), "alices")
        for token in (PERSON, up.tokens.add("adm", scopes=("admin",))):
            work = {"type": "call", "server": "fairlead", "tool": "mcp_read_artifact"}
            body = json.dumps({"work": {**work, "arguments": {"handle": handle}}, "config": ""})
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            async with up.http.post(f"{up.url}/api/control", data=body, headers=headers) as answer:
                assert "alices" not in await answer.text()
            for path in (f"/api/artifacts/{handle[11:]}", f"/artifacts/{handle[11:]}"):
                assert await up.ask(path, token) == 404


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize("answer", ["once", "session", "always"])
async def test_what_one_principal_was_allowed_is_asked_about_for_another(
    tmp_path: Path, answer: ApprovalAnswer
) -> None:
    entry = scripted(tmp_path, "a").entry(approval="ask")
    options = GatewayOptions(approval_seconds=20)
    async with serving(tmp_path, options=options, a=entry) as served, aiohttp.ClientSession() as http:
        approvals = served.gateway.approvals
        asked: list[str] = []

        async def ask_as(principal: str) -> None:
            """Call, and answer yes to whatever is asked about for this principal."""
            async with anyio.create_task_group() as tasks:

                async def answering() -> None:
                    await until(lambda: bool(approvals.pending(principal)))
                    (waiting,) = approvals.pending(principal)
                    asked.append(principal)
                    assert await approvals.answer(waiting.id, answer, principal=principal)

                tasks.start_soon(answering)
                said = await call(http, served, principal, "a_echo")
                assert text_of(said) == "{}"
                tasks.cancel_scope.cancel()

        for principal in (ALICE, ALICE, BOB, "local", "TOKEN:ALICE", BOB):
            await ask_as(principal)
        again = [ALICE, BOB] if answer == "once" else []
        assert sorted(asked) == sorted([ALICE, BOB, "local", "TOKEN:ALICE", *again])


@pytest.mark.requirement("HARD-80")
async def test_a_question_to_one_principal_is_answered_by_no_other(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with guarded_gateway(machine, tmp_path, {"servers": {"a": server.entry(approval="allow")}}) as up:
        work = {"type": "call", "server": "a", "tool": "ask", "arguments": {"questions": {"who": WHO}}}
        errand = {"work": {**work, "confirmed": True}, "config": "", "can": ["form"]}
        strangers = [
            up.tokens.add("adm", scopes=("admin",)),
            up.tokens.add("bob", scopes=("mcp", "decide")),
            up.tokens.add("laptop", principal="local"),
        ]

        async def answer(token: str, question: str) -> bool:
            reply = {"id": question, "result": ADA}
            headers = {"Authorization": f"Bearer {token}"}
            async with up.http.post(f"{up.url}{ANSWERS_PATH}", json=reply, headers=headers) as response:
                return response.status == 200 and (await response.json())["answered"]

        headers = {"Authorization": f"Bearer {PERSON}"}
        async with up.http.post(f"{up.url}{CONTROL_PATH}", json=errand, headers=headers) as response:
            question = await first_question(response)
            for stranger in strangers:
                assert not await answer(stranger, question)
            assert not await answer(PERSON, f"{question}0")
            assert await answer(PERSON, question)
            rest = (await response.content.read()).decode()
            assert "Ada" in rest
            assert not await answer(PERSON, question)


async def first_question(response: aiohttp.ClientResponse) -> str:
    """The id of the first question in the course of an errand."""
    with anyio.fail_after(30):
        while line := await response.content.readline():
            event: dict[str, Any] = json.loads(line.removeprefix(b"data:")) if line.strip() else {}
            if event.get("type") == "question":
                return event["id"]
    pytest.fail("nothing was asked")


@pytest.mark.requirement("HARD-80")
async def test_naming_the_session_of_another_principal_or_token_leads_to_ones_own(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:

        async def pid_of(name: str, session: Any) -> str:
            client = Raw(http, f"{served.url}/mcp", name)
            answer = await client.modern(
                "tools/call", name="a_pid", arguments={}, meta={SESSION_META_KEY: session}
            )
            return text_of(answer) if "result" in answer else f"refused {name} {session!r}"

        alices = await pid_of(f"{ALICE}#one", "s")
        assert await pid_of(f"{ALICE}#one", "s") == alices
        others = [
            (BOB, "s"),
            (f"{BOB}#one", "s"),
            (f"{ALICE}#two", "s"),
            (ALICE, "s"),
            ("local", "s"),
            ("token:alice2#one", "s"),
            ("TOKEN:ALICE#one", "s"),
            (f"{ALICE}#one", "s "),
            (f"{ALICE}#one", "S"),
            (f"{ALICE}#one", f"{ALICE}\0s"),
            (BOB, f"{ALICE}\0one\0s"),
            (BOB, "s" * 10_000),
            (BOB, {"s": 1}),
            (BOB, ["s"]),
            (BOB, None),
        ]
        for name, session in others:
            assert await pid_of(name, session) != alices, (name, session)


@pytest.mark.requirement("HARD-80")
async def test_the_session_id_of_another_principal_or_token_is_no_session(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        alice = Raw(http, f"{served.url}/mcp", f"{ALICE}#one")
        await alice.begin()
        mine = text_of(await alice.older("tools/call", name="a_pid", arguments={}))
        for other in (BOB, "local", ALICE, f"{ALICE}#two", "TOKEN:ALICE#one", f"{BOB}#one"):
            thief = Raw(http, alice.url, other)
            thief.headers = {**alice.headers, "Authorization": f"Bearer {other}"}
            call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
            status, _, said = await thief.post({**call, "params": {"name": "a_pid", "arguments": {}}})
            assert status in (401, 403, 404), other
            assert mine not in json.dumps(said)
            async with http.delete(alice.url, headers=thief.headers) as ended:
                assert ended.status in (401, 403, 404), other
            async with http.get(
                alice.url, headers={**thief.headers, "Accept": "text/event-stream"}
            ) as stream:
                assert stream.status in (401, 403, 404), other
        assert text_of(await alice.older("tools/call", name="a_pid", arguments={})) == mine


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize(
    "method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "tasks/update"]
)
async def test_no_task_is_reached_through_the_gateway_by_its_name(tmp_path: Path, method: str) -> None:
    entry = scripted(tmp_path, "a").entry()
    async with serving(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        await served.gateway.host.tasks._keep(  # pyright: ignore[reportPrivateUsage] - as if one had begun
            KnownTask(server_id="a", tool="echo", task_id="alices-task", begun_at=0, principal=ALICE)
        )
        for principal in (BOB, "local", ALICE):
            for task_id in ("alices-task", "a/alices-task", "a:alices-task"):
                client = Raw(http, f"{served.url}/mcp", principal)
                answer = await client.modern(method, taskId=task_id, inputResponses={})
                assert "error" in answer, (principal, task_id)
                assert "echo" not in json.dumps(answer["error"])
