"""Rules and bundles for principals and groups: what a gateway's clients see, and what they may call."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from starlette.types import Scope

from fairlead.gateway.access.auth import AuthenticatedRequest, _outside  # pyright: ignore[reportPrivateUsage]
from fairlead.gateway.access.jwt import MAX_GROUPS, JwtAccess, TokenForbidden, TokenInvalid, VerifiedToken
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.gateway.access.test_jwt import Signer, access, signer
from tests.gateway.support import Raw, text_of

__all__ = ["signer"]

SECONDS = 60.0
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("echo", "pid", "meta")
]
RULES = [
    {"action": "deny", "principal": "group:interns", "tool": "pi*", "reason": "not for interns"},
    {"action": "deny", "principal": "eve"},
    {"action": "ask", "principal": "group:guests", "tool": "me*"},
]


class WithGroups:
    """Admits a client by `Bearer NAME/GROUP,GROUP`."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Say for whom a request goes on."""
        token = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        name, _, groups = token.partition("/")
        return AuthenticatedRequest(principal=name, groups=frozenset(filter(None, groups.split(","))))


@asynccontextmanager
async def gateway(machine: Machine, folder: Path, **document: Any) -> AsyncGenerator[tuple[Gateway, str]]:
    server = ScriptedServer(folder / "record", tools=TOOLS)
    overrides = {"servers": {"s": server.entry(sharing="shared")}, "policy": {"rules": RULES}, **document}
    loaded = machine.load(overrides=overrides)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(loaded, env=machine.env) as running,
            listening(running.app(WithGroups()), listener),
        ):
            yield running, url_of(listener)


async def names_of(client: Raw, *, older: bool = False) -> set[str]:
    answer = await (client.older("tools/list") if older else client.modern("tools/list"))
    return {tool["name"] for tool in answer["result"]["tools"] if tool["name"].startswith("s_")}


ALL = {"s_echo", "s_pid", "s_meta"}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("ada/", ALL),
        ("bo/interns", ALL - {"s_pid"}),
        ("bo/interns,data", ALL - {"s_pid"}),
        ("bo/Interns", ALL),
        ("interns/", ALL),
        ("eve/", set[str]()),
        ("cy/guests", ALL),
    ],
)
async def test_a_principal_sees_what_rules_leave_it(
    machine: Machine, tmp_path: Path, token: str, expected: set[str], older: bool
) -> None:
    async with gateway(machine, tmp_path) as (_, url), aiohttp.ClientSession() as http:
        client = Raw(http, f"{url}/mcp", token)
        if older:
            await client.begin()
        assert await names_of(client, older=older) == expected


async def test_what_is_hidden_cannot_be_called_either_and_the_rule_says_why(
    machine: Machine, tmp_path: Path
) -> None:
    async with gateway(machine, tmp_path) as (_, url), aiohttp.ClientSession() as http:
        for token, works in (("ada/", True), ("bo/interns", False), ("bo/", True)):
            client = Raw(http, f"{url}/mcp", token)
            await client.modern("tools/list")
            answer = await client.modern("tools/call", name="s_pid", arguments={})
            is_called = "result" in answer and not answer["result"].get("isError")
            assert is_called is works, (token, answer)


