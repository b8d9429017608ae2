"""Claude Code and Claude Desktop."""

from typing import Any

import pytest

from fairlead.config.dialects.claude import CLAUDE
from fairlead.config.dialects.claude_desktop import CLAUDE_DESKTOP
from fairlead.errors import ConfigInvalid
from tests.config.dialects.support import CWD, HOME, notes_about, place, read

pytestmark = pytest.mark.requirement("NEED-25")


def test_a_project_file_of_claude_code_is_read() -> None:
    imported = read(
        CLAUDE,
        {
            "mcpServers": {
                "tides": {
                    "command": "tide-server",
                    "args": ["--port", "${TIDE_PORT:-4000}"],
                    "env": {"TIDE_KEY": "${TIDE_KEY}", "PRICE": "$5"},
                },
                "charts": {
                    "type": "streamable-http",
                    "url": "https://charts.example/mcp",
                    "headers": {"Authorization": "Bearer ${CHART_TOKEN}"},
                    "oauth": {"clientId": "abc", "callbackPort": 8123, "scopes": "read write"},
                    "timeout": 120000,
                },
                "buoys": {"type": "sse", "url": "https://buoys.example/sse"},
            }
        },
    )
    assert imported.servers == {
        "tides": {
            "command": "tide-server",
            "args": ["--port", "${TIDE_PORT:-4000}"],
            "env": {"TIDE_KEY": "${TIDE_KEY}", "PRICE": "$5"},
        },
        "charts": {
            "url": "https://charts.example/mcp",
            "headers": {"Authorization": "Bearer ${CHART_TOKEN}"},
            "oauth": {"client_id": "abc", "callback_port": 8123, "scope": "read write"},
            "request_timeout_ms": 120000,
        },
        "buoys": {"transport": "sse", "url": "https://buoys.example/sse"},
    }
    assert imported.notes == []


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("./token.sh", ["./token.sh"]),
        ("/opt/auth/token --for charts", ["/opt/auth/token", "--for", "charts"]),
        ("'my token' 'a b'", ["my token", "a b"]),
        ("token | jq .x", ["sh", "-c", "token | jq .x"]),
        ("echo ${HOME}", ["sh", "-c", "echo $${HOME}"]),
        ("A=1 token", ["sh", "-c", "A=1 token"]),
    ],
)
def test_a_headers_helper_is_a_shells_command_line_there_and_an_argv_here(line: str, argv: list[str]) -> None:
    imported = read(
        CLAUDE, {"mcpServers": {"x": {"type": "http", "url": "https://x.example", "headersHelper": line}}}
    )
    assert imported.servers["x"]["headers_helper"] == argv


def test_what_claude_code_says_and_we_cannot_is_noted() -> None:
    imported = read(
        CLAUDE,
        {
            "mcpServers": {
                "x": {
                    "type": "http",
                    "url": "https://x.example",
                    "alwaysLoad": True,
                    "oauth": {"authServerMetadataUrl": "https://login.example/meta", "shiny": 1},
                    "colour": "blue",
                    "timeout": 20,
                }
            }
        },
    )
    assert imported.servers == {"x": {"url": "https://x.example"}}
    assert set(notes_about(imported.notes, "x")) == {
        "alwaysLoad",
        "oauth.authServerMetadataUrl",
        "oauth.shiny",
        "colour",
        "timeout",
    }


def test_servers_kept_for_this_folder_win_over_the_users() -> None:
    imported = read(
        CLAUDE,
        {
            "numStartups": 12,
            "mcpServers": {"tides": {"command": "everywhere"}, "charts": {"command": "charts"}},
            "projects": {
                str(CWD): {
                    "mcpServers": {"tides": {"command": "here"}, "my off": {"command": "off"}},
                    "disabledMcpServers": ["my off", "charts"],
                },
                str(CWD.parent): {
                    "mcpServers": {"above": {"command": "above"}, "tides": {"command": "above"}}
                },
                "/somewhere/else": {"mcpServers": {"other": {"command": "other"}}},
                "/broken": "not an object, and none of our business",
            },
        },
    )
    assert imported.servers == {
        "tides": {"command": "here"},
        "charts": {"command": "charts"},
        "above": {"command": "above"},
        "my-off": {"command": "off", "enabled": False},
    }
    assert "which is used" in notes_about(imported.notes, "tides")["projects"]
    assert "for this folder alone" in notes_about(imported.notes, "above")["projects"]
    assert "not carried over" in notes_about(imported.notes, "charts")["disabledMcpServers"]


