"""Codex, opencode, Gemini CLI and Goose."""

from typing import Any

import pytest

from fairlead.config.dialects.codelia import CODELIA
from fairlead.config.dialects.codex import CODEX
from fairlead.config.dialects.gemini import GEMINI
from fairlead.config.dialects.goose import GOOSE
from fairlead.config.dialects.opencode import OPENCODE
from fairlead.config.dialects.syntax import load
from fairlead.errors import ConfigInvalid
from tests.config.dialects.support import CWD, notes_about, place, read

pytestmark = pytest.mark.requirement("NEED-25")


def test_a_codex_file_is_read() -> None:
    text = """
model = "x"
mcp_oauth_callback_port = 9000

[mcp_servers.tides]
command = "tides"
args = ["-v"]
cwd = "/srv"
env_vars = ["TIDE_KEY", { name = "OTHER", source = "remote" }]
startup_timeout_ms = 5000
tool_timeout_sec = 90.5
enabled_tools = ["list"]
disabled_tools = ["erase"]
required = true
supports_parallel_tool_calls = true
default_tools_approval_mode = "prompt"

[mcp_servers.tides.env]
LITERAL = "${NOT_A_REFERENCE}"

[mcp_servers.tides.tools.list]
approval_mode = "approve"

[mcp_servers.charts]
url = "https://charts.example/mcp"
bearer_token_env_var = "CHART_TOKEN"
scopes = ["read", "write"]
oauth_resource = "https://charts.example"
enabled = false
default_tools_approval_mode = "writes"

[mcp_servers.charts.http_headers]
X-Client = "me"

[mcp_servers.charts.env_http_headers]
X-Key = "CHART_KEY"

[mcp_servers.charts.oauth]
client_id = "abc"

[mcp_servers.only-off]
enabled = false
"""
    imported = read(CODEX, load(text, "toml"))
    assert imported.servers == {
        "tides": {
            "command": "tides",
            "args": ["-v"],
            "cwd": "/srv",
            "env": {"TIDE_KEY": "${TIDE_KEY}", "OTHER": "${OTHER}", "LITERAL": "$${NOT_A_REFERENCE}"},
            "startup_timeout_ms": 5000,
            "request_timeout_ms": 90_500,
            "allow_tools": ["list"],
            "deny_tools": ["erase"],
            "required": True,
            "approval": {"default": "ask", "tools": {"list": "allow"}},
        },
        "charts": {
            "url": "https://charts.example/mcp",
            "headers": {"Authorization": "Bearer ${CHART_TOKEN}", "X-Client": "me", "X-Key": "${CHART_KEY}"},
            "oauth": {"scope": "read write", "client_id": "abc"},
            "enabled": False,
            "approval": "ask",
        },
        "only-off": {"enabled": False},
    }
    assert set(notes_about(imported.notes, "tides")) == {"env_vars", "supports_parallel_tool_calls"}
    assert set(notes_about(imported.notes, "charts")) == {"oauth_resource", "default_tools_approval_mode"}
    assert set(notes_about(imported.notes, None)) == {"mcp_oauth_callback_port"}


def test_codex_gets_variables_in_fields_of_their_own_and_notes_for_the_rest() -> None:
    assert CODEX.write is not None
    exported = CODEX.write(
        {
            "tides": {
                "command": "tides",
                "env": {"SAME": "${SAME}", "OTHER": "${SAME}", "PLAIN": "a$${b}", "DEFAULT": "${D:-x}"},
                "allow_tools": ["list", "get_*"],
                "deny_tools": ["*"],
                "approval": {"default": "deny", "tools": {"list": "allow"}},
            },
            "charts": {
                "url": "https://charts.example",
                "headers": {
                    "Authorization": "Bearer ${TOKEN}",
                    "X-Key": "${KEY}",
                    "X-Both": "a ${KEY}",
                    "X-Plain": "plain",
                },
                "approval": {"tools": {"erase": "deny", "get_*": "allow", "list": "allow"}},
                "oauth": False,
            },
            "buoys": {"transport": "sse", "url": "https://buoys.example"},
            "hidden": {"command": "${HOME}/x"},
        }
    )
    assert exported.document["mcp_servers"] == {
        "tides": {
            "command": "tides",
            "env": {"PLAIN": "a${b}"},
            "env_vars": ["SAME"],
            "enabled_tools": ["list"],
        },
        "charts": {
            "url": "https://charts.example",
            "bearer_token_env_var": "TOKEN",
            "env_http_headers": {"X-Key": "KEY"},
            "http_headers": {"X-Plain": "plain"},
            "tools": {"list": {"approval_mode": "approve"}},
        },
    }
    assert set(notes_about(exported.notes, "tides")) == {
        "env.OTHER",
        "env.DEFAULT",
        "allow_tools",
        "deny_tools",
        "approval",
    }
    assert set(notes_about(exported.notes, "charts")) == {
        "headers.X-Both",
        "approval.tools.erase",
        "approval.tools.get_*",
        "oauth",
    }
    assert set(notes_about(exported.notes, "buoys")) == {"transport"}
    assert set(notes_about(exported.notes, "hidden")) == {"command"}


