"""Taking servers over from other agents, and handing them back."""

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.consent import has_consent
from tests.conftest import Machine, Outcome, write

Fairlead = Callable[..., Outcome]

CURSOR = json.dumps(
    {
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "server-files", "."], "env": {"KEY": "${env:MY_KEY}"}},
            "web": {
                "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer sk-0123456789abcdefgh"},
            },
        }
    }
)
CODEX = """
model = "some-model"

# my servers
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]
startup_timeout_sec = 20
"""


@pytest.mark.requirement("NEED-25")
def test_a_file_is_recognised_and_taken_over(fairlead: Fairlead, machine: Machine) -> None:
    file = write(machine.project / ".cursor" / "mcp.json", CURSOR)
    outcome = fairlead("import", str(file))
    assert outcome.status == 0
    servers = machine.load().servers
    assert set(servers) == {"files", "web"}
    assert servers["files"].entry["env"] == {"KEY": "${MY_KEY}"}
    assert "sk-0123456789abcdefgh" not in machine.project_file.read_text() + outcome.out + outcome.err
    for server in servers.values():
        assert server.consent is not None
        assert has_consent(store_file(machine.env), server.consent)


@pytest.mark.requirement("NEED-25")
@pytest.mark.parametrize("by_agent", [True, False])
def test_a_key_that_is_there_twice_costs_no_other_server_of_an_agents_file(
    fairlead: Fairlead, machine: Machine, *, by_agent: bool
) -> None:
    twice = '"x": {"command": "old"}, "x": {"command": "new", "env": {"A": "1", "A": "2"}}'
    file = write(
        machine.home / ".cursor" / "mcp.json", f'{{"mcpServers": {{{twice}, "y": {{"command": "c"}}}}}}'
    )
    outcome = fairlead("import", *(("--from", "cursor") if by_agent else (str(file),)))
    assert outcome.status == 0
    assert "mcpServers.x: this key is already in line 1" in outcome.err
    assert "the last one is taken" in outcome.err
    servers = machine.load().servers
    assert (servers["x"].target, servers["x"].entry["env"]) == ("new", {"A": "2"})
    assert servers["y"].target == "c"


@pytest.mark.requirement("NEED-25")
def test_an_agents_own_files_are_found(fairlead: Fairlead, machine: Machine) -> None:
    write(machine.home / ".codex" / "config.toml", CODEX)
    assert fairlead("import", "--from", "codex").status == 0
    server = machine.load().servers["time"]
    assert server.source == "user"  # from the user's file into the user's file
    assert (server.target, server.entry["startup_timeout_ms"]) == ("uvx mcp-server-time", 20_000)


def test_looking_around_changes_nothing_when_nobody_says_yes(fairlead: Fairlead, machine: Machine) -> None:
    write(machine.home / ".codex" / "config.toml", CODEX)
    write(machine.project / ".cursor" / "mcp.json", CURSOR)
    outcome = fairlead("import")
    assert outcome.status == 0
    assert "time" in outcome.out
    assert "files" in outcome.out
    assert machine.load().servers == {}


def test_a_dry_run_changes_nothing(fairlead: Fairlead, machine: Machine) -> None:
    file = write(machine.project / ".cursor" / "mcp.json", CURSOR)
    rows = json.loads(fairlead("import", str(file), "--dry-run", "--json").out)["servers"]
    assert {(row["action"], row["id"]) for row in rows} == {("add", "files"), ("add", "web")}
    assert not machine.project_file.exists()
    assert not (machine.home / ".config" / "fairlead" / "secrets").exists()


def test_what_is_there_stays_unless_it_is_to_be_replaced(fairlead: Fairlead, machine: Machine) -> None:
    file = write(machine.project / ".cursor" / "mcp.json", CURSOR)
    fairlead("add", "files", "--", "mine")
    assert fairlead("import", str(file)).status == 0
    assert machine.load().servers["files"].target == "mine"
    assert "web" in machine.load().servers
    assert fairlead("import", str(file), "--replace", "--only", "files").status == 0
    assert machine.load().servers["files"].target.startswith("npx")


