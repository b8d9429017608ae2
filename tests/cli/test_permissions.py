"""One permission story at the command line: the same answers on every surface, and hints that work."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import ApprovalRequired, CallDenied
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer, scripted_program
from tests.cli.gateway_support import gateway
from tests.cli.permission_support import (
    DESTROY,
    PLAIN,
    READ,
    SECONDS,
    SLY,
    Fairlead,
    call_over_gateway,
    call_with_library,
    entry,
    follow,
    write,
)
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine
from tests.loop.model_server import Calls, results_in, says, serving
from tests.policy.permission_cells import CELLS as TABLE
from tests.policy.permission_cells import Cell, Table, one_of_each, outcome_of, require_alike


@pytest.fixture
def table(machine: Machine, fairlead: Fairlead) -> Table:
    table = Table(machine)
    table.prepare(fairlead)
    table.forget_calls()
    return table


def test_call_decides_by_the_table_and_yes_is_the_users_own_word(table: Table, fairlead: Fairlead) -> None:
    require_calls_by_table(table, fairlead, one_of_each(TABLE))


def test_call_through_a_gateway_that_runs_decides_by_the_table(
    table: Table, machine: Machine, fairlead: Fairlead
) -> None:
    with gateway(machine):
        require_calls_by_table(table, fairlead, one_of_each(TABLE))


def test_a_call_at_a_terminal_is_the_users_own_word(table: Table, machine: Machine) -> None:
    by_verdict = {cell.verdict: cell for cell in one_of_each(TABLE)}
    for verdict, status in (("allow", 0), ("ask", 0), ("deny", 3), ("held back", 3)):
        cell = by_verdict[verdict]
        with at_terminal("call", cell.server, cell.tool, env=machine.env, cwd=machine.project) as person:
            assert person.waits() == status, cell
    assert table.calls() == {(by_verdict[each].server, by_verdict[each].tool) for each in ("allow", "ask")}


def require_calls_by_table(table: Table, fairlead: Fairlead, some: list[Cell]) -> None:
    """Require what `fairlead call` makes of each cell, without a user and with `--yes`."""
    for words in ((), ("--yes",)):

        def called(cell: Cell, *, confirmed: bool = bool(words)) -> bool:
            return cell.verdict == "allow" or (confirmed and cell.is_users_to_overrule)

        table.forget_calls()
        outcomes: dict[Cell, str] = {}
        for cell in some:
            outcome = fairlead("call", cell.server, cell.tool, *words)
            assert outcome.status == (0 if called(cell) else 3), (cell, outcome.err)
            outcomes[cell] = outcome.err if outcome.status else "called"
        require_alike(table, outcomes, called=called)


def test_explain_shows_the_answer_of_the_table_for_each_tool_with_its_line(
    table: Table, fairlead: Fairlead
) -> None:
    for server in ("t", "u"):
        fairlead("tools", server, "--refresh")
        said = {tool["tool"]: tool for tool in json.loads(fairlead("explain", server, "--json").out)["tools"]}
        rows = {line.split()[0]: line for line in fairlead("explain", server).out.splitlines() if line}
        for cell in (cell for cell in TABLE if cell.server == server):
            row, state = rows[cell.tool], said[cell.tool]["state"]
            assert re.match(rf"{cell.tool} +{cell.verdict} ", row), row
            assert (state == "quarantined") is (cell.verdict == "held back")
            if cell.verdict != "held back" and cell.state in ("allow", "ask", "deny"):
                assert re.search(r"fairlead\.json:\d+", row), row


def test_the_model_of_a_run_gets_the_answers_of_the_table(
    table: Table, machine: Machine, fairlead: Fairlead
) -> None:
    calls: Calls = [(f"c{number}", f"{cell.server}.{cell.tool}", {}) for number, cell in enumerate(TABLE)]
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        document = json.loads(machine.user_file.read_text())
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        machine.write_user(json.dumps(document | {"model": model}, indent=1))
        outcome = fairlead("run", "go")
        told = results_in("openai", api.bodies[1])
    outcomes = {cell: outcome_of(told[f"c{number}"]) for number, cell in enumerate(TABLE)}
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow", refused=Cell.require_told)
    for cell in TABLE:
        if cell.verdict != "allow":
            cell.require_message(outcome.err)  # which is for the user
    assert outcome.status == 3, "what must be approved is missing"


def test_run_allow_answers_what_would_be_asked_and_nothing_else(
    table: Table, machine: Machine, fairlead: Fairlead
) -> None:
    calls: Calls = [(f"c{number}", f"{cell.server}.{cell.tool}", {}) for number, cell in enumerate(TABLE)]
    for name in ("t", "u"):
        fairlead("tools", name, "--refresh")
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        document = json.loads(machine.user_file.read_text())
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        machine.write_user(json.dumps(document | {"model": model}, indent=1))
        assert fairlead("run", "go", "--allow", "all").status in (0, 3)
        told = results_in("openai", api.bodies[1])
    outcomes = {cell: outcome_of(told[f"c{number}"]) for number, cell in enumerate(TABLE)}
    is_called = ("allow", "ask")
    require_alike(table, outcomes, called=lambda cell: cell.verdict in is_called, refused=Cell.require_told)


@pytest.mark.parametrize(
    "cell",
    [cell for cell in one_of_each(TABLE) if cell.verdict != "allow"],
    ids=lambda cell: f"{cell.server}-{cell.tool}",
)
def test_each_refusal_of_the_table_followed_literally_leads_to_a_working_call(
    table: Table, machine: Machine, fairlead: Fairlead, cell: Cell
) -> None:
    for _ in range(4):  # what is denied by a list and a rule takes a step for each
        outcome = fairlead("call", cell.server, cell.tool)
        if outcome.status == 0:
            break
        hint = outcome.err.split("hint:")[1]
        rule = re.search(r"change (?:that|the) rule in (\S+):(\d+)", hint)
        if rule is not None:
            _allow_by_rule(Path(rule[1]), int(rule[2]))
            continue
        done = follow(fairlead, hint)
        if done.status == 3:  # it shows what changed, and which command answers
            named = done.err.split("hint:")[1].replace("NAMES --ask NAMES --deny NAMES", cell.tool)
            done = follow(fairlead, named)
        assert done.status == 0, done.err
    assert table.calls() >= {(cell.server, cell.tool)}


def _allow_by_rule(file: Path, line: int) -> None:
    """Change the rule that begins at a line as the hint says: it allows from now on."""
    lines = file.read_text().splitlines()
    near = next(n for n in range(line - 1, line + 3) if '"action"' in lines[n])
    lines[near] = re.sub(r'"(ask|deny)"', '"allow"', lines[near])
    file.write_text("\n".join(lines))


CELLS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "trusted read-only": (READ, {"trust": "trusted"}, {}, "allow"),
    "trusted destructive": (DESTROY, {"trust": "trusted"}, {}, "ask"),
    "trusted unannotated": (PLAIN, {"trust": "trusted"}, {}, "ask"),
    "trusted read-only, reviewed: ask": (
        READ,
        {"trust": "trusted", "approval": {"tools": {"echo": "ask"}}},
        {},
        "ask",
    ),
    "trusted destructive, reviewed: allow": (
        DESTROY,
        {"trust": "trusted", "approval": {"tools": {"echo": "allow"}}},
        {},
        "allow",
    ),
    "untrusted, not reviewed": (READ, {"trust": "untrusted"}, {}, "deny"),
    "untrusted, list by hand": (READ, {"trust": "untrusted", "allow_tools": ["echo"]}, {}, "ask"),
    "untrusted, reviewed: allow": (
        DESTROY,
        {"trust": "untrusted", "allow_tools": ["echo"], "approval": {"tools": {"echo": "allow"}}},
        {},
        "allow",
    ),
    "untrusted, reviewed: deny": (PLAIN, {"trust": "untrusted", "deny_tools": ["echo"]}, {}, "deny"),
    "rule asks about what a review allows": (
        READ,
        {"trust": "trusted", "approval": {"tools": {"echo": "allow"}}},
        {"policy": {"rules": [{"action": "ask", "tool": "echo"}]}},
        "ask",
    ),
    "rule allows": (
        PLAIN,
        {"trust": "untrusted", "allow_tools": ["echo"]},
        {"policy": {"rules": [{"action": "allow", "tool": "echo"}]}},
        "allow",
    ),
    "rule denies": (
        READ,
        {"trust": "trusted", "approval": "allow"},
        {"policy": {"rules": [{"action": "deny", "principal": "local", "tool": "echo"}]}},
        "deny",
    ),
}


@pytest.mark.parametrize("cell", CELLS)
async def test_library_model_and_gateway_decide_alike_with_and_without_a_user(
    machine: Machine, tmp_path: Path, cell: str
) -> None:
    tool, fields, document, verdict = CELLS[cell]
    server = ScriptedServer(tmp_path / "record", tools=[tool])
    write(machine, {"s": server.entry(**fields)}, **document)
    alone = [
        await call_with_library(machine),
        await call_over_gateway(machine),
        await call_with_library(machine, as_model=True),
    ]
    if verdict == "allow":
        assert alone == ["called"] * 3
        assert await call_with_library(machine, "no") == "called", "no second gate behind the answer"
        return
    assert server.calls("echo") == 0
    for said in alone[:2]:
        assert "fairlead " in said or "rule" in said or "no tool" in said, said
    if verdict == "ask":
        assert await call_with_library(machine, "once") == "asked, called"
        assert "the user denied it" in await call_with_library(machine, "no")
    else:
        await call_with_library(machine, "once")
        assert server.calls("echo") == 0, "a user is not asked about what is denied"


@pytest.mark.parametrize("cell", CELLS)
def test_the_command_line_decides_like_the_library_and_explain_says_why(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, cell: str
) -> None:
    tool, fields, document, verdict = CELLS[cell]
    server = ScriptedServer(tmp_path / "record", tools=[tool])
    write(machine, {"s": server.entry(**fields)}, **document)
    outcome = fairlead("call", "s", "echo")
    assert outcome.status == (0 if verdict == "allow" else 3), outcome.err
    (explained,) = json.loads(fairlead("explain", "s", "--json").out)["tools"]
    assert explained["verdict"] == verdict
    shown = fairlead("explain", "s").out
    row = next(line for line in shown.splitlines() if line.startswith("echo "))
    assert row.split()[1] == verdict
    if "approval" in fields and verdict != "deny" and "rule" not in cell:
        assert re.search(r"fairlead\.json:\d+", row), row


UNSETTLED: dict[str, dict[str, Any]] = {
    "unreviewed": {"trust": "untrusted"},
    "by hand": {"trust": "untrusted", "allow_tools": ["*"]},
    "asks": {"trust": "untrusted", "allow_tools": ["*"], "approval": "ask"},
    "trusted": {"trust": "trusted"},
    "denied by mode": {"trust": "trusted", "approval": "deny"},
}
ODD_NAMES = ("a b", "it's", "*", "-x", "q?", "d,e", "all", "none", "$HOME", "ünï", "s/echo")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *[("echo", fields) for fields in UNSETTLED.values()],
        *[(name, UNSETTLED["unreviewed"]) for name in ODD_NAMES],
        *[(name, UNSETTLED["by hand"]) for name in ("*", "it's", "q?")],
    ],
)
def test_the_hint_of_a_refused_call_leads_to_a_working_call(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": name}, {**PLAIN, "name": "other"}])
    write(machine, {"s": server.entry(**fields)})
    refused = fairlead("call", "s", "--", name)
    assert refused.status == 3, refused.err
    followed = follow(fairlead, refused.err.split("hint:")[1])
    assert followed.status == 0, followed.err
    called = fairlead("call", "s", "--", name)
    # The scripted server knows only some of these names: that the call reached it is what counts.
    assert called.status != 3, called.err
    assert name != "echo" or called.status == 0, called.err
    assert fairlead("call", "s", "other").status == 3, "the hint allows no more than the tool"


def test_a_denied_tool_and_a_policy_that_asks_are_settled_by_the_hint(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    for fields, document in (
        ({"trust": "untrusted", "allow_tools": ["echo"], "deny_tools": ["echo"]}, {}),
        ({"trust": "trusted"}, {"policy": {"approval": "ask"}}),
        ({"trust": "trusted"}, {"policy": {"approval": "deny"}}),
        ({"trust": "trusted", "approval": {"tools": {"ec*": "deny"}}}, {}),
    ):
        write(machine, {"s": server.entry(**fields)}, **document)
        refused = fairlead("call", "s", "echo")
        assert refused.status == 3
        assert follow(fairlead, refused.err.split("hint:")[1]).status == 0
        assert fairlead("call", "s", "echo").status == 0, (fields, document)


def test_a_call_that_a_rule_asks_about_names_the_rule_and_the_command_that_makes_it(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    rules = {"rules": [{"action": "ask", "tool": "echo"}]}
    write(machine, {"s": server.entry(approval="allow")}, policy=rules)
    refused = fairlead("call", "s", "echo")
    assert refused.status == 3
    assert re.search(r"change the rule in .*fairlead\.json:\d+", refused.err)
    assert follow(fairlead, refused.err.split("hint:")[1]).status == 0
    assert server.calls("echo") == 1


def test_a_changed_tool_is_let_go_by_following_the_hints(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    begin = f"import runpy, sys; sys.argv[1:] = [open({str(script)!r}).read()]"
    run = f"runpy.run_path({scripted_program.__file__!r}, run_name='__main__')"
    write(machine, {"s": {"command": sys.executable, "args": ["-c", f"{begin}; {run}"]}})

    def says(*tools: dict[str, Any]) -> None:
        script.write_text(json.dumps({"record": str(tmp_path / "record"), "tools": tools}))

    says(PLAIN)
    assert fairlead("review", "s", "--allow", "all").status == 0
    assert fairlead("call", "s", "echo").status == 0
    says({**PLAIN, "description": "Say it to everybody."})
    refused = fairlead("call", "s", "echo")
    assert refused.status == 3
    shown = follow(fairlead, refused.err.split("hint:")[1])
    assert shown.status == 3, "it shows what changed, and allows nothing by itself"
    assert "+Say it to everybody." in shown.out
    assert fairlead("call", "s", "echo").status == 3
    hint = shown.err.split("hint:")[1].replace("NAMES --ask NAMES --deny NAMES", "echo")
    assert follow(fairlead, hint).status == 0
    assert fairlead("call", "s", "echo").status == 0, "its answer is still there"


def test_a_tool_that_a_lock_holds_back_is_let_go_by_following_the_hint(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="trusted", approval="allow")})
    assert fairlead("lock").status == 0
    other = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "description": "Another."}])
    entry = other.entry(trust="trusted", approval="allow")
    write(machine, {"s": entry})
    refused = fairlead("call", "s", "echo")
    assert refused.status == 3, refused.err
    commands = re.findall(r"`fairlead ([^`]+)`", refused.err.split("hint:")[1])
    for command in commands:
        fairlead(*shlex.split(command))
    assert fairlead("call", "s", "echo").status == 0, commands


# The newcomer's path.


async def test_add_one_answer_and_an_agent_calls(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, SLY])
    added = await anyio.to_thread.run_sync(
        lambda: fairlead("add", "s", "--scope", "user", "--allow", "echo", "--", *server.argv)
    )
    assert added.status == 0, added.err
    assert "1 more of its tools" in added.err
    assert entry(machine)["allow_tools"] == ["echo"]
    assert entry(machine)["approval"] == {"tools": {"echo": "allow"}}
    assert await call_over_gateway(machine) == "called"
    assert await call_with_library(machine, as_model=True) == "called"


@pytest.mark.parametrize(
    ("allow", "expected"),
    [("all", ["echo", "sly"]), ("none", None), ("ec*", ["echo"]), ("echo,sly", ["echo", "sly"])],
)
def test_add_takes_the_answer_without_a_terminal(
    machine: Machine, tmp_path: Path, fairlead: Fairlead, allow: str, expected: list[str] | None
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, SLY])
    outcome = fairlead("add", "s", "--allow", allow, "--", *server.argv)
    assert outcome.status == 0, outcome.err
    assert entry(machine).get("allow_tools") == expected
    assert fairlead("call", "s", "echo").status == (0 if expected else 3)


def test_a_name_that_means_no_tool_is_an_error_and_nothing_is_written(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted")})
    before = machine.user_file.read_text()
    for words in (["--allow", "ecko"], ["--deny", "x*"], ["--ask", "echo,nothing"]):
        outcome = fairlead("review", "s", *words)
        assert outcome.status == 1
        assert "there is no tool" in outcome.err
    assert machine.user_file.read_text() == before


# Several servers.


def several(machine: Machine, tmp_path: Path) -> dict[str, ScriptedServer]:
    servers = {
        "good": ScriptedServer(tmp_path / "good", tools=[READ]),
        "sly": ScriptedServer(tmp_path / "sly", tools=[PLAIN, SLY]),
        "mine": ScriptedServer(tmp_path / "mine", tools=[READ, {**DESTROY, "name": "drop"}]),
    }
    trust = {"mine": "trusted"}
    write(machine, {n: s.entry(trust=trust.get(n, "untrusted")) for n, s in servers.items()})
    return servers


def test_all_servers_are_reviewed_with_the_preselected_answers(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    several(machine, tmp_path)
    shown = fairlead("review", "--all")
    assert shown.status == 3
    rows = [line.split()[:3] for line in shown.out.splitlines()[1:]]
    assert rows[0][0] in ("sly", "mine"), "what needs a closer look comes first"
    assert ["sly", "sly", "deny"] in rows
    outcome = fairlead("review", "--all", "--yes", "--json")
    assert outcome.status == 0, outcome.err
    found = {one["server"]: one for one in json.loads(outcome.out)["servers"]}
    assert (found["good"]["asked"], found["good"]["allowed"]) == (["echo"], [])
    assert (found["sly"]["asked"], found["sly"]["denied"]) == (["echo"], ["sly"])
    assert (found["mine"]["allowed"], found["mine"]["asked"]) == (["echo"], ["drop"])
    assert "nothing to decide" in fairlead("review", "--all").err
    assert "allow_tools" not in entry(machine, "mine")


def test_names_of_several_servers_are_answered_in_one_command(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    several(machine, tmp_path)
    outcome = fairlead("review", "good", "sly", "--allow", "echo", "--deny", "sly/sly", "--json")
    assert outcome.status == 0, outcome.err
    assert entry(machine, "good")["approval"] == {"tools": {"echo": "allow"}}
    assert entry(machine, "sly")["deny_tools"] == ["sly"]
    assert "approval" not in entry(machine, "mine")
    assert fairlead("review", "good", "sly", "--allow", "nothing").status == 1


def test_an_import_ends_in_one_screen_for_all_servers(machine: Machine, tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(11)]
    servers = {name: ScriptedServer(tmp_path / name, tools=[PLAIN]) for name in names}
    servers["s7"] = ScriptedServer(tmp_path / "s7", tools=[PLAIN, SLY])
    entries = {name: {"command": s.argv[0], "args": list(s.argv[1:])} for name, s in servers.items()}
    file = machine.project / "theirs.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    with at_terminal("import", str(file), env=machine.env, cwd=machine.project) as person:
        shown = person.sees("Record these answers?")
        assert shown.index("s7") < shown.rindex("s0")
        person.types("all")
        assert person.waits() == 0
    loaded = machine.load()
    for name in names:
        assert loaded.servers[name].entry["approval"] == {"tools": {"echo": "allow"}}, name
    assert loaded.servers["s7"].entry["deny_tools"] == ["sly"]


# Where commands went.


def test_earlier_spellings_say_what_replaced_them(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted")})
    for words in (["approve", "--pending"], ["gateway", "pending"]):
        assert "`fairlead approvals answer`" in fairlead(*words).err
    outcome = fairlead("review", "s", "--approve-all")
    assert outcome.status == 0
    assert "`--allow all`" in outcome.err
    assert fairlead("approvals", "list", "--json").status == 0
    assert json.loads(fairlead("approvals", "--json").out) == {"pending": [], "approvals": []}
    assert fairlead("approvals", "answer").status == 1
    assert fairlead("approvals", "answer", "abc", "perhaps").status == 2
    assert "--pending" not in fairlead("approve", "--help").out


def test_notices_name_the_command_once_for_each_server(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    several(machine, tmp_path)
    fairlead("tools", "--refresh")
    shown = fairlead("status").err
    assert shown.count("run `fairlead review good`") == 1
    assert shown.count("run `fairlead review sly`") == 1
    assert "review mine" not in shown


async def test_errors_are_of_the_family_that_programs_catch(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted", allow_tools=["echo"])})
    with anyio.fail_after(SECONDS):
        async with Host.open(machine.load(), env=machine.env) as host:
            with pytest.raises(ApprovalRequired):
                await host.call("s", "echo")
            with pytest.raises(CallDenied):
                await host.call("s", "other")


def test_a_review_says_which_of_its_answers_a_rule_leaves_without_effect(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    names = ("one", "two", "three", "four")
    server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": name} for name in names])
    rules = [
        {"action": "deny", "tool": "one", "reason": "not on this machine"},
        {"action": "ask", "tool": "t*"},
        {"action": "deny", "tool": "four", "principal": "group:interns"},
    ]
    write(machine, {"s": server.entry(trust="untrusted")}, policy={"rules": rules})
    said = fairlead("review", "s", "--allow", "one,two,four", "--ask", "three").err
    assert "`s.one` is still denied: not on this machine" in said
    assert "`s.two` is still subject to approval: a policy rule says `ask`" in said
    assert re.search(r"change that in \S+fairlead\.json:\d+", said)
    assert "s.three" not in said
    assert "s.four" not in said, "the rule is not about this user"


def test_tools_and_review_show_the_answer_of_each_tool(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, SLY, {**PLAIN, "name": "ask_me"}])
    write(machine, {"s": server.entry(trust="untrusted")})
    assert "has not been reviewed" in fairlead("call", "s", "echo").err
    shown = fairlead("review", "s").out
    assert re.findall(r"preselected answer: (\w+)", shown).count("ask") == 2
    assert re.search(r"looks suspicious: it wants secrets\n  preselected answer: deny", shown)
    fairlead("review", "s", "--allow", "echo", "--ask", "ask_me", "--deny", "sly")
    rows = {line.split()[0]: line.split()[1] for line in fairlead("tools", "s").out.splitlines()}
    assert (rows["s.echo"], rows["s.ask_me"], rows["s.sly"]) == ("allow", "ask", "deny")
    answers = [tool["answer"] for tool in json.loads(fairlead("tools", "s", "--json").out)["tools"]]
    assert sorted(answers) == ["allow", "ask", "deny"]