@pytest.mark.parametrize(
    ("dialect", "key", "section"),
    [(CODEX, "enabled_tools", "mcp_servers"), (GEMINI, "includeTools", "mcpServers")],
)
def test_a_list_that_allows_no_tool_denies_them_all(dialect: Any, key: str, section: str) -> None:
    imported = read(
        dialect, {section: {"x": {"command": "x", key: []}, "y": {"command": "y", key: ["get_*"]}}}
    )
    assert imported.servers["x"] == {"command": "x", "deny_tools": ["*"]}
    assert imported.servers["y"] == {"command": "y", "deny_tools": ["*"]}


def test_an_opencode_file_is_read() -> None:
    imported = read(
        OPENCODE,
        {
            "$schema": "https://opencode.ai/config.json",
            "tools": {"tides_*": False, "bash": True},
            "permission": {"charts_erase": "ask"},
            "mcp": {
                "tides": {
                    "type": "local",
                    "command": ["npx", "-y", "tides", "-y"],
                    "environment": {"KEY": "{env:TIDE_KEY}", "CERT": "{file:~/tide.pem}", "X": "${X}"},
                    "cwd": "sub",
                    "timeout": 9000,
                    "enabled": True,
                },
                "charts": {"type": "remote", "url": "https://charts.example", "oauth": False},
                "buoys": {
                    "type": "remote",
                    "url": "https://buoys.example",
                    "oauth": {
                        "clientId": "{env:ID}",
                        "scope": "read",
                        "redirectUri": "http://127.0.0.1:1/cb",
                    },
                },
                "inherited": {"enabled": False},
                "empty": {"type": "local", "command": []},
                "login": {"type": "remote", "url": "https://x.example", "oauth": True},
            },
        },
    )
    assert imported.servers == {
        "tides": {
            "command": "npx",
            "args": ["-y", "tides", "-y"],
            "env": {"KEY": "${TIDE_KEY}", "CERT": "${file:~/tide.pem}", "X": "$${X}"},
            "cwd": "sub",
            "request_timeout_ms": 9000,
            "enabled": True,
        },
        "charts": {"url": "https://charts.example", "oauth": False},
        "buoys": {"url": "https://buoys.example", "oauth": {"client_id": "${ID}", "scope": "read"}},
        "inherited": {"enabled": False},
    }
    assert set(notes_about(imported.notes, "tides")) == {"tools.tides_*"}
    assert set(notes_about(imported.notes, "charts")) == {"permission.charts_erase"}
    assert set(notes_about(imported.notes, "buoys")) == {"oauth.redirectUri"}
    assert set(notes_about(imported.notes, "empty")) == {"command"}
    assert set(notes_about(imported.notes, "login")) == {"oauth"}


def test_the_newer_layout_of_opencode_is_read_too() -> None:
    imported = read(
        OPENCODE,
        {
            "mcp": {
                "timeout": {"request": 1000},
                "servers": {
                    "tides": {
                        "type": "local",
                        "command": ["tides"],
                        "disabled": True,
                        "timeout": {"startup": 1000, "request": 2000},
                    },
                    "charts": {
                        "type": "remote",
                        "url": "https://charts.example",
                        "oauth": {"client_id": "abc", "callback_port": 8123},
                    },
                },
            }
        },
    )
    assert imported.servers == {
        "tides": {
            "command": "tides",
            "enabled": False,
            "startup_timeout_ms": 1000,
            "request_timeout_ms": 2000,
        },
        "charts": {"url": "https://charts.example", "oauth": {"client_id": "abc", "callback_port": 8123}},
    }
    assert set(notes_about(imported.notes, None)) == {"mcp.timeout"}


