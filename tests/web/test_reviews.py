"""The tools of all servers are reviewed on one page, the risky ones first."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Machine
from tests.host.test_quarantine import ChangingServer
from tests.web.support import dashboard


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


@pytest.mark.requirement("HARD-40", "NEED-32")
async def test_tools_of_several_servers_are_answered_together_risky_first(
    machine: Machine, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    one = ChangingServer(folders[0], tool("read"), tool("list"))
    two = ChangingServer(folders[1], tool("wipe", annotations={"destructiveHint": True}), tool("look"))
    entries = {
        name: {key: value for key, value in server.entry().items() if key in ("command", "args")}
        for name, server in {"one": one, "two": two}.items()
    }
    async with dashboard(machine, entries) as board, board.visited() as client:
        await board.host.connect("one", "two")
        page = await client.get("/reviews")
        names = re.findall(r"<code>(\w+)</code>", page.text)
        assert names[0] == "wipe"
        assert set(names) == {"wipe", "read", "list", "look"}
        inputs = re.findall(r'<article.*?<code>(\w+)</code>.*?name="(answer:[^"]+)"', page.text, re.DOTALL)
        fields = dict(inputs)
        answers = {fields["wipe"]: "deny", fields["read"]: "allow", fields["look"]: "ask", fields["list"]: ""}
        sent = await client.post("/reviews", {"form_token": page.form_token, **answers})
        assert sent.status == 303
        servers = json.loads(machine.user_file.read_text())["servers"]
        assert servers["one"]["allow_tools"] == ["read"]
        assert servers["one"]["approval"] == {"tools": {"read": "allow"}}
        assert servers["two"]["deny_tools"] == ["wipe"]
        assert servers["two"]["approval"] == {"tools": {"look": "ask"}}
        page = await client.sees("/reviews", "Reviewed.")
        assert "<code>read</code>" not in page.text
        assert "<code>list</code>" in page.text, "what was put off is still there"
        nothing = await client.post("/reviews", {"form_token": page.form_token})
        assert nothing.status == 409


async def test_answers_to_what_changed_meanwhile_are_not_recorded(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, tool("read"))
    entry = {key: value for key, value in server.entry().items() if key in ("command", "args")}
    async with dashboard(machine, {"one": entry}) as board, board.visited() as client:
        await board.host.connect("one")
        page = await client.get("/reviews")
        sent = await client.post("/reviews", {"form_token": page.form_token, "answer:one:0000": "allow"})
        assert sent.status == 303
        assert "was not decided" in (await client.get("/reviews")).text
        assert "allow_tools" not in machine.user_file.read_text()


async def test_many_tools_are_reviewed_page_by_page_and_only_what_was_shown_is_answered(
    machine: Machine, tmp_path: Path
) -> None:
    plain = [tool(f"look_{number:03}") for number in range(149)]
    server = ChangingServer(tmp_path, *plain, tool("wipe", annotations={"destructiveHint": True}))
    entry = {key: value for key, value in server.entry().items() if key in ("command", "args")}

    def shown(text: str) -> dict[str, str]:
        return dict(re.findall(r'<article.*?<code>(\w+)</code>.*?name="(answer:[^"]+)"', text, re.DOTALL))

    async with dashboard(machine, {"one": entry}) as board, board.visited() as client:
        await board.host.connect("one")
        first = await client.get("/reviews")
        assert "150 tools of 1 server to decide about, 150 held back" in first.text
        assert [*shown(first.text)] == ["wipe", *(f"look_{number:03}" for number in range(49))]
        assert " 1 to 50 of 150 " in first.text
        second = await client.get("/reviews?start=100")
        assert [*shown(second.text)] == [f"look_{number:03}" for number in range(99, 149)]
        action = re.findall(r'action="[^"]*(/reviews[^"]*)"', second.text)
        assert action == ["/reviews?start=100"]
        answers = dict.fromkeys(shown(second.text).values(), "ask")
        sent = await client.post(action[0], {"form_token": second.form_token, **answers})
        assert sent.status == 303
        assert sent.headers["location"].endswith("/reviews?start=100")
        allowed = json.loads(machine.user_file.read_text())["servers"]["one"]["allow_tools"]
        assert allowed == [f"look_{number:03}" for number in range(99, 149)]
        rest = await client.sees("/reviews?start=100", "100 tools of 1 server to decide about")
        assert [*shown(rest.text)] == [f"look_{number:03}" for number in range(49, 99)], (
            "beyond is the last page"
        )
        preselected = await client.get("/reviews?preselect=yes")
        assert preselected.text.count(" checked") == 50


async def test_servers_are_found_by_words_and_state_and_failures_come_first(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, tool("read"))
    entries = {
        "fine": server.entry(),
        "broken": {"command": "no-such-program"},
        "off": {"command": "true", "enabled": False},
    }
    async with dashboard(machine, entries) as board, board.visited() as client:
        await board.host.connect("fine", "broken")
        path = "/servers" if (await client.get("/servers")).status == 200 else "/"

        async def order(query: str) -> list[str]:
            return re.findall(r'id="server-(\w+)"', (await client.get(path + query)).text)

        assert await order("") == ["broken", "fine", "off"]
        assert await order("?sort=name") == ["broken", "fine", "off"]
        assert await order("?sort=tokens") == ["fine", "broken", "off"]
        assert await order("?state=ready") == ["fine"]
        assert await order("?q=no-such") == ["broken"]
        assert await order("?q=nothing") == []
        tools = (await client.get("/tools?sort=tokens")).text
        assert 'value="tokens" selected' in tools


@pytest.mark.requirement("HARD-40")
async def test_a_thousand_tools_are_shown_and_answered_in_one_go(machine: Machine, tmp_path: Path) -> None:
    plain = [tool(f"look_{number:04}") for number in range(1000)]
    server = ChangingServer(tmp_path, *plain)
    entry = {key: value for key, value in server.entry().items() if key in ("command", "args")}
    async with dashboard(machine, {"one": entry}) as board, board.visited() as client:
        await board.host.connect("one")
        page = await client.get("/servers/one/review")
        assert re.findall(r"<h3><code>(\w+)</code>", page.text) == [each["name"] for each in plain]
        form = re.search(r'name="digest" value="(\w+)">(?:(?!<form).)*value="ask-all"', page.text, re.DOTALL)
        assert form is not None
        server.say(*plain, tool("late"))
        await board.host.close("one")
        await board.host.connect("one")
        stale = await client.send("/", "/servers/one/review", verdict="allow-all", digest=form[1])
        assert stale.status == 409, "one of them was not shown"
        assert "allow_tools" not in machine.user_file.read_text()
        page = await client.sees("/servers/one/review", "<code>late</code>")
        form = re.search(r'name="digest" value="(\w+)">(?:(?!<form).)*value="ask-all"', page.text, re.DOTALL)
        assert form is not None
        sent = await client.send("/", "/servers/one/review", verdict="ask-all", digest=form[1])
        assert sent.status == 303
        written = json.loads(machine.user_file.read_text())["servers"]["one"]
        assert len(written["allow_tools"]) == 1001
        assert set(written["approval"]["tools"].values()) == {"ask"}
        page = await client.get("/servers/one/review")
        assert page.text.count("<h3><code>") == 1001, "what is settled can be looked at, too"
