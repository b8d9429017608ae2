"""`fairlead store`, and commands whose store is a Redis."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.config.store_location import key_file
from fairlead.gateway.access.tokens import Tokens, token_file
from fairlead.store.cluster_key import ClusterKeys
from tests.conftest import Machine, Outcome
from tests.redis_server import free_port, redis_server
from tests.s3_server import s3_server

Fairlead = Callable[..., Outcome]


def test_a_key_is_printed_or_saved_before_those_that_are_there(machine: Machine, fairlead: Fairlead) -> None:
    printed = fairlead("store", "key", "new").out.strip()
    ClusterKeys([printed])
    assert fairlead("store", "key", "new", "--save").status == 0
    (first,) = key_file(machine.env).read_text().split()
    saved = fairlead("store", "key", "new", "--save")
    assert saved.status == 0
    assert first not in saved.out + saved.err
    second, old = key_file(machine.env).read_text().split()
    assert (old, second == first) == (first, False)
    assert key_file(machine.env).stat().st_mode & 0o077 == 0


def test_a_store_that_is_away_is_said_without_its_password(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_CLUSTER_KEY", fairlead("store", "key", "new").out.strip())
    url = f"redis://ada:planted-password@127.0.0.1:{free_port()}/0"
    served = fairlead("gateway", "--port", "0", "--store", url)
    machine.write_user(json.dumps({"store": url}))
    refused = [
        fairlead("audit"),
        fairlead("approvals", "list", "--json"),
        fairlead("doctor", "--offline", "--json"),
    ]
    for outcome in (served, *refused):
        said = outcome.out + outcome.err
        assert outcome.status != 0, said
        assert "does not answer" in said
        assert "goes on by itself" in said
        assert "planted-password" not in said


def test_commands_use_the_redis_and_a_key_is_replaced(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as redis:
        machine.write_user(json.dumps({"store": redis.url}))
        assert "cluster key" in fairlead("audit").err
        fairlead("store", "key", "new", "--save")
        fairlead("gateway", "token", "add", "ada")
        assert "add token" in fairlead("audit", "--json").out
        assert "ada" in fairlead("gateway", "token", "list").out
        fairlead("store", "key", "new", "--save")
        count = json.loads(fairlead("store", "rekey", "--json").out)["rekeyed"]
        assert count >= 1
        records = [json.loads(line) for line in fairlead("audit", "--json").out.splitlines()]
        [record] = [each for each in records if "rekey" in each.values()]
        assert f'"values": {count}' in json.dumps(record)
        current = key_file(machine.env).read_text().split()[0]
        key_file(machine.env).write_text(current + "\n")
        assert "ada" in fairlead("gateway", "token", "list").out
        findings = json.loads(fairlead("doctor", "--offline", "--json").out)
        assert redis.url in json.dumps(findings)
        refused = fairlead("restore", str(tmp_path / "backup.zip"))
        assert "is shared" in refused.err


def test_tokens_of_one_machine_are_listed_and_revoked_after_its_store_became_a_redis(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    config: dict[str, object] = {
        "servers": {"time": {"command": "no-such-program"}},
        "bundles": {"work": {"servers": {"time": {}}}},
    }
    machine.write_user(json.dumps(config))
    early = fairlead("gateway", "token", "add", "early", "--bundle", "work").out.strip()
    fairlead("gateway", "token", "add", "both")
    folder = tmp_path / "redis"
    folder.mkdir()
    accepted = Tokens(None, token_file(machine.env))  # as a gateway of this machine does, with any store
    with redis_server(folder) as redis:
        fairlead("store", "key", "new", "--save")
        machine.write_user(json.dumps(config | {"store": redis.url}))
        fairlead("gateway", "token", "add", "late", "--bundle", "work")
        taken = fairlead("gateway", "token", "add", "both")
        assert (taken.status, "there is a token `both` already" in taken.err) == (1, True)
        listed = fairlead("gateway", "token", "list")
        assert {line.split()[0] for line in listed.out.splitlines()[1:]} == {"early", "both", "late"}
        assert "accepted on this machine only, and not by other replicas: `both`, `early`" in listed.err
        described = json.loads(fairlead("gateway", "token", "list", "--json").out)["tokens"]
        places = {token["name"]: token["this_machine_only"] for token in described}
        assert places == {"early": True, "both": True, "late": False}
        removed = fairlead("bundle", "remove", "work", "--scope", "user")
        for name in ("early", "late"):
            assert f"the token `{name}` is for this bundle alone" in removed.err
        assert accepted.owner(early) is not None
        assert fairlead("gateway", "token", "remove", "early").status == 0
        assert accepted.owner(early) is None
        assert fairlead("gateway", "token", "remove", "early").status == 1
        assert fairlead("gateway", "token", "remove", "late").status == 0
        assert "late" not in fairlead("gateway", "token", "list").out


def test_the_doctor_tries_the_bucket_of_large_artifacts(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    def look(**artifacts: object) -> dict[str, str]:
        machine.write_user(json.dumps({"store": redis.url, "artifacts": artifacts}))
        said = fairlead("doctor", "--offline", "--json")
        assert server.secret_key not in said.out + said.err
        found = json.loads(said.out)["findings"]
        return next(each for each in found if each["subject"] == "artifacts")

    for name in ("redis", "s3"):
        (tmp_path / name).mkdir()
    with redis_server(tmp_path / "redis") as redis, s3_server(tmp_path / "s3") as server:
        fairlead("store", "key", "new", "--save")
        nowhere = look()
        assert (nowhere["status"], "artifacts.s3" in nowhere["fix"]) == ("note", True)
        works = look(s3=server.settings())
        assert (works["status"], "encrypted" in works["message"]) == ("ok", True)
        wrong = look(s3=server.settings(secret_key="not-the-secret-of-it"))
        assert (wrong["status"], "SignatureDoesNotMatch" in wrong["message"]) == ("problem", True)
        assert "secret_key" in wrong["fix"]


def test_a_store_in_a_file_has_no_key_to_replace(fairlead: Fairlead) -> None:
    refused = fairlead("store", "rekey")
    assert refused.status == 1
    assert "the store is a file, which has no key" in refused.err
