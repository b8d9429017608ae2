"""A hostile server at the console: its words steer no terminal, show no secret and hold up nothing."""

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from fairlead.catalog.sanitize.text import clean
from fairlead.console.app import toolbar
from fairlead.console.completion import LineCompleter
from fairlead.console.lines import RunningLine, RunningWork, fetch_suggestions, suggestions
from fairlead.console.typed_words import MOST_SUGGESTED
from fairlead.events import McpToolCallBegin, McpToolCallProgress
from fairlead.testing.watchdog import watch_loop
from tests.conftest import Machine
from tests.console.support import Shown, session_on, session_with
from tests.host.asking import AskingServer
from tests.host.support import unasked
from tests.host.test_hidden_text import server

SECRET = "sk-CONSOLE-abc123XYZ789qq"
EVIL = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "one-byte escapes": "\x9b31m\x9d0;owned\x9c",
    "clear": "\x1bc\x1b[2J\x1b[H",
    "lines": "one\r\ntwo\x0bthree\x0cfour\x85five\u2028six",
    "back": "\b\b\b\x7f",
    "bidi": "\u202egnp.exe\u2066",
    "invisible": "a\u200bb\ufeff\u00ad\U000e0041",
    "variation": "x\ufe00\U000e0100",
    "surrogate": "\ud83d",
}


def steers(shown: str) -> list[str]:
    """What of a text a terminal would obey, or people would not see."""
    return [line for line in shown.split("\n") if clean(line) != line or "\x1b" in line]


def completions(console: Shown, line: str) -> list[Any]:
    async def nothing(_: str) -> Iterable[Any]:
        return ()

    completer = LineCompleter(lambda text: suggestions(console.session, text), nothing)
    return [*completer.get_completions(Document(line), CompleteEvent())]


async def asked(console: Shown, line: str) -> list[Any]:
    found = await fetch_suggestions(console.session, line)

    async def nothing(_: str) -> Iterable[Any]:
        return ()

    completer = LineCompleter(lambda _: found, nothing)
    return [*completer.get_completions(Document(line), CompleteEvent())]


def entry_of(machine: Machine, **answers: Any) -> dict[str, Any]:
    """The entry of a server with these lists and answers, however long they are."""
    entry = server(**answers)
    *arguments, canned = entry["args"]
    file = machine.home / "answers.json"
    file.write_text(canned, encoding="utf-8")
    return {**entry, "args": [*arguments, f"@{file}"]}


def evil_entry(machine: Machine, evil: str) -> dict[str, Any]:
    words = f"{evil} {SECRET}"
    argument: dict[str, Any] = {"type": "string", "title": evil, "description": words}
    schema = {
        "type": "object",
        "properties": {"a": {**argument, "enum": ["plain", evil, SECRET]}, "b": argument},
        "required": ["b"],
    }
    who = {"name": "who", "description": words}
    said = {"type": "text", "text": words}
    entry = entry_of(
        machine,
        tools=[{"name": "odd", "title": words, "description": words, "inputSchema": schema}],
        prompts=[
            {"name": "p", "title": evil, "description": words, "arguments": [who]},
            {"name": f"q{evil}", "description": evil},
        ],
        resources=[{"uri": "x:plain", "name": evil, "title": words}, {"uri": f"x:{evil}", "name": "n"}],
        templates=[{"uriTemplate": "y:{a}", "name": evil}],
        **{
            "tools/call": {"content": [said], "_meta": {evil: evil}},
            "prompts/get": {"description": words, "messages": [{"role": evil, "content": said}]},
            "completion/complete": {"completion": {"values": [evil, SECRET, words, "plain"]}},
        },
    )
    return {**entry, "env": {"LEAKED": "${LEAKED}"}}


LINES = ("/mcp", "/mcp x", "/tools", "/tools x", "/prompts", "/resources", "/cost", "/help")
BEGUN = (
    "/",
    "/x",
    "/x:p ",
    "/call x ",
    "/call x odd ",
    "/call x odd a=",
    "/resources x ",
    "@x:",
    "/x:p who=",
    "/resources x y:",
)


