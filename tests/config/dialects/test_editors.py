"""Cursor and VS Code, Zed, Windsurf and Cline."""

from typing import Any

import pytest

from fairlead.config.dialects.cline import CLINE
from fairlead.config.dialects.cursor import CURSOR
from fairlead.config.dialects.vscode import VSCODE
from fairlead.config.dialects.windsurf import WINDSURF
from fairlead.config.dialects.zed import ZED
from fairlead.errors import ConfigInvalid
from tests.config.dialects.support import CWD, notes_about, place, read

pytestmark = pytest.mark.requirement("NEED-25")


def test_a_cursor_file_is_read_with_its_variables() -> None:
    imported = read(
        CURSOR,
        {
            "mcpServers": {
                "tides": {
                    "command": "${workspaceFolder}${/}bin/tides",
                    "args": ["--home", "${userHome}", "--name", "${workspaceFolderBasename}"],
                    "env": {"KEY": "${env:TIDE_KEY}", "SHELL_STYLE": "${HOME}"},
                    "envFile": ".env",
                },
                "charts": {
                    "url": "https://charts.example/mcp",
                    "headers": {"X-Key": "${env:CHART_KEY}"},
                    "auth": {
                        "CLIENT_ID": "abc",
                        "CLIENT_SECRET": "${env:SECRET}",
                        "scopes": ["read", "write"],
                    },
                },
            },
            "inputs": [],
        },
    )
    assert imported.servers == {
        "tides": {
            "command": f"{CWD}/bin/tides",
            "args": ["--home", "${HOME}", "--name", "app"],
            "env": {"KEY": "${TIDE_KEY}", "SHELL_STYLE": "$${HOME}"},
        },
        "charts": {
            "url": "https://charts.example/mcp",
            "headers": {"X-Key": "${CHART_KEY}"},
            "oauth": {"client_id": "abc", "client_secret": "${SECRET}", "scope": "read write"},
        },
    }
    assert set(notes_about(imported.notes, "tides")) == {
        "envFile",
        "${workspaceFolder}",
        "${workspaceFolderBasename}",
        "${HOME}",
    }
    assert set(notes_about(imported.notes, None)) == {"inputs"}


def test_cursor_cannot_say_defaults_files_and_keyrings() -> None:
    assert CURSOR.write is not None
    exported = CURSOR.write(
        {
            "partly": {"command": "x", "env": {"A": "${A}", "B": "${B:-c}", "C": "${file:/run/c}"}},
            "not": {"command": "x", "args": ["${keyring:a/b}"]},
            "literal": {"command": "x", "env": {"A": "$${env:A}", "B": "$${B}"}},
        }
    )
    assert exported.document["mcpServers"] == {
        "partly": {"type": "stdio", "command": "x", "env": {"A": "${env:A}"}},
        "literal": {"type": "stdio", "command": "x", "env": {"B": "${B}"}},
    }
    assert set(notes_about(exported.notes, "partly")) == {"env.B", "env.C"}
    assert "left out" in notes_about(exported.notes, "not")["args"]
    assert set(notes_about(exported.notes, "literal")) == {"env.A"}


def test_inputs_of_vs_code_become_references_with_a_note_on_how_to_set_them() -> None:
    imported = read(
        VSCODE,
        {
            "inputs": [
                {"type": "promptString", "id": "api-key", "description": "The key", "password": True},
                {"type": "promptString", "id": "region", "default": "north"},
                {"type": "pickString", "id": "2nd", "options": ["a", "b"]},
            ],
            "servers": {
                "tides": {
                    "type": "stdio",
                    "command": "tides",
                    "env": {
                        "KEY": "${input:api-key}",
                        "REGION": "${input:region}",
                        "LEVEL": "${input:2nd}",
                        "LOST": "${input:lost}",
                        "PORT": 4000,
                        "UNSET": None,
                        "OTHER": "${config:tides.other}",
                    },
                }
            },
        },
    )
    assert imported.servers["tides"]["env"] == {
        "KEY": "${keyring:fairlead/api-key}",
        "REGION": "north",
        "LEVEL": "${_2ND}",
        "LOST": "${LOST}",
        "PORT": "4000",
        "OTHER": "$${config:tides.other}",
    }
    remarks = notes_about(imported.notes, None)
    assert set(remarks) == {"inputs.api-key", "inputs.region", "inputs.2nd", "inputs.lost"}
    assert "keyring set fairlead api-key" in remarks["inputs.api-key"]
    assert set(notes_about(imported.notes, "tides")) == {"${config:tides.other}"}


def test_what_only_vs_code_has_is_noted() -> None:
    data: dict[str, Any] = {
        "sandbox": {"network": {}},
        "servers": {
            "tides": {"command": "tides", "sandboxEnabled": True, "dev": {"watch": "*"}, "envFile": ".env"},
            "charts": {
                "type": "http",
                "url": "https://charts.example",
                "oauth": {"clientId": "abc", "enterpriseManaged": True},
            },
        },
    }
    imported = read(VSCODE, data)
    assert imported.servers["charts"]["oauth"] == {"client_id": "abc"}
    assert set(notes_about(imported.notes, "tides")) == {"sandboxEnabled", "dev", "envFile"}
    assert set(notes_about(imported.notes, "charts")) == {"oauth.enterpriseManaged"}
    assert set(notes_about(imported.notes, None)) == {"sandbox"}


