"""A person at a terminal: real pseudo-terminals, on which real programs ask for real servers."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Machine
from tests.host.asking import BOTH_ERAS, HANDSHAKE, AskingServer, form, page

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.cli.pty_support import SECONDS, Person, at_terminal

AtTerminal = Callable[..., Person]

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your \x1b[31mname", "description": "as in your passport"},
        "age": {"type": "integer", "minimum": 1, "maximum": 130, "default": 42},
        "color": {"type": "string", "enum": ["red", "green"], "enumNames": ["Rouge", "Vert"]},
        "fish": {
            "type": "array",
            "items": {"type": "string", "enum": [f"fish-{number}" for number in range(12)]},
        },
    },
    "required": ["name"],
}


@pytest.fixture
def fairlead(machine: Machine) -> Generator[AtTerminal]:
    """Run a command line on a terminal of its own; the person at it is returned."""
    with ExitStack() as stack:

        def run(*arguments: str, **env: str) -> Person:
            return stack.enter_context(
                at_terminal(*arguments, env=machine.env | {"TERM": "dumb"} | env, cwd=machine.project)
            )

        yield run


@pytest.fixture(params=BOTH_ERAS)
def server(request: pytest.FixtureRequest, machine: Machine) -> AskingServer:
    return configure(machine, version=request.param)


@pytest.fixture
def older(machine: Machine) -> AskingServer:
    return configure(machine, version=HANDSHAKE)


@pytest.fixture
def modern(machine: Machine) -> AskingServer:
    return configure(machine)


def configure(machine: Machine, **script: Any) -> AskingServer:
    server = AskingServer(machine.home / "record", **script)
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    return server


def ask(fairlead: AtTerminal, question: dict[str, Any], **env: str) -> Person:
    return fairlead("call", "x", "ask", "--input", json.dumps({"questions": {"q": question}}), **env)


def answer_in(person: Person) -> dict[str, Any]:
    """What the server got, which the call prints at its end."""
    assert person.waits() == 0, person.seen
    return json.loads(person.seen.rstrip().splitlines()[-1])["q"]


def test_a_form_is_gone_through_field_by_field_until_each_answer_fits(
    fairlead: AtTerminal, server: AskingServer
) -> None:
    person = ask(fairlead, form("Who\nare \x1b]0;evil\x07you?", FORM))
    head = person.sees("Answer? [yes/no]: ")
    assert "`x` asks you something" in head
    assert "It says:\n  | Who\n  | are you?\n" in head
    assert "  - Your name\n  - age (optional)\n" in head
    person.types("maybe")
    person.sees("please type one of yes, no")
    person.sees("Answer? [yes/no]: ")
    person.types("y")
    asked = person.sees("> ")
    assert "Your name (required)" in asked
    assert "  | as in your passport" in asked
    person.types("")
    person.sees("must be text")
    person.sees("> ")
    person.types("Ada\x1b[D")
    person.sees("please type it again")
    person.sees("> ")
    person.types("Ada é")
    assert "a whole number, 1 to 130" in person.sees("Enter takes 42, a space for none")
    person.sees("> ")
    person.types("131")
    person.sees("must be a whole number, 1 to 130")
    person.sees("> ")
    person.types("")
    assert "one of Rouge, Vert" in person.sees("> ")
    person.types("vert")
    assert "  | fish-11\n" in person.sees("> ")
    person.types("fish-1, fish-11")
    shown = person.sees("Send it? [yes/no/again]: ")
    assert '"name": "Ada é"' in shown
    assert "This goes to `x`" in shown
    person.types("yes")
    content = {"name": "Ada é", "age": 42, "color": "green", "fish": ["fish-1", "fish-11"]}
    assert answer_in(person) == {"action": "accept", "content": content}
    assert "\x1b]0" not in person.seen


def test_a_person_says_no_at_once_or_at_the_end_or_begins_again(
    fairlead: AtTerminal, older: AskingServer
) -> None:
    person = ask(fairlead, form())
    person.sees("Answer?")
    person.types("no")
    assert answer_in(person) == {"action": "decline"}

    person = ask(fairlead, form())
    person.sees("Answer?")
    person.types("yes")
    for name in ("Ada", "Grace"):
        person.sees("> ")
        person.types(name)
        person.sees("> ")
        person.types(" ")  # none, though there is a default
        person.sees("Send it?")
        person.types("again" if name == "Ada" else "yes")
    assert answer_in(person) == {"action": "accept", "content": {"name": "Grace"}}

    person = ask(fairlead, form())
    person.sees("Answer?")
    person.types("yes")
    person.sees("> ")
    person.types("Ada")
    person.sees("> ")
    person.types("")
    person.sees("Send it?")
    person.types("no")
    assert answer_in(person) == {"action": "decline"}


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_leave_a_question_unanswered(
    fairlead: AtTerminal, older: AskingServer, key: str
) -> None:
    person = ask(fairlead, form())
    person.sees("Answer?")
    person.types("yes")
    person.sees("> ")
    person.types(key, end="")
    person.sees("left unanswered")
    assert answer_in(person) == {"action": "cancel"}


def test_ctrl_c_ends_the_program_when_nobody_is_asked(fairlead: AtTerminal, machine: Machine) -> None:
    server = configure(machine)
    person = fairlead("call", "x", "ask", "--input", json.dumps({"questions": {"q": form()}, "rounds": 2}))
    person.sees("Answer?")
    person.presses_ctrl_c()
    person.sees("Answer?")
    person.presses_ctrl_c()
    assert answer_in(person) == {"action": "cancel"}
    person = fairlead("call", "x", "progress")
    deadline = time.monotonic() + SECONDS
    while not any(call["params"]["name"] == "progress" for call in server.heard("tools/call")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    person.presses_ctrl_c()
    assert person.waits() == 130


@pytest.mark.requirement("HARD-48")
def test_a_page_is_shown_whole_and_opened_only_after_a_yes(
    fairlead: AtTerminal, older: AskingServer, machine: Machine
) -> None:
    opened = machine.home / "opened"
    browser = _browser(machine.home / "browser", opened)
    url = "https://xn--pple-43d.com/login?" + "x" * 300
    person = ask(fairlead, page(url), BROWSER=browser)
    shown = person.sees("Open it? [yes/NO]: ")
    assert url in shown.replace("\n", "")
    assert "leads to: xn--pple-43d.com\n" in shown
    assert "warning: the host is written in punycode" in shown
    assert "  | Log in" in shown
    assert not opened.exists()
    person.types("")
    assert answer_in(person) == {"action": "decline"}
    assert not opened.exists()

    person = ask(fairlead, page(url), BROWSER=browser, NO_COLOR="1")
    assert "leads to: xn--pple-43d.com" in person.sees("Open it?")
    person.types("yes")
    assert answer_in(person) == {"action": "accept"}
    assert opened.read_text().strip() == url


def test_without_a_browser_the_page_is_left_to_the_person(fairlead: AtTerminal, modern: AskingServer) -> None:
    person = ask(fairlead, page())
    person.sees("Open it?")
    person.types("yes")
    person.sees("please open the page yourself")
    assert answer_in(person) == {"action": "accept"}


def _browser(path: Path, opened: Path) -> str:
    path.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    path.chmod(0o755)
    return f"{path} %s"


def test_what_was_typed_before_a_question_is_no_answer_to_it(fairlead: AtTerminal, machine: Machine) -> None:
    configure(machine, version=HANDSHAKE)
    person = ask(fairlead, page())
    person.types("yes")  # long before anything is asked
    person.sees("Open it? [yes/NO]: ")
    person.types("no")
    assert answer_in(person) == {"action": "decline"}


def test_two_questions_are_asked_one_after_the_other(fairlead: AtTerminal, server: AskingServer) -> None:
    questions = {"one": page("https://example.com/one"), "two": page("https://example.com/two", "e2")}
    person = fairlead("call", "x", "ask", "--input", json.dumps({"questions": questions}))
    first = person.sees("Open it?")
    person.types("no")
    second = person.sees("Open it?")
    person.types("no")
    assert person.waits() == 0
    assert "https://example.com/one" in first
    assert "https://example.com/two" in second
    assert "https://example.com/two" not in first


def test_a_question_that_is_withdrawn_takes_no_answer(fairlead: AtTerminal, machine: Machine) -> None:
    server = configure(machine, version=HANDSHAKE)
    person = ask(fairlead, form())
    person.sees("Answer?")
    os.kill(server.notes("started")[-1], 9)
    person.sees("this answer is not needed any more")
    assert person.waits() == 1
    assert "SIGKILL" in person.seen


def test_what_moves_on_the_terminal_gives_way_to_a_question(
    fairlead: AtTerminal, modern: AskingServer
) -> None:
    person = ask(fairlead, form(), TERM="xterm")
    person.sees("calling")
    person.sees("Answer?")
    person.types("yes")
    quiet = person.sees("> ")
    person.types("Ada")
    quiet += person.sees("> ")
    assert "calling" not in quiet
    person.types("")
    person.sees("Send it?")
    person.types("yes")
    person.sees("calling")
    assert person.waits() == 0
    assert '"name": "Ada"' in person.seen


def test_reading_and_prompts_may_ask_as_well(fairlead: AtTerminal, machine: Machine) -> None:
    configure(machine, questions={"q": page()})
    for arguments in (("read", "x", "test://asks"), ("prompt", "x", "asks")):
        person = fairlead(*arguments)
        person.sees("Open it?")
        person.types("no")
        assert person.waits() == 0
        assert "decline" in person.seen


def test_a_resource_on_the_terminal_cannot_steer_it(fairlead: AtTerminal, machine: Machine) -> None:
    configure(machine, texts={"test://a": "a\x1b[31mb"})
    person = fairlead("read", "x", "test://a")
    assert person.waits() == 0
    assert "ab" in person.seen
    assert "\x1b[31m" not in person.seen


def test_a_prompt_asks_for_what_it_has_to_know_and_suggests(fairlead: AtTerminal, machine: Machine) -> None:
    wanted = [{"name": "who", "description": "a name", "required": True}]
    configure(machine, prompts=[{"name": "greet", "arguments": wanted}])
    person = fairlead("prompt", "x", "greet")
    shown = person.sees("who: ")
    assert "  | a name" in shown
    assert "for example: alpha, beta" in shown
    person.types("Ada")
    assert person.waits() == 0
    assert '{"who": "Ada"}' in person.seen

    person = fairlead("prompt", "x", "greet")
    person.sees("who: ")
    person.presses_ctrl_c()
    assert person.waits() == 130


APPROVING = """
import anyio
from fairlead.host.operator import ApprovalRequest
from fairlead.terminal.prompts import TerminalOperator