def test_mcp_remote_is_offered_as_a_native_server(fairlead: Fairlead, machine: Machine) -> None:
    entry = {"command": "npx", "args": ["-y", "mcp-remote", "https://example.com/mcp"]}
    file = write(machine.project / "mcp.json", json.dumps({"mcpServers": {"r": entry}}))
    offered = fairlead("import", str(file), "--from", "claude", "--dry-run")
    assert "--native" in offered.err
    fairlead("import", str(file), "--from", "claude", "--native")
    assert machine.load().servers["r"].entry["url"] == "https://example.com/mcp"


def test_a_bad_entry_of_theirs_is_left_out_with_the_reason(fairlead: Fairlead, machine: Machine) -> None:
    file = write(
        machine.project / "mcp.json",
        json.dumps(
            {"mcpServers": {"good": {"command": "x"}, "bad": {"command": 3}, "odd one!": {"command": "x"}}}
        ),
    )
    outcome = fairlead("import", str(file), "--from", "claude")
    assert outcome.status == 0
    assert "good" in machine.load().servers
    assert "bad" not in machine.load().servers
    assert "bad" in outcome.out + outcome.err
    assert len(machine.load().servers) == 2  # the odd id was made a proper one


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "nowhere.json"), "nowhere.json"),
        (("import", "codex"), "fairlead import --from codex"),
        (("import", "--from", "cursr"), "cursor"),
        (("export", "--to", "nobody"), "nobody"),
        (("export", "--to", "goose"), "does not write"),
        (("import", "--from", "cursor"), "no files of cursor"),
    ],
)
def test_what_cannot_be_done_is_said(fairlead: Fairlead, arguments: tuple[str, ...], words: str) -> None:
    outcome = fairlead(*arguments)
    assert outcome.status == 1
    assert words in outcome.err


def test_an_unknown_shape_asks_for_the_format(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("import", str(write(machine.project / "x.json", '{"nothing": 1}')))
    assert outcome.status == 1
    assert "--from" in outcome.err


def test_a_project_in_the_documents_own_format_can_be_taken_over(
    fairlead: Fairlead, machine: Machine
) -> None:
    file = write(
        machine.project / "codex-toolloop.mcp.json",
        json.dumps(
            {
                "servers": {
                    "t": {"trust": "trusted", "transport": {"type": "http", "url": "http://localhost:1/mcp"}}
                },
                "bundles": {"b": {"serverId": "t", "mode": "direct", "allowTools": ["x"]}},
            }
        ),
    )
    assert fairlead("import", str(file)).status == 0
    loaded = machine.load()
    assert [layer.path for layer in loaded.layers] == [machine.project_file]
    assert loaded.config.bundles["b"].servers["t"].allow_tools == ("x",)


@pytest.mark.parametrize("agent", ["claude", "cursor", "vscode", "codex", "opencode", "gemini", "toolloop"])
def test_every_format_that_is_written_can_be_read_back(
    fairlead: Fairlead, machine: Machine, agent: str
) -> None:
    fairlead("add", "files", "--", "npx", "-y", "server", ".")
    fairlead("add", "web", "--url", "https://example.com/mcp")
    exported = fairlead("export", "--to", agent, "--lose", "tools")
    assert exported.status == 0
    suffix = "toml" if agent == "codex" else "json"
    file = write(machine.home / f"there.{suffix}", exported.out)
    machine.project_file.unlink()
    assert fairlead("import", str(file), "--from", agent, "--scope", "user").status == 0
    servers = machine.load().servers
    assert {name: server.target for name, server in servers.items()} == {
        "files": "npx -y server .",
        "web": "https://example.com/mcp",
    }


def test_export_into_a_file_keeps_the_rest_of_it(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "files", "--", "run")
    toml = write(machine.home / "config.toml", CODEX)
    assert fairlead("export", "--to", "codex", "-o", str(toml)).status == 0
    text = toml.read_text()
    assert "# my servers" in text
    document = tomllib.loads(text)
    assert document["model"] == "some-model"
    assert set(document["mcp_servers"]) == {"time", "files"}
    jsonc = write(machine.home / "mcp.json", '{\n  // keep\n  "mcpServers": {"other": {"command": "y"}}\n}\n')
    assert fairlead("export", "--to", "claude", "-o", str(jsonc), "--lose", "tools").status == 0
    assert '"files"' in jsonc.read_text()
    assert "// keep" in jsonc.read_text()
    assert '"other"' in jsonc.read_text()


def test_export_never_resolves_a_secret(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "resolved-secret-value")
    machine.write_user(
        json.dumps(
            {
                "servers": {
                    "a": {"url": "https://e.com/", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}},
                    "b": {"command": "run", "env": {"API_KEY": "plain-text-secret"}},
                    "c": {"command": "run", "args": ["--token", "plain-text-secret"]},
                }
            }
        )
    )
    outcome = fairlead("export", "--to", "claude", "--lose", "tools")
    assert "resolved-secret-value" not in outcome.out + outcome.err
    assert "plain-text-secret" not in outcome.out + outcome.err
    document = json.loads(outcome.out)["mcpServers"]
    assert "${MY_TOKEN}" in document["a"]["headers"]["Authorization"]
    assert document["b"]["env"] == {"API_KEY": "${API_KEY}"}
    assert "c" not in document
    assert "c" in outcome.err


