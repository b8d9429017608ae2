"""Servers behind `mcp-remote`."""

from typing import Any

import pytest

from fairlead.config.dialects.mcp_remote import native_remote

pytestmark = pytest.mark.requirement("NEED-25")

URL = "https://charts.example/mcp"


def entry(*args: str, command: str = "npx", **rest: Any) -> dict[str, Any]:
    return {"command": command, "args": list(args), **rest}


@pytest.mark.parametrize(
    "bridged",
    [
        entry("mcp-remote", URL),
        entry("-y", "mcp-remote@latest", URL),
        entry("--yes", "mcp-remote@0.1.2", URL, "--allow-http", "--debug", "--silent"),
        entry("mcp-remote", URL, command="/usr/local/bin/npx"),
        entry("mcp-remote", URL, command="C:\\nodejs\\npx.cmd"),
        entry("mcp-remote", URL, command="bunx"),
        entry("dlx", "mcp-remote", URL, command="pnpm"),
        entry("/c", "npx", "-y", "mcp-remote", URL, command="cmd"),
        entry("/C", "npx", "mcp-remote", URL, command="C:\\Windows\\System32\\cmd.exe"),
        entry("mcp-remote", URL, "--transport", "http-only", "--auth-timeout", "60"),
        entry("mcp-remote", URL, "--transport", "sse-first", "--host", "localhost"),
        entry("mcp-remote", URL, cwd="/tmp", env={"PATH": "/usr/bin"}),
    ],
)
def test_every_way_to_start_the_bridge_is_recognised(bridged: dict[str, Any]) -> None:
    assert native_remote(bridged) == {"url": URL}


def test_what_the_bridge_is_told_is_told_to_us() -> None:
    bridged = entry(
        "mcp-remote",
        URL,
        "9696",
        "--transport",
        "sse-only",
        "--ignore-tool",
        "erase*",
        "--static-oauth-client-info",
        '{"client_id": "abc", "client_secret": "${SECRET}"}',
        "--static-oauth-client-metadata",
        '{"scope": "read write"}',
        enabled=False,
        deny_tools=["drop"],
    )
    assert native_remote(bridged) == {
        "transport": "sse",
        "url": URL,
        "oauth": {
            "client_id": "abc",
            "client_secret": "${SECRET}",
            "scope": "read write",
            "callback_port": 9696,
        },
        "enabled": False,
        "deny_tools": ["drop", "erase*"],
    }


@pytest.mark.parametrize(
    ("header", "env", "value"),
    [
        ("Authorization: Bearer ${TOKEN}", {}, "Bearer ${TOKEN}"),
        ("Authorization: Bearer $${TOKEN}", {}, "Bearer ${TOKEN}"),
        ("Authorization: Bearer ${TOKEN}", {"TOKEN": "${CHART_TOKEN}"}, "Bearer ${CHART_TOKEN}"),
        ("Authorization:$${AUTH}", {"AUTH": "Bearer ${keyring:charts/me}"}, "Bearer ${keyring:charts/me}"),
        ("Authorization:$${AUTH}", {"AUTH": "Bearer abc"}, "Bearer abc"),
        ("Authorization: ${file:/run/token}", {}, "${file:/run/token}"),
        ("Authorization:plain", {}, "plain"),
    ],
)
def test_variables_of_the_bridge_stay_references(header: str, env: dict[str, str], value: str) -> None:
    native = native_remote(entry("mcp-remote", URL, "--header", header, env=env))
    assert native == {"url": URL, "headers": {"Authorization": value}}


@pytest.mark.parametrize(
    "other",
    [
        {"url": URL},
        entry("-y", "some-server", URL),
        entry("mcp-remote", URL, command="node"),
        entry("mcp-remote", URL, command="pnpm"),
        entry(command="cmd"),
        entry("/c", command="cmd"),
        entry("mcp-remote"),
        entry("mcp-remote", "not-a-url"),
        entry("mcp-remote", URL, "not-a-port"),
        entry("mcp-remote", URL, "1", "2"),
        entry("mcp-remote", URL, "--resource", "https://other.example"),
        entry("mcp-remote", URL, "--host", "192.0.2.1"),
        entry("mcp-remote", URL, "--transport", "pigeon"),
        entry("mcp-remote", URL, "--header"),
        entry("mcp-remote", URL, "--header", "no colon"),
        entry("mcp-remote", URL, "--header", "A: $$$${B}x${", env={}),
        entry("mcp-remote", URL, "--ignore-tool", "x?"),
        entry("mcp-remote", URL, "--static-oauth-client-info", "@/tmp/info.json"),
        entry("mcp-remote", URL, "--static-oauth-client-info", "[]"),
        entry("mcp-remote", URL, "--static-oauth-client-info", '{"redirect_uris": []}'),
        entry("mcp-remote", URL, env={"NODE_EXTRA_CA_CERTS": "/ca.pem"}),
        entry("mcp-remote", URL, "--enable-proxy"),
    ],
)
def test_what_cannot_be_said_without_the_bridge_stays_behind_it(other: dict[str, Any]) -> None:
    assert native_remote(other) is None
