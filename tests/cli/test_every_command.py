"""What holds for every command: `--json` also for errors, `--verbose`, examples, suggestions, other names."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from fairlead.cli.main import cli, wants_json
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def leaves(command: click.Command, context: click.Context) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that name it."""
    if not isinstance(command, click.Group):
        yield (), command
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, name
        for words, found in leaves(below, click.Context(below, parent=context, info_name=name)):
            yield (name, *words), found


def every_command() -> dict[tuple[str, ...], click.Command]:
    context = click.Context(cli)
    found = dict(leaves(cli, context))
    for name in ("help", "version"):
        more = cli.get_command(context, name)
        assert more is not None
        found[(name,)] = more
    return found


EVERY = every_command()
ENDLESS = {("serve",), ("console",), *(("gateway", name) for name in ("dashboard", "open", "start"))}
"""Commands that serve, open a page, or want a terminal."""


def error_in(outcome: Outcome) -> dict[str, Any]:
    document = json.loads(outcome.out)
    assert list(document) == ["error"]
    error = document["error"]
    assert isinstance(error["code"], str)
    assert error["message"]
    assert error["exit_status"] == outcome.status
    assert "hint" in error
    return error


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Put the loggers back as they were before `--verbose`."""
    loggers = [logging.getLogger(name) for name in ("fairlead", "mcp", "client")]
    before = [(logger.level, [*logger.handlers]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_takes_json_and_verbose(words: tuple[str, ...]) -> None:
    options = {option for parameter in EVERY[words].params for option in parameter.opts}
    assert {"--json", "--verbose"} <= options


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_usage_error_of_every_command_is_json_with_json(fairlead: Fairlead, words: tuple[str, ...]) -> None:
    outcome = fairlead(*words, "--no-such-option", "--json")
    assert outcome.status == 2
    assert error_in(outcome)["code"] == "usage"
    assert "--no-such-option" in outcome.err, "a person reads it on stderr"


@pytest.mark.parametrize("words", [words for words in EVERY if words not in ENDLESS], ids=" ".join)
def test_with_json_a_command_prints_json_whatever_is_wrong_with_the_configuration(
    fairlead: Fairlead, machine: Machine, words: tuple[str, ...]
) -> None:
    machine.write_project("{ nonsense")
    given = ["x" for parameter in EVERY[words].params if isinstance(parameter, click.Argument)]
    outcome = fairlead(*words, *given, "--json")
    assert "bug in Fairlead" not in outcome.err
    documents = json.loads(outcome.out) if outcome.out else None
    if outcome.status:
        assert isinstance(documents, dict), "a failure is never silent"


def test_an_error_says_code_message_hint_and_server(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{"servers": {"time": {"command": "/nowhere/mcp"}}}')
    assert error_in(fairlead("get", "tiem", "--json"))["hint"] == "did you mean `time`?"
    invalid = machine.write_project('{"servers": 7}')
    error = error_in(fairlead("call", "time", "now", "--json"))
    assert error["code"] == "unknown_server" or str(invalid) in json.dumps(error)


def test_the_error_of_a_call_says_how_far_the_call_got(fairlead: Fairlead, machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record", tools=["crash", "refuse"])
    machine.write_user(json.dumps({"servers": {"s": server.entry(), "lacks": {"command": "/nowhere/mcp"}}}))
    for name, delivery in (("s.refuse", "done"), ("s.crash", "unknown"), ("lacks.t", "not_sent")):
        assert error_in(fairlead("call", name, "--yes", "--json"))["delivery"] == delivery
    assert "delivery" not in error_in(fairlead("get", "nothing", "--json"))


def test_a_command_that_prints_words_prints_what_it_did_as_json(fairlead: Fairlead, machine: Machine) -> None:
    added = json.loads(fairlead("add", "a", "--later", "--json", "--", "server", "--json").out)
    assert (added["ok"], added["server"], added["file"]) == (True, "a", str(machine.project_file))
    assert json.loads(machine.project_file.read_text())["servers"]["a"]["args"] == ["--json"]
    assert json.loads(fairlead("disable", "a", "--json").out)["enabled"] is False
    removed = json.loads(fairlead("rm", "a", "--json").out)
    assert (removed["ok"], removed["server"]) == (True, "a")
    assert any("removed `a`" in message for message in removed["messages"])


def test_what_is_after_two_dashes_is_not_ours() -> None:
    assert wants_json(["list", "--json"])
    assert not wants_json(["add", "x", "--", "server", "--json"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("lst",), "`list`"),
        (("gateway", "tokn"), "`token`"),
        (("gateway", "token", "lst"), "`list`"),
        (("approvals", "lst"), "`list`"),
        (("auth", "lisst"), "`list`"),
        (("docs", "alow", "x"), "`allow`"),
        (("list", "--jsn"), "`--json`"),
        (("help", "gateway", "tokn"), "`token`"),
        (("help", "cal"), "`call`"),
        (("gateway", "--install", "cursr"), "`cursor`"),
        (("completion", "fsh"), "`fish`"),
        (("start",), "`gateway start`"),
        (("token", "list"), "`gateway token`"),
        (("install", "cursor"), "`gateway --install`"),
        (("servers",), "`list`"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(
    fairlead: Fairlead, typed: tuple[str, ...], meant: str
) -> None:
    outcome = fairlead(*typed)
    assert outcome.status == 2
    assert f"Did you mean {meant}" in outcome.err


@pytest.mark.parametrize(
    "typed",
    [
        "--json list",
        "--json call repo.ripgrep",
        "--json version",
        "--json forget server nothing",
        "forget --json server nothing",
        "explain --json repo",
        "gateway --json token list",
        "gateway token --json list",
        "docs --json sites",
        "gateway --json --uninstall cursor",
        "--json gateway --install cursor",
    ],
)
def test_json_may_stand_before_the_name_of_a_command(fairlead: Fairlead, typed: str) -> None:
    words = typed.split()
    before, after = fairlead(*words), fairlead(*(word for word in words if word != "--json"), "--json")
    assert json.loads(before.out).keys() == json.loads(after.out).keys()


def test_a_group_does_not_show_json_among_its_options(fairlead: Fairlead) -> None:
    assert "--json" not in fairlead("forget", "--help").out


def test_an_agent_is_connected_and_disconnected_with_json(fairlead: Fairlead, machine: Machine) -> None:
    file = machine.home / ".cursor" / "mcp.json"
    done = json.loads(fairlead("gateway", "--install", "cursor", "--yes", "--json").out)
    assert (done["ok"], done["file"], done["changed"], done["backup"]) == (True, str(file), True, None)
    assert json.loads(fairlead("gateway", "--install", "cursor", "--json").out)["changed"] is False
    done = json.loads(fairlead("gateway", "--uninstall", "cursor", "--yes", "--json").out)
    assert (done["ok"], done["changed"]) == (True, True)
    assert not file.exists()


def test_other_names_of_commands_do_the_same(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{"servers": {"a": {"command": "x"}}}')
    assert fairlead("ls").out == fairlead("list").out
    assert fairlead("version").out == fairlead("--version").out
    assert fairlead("help").out == fairlead("--help").out
    assert (
        fairlead("help", "gateway", "token", "add").out == fairlead("gateway", "token", "add", "--help").out
    )
    assert fairlead("rm", "a").status == 0
    shown = fairlead("--help").out
    assert "`ls` for `list`" in shown
    assert "\n  ls " not in shown


@pytest.mark.parametrize("position", ["before", "after"])
def test_verbose_logs_the_steps_of_a_connection_with_times(
    fairlead: Fairlead, machine: Machine, position: str
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"a": server.entry()}}))
    words = ("-v", "tools", "a") if position == "before" else ("tools", "a", "--verbose")
    outcome = fairlead(*words)
    assert outcome.status == 0
    assert "configuration read" in outcome.err
    steps = [line for line in outcome.err.splitlines() if "state changed" in line]
    assert any("state=connecting" in line for line in steps), outcome.err
    assert any("state=ready" in line for line in steps)
    assert all(float(line.split()[0]) >= 0 for line in steps)
    assert "process started" in outcome.err


def test_verbose_logs_http_requests_without_their_query(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"a": {"url": "http://127.0.0.1:9/mcp?key=hidden-part"}}}))
    outcome = fairlead("test", "a", "-v")
    assert "http request failed" in outcome.err
    assert "url=http://127.0.0.1:9/mcp " in outcome.err
    assert "hidden-part" not in outcome.err


def test_verbose_masks_secrets(fairlead: Fairlead, machine: Machine) -> None:
    secret = "sk-verysecretvalue123456"
    entry = {"command": "/nowhere/server", "args": ["--token", "${KEY}"], "env": {"KEY": "${KEY}"}}
    machine.write_user(json.dumps({"servers": {"a": entry}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY", secret)
        outcome = fairlead("-v", "test", "a")
    assert "configuration read" in outcome.err
    assert secret not in outcome.err + outcome.out


OTHERS_HELP = ("gateway", "approvals")


@pytest.mark.parametrize("words", [words for words in EVERY if words[0] not in OTHERS_HELP], ids=" ".join)
def test_the_help_of_a_command_has_an_example(words: tuple[str, ...]) -> None:
    assert "Example" in (EVERY[words].help or "")
    assert f"fairlead {' '.join(words[:1])}" in (EVERY[words].help or "")