def test_a_gateway_is_one_entry(fairlead: Fairlead) -> None:
    document = json.loads(fairlead("export", "--to", "claude", "--gateway").out)["mcpServers"]
    assert document["fairlead"]["command"] == "fairlead"
    by_url = json.loads(
        fairlead("export", "--to", "claude", "--gateway", "--url", "http://127.0.0.1:9/mcp").out
    )
    assert by_url["mcpServers"]["fairlead"]["url"] == "http://127.0.0.1:9/mcp"


def test_what_is_shown_masked_is_not_written_in_clear(fairlead: Fairlead, machine: Machine) -> None:
    path = machine.home / "other.json"
    entry = {"command": "npx", "args": ["server-postgres", "postgresql://me:s3cr3t-pass@db.example/x"]}
    path.write_text(json.dumps({"mcpServers": {"pg": entry}}))
    outcome = fairlead("import", "--from", "claude", str(path), "--scope", "user")
    assert outcome.status == 0, outcome.err
    assert "s3cr3t-pass" not in outcome.out + outcome.err + machine.user_file.read_text()
    resolved = machine.load().servers["pg"].resolve(machine.env)
    assert getattr(resolved, "args", [""])[-1] == "postgresql://me:s3cr3t-pass@db.example/x"
    refused = fairlead("import", "--from", "claude", str(path), "--scope", "project")
    assert "--scope user" in refused.out
    assert not machine.project_file.exists()


def test_where_there_is_no_keyring_nothing_refers_to_one(fairlead: Fairlead, machine: Machine) -> None:
    document = {
        "inputs": [{"id": "my-token", "type": "promptString", "password": True}],
        "servers": {
            "x": {"type": "http", "url": "https://e.com/mcp", "headers": {"X-Key": "${input:my-token}"}}
        },
    }
    path = machine.home / "mcp.json"
    path.write_text(json.dumps(document))
    outcome = fairlead("import", "--from", "vscode", str(path), "--scope", "user")
    assert outcome.status == 0, outcome.err
    text = machine.user_file.read_text()
    assert "keyring" not in text
    assert "${file:" in text
    assert "write it into" in outcome.err
    assert "keyring set" not in outcome.err


@pytest.mark.parametrize("has_keyring", [True, False])
def test_inputs_of_one_id_are_other_secrets_for_each_server_and_file(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch, has_keyring: bool
) -> None:
    monkeypatch.setattr("fairlead.config.secrets.keyring.is_available", lambda: has_keyring)
    found: dict[tuple[str, str], str] = {}
    for scope in ("user", "project"):
        for servers in (["x", "y"], ["z"], ["a-b"]):
            headers = {"X-Key": "${input:token}", "X-Both": "Bearer ${input:token} ${input:other}"}
            entry = {"type": "http", "url": "https://e.com/mcp", "headers": headers}
            inputs = [{"id": name, "type": "promptString", "password": True} for name in ("token", "other")]
            path = machine.home / f"{'-'.join(servers)}.json"
            path.write_text(json.dumps({"inputs": inputs, "servers": dict.fromkeys(servers, entry)}))
            arguments = ("import", "--from", "vscode", str(path), "--scope", scope, "--replace")
            assert fairlead(*arguments).status == 0
            outcome = fairlead(*arguments)
            assert outcome.status == 0, outcome.err
            assert outcome.err.count("keyring set" if has_keyring else "write it into") == 2 * len(servers)
        file = machine.user_file if scope == "user" else machine.project_file
        for name, written in json.loads(file.read_text())["servers"].items():
            found[scope, name] = written["headers"]["X-Key"]
            both = written["headers"]["X-Both"].removeprefix("Bearer ").split(" ")
            assert both[0] == found[scope, name] != both[1]
    assert len(found) == len({*found.values()}) == 8
    assert all(("keyring:" in reference) is has_keyring for reference in found.values())


