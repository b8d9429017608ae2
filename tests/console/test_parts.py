"""The console's parts on their own: the bar below the prompt, the lines that are kept, and what is shown."""

import time
from pathlib import Path

import anyio
import pytest

from fairlead.config.secrets.masking import SECRETS
from fairlead.console.app import toolbar
from fairlead.console.lines import RunningLine, RunningWork
from fairlead.console.prompt import FILE_NAME, MAX_LINES, LineHistory, is_kept
from fairlead.console.screen import Screen
from fairlead.errors import ConfigError, ConfigInvalid, Problem
from fairlead.events import McpToolCallBegin, McpToolCallEnd, McpToolCallProgress


def test_the_bar_shows_calls_or_what_is_on_its_way_to_one() -> None:
    work = RunningWork(lambda: None)
    assert toolbar([], work.shown, None, 80) == " no servers · /help"
    for number in range(7):
        work.note(McpToolCallBegin(call_id=number, server_id="x", tool=f"tool-{number}"))
    work.note(McpToolCallProgress(call_id=0, progress=3))
    work.note(McpToolCallProgress(call_id=1, progress=30, total=10, message="a\x1b[0mb"))
    work.note(McpToolCallProgress(call_id=99, progress=1))
    lines = toolbar([], work.shown, "openai/m", 80).split("\n")
    assert lines[0] == " no servers · openai/m · Ctrl-C cancels"
    assert lines[1].startswith(" x/tool-0  3  ")
    assert f"[{'█' * 20}] 100%  a\\x1b[0mb" in lines[2]
    assert lines[-1] == " and 2 more"
    for number in range(7):
        work.note(
            McpToolCallEnd(call_id=number, server_id="x", tool="t", seconds=0.1, is_error=False, error=None)
        )
    assert work.shown == []
    assert toolbar(None, [], None, 80) == " starting … · /help"
    label = "x" * 200
    assert all(len(line) <= 80 for line in toolbar([], [_running(label)], None, 80).split("\n"))


def _running(label: str) -> RunningLine:
    return RunningLine(label=label, since=time.monotonic())


async def test_what_is_under_way_can_be_ended_and_waited_for() -> None:
    work = RunningWork(lambda: None)
    ended: list[bool] = []

    async def line() -> None:
        ended.append(await work.do("/call", anyio.sleep_forever))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line)
            await anyio.wait_all_tasks_blocked()
            assert work.is_busy
            assert [running.label for running in work.shown] == ["/call"]
            work.cancel()
            await work.wait_idle()
    assert ended == [False]
    assert not work.is_busy


@pytest.mark.requirement("HARD-10")
def test_what_may_be_secret_is_not_kept() -> None:
    assert is_kept("/mcp restart x")
    assert is_kept("what is 1 = 1?")
    assert not is_kept("/call x echo a=1")
    assert not is_kept('/call x echo {"a": 1}')
    assert not is_kept("/mcp login x http://127.0.0.1:1/callback?code")
    SECRETS.learn("correct-horse-battery-staple")
    assert not is_kept("the password is correct-horse-battery-staple")


def test_old_lines_are_brought_back_and_too_many_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE_NAME
    history = LineHistory(path)
    assert [*history.load_history_strings()] == []
    for number in range(2 * MAX_LINES + 1):
        history.store_string(f"line {number}\nand more")
    path.write_text(path.read_text() + "no JSON\n3\n")
    kept = [*LineHistory(path).load_history_strings()]
    assert kept[0] == f"line {2 * MAX_LINES}\nand more"
    assert len(path.read_text().splitlines()) == MAX_LINES
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_that_cannot_be_kept_are_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    history = LineHistory(tmp_path / "file" / FILE_NAME)
    history.store_string("/mcp")
    assert "not kept" in caplog.text
    (tmp_path / FILE_NAME).mkdir()
    assert [*LineHistory(tmp_path / FILE_NAME).load_history_strings()] == []


def test_nothing_that_is_shown_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines: list[str] = []
    screen = Screen(lines.append)
    screen.say("a\tb\x1b[2J")
    screen.data("c\x07")
    screen.words_of("two\nlines\r")
    screen.warn("careful\x1b", "do\x1b this")
    screen.error(ConfigError("wrong\x1b", hint="look\x1b"))
    screen.error(ConfigInvalid(Problem(message="odd\x1b", hint="fix\x1b")))
    screen.table(("one",), [("cell\x1b",)])
    shown = "\n".join(lines)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    for words in ("a   b\\x1b[2J", "  | lines\\r", "warning: careful", "hint: look", "odd\\x1b", "cell\\x1b"):
        assert words in shown


def test_a_table_breaks_no_word_and_colors_states_unless_colors_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    row = ("internationalization", "error", "extraordinarily incomprehensible")
    lines: list[str] = []
    Screen(lines.append).table(("id", "state", "last error"), [row])
    assert "\x1b[31merror\x1b[0m" in lines[0]
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(lines.append).table(("id", "state", "last error"), [row])
    plain = lines[1].splitlines()
    assert "\x1b" not in lines[1]
    assert all(len(line) <= 30 for line in plain)
    assert {"internationalization", "extraordinarily", "incomprehensible"} <= {*lines[1].split()}
