"""Tables on a terminal: in its width, without breaking words, with colours for states."""

import io
import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.terminal.colors import color_of_state, paint, use_color
from fairlead.terminal.layout import display_width, fold, table_lines
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import SECONDS, command
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine

pytestmark = pytest.mark.slow

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x1b[=>]")
TABLES = [
    ("list",),
    ("status",),
    ("tools",),
    ("tools", "--cost"),
    ("tools", "notes", "--cost"),
    ("search", "note"),
    ("resources",),
    ("prompts",),
    ("explain", "notes"),
    ("audit",),
    ("approvals",),
    ("artifacts",),
    ("docs", "list"),
    ("auth", "list"),
    ("lint",),
    ("whoami",),
    ("gateway", "token", "list"),
    ("gateway", "agents"),
    ("gateway", "status"),
    ("bundle", "list"),
    ("import", "--dry-run"),
]
SENTENCES = re.compile(
    r"as configured|\d+ (more fields|tools:)|no call waits|set by |there are no logins|no named tokens"
    r"|no gateway runs|`fairlead gateway --install"
)
"""What stands beside tables, and the terminal wraps."""
DESCRIPTION = "Creates an extraordinarily comprehensive notebook entry, internationalization included."


@pytest.fixture
def office(machine: Machine) -> Machine:
    """A machine with something to show in every table."""
    server = ScriptedServer(
        machine.home / "record",
        tools=[
            {"name": name, "description": DESCRIPTION, "inputSchema": {"type": "object"}}
            for name in ("create_notebook_entry", "list_notebook_entries")
        ],
    )
    entries: dict[str, Any] = {
        "notes": {**server.entry(), "trust": "trusted"},
        "remote-documentation": {
            "url": "https://documentation.example.com/a/long/path/mcp",
            "enabled": False,
        },
    }
    bundles: dict[str, Any] = {"writing": {"servers": {"notes": {}}, "description": DESCRIPTION}}
    document: dict[str, Any] = {
        "servers": entries,
        "docs": {"allow": ["documentation.example.com"]},
        "bundles": bundles,
    }
    machine.write_user(json.dumps(document))
    (machine.project / ".mcp.json").write_text(
        json.dumps(
            {"mcpServers": {"other": {"command": "npx", "args": ["-y", "@scope/some-server-package"]}}}
        )
    )
    return machine


def shown_at(machine: Machine, columns: int, *words: str, env: Mapping[str, str] | None = None) -> str:
    own = machine.env | {"COLUMNS": str(columns)} | dict(env or {})
    with at_terminal(*words, env=own, cwd=machine.project) as person:
        person.waits()
        return person.seen


WORDS = set(re.findall(r"[A-Za-z]{6,}", DESCRIPTION))


@pytest.mark.parametrize("columns", [40, 60])
def test_no_table_breaks_a_word_or_is_wider_than_the_terminal(office: Machine, columns: int) -> None:
    with at_terminal("tools", "--refresh", env=office.env, cwd=office.project) as person:
        assert person.waits() == 0, person.seen
    for words in TABLES:
        seen = ANSI.sub("", shown_at(office, columns, *words))
        assert "bug in Fairlead" not in seen
        table = [
            line for line in seen.splitlines() if not line.startswith(("hint", "note", "warning", "error"))
        ]
        for line in table:
            for token in re.findall(r"[A-Za-z]{6,}", line):
                broken = any(token != word and word.startswith(token) for word in WORDS)
                assert not broken, (words, line)
            is_word = " " not in line.strip()  # one that nothing can fold
            assert display_width(line) <= columns or is_word or SENTENCES.match(line), (words, line)
    tools = ANSI.sub("", shown_at(office, columns, "tools"))
    assert all(display_width(line) <= columns for line in tools.splitlines() if "hint" not in line), tools
    assert "comprehensive" in tools


def test_the_processes_of_a_gateway_fit_the_terminal(office: Machine) -> None:
    def run(*words: str) -> None:
        subprocess.run(
            command(*words),
            env=office.env,
            cwd=office.project,
            timeout=SECONDS,
            capture_output=True,
            check=True,
        )

    run("gateway", "start", "--port", "0", "--workers", "2")
    try:
        seen = ANSI.sub("", shown_at(office, 60, "gateway", "status"))
    finally:
        run("gateway", "stop")
    _, _, table = seen.partition("replicas ")
    assert "connections" in table
    wide = [line for line in table.splitlines() if display_width(line) > 60 and " " in line.strip()]
    assert not wide, seen


def test_a_narrow_terminal_gets_a_block_for_each_row() -> None:
    lines = table_lines(
        ("id", "state", "last error"), [("a-server", "error", "extraordinarily incomprehensible")], 24
    )
    assert lines == [
        "a-server",
        "  state       error",
        "  last error  extraordinarily",
        "              incomprehensible",
    ]


def test_long_words_fold_after_punctuation_and_are_otherwise_whole() -> None:
    assert fold("https://example.com/some/path", 12) == ["https://", "example.com/", "some/path"]
    assert fold("create_notebook_entry", 10) == ["create_", "notebook_", "entry"]
    assert fold("incomprehensible", 5) == ["incomprehensible"]
    assert fold("", 5) == [""]
    assert fold("日本語の 説明", 8) == ["日本語の", "説明"]


LETTERS = st.characters(codec="ascii", categories=["L", "P", "Zs"])


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(codec="ascii", categories=["L", "P", "Zs"]))] * 3), max_size=4
    ),
    st.integers(8, 120),
)
def test_a_table_loses_no_letter_whatever_its_width(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = "".join("".join(table_lines(("a", "b", "c"), rows, width)).split())
    for row in rows:
        for cell in row:
            for word in cell.split():
                pieces = [piece for line in fold(word, 1) for piece in line.split()]
                assert all(piece in shown or piece == "-" for piece in pieces)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_the_usual_variables_decide_about_colours(
    env: dict[str, str], on_terminal: bool, in_pipe: bool
) -> None:
    assert use_color(Terminal(), env) is on_terminal
    assert use_color(io.StringIO(), env) is in_pipe


def test_states_have_colours() -> None:
    assert [
        color_of_state(state) for state in ("ready", "held back", "deny: a rule", "disabled", "x", "")
    ] == [
        "green",
        "yellow",
        "red",
        "dim",
        None,
        None,
    ]
    assert paint("ready", "green") == "\x1b[32mready\x1b[0m"


def test_a_terminal_sees_states_in_colour_and_without_them_with_no_color(office: Machine) -> None:
    assert "\x1b[32myes\x1b[0m" in shown_at(office, 100, "list")
    assert "\x1b[" not in shown_at(office, 100, "list", env={"NO_COLOR": "1"})