def test_a_gemini_file_is_read() -> None:
    imported = read(
        GEMINI,
        {
            "security": {},
            "mcp": {"excluded": ["off"], "serverCommand": "x"},
            "mcpServers": {
                "tides": {
                    "command": "tides",
                    "args": ["$HOME/data", "${LEVEL:-low}", "cost $5"],
                    "env": {"KEY": "$TIDE_KEY"},
                    "timeout": 700000,
                    "trust": True,
                    "includeTools": ["list"],
                    "excludeTools": ["erase"],
                    "description": "Tides",
                },
                "charts": {"httpUrl": "https://charts.example/mcp", "url": "https://ignored.example"},
                "buoys": {"url": "https://buoys.example/sse", "type": "sse"},
                "auto": {"url": "https://auto.example", "command": "never"},
                "off": {
                    "url": "https://off.example",
                    "oauth": {
                        "enabled": True,
                        "clientId": "abc",
                        "scopes": ["read"],
                        "issuer": "https://i.example",
                    },
                },
                "socket": {"tcp": "localhost:1"},
            },
        },
    )
    assert imported.servers == {
        "tides": {
            "command": "tides",
            "args": ["${HOME}/data", "${LEVEL:-low}", "cost $5"],
            "env": {"KEY": "${TIDE_KEY}"},
            "request_timeout_ms": 700000,
            "allow_tools": ["list"],
            "deny_tools": ["erase"],
            "description": "Tides",
        },
        "charts": {"url": "https://charts.example/mcp"},
        "buoys": {"transport": "sse", "url": "https://buoys.example/sse"},
        "auto": {"url": "https://auto.example"},
        "off": {
            "url": "https://off.example",
            "oauth": {"client_id": "abc", "scope": "read"},
            "enabled": False,
        },
    }
    remarks = notes_about(imported.notes, "tides")
    assert set(remarks) == {"trust", "request_timeout_ms"}
    assert "approval" in remarks["trust"]
    assert set(notes_about(imported.notes, "charts")) == {"url"}
    assert set(notes_about(imported.notes, "auto")) == {"command"}
    assert set(notes_about(imported.notes, "off")) == {"oauth.issuer"}
    assert set(notes_about(imported.notes, "socket")) == {"tcp", "command"}
    assert set(notes_about(imported.notes, None)) == {"mcp.serverCommand"}


def test_gemini_disables_what_is_not_on_its_list_of_allowed_servers() -> None:
    servers = {"my a": {"command": "a"}, "my b": {"command": "b"}, "odd": 5}
    imported = read(GEMINI, {"mcpServers": servers, "mcp": {"allowed": ["my b"]}})
    assert imported.servers == {"my-a": {"command": "a", "enabled": False}, "my-b": {"command": "b"}}
    imported = read(GEMINI, {"mcpServers": servers, "mcp": {"allowed": "b"}})
    assert set(notes_about(imported.notes, None)) == {"mcp"}


def test_goose_extensions_are_read() -> None:
    text = """
GOOSE_PROVIDER: someone
extensions:
  developer:
    type: builtin
    name: developer
    enabled: true
  script:
    type: inline_python
    code: print()
  tides:
    type: stdio
    name: Tides
    enabled: true
    cmd: tides
    args: [-v, "$LITERAL"]
    envs: {LEVEL: low}
    env_keys: [TIDE_KEY]
    timeout: 300
    bundled: null
    available_tools: []
    description: null
  charts:
    type: streamable_http
    name: charts
    enabled: false
    uri: https://charts.example/${PATH_PART}
    envs: {PATH_PART: mcp}
    env_keys: [CHART_TOKEN]
    headers:
      Authorization: Bearer $CHART_TOKEN
      X-Level: ${ UNKNOWN }
    available_tools: [list]
    description: Charts
"""
    imported = read(GOOSE, load(text, "yaml"))
    assert imported.servers == {
        "tides": {
            "command": "tides",
            "args": ["-v", "$LITERAL"],
            "env": {"LEVEL": "low", "TIDE_KEY": "${TIDE_KEY}"},
            "request_timeout_ms": 300_000,
            "enabled": True,
        },
        "charts": {
            "url": "https://charts.example/mcp",
            "headers": {"Authorization": "Bearer ${CHART_TOKEN}", "X-Level": "$${ UNKNOWN }"},
            "enabled": False,
            "allow_tools": ["list"],
            "description": "Charts",
        },
    }
    assert "not an MCP server" in notes_about(imported.notes, "developer")["type"]
    assert "not an MCP server" in notes_about(imported.notes, "script")["type"]
    assert set(notes_about(imported.notes, "tides")) == {"env_keys.TIDE_KEY"}
    assert set(notes_about(imported.notes, "charts")) == {"env_keys.CHART_TOKEN"}


def test_times_that_cannot_be_set_are_noted() -> None:
    servers: dict[str, Any] = {
        "never": {"command": "x", "timeout": 0},
        "ages": {"command": "x", "timeout": 10**9},
        "text": {"command": "x", "timeout": "30s"},
    }
    imported = read(GEMINI, {"mcpServers": servers})
    assert imported.servers == {
        "never": {"command": "x"},
        "ages": {"command": "x", "request_timeout_ms": 86_400_000},
    }
    assert {note.server_id for note in imported.notes} == {"never", "ages", "text"}


