"""`explain --as`, the lists of a gateway and its calls agree, whatever rules name whichever principals.

Generated rules, modes and bundles for callers of every kind. Each configuration is taken over by the gateway
that runs, so that clients see it without beginning anew.
"""

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from anyio import to_thread
from starlette.types import Scope

from fairlead.config.principal import GroupedPrincipal, oauth_principal
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.gateway.support import Raw, text_of
from tests.host.asking import AskingServer

Fairlead = Callable[..., Outcome]
SECONDS = 120.0
ISSUER = "https://issuer.example"
OAUTH = {"issuer": ISSUER, "audience": "https://gateway.example/mcp"}
NAMES = ("read_a", "read_b", "deploy_a", "deploy_b", "plain")
ANNOTATIONS: dict[str, dict[str, bool]] = {
    "read": {"readOnlyHint": True},
    "deploy": {"destructiveHint": True},
}
TOOLS = [
    {
        "name": name,
        "inputSchema": {"type": "object"},
        "annotations": ANNOTATIONS.get(name.partition("_")[0], {}),
    }
    for name in NAMES
]
CALLERS = (
    GroupedPrincipal(),
    GroupedPrincipal("token:ci"),
    GroupedPrincipal("token:ada"),
    GroupedPrincipal(oauth_principal(ISSUER, "ada"), frozenset({"interns"})),
    GroupedPrincipal(oauth_principal(ISSUER, "bo"), frozenset({"interns", "data"})),
    GroupedPrincipal(oauth_principal("https://other.example", "ada")),
)
PRINCIPALS = (
    None,
    "local",
    "ada",
    "bo",
    "ci",
    "token:*",
    "oauth:*",
    f"oauth:{ISSUER} ada",
    "group:interns",
    "group:dat?",
    "group:*",
    "*",
)
BUNDLES: tuple[str | None, ...] = (None, "some")


