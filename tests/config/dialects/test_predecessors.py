"""Codex ToolLoop and Codelia, whose files are also read as they are."""

import pytest

from fairlead.config.dialects.codelia import CODELIA
from fairlead.config.dialects.toolloop import TOOLLOOP
from tests.config.dialects.support import CWD, notes_about, place, read

pytestmark = pytest.mark.requirement("NEED-25")


def test_a_toolloop_file_is_read_with_bundles_of_one_server() -> None:
    imported = read(
        TOOLLOOP,
        {
            "servers": {
                "repo": {
                    "trust": "trusted",
                    "transport": {"type": "http", "url": "http://localhost:4010/mcp"},
                },
                "old": {
                    "trust": "untrusted",
                    "transport": {"type": "sse", "url": "https://old.example", "authProviderId": "corp"},
                },
                "local": {
                    "trust": "untrusted",
                    "transport": {
                        "type": "stdio",
                        "command": "x",
                        "args": ["${A}"],
                        "cwd": ".",
                        "env": {"A": "b"},
                    },
                },
                "my server": {
                    "trust": "trusted",
                    "transport": {"type": "stdio", "command": "y", "shell": True},
                },
                "odd": {"trust": "maybe", "transport": {"type": "stdio", "command": "y"}},
            },
            "bundles": {
                "repoRead": {
                    "serverId": "repo",
                    "mode": "direct",
                    "allowTools": ["a", "b"],
                    "denyTools": ["c"],
                },
                "spaced": {"serverId": "my server", "mode": "meta"},
                "my bundle": {"serverId": "repo", "mode": "direct"},
                "none": {"serverId": "repo", "mode": "direct", "allowTools": []},
                "wrong": {"serverId": "repo", "mode": "sideways"},
                "nobody": {"mode": "direct"},
            },
            "extra": 1,
        },
    )
    assert imported.servers == {
        "repo": {"trust": "trusted", "url": "http://localhost:4010/mcp"},
        "old": {
            "trust": "untrusted",
            "transport": "sse",
            "url": "https://old.example",
            "auth_provider_id": "corp",
        },
        "local": {"trust": "untrusted", "command": "x", "args": ["${A}"], "cwd": ".", "env": {"A": "b"}},
    }
    assert imported.bundles == {
        "repoRead": {"servers": {"repo": {"allow_tools": ["a", "b"], "deny_tools": ["c"]}}, "mode": "direct"},
    }
    assert set(notes_about(imported.notes, None)) == {
        "extra",
        "id",
        "bundles",
        "bundles.spaced",
        "bundles.none.allowTools",
        "bundles.wrong.mode",
        "bundles.nobody",
    }
    assert notes_about(imported.notes, None)["id"].startswith("`my server` is left out: an id is 1 to 64")
    assert set(notes_about(imported.notes, "odd")) == {"trust"}


def test_lists_of_tools_are_written_as_a_toolloop_bundle() -> None:
    assert TOOLLOOP.write is not None
    exported = TOOLLOOP.write(
        {
            "repo": {"url": "https://x.example", "allow_tools": ["a", "b*"], "deny_tools": ["c"]},
            "plain": {"command": "p"},
        }
    )
    assert exported.document == {
        "servers": {
            "repo": {"trust": "untrusted", "transport": {"type": "http", "url": "https://x.example"}},
            "plain": {"trust": "untrusted", "transport": {"type": "stdio", "command": "p"}},
        },
        "bundles": {"repo": {"serverId": "repo", "mode": "direct", "allowTools": ["a"], "denyTools": ["c"]}},
    }
    assert set(notes_about(exported.notes, "repo")) == {"allow_tools", "deny_tools"}
    assert all("bundle" in note.message or "pattern" in note.message for note in exported.notes)


def test_toolloop_files_are_found_walking_up_unless_one_is_named() -> None:
    paths = [str(location.path) for location in TOOLLOOP.locations(place())]
    assert paths[:3] == [
        str(CWD / "codex-toolloop.mcp.json"),
        str(CWD / ".codex-toolloop/mcp.json"),
        str(CWD.parent / "codex-toolloop.mcp.json"),
    ]
    named = TOOLLOOP.locations(place(CODEX_TOOLLOOP_MCP_CONFIG_PATH="custom.json"))
    assert [str(location.path) for location in named] == [str(CWD / "custom.json")]


def test_a_codelia_file_is_read_with_its_dollars_as_text() -> None:
    imported = read(
        CODELIA,
        {
            "version": 1,
            "model": {},
            "mcp": {
                "servers": {
                    "remote": {
                        "transport": "http",
                        "url": "https://x.example/mcp",
                        "headers": {"X-Literal": "${HOME}"},
                        "env": {"NODE_ENV": "production"},
                        "oauth": {"client_id": "abc", "scope": "a b", "token_url": "https://x.example/token"},
                        "request_timeout_ms": 30000,
                    },
                    "local": {"transport": "stdio", "command": "x", "args": ["$${A}"], "enabled": False},
                    "off": {"enabled": False},
                    "odd": {"transport": "smoke"},
                },
                "more": 1,
            },
        },
    )
    assert imported.servers == {
        "remote": {
            "url": "https://x.example/mcp",
            "headers": {"X-Literal": "$${HOME}"},
            "oauth": {"client_id": "abc", "scope": "a b", "token_url": "https://x.example/token"},
            "request_timeout_ms": 30000,
        },
        "local": {"command": "x", "args": ["$$${A}"], "enabled": False},
        "off": {"enabled": False},
    }
    assert set(notes_about(imported.notes, "remote")) == {"env"}
    assert set(notes_about(imported.notes, "odd")) == {"transport"}
    assert set(notes_about(imported.notes, None)) == {"more"}


def test_codelia_files_are_in_the_current_folder_alone_and_where_the_environment_says() -> None:
    assert [str(location.path) for location in CODELIA.locations(place())] == [
        str(CWD / ".codelia/config.json")
    ]
    named = CODELIA.locations(place(CODELIA_CONFIG_PATH="/etc/codelia.json"))
    assert [(str(location.path), location.scope) for location in named][1] == ("/etc/codelia.json", "user")