@pytest.mark.parametrize(
    ("dialect", "env", "first", "last"),
    [
        (CODEX, {}, str(CWD / ".codex/config.toml"), "/home/ada/.codex/config.toml"),
        (CODEX, {"CODEX_HOME": "/cx"}, str(CWD / ".codex/config.toml"), "/cx/config.toml"),
        (OPENCODE, {}, str(CWD / ".opencode/opencode.jsonc"), "/home/ada/.config/opencode/opencode.json"),
        (GEMINI, {}, str(CWD / ".gemini/settings.json"), "/home/ada/.gemini/settings.json"),
        (GEMINI, {"GEMINI_CLI_HOME": "/g"}, str(CWD / ".gemini/settings.json"), "/g/.gemini/settings.json"),
        (GOOSE, {}, "/home/ada/.config/goose/config.yaml", "/home/ada/.config/goose/config.yaml"),
        (GOOSE, {"GOOSE_PATH_ROOT": "/g"}, "/g/config/config.yaml", "/g/config/config.yaml"),
    ],
)
def test_the_agents_files_are_where_they_look_for_them(
    dialect: Any, env: dict[str, str], first: str, last: str
) -> None:
    paths = [str(location.path) for location in dialect.locations(place(**env))]
    assert (paths[0], paths[-1]) == (first, last)


def test_goose_on_windows_and_a_named_opencode_file() -> None:
    assert str(GOOSE.locations(place("win32", APPDATA="/r"))[0].path) == "/r/Block/goose/config/config.yaml"
    named = place(OPENCODE_CONFIG="/my.json", OPENCODE_CONFIG_DIR="/oc")
    paths = [str(location.path) for location in OPENCODE.locations(named)]
    assert {"/my.json", "/oc/opencode.jsonc", "/home/ada/.config/opencode/opencode.json"} <= set(paths)


def test_a_name_that_cannot_be_a_variable_is_noted() -> None:
    codex = read(CODEX, {"mcp_servers": {"x": {"command": "x", "env_vars": ["A-B"]}}})
    goose = read(GOOSE, {"extensions": {"x": {"type": "stdio", "cmd": "x", "env_keys": ["A-B"]}}})
    assert codex.servers == goose.servers == {"x": {"command": "x"}}
    assert set(notes_about(codex.notes, "x")) == {"env_vars"}
    assert set(notes_about(goose.notes, "x")) == {"env_keys"}


def test_settings_of_a_codex_tool_that_are_not_known_are_noted() -> None:
    tools = {"list": {"approval_mode": "approve", "colour": "blue"}, "get_*": {"approval_mode": "approve"}}
    imported = read(CODEX, {"mcp_servers": {"x": {"command": "x", "tools": tools}}})
    assert imported.servers == {"x": {"command": "x", "approval": {"tools": {"list": "allow"}}}}
    assert set(notes_about(imported.notes, "x")) == {"tools.list.colour", "tools.get_*"}


def test_a_section_that_is_no_object_is_an_error_wherever_it_is() -> None:
    for data in ({"mcp": 5}, {"mcp": {"servers": 5}}):
        with pytest.raises(ConfigInvalid):
            read(CODELIA, data)


def test_opencode_tries_sse_by_itself() -> None:
    assert OPENCODE.write is not None
    exported = OPENCODE.write({"x": {"transport": "sse", "url": "https://x.example"}})
    assert exported.document == {"mcp": {"x": {"type": "remote", "url": "https://x.example"}}}
    assert set(notes_about(exported.notes, "x")) == {"transport"}


def test_a_malformed_reference_of_ours_is_noted_not_raised() -> None:
    assert GEMINI.write is not None
    exported = GEMINI.write({"x": {"command": "x", "env": {"A": "${", "B": "b"}, "cwd": 5}})
    assert exported.document == {"mcpServers": {"x": {"command": "x", "env": {"B": "b"}}}}
    assert set(notes_about(exported.notes, "x")) == {"env.A", "cwd"}


def test_denied_tools_add_up_and_flags_are_flags() -> None:
    servers: dict[str, Any] = {
        "x": {"command": "x", "disabled_tools": ["erase"], "enabled_tools": []},
        "y": {"command": "y", "enabled": "no"},
    }
    imported = read(CODEX, {"mcp_servers": servers})
    assert imported.servers == {"x": {"command": "x", "deny_tools": ["erase", "*"]}}
    assert set(notes_about(imported.notes, "y")) == {"enabled"}


def test_a_secret_in_the_wrong_place_is_not_repeated_in_a_note() -> None:
    assert CODEX.write is not None
    servers = {
        "x": {"url": "https://x.example", "bearer_token_env_var": "sk-hush", "bearer_token": "sk-hush"}
    }
    notes = read(CODEX, {"mcp_servers": servers}).notes
    notes += CODEX.write({"x": {"command": "x", "env": {"A": "${B:-sk-hush}", "C": "sk-hush${D}"}}}).notes
    assert len(notes) == 4
    assert not any("hush" in note.message for note in notes)