async def test_meta_tools_call_nothing_that_a_rule_denies_to_the_group(
    machine: Machine, tmp_path: Path
) -> None:
    async with (
        gateway(machine, tmp_path, gateway={"mode": "meta"}) as (_, url),
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{url}/mcp", "bo/interns")
        await client.modern("tools/list")
        found = await client.modern("tools/call", name="mcp_search_tools", arguments={"queries": ["pid"]})
        assert "s.pid" not in text_of(found)
        for name in ("s_pid", "s.pid"):
            arguments: dict[str, Any] = {"name": name, "arguments": {}}
            answer = await client.modern("tools/call", name="mcp_call_tool", arguments=arguments)
            assert "error" in answer or answer["result"]["isError"], answer


async def test_a_session_does_not_outlive_a_change_of_groups(machine: Machine, tmp_path: Path) -> None:
    async with gateway(machine, tmp_path) as (_, url), aiohttp.ClientSession() as http:
        client = Raw(http, f"{url}/mcp", "bo/")
        await client.begin()
        assert await names_of(client, older=True) == ALL
        client.headers["Authorization"] = "Bearer bo/interns"
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
        status, _, _ = await client.post(message)
        assert status == 404, "another session begins, with what the groups may see"


async def test_members_of_a_group_are_asked_and_others_are_not(machine: Machine, tmp_path: Path) -> None:
    answers: list[Any] = []
    async with (
        gateway(machine, tmp_path) as (running, url),
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        other = Raw(http, f"{url}/mcp", "ada/")
        await other.modern("tools/list")
        answer = await other.modern("tools/call", name="s_meta", arguments={})
        assert not answer["result"].get("isError")
        asked = anyio.Event()
        running.approvals.on_change = asked.set

        async def call() -> None:
            guest = Raw(http, f"{url}/mcp", "cy/guests")
            answers.append(await guest.modern("tools/call", name="s_meta", arguments={}))

        tasks.start_soon(call)
        await asked.wait()
        (waiting,) = running.approvals.pending("cy")
        assert await running.approvals.answer(waiting.id, "once")
    assert not answers[0]["result"].get("isError")


# Claims.

OAUTH = {"issuer": "https://issuer.example", "audience": "https://gateway.example/mcp"}


@pytest.mark.parametrize(
    ("claims", "groups"),
    [
        ({}, set[str]()),
        ({"groups": ["interns", "data"]}, {"interns", "data"}),
        ({"groups": "interns"}, {"interns"}),
        ({"groups": []}, set[str]()),
        ({"roles": ["interns"]}, set[str]()),
        ({"groups": None}, set[str]()),
        ({"groups": ""}, set[str]()),
        ({"groups": ["interns", "interns"]}, {"interns"}),
        ({"groups": ["Domain Users", "a,b", "grüße"]}, {"Domain Users", "a,b", "grüße"}),
        ({"groups": ["*", "group:interns"]}, {"*", "group:interns"}),
        ({"hasgroups": False}, set[str]()),
    ],
)
async def test_groups_come_from_a_claim(signer: Signer, claims: dict[str, Any], groups: set[str]) -> None:
    found = await access(signer).verify(signer.token(**claims))
    assert isinstance(found, VerifiedToken)
    assert found.groups == groups


async def test_which_claim_has_the_groups_is_configured(signer: Signer) -> None:
    found = await access(signer, groups_claim="roles").verify(signer.token(roles=["a"], groups=["b"]))
    assert isinstance(found, VerifiedToken)
    assert found.groups == {"a"}


@pytest.mark.parametrize(
    ("path", "claims", "groups"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["interns"]}}, {"interns"}),
        ("a.b.c", {"a": {"b": {"c": "interns"}}}, {"interns"}),
        ("realm_access.roles", {}, set[str]()),
        ("realm_access.roles", {"realm_access": {}}, set[str]()),
        ("realm_access.roles", {"realm_access": None}, set[str]()),
        ("realm_access.roles", {"realm_access.roles": ["x"], "realm_access": {"roles": ["y"]}}, {"x"}),
        ("https://gateway.example/groups", {"https://gateway.example/groups": ["x"]}, {"x"}),
        ("realm_access.roles", {"realm_access": {"roles": {"interns": 1}}}, None),
        ("realm_access.roles", {"realm_access": ["roles"]}, None),
        ("realm_access.roles", {"realm_access": "roles"}, None),
        ("realm_access.roles", {"realm_access": {"roles": ["a", ["b"]]}}, None),
    ],
)
async def test_groups_may_be_nested_in_objects(
    signer: Signer, path: str, claims: dict[str, Any], groups: set[str] | None
) -> None:
    found = await access(signer, groups_claim=path).verify(signer.token(**claims))
    assert (found.groups if isinstance(found, VerifiedToken) else None) == groups


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": {"a": 1}},
        {"groups": 7},
        {"groups": ["a", 7]},
        {"groups": ["a", ["b"]]},
        {"groups": [["a", "b"]]},
        {"groups": [{"name": "interns"}]},
        {"groups": {"interns": True}},
        {"groups": True},
        {"groups": "interns data"},
        {"groups": "interns,data"},
        {"groups": "interns;data"},
        {"groups": "interns\ndata"},
        {"groups": "interns|data"},
        {"groups": "interns+data"},
        {"groups": "interns\u00a0data"},
        {"groups": '["interns"]'},
        {"groups": " interns"},
        {"groups": ["a", ""]},
        {"groups": ["a", None]},
        {"groups": [" interns"]},
        {"groups": ["inte\u200brns"]},
        {"groups": ["interns\n"]},
        {"hasgroups": True},
        {"hasgroups": "true"},
        {"_claim_names": ["groups"]},
        {"_claim_names": "groups"},
        {"_claim_names": {"groups": "src1"}, "groups": ["data"]},
        {"groups:src1": {"endpoint": "https://x.example"}},
        {"groups": [f"g{number}" for number in range(MAX_GROUPS + 1)]},
        {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x.example"}}},
    ],
)
async def test_a_token_whose_groups_cannot_be_told_is_not_accepted(
    signer: Signer, claims: dict[str, Any]
) -> None:
    found = await access(signer).verify(signer.token(**claims))
    assert isinstance(found, TokenInvalid), "a rule that denies something to a group must not lapse"


