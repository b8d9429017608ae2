"""The configured servers as Codex takes them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.adapters.export import export_to_codex
from fairlead.catalog.tools import Listing, RejectedTool
from fairlead.config import admin_policy
from fairlead.config.dialects.dialect import ExportedDocument
from fairlead.config.load import LoadedConfig
from fairlead.host.host import Host
from fairlead.policy.quarantine import ScreenedListing
from tests.catalog.support import tool
from tests.conftest import Machine
from tests.host.support import SECONDS

TOOLS = Listing(tools=tuple(tool({}, name=name) for name in ("read_file", "read_dir", "write_file")))


def to_codex(loaded: LoadedConfig, **rest: Any) -> ExportedDocument:
    listings: dict[str, Listing] = rest.pop("listings", None) or {}
    known = {name: ScreenedListing(listing=listing) for name, listing in listings.items()}
    return export_to_codex(loaded.servers.values(), known=known, **rest)


def exported(machine: Machine, entry: dict[str, Any], **rest: Any) -> ExportedDocument:
    machine.write_user(json.dumps({"servers": {"files": entry}}))
    return to_codex(machine.load(), **rest)


def written(machine: Machine, entry: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return exported(machine, {"command": "files", **entry}, **rest).document["mcp_servers"]["files"]


def test_a_local_and_a_remote_server(machine: Machine) -> None:
    machine.write_user(
        json.dumps(
            {
                "servers": {
                    "files": {
                        "command": "npx",
                        "args": ["files"],
                        "env": {"TOKEN": "${TOKEN}", "MODE": "fast"},
                        "allow_tools": ["read_file"],
                        "request_timeout_ms": 60_000,
                    },
                    "web": {
                        "url": "https://example.com/mcp",
                        "headers": {"Authorization": "Bearer ${WEB_TOKEN}"},
                        "trust": "trusted",
                        "deny_tools": ["drop"],
                        "enabled": False,
                    },
                }
            }
        )
    )
    document = to_codex(machine.load()).document
    assert document["mcp_servers"] == {
        "files": {
            "command": "npx",
            "args": ["files"],
            "env": {"MODE": "fast"},
            "env_vars": ["TOKEN"],
            "tool_timeout_sec": 60,
            "enabled_tools": ["read_file"],
        },
        "web": {
            "url": "https://example.com/mcp",
            "bearer_token_env_var": "WEB_TOKEN",
            "enabled": False,
            "disabled_tools": ["drop"],
        },
    }


def test_a_secret_in_plain_text_becomes_a_reference_or_stays_here(machine: Machine) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwx"
    result = exported(machine, {"command": "files", "env": {"API_KEY": secret}})
    assert secret not in json.dumps(result.document)
    assert result.document["mcp_servers"]["files"]["env_vars"] == ["API_KEY"]
    assert any(note.field == "env.API_KEY" for note in result.notes)
    unsafe = exported(machine, {"command": "files", "args": ["--api-key", secret]})
    assert unsafe.document["mcp_servers"] == {}
    assert secret not in str(unsafe.notes)


@pytest.mark.parametrize(
    ("rules", "known", "said"),
    [
        ({}, False, {"enabled_tools": []}),
        ({}, True, {"enabled_tools": []}),
        ({"trust": "trusted"}, False, {}),
        ({"trust": "trusted"}, True, {}),
        ({"allow_tools": ["read_file", "gone"]}, True, {"enabled_tools": ["read_file", "gone"]}),
        ({"allow_tools": ["read_*"]}, False, {"enabled_tools": []}),
        ({"allow_tools": ["read_*"]}, True, {"enabled_tools": ["read_file", "read_dir"]}),
        (
            {"allow_tools": ["*"], "deny_tools": ["write_*"]},
            True,
            {"enabled_tools": ["read_file", "read_dir"]},
        ),
        ({"allow_tools": ["read_file"], "deny_tools": ["read_*"]}, False, {"enabled_tools": []}),
        ({"trust": "trusted", "deny_tools": ["write_*"]}, True, {"disabled_tools": ["write_file"]}),
        ({"trust": "trusted", "deny_tools": ["gone"]}, True, {"disabled_tools": ["gone"]}),
    ],
)
def test_codex_may_call_no_more_than_we_may(
    machine: Machine, rules: dict[str, Any], known: bool, said: dict[str, Any]
) -> None:
    table = written(machine, rules, listings={"files": TOOLS} if known else None)
    assert {key: value for key, value in table.items() if key.endswith("_tools")} == said


@pytest.mark.parametrize(
    ("entry", "policy", "said"),
    [
        (
            {"deny_tools": ["write_file"], "approval": {"default": "ask", "tools": {"write_file": "allow"}}},
            {},
            {"disabled_tools": ["write_file"], "default_tools_approval_mode": "prompt"},
        ),
        (
            {"approval": {"default": "auto", "tools": {"write_file": "allow", "read_dir": "allow"}}},
            {"rules": [{"action": "deny", "tool": "write_*"}]},
            {
                "disabled_tools": ["write_file"],
                "default_tools_approval_mode": "auto",
                "tools": {"read_dir": {"approval_mode": "approve"}},
            },
        ),
        (
            {"approval": {"default": "allow", "tools": {"write_file": "deny"}}},
            {},
            {"disabled_tools": ["write_file"], "default_tools_approval_mode": "approve"},
        ),
        (
            {"approval": {"default": "allow", "tools": {"write_*": "deny"}}},
            {},
            {"disabled_tools": ["write_file"], "default_tools_approval_mode": "approve"},
        ),
        (
            {"approval": {"default": "deny", "tools": {"read_dir": "allow"}}},
            {},
            {"enabled_tools": ["read_dir"], "tools": {"read_dir": {"approval_mode": "approve"}}},
        ),
        ({"approval": "deny"}, {}, {"enabled_tools": []}),
        ({}, {"approval": "deny"}, {"enabled_tools": []}),
        ({}, {"rules": [{"action": "deny", "server": "files"}]}, {"enabled_tools": []}),
    ],
)
def test_what_we_deny_is_disabled_for_codex_and_approved_nowhere(
    machine: Machine, entry: dict[str, Any], policy: dict[str, Any], said: dict[str, Any]
) -> None:
    servers = {"files": {"command": "files", "trust": "trusted", **entry}}
    machine.write_user(json.dumps({"servers": servers, "policy": policy}))
    table = to_codex(machine.load(), listings={"files": TOOLS}).document["mcp_servers"]["files"]
    del table["command"]
    assert table == said


def test_codex_asks_where_the_administrator_does(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_policy, "SYSTEM_FILE", tmp_path / "policy.json")
    (tmp_path / "policy.json").write_text(json.dumps({"approval": "ask"}))
    table = written(
        machine,
        {"trust": "trusted", "approval": {"default": "allow", "tools": {"read_dir": "allow"}}},
        listings={"files": TOOLS},
    )
    assert table["default_tools_approval_mode"] == "prompt"
    assert table["tools"] == {"read_dir": {"approval_mode": "prompt"}}


def test_a_server_whose_denials_cannot_be_said_is_left_out(machine: Machine) -> None:
    result = exported(machine, {"command": "files", "trust": "trusted", "deny_tools": ["write_*"]})
    assert result.document["mcp_servers"] == {}
    assert any(note.field == "deny_tools" for note in result.notes)


def test_a_server_of_a_project_goes_along_only_once_approved(machine: Machine) -> None:
    machine.write_project(json.dumps({"servers": {"evil": {"command": "sh", "args": ["-c", "true"]}}}))
    loaded = machine.load()
    kept = to_codex(loaded)
    assert kept.document["mcp_servers"] == {}
    assert "project file" in kept.notes[0].message
    assert "evil" in to_codex(loaded, approved={"evil"}).document["mcp_servers"]


def test_a_bad_entry_is_left_out_alone(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"bad": {"command": 5}, "good": {"command": "x"}}}))
    result = to_codex(machine.load())
    assert list(result.document["mcp_servers"]) == ["good"]
    assert any(note.server_id == "bad" for note in result.notes)


async def test_the_registry_has_the_servers_of_a_selection_for_codex_seed_001(machine: Machine) -> None:
    machine.env.pop("FAIRLEAD_BUILTINS")
    machine.write_user(
        json.dumps(
            {
                "servers": {
                    "files": {"command": "files", "trust": "trusted", "approval": "auto"},
                    "web": {"url": "https://example.com/mcp", "allow_tools": ["a", "b"], "approval": "auto"},
                    "docs": {"enabled": True},
                },
                "bundles": {
                    "one": {"serverId": "web", "allowTools": ["b", "c"]},
                    "two": {"serverId": "files", "denyTools": ["rm"]},
                },
            }
        )
    )
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            everything = host.tools.to_codex_mcp_servers_config()
            assert set(everything.document["mcp_servers"]) == {"files", "web"}
            assert everything.document["mcp_servers"]["web"]["enabled_tools"] == ["a", "b"]
            left_out = {note.server_id: note.message for note in everything.notes}
            assert "runs inside Fairlead" in left_out["docs"]
            one = host.toolset("one").to_codex_mcp_servers_config().document["mcp_servers"]
            assert [(name, table["enabled_tools"]) for name, table in one.items()] == [("web", ["b"])]
            two = host.toolset("two").to_codex_mcp_servers_config().document["mcp_servers"]
            assert [(name, table["disabled_tools"]) for name, table in two.items()] == [("files", ["rm"])]


@pytest.mark.requirement("HARD-78")
@pytest.mark.parametrize(
    "entry",
    [
        {"trust": "trusted"},
        {"trust": "trusted", "allow_tools": ["read_file", "bad", "odd"]},
        {"trust": "untrusted", "allow_tools": ["read_file", "bad", "odd"]},
    ],
)
def test_a_tool_whose_definition_is_rejected_here_is_not_handed_over(
    machine: Machine, entry: dict[str, Any]
) -> None:
    bad = tool({"type": "object", "properties": {"a": {"$ref": "https://evil.example/x"}}}, name="bad")
    listing = Listing(
        tools=(tool({}, name="read_file"), bad), rejected=(RejectedTool(name="odd", reason="it is odd"),)
    )
    made = written(machine, entry, listings={"files": listing})
    if "enabled_tools" in made:
        assert made["enabled_tools"] == ["read_file"]
    else:
        assert {"bad", "odd"} <= {*made["disabled_tools"]}
