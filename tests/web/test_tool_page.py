"""A tool's page: its schema and cost, and a form that calls it as its visitor."""

import base64
import html
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest

from fairlead.testing import ScriptedServer
from fairlead.web import page_request
from tests.conftest import Machine
from tests.fixtures import canned_stdio
from tests.host.test_quarantine import ChangingServer
from tests.web.support import Client, Page, dashboard
from tests.web.test_pages import EVIL, HIDDEN, Markup

ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {
        "type": "object",
        "required": ["what"],
        "properties": {
            "what": {"type": "string", "description": "What to say."},
            "often": {"type": "integer", "default": 2},
            "loud": {"type": "boolean"},
        },
    },
}
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 60).decode()


def path_of(tool: str, **more: str) -> str:
    return "/tool?" + urlencode({"server": "x", "name": tool, **more})


async def try_it(client: Client, tool: str, **fields: str) -> Page:
    """Send the form of a tool's page, and open the page that it leads to."""
    sent = await client.send(path_of(tool), "/tool", server="x", name=tool, **fields)
    if sent.status != 303:
        return sent
    return await client.get(sent.headers["location"].removeprefix(client.base))


def answers(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The entry of a server whose one tool returns this."""
    script: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [*content], **more},
    }
    return {
        "command": sys.executable,
        "args": [canned_stdio.__file__, json.dumps(script)],
        "allow_tools": ["*"],
    }


async def test_the_page_shows_schema_and_cost_and_a_form_with_defaults(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        await board.host.connect("x")
        listed = await client.get("/tools")
        assert html.escape(f"{client.base}{path_of('echo')}") in listed.text
        page = await client.get(path_of("echo"))
        assert re.search(r"about \d+ tokens", page.text)
        for shown in (
            "Say it again.",
            "What to say.",
            "(required)",
            'name="arg/what"',
            'value="2"',
            "integer",
        ):
            assert shown in page.text
        missing = await client.get(path_of("nothing"))
        assert missing.status == 409
        assert "offers no tool" in missing.text


@pytest.mark.requirement("NEED-32")
async def test_a_call_from_the_form_shows_result_frames_and_duration(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"x": server.entry(approval="ask")}) as board, board.visited() as client:
        await board.host.connect("x")
        fields = {"do": "form", "arg/what": "Grüezi <b>", "arg/often": "3"}
        page = await try_it(client, "echo", **fields)
        text = html.unescape(page.text)
        assert "It answered in" in text
        assert "Grüezi <b>" in text
        assert '"method": "tools/call"' in text
        assert '"what": "Grüezi <b>"' in text
        assert '"often": 3' in text
        assert "received: " in text
        assert not board.queue.pending(), "what a person types is that person's yes"
        assert "Grüezi &lt;b&gt;</textarea>" in page.text, "the form has what was typed"
        calls = (await client.sees("/calls", "x.echo")).text
        assert "ok" in calls


@pytest.mark.parametrize(("approval", "calls"), [("deny", 0), ("ask", 1)])
async def test_what_the_gateway_denies_stays_denied_on_the_page_of_a_tool(
    machine: Machine, tmp_path: Path, approval: str, calls: int
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[ECHO])
    entry, gateway = server.entry(allow_tools=["*"]), {"approval": approval}
    async with dashboard(machine, {"x": entry}, gateway=gateway) as board, board.visited() as client:
        await board.host.connect("x")
        page = await try_it(client, "echo", **{"do": "json", "all-arguments": '{"what": "it"}'})
        assert ("may not be called" in page.text) is (calls == 0)
        assert server.calls("echo") == calls


async def test_what_is_wrong_in_the_form_is_said_at_its_input_and_nothing_is_called(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[ECHO])
    async with dashboard(machine, {"x": server.entry(allow_tools=["*"])}) as board, board.visited() as client:
        await board.host.connect("x")
        page = await try_it(client, "echo", **{"do": "form", "arg/often": "many"})
        assert page.status == 422
        assert "it is required" in page.text
        assert 'value="many"' in page.text
        page = await try_it(client, "echo", **{"do": "json", "all-arguments": "[1"})
        assert page.status == 422
        assert "this is not JSON" in page.text
        assert "[1</textarea>" in page.text
        page = await try_it(client, "echo", **{"do": "json", "all-arguments": '{"what": "by JSON"}'})
        assert "by JSON" in page.text
        assert "It answered in" in page.text


async def test_a_denied_tool_stays_denied_and_the_page_says_why(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with (
        dashboard(machine, {"x": server.entry(deny_tools=["echo"])}) as board,
        board.visited() as client,
    ):
        await board.host.connect("x")
        page = await try_it(client, "echo", **{"do": "form", "arg/what": "a"})
        assert "The call failed" in page.text
        assert "deny_tools" in page.text
        assert "Nothing was sent." in page.text


async def test_errors_of_the_tool_and_of_the_server_are_shown(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, "fail", "refuse", "crash")
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        await board.host.connect("x")
        page = await try_it(client, "fail", do="json")
        assert "The tool returned an error" in page.text
        assert "it failed" in page.text
        page = await try_it(client, "refuse", do="json")
        assert "The call failed" in page.text
        assert "-32602" in html.unescape(page.text), "the frame with the error is there"
        page = await try_it(client, "crash", do="json")
        assert "The call failed" in page.text


async def test_a_call_that_lasts_is_shown_and_can_be_cancelled(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wait"])
    async with dashboard(machine, {"x": server.entry(allow_tools=["*"])}) as board, board.visited() as client:
        await board.host.connect("x")
        page = await try_it(client, "wait", do="json")
        assert "Under way" in page.text
        call = page.hidden("call")
        sent = await client.send("/", "/tool", server="x", name="wait", call=call, do="cancel")
        assert sent.status == 303
        await client.sees(path_of("wait", call=call), "The call cancelled after")
        again = await client.send("/", "/tool", server="x", name="wait", call=call, do="cancel")
        assert again.status == 409
        while "notifications/cancelled" not in server.notes("received"):  # noqa: ASYNC110 - the server is told, too
            await anyio.sleep(0.01)


@pytest.mark.requirement("HARD-41", "HARD-54")
async def test_whatever_a_result_holds_is_text_and_nothing_of_it_is_loaded(machine: Machine) -> None:
    rows = [{"name": EVIL, "size": 1}, {"name": "b", "size": None}]
    entry = answers(
        {"type": "text", "text": f"{EVIL}{HIDDEN}"},
        {"type": "text", "text": json.dumps({"deep": {"list": [1, "two", EVIL]}})},
        {"type": "image", "mimeType": "image/png", "data": PIXEL},
        {"type": "image", "mimeType": "image/svg+xml", "data": PIXEL},
        {"type": "image", "mimeType": 'image/png"><script>', "data": '"><script>'},
        {"type": "resource_link", "uri": "https://example.com/a", "name": EVIL},
        {"type": "resource_link", "uri": "javascript:alert(1)", "name": "x"},
        {"type": "audio", "mimeType": "audio/wav", "data": PIXEL},
        {"type": "other", EVIL: EVIL},
        structuredContent={"rows": rows},
    )
    async with dashboard(machine, {"x": entry}) as board, board.visited() as client:
        await board.host.connect("x")
        page = await try_it(client, "say", do="json")
        assert "It answered in" in page.text
        markup = Markup(page.text)
        assert markup.scripts == ["/static/live.js"]
        assert not markup.handlers
        assert markup.images == 1
        assert f'src="data:image/png;base64,{PIXEL}"' in page.text
        assert 'href="javascript' not in page.text
        assert 'href="https://example.com/a"' in page.text
        assert re.search('<th[^>]*scope="col"[^>]*>size</th>', page.text), "alike objects are a table"
        assert not set(HIDDEN[:3]) & set(page.text)
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]


async def test_a_call_is_shown_to_the_principal_who_made_it_alone(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        await board.host.connect("x")
        token = board.tokens.add("admin", scopes=("admin",))
        sent = await client.send(
            path_of("echo"), "/tool", server="x", name="echo", **{"do": "form", "arg/what": "m"}
        )
        call_path = sent.headers["location"].removeprefix(client.base)
        assert "It answered in" in (await client.get(call_path)).text
        async with board.visited(logged_in=False) as other:
            assert (await other.log_in(token)).status == 303
            assert "It answered in" not in (await other.get(call_path)).text


async def test_large_arguments_are_sent_and_those_that_are_too_large_are_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(machine.home / "record", tools=[ECHO])
    large = "äb" * 100_000
    async with dashboard(machine, {"x": server.entry(approval="allow")}) as board, board.visited() as client:
        await board.host.connect("x")
        fields = {
            "server": "x",
            "name": "echo",
            "do": "json",
            "arguments": json.dumps({"what": large}, ensure_ascii=False),
        }
        page = await client.get(path_of("echo"))
        name = re.search(r'<textarea[^>]*name="([^"]+)"', page.text)
        fields[name[1] if name else "arguments"] = fields.pop("arguments")
        sent = await client.send(path_of("echo"), "/tool", **fields)
        assert sent.status == 303, sent.text[:500]
        await client.sees(sent.headers["location"].removeprefix(client.base), large[:1000])
        monkeypatch.setattr(page_request, "MAX_ARGUMENTS_FORM_BYTES", 10_000)
        refused = await client.send(path_of("echo"), "/tool", **fields)
        assert refused.status == 413
        assert "That did not work" in refused.text
        assert "this form has more than 9 KiB" in refused.text
        assert "go back: the browser has what you typed" in refused.text
    async with dashboard(machine, {}) as board, board.visited(logged_in=False) as client:
        refused = await client.send("/login", "/login", secret="x" * 70_000)
        assert refused.status == 413


async def test_malformed_tools_are_named_on_the_servers_page_with_the_command_that_names_all(
    machine: Machine,
) -> None:
    bad = [{"name": f"bad{number}", "inputSchema": "none"} for number in range(7)]
    server = ScriptedServer(machine.home / "record", tools=[ECHO, *bad])
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        await board.host.connect("x")
        page = (await client.get("/servers/x")).text
        assert "7 malformed tools repaired: <code>bad0</code> (inputSchema is not an object" in page
        assert "<code>bad4</code>" in page
        assert "bad6" not in page.partition("7 malformed")[2].partition("</li>")[0]
        assert "and 2 more: <code>fairlead lint x</code>" in page
        listed = (await client.get("/servers")).text
        assert "7 malformed tools repaired" in listed
