"""The commands that change and show servers, as a person would use them."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.config.untyped import value_at
from fairlead.policy.consent import has_consent
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def entries(machine: Machine, scope: str = "project") -> dict[str, Any]:
    path = machine.user_file if scope == "user" else machine.project_file
    return json.loads(path.read_text())["servers"]


def test_an_empty_configuration_says_so_and_how_to_go_on(fairlead: Fairlead) -> None:
    outcome = fairlead("list")
    assert (outcome.status, outcome.out) == (0, "")
    assert "no MCP servers configured" in outcome.err
    assert "fairlead add" in outcome.err


def test_add_with_a_command_writes_the_project_file(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("add", "fs", "--", "npx", "-y", "server", "--flag", ".")
    assert outcome.status == 0
    assert "fairlead.json" in outcome.err
    assert entries(machine) == {"fs": {"command": "npx", "args": ["-y", "server", "--flag", "."]}}


@pytest.mark.parametrize("scope", ["user", "global"])
def test_add_to_the_users_own_file(fairlead: Fairlead, machine: Machine, scope: str) -> None:
    assert fairlead("add", "a", "--scope", scope, "--url", "https://example.com/mcp").status == 0
    assert entries(machine, "user") == {"a": {"url": "https://example.com/mcp"}}
    assert not machine.project_file.exists()


def test_add_takes_every_option(fairlead: Fairlead, machine: Machine) -> None:
    remote = (
        "add r --url https://example.com/mcp --transport sse --header X-Mode=fast --header X-Kind:slow "
        "--enabled false --required --trust trusted --allow-tool a --allow-tool b --deny-tool c "
        "--startup-timeout-ms 5 --request-timeout-ms 6 --oauth-client-id me --oauth-scope s "
        "--oauth-authorization-url https://e.com/a --oauth-token-url https://e.com/t "
        "--oauth-registration-url https://e.com/r --oauth-callback-port 99 --oauth-grant client_credentials "
        "--oauth-client-metadata-url https://e.com/c"
    )
    assert fairlead(*remote.split(), "--description", "two words").status == 0
    assert (
        fairlead(
            "add", "l", "--command", "run", "--arg", "-x", "--arg", "y", "--cwd", "sub", "--env", "A=b=c"
        ).status
        == 0
    )
    assert entries(machine) == {
        "r": {
            "transport": "sse",
            "url": "https://example.com/mcp",
            "headers": {"X-Mode": "fast", "X-Kind": "slow"},
            "oauth": {
                "authorization_url": "https://e.com/a",
                "token_url": "https://e.com/t",
                "registration_url": "https://e.com/r",
                "client_id": "me",
                "scope": "s",
                "callback_port": 99,
                "client_metadata_url": "https://e.com/c",
                "grant": "client_credentials",
            },
            "enabled": False,
            "required": True,
            "trust": "trusted",
            "allow_tools": ["a", "b"],
            "deny_tools": ["c"],
            "description": "two words",
            "startup_timeout_ms": 5,
            "request_timeout_ms": 6,
        },
        "l": {"command": "run", "args": ["-x", "y"], "cwd": "sub", "env": {"A": "b=c"}},
    }


@pytest.mark.requirement("HARD-5")
def test_arguments_stay_arguments_whatever_they_say(fairlead: Fairlead, machine: Machine) -> None:
    hostile = ["; touch x", "$(touch y)", "`z`", "a b", "", "--", "é\u202e"]
    assert fairlead("add", "a", "--", "run", *hostile).status == 0
    assert entries(machine)["a"]["args"] == hostile
    assert "touch x" in fairlead("list").out
    assert "\u202e" not in fairlead("list").out  # shown spelled out, never acted on


def test_an_existing_id_needs_replace(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--", "one")
    refused = fairlead("add", "a", "--", "two")
    assert refused.status == 1
    assert "--replace" in refused.err
    assert entries(machine)["a"] == {"command": "one"}
    assert fairlead("add", "a", "--replace", "--", "two").status == 0
    assert entries(machine)["a"] == {"command": "two"}


def test_the_same_id_in_another_scope_is_no_conflict(fairlead: Fairlead) -> None:
    assert fairlead("add", "a", "--scope", "user", "--", "one").status == 0
    assert fairlead("add", "a", "--", "two").status == 0
    assert "two" in fairlead("list").out
    assert "one" in fairlead("list", "--scope", "user").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "a"),
        ("add", "a", "--url", "https://x", "--", "cmd"),
        ("add", "a", "--command", "x", "--", "cmd"),
        ("add", "a", "--arg", "x", "--", "cmd"),
        ("add", "a", "--env", "=x", "--", "cmd"),
        ("add", "a", "--header", "novalue", "--url", "https://x"),
        ("add", "a", "--transport", "carrier-pigeon", "--url", "https://x"),
        ("frobnicate",),
        ("list", "--nope"),
        (),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    fairlead: Fairlead, machine: Machine, arguments: tuple[str, ...]
) -> None:
    outcome = fairlead(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err
    assert not machine.project_file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a b", "--", "x"), "an id is 1 to 64"),
        (("add", "a", "--url", "nonsense"), "http:// or https://"),
        (("add", "a", "--transport", "http", "--", "x"), "command"),
        (("add", "a", "--request-timeout-ms", "0", "--", "x"), "at least 1"),
        (("add", "a", "--", "${unclosed"), "${"),
    ],
)
def test_a_bad_entry_is_refused_before_anything_is_written(
    fairlead: Fairlead, machine: Machine, arguments: tuple[str, ...], words: str
) -> None:
    outcome = fairlead(*arguments)
    assert outcome.status == 1
    assert words in outcome.err
    assert not machine.project_file.exists()


def test_env_without_a_value_passes_on_the_users_own_variable(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("add", "a", "--env", "SOME_TOKEN", "--", "run")
    assert entries(machine)["a"]["env"] == {"SOME_TOKEN": "${SOME_TOKEN}"}
    assert "`SOME_TOKEN` is not set" in outcome.err


def test_adding_is_consent_to_exactly_what_was_added(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--", "run")
    key = machine.load().servers["a"].consent
    assert key is not None
    assert has_consent(store_file(machine.env), key)
    machine.write_project(json.dumps({"servers": {"a": {"command": "run", "args": ["more"]}}}))
    changed = machine.load().servers["a"].consent
    assert changed is not None
    assert not has_consent(store_file(machine.env), changed)


def test_remove_touches_one_scope_and_says_what_remains(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--scope", "user", "--", "one")
    fairlead("add", "a", "--", "two")
    outcome = fairlead("remove", "a")
    assert outcome.status == 0
    assert "still defined" in outcome.err
    assert entries(machine) == {}
    assert "one" in fairlead("list").out
    again = fairlead("remove", "a")
    assert again.status == 1
    assert "--scope user" in again.err


def test_a_server_is_switched_in_the_file_that_has_its_entry(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--scope", "user", "--", "one")
    outcome = fairlead("disable", "a")
    assert outcome.status == 0
    assert ".config/fairlead/fairlead.json" in outcome.err
    assert "--scope project" in outcome.err
    assert entries(machine, "user") == {"a": {"command": "one", "enabled": False}}
    assert not machine.project_file.exists()
    assert "disabled already" in fairlead("disable", "a").err
    assert fairlead("enable", "a").status == 0
    assert machine.load().servers["a"].enabled
    assert not machine.project_file.exists()


def test_a_server_is_switched_in_the_entry_that_says_so_over_another(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead("add", "a", "--scope", "user", "--", "one")
    machine.write_project('{"servers": {"a": {"deny_tools": ["t"]}}}')
    assert fairlead("disable", "a").status == 0
    assert entries(machine) == {"a": {"deny_tools": ["t"]}}, "which says nothing of it"
    assert fairlead("enable", "a").status == 0
    machine.write_project('{"servers": {"a": {"enabled": false}}}')
    assert "in fairlead.json" in fairlead("enable", "a").err
    assert entries(machine) == {"a": {"enabled": True}}
    assert machine.load().servers["a"].enabled


def test_a_server_that_no_file_has_is_not_switched_in_another(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_CONFIG_JSON", '{"servers": {"a": {"command": "one"}}}')
    assert "enabled already" in fairlead("enable", "a").err
    outcome = fairlead("disable", "a")
    assert outcome.status == 1
    assert "which is not a file" in outcome.err
    assert "write `enabled` there" in outcome.err
    assert not machine.project_file.exists()


def test_disable_in_a_project_overlays_the_users_server(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--scope", "user", "--", "one")
    assert fairlead("disable", "a", "--scope", "project").status == 0
    assert entries(machine) == {"a": {"enabled": False}}
    assert entries(machine, "user") == {"a": {"command": "one"}}
    assert not machine.load().servers["a"].enabled
    assert fairlead("enable", "a").status == 0
    assert machine.load().servers["a"].enabled
    assert "already" in fairlead("enable", "a").err


def test_enabling_says_when_another_file_still_says_no(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--scope", "user", "--", "one")
    fairlead("disable", "a", "--scope", "project")
    fairlead("disable", "a", "--scope", "user")
    outcome = fairlead("enable", "a", "--scope", "user")
    assert "takes precedence" in outcome.err


def test_switching_an_unknown_server_suggests_the_one_meant(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "github", "--", "one")
    outcome = fairlead("disable", "gihub")
    assert outcome.status == 1
    assert "did you mean `github`?" in outcome.err


def test_list_as_json_is_for_programs(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--", "run", "x")
    document = json.loads(fairlead("list", "--json").out)
    server = document["servers"][0]
    assert {
        key: server[key] for key in ("id", "transport", "source", "enabled", "usable", "trust", "target")
    } == {
        "id": "a",
        "transport": "stdio",
        "source": "project",
        "enabled": True,
        "usable": True,
        "trust": "untrusted",
        "target": "run x",
    }
    assert server["file"] == f"{machine.project_file}:4"


def test_list_shows_a_bad_entry_with_its_reason_and_fails(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{"servers": {"good": {"command": "x"}, "bad": {"comand": "x"}}}')
    outcome = fairlead("list")
    assert outcome.status == 1
    assert "good" in outcome.out
    assert "bad" in outcome.out
    assert "fairlead.json:1:" in outcome.err


def test_explain_shows_the_line_and_what_was_overridden(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--scope", "user", "--cwd", "old", "--", "run")
    machine.write_project('{"servers": {\n"a": {\n"cwd": "new"}}}')
    outcome = fairlead("explain", "server", "a")
    assert f"{machine.project_file}:3" in outcome.out
    assert "old" in outcome.out
    assert "built-in default" in outcome.err
    fields = {
        row["field"]: row for row in json.loads(fairlead("explain", "server", "a", "--json").out)["fields"]
    }
    assert fields["cwd"]["in_effect"]["value"] == "new"
    assert fields["cwd"]["overrode"][0]["layer"] == "user"


def test_a_file_given_by_path_is_the_one_that_is_changed(fairlead: Fairlead, machine: Machine) -> None:
    named = machine.home / "mine.json"
    assert fairlead("--config", str(named), "add", "a", "--", "run").status == 0
    assert json.loads(named.read_text())["servers"] == {"a": {"command": "run"}}
    assert "run" in fairlead("--config", str(named), "list").out
    confused = fairlead("--config", str(named), "add", "b", "--scope", "user", "--", "run")
    assert confused.status == 1
    assert "--scope" in confused.err


def test_a_foreign_project_file_is_not_shadowed_by_an_add(fairlead: Fairlead, machine: Machine) -> None:
    (machine.project / "codex-toolloop.mcp.json").write_text('{"servers": {}}')
    outcome = fairlead("add", "a", "--", "run")
    assert outcome.status == 1
    assert "fairlead import" in outcome.err
    assert not machine.project_file.exists()


def test_comments_and_formatting_survive_every_command(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{\n\t// mine\n\t"servers": {\n\t\t"a": {"command": "x"}, // first\n\t}\n}\n')
    fairlead("add", "b", "--", "run")
    fairlead("disable", "a")
    text = machine.project_file.read_text()
    assert "\t// mine\n" in text
    assert "// first" in text
    fairlead("remove", "b")
    fairlead("enable", "a")
    assert "// mine" in machine.project_file.read_text()


def test_a_broken_file_is_not_touched(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{"servers": {')
    for arguments in (("add", "a", "--", "x"), ("list",), ("remove", "a"), ("disable", "a"), ("get", "a")):
        outcome = fairlead(*arguments)
        assert outcome.status == 1
        assert "fairlead.json" in outcome.err
    assert machine.project_file.read_text() == '{"servers": {'


def test_schema_completion_version_and_help(fairlead: Fairlead) -> None:
    assert json.loads(fairlead("schema").out)["title"] == "Fairlead configuration"
    for shell in ("bash", "zsh", "fish"):
        assert "_FAIRLEAD_COMPLETE" in fairlead("completion", shell).out
    assert fairlead("--version").out.startswith("fairlead ")
    assert "explain" in fairlead("--help").out
    for name in ("add", "remove", "enable", "disable", "list", "get", "import", "export", "explain"):
        assert "Usage: fairlead" in fairlead(name, "--help").out


def test_the_shell_completes_server_ids(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fairlead("add", "github", "--", "run")
    fairlead("add", "gitlab", "--", "run")
    monkeypatch.setenv("_FAIRLEAD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "fairlead get gith")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = subprocess.run(
        [sys.executable, "-m", "fairlead"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["plain,github"]


def test_a_bug_is_reported_as_ours(fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("fairlead.cli.options.load_config", explode)
    outcome = fairlead("list")
    assert outcome.status == 70
    assert "bug in Fairlead" in outcome.err
    assert "secret detail" not in outcome.err


def test_a_reader_that_goes_away_is_no_error(machine: Machine) -> None:
    machine.write_project(json.dumps({"servers": {f"s{n}": {"command": "x" * 200} for n in range(2000)}}))
    command = f"{sys.executable} -m fairlead list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_switching_in_a_file_that_cannot_say_it_is_refused(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "a", "--", "run")
    outcome = fairlead("enable", "a", "--scope", "user")
    assert outcome.status == 1
    assert "--scope project" in outcome.err
    assert "already" not in outcome.err


def test_an_explicit_scope_is_written_even_where_it_changes_nothing(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead("add", "a", "--scope", "user", "--", "run")
    assert fairlead("enable", "a", "--scope", "project").status == 0
    assert entries(machine) == {"a": {"enabled": True}}


def test_the_hint_about_the_repository_server_helps_in_a_home_folder(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    monkeypatch.chdir(machine.home)
    refused = fairlead("call", "repo", "repo.listDir", "--yes")
    assert refused.status != 0
    assert "fairlead enable repo" not in refused.err
    assert "--builtin repo --root" in refused.err
    assert (
        fairlead(
            "add", "files", "--builtin", "repo", "--root", str(machine.project), "--trust", "trusted"
        ).status
        == 0
    )
    assert fairlead("call", "files", "repo.listDir", "--yes").status == 0


def test_a_secret_in_a_foreign_project_file_is_not_told_to_use_what_that_format_lacks(
    fairlead: Fairlead, machine: Machine
) -> None:
    folder = machine.project / ".codelia"
    folder.mkdir()
    entry = {
        "transport": "http",
        "url": "https://e.com/mcp",
        "headers": {"Authorization": "Bearer ghp_0123456789abcdefg"},
    }
    (folder / "config.json").write_text(json.dumps({"mcp": {"servers": {"x": entry}}}))
    shown = fairlead("list")
    assert "${NAME}" not in shown.err
    assert "fairlead import" in shown.err


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize("word", ["enable", "disable"])
def test_switching_a_projects_server_does_not_approve_what_it_runs(
    fairlead: Fairlead, machine: Machine, word: str
) -> None:
    machine.write_project(json.dumps({"servers": {"x": {"command": "evil", "enabled": word == "disable"}}}))
    assert fairlead(word, "x").status == 0
    assert fairlead("approve").status == 3, "it still waits"
    assert fairlead("approve", "x", "--yes").status == 0
    fairlead("disable", "x")
    fairlead("enable", "x")
    assert "nothing waits" in fairlead("approve").err, "what was approved stays so"


def test_a_command_line_of_any_length_takes_a_few_lines_of_the_list(
    fairlead: Fairlead, machine: Machine
) -> None:
    words = [f"word-{number}" for number in range(5_000)]
    machine.write_user(json.dumps({"servers": {"x": {"command": "run", "args": words}}}))
    assert len(fairlead("list").out) < 1_000
    assert "word-4999" in fairlead("list", "--json").out


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"servers": {"a": {"transport": {"type": "stdio", "command": "one"}}}}, ("servers",)),
        ({"mcp": {"servers": {"a": {"transport": "stdio", "command": "one"}}}}, ("mcp", "servers")),
    ],
    ids=["seed 000", "seed 003"],
)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_a_file_of_ones_own_in_the_shape_of_a_seed_is_edited_where_its_entry_is(
    fairlead: Fairlead, machine: Machine, document: dict[str, Any], place: tuple[str, ...], scope: str
) -> None:
    write_file = machine.write_user if scope == "user" else machine.write_project
    path = write_file(json.dumps(document))

    def entries() -> dict[str, Any]:
        return value_at(json.loads(path.read_text()), place)

    entry = entries()["a"]
    for words, enabled in (("disable", False), ("enable", True)):
        outcome = fairlead(words, "a")
        assert outcome.status == 0, outcome.err
        assert entries() == {"a": {**entry, "enabled": enabled}}
        assert machine.load().servers["a"].enabled is enabled
    refused = fairlead("add", "a", "--scope", scope, "--command", "two")
    assert "--replace" in refused.err
    assert fairlead("add", "a", "--scope", scope, "--command", "two", "--replace").status == 0
    loaded = machine.load()
    assert loaded.problems == ()
    assert loaded.servers["a"].entry["command"] == "two"
    path.write_text(json.dumps(document))
    assert fairlead("remove", "a", "--scope", scope).status == 0
    assert entries() == {}