@pytest.mark.requirement("HARD-61")
@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("kind", EVIL)
async def test_nothing_that_a_server_lists_steers_the_terminal_or_shows_a_secret(
    machine: Machine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    machine.env["LEAKED"] = SECRET
    machine.write_user(json.dumps(unasked({"x": evil_entry(machine, EVIL[kind])})))
    async with session_on(machine, "an answer") as console:
        await console.session.host.connect("x")
        for line in LINES:
            shown = await console.does(line)
            assert steers(shown) == [], line
            assert SECRET not in shown, line
        for line in ("/call x odd", "/x:p who=me"):
            shown = await console.does(line)
            assert steers(shown) == [], line
            assert SECRET not in shown, line
        for line in BEGUN:
            for found in [*completions(console, line), *await asked(console, line)]:
                said = f"{found.text} {found.display_text} {found.display_meta_text}"
                assert steers(said) == [], line
                assert SECRET not in said, line


@pytest.mark.requirement("HARD-61")
@pytest.mark.parametrize("kind", EVIL)
def test_progress_of_a_hostile_server_stays_in_its_line(kind: str) -> None:
    work = RunningWork(lambda: None)
    work.note(McpToolCallBegin(call_id=1, server_id="x", tool=EVIL[kind]))
    for progress, total in ODD_NUMBERS:
        work.note(McpToolCallProgress(call_id=1, progress=progress, total=total, message=EVIL[kind]))
        lines = toolbar([], work.shown, EVIL[kind], 80).split("\n")
        assert len(lines) == 2
        assert all(len(line) <= 80 for line in lines)
        assert steers("\n".join(lines)) == []
    assert len(toolbar([], [RunningLine(label="x" * 10_000, since=0.0)] * 50, None, 80).split("\n")) <= 7


ODD_NUMBERS = [(1.0, 2.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, -1e308), (-1e308, 1e-308)]


@pytest.mark.requirement("HARD-66")
async def test_completions_among_thousands_of_offers_hold_up_nothing(machine: Machine) -> None:
    argument = {"name": "a", "description": "of it"}
    many = range(4_000)
    entry = entry_of(
        machine,
        tools=[{"name": f"t{n}", "title": "A title", "inputSchema": {"type": "object"}} for n in many],
        prompts=[{"name": f"p{n}", "description": "A prompt. " * 5, "arguments": [argument]} for n in many],
        resources=[{"uri": f"x:{n}", "name": f"n{n}", "description": "to read"} for n in many],
    )
    lines = ("/", "/x:p", "/x:p17 ", "/resources x x:", "/resources ", "see @", "see @x:x:1", "/call x t")
    async with session_with(machine, {"x": entry}) as console:
        await console.session.host.connect("x")
        with watch_loop(0.25):
            for line in lines:
                assert len([*suggestions(console.session, line)]) <= MOST_SUGGESTED
                assert len([*await fetch_suggestions(console.session, line)]) <= MOST_SUGGESTED
                assert suggestions(console.session, line), line
            assert console.completes("/x:p3999") == ["/x:p3999 "]
            assert console.completes("/resources x x:3999") == ["/resources x x:3999"]


@pytest.mark.requirement("HARD-66")
async def test_long_lists_are_there_for_the_first_line_that_needs_them(machine: Machine) -> None:
    x = AskingServer(
        machine.home / "record",
        prompts=[{"name": f"p{number}"} for number in range(500)],
        resources=[{"uri": f"x:{number}", "name": "n"} for number in range(500)],
    )
    async with session_with(machine, {"x": x.entry()}) as console:
        await console.session.host.connect("x")
        assert console.completes("/x:p499") == []
        assert await console.asks("/x:p499") == ["/x:p499 "]
        assert await console.asks("/x:p499") == []
        assert console.completes("/x:p499") == ["/x:p499 "]
    async with session_with(machine, {"x": x.entry()}) as console:
        await console.session.host.connect("x")
        await console.does("/x:p499")
        assert x.heard("prompts/get")
