"""Consent in a shared store: given at one replica, it holds at those with the same folder and key."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.config.consent import KEY_FILE, ConsentKey
from fairlead.config.load import load_config
from fairlead.config.paths import state_folder
from fairlead.policy.consent import has_consent, record_consent
from tests.redis_server import RedisServer, redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as server:
        yield server


def environment(home: Path) -> dict[str, str]:
    home.mkdir()
    env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"]}
    return {**env, "FAIRLEAD_BUILTINS": "off", "API_TOKEN": "planted"}


def consent_at(env: dict[str, str], project: Path) -> ConsentKey:
    key = load_config(env=env, cwd=project).servers["s"].consent
    assert key is not None
    return key


def test_consent_given_at_one_replica_holds_at_those_with_its_folder_and_key(
    tmp_path: Path, redis: RedisServer
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    entry = {"command": sys.executable, "args": ["-c", "", "${API_TOKEN}"]}
    (project / "fairlead.json").write_text(json.dumps({"servers": {"s": entry}}))
    one, other, stranger = (environment(tmp_path / name) for name in ("one", "other", "stranger"))
    given = consent_at(one, project)
    key_file = state_folder(other) / KEY_FILE
    key_file.parent.mkdir(parents=True, mode=0o700)
    shutil.copy(state_folder(one) / KEY_FILE, key_file)
    record_consent(redis.location, [given])
    assert has_consent(redis.location, consent_at(other, project))
    # Another key, another value of what it was given for, and another folder of that name: none of them.
    assert not has_consent(redis.location, consent_at(stranger, project))
    assert not has_consent(redis.location, consent_at({**other, "API_TOKEN": "changed"}, project))
    moved = project.rename(tmp_path / "before")
    shutil.copytree(moved, project)
    assert not has_consent(redis.location, consent_at(other, project))
