"""How layers become one configuration, and how every value remembers where it came from."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.explain import explain_server
from fairlead.config.models import StdioServer
from fairlead.errors import ConfigInvalid, ConfigUnreadable, UnknownServer
from fairlead.host.managed_server import entry_notes
from fairlead.policy.decision import approval_mode_of
from tests.conftest import Machine, write


def servers(**entries: Any) -> str:
    return json.dumps({"servers": entries})


def test_the_project_overrides_the_user(machine: Machine) -> None:
    machine.write_user(servers(a={"command": "user-a", "args": ["1"]}, b={"command": "user-b"}))
    machine.write_project(servers(a={"command": "project-a"}))
    loaded = machine.load()
    assert loaded.servers["a"].target == "project-a"  # replaced whole: the args of the user's are gone
    assert loaded.servers["a"].source == "project"
    assert loaded.servers["b"].source == "user"


def test_an_entry_without_a_target_overlays_the_one_below(machine: Machine) -> None:
    machine.write_user(
        servers(a={"command": "run", "args": ["1"], "env": {"A": "1", "B": "2"}, "deny_tools": ["x"]})
    )
    machine.write_project(servers(a={"enabled": False, "env": {"B": "3"}, "deny_tools": ["y"]}))
    server = machine.load().servers["a"]
    assert server.entry == {
        "command": "run",
        "args": ["1"],
        "env": {"A": "1", "B": "3"},
        "deny_tools": ["x", "y"],
        "enabled": False,
    }
    assert server.source == "user"
    assert not server.enabled


def test_an_overlay_over_nothing_is_an_error_that_stays_visible(machine: Machine) -> None:
    machine.write_project(servers(a={"enabled": False}))
    loaded = machine.load()
    assert "no target" in loaded.servers["a"].problems[0].message
    assert loaded.config.servers == {}


def test_the_environment_beats_files_and_overrides_beat_all(machine: Machine) -> None:
    machine.write_user(servers(a={"command": "user"}))
    machine.write_project(servers(a={"command": "project"}))
    machine.env["CODEX_TOOLLOOP_MCP_CONFIG_JSON"] = servers(
        a={"trust": "trusted", "transport": {"type": "stdio", "command": "toolloop"}}
    )
    assert machine.load().servers["a"].target == "toolloop"
    machine.env["FAIRLEAD_CONFIG_JSON"] = servers(a={"command": "env"})
    assert machine.load().servers["a"].target == "env"
    loaded = machine.load(overrides={"servers": {"a": {"command": "override"}}})
    assert loaded.servers["a"].target == "override"
    assert [layer.name for layer in loaded.layers] == ["user", "project", "env", "env", "override"]


def test_an_explicit_path_replaces_both_discovered_files(machine: Machine) -> None:
    machine.write_user(servers(a={"command": "user"}))
    machine.write_project(servers(a={"command": "project"}))
    named = write(machine.home / "other.json", servers(b={"command": "named"}))
    assert set(machine.load(path=named).servers) == {"b"}
    machine.env["FAIRLEAD_CONFIG_PATH"] = str(named)
    assert set(machine.load().servers) == {"b"}
    argument = write(machine.home / "third.json", servers(c={"command": "argument"}))
    assert set(machine.load(path=argument).servers) == {"c"}


def test_defaults_lie_under_every_server(machine: Machine) -> None:
    machine.write_user(
        json.dumps(
            {
                "defaults": {"request_timeout_ms": 5, "lazy": False},
                "servers": {"a": {"command": "x"}, "b": {"command": "x", "request_timeout_ms": 7}},
            }
        )
    )
    loaded = machine.load()
    assert (loaded.config.servers["a"].request_timeout_ms, loaded.config.servers["a"].lazy) == (5, False)
    assert loaded.config.servers["b"].request_timeout_ms == 7


def test_a_bad_default_is_reported_once_where_it_is_written(machine: Machine) -> None:
    path = machine.write_user(
        json.dumps({"defaults": {"lazy": 1}, "servers": {"a": {"command": "x"}, "b": {"command": "x"}}})
    )
    assert [(p.file, p.json_path) for p in machine.load().problems] == [(str(path), "defaults.lazy")]


@pytest.mark.requirement("HARD-2")
def test_a_project_file_may_not_speak_for_the_user(machine: Machine) -> None:
    machine.write_project(
        json.dumps(
            {
                "store": {"path": "/tmp/evil.db"},
                "gateway": {"host": "0.0.0.0"},
                "defaults": {"lazy": False},
                "docs": {"allow": ["evil.example"]},
                "servers": {"a": {"command": "x"}},
            }
        )
    )
    loaded = machine.load()
    assert {problem.json_path for problem in loaded.problems} == {"store", "gateway", "defaults", "docs"}
    assert all("may not set this" in problem.message for problem in loaded.problems)
    assert (loaded.config.store.path, loaded.config.gateway.host, loaded.config.docs.allow) == (
        None,
        "127.0.0.1",
        (),
    )
    assert loaded.servers["a"].usable  # the rest loads


def test_a_project_policy_can_only_narrow(machine: Machine) -> None:
    machine.write_user(
        json.dumps({"policy": {"approval": "deny", "rules": [{"action": "allow", "tool": "a"}]}})
    )
    machine.write_project(
        json.dumps(
            {"policy": {"approval": "ask", "rules": [{"action": "allow"}, {"action": "deny", "tool": "b"}]}}
        )
    )
    loaded = machine.load()
    assert loaded.config.policy.approval == "deny"
    assert [(rule.action, rule.tool) for rule in loaded.config.policy.rules] == [
        ("allow", "a"),
        ("deny", "b"),
    ]
    assert [problem.json_path for problem in loaded.problems] == ["policy.rules[0]"]


@pytest.mark.requirement("HARD-2")
@pytest.mark.parametrize(
    ("project", "where"),
    [
        ({"policy": None}, "policy"),
        ({"policy": []}, "policy"),
        ({"policy": "x"}, "policy"),
        ({"policy": {"rules": None}}, "policy.rules"),
        ({"policy": {"rules": {}}}, "policy.rules"),
        ({"policy": {"rules": "x", "approval": "ask"}}, "policy.rules"),
        ({"policy": {"approval": None}}, "policy.approval"),
        ({"policy": {"approval": 3}}, "policy.approval"),
        ({"policy": {"approval": "x"}}, "policy.approval"),
        ({"bundles": None}, "bundles"),
        ({"bundles": []}, "bundles"),
        ({"servers": None}, "servers"),
        ({"servers": []}, "servers"),
        ({"servers": {"mine": None}}, "servers.mine"),
        ({"servers": {"mine": "x"}}, "servers.mine"),
        ({"servers": {"mine": {"deny_tools": None}}}, "servers.mine.deny_tools"),
        ({"servers": {"mine": {"deny_tools": {}}}}, "servers.mine.deny_tools"),
        ({"servers": {"mine": {"deny_tools": "x"}}}, "servers.mine.deny_tools"),
        ({"servers": {"mine": {"enabled": None}}}, "servers.mine.enabled"),
        ({"servers": {"mine": {"enabled": "no"}}}, "servers.mine.enabled"),
        ({"servers": {"mine": {"args": None}}}, "servers.mine.args"),
        ({"servers": {"mine": {"env": []}}}, "servers.mine.env"),
        ({"servers": {"mine": {"env": {"A": None}}}}, "servers.mine.env.A"),
    ],
)
def test_a_wrongly_typed_part_of_a_project_file_takes_nothing_from_the_user(
    machine: Machine, project: dict[str, Any], where: str
) -> None:
    mine: dict[str, Any] = {"command": "x", "args": ["a"], "env": {"A": "1"}, "deny_tools": ["sh"]}
    user: dict[str, Any] = {
        "servers": {"mine": mine},
        "bundles": {"b": {"servers": {"mine": {}}}},
        "policy": {"approval": "ask", "rules": [{"action": "deny", "tool": "t"}]},
    }
    machine.write_user(json.dumps(user))
    before = machine.load()
    path = machine.write_project(json.dumps(project))
    loaded = machine.load()
    assert [(problem.file, problem.json_path) for problem in loaded.problems] == [(str(path), where)]
    assert loaded.config == before.config
    assert loaded.servers["mine"].usable


@pytest.mark.parametrize("mode", ["allow", "auto", "ask", "deny"])
def test_a_projects_modes_by_tool_count_beside_the_users_mode_for_the_whole_server(
    machine: Machine, mode: str
) -> None:
    machine.write_user(json.dumps({"servers": {"mine": {"command": "x", "approval": mode}}}))
    machine.write_project(json.dumps({"servers": {"mine": {"approval": {"tools": {"put": "ask"}}}}}))
    loaded = machine.load()
    assert not loaded.problems
    config = loaded.servers["mine"].config
    assert config is not None
    assert approval_mode_of(config, "put", "mine") == ("ask", "put")
    assert approval_mode_of(config, "get", "mine") == (mode, None)
    assert loaded.servers["mine"].needs_consent, "a project's mode could allow more"


def test_a_bad_policy_is_never_half_applied(machine: Machine) -> None:
    machine.write_user(json.dumps({"policy": {"rules": [{"action": "denny"}]}}))
    with pytest.raises(ConfigInvalid, match="policy"):
        machine.load()


def test_a_bad_entry_disables_that_server_alone_and_says_file_line_and_reason(machine: Machine) -> None:
    path = machine.write_user(
        '{\n  "servers": {\n    "a": {"command": "x"},\n    "b": {"comand": "x"}\n  }\n}'
    )
    loaded = machine.load()
    assert loaded.servers["a"].usable
    assert not loaded.servers["b"].usable
    problem = loaded.servers["b"].problems[0]
    assert (problem.file, problem.line, problem.column) == (str(path), 4, 11)
    assert set(loaded.config.servers) == {"a"}


@pytest.mark.requirement("NEED-22")
def test_a_missing_variable_disables_only_its_server_and_names_the_field(machine: Machine) -> None:
    machine.write_user(
        servers(
            a={"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${TOKEN_X}"}},
            b={"command": "run", "args": ["${OTHER:-fallback}"]},
            c={"command": "run", "args": ["${TOKEN_X}"], "enabled": False},
        )
    )
    loaded = machine.load()
    assert not loaded.servers["a"].usable
    assert loaded.servers["a"].problems[0].json_path == "servers.a.headers.Authorization"
    assert "TOKEN_X" in loaded.servers["a"].problems[0].message
    assert loaded.servers["b"].usable
    assert not loaded.servers["c"].problems  # switched off: nobody needs it
    machine.env["TOKEN_X"] = "t"
    assert machine.load().servers["a"].usable


def test_a_resolved_server_has_its_secrets_and_the_loaded_one_does_not(machine: Machine) -> None:
    write(machine.project / "secret.txt", "from-file\n")
    machine.write_project(
        servers(
            a={"command": "${TOOL:-run}", "args": ["${file:secret.txt}", "$${LITERAL}"], "env": {"K": "${K}"}}
        )
    )
    machine.env["K"] = "from-env"
    server = machine.load().servers["a"]
    resolved = server.resolve(machine.env)
    assert isinstance(resolved, StdioServer)
    assert (resolved.command, resolved.args) == ("run", ("from-file", "${LITERAL}"))
    assert resolved.env == {"K": "from-env"}
    assert "from-" not in repr(server.config) + server.target


def test_a_relative_folder_starts_at_the_file_that_names_it(machine: Machine) -> None:
    write(
        machine.project / ".fairlead" / "fairlead.json",
        servers(a={"command": "x", "cwd": "sub"}, b={"command": "x"}),
    )
    machine.write_user(servers(c={"command": "x"}))
    loaded = machine.load()

    def folder(server_id: str) -> Path | None:
        server = loaded.servers[server_id]
        return server.working_folder(server.resolve(machine.env))

    assert folder("a") == machine.project / "sub"
    assert folder("b") == machine.project  # a project's server runs in the project
    assert folder("c") is None  # the user's runs where the user is


@pytest.mark.requirement("NEED-25")
def test_explain_names_the_file_and_line_of_every_field_and_what_it_overrode(machine: Machine) -> None:
    user = machine.write_user(
        '{\n "defaults": {"lazy": false},\n "servers": {"a": {\n'
        '  "command": "run",\n  "cwd": "old",\n  "env": {"A": "1"}}}}'
    )
    project = machine.write_project('{"servers": {"a": {\n  "cwd": "new",\n  "env": {"B": "2"}}}}')
    rows = {row.field: row for row in explain_server(machine.load().servers["a"])}

    def place(field: str) -> str | None:
        in_effect = rows[field].in_effect
        assert in_effect is not None
        return in_effect.place

    assert place("command") == f"{user}:4"
    assert place("cwd") == f"{project}:2"
    assert [(said.value, said.place) for said in rows["cwd"].overrode] == [("old", f"{user}:5")]
    assert (place("env.A"), place("env.B")) == (f"{user}:6", f"{project}:3")
    assert place("lazy") == f"{user}:2"
    assert place("enabled") is None  # the built-in default


def test_explain_shows_what_a_replaced_entry_said(machine: Machine) -> None:
    machine.write_user(servers(a={"command": "old", "cwd": "there"}))
    machine.write_project(servers(a={"command": "new"}))
    rows = {row.field: row for row in explain_server(machine.load().servers["a"])}
    assert [said.value for said in rows["command"].overrode] == ["old"]
    assert rows["cwd"].in_effect is None
    assert [said.value for said in rows["cwd"].overrode] == ["there"]


def test_one_scope_can_be_read_alone(machine: Machine) -> None:
    machine.write_user(servers(a={"command": "user"}))
    machine.write_project(servers(a={"command": "project"}, b={"command": "b"}))
    assert machine.load(scope="user").servers["a"].target == "user"
    assert set(machine.load(scope="project").servers) == {"a", "b"}


def test_an_unknown_server_gets_a_suggestion(machine: Machine) -> None:
    machine.write_user(servers(github={"command": "x"}))
    with pytest.raises(UnknownServer) as caught:
        machine.load().server("gihtub")
    assert caught.value.hint == "did you mean `github`?"


def test_a_literal_secret_in_a_project_file_is_an_error_of_its_server(machine: Machine) -> None:
    entry = {"command": "x", "env": {"API_KEY": "abc123"}, "args": ["--token", "ghp_abcdefghijklmnop"]}
    machine.write_project(servers(a=entry))
    loaded = machine.load()
    assert {(p.json_path, p.severity) for p in loaded.problems} == {
        ("servers.a.env.API_KEY", "error"),
        ("servers.a.args[1]", "error"),
    }
    assert not loaded.servers["a"].usable


def test_a_variable_as_a_shell_has_it_is_no_secret_but_told(machine: Machine) -> None:
    machine.write_user(
        servers(a={"url": "http://a.test", "headers": {"Authorization": "Bearer $ACME_TOKEN"}})
    )
    (problem,) = machine.load().problems
    assert problem.severity == "warning"
    assert "`$ACME_TOKEN` is sent as it is written" in problem.message
    assert problem.hint == "write `${ACME_TOKEN}`"


def test_a_missing_explicit_file_is_an_error(machine: Machine) -> None:
    with pytest.raises(ConfigUnreadable, match=r"nowhere\.json"):
        machine.load(path="nowhere.json")


def test_merging_a_thousand_servers_keeps_them_all(machine: Machine) -> None:
    machine.write_user(servers(**{f"s{n}": {"command": "run", "args": [str(n)]} for n in range(1000)}))
    machine.write_project(servers(**{f"s{n}": {"enabled": False} for n in range(0, 1000, 2)}))
    loaded = machine.load()
    assert len(loaded.servers) == 1000
    assert sum(server.enabled for server in loaded.servers.values()) == 500


@pytest.mark.parametrize("entry", ['"x"', "null", '{"enabled": "yes"}'])
def test_what_is_ignored_of_a_projects_entry_is_named_at_its_server(machine: Machine, entry: str) -> None:
    machine.env["FAIRLEAD_BUILTINS"] = "on"
    machine.write_project(f'{{"servers": {{"repo": {entry}}}}}')
    loaded = machine.load()
    (problem,) = loaded.servers["repo"].problems
    assert problem in loaded.problems
    assert len(loaded.problems) == 1
    assert problem.severity == "warning"
    assert problem.message == "has the wrong type; it is ignored, and the built-in setting counts"
    assert entry_notes(loaded.servers["repo"]) == (str(problem),)