def test_a_server_that_has_the_id_of_a_built_in_one_is_not_taken_over_silently(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    path = machine.home / "config.toml"
    path.write_text('[mcp_servers.docs]\ncommand = "theirs"\n')
    outcome = fairlead("import", "--from", "codex", str(path), "--scope", "user")
    assert "built-in" in outcome.out
    assert not machine.user_file.exists()
    assert fairlead("import", "--from", "codex", str(path), "--scope", "user", "--replace").status == 0
    assert "theirs" in machine.user_file.read_text()


# Another agent gets no more than may be used here.

FORMATS = ["claude", "cursor", "vscode", "codex", "opencode", "gemini", "toolloop"]


def exported_ids(outcome: Outcome, agent: str) -> set[str]:
    if agent == "codex":
        return set(tomllib.loads(outcome.out)["mcp_servers"])
    document = json.loads(outcome.out)
    return {name for section in ("mcpServers", "servers", "mcp") for name in document.get(section, {})}


@pytest.mark.requirement("HARD-78")
@pytest.mark.parametrize("agent", FORMATS)
def test_a_projects_server_leaves_only_once_it_was_approved(
    fairlead: Fairlead, machine: Machine, agent: str
) -> None:
    machine.write_project(json.dumps({"servers": {"evil": {"command": "sh", "trust": "trusted"}}}))
    for arguments in ((), ("evil",), ("--lose", "tools", "--lose", "sandbox")):
        outcome = fairlead("export", "--to", agent, *arguments)
        assert exported_ids(outcome, agent) == set()
        assert "fairlead approve evil" in outcome.err
    assert fairlead("approve", "evil", "--yes").status == 0
    assert exported_ids(fairlead("export", "--to", agent), agent) == {"evil"}
    (machine.project / "sh").write_text("")
    machine.write_project(json.dumps({"servers": {"evil": {"command": "bash", "trust": "trusted"}}}))
    assert exported_ids(fairlead("export", "--to", agent), agent) == set(), "it is another one by now"


@pytest.mark.requirement("HARD-78")
@pytest.mark.parametrize("agent", FORMATS)
@pytest.mark.parametrize(
    "entry",
    [{"command": "./run"}, {"command": "python3", "args": ["run"]}, {"command": "bin/run", "cwd": "tools"}],
)
def test_a_projects_program_is_not_that_of_another_repository_elsewhere(
    fairlead: Fairlead, machine: Machine, agent: str, entry: dict[str, Any]
) -> None:
    machine.write_project(json.dumps({"servers": {"x": {**entry, "trust": "trusted"}}}))
    for name in ("run", "tools/bin/run"):
        write(machine.project / name, "#!/bin/sh\n").chmod(0o755)
    assert fairlead("approve", "x", "--yes").status == 0
    outcome = fairlead("export", "--to", agent)
    if "--lose folder" in outcome.err:
        assert exported_ids(outcome, agent) == set()
        outcome = fairlead("export", "--to", agent, "--lose", "folder")
        assert "lost: its folder" in outcome.err
    else:
        assert str(machine.project / entry.get("cwd", "")) in outcome.out
    assert exported_ids(outcome, agent) == {"x"}
    assert "/" not in entry["command"] or str(machine.project / entry.get("cwd", "")) in outcome.out


@pytest.mark.requirement("HARD-78")
@pytest.mark.parametrize("agent", FORMATS)
@pytest.mark.parametrize(
    ("entry", "policy", "lost"),
    [
        ({}, {}, "tools"),
        ({"allow_tools": ["read_*"]}, {}, "tools"),
        ({"trust": "trusted", "deny_tools": ["drop_*"]}, {}, "tools"),
        ({"trust": "trusted", "approval": {"tools": {"x": "deny"}}}, {}, "tools"),
        ({"trust": "trusted"}, {"rules": [{"action": "deny", "tool": "drop_*"}]}, "tools"),
        ({"trust": "trusted", "sandbox": {}}, {}, "sandbox"),
        (
            {"trust": "trusted"},
            {"rules": [{"action": "deny", "server": "x", "arguments": {"path": "/etc/**"}}]},
            "rules",
        ),
        ({"trust": "trusted"}, {"rules": [{"action": "ask"}]}, "rules"),
    ],
)
def test_what_a_format_cannot_say_keeps_a_server_here_unless_its_loss_is_named(
    fairlead: Fairlead,
    machine: Machine,
    agent: str,
    entry: dict[str, Any],
    policy: dict[str, Any],
    lost: str,
) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"command": "run", **entry}}, "policy": policy}))
    outcome = fairlead("export", "--to", agent)
    if agent == "codex" and lost == "tools" and "trust" not in entry:
        assert tomllib.loads(outcome.out)["mcp_servers"]["x"]["enabled_tools"] == []
        return
    assert exported_ids(outcome, agent) == set()
    assert f"--lose {lost}" in outcome.err
    outcome = fairlead("export", "--to", agent, "--lose", lost, "--lose", "approval")
    assert exported_ids(outcome, agent) == {"x"}
    assert "lost: " in outcome.err