def test_a_malformed_entry_leaves_out_itself_alone() -> None:
    imported = read(
        CLAUDE,
        {
            "mcpServers": {
                "good": {"command": "good", "disabled": True},
                "text": "npx good",
                "number": {"command": 5},
                "args": {"command": "x", "args": "--flag"},
                "env": {"command": "x", "env": {"A": 1}},
                "socket": {"type": "ws", "url": "wss://x.example"},
                "nothing": {},
                "no-url": {"type": "http"},
                "brace": {"command": "x", "args": ["${A:-{}}"]},
            }
        },
    )
    assert imported.servers == {"good": {"command": "good", "enabled": False}}
    assert {note.server_id: note.field for note in imported.notes} == {
        "text": "",
        "number": "command",
        "args": "args",
        "env": "env",
        "socket": "type",
        "nothing": "command",
        "no-url": "url",
        "brace": "args",
    }
    assert all(note.message.endswith("left out") for note in imported.notes)


def test_fields_that_go_with_another_kind_of_server_are_noted() -> None:
    imported = read(
        CLAUDE,
        {
            "mcpServers": {
                "local": {"command": "x", "url": "https://x.example", "headers": {"A": "b"}},
                "remote": {"type": "http", "command": "x", "url": "https://x.example", "env": {"A": "b"}},
            }
        },
    )
    assert imported.servers == {"local": {"command": "x"}, "remote": {"url": "https://x.example"}}
    assert set(notes_about(imported.notes, "local")) == {"url", "headers"}
    assert set(notes_about(imported.notes, "remote")) == {"command", "env"}


def test_a_malformed_document_is_an_error_that_says_where() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read(CLAUDE, {"mcpServers": ["tides"]})
    assert caught.value.problems[0].path == ("mcpServers",)


def test_names_that_cannot_be_ids_become_readable_and_unique() -> None:
    names = ["My Server!", "my-server", "My-Server", "Café", "日本", "x" * 70, "x" * 71]
    imported = read(CLAUDE, {"mcpServers": {name: {"command": name} for name in names}})
    ids = {entry["command"]: server_id for server_id, entry in imported.servers.items()}
    assert ids["my-server"] == "my-server"
    assert ids["My-Server"] == "My-Server"
    assert ids["My Server!"] == "My-Server-2"
    assert ids["Café"] == "Cafe"
    assert ids["日本"] == "server"
    assert ids["x" * 70] == "x" * 64
    assert ids["x" * 71] == "x" * 62 + "-2"
    assert {note.server_id for note in imported.notes if note.field == "id"} == set(ids.values()) - {
        "my-server",
        "My-Server",
    }


def test_claude_desktop_expands_nothing_and_starts_processes_only() -> None:
    data: dict[str, Any] = {
        "globalShortcut": "Ctrl+Space",
        "mcpServers": {
            "bridge": {
                "command": "npx",
                "args": ["mcp-remote", "https://x.example", "--header", "A:${TOKEN}"],
            },
            "remote": {"url": "https://x.example"},
        },
    }
    imported = read(CLAUDE_DESKTOP, data)
    assert imported.servers["bridge"]["args"][-1] == "A:$${TOKEN}"
    assert "remote" not in imported.servers
    assert CLAUDE_DESKTOP.write is not None
    exported = CLAUDE_DESKTOP.write(imported.servers | {"remote": {"url": "https://x.example"}})
    assert exported.document == {"mcpServers": {"bridge": data["mcpServers"]["bridge"]}}
    assert "left out" in notes_about(exported.notes, "remote")["transport"]


