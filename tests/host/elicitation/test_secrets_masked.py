"""No secret in what servers ask, in what the SDK logs of them, or in the causes of errors."""

import logging
import sys
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest

from fairlead.errors import FairleadError
from fairlead.host.elicitation.form_schema import FormRefused, read_form
from fairlead.host.elicitation.forms import Form
from tests.conftest import Machine
from tests.host import support
from tests.host.asking import AskingServer, Everybody, answer_of, form, hosting, page
from tests.host.test_stored_secrets import FORMS, SECRET, forget, secrets_in

pytestmark = pytest.mark.requirement("HARD-62")

LEAKED = {"env": {"LEAKED": "${LEAKED}"}}


@pytest.fixture(autouse=True)
def leaked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET


async def test_a_page_whose_url_holds_a_secret_is_not_opened(machine: Machine, tmp_path: Path) -> None:
    person, server = Everybody(), AskingServer(tmp_path / "record")
    encoded = SECRET.encode().hex()
    urls = [
        f"https://example.com/{quote(SECRET, safe='')}",
        f"https://example.com/?q={quote(quote(SECRET, safe=''), safe='')}",
        f"https://example.com/#{SECRET}",
        *(f"https://example.com/{FORMS[name]}" for name in ("base64", "base64 at an offset", "capital hex")),
        f"https://{encoded}.example.com/",
    ]
    async with hosting(machine, person.operator(), x=server.entry(**LEAKED)) as host:
        for url in urls:
            answered = await answer_of(host, page(url))
            assert "holds a secret" in answered["message"], url
        assert person.urls == []
        assert person.opened == []
        await answer_of(host, page(elicitation_id=f"id-{SECRET}"))
        (question,) = person.urls
        assert secrets_in(repr(question)) == []


async def test_the_form_that_an_operator_gets_holds_no_secret(machine: Machine, tmp_path: Path) -> None:
    person, server = Everybody(), AskingServer(tmp_path / "record")
    async with hosting(machine, person.operator(), x=server.entry(**LEAKED)) as host:
        for said in FORMS.values():
            name = {"type": "string", "title": said, "description": said, "default": said}
            await answer_of(host, form(said, {"type": "object", "properties": {"name": name}}))
        assert len(person.forms) == len(FORMS)
        assert secrets_in("\n".join(map(repr, person.forms))) == []
        chosen = {"type": "string", "enum": ["a", SECRET]}
        for properties in ({"name": chosen}, {SECRET: {"type": "string"}}):
            answered = await answer_of(host, form("?", {"type": "object", "properties": properties}))
            assert "not shown" in answered["message"]
        assert len(person.forms) == len(FORMS)


def test_a_default_that_hides_something_is_not_offered() -> None:
    for default in ("Ki\u200bel", "\x1b[31mKiel", "Kiel\u202e"):
        found = read_form({"type": "object", "properties": {"a": {"type": "string", "default": default}}})
        assert isinstance(found, Form)
        assert found.fields[0].default is None
    assert not isinstance(read_form({"type": "object", "properties": {}}), FormRefused)


PROGRAM = """
import json, os, sys
SECRET, MODE = os.environ["LEAKED"], sys.argv[1]
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    if method == "server/discover":
        send(id=number, error={"code": -32022 if MODE == "modern" else -32601, "message": SECRET,
                               "data": {"supported": ["1999-" + SECRET], "requested": "x"}})
    elif method == "initialize":
        version = {"version": "9999-" + SECRET, "shape": {"x": SECRET}}.get(MODE, "2025-11-25")
        info = {"name": "s", "version": "1"}
        can = {"tools": {}}
        send(id=number, result={"protocolVersion": version, "capabilities": can, "serverInfo": info})
    elif method == "tools/list":
        send(id=number, result={"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        for name, params in [
            ("cancelled", {"requestId": {"x": SECRET}}), ("cancelled", {"requestId": 1, "reason": [SECRET]}),
            ("cancelled", {"requestId": True, "reason": SECRET}), ("cancelled", {"requestId": [SECRET]}),
            ("message", {"level": [SECRET], "data": SECRET, "logger": {"x": SECRET}}),
            ("progress", {"progressToken": {"x": SECRET}, "progress": SECRET}),
            ("resources/updated", {"uri": [SECRET]}), ("elicitation/complete", {"elicitationId": [SECRET]}),
            ("tools/list_changed", {"_meta": SECRET}), ("tools/list_changed", {"x": {"y": [SECRET]}}),
            ("prompts/list_changed", {"_meta": {"progressToken": [SECRET]}}),
            ("tasks/status", {"taskId": [SECRET], "status": SECRET}), ("unknown/" + SECRET, {"a": SECRET}),
            ("subscriptions/acknowledged", {"notifications": SECRET}),
        ]:
            send(method="notifications/" + name, params=params)
        if MODE == "error":
            send(id=number, error={"code": -1, "message": SECRET, "data": {"a": SECRET}})
        else:
            send(id=number, result={"content": SECRET if MODE == "content" else []})
"""


def saying(tmp_path: Path, mode: str) -> dict[str, object]:
    program = tmp_path / "saying.py"
    program.write_text(PROGRAM)
    return {"command": sys.executable, "args": ["-I", "-S", str(program), mode], "trust": "trusted", **LEAKED}


@pytest.mark.parametrize("mode", ["modern", "version", "shape", "error"])
async def test_no_exception_in_the_chain_of_an_error_holds_a_secret(
    machine: Machine, tmp_path: Path, mode: str
) -> None:
    async with support.hosting(machine, s=saying(tmp_path, mode)) as host:
        with pytest.raises(FairleadError) as raised:
            await host.call("s", "t", {})
    assert secrets_in("".join(traceback.format_exception(raised.value))) == []


async def test_what_the_sdk_logs_of_odd_notifications_holds_no_secret(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with support.hosting(machine, s=saying(tmp_path, "notify")) as host:
        await host.call("s", "t", {})
        await host.call("s", "t", {})
    assert secrets_in(caplog.text) == []
    assert "Failed to validate notification: notifications/cancelled" not in caplog.text