@pytest.mark.requirement("HARD-78")
@pytest.mark.parametrize("agent", ["claude", "cursor", "vscode", "opencode"])
def test_an_approval_that_is_lost_keeps_a_server_here(
    fairlead: Fairlead, machine: Machine, agent: str
) -> None:
    entry = {"command": "run", "trust": "trusted", "approval": "ask"}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    assert exported_ids(fairlead("export", "--to", agent), agent) == set()
    assert exported_ids(fairlead("export", "--to", agent, "--lose", "approval"), agent) == {"x"}
    del entry["approval"]
    machine.write_user(json.dumps({"servers": {"x": entry}, "policy": {"approval": "ask"}}))
    assert exported_ids(fairlead("export", "--to", agent), agent) == set()


@pytest.mark.requirement("HARD-78")
def test_exact_lists_go_along_where_a_format_has_them(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user(
        json.dumps(
            {
                "servers": {
                    "x": {"command": "run", "allow_tools": ["read", "list", "drop"], "deny_tools": ["drop"]},
                    "y": {"command": "run", "trust": "trusted", "deny_tools": ["drop"]},
                }
            }
        )
    )
    tables = tomllib.loads(fairlead("export", "--to", "codex").out)["mcp_servers"]
    assert tables["x"]["enabled_tools"] == ["read", "list"]
    assert tables["y"]["disabled_tools"] == ["drop"]
    entries = json.loads(fairlead("export", "--to", "gemini").out)["mcpServers"]
    assert entries["x"]["includeTools"] == ["read", "list"]
    assert entries["y"]["excludeTools"] == ["drop"]


@pytest.mark.requirement("HARD-78")
def test_a_server_that_is_switched_off_is_not_switched_on_elsewhere(
    fairlead: Fairlead, machine: Machine
) -> None:
    entry = {"command": "run", "trust": "trusted", "enabled": False}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    for agent in FORMATS:
        text = fairlead("export", "--to", agent).out
        if exported_ids(fairlead("export", "--to", agent), agent):
            off = ("enabled = false", '"enabled": false', '"disabled": true', '"excluded": [')
            assert any(word in text for word in off)


def test_an_import_that_cannot_store_a_secret_leaves_none_of_the_others_behind(
    fairlead: Fairlead, machine: Machine
) -> None:
    fine = {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer sk-0123456789abcdefgh"}}
    odd = {"command": "run", "env": {"API_KEY" + "_X" * 150: "sk-0123456789zyxwvu"}}
    file = write(machine.project / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"a": fine, "b": odd}}))
    outcome = fairlead("import", str(file))
    assert outcome.status != 0
    assert not machine.project_file.exists()
    assert [*(machine.user_file.parent / "secrets").iterdir()] == []