@pytest.mark.parametrize("claims", [{}, {"groups": None}, {"Groups": ["interns"]}, {"roles": ["interns"]}])
async def test_a_token_without_groups_is_refused_while_groups_are_named(
    signer: Signer, claims: dict[str, Any]
) -> None:
    are_named = False
    checked = access(signer, names_groups=lambda: are_named)
    token = signer.token(**claims)
    assert isinstance(await checked.verify(token), VerifiedToken)
    are_named = True
    found = await checked.verify(token)
    assert isinstance(found, TokenForbidden), "also one that was checked before the rule came"
    assert "`groups`" in found.reason
    assert isinstance(await checked.verify(signer.token(groups=[])), VerifiedToken), (
        "an empty list is an answer"
    )
    checked = access(signer, names_groups=lambda: True, groups_required=False)
    assert isinstance(await checked.verify(token), VerifiedToken)
    checked = access(signer, groups_required=True)
    assert isinstance(await checked.verify(token), TokenForbidden)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"policy": {"rules": [{"action": "deny", "tool": "x", "principal": "group:interns"}]}}, True),
        ({"policy": {"rules": [{"action": "ask", "tool": "x", "principal": "group:*"}]}}, True),
        ({"policy": {"rules": [{"action": "deny", "tool": "x", "principal": "ada"}]}}, False),
        ({"policy": {"rules": [{"action": "deny", "tool": "x"}]}}, False),
        ({"gateway": {"oauth": {**OAUTH, "bundles": {"group:data": "analytics"}}}}, True),
        ({"gateway": {"oauth": {**OAUTH, "bundles": {"ada": "analytics"}}}}, False),
    ],
)
def test_rules_and_bundles_name_groups(machine: Machine, document: dict[str, Any], expected: bool) -> None:
    assert machine.load(overrides=document).names_groups is expected


@pytest.mark.parametrize(
    ("bundles", "expected"),
    [
        ({}, None),
        ({"group:data": "analytics"}, {"analytics"}),
        ({"group:data": ["analytics", "work"], "ada": "own"}, {"analytics", "work", "own"}),
        ({"group:d*": "analytics", "group:other": "no"}, {"analytics"}),
        ({"*": "public"}, {"public"}),
        ({"group:data": "analytics", "group:d*": ["work", "analytics"]}, {"analytics", "work"}),
        ({"group:data": "no such bundle"}, {"no such bundle"}),
        ({"group:data": [], "*": "public"}, {"public"}),
    ],
)
async def test_bundles_are_mapped_from_claims(
    signer: Signer, bundles: dict[str, Any], expected: set[str] | None
) -> None:
    found = await access(signer, bundles=bundles).verify(signer.token(groups=["data"]))
    assert isinstance(found, VerifiedToken)
    assert found.bundles == expected


