"""`fairlead init`, and settings with the place that set them."""

import json
from collections.abc import Callable

import jsonschema_rs
import pytest

from fairlead.config.json_schema import schema_text
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def test_init_writes_a_first_file_that_loads_and_editors_can_check(
    fairlead: Fairlead, machine: Machine
) -> None:
    outcome = fairlead("init")
    assert outcome.status == 0
    assert "fairlead add" in outcome.err
    written = json.loads(machine.project_file.read_text())
    assert written == {"$schema": "./fairlead.schema.json", "version": 1, "servers": {}}
    schema = machine.project / "fairlead.schema.json"
    assert schema.read_text() == schema_text()
    jsonschema_rs.validator_for(json.loads(schema.read_text())).validate(written)
    assert machine.load().problems == ()
    assert fairlead("add", "a", "--later", "--", "x").status == 0
    assert "a" in json.loads(machine.project_file.read_text())["servers"]


@pytest.mark.parametrize("scope", ["project", "user"])
def test_init_overwrites_nothing(fairlead: Fairlead, machine: Machine, scope: str) -> None:
    path = machine.write_user("{}") if scope == "user" else machine.write_project("{}")
    refused = fairlead("init", "--scope", scope, "--json")
    assert refused.status == 1
    assert str(path) in json.loads(refused.out)["error"]["message"]
    assert path.read_text() == "{}"
    assert not path.with_name("fairlead.schema.json").exists()


def test_init_for_the_user_and_without_a_schema(fairlead: Fairlead, machine: Machine) -> None:
    report = json.loads(fairlead("init", "--scope", "user", "--no-schema", "--json").out)
    assert report["file"] == str(machine.user_file)
    assert report["schema"] is None
    assert "$schema" not in json.loads(machine.user_file.read_text())
    assert not machine.project_file.exists()


def test_init_names_what_other_agents_have_and_what_is_not_read_any_more(
    fairlead: Fairlead, machine: Machine
) -> None:
    (machine.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    (machine.project / ".cursor").mkdir()
    (machine.project / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"b": {"command": "y"}}}))
    report = json.loads(fairlead("init", "--json").out)
    assert sorted(name for each in report["found"] for name in each["servers"]) == ["a", "b"]
    machine.project_file.unlink()
    said = fairlead("init")
    assert "fairlead import" in said.err


def test_init_at_a_terminal_takes_over_servers(machine: Machine) -> None:
    (machine.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "/nowhere/x"}}}))
    with at_terminal("init", env=machine.env | {"TERM": "dumb"}, cwd=machine.project) as person:
        person.sees("take over those you want?")
        person.types("y")
        person.sees("Add this server?")
        person.types("y")
        person.waits()
        assert "added 1 to" in person.seen
    assert list(json.loads(machine.project_file.read_text())["servers"]) == ["a"]


def test_a_setting_is_explained_with_its_place_and_default(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user('{\n  "audit": {\n    "keep_days": 7\n  }\n}')
    found = json.loads(fairlead("explain", "setting", "audit.keep_days", "--json").out)["settings"]
    assert found == [
        {
            "name": "audit.keep_days",
            "value": 7,
            "default": 90,
            "place": f"{machine.user_file}:3",
            "description": found[0]["description"],
        }
    ]
    every = json.loads(fairlead("explain", "setting", "--json").out)["settings"]
    assert {"audit.keep_records", "gateway.port", "tools.names"} <= {each["name"] for each in every}
    assert "the default" in fairlead("explain", "setting", "audit.keep_records").out
    assert "did you mean `audit.keep_days`?" in fairlead("explain", "setting", "audit.keep_dys").err


def test_a_secret_setting_is_not_shown(fairlead: Fairlead, machine: Machine) -> None:
    model = {"provider": "openai", "name": "x", "api_key": "sk-verysecret1234567890abcdef"}
    machine.write_user(json.dumps({"model": model}))
    shown = fairlead("explain", "setting", "model.api_key")
    assert "•••" in shown.out
    assert "verysecret" not in shown.out + fairlead("explain", "setting", "--json").out


@pytest.mark.parametrize("setting", ["keep_days", "keep_records"])
@pytest.mark.parametrize("value", [0, -1, 10**30, "90", 1.5])
def test_a_retention_that_makes_no_sense_is_a_problem_and_the_default_holds(
    fairlead: Fairlead, machine: Machine, setting: str, value: object
) -> None:
    machine.write_user(json.dumps({"audit": {setting: value}}))
    report = json.loads(fairlead("list", "--json").out)
    assert [problem["path"] for problem in report["problems"]] == [f"audit.{setting}"]
    audit = machine.load().config.audit
    assert (audit.keep_days, audit.keep_records) == (90, 100_000)
