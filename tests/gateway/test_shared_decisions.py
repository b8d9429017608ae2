"""Gateways of two machines with one Redis: what one pinned, had approved or refreshed holds at the other."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.auth.store_vault import StoreVault
from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.config.consent import KEY_FILE
from fairlead.config.paths import state_folder
from fairlead.policy.pins import NAMESPACE, pins_key
from fairlead.store.async_store import AsyncStore
from tests.cli.gateway_support import SERVER
from tests.exam.upstream_program import REFRESHED
from tests.exam.upstreams import TOOL, ServerKind, upstreams
from tests.gateway.test_replicas import Replica, eventually, new_machine, replica, running
from tests.host.test_quarantine import CHANGED, ECHO, ChangingServer
from tests.redis_server import RedisServer, redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as server:
        yield server


def new_token(at: Replica, name: str = "ada") -> str:
    return json.loads(at.run("gateway", "token", "add", name, "--json"))["token"]


def is_answered(at: Replica, token: str, tool: str, **arguments: object) -> bool:
    """Call a tool in a session of its own: whether it ran."""
    answer = at.call(token, tool, **arguments)
    return "result" in answer and not answer["result"].get("isError")


def test_a_tool_that_one_pinned_and_that_changed_waits_for_a_review_at_both(
    tmp_path: Path, redis: RedisServer
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    entry = server.entry()
    with (
        replica(tmp_path / "one", redis, x=entry) as one,
        replica(tmp_path / "other", redis, x=entry) as other,
    ):
        token = new_token(one)
        eventually(lambda: is_answered(one, token, "x_echo"))
        pins = f"fairlead:value:{NAMESPACE}:{pins_key(one.machine.load().servers['x'])}"
        eventually(lambda: redis.run("EXISTS", pins).startswith(b":1"))
        # The other one starts it for the first time, and is held to what the first one saw.
        server.say(CHANGED)
        eventually(lambda: not is_answered(other, token, "x_echo"))
        one.run("review", "x", "--yes", "--allow", "echo")
        eventually(lambda: is_answered(other, token, "x_echo"))


def test_a_project_s_server_starts_at_both_once_it_was_approved_at_one_and_asks_again_when_changed(
    tmp_path: Path, redis: RedisServer
) -> None:
    first = new_machine(tmp_path / "one", redis)
    # One folder for both, as on a shared disk; and the key that consent to its references is bound with.
    second = replace(new_machine(tmp_path / "other", redis), project=first.project)
    record = tmp_path / "project.record"

    def write_entry(*words: str) -> None:
        script = json.dumps({"tools": ["echo"], "record": str(record)})
        entry = {"command": sys.executable, "args": [SERVER, script, *words], "env": {"WHO": "${HOME}"}}
        first.write_project(
            json.dumps({"servers": {"p": {**entry, "allow_tools": ["*"], "approval": "allow"}}})
        )

    write_entry()
    for machine in (first, second):
        file = state_folder(machine.env) / KEY_FILE
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(b"k" * 32)
        file.chmod(0o600)
    with running(first) as one, running(second) as other:
        token = new_token(one)
        for each in (one, other):
            eventually(lambda each=each: each.send("/readyz")[0] == 200)
            assert not is_answered(each, token, "p_echo")
        assert not record.exists()
        one.run("approve", "p", "--yes")
        for each in (other, one):
            eventually(lambda each=each: is_answered(each, token, "p_echo"))
        write_entry("changed")
        for each in (other, one):
            eventually(lambda each=each: not is_answered(each, token, "p_echo"))


@pytest.mark.requirement("HARD-36")
@pytest.mark.blocks_loop
async def test_an_expired_token_is_refreshed_once_by_two_gateways_that_need_it_at_one_moment(
    tmp_path: Path, redis: RedisServer
) -> None:
    kind = ServerKind(kind="guarded", era="stateless", is_shared=True)
    with upstreams(tmp_path, "none", [kind]) as served:
        issuer = f"http://127.0.0.1:{served.web_port}"
        login = Login(
            principal="local",
            account="",
            issuer=issuer,
            resource=served.url("s0"),
            token_endpoint=f"{issuer}/token",
            client=OAuthClient(client_id="tests"),
            token=Token(access_token="expired", refresh_token="refresh", expires_at=1000),
        )
        async with AsyncStore.open(redis.location) as store:
            await StoreVault(store).put(login)
        await anyio.to_thread.run_sync(refresh_at_both, tmp_path, redis, served.entries(), served.record)


def refresh_at_both(folder: Path, redis: RedisServer, servers: dict[str, Any], record: Path) -> None:
    with (
        replica(folder / "one", redis, **servers) as one,
        replica(folder / "other", redis, **servers) as other,
    ):
        token = new_token(one)
        answers: list[bool] = []

        def call(at: Replica) -> None:
            answers.append(is_answered(at, token, f"s0_{TOOL}", key=1))

        calls = [threading.Thread(target=call, args=(at,)) for at in (one, other) * 4]
        for each in calls:
            each.start()
        for each in calls:
            each.join(60)
        assert answers == [True] * 8
        lines = record.read_text().splitlines()
        assert sum(line.startswith(REFRESHED) for line in lines) == 1
