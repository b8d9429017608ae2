"""Every form is sent as a browser without scripts sends it: the fields of the page, with their values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, write
from tests.web.support import Client, Page, dashboard


@dataclass
class Form:
    """A form as a browser has it: where it goes, its fields, and its buttons."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """What each button adds to the fields, by its label."""
    boxes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The boxes and radio buttons that are not ticked yet."""

    def filled(self, button: str, typed: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """What a click sends, after some fields were changed."""
        typed = typed or {}
        assert typed.keys() <= {name for name, _ in self.fields}, self.fields
        sent = [(name, typed.get(name, value)) for name, value in self.fields]
        return [each for each in [*sent, self.buttons[button]] if each[0]]


class _Reader(HTMLParser):
    """Reads the forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        self._text: tuple[str, str, list[str]] | None = None
        """The element whose text is read, its name, and the text."""
        self._value = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Form(given["action"], given.get("method", "get"))
            self.forms.append(self._open)
        elif self._open is None:
            return
        elif tag == "input":
            self._take_input(self._open, given)
        elif tag == "textarea":
            self._text = (tag, given["name"], [])
        elif tag == "button":
            self._text, self._value = (tag, given.get("name", ""), []), given.get("value", "")
        elif tag == "select":
            self._open.fields.append((given["name"], ""))
        elif tag == "option" and ("selected" in given or not self._open.fields[-1][1]):
            self._open.fields[-1] = (self._open.fields[-1][0], given.get("value", ""))

    def _take_input(self, form: Form, given: Mapping[str, str]) -> None:
        each = (given.get("name", ""), given.get("value", "on" if given.get("type") == "checkbox" else ""))
        is_box = given.get("type") in ("checkbox", "radio") and "checked" not in given
        (form.boxes if is_box else form.fields).append(each)

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text[2].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif self._open is not None and self._text is not None and tag == self._text[0]:
            (_, name, parts), self._text = self._text, None
            text = "".join(parts)
            if tag == "textarea":
                self._open.fields.append((name, text.removeprefix("\n")))
            else:
                self._open.buttons[text.strip()] = (name, self._value)


def forms_of(page: Page) -> list[Form]:
    """The forms of a page."""
    reader = _Reader()
    reader.feed(page.text)
    return reader.forms


async def click(
    client: Client,
    page: Page,
    button: str,
    typed: Mapping[str, str] | None = None,
    *,
    ticked: tuple[str, str] | None = None,
    about: str = "",
) -> Page:
    """Press the button of that label, in the form that is about something, and follow where it leads."""
    found = [each for each in forms_of(page) if button in each.buttons and about in str(each.fields)]
    assert found, f"{button}: {page.text}"
    form = found[0]
    sent = form.filled(button, typed)
    if ticked is not None:
        assert ticked in form.boxes, form.boxes
        sent = [each for each in sent if each[0] != ticked[0]] + [ticked]
    where = form.action.removeprefix(client.base)
    if form.method == "get":
        return await client.get(f"{where}?{urlencode(sent)}")
    answer = await client.post(where, sent)
    if answer.status != 303:
        return answer
    return await client.get(answer.headers["location"].removeprefix(client.base))


async def test_what_is_found_at_another_agent_is_taken_over_edited_and_removed(machine: Machine) -> None:
    write(machine.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"time": {"command": "true"}}}))
    async with dashboard(machine, {}) as board, board.visited() as client:
        page = await click(client, await client.get("/import"), "Import the ticked servers")
        assert "Added <code>time</code>" in page.text
        page = await client.get("/servers/time/edit")
        page = await click(client, page, "Save", {"description": "The time."})
        assert "Saved <code>time</code>" in page.text
        written = json.loads(machine.user_file.read_text())["servers"]["time"]
        assert written == {"command": "true", "description": "The time."}
        page = await click(client, page, "Disable")
        assert json.loads(machine.user_file.read_text())["servers"]["time"]["enabled"] is False
        page = await click(client, page, "Enable")
        page = await click(client, await client.get("/servers/time/remove"), "Remove time")
        assert "Removed <code>time</code>" in page.text
        assert json.loads(machine.user_file.read_text())["servers"] == {}


async def test_an_agent_is_connected_and_disconnected(machine: Machine) -> None:
    file = machine.home / ".cursor" / "mcp.json"
    before = '{\n  "mcpServers": {}\n}\n'
    write(file, before)
    async with dashboard(machine, {}) as board, board.visited() as client:
        page = await click(client, await client.get("/agents"), "Install", about="cursor")
        page = await click(client, page, "Write it")
        assert "Restart it, and it has the tools" in page.text
        assert "fairlead" in file.read_text()
        page = await click(client, page, "Remove", about="cursor")
        page = await click(client, page, "Write it")
        assert file.read_text() == before


async def test_a_bundle_and_a_token_for_it_are_made_and_removed(machine: Machine) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = await client.get("/tokens/bundles")
        page = await click(client, page, "Save it", {"name": "work"}, ticked=("server", "x"))
        assert "Saved the bundle <code>work</code>" in page.text
        page = await click(client, page, "Remove", about="work")
        page = await click(client, page, "Remove it")
        assert "Removed the bundle <code>work</code>" in page.text


async def test_tools_of_all_servers_are_reviewed_at_once(machine: Machine, tmp_path: Path) -> None:
    command, *arguments = ScriptedServer(tmp_path / "record", tools=["echo"]).argv
    servers = {"notes": {"command": command, "args": arguments}}
    async with dashboard(machine, servers) as board, board.visited() as client:
        await board.host.list_now("notes")
        page = await client.get("/reviews")
        name = next(name for form in forms_of(page) for name, value in form.boxes if value == "allow")
        page = await click(client, page, "Record the answers", ticked=(name, "allow"))
        assert "Reviewed. <code>notes</code>: 1 allow." in page.text
        assert "No open reviews" in page.text


async def test_every_filter_keeps_what_was_chosen_and_the_theme_stays(machine: Machine) -> None:
    servers = {name: {"command": "true"} for name in ("x", "y")}
    async with dashboard(machine, servers) as board, board.visited() as client:
        seen: set[str] = set()
        for path in ("/servers", "/tools", "/calls", "/logs", "/audit"):
            for form in forms_of(await client.get(path)):
                if form.method != "get":
                    continue
                seen.add(path)
                words = {name: "nothing-like-it" for name, _ in form.fields if name in ("q", "find", "text")}
                page = await client.get(f"{path}?{urlencode({**dict(form.fields), **words})}")
                assert page.status == 200
                assert not words or 'value="nothing-like-it"' in page.text
        assert seen == {"/servers", "/tools", "/calls", "/logs", "/audit"}
        page = await click(client, await client.get("/logs?server=x"), "Dark")
        assert 'data-theme="dark"' in page.text
        page = await click(client, page, "Log out")
        assert page.status == 200
        assert (await client.get("/servers")).status == 303
