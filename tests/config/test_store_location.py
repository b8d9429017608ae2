"""Where state is: a file, or a Redis whose password is never shown."""

import json
from pathlib import Path

import pytest

from fairlead.config.store_location import KEY_FILE, KEY_VARIABLE, RedisLocation, key_file, store_location
from fairlead.errors import ConfigInvalid, StoreError
from tests.conftest import Machine

URL = "redis://ada:planted-password@redis.test:6380/2"


def located(machine: Machine, store: object) -> RedisLocation:
    machine.write_user(json.dumps({"store": store}))
    found = store_location(machine.env, machine.load().config.store)
    assert isinstance(found, RedisLocation)
    return found


def test_without_a_setting_it_is_a_file_of_this_machine(machine: Machine) -> None:
    assert isinstance(store_location(machine.env, machine.load().config.store), Path)
    machine.write_user(json.dumps({"store": {"path": "~/elsewhere.db"}}))
    named = store_location(machine.env, machine.load().config.store)
    assert isinstance(named, Path)
    assert named.name == "elsewhere.db"


@pytest.mark.parametrize("store", [URL, {"url": URL}])
def test_an_address_alone_is_short_for_the_setting(machine: Machine, store: object) -> None:
    assert located(machine, store).url() == URL


def test_a_command_line_counts_more_than_the_file(machine: Machine) -> None:
    machine.write_user(json.dumps({"store": {"path": "state.db"}}))
    loaded = machine.load(overrides={"store": "redis://other.test"})
    assert str(store_location(machine.env, loaded.config.store)) == "redis://other.test"


def test_a_password_is_in_no_text_of_it(machine: Machine) -> None:
    location = located(machine, URL)
    settings = machine.load().config.store
    for shown in (str(location), repr(location), repr(settings), repr(machine.load().config)):
        assert "planted-password" not in shown
    assert "redis.test:6380" in str(location)


def test_references_are_resolved_when_the_store_is_opened(machine: Machine) -> None:
    location = located(machine, "rediss://ada:${REDIS_PASSWORD}@redis.test")
    with pytest.raises(StoreError, match="REDIS_PASSWORD") as caught:
        location.url()
    assert caught.value.hint
    machine.env["REDIS_PASSWORD"] = "planted-password"
    assert located(machine, location.template).url() == "rediss://ada:planted-password@redis.test"


def test_the_key_is_of_the_setting_else_the_environment_else_the_file(machine: Machine) -> None:
    location = located(machine, URL)
    with pytest.raises(StoreError, match="no cluster key"):
        location.cluster_keys()
    key_file(machine.env).write_text("of-the-file\nof-before\n")
    assert location.cluster_keys() == ["of-the-file", "of-before"]
    machine.env[KEY_VARIABLE] = "of-the-environment"
    assert located(machine, URL).cluster_keys() == ["of-the-environment"]
    named = {"url": URL, "key": f"${{file:{key_file(machine.env).parent / KEY_FILE}}}"}
    assert located(machine, named).cluster_keys() == ["of-the-file", "of-before"]


@pytest.mark.parametrize(
    "store",
    [
        "http://redis.test",
        "state.db",
        {"url": URL, "path": "state.db"},
        {"key": "${KEY}"},
        {"url": "redis://"},
        7,
    ],
)
def test_what_cannot_be_meant_is_an_error_without_the_address(machine: Machine, store: object) -> None:
    machine.write_user(json.dumps({"store": store}))
    with pytest.raises(ConfigInvalid) as caught:
        machine.load()
    assert "planted-password" not in str(caught.value)


def test_a_project_file_does_not_choose_the_store(machine: Machine) -> None:
    machine.write_project(json.dumps({"store": URL, "servers": {}}))
    loaded = machine.load()
    assert isinstance(store_location(machine.env, loaded.config.store), Path)
    assert any("may not set this" in problem.message for problem in loaded.problems)
