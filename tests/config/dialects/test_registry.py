"""Finding formats by name, by shape and by file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.dialects.registry import ALL, by_name, detect, find
from fairlead.config.paths import MachinePaths
from fairlead.errors import ConfigError
from tests.config.dialects.support import WRITERS, place

pytestmark = pytest.mark.requirement("NEED-25")


def test_names_are_unique_and_every_format_says_where_its_files_are() -> None:
    assert len({dialect.name for dialect in ALL}) == len(ALL)
    for dialect in ALL:
        locations = dialect.locations(place())
        assert locations
        assert len({location.path for location in locations}) == len(locations)


def test_a_format_is_found_by_name() -> None:
    assert all(by_name(dialect.name) is dialect for dialect in ALL)


@pytest.mark.parametrize(
    ("name", "hint"), [("cursr", "`cursor`"), ("Claude", "`claude`"), ("qqq", "there are ")]
)
def test_an_unknown_name_suggests_a_known_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        by_name(name)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("claude", {"mcpServers": {"x": {"command": "x"}}}),
        ("claude", {"mcpServers": {}, "projects": {}}),
        ("claude", {"mcpServers": {"x": {"type": "http", "headersHelper": "./x"}}}),
        ("claude-desktop", {"mcpServers": {"x": {"command": "x"}}, "globalShortcut": ""}),
        ("cursor", {"mcpServers": {"x": {"command": "x", "envFile": ".env"}}}),
        ("cursor", {"mcpServers": {"x": {"command": "x", "env": {"A": "${env:A}"}}}}),
        ("windsurf", {"mcpServers": {"x": {"serverUrl": "https://x.example"}}}),
        ("cline", {"mcpServers": {"x": {"command": "x", "autoApprove": []}}}),
        ("cline", {"mcpServers": {"x": {"type": "streamableHttp", "url": "https://x.example"}}}),
        ("gemini", {"mcpServers": {"x": {"httpUrl": "https://x.example"}}}),
        ("gemini", {"mcpServers": {"x": {"command": "x"}}, "mcp": {"excluded": ["x"]}}),
        ("vscode", {"servers": {"x": {"type": "stdio", "command": "x"}}}),
        ("vscode", {"servers": {}, "inputs": []}),
        ("toolloop", {"servers": {"x": {"transport": {"type": "stdio", "command": "x"}}}}),
        ("toolloop", {"bundles": {"x": {"serverId": "x"}}}),
        ("codelia", {"mcp": {"servers": {"x": {"transport": "http", "url": "https://x.example"}}}}),
        ("opencode", {"mcp": {"x": {"type": "local", "command": ["x"]}}}),
        ("opencode", {"mcp": {"servers": {"x": {"type": "remote", "url": "https://x.example"}}}}),
        ("codex", {"mcp_servers": {}}),
        ("zed", {"context_servers": {}}),
        ("goose", {"extensions": {"x": {"type": "stdio", "cmd": "x"}}}),
        (None, {}),
        (None, {"servers": {}}),
        (None, {"mcpServers": []}),
        (None, {"mcp": "x", "servers": ["x"], "extensions": 5}),
    ],
)
def test_a_document_is_recognised_by_its_shape(name: str | None, data: dict[str, Any]) -> None:
    found = detect(data)
    assert (found.name if found else None) == name


@pytest.mark.parametrize("dialect", WRITERS, ids=lambda dialect: dialect.name)
def test_what_a_format_writes_can_be_read_by_the_format_it_looks_like(dialect: Any) -> None:
    entry = {"command": "x", "args": ["-v"], "env": {"A": "b"}}
    looks_like = detect(dialect.write({"x": entry}).document)
    assert looks_like is not None
    servers = looks_like.read(dialect.write({"x": entry}).document, place()).servers
    assert servers["x"].items() >= entry.items()


def test_files_that_exist_are_found(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    wanted = {
        ("claude", project / ".mcp.json"),
        ("claude", home / ".claude.json"),
        ("cursor", project / ".cursor/mcp.json"),
        ("goose", home / ".config/goose/config.yaml"),
    }
    for _, path in wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = find(MachinePaths(home=home, cwd=project, env={}, platform="linux"))
    assert {(dialect.name, location.path) for dialect, location in found} == wanted


def test_a_folder_that_cannot_be_searched_holds_nothing(tmp_path: Path) -> None:
    endless = tmp_path / ("x" * 300)  # longer than a name may be
    assert find(MachinePaths(home=endless, cwd=endless, env={}, platform="linux")) == []


def test_knowing_the_formats_costs_no_parser_and_no_network() -> None:
    unwanted = {"tomlkit", "ruamel", "pydantic", "anyio", "mcp", "aiohttp", "keyring"}
    script = (
        "import sys, fairlead.config.dialects.registry, fairlead.config.dialects.syntax;"
        f"print(*sorted({unwanted} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == ""
