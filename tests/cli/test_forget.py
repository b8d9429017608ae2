"""`fairlead forget`: nothing about the subject is left, and everything about others stays."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.auth.vault import Vault
from fairlead.config.paths import state_folder, store_file
from fairlead.store.artifact_contents import ArtifactFolder
from fairlead.store.artifacts import Artifact, ArtifactFiles, RetentionLimits
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def keep_artifacts(machine: Machine, *kept: tuple[str, str, bytes]) -> None:
    """Keep artifacts of principals and servers."""

    async def main() -> None:
        async with AsyncStore.open(store_file(machine.env)) as store:
            limits = RetentionLimits(max_bytes=10**6, max_age_seconds=10**6)
            files = ArtifactFiles(store, ArtifactFolder(state_folder(machine.env) / "artifacts"), limits)
            for principal, server_id, content in kept:
                artifact = Artifact(
                    sha256=hashlib.sha256(content).hexdigest(),
                    principal=principal,
                    media_type="text/plain",
                    size=len(content),
                    server_id=server_id,
                    tool="echo",
                    untrusted=False,
                    created=time.time(),
                )
                await files.keep(artifact, content)

    anyio.run(main)


@pytest.fixture
def used(machine: Machine, fairlead: Fairlead) -> Machine:
    """Two servers of a user's file and one of a project's: reviewed, called, with artifacts and logs."""
    servers = {
        name: {**ScriptedServer(machine.home / name, tools=["echo"]).entry(), "trust": "trusted"}
        for name in ("gone", "stays")
    }
    machine.write_user(json.dumps({"servers": servers}))
    project = ScriptedServer(machine.home / "project", tools=["echo"]).entry()
    machine.write_project(json.dumps({"servers": {"p": project}}))
    assert fairlead("approve", "p", "--yes").status == 0
    for name in ("gone", "stays"):
        assert fairlead("review", name, "--ask", "echo").status == 0
        assert fairlead("call", f"{name}.echo", "--yes", "--always").status == 0
        logs = state_folder(machine.env) / "logs"
        logs.mkdir(exist_ok=True)
        (logs / f"{name}.log").write_text(f"{name} said something")
    keep_artifacts(
        machine, ("local", "gone", b"shared"), ("local", "gone", b"alone"), ("ada", "stays", b"shared")
    )
    return machine


def everything(machine: Machine) -> str:
    """All that the state folder has, as text."""
    with open_database(store_file(machine.env)) as database:
        values, records = database.read_all()
    rows: list[Any] = [*values, *records]
    files = [
        path
        for path in state_folder(machine.env).rglob("*")
        if path.is_file() and "state.db" not in path.name
    ]
    return "\n".join([*map(str, rows), *(f"{path}: {path.read_text()}" for path in files)])


def count(machine: Machine, namespace: str) -> int:
    with open_database(store_file(machine.env)) as database:
        return len(database.scan(namespace))


def test_nothing_about_a_server_is_left_and_others_stay(fairlead: Fairlead, used: Machine) -> None:
    shown = fairlead("forget", "server", "gone")
    assert shown.status == 3, "without a terminal nothing is deleted unasked"
    assert "pins" in shown.out
    assert "nothing was deleted" in shown.err
    before = {name: count(used, name) for name in ("pins", "catalog", "approvals", "artifacts")}
    report = json.loads(fairlead("forget", "server", "gone", "--audit", "--yes", "--json").out)
    assert report["forgotten"] is True
    assert report["counts"]["pins"] == report["counts"]["approvals"] == report["counts"]["log files"] == 1
    assert report["counts"]["artifacts"] == 2
    assert report["counts"]["audit records"] > 0
    after = {name: count(used, name) for name in before}
    assert {name: before[name] - after[name] for name in before} == {
        "pins": 1,
        "catalog": 1,
        "approvals": 1,
        "artifacts": 2,
    }
    left = everything(used).replace("'forget'", "")
    lines = [line for line in left.splitlines() if "gone" in line]
    assert all('"kind":"forget"' in line for line in lines), lines
    artifacts = [path.read_bytes() for path in (state_folder(used.env) / "artifacts").iterdir()]
    assert artifacts == [b"shared"], "equal content of another principal stays"
    assert "gone" in json.loads(used.user_file.read_text())["servers"]
    assert fairlead("tools", "stays").status == 0
    again = fairlead("forget", "server", "gone", "--audit", "--yes", "--json")
    assert again.status == 0


def test_what_is_kept_about_a_removed_server_goes_too(fairlead: Fairlead, used: Machine) -> None:
    assert fairlead("remove", "gone", "--scope", "user").status == 0
    report = json.loads(fairlead("forget", "server", "gone", "--yes", "--json").out)
    assert report["counts"]["pins"] == 1
    assert report["counts"]["snapshots of what it offers"] == 1
    assert report["audit_records_left"] > 0
    assert count(used, "pins") == 1


def test_the_audit_log_stays_unless_asked_and_says_what_was_forgotten(
    fairlead: Fairlead, used: Machine
) -> None:
    outcome = fairlead("forget", "server", "gone", "--yes")
    assert "`--audit` deletes them, too" in outcome.err
    audit = [json.loads(line) for line in fairlead("audit", "--server", "gone", "--json").out.splitlines()]
    assert {"call", "review", "forget"} <= {record.get("kind", "call") for record in audit}
    assert audit[-1]["details"]["pins"] == 1


def test_a_consent_goes_and_the_server_is_off_again(fairlead: Fairlead, used: Machine) -> None:
    assert fairlead("forget", "server", "p", "--yes").status == 0
    assert fairlead("approve").status == 3, "it waits for approval"


def test_what_is_kept_about_a_principal_goes_with_its_tokens(fairlead: Fairlead, used: Machine) -> None:
    assert fairlead("gateway", "token", "add", "ada").status == 0
    assert fairlead("gateway", "token", "add", "bob").status == 0
    keep_artifacts(used, ("token:ada", "stays", b"hers"), ("token:bob", "stays", b"his"))
    report = json.loads(fairlead("forget", "principal", "ada", "--yes", "--json").out)
    assert report["name"] == "token:ada"
    assert report["counts"] == {"artifacts": 1, "gateway tokens": 1}
    names = [
        token["name"] for token in json.loads(fairlead("gateway", "token", "list", "--json").out)["tokens"]
    ]
    assert names == ["bob"]
    assert "hers" not in everything(used)
    assert "his" in everything(used)


def keep_login(machine: Machine, resource: str, secret: str) -> None:
    login = Login(
        principal="local",
        account="",
        issuer="https://127.0.0.1:9",
        resource=resource,
        token_endpoint="https://127.0.0.1:9/token",
        client=OAuthClient(client_id="client"),
        token=Token(access_token=secret),
    )
    anyio.run(Vault.of(machine.env).put, login)


def vault_text(machine: Machine) -> str:
    return (state_folder(machine.env) / "mcp-auth.json").read_text()


def test_a_login_is_forgotten_by_its_servers_id_or_url(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"a": {"url": "https://a.example.com/mcp"}}}))
    keep_login(machine, "https://a.example.com/mcp", "secret-of-a-1234567890")
    keep_login(machine, "https://b.example.com/mcp", "secret-of-b-1234567890")
    assert fairlead("forget", "login", "a").status == 3
    assert fairlead("forget", "login", "a", "--yes").status == 0
    assert "secret-of-a" not in vault_text(machine)
    assert "secret-of-b" in vault_text(machine)
    assert fairlead("forget", "login", "https://b.example.com/mcp", "--yes").status == 0
    assert "secret-of-b" not in vault_text(machine)
    assert "nothing is kept" in fairlead("forget", "login", "https://b.example.com/mcp").err
    assert fairlead("forget", "login", "nobody").status == 1


def test_the_login_of_a_forgotten_server_goes_unless_another_uses_it(
    fairlead: Fairlead, machine: Machine
) -> None:
    url = "https://a.example.com/mcp"
    machine.write_user(json.dumps({"servers": {"a": {"url": url}, "b": {"url": url}}}))
    keep_login(machine, url, "secret-of-a-1234567890")
    assert "another server uses it" in fairlead("forget", "server", "a", "--yes").err
    assert "secret-of-a" in vault_text(machine)
    machine.write_user(json.dumps({"servers": {"a": {"url": url}}}))
    assert fairlead("forget", "server", "a", "--yes").status == 0
    assert "secret-of-a" not in vault_text(machine)


@pytest.mark.parametrize("subject", ["server", "principal", "login"])
def test_an_empty_name_is_refused(fairlead: Fairlead, used: Machine, subject: str) -> None:
    before = everything(used)
    assert fairlead("forget", subject, "", "--yes").status == 1
    assert everything(used) == before


@pytest.mark.parametrize("name", ["../../fairlead.json", "nobody", "*"])
def test_a_name_that_nothing_is_kept_about_deletes_nothing(
    fairlead: Fairlead, used: Machine, name: str, tmp_path: Path
) -> None:
    before = everything(used)
    outcome = fairlead("forget", "server", name, "--yes", "--audit")
    assert outcome.status == 0
    assert "nothing is kept" in outcome.err
    assert everything(used) == before