question = ApprovalRequest(
    server_id="files", tool="write_file", arguments={"path": "a\\u202e", "lines": [1, 2]},
    reason="it is not on the allow list", claims=("read-only\\x1b[0m",),
    preview="-old\\n+new\\x1b[0m", hint="run `fairlead review files\\x1b[0m`",
)

async def main() -> None:
    for _ in range(6):
        print("ANSWER", await TerminalOperator().approve(question), flush=True)

anyio.run(main)
"""


def test_an_approval_shows_the_whole_call_and_takes_five_answers(machine: Machine) -> None:
    with at_terminal(program=["-c", APPROVING], env=machine.env, cwd=machine.project) as person:
        shown = person.sees("May it? [once/session/always/NO/cancel]: ")
        assert "`write_file` of `files`" in shown
        assert "it is not on the allow list" in shown
        assert '"path": "a\\u202e",' in shown
        assert "      2\n" in shown
        assert "It would change:\n    -old\n    +new\\x1b[0m\n" in shown
        assert "It says of itself:\n  | read-only\\x1b[0m\n" in shown
        assert "  to settle it for good: run `fairlead review files\\x1b[0m`\n" in shown
        for typed, answer in (
            ("o", "once"),
            ("sess", "session"),
            ("ALWAYS", "always"),
            ("n", "no"),
            ("", "no"),
        ):
            person.types(typed)
            person.sees(f"ANSWER {answer}\n")
            person.sees("May it?")
        person.presses_ctrl_c()
        person.sees("ANSWER cancel")
        assert person.waits() == 0
