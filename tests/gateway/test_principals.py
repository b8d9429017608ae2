"""What belongs to one principal of a gateway is neither seen nor used by another."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.abc
import pytest

from fairlead.config.load import load_config
from fairlead.config.principal import LOCAL, oauth_principal
from fairlead.errors import CallFailed, ConfigError
from fairlead.gateway.access.tokens import PERSON_SCOPES, TokenFile, Tokens
from fairlead.gateway.login_links import LINK_SECONDS, LoginLinks
from fairlead.host.logins import is_personal
from fairlead.host.offers.tasks import KnownTask
from fairlead.host.operator import ApprovalRequest
from fairlead.host.snapshots import snapshot_key
from fairlead.testing.fixtures import FakeClock
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine
from tests.gateway.support import Raw, Served, serving, text_of

ALICE, BOB = "token:alice", "token:bob"
ODD_NAMES = (
    "local ",
    "Local",
    "LOCAL",
    "local/",
    "loc",
    "locals",
    "l\u043ecal",  # a Cyrillic letter
    "token:local",
    "oauth:https://issuer.example local",
    "../local",
    "local%00",
)
"""Names that are not `local`, however much they look like it."""


def notes(issuer: AuthorizationServer, **more: Any) -> dict[str, Any]:
    return {"url": issuer.mcp_url, "trust": "trusted", "approval": "allow", **more}


async def log_in(served: Served, principal: str, account: str) -> None:
    """Log in as a person would, at the login page of the server."""
    logins = served.gateway.host.logins
    target = await logins.target(served.gateway.loaded.server("notes"), principal=principal)
    await logins.log_in(target, Clicking(account))


async def whoami(http: aiohttp.ClientSession, served: Served, principal: str) -> str:
    answer = await Raw(http, f"{served.url}/mcp", principal).modern(
        "tools/call", name="notes_whoami", arguments={}
    )
    return text_of(answer) if "result" in answer else answer["error"]["message"]


async def tools_of(http: aiohttp.ClientSession, served: Served, principal: str) -> list[str]:
    answer = await Raw(http, f"{served.url}/mcp", principal).modern("tools/list")
    return [tool["name"] for tool in answer["result"]["tools"]]


async def listed(http: aiohttp.ClientSession, served: Served, principal: str) -> None:
    """Wait until a principal has the tools that its login brings: they are listed in the background."""
    with anyio.fail_after(30):
        while "notes_whoami" not in await tools_of(http, served, principal):  # noqa: ASYNC110 - as it says
            await anyio.sleep(0.05)


async def all_answered(issuer: AuthorizationServer) -> None:
    """Wait until the server has been asked nothing for a while: other lists come after that of the tools."""
    seen = -1
    with anyio.fail_after(30):
        while seen != (seen := len(issuer.asked("/mcp"))):  # noqa: ASYNC110 - what does not come has no event
            await anyio.sleep(0.5)


@pytest.mark.requirement("HARD-80")
async def test_each_principal_uses_its_own_login_and_no_other(tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with serving(tmp_path, notes=notes(issuer)) as served, aiohttp.ClientSession() as http:
            await log_in(served, LOCAL, "ada")
            assert await whoami(http, served, LOCAL) == "ada"
            await listed(http, served, LOCAL)  # in the background, with its login
            await all_answered(issuer)
            before = len(issuer.asked("/mcp"))
            assert "ada" not in await whoami(http, served, ALICE)
            with_login = [seen for seen in issuer.asked("/mcp")[before:] if "authorization" in seen.headers]
            assert with_login == []
            await log_in(served, ALICE, "grace")
            await listed(http, served, ALICE)
            assert await whoami(http, served, ALICE) == "grace"
            assert await whoami(http, served, LOCAL) == "ada"
            assert "grace" not in await whoami(http, served, BOB)


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_name_like_that_of_the_local_user_has_not_its_login(tmp_path: Path, name: str) -> None:
    with authorization_server() as issuer:
        async with serving(tmp_path, notes=notes(issuer)) as served:
            await log_in(served, LOCAL, "ada")
            logins, server = served.gateway.host.logins, served.gateway.loaded.server("notes")
            target = await logins.target(server, principal=name)
            assert target.principal == name
            assert await logins.broker.current(name, target.account, target.resource) is None
            async with served.gateway.host_of(name) as host:
                assert host is not served.gateway.host
                assert host.listing("notes") is None


@pytest.mark.requirement("HARD-80")
async def test_what_a_server_lists_for_one_login_is_not_shown_to_another(tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with serving(tmp_path, notes=notes(issuer)) as served, aiohttp.ClientSession() as http:
            await log_in(served, LOCAL, "ada")
            assert "notes_whoami" in await tools_of(http, served, LOCAL)
            assert "notes_whoami" not in await tools_of(http, served, ALICE)
        # Neither after a restart, when all that is known comes from the store.
        async with serving(tmp_path, notes=notes(issuer)) as served, aiohttp.ClientSession() as http:
            assert "notes_whoami" in await tools_of(http, served, LOCAL)
            assert "notes_whoami" not in await tools_of(http, served, ALICE)
            await log_in(served, ALICE, "grace")
            await listed(http, served, ALICE)


@pytest.mark.requirement("HARD-80")
async def test_a_principal_without_a_login_is_given_a_link_of_its_own(tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with serving(tmp_path, notes=notes(issuer)) as served, aiohttp.ClientSession() as http:
            served.gateway.login_links.origin = "http://gateway.test"
            await log_in(served, ALICE, "grace")
            await listed(http, served, ALICE)
            assert await whoami(http, served, ALICE) == "grace"
            logins = served.gateway.host.logins
            target = await logins.target(served.gateway.loaded.server("notes"), principal=ALICE)
            login = await logins.broker.current(ALICE, target.account, target.resource)
            assert login is not None
            await logins.broker.forget(login.key)
            issuer.expire_access_tokens()
            said = await whoami(http, served, ALICE)
            assert "log in at http://gateway.test/connect/" in said
            assert "fairlead login" not in said  # which would log the local user in


@pytest.mark.requirement("HARD-80")
async def test_a_shared_login_is_used_by_all_and_said_to_be(tmp_path: Path) -> None:
    with authorization_server() as issuer:
        entry = notes(issuer, login="shared")
        async with serving(tmp_path, notes=entry) as served, aiohttp.ClientSession() as http:
            await log_in(served, ALICE, "ada")  # whoever does it, it is everybody's
            await listed(http, served, BOB)
            assert await whoami(http, served, BOB) == "ada"
            (status,) = served.gateway.host.status()
            assert any("login: shared" in note for note in status.notes)


@pytest.mark.requirement("HARD-80")
def test_a_project_file_cannot_share_a_login(machine: Machine) -> None:
    entry = {"url": "https://notes.example/mcp", "login": "shared"}
    (machine.project / "fairlead.json").write_text(json.dumps({"servers": {"notes": entry}}))
    loaded = load_config(None, {}, machine.env, machine.project)
    assert "login" not in loaded.servers["notes"].entry
    assert any("may not set this" in str(problem) for problem in loaded.problems)
    machine.write_user(json.dumps({"servers": {"notes": {"url": "https://notes.example/mcp"}}}))
    overlay = {"servers": {"notes": {"login": "shared"}}}
    (machine.project / "fairlead.json").write_text(json.dumps(overlay))
    assert "login" not in load_config(None, {}, machine.env, machine.project).servers["notes"].entry


@pytest.mark.requirement("HARD-80")
def test_only_servers_with_a_credential_in_the_configuration_are_shared(machine: Machine) -> None:
    url = "https://notes.example/mcp"
    entries: dict[str, tuple[dict[str, Any], bool]] = {
        "plain": ({"url": url}, True),
        "never": ({"url": url, "oauth": False}, False),
        "keyed": ({"url": url, "headers": {"authorization": "Bearer ${KEY}"}}, False),
        "helped": ({"url": url, "headers_helper": ["print-headers"]}, False),
        "other-header": ({"url": url, "headers": {"X-Team": "a"}}, True),
        "shared": ({"url": url, "login": "shared"}, False),
        "client": (
            {"url": url, "oauth": {"grant": "client_credentials", "client_id": "a", "client_secret": "b"}},
            False,
        ),
        "person": ({"url": url, "oauth": {"client_id": "a"}}, True),
        "sse": ({"url": url, "transport": "sse"}, True),
        "command": ({"command": "there-is-none"}, False),
    }
    machine.write_user(json.dumps({"servers": {name: entry for name, (entry, _) in entries.items()}}))
    loaded = machine.load()
    for name, (_, expected) in entries.items():
        assert is_personal(loaded.servers[name]) is expected, name


@pytest.mark.requirement("HARD-80")
def test_snapshots_of_principals_never_share_a_key(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"notes": {"url": "https://notes.example/mcp"}}}))
    server = machine.load().servers["notes"]
    names = (LOCAL, "", *ODD_NAMES, ALICE, BOB, "token:ali", "token:alice\0", "\0token:alice")
    keys = {snapshot_key(server, name) for name in names}
    assert len(keys) == len(names)


# Tokens.


@pytest.mark.requirement("HARD-80")
def test_a_token_is_a_principal_a_label_and_scopes(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    mine = named.add("laptop", principal=LOCAL)
    hers = named.add("phone", principal="alice")
    own = named.add("local")
    tokens = Tokens(None, named)
    found = [tokens.owner(token) for token in (mine, hers, own)]
    assert [(owner.principal, owner.label) for owner in found if owner] == [
        (LOCAL, "laptop"),
        ("token:alice", "phone"),
        ("token:local", "local"),
    ]
    for odd in ("", "a b", "a/b", "l\u043ecal", "local\n", "a" * 65):
        with pytest.raises(ConfigError, match="name"):
            named.add("other", principal=odd)


@pytest.mark.requirement("HARD-80")
def test_tokens_of_an_older_version_keep_their_principal_and_rights(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    token = named.add("ci", scopes=("mcp", "admin"))
    kept = json.loads(named.path.read_text())["tokens"]
    for entry in kept:
        del entry["principal"]
    named.path.write_text(json.dumps(kept))
    owner = Tokens(None, named).owner(token)
    assert owner is not None
    assert owner.principal == "token:ci"
    assert owner.scopes == {"mcp", "admin", "decide"}


@pytest.mark.requirement("HARD-81")
def test_the_users_two_tokens_are_told_apart_and_end_with_their_files(tmp_path: Path) -> None:
    agent, person = tmp_path / "token", tmp_path / "decide-token"
    agent.write_text("agent\n")
    person.write_text("person\n")
    tokens = Tokens(agent, decide=person)
    for token, scopes in (("agent", {"mcp"}), ("person", PERSON_SCOPES)):
        owner = tokens.owner(token)
        assert owner is not None
        assert (owner.principal, owner.scopes) == (LOCAL, scopes)
    assert tokens.owner("") is None
    person.write_text("agent\n")  # a copy of the agents' token decides nothing
    owner = tokens.owner("agent")
    assert owner is not None
    assert owner.scopes == {"mcp"}
    agent.unlink()
    person.unlink()
    assert tokens.owner("agent") is None
    assert tokens.owner("person") is None


@pytest.mark.requirement("HARD-80")
def test_no_subject_of_any_issuer_is_another_principal() -> None:
    issuers = (*(f"https://a.example{end}" for end in ("", "/", "/x", " x")), "https://b.example")
    subjects = ("local", "x", "/x", "x local", "https://b.example local", ALICE, "ada", "Ada", "\u00e4da")
    principals = {oauth_principal(issuer, subject) for issuer in issuers for subject in subjects}
    assert len(principals) == len(issuers) * len(subjects)
    assert not principals & {LOCAL, ALICE}
    assert all(principal.startswith("oauth:") for principal in principals)


# Approvals, tasks and links.


@pytest.mark.requirement("HARD-80")
async def test_waiting_calls_are_seen_and_answered_by_their_own_principal_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, anyio.create_task_group() as tasks:
        approvals = served.gateway.approvals
        question = ApprovalRequest(server_id="x", tool="y", arguments={}, reason="it asks", principal=ALICE)
        tasks.start_soon(approvals.ask, question)
        while not approvals.pending():  # noqa: ASYNC110 - begins in another task
            await anyio.sleep(0.01)
        (call,) = approvals.pending(ALICE)
        for other in (BOB, LOCAL, "token:ali", "token:alice2", "TOKEN:ALICE", ""):
            assert approvals.pending(other) == []
            assert not await approvals.answer(call.id, "once", principal=other)
        assert await approvals.answer(call.id, "once", principal=ALICE)


@pytest.mark.requirement("HARD-80")
async def test_a_task_is_neither_seen_nor_ended_by_another_principal(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        tasks = served.gateway.host.tasks
        await tasks._keep(  # pyright: ignore[reportPrivateUsage] - as if a server had begun one
            KnownTask(server_id="x", tool="y", task_id="1", begun_at=0, principal=ALICE)
        )
        assert [task.task_id for task in await tasks.known(ALICE)] == ["1"]
        for other in (LOCAL, BOB, "token:ali", "Token:alice"):
            assert await tasks.known(other) == ()
            for ask in (tasks.get, tasks.cancel, tasks.result):
                with pytest.raises(CallFailed, match="there is no task"):
                    await ask("x", "1", principal=other)
        with pytest.raises(CallFailed, match="there is no task"):
            await tasks.get("x", "begun elsewhere", principal=BOB)


@pytest.mark.requirement("HARD-80")
def test_a_login_link_is_for_one_principal_one_server_and_one_browser() -> None:
    clock = FakeClock()
    links = LoginLinks(clock=clock)
    assert links.url(ALICE, "notes") is None  # there are no pages to lead to
    links.origin = "http://gateway.test"
    url = links.url(ALICE, "notes")
    assert url == links.url(ALICE, "notes")
    assert url is not None
    assert len({url, links.url(BOB, "notes"), links.url(ALICE, "other")}) == 3
    code = url.rpartition("/")[2]
    assert links.find("no such code", "browser") is None
    seen = links.find(code, "one browser")
    assert seen is not None
    assert (seen.principal, seen.server_id) == (ALICE, "notes")
    assert links.claim(code, "one browser") is not None
    assert links.find(code, "one browser") is not None
    assert links.claim(code, "another browser") is None
    assert links.find(code, "another browser") is None
    assert links.url(ALICE, "notes") != url  # which is in use
    clock.advance(LINK_SECONDS + 1)
    assert links.find(code, "one browser") is None


LINK = "log in at http://gateway.test/connect/"


@asynccontextmanager
async def with_a_stranger(tmp_path: Path, **more: Any) -> AsyncGenerator[tuple[Served, Raw]]:
    """A gateway whose one server the local user is logged in at, and a principal that was never there."""
    with authorization_server() as issuer:
        async with serving(tmp_path, notes=notes(issuer, **more)) as served, aiohttp.ClientSession() as http:
            served.gateway.login_links.origin = "http://gateway.test"
            await log_in(served, LOCAL, "ada")
            await listed(http, served, LOCAL)
            yield served, Raw(http, f"{served.url}/mcp", BOB)


@pytest.mark.requirement("HARD-80")
async def test_the_first_introduction_of_a_principal_names_its_login_link(tmp_path: Path) -> None:
    async with with_a_stranger(tmp_path) as (served, bob):
        discovered = await bob.modern("server/discover")
        assert LINK in discovered["result"]["instructions"]
        alice = Raw(bob.http, bob.url, ALICE)
        params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        params["clientInfo"] = {"name": "raw", "version": "1"}
        initialize: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        _, _, answer = await alice.post(initialize)
        said = answer["result"]["instructions"]
        assert LINK in said
        assert said != discovered["result"]["instructions"], "each has a link of its own"
        local = await Raw(bob.http, bob.url, LOCAL).modern("server/discover")
        assert "connect/" not in json.dumps(local)
        await log_in(served, BOB, "grace")
        await listed(bob.http, served, BOB)
        assert LINK not in json.dumps(await bob.modern("server/discover"))


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "notes_whoami", "arguments": {}}),
        ("tools/call", {"name": "anything", "arguments": {}}),
        ("resources/read", {"uri": "notes://anything"}),
        ("prompts/get", {"name": "notes_anything", "arguments": {}}),
        ("prompts/get", {"name": "anything", "arguments": {}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "x:{a}"}, "argument": {"name": "a", "value": ""}},
        ),
    ],
)
async def test_the_first_error_of_a_principal_names_its_login_link(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    async with with_a_stranger(tmp_path) as (_, bob):
        said = json.dumps(await bob.modern(method, **params))
        assert LINK in said
        assert "fairlead login" not in said


@pytest.mark.requirement("HARD-80")
async def test_a_server_that_hangs_does_not_hold_up_the_first_introduction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.gateway.principal_view.LOGIN_WAIT_SECONDS", 0.2)

    async def hang(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            async for _ in stream:
                pass

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, hang)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        entry = {"url": f"http://127.0.0.1:{port}/mcp", "trust": "trusted"}
        async with serving(tmp_path, notes=entry) as served, aiohttp.ClientSession() as http:
            with anyio.fail_after(20):
                answer = await Raw(http, f"{served.url}/mcp", BOB).modern("server/discover")
            assert "result" in answer
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("HARD-80")
async def test_a_client_that_can_open_pages_is_sent_to_the_link_of_its_principal(tmp_path: Path) -> None:
    able: dict[str, Any] = {
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}}
    }
    call: dict[str, Any] = {"name": "notes_whoami", "arguments": {}}
    async with with_a_stranger(tmp_path) as (served, bob):
        served.gateway.login_links.origin = "https://gateway.test"
        link = "log in at https://gateway.test/connect/"
        assert link in (await bob.modern("server/discover", meta=able))["result"]["instructions"]
        asked = (await bob.modern("tools/call", meta=able, **call))["result"]
        assert asked["resultType"] == "input_required", asked
        ((key, question),) = asked["inputRequests"].items()
        assert question["params"]["mode"] == "url"
        assert question["params"]["url"].startswith("https://gateway.test/connect/")
        again = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
        answered = await bob.modern("tools/call", 2, meta=able, **call, **again)
        assert answered["result"]["isError"]
        assert question["params"]["url"] in text_of(answered)
        assert link in text_of(await bob.modern("tools/call", 3, meta=able, **call)), "it is asked once"
