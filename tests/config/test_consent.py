"""What a person's approval of a project's server is bound to."""

import json
from typing import Any

import pytest

from fairlead.config.consent import ConsentKey
from fairlead.config.paths import store_file
from fairlead.policy.consent import has_consent, record_consent
from tests.conftest import Machine

BASE: dict[str, Any] = {"command": "run", "args": ["a"], "env": {"K": "${K:-1}"}, "trust": "untrusted"}


def consent_of(machine: Machine, entry: dict[str, Any]) -> ConsentKey | None:
    machine.write_project(json.dumps({"servers": {"x": entry}}))
    return machine.load().servers["x"].consent


def test_the_users_own_servers_need_no_consent(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": BASE}}))
    machine.env["FAIRLEAD_CONFIG_JSON"] = json.dumps({"servers": {"y": BASE}})
    loaded = machine.load(overrides={"servers": {"z": BASE}})
    assert [loaded.servers[server_id].consent for server_id in "xyz"] == [None, None, None]


@pytest.mark.requirement("HARD-2")
@pytest.mark.parametrize(
    "change",
    [
        {"args": ["b"]},
        {"args": []},
        {"command": "other"},
        {"env": {"K": "2"}},
        {"cwd": "sub"},
        {"trust": "trusted"},
        {"approval": "allow"},
        {"allow_tools": ["*"]},
        {"description": "words for a model"},
    ],
)
def test_any_change_that_could_widen_asks_again(machine: Machine, change: dict[str, Any]) -> None:
    before = consent_of(machine, BASE)
    assert before is not None
    assert consent_of(machine, BASE | change) != before


@pytest.mark.requirement("HARD-2")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("headers_helper", ["evil"]),
        ("oauth", {"token_url": "https://evil.example/token"}),
        ("headers", {"X": "1"}),
        ("url", "https://evil.example/mcp"),
    ],
)
def test_a_remote_entry_is_bound_as_a_whole(machine: Machine, field: str, value: Any) -> None:
    remote = {"url": "https://example.com/mcp"}
    assert consent_of(machine, remote) != consent_of(machine, remote | {field: value})


@pytest.mark.parametrize("change", [{"enabled": False}, {"deny_tools": ["x"]}])
def test_a_change_that_only_narrows_does_not_ask_again(machine: Machine, change: dict[str, Any]) -> None:
    assert consent_of(machine, BASE) == consent_of(machine, BASE | change)


def test_the_same_entry_in_another_project_is_another_question(machine: Machine) -> None:
    first = consent_of(machine, BASE)
    other = machine.home / "clone"
    other.mkdir()
    (other / "fairlead.json").write_text(machine.project_file.read_text())
    from fairlead.config.load import load_config

    second = load_config(env=machine.env, cwd=other).servers["x"].consent
    assert first is not None
    assert second is not None
    assert first.file != second.file
    assert first.digest != second.digest


@pytest.mark.requirement("HARD-3")
def test_a_project_that_redefines_a_users_server_is_a_new_unapproved_one(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": BASE}}))
    assert machine.load().servers["x"].consent is None
    assert consent_of(machine, {"command": "evil"}) is not None


@pytest.mark.requirement("HARD-3")
@pytest.mark.parametrize(
    ("overlay", "asks"),
    [
        ({"enabled": False}, False),
        ({"deny_tools": ["x"]}, False),
        ({"enabled": True}, True),
        ({"env": {"LD_PRELOAD": "evil.so"}}, True),
        ({"trust": "trusted"}, True),
    ],
)
def test_an_overlay_over_a_users_server_asks_only_if_it_widens(
    machine: Machine, overlay: dict[str, Any], asks: bool
) -> None:
    machine.write_user(json.dumps({"servers": {"x": BASE | {"enabled": False}}}))
    assert (consent_of(machine, overlay) is not None) == asks


def test_recorded_consent_is_found_again_and_only_for_that_entry(machine: Machine) -> None:
    store = store_file(machine.env)
    key = consent_of(machine, BASE)
    assert key is not None
    assert not has_consent(store, key)
    record_consent(store, [key])
    assert has_consent(store, key)
    changed = consent_of(machine, BASE | {"args": ["b"]})
    assert changed is not None
    assert not has_consent(store, changed)