def test_vs_code_asks_for_the_secrets_that_are_in_our_keyring() -> None:
    assert VSCODE.write is not None
    exported = VSCODE.write(
        {
            "tides": {"command": "tides", "env": {"KEY": "${keyring:fairlead/key}", "ID": "${ID}"}},
            "other": {"command": "other", "env": {"KEY": "${keyring:elsewhere/key}"}},
        }
    )
    assert exported.document["servers"]["tides"]["env"] == {"KEY": "${input:key}", "ID": "${env:ID}"}
    assert exported.document["inputs"] == [
        {"type": "promptString", "id": "key", "description": "key", "password": True}
    ]
    assert set(notes_about(exported.notes, "other")) == {"env.KEY"}


@pytest.mark.parametrize("inputs", [{"a": 1}, ["a"], [{"type": "promptString"}]])
def test_inputs_that_are_none_make_the_document_an_error(inputs: Any) -> None:
    with pytest.raises(ConfigInvalid, match="inputs"):
        read(VSCODE, {"servers": {}, "inputs": inputs})


def test_zed_has_had_two_layouts_and_servers_from_extensions() -> None:
    imported = read(
        ZED,
        {
            "theme": "One Dark",
            "context_servers": {
                "now": {
                    "command": "tides",
                    "args": ["-v"],
                    "env": {"A": "${B}"},
                    "timeout": 90,
                    "remote": True,
                },
                "before": {
                    "source": "custom",
                    "command": {"path": "tides", "args": ["-v"], "env": {"A": "b"}},
                },
                "remote": {
                    "url": "https://x.example",
                    "headers": {"A": "b"},
                    "enabled": False,
                    "oauth": {"client_id": "abc"},
                },
                "bundled": {"source": "extension", "settings": {}},
                "also-bundled": {"settings": {"token": "abc"}},
            },
        },
    )
    assert imported.servers == {
        "now": {"command": "tides", "args": ["-v"], "env": {"A": "$${B}"}, "request_timeout_ms": 90_000},
        "before": {"command": "tides", "args": ["-v"], "env": {"A": "b"}},
        "remote": {
            "url": "https://x.example",
            "headers": {"A": "b"},
            "enabled": False,
            "oauth": {"client_id": "abc"},
        },
    }
    assert set(notes_about(imported.notes, "now")) == {"remote"}
    assert notes_about(imported.notes, "bundled")
    assert notes_about(imported.notes, "also-bundled")


def test_windsurf_is_read() -> None:
    imported = read(
        WINDSURF,
        {
            "mcpServers": {
                "charts": {
                    "serverUrl": "https://charts.example/mcp",
                    "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Key": "${file:/run/key}"},
                    "disabled": True,
                    "disabledTools": ["erase"],
                    "alwaysAllow": ["list", "get_*"],
                    "registry": "x",
                }
            }
        },
    )
    assert imported.servers["charts"] == {
        "url": "https://charts.example/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}", "X-Key": "${file:/run/key}"},
        "enabled": False,
        "deny_tools": ["erase"],
        "approval": {"tools": {"list": "allow"}},
    }
    assert set(notes_about(imported.notes, "charts")) == {"alwaysAllow", "registry"}


def test_cline_is_read_in_both_its_layouts() -> None:
    imported = read(
        CLINE,
        {
            "mcpServers": {
                "tides": {"command": "tides", "autoApprove": ["list"], "timeout": 60, "disabled": False},
                "old": {"url": "https://old.example/sse"},
                "older": {
                    "transportType": "http",
                    "url": "https://older.example",
                    "headers": {"A": "${env:B}"},
                },
                "new": {
                    "transport": {"type": "streamableHttp", "url": "https://new.example"},
                    "oauthClient": {"clientId": "abc"},
                    "oauth": {"tokens": {"access_token": "hush"}},
                },
                "text": "tides",
            }
        },
    )
    assert imported.servers == {
        "tides": {
            "command": "tides",
            "approval": {"tools": {"list": "allow"}},
            "request_timeout_ms": 60_000,
            "enabled": True,
        },
        "old": {"transport": "sse", "url": "https://old.example/sse"},
        "older": {"url": "https://older.example", "headers": {"A": "${B}"}},
        "new": {"url": "https://new.example", "oauth": {"client_id": "abc"}},
    }
    assert set(notes_about(imported.notes, "new")) == {"oauth"}
    assert not any("hush" in note.message for note in imported.notes)


def test_the_editors_files_are_found_on_every_platform() -> None:
    def paths(dialect: Any, platform: str, **env: str) -> list[str]:
        return [str(location.path) for location in dialect.locations(place(platform, **env))]

    assert paths(CURSOR, "linux") == [str(CWD / ".cursor/mcp.json"), "/home/ada/.cursor/mcp.json"]
    assert paths(VSCODE, "darwin")[1] == "/home/ada/Library/Application Support/Code/User/mcp.json"
    assert paths(VSCODE, "linux")[2] == "/home/ada/.config/Code - Insiders/User/mcp.json"
    assert paths(ZED, "darwin")[1] == "/home/ada/.config/zed/settings.json"
    assert paths(ZED, "win32", APPDATA="/roaming")[1] == "/roaming/Zed/settings.json"
    assert paths(WINDSURF, "linux")[0] == "/home/ada/.codeium/windsurf/mcp_config.json"
    assert paths(CLINE, "linux")[0] == "/home/ada/.cline/data/settings/cline_mcp_settings.json"
    assert paths(CLINE, "linux", CLINE_MCP_SETTINGS_PATH="/x.json")[0] == "/x.json"
    assert "saoudrizwan.claude-dev" in paths(CLINE, "win32")[1]


def test_a_users_file_is_not_also_a_projects_one() -> None:
    at_home = place()
    at_home = type(at_home)(home=at_home.home, cwd=at_home.home, env={}, platform="linux")
    assert [location.scope for location in CURSOR.locations(at_home)] == ["user"]