def test_a_disabled_server_is_not_written_where_it_would_be_enabled() -> None:
    assert CLAUDE.write is not None
    exported = CLAUDE.write(
        {"off": {"command": "off", "enabled": False}, "on": {"command": "on", "enabled": True}}
    )
    assert list(exported.document["mcpServers"]) == ["on"]
    assert list(notes_about(exported.notes, "off")) == ["enabled"]
    assert notes_about(exported.notes, "on") == {}


def test_a_builtin_server_is_left_out_with_a_note() -> None:
    assert CLAUDE.write is not None
    exported = CLAUDE.write({"repo": {"builtin": "repo"}, "overlay": {"deny_tools": ["x"]}})
    assert exported.document == {"mcpServers": {}}
    assert notes_about(exported.notes, "repo")
    assert notes_about(exported.notes, "overlay")


def test_claude_files_are_where_claude_looks_for_them() -> None:
    found = [(str(location.path), location.scope) for location in CLAUDE.locations(place())]
    assert found[:2] == [(str(CWD / ".mcp.json"), "project"), (str(CWD.parent / ".mcp.json"), "project")]
    assert found[-1] == (str(HOME / ".claude.json"), "user")
    moved = CLAUDE.locations(place(CLAUDE_CONFIG_DIR="/opt/claude"))
    assert str(moved[-1].path) == "/opt/claude/.claude.json"


@pytest.mark.parametrize(
    ("platform", "env", "path"),
    [
        ("linux", {}, "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/cfg"}, "/cfg/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("darwin", {}, "/home/ada/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {}, "/home/ada/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/Claude/claude_desktop_config.json"),
    ],
)
def test_claude_desktop_is_found_on_every_platform(platform: str, env: dict[str, str], path: str) -> None:
    assert [str(location.path) for location in CLAUDE_DESKTOP.locations(place(platform, **env))] == [path]


@pytest.mark.parametrize(("line", "entry"), [("'unclosed", None), ("  ", {"url": "https://x.example"})])
def test_a_headers_helper_that_is_no_command_is_not_run(line: str, entry: dict[str, Any] | None) -> None:
    servers = {"x": {"type": "http", "url": "https://x.example", "headersHelper": line}}
    assert read(CLAUDE, {"mcpServers": servers}).servers.get("x") == entry


def test_what_a_shell_or_claude_code_would_take_otherwise_is_not_written() -> None:
    assert CLAUDE.write is not None
    exported = CLAUDE.write(
        {
            "x": {
                "url": "https://x.example",
                "headers_helper": ["A=1", "token"],
                "request_timeout_ms": 20,
                "args": 5,
            }
        }
    )
    assert exported.document["mcpServers"] == {}
    exported = CLAUDE.write(
        {"x": {"url": "https://x.example", "headers_helper": ["A=1", "token"], "request_timeout_ms": 20}}
    )
    assert exported.document["mcpServers"] == {"x": {"type": "http", "url": "https://x.example"}}
    assert set(notes_about(exported.notes, "x")) == {"headers_helper", "request_timeout_ms"}


def test_a_malformed_list_of_disabled_servers_disables_none() -> None:
    settings = {"mcpServers": {"x": {"command": "x"}}, "disabledMcpServers": "x"}
    imported = read(CLAUDE, {"projects": {str(CWD): settings}})
    assert imported.servers == {"x": {"command": "x"}}
    assert set(notes_about(imported.notes, None)) == {"disabledMcpServers"}


def test_a_login_with_an_impossible_port_leaves_out_the_server() -> None:
    servers = {"x": {"type": "http", "url": "https://x.example", "oauth": {"callbackPort": 0}}}
    imported = read(CLAUDE, {"mcpServers": servers})
    assert imported.servers == {}
    assert set(notes_about(imported.notes, "x")) == {"oauth.callbackPort"}