class ByCaller:
    """Admits a client under the principal and groups that its token spells out."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        token = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        principal, groups = json.loads(token)
        return AuthenticatedRequest(principal=principal, groups=frozenset(groups))


def token_of(caller: GroupedPrincipal) -> str:
    return json.dumps([caller.principal, sorted(caller.groups)])


def generate(chance: random.Random, servers: dict[str, ScriptedServer]) -> dict[str, Any]:
    """A configuration with rules about principals, in which every part is there or not by chance."""
    modes = ("allow", "ask", "auto", "deny")

    def rule() -> dict[str, Any]:
        principal = chance.choice(PRINCIPALS)
        made: dict[str, Any] = {"action": chance.choice(("allow", "ask", "deny"))}
        made |= {"principal": principal} if principal else {}
        made |= {"tool": chance.choice((*NAMES, "read_*", "*_a"))} if chance.random() < 0.8 else {}
        return made | ({"server": chance.choice(("t", "u"))} if chance.random() < 0.3 else {})

    fields: dict[str, dict[str, Any]] = {"t": {"trust": "trusted"}, "u": {"trust": "untrusted"}}
    if chance.random() < 0.8:
        fields["u"]["allow_tools"] = sorted(chance.sample(NAMES, 3))
    for each in fields.values():
        if chance.random() < 0.5:
            each["deny_tools"] = [chance.choice(NAMES)]
        if chance.random() < 0.5:
            each["approval"] = {"tools": {chance.choice(NAMES): chance.choice(modes)}}
    policy: dict[str, Any] = {"rules": [rule() for _ in range(chance.randrange(1, 6))]}
    gateway: dict[str, Any] = {"mode": "direct", "oauth": OAUTH}
    if chance.random() < 0.2:
        policy["approval"] = chance.choice(modes)
    if chance.random() < 0.8:
        gateway["approval"] = chance.choice(modes)
    bundle_filter = {"t": {"allow_tools": sorted(chance.sample(NAMES, 3))}, "u": {"deny_tools": ["plain"]}}
    return {
        "servers": {name: server.entry(sharing="shared", **fields[name]) for name, server in servers.items()},
        "policy": policy,
        "gateway": gateway,
        "tools": {"mode": "direct"},
        "bundles": {"some": {"servers": bundle_filter, "mode": "direct"}},
    }


@asynccontextmanager
async def running(machine: Machine) -> AsyncGenerator[tuple[Gateway, str, aiohttp.ClientSession]]:
    options = GatewayOptions(approval_seconds=0.01)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(machine.load(), options, env=machine.env) as gateway,
            listening(gateway.app(ByCaller()), listener),
            aiohttp.ClientSession() as http,
        ):
            yield gateway, url_of(listener), http


def explained(fairlead: Fairlead, caller: GroupedPrincipal, bundle: str | None) -> dict[str, tuple[str, str]]:
    """The state and verdict of each tool for a caller over the gateway, as `explain --as` says them."""
    words = ["--as", caller.principal, *(f"--group={group}" for group in sorted(caller.groups))]
    words += ["--bundle", bundle] if bundle else []
    found: dict[str, tuple[str, str]] = {}
    for server in ("t", "u"):
        outcome = fairlead("explain", server, *words, "--json")
        assert outcome.status == 0, outcome.err
        for tool in json.loads(outcome.out)["tools"]:
            is_listed = tool["gateway_verdict"] != "deny"
            if caller.principal != "local":
                assert (tool["state"] == "denied") is not is_listed, tool
                assert tool["verdict"] == tool["gateway_verdict"], tool
            found[f"{server}_{tool['tool']}"] = "listed" if is_listed else "hidden", tool["gateway_verdict"]
    return found


async def observed(client: Raw, era: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """The same, as a client of the gateway finds it by listing and calling."""
    request = client.older if era == "session" else client.modern
    listed = {tool["name"] for tool in (await request("tools/list"))["result"]["tools"]}
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        answer = await request("tools/call", name=name, arguments={})
        assert "error" not in answer, (name, answer)
        said = text_of(answer)
        if not answer["result"].get("isError"):
            verdict = "allow"
        else:
            verdict = "ask" if "no one approved it" in said else "deny"
            assert verdict == "ask" or "may not be called" in said, said
        found[name] = "listed" if name in listed else "hidden", verdict
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_explain_as_a_principal_says_what_its_clients_list_and_what_their_calls_meet(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    servers = {name: ScriptedServer(tmp_path / name, tools=TOOLS, any_tool=True) for name in ("t", "u")}
    machine.write_user(json.dumps(generate(chance, servers)))
    assert await to_thread.run_sync(lambda: fairlead("tools", "--refresh").status) == 0
    clients: dict[tuple[GroupedPrincipal, str, str | None], Raw] = {}
    async with running(machine) as (gateway, url, http):
        for turn in range(3):
            if turn:  # clients that are there already see the next rules
                machine.write_user(json.dumps(generate(chance, servers)))
                await gateway.reload(machine.load())
            for caller in CALLERS:
                for bundle in BUNDLES:
                    expected = explained(fairlead, caller, bundle)
                    for era in ("stateless", "session"):
                        key = (caller, era, bundle)
                        if key not in clients:
                            path = f"{url}/mcp/{bundle}" if bundle else f"{url}/mcp"
                            clients[key] = Raw(http, path, token_of(caller))
                            if era == "session":
                                await clients[key].begin()
                        found = await observed(clients[key], era, sorted(expected))
                        assert found == expected, (seed, turn, key, machine.user_file.read_text())


DENIED_READS: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": "test://a"},
    "prompts/get": {"name": "r_greet"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "r_greet"},
        "argument": {"name": "who", "value": "a"},
    },
    "tools/call": {"name": "mcp_resource_read", "arguments": {"server": "r", "uri": "test://a"}},
}


@pytest.mark.parametrize("era", ["session", "stateless"])
@pytest.mark.parametrize("server", ["r", None])
async def test_a_rule_that_denies_a_whole_server_withholds_what_it_has_to_read(
    machine: Machine, tmp_path: Path, era: str, server: str | None
) -> None:
    reader = AskingServer(
        tmp_path / "r",
        resources=[{"uri": "test://a", "name": "a"}],
        texts={"test://a": "secret plans"},
    )
    rule = {"action": "deny", "principal": "group:interns"} | ({"server": server} if server else {})
    document = {
        "servers": {"r": reader.entry(trust="trusted", sharing="shared")},
        "policy": {"rules": [rule]},
        "gateway": {"oauth": OAUTH},
    }
    machine.write_user(json.dumps(document))
    async with running(machine) as (_, url, http):
        for caller in CALLERS:
            client = Raw(http, f"{url}/mcp", token_of(caller))
            is_denied = "interns" in caller.groups
            if era == "session":
                await client.begin()
            request = client.older if era == "session" else client.modern
            for method in ("resources/list", "prompts/list"):
                listed = (await request(method))["result"]
                assert bool(listed["resources" if "resources" in listed else "prompts"]) is not is_denied
            for method, params in DENIED_READS.items():
                answer = await request(method, **params)
                is_refused = "error" in answer or answer["result"].get("isError") is True
                assert is_refused is is_denied, (caller, method, answer)
                assert not is_denied or "secret plans" not in json.dumps(answer)