async def test_groups_that_map_to_different_bundles_open_all_of_these_and_nothing_else(
    signer: Signer,
) -> None:
    bundles: dict[str, Any] = {"group:data": "analytics", "group:ops": ["deploys", "work"], "group:x": "x"}
    found = await access(signer, bundles=bundles).verify(signer.token(groups=["data", "ops", "others"]))
    assert isinstance(found, VerifiedToken)
    assert found.bundles == {"analytics", "deploys", "work"}
    admitted = AuthenticatedRequest(principal=found.principal, bundles=found.bundles)
    for path in ("/mcp/analytics", "/mcp/deploys", "/sse/work"):
        assert _outside(admitted, path) is None, path
    for path in ("/mcp", "/mcp/x", "/sse"):
        assert _outside(admitted, path) is not None, path


@pytest.mark.parametrize(
    ("subject", "bundles", "is_let_in"),
    [
        ("local", {"local": "own"}, False),
        ("local", {"*": "own"}, True),
        ("token:ci", {"token:ci": "own"}, False),
        ("group:data", {"group:data": "own"}, False),
        ("ada", {"ada": "own"}, True),
        ("ada", {"Ada": "own"}, False),
        ("ada", {"a*": "own"}, True),
    ],
)
async def test_a_subject_is_given_a_bundle_by_its_own_name_alone(
    signer: Signer, subject: str, bundles: dict[str, Any], is_let_in: bool
) -> None:
    found = await access(signer, bundles=bundles).verify(signer.token(sub=subject))
    assert isinstance(found, VerifiedToken) is is_let_in


@pytest.mark.parametrize("bundles", [{"group:data": "analytics"}, {"bo": "own"}, {"group:ada": "x"}])
async def test_who_is_given_no_bundle_is_not_let_in(signer: Signer, bundles: dict[str, Any]) -> None:
    found = await access(signer, bundles=bundles).verify(signer.token(exp=int(time.time()) + 60))
    assert isinstance(found, TokenForbidden)


def test_a_token_with_bundles_opens_no_other_endpoint() -> None:
    admitted = AuthenticatedRequest(principal="x", bundles=frozenset({"analytics"}))
    assert _outside(admitted, "/mcp/analytics") is None
    for path in ("/mcp", "/mcp/work", "/sse"):
        assert _outside(admitted, path) is not None


class WithTokens:
    """Admits clients by tokens of an issuer alone."""

    def __init__(self, access: JwtAccess) -> None:
        self._access = access

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Say for whom a request goes on."""
        token = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        found = await self._access.verify(token)
        assert isinstance(found, VerifiedToken)
        return AuthenticatedRequest(principal=found.principal, groups=found.groups)


async def test_a_rule_that_names_a_subject_is_about_the_bearer_of_its_token(
    machine: Machine, tmp_path: Path, signer: Signer
) -> None:
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "pid", "meta")]
    server = ScriptedServer(tmp_path / "record", tools=plain)
    rules = [
        {"action": "allow", "principal": "ada@example.org", "tool": "echo"},
        {"action": "deny", "principal": "ada@example.org", "tool": "pid"},
    ]
    document = {
        "servers": {"s": server.entry(sharing="shared")},
        "policy": {"rules": rules},
        "gateway": {"oauth": {"issuer": signer.url, "audience": "a"}},
    }
    machine.write_user(json.dumps(document))
    options = GatewayOptions(approval_seconds=0.05)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(machine.load(), options, env=machine.env) as running,
            listening(running.app(WithTokens(access(signer))), listener),
            aiohttp.ClientSession() as http,
        ):
            for subject, listed, called in (
                ("ada@example.org", ALL - {"s_pid"}, True),
                ("bo@example.org", ALL, False),
                ("Ada@example.org", ALL, False),
            ):
                client = Raw(http, f"{url_of(listener)}/mcp", signer.token(sub=subject))
                assert await names_of(client) == listed
                answer = await client.modern("tools/call", name="s_echo", arguments={})
                assert (not answer["result"].get("isError")) is called, subject
                refused = await client.modern("tools/call", name="s_pid", arguments={})
                said = text_of(refused)
                assert ("a rule denies it" in said) is (subject == "ada@example.org")
                assert str(machine.home) not in said, "where the operator's files are is for the operator"
