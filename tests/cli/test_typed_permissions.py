"""What is typed about permissions means what it says, whatever names servers choose, and hints lead on."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.config.paths import store_file
from fairlead.policy.approvals import NAMESPACE, read_kept
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.testing import ScriptedServer
from tests.cli.permission_support import PLAIN, READ, SLY, Fairlead, entry, follow, write
from tests.conftest import Machine
from tests.loop.model_server import Calls, says, serving

# The user's own word for one call.


DENIALS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a rule": ({}, {"policy": {"rules": [{"action": "deny", "tool": "echo"}]}}),
    "a rule for all tools": ({}, {"policy": {"rules": [{"action": "deny"}]}}),
    "a rule on arguments": ({}, {"policy": {"rules": [{"action": "deny", "arguments": {"x": "/etc/**"}}]}}),
    "approval of the server": ({"approval": "deny"}, {}),
    "approval of the tool": ({"approval": {"tools": {"echo": "deny"}}}, {}),
    "approval of a glob": ({"approval": {"tools": {"ec*": "deny"}}}, {}),
    "the policy's approval": ({}, {"policy": {"approval": "deny"}}),
    "deny_tools": ({"deny_tools": ["echo"]}, {}),
    "a glob in deny_tools": ({"deny_tools": ["e*"]}, {}),
}
LISTS: dict[str, dict[str, Any]] = {
    "never reviewed": {"trust": "untrusted"},
    "in no list": {"trust": "untrusted", "allow_tools": ["other"]},
    "listed": {"trust": "untrusted", "allow_tools": ["echo"]},
    "trusted": {"trust": "trusted"},
    "trusted, in no list": {"trust": "trusted", "allow_tools": ["other"]},
}


@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.parametrize("denial", DENIALS)
def test_the_users_own_word_makes_no_call_that_is_denied_reviewed_or_not(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, denial: str, lists: str
) -> None:
    fields, document = DENIALS[denial]
    server = ScriptedServer(tmp_path / "record", tools=[READ, {**READ, "name": "other"}])
    write(machine, {"s": server.entry(**LISTS[lists], **fields)}, **document)
    arguments = ["--arg", "x=/etc/passwd"]
    outcome = fairlead("call", "s", "echo", "--yes", *arguments)
    assert outcome.status == 3, outcome.err
    assert server.calls("echo") == 0
    if denial == "a rule on arguments":
        assert fairlead("call", "s", "echo", "--yes", "--arg", "x=/tmp/a").status == 0
    if denial in ("a rule", "a rule for all tools"):
        assert re.search(r"change that rule in \S+fairlead\.json:\d+", outcome.err), outcome.err
        explained = json.loads(fairlead("explain", "tool", "echo", "--json").out)["tools"][0]
        assert "a policy rule says `deny`" in explained["approval"]["reason"]


@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.parametrize(
    "policy", [{"approval": "deny"}, {"rules": [{"action": "deny", "tool": "ec*"}]}], ids=["mode", "rule"]
)
def test_the_users_own_word_makes_no_call_that_the_administrator_denies(
    machine: Machine,
    fairlead: Fairlead,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: dict[str, Any],
    lists: str,
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    monkeypatch.setenv("FAIRLEAD_POLICY_PATH", str(file))
    server = ScriptedServer(tmp_path / "record", tools=[READ, {**READ, "name": "other"}])
    write(machine, {"s": server.entry(**LISTS[lists])})
    for words in ((), ("--yes",)):
        outcome = fairlead("call", "s", "echo", *words)
        assert outcome.status == 3, outcome.err
        assert "--yes" not in outcome.err, "what does not help is not named"
    assert server.calls("echo") == 0


def test_a_glob_in_deny_tools_is_named_with_its_line_before_a_review(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    write(machine, {"s": server.entry(trust="untrusted", deny_tools=["x", "ec*"])})
    refused = fairlead("call", "s", "echo").err
    place = re.search(r"take `ec\*` out of deny_tools in (\S+fairlead\.json):(\d+)", refused)
    assert place is not None, refused
    file, line = Path(place[1]), int(place[2])
    lines = file.read_text().splitlines()
    assert "ec*" in lines[line - 1]
    file.write_text(file.read_text().replace('"ec*"', '"y"'))
    assert follow(fairlead, refused.split("hint:")[1]).status == 0
    assert fairlead("call", "s", "echo").status == 0


# What is typed means what it says, whatever a server calls its tools.


@pytest.mark.parametrize(
    ("names", "words", "denied"),
    [
        (["a", "del_x", "del_*"], ["--allow", "all", "--deny", "del_*"], {"del_x", "del_*"}),
        (["del_x", "del_y", "del_x,del_y"], ["--deny", "del_x,del_y"], {"del_x", "del_y", "del_x,del_y"}),
        (["del_x", "del_y", "all"], ["--deny", "all"], {"del_x", "del_y", "all"}),
        (["a", "s/a"], ["--deny", "s/a"], {"a", "s/a"}),
        (["a", "none"], ["--deny", "none"], {"none"}),
        (["a", "b", "a,c"], ["--deny", "a,c"], {"a", "a,c"}),
        (["a", "[a]"], ["--deny", "[a]"], {"a", "[a]"}),
    ],
)
def test_what_is_denied_is_denied_in_every_reading(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, names: list[str], words: list[str], denied: set[str]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": name} for name in names])
    write(machine, {"s": server.entry(trust="trusted")})
    outcome = fairlead("review", "s", *words, "--json")
    assert outcome.status == 0, outcome.err
    assert {*json.loads(outcome.out)["denied"]} == denied


@pytest.mark.parametrize("option", ["--allow", "--ask"])
@pytest.mark.parametrize(
    ("names", "word", "meant"),
    [
        (["a", "del_x", "del_*"], "del_*", [{"del_*"}, {"del_x", "del_*"}]),
        (["get_x", "list_x", "get_x,list_x"], "get_x,list_x", [{"get_x,list_x"}, {"get_x", "list_x"}]),
        (["a", "b", "a,c"], "a,c", [{"a,c"}, {"a"}]),
        (["a", "s/a"], "s/a", [{"s/a"}, {"a"}]),
        (["a", "[a]"], "[a]", [{"[a]"}, {"a"}]),
        (["x", "?"], "?", [{"?"}, {"x", "?"}]),
    ],
)
def test_what_has_several_readings_allows_nothing_and_each_has_a_spelling(
    machine: Machine,
    fairlead: Fairlead,
    tmp_path: Path,
    option: str,
    names: list[str],
    word: str,
    meant: list[set[str]],
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": name} for name in names])
    write(machine, {"s": server.entry(trust="untrusted")})
    before = machine.user_file.read_text()
    refused = fairlead("review", "s", option, word)
    assert refused.status == 1, refused.err
    assert machine.user_file.read_text() == before
    spellings = re.search(r"may mean `(.*?)` or `(.*?)`:", refused.err)
    assert spellings is not None, refused.err
    for spelling, expected in zip(spellings.groups(), meant, strict=True):
        machine.user_file.write_text(before)
        outcome = fairlead("review", "s", option, *shlex.split(spelling), "--json")
        assert outcome.status == 0, outcome.err
        said = json.loads(outcome.out)
        assert {*said["allowed"], *said["asked"]} == expected


@pytest.mark.parametrize("keyword", ["all", "none"])
def test_all_and_none_are_keywords_and_a_tool_of_that_name_has_a_spelling(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, keyword: str
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, {**PLAIN, "name": keyword}])
    write(machine, {"s": server.entry(trust="untrusted")})
    typed = json.loads(fairlead("review", "s", "--allow", keyword, "--json").out)["allowed"]
    assert {*typed} == ({"echo", "all"} if keyword == "all" else set[str]())
    write(machine, {"s": server.entry(trust="untrusted")})
    spelled = f"[{keyword[0]}]{keyword[1:]}"
    typed = json.loads(fairlead("review", "s", "--allow", spelled, "--json").out)["allowed"]
    assert typed == [keyword]


@pytest.mark.parametrize("words", [["--allow", "none"], ["--allow", ""], ["--allow", ","]])
def test_an_answer_that_names_no_tool_says_so(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, words: list[str]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted")})
    outcome = fairlead("review", "s", *words)
    assert outcome.status == 0
    assert "nothing was changed" in outcome.err


HIDDEN_NAMES = ("a\u200bb", "a\u2060b", "a b ", "a\tb", "a\u202eb", "\u00e9\u200b,*", "x" * 300 + "\u200b")


@pytest.mark.parametrize("name", HIDDEN_NAMES)
def test_a_name_with_characters_that_do_not_show_is_settled_by_the_hint(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, name: str
) -> None:
    names = [name, *{"ab", "a\u200cb", "a b"} - {name}]
    server = ScriptedServer(
        tmp_path / "record", tools=[{**PLAIN, "name": each} for each in names], any_tool=True
    )
    write(machine, {"s": server.entry(trust="untrusted")})
    refused = fairlead("call", "s", "--", name)
    assert refused.status == 3, refused.err
    assert name not in refused.err.split("hint:")[1]
    followed = follow(fairlead, refused.err.split("hint:")[1])
    assert followed.status == 0, followed.err
    assert list(entry(machine)["approval"]["tools"].values()) == ["allow"]
    assert fairlead("call", "s", "--", name).status == 0
    others = [fairlead("call", "s", other).status for other in names[1:]]
    assert others == [3] * len(others), "the hint allows no more than the tool"


SERVER_IDS = ("-s", "--all", "-", "tool", "server", "x" * 64, "9", "_")
SHELL_NAMES = ("a b", "it's", "$(touch x)", "`id`", "a;b", "-x", "--yes", "!", "~", "a\\b", "ünï", "n" * 200)


@pytest.mark.parametrize(
    ("server_id", "name"),
    [*((each, "echo") for each in SERVER_IDS), *(("s", each) for each in SHELL_NAMES), ("-s", "-x")],
)
@pytest.mark.parametrize("fields", [{"trust": "untrusted"}, {"trust": "untrusted", "allow_tools": ["*"]}])
def test_hints_survive_a_shell_whatever_the_ids_and_names_are(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, server_id: str, name: str, fields: dict[str, Any]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": name}], any_tool=True)
    rules = [{"action": "ask", "tool": "*", "arguments": {"x": "1"}}]
    write(machine, {server_id: server.entry(**fields)}, policy={"rules": rules})
    refused = fairlead("call", "--", server_id, name)
    assert refused.status == 3, refused.err
    found = re.search(r"run `fairlead (review .*)` to allow it", refused.err)
    assert found is not None, refused.err
    # What a shell makes of the words as they stand.
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {found[1]}"], capture_output=True, check=True, cwd=tmp_path, timeout=20
    )
    words = shell.stdout.decode().split("\0")[:-1]
    assert words == shlex.split(found[1])
    assert not (tmp_path / "x").exists()
    assert fairlead(*words).status == 0
    assert fairlead("call", "--", server_id, name).status == 0
    asked = fairlead("call", "--arg", "x=1", "--", server_id, name)
    assert asked.status == 3
    call = re.search(r"call it yourself, with its arguments: `fairlead (call .*?)`; or change", asked.err)
    assert call is not None, asked.err
    words = shlex.split(call[1])
    at = words.index("--yes")
    assert fairlead(*words[:at], "--arg", "x=1", *words[at:]).status == 0


# Remembered answers, runs, and what is said beside.


def test_a_review_that_asks_or_denies_drops_answers_that_were_remembered(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, {**PLAIN, "name": "pid"}])
    write(machine, {"s": server.entry(trust="untrusted")})
    assert fairlead("review", "s", "--ask", "echo,pid").status == 0
    for name in ("echo", "pid"):
        assert fairlead("call", "s", name, "--yes", "--always").status == 0
        assert fairlead("call", "s", name).status == 0
    assert fairlead("review", "s", "--ask", "echo").status == 0
    assert fairlead("call", "s", "echo").status == 3, "a review is the newer word"
    assert fairlead("call", "s", "pid").status == 0, "and is about no other tool"
    for answer in ("--deny", "--ask"):
        assert fairlead("review", "s", answer, "pid").status == 0
        assert fairlead("call", "s", "pid").status == 3
    assert json.loads(fairlead("approvals", "--json").out)["approvals"] == []


def test_an_answer_that_was_given_again_after_a_change_is_one_row(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    for description in ("one", "two"):
        server = ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "description": description}])
        write(machine, {"s": server.entry(trust="untrusted")})
        assert fairlead("review", "s", "--ask", "echo").status == 0
        assert fairlead("call", "s", "echo", "--yes", "--always").status == 0
    # A review drops what is remembered; an answer of an earlier definition is left by a gateway or a copy.
    with open_database(store_file(machine.env)) as database:
        ((key, kept),) = read_kept(database.scan(NAMESPACE))
        older = msgspec.structs.replace(kept, approved_at=kept.approved_at - 100)
        database.put(NAMESPACE, f"{key}-older", msgspec.json.encode(older), expect=ANY)
    (row,) = json.loads(fairlead("approvals", "--json").out)["approvals"]
    assert row["approved_at"] == kept.approved_at
    assert fairlead("approvals", "list").out.count("echo") == 1
    assert fairlead("approvals", "forget", "s", "echo").err.count("needs approval again") == 1
    assert json.loads(fairlead("approvals", "--json").out)["approvals"] == []


def test_explain_names_an_answer_that_is_remembered(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted")})
    fairlead("review", "s", "--ask", "echo")
    assert "remembered" not in fairlead("explain", "tool", "echo").out
    fairlead("call", "s", "echo", "--yes", "--always")
    for words in (("tool", "echo"), ("s",)):
        shown = fairlead("explain", *words).out
        assert "`fairlead approvals forget s echo`" in shown, shown
    assert json.loads(fairlead("explain", "tool", "echo", "--json").out)["tools"][0]["remembered"] is True
    assert follow(fairlead, fairlead("explain", "tool", "echo").out).status == 0
    assert fairlead("call", "s", "echo").status == 3
    assert json.loads(fairlead("explain", "tool", "echo", "--json").out)["tools"][0]["remembered"] is False


def test_always_for_a_tool_that_agents_do_not_get_names_the_review(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {"s": server.entry(trust="untrusted")})
    called = fairlead("call", "s", "echo", "--yes", "--always")
    assert called.status == 0
    assert "agents may call" not in called.err
    assert follow(fairlead, called.err.split("hint:")[1]).status == 0
    assert fairlead("call", "s", "echo").status == 0


def test_a_run_without_a_terminal_tells_the_user_the_command_that_settles_it(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    with serving(says("openai", calls=[("c", "s.echo", {})]), says("openai", "done")) as api:
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        fields = {"allow_tools": ["echo"], "approval": {"tools": {"echo": "ask"}}}
        write(machine, {"s": server.entry(trust="untrusted", **fields)}, model=model)
        outcome = fairlead("run", "go")
    assert outcome.status == 3
    assert follow(fairlead, outcome.err.split("hint:")[1]).status == 0
    assert fairlead("call", "s", "echo").status == 0


def test_explain_says_that_a_group_is_no_principal(machine: Machine, fairlead: Fairlead) -> None:
    write(machine, {})
    outcome = fairlead("explain", "tool", "x", "--as", "group:interns")
    assert outcome.status == 2
    assert "--group interns" in outcome.err


@pytest.mark.parametrize("words", [["--later"], ["--enabled", "false"]])
def test_an_answer_that_could_not_be_given_is_refused_before_anything_is_added(
    machine: Machine, fairlead: Fairlead, words: list[str]
) -> None:
    write(machine, {})
    before = machine.user_file.read_text()
    outcome = fairlead("add", "s", "--allow", "all", *words, "--scope", "user", "--", "never-run")
    assert outcome.status == 2
    assert machine.user_file.read_text() == before


def test_what_is_allowed_though_it_looks_odd_is_named(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, SLY, {**PLAIN, "name": "pid"}])
    write(machine, {})
    words = ("--allow", "all", "--deny-tool", "pid", "--scope", "user")
    added = fairlead("add", "s", *words, "--", *server.argv)
    assert added.status == 0, added.err
    assert "look closer at `sly`" in added.err
    assert "more of its tools" not in added.err
    assert "look closer" not in fairlead("review", "s", "--allow", "echo").err


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trust": "trusted", "allow_tools": ["*"], "approval": "allow"}, "may call them without asking"),
        ({"trust": "trusted"}, "agents get all of them, and may call those"),
        ({"allow_tools": ["echo"]}, "agents get those in allow_tools, and calls need approval"),
        ({"approval": "allow"}, "agents get none of them before a review"),
        ({"trust": "trusted", "approval": {"tools": {"echo": "allow"}}}, "as `approval` says"),
        ({}, None),
    ],
)
def test_approve_says_what_a_projects_entry_lets_its_tools_do(
    machine: Machine, fairlead: Fairlead, fields: dict[str, Any], said: str | None
) -> None:
    machine.write_project(json.dumps({"servers": {"p": {"command": "never-run", **fields}}}))
    shown = fairlead("approve").out
    assert ("what its tools may do" in shown) is (said is not None)
    assert said is None or said in shown


@pytest.mark.parametrize(
    "broken",
    [
        {"command": "never-run", "args": 5},
        {"command": "never-run", "allow_tools": []},
        {"command": "never-run", "trust": "very"},
        {"url": 5, "approval": "allow"},
    ],
)
def test_a_mistake_in_one_entry_of_a_project_keeps_no_other_from_being_approved(
    machine: Machine, fairlead: Fairlead, broken: dict[str, Any]
) -> None:
    document = {"servers": {"broken": broken, "sound": {"command": "never-run"}}}
    machine.write_project(json.dumps(document))
    shown = fairlead("approve")
    assert shown.status == 3
    assert "sound, from" in shown.out
    assert "broken, from" not in shown.out, "there is no telling what would run"
    assert "`broken` cannot be approved before its entry is mended" in shown.err
    refused = fairlead("approve", "broken", "--yes")
    assert refused.status == 1
    assert "servers.broken" in refused.err
    approved = fairlead("approve", "--all", "--yes")
    assert approved.status == 0
    assert "approved `sound`" in approved.err


def test_a_hint_names_the_entry_to_edit_where_a_review_cannot_write_it(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN])
    write(machine, {})
    for fields in ({"trust": "trusted", "approval": "deny"}, {"trust": "untrusted"}):
        document = {"servers": {"s": server.entry(**fields)}}
        monkeypatch.setenv("FAIRLEAD_CONFIG_JSON", json.dumps(document))
        refused = fairlead("call", "s", "echo")
        assert refused.status == 3
        assert "fairlead review" not in refused.err, "it could not write the answer"
        assert "write `allow_tools` and `approval` there by hand" in refused.err
    by_hand = {"trust": "untrusted", "allow_tools": ["echo"], "approval": {"tools": {"echo": "allow"}}}
    monkeypatch.setenv("FAIRLEAD_CONFIG_JSON", json.dumps({"servers": {"s": server.entry(**by_hand)}}))
    assert fairlead("call", "s", "echo").status == 0


@pytest.mark.parametrize(
    ("overlay", "own", "expected"),
    [
        ("deny", {"tools": {"echo": "allow"}}, "deny"),
        ("ask", {"tools": {"echo": "allow"}}, "ask"),
        ("ask", {"tools": {"echo": "deny"}}, "deny"),
        ("ask", {"default": "deny"}, "deny"),
        ("deny", {"default": "allow"}, "deny"),
        ("allow", {"tools": {"echo": "ask"}}, "ask"),
        ("auto", {"tools": {"echo": "deny"}}, "deny"),
    ],
)
def test_a_projects_mode_narrows_an_approval_by_tool_and_never_widens_it(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, overlay: str, own: dict[str, Any], expected: str
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    write(machine, {"s": server.entry(trust="trusted", approval=own)})
    fairlead("tools", "s")
    machine.write_project(json.dumps({"servers": {"s": {"approval": overlay}}}))
    fairlead("approve", "--all", "--yes")
    outcome = fairlead("explain", "tool", "echo", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["tools"][0]["verdict"] == expected
    assert fairlead("call", "s", "echo").status == 3


# `ID/TOOL` is a tool of that server.


def crossed(machine: Machine, tmp_path: Path, **document: Any) -> dict[str, ScriptedServer]:
    """A server with a tool, and one that calls its own tool by the first one's id and tool."""
    names = {"u": ["a", "b"], "evil": ["u/a", "u.a", "x"], "other": ["a"]}
    servers = {
        name: ScriptedServer(
            tmp_path / name, tools=[{**PLAIN, "name": each} for each in tools], any_tool=True
        )
        for name, tools in names.items()
    }
    fields = document.pop("fields", {})
    write(machine, {n: s.entry(trust="untrusted", **fields) for n, s in servers.items()}, **document)
    return servers


@pytest.mark.parametrize("which", [["--all"], ["u", "evil", "other"]])
@pytest.mark.parametrize("option", ["--allow", "--ask"])
def test_a_qualified_name_answers_for_that_server_alone(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, which: list[str], option: str
) -> None:
    crossed(machine, tmp_path)
    outcome = fairlead("review", *which, option, "u/a", "--json")
    assert outcome.status == 0, outcome.err
    said = {one["server"]: [*one["allowed"], *one["asked"]] for one in json.loads(outcome.out)["servers"]}
    assert said == {"u": ["a"], "evil": [], "other": []}


def test_a_tool_named_like_another_servers_is_allowed_by_its_own_spelling(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    crossed(machine, tmp_path)
    refused = fairlead("review", "evil", "--allow", "u/a")
    assert refused.status == 1
    assert "the tool of that name is 'u[/]a'" in refused.err
    assert follow(fairlead, fairlead("call", "evil", "u/a").err.split("hint:")[1]).status == 0
    assert fairlead("call", "evil", "u/a").status == 0
    assert fairlead("call", "u", "a").status == 3


@pytest.mark.parametrize("word", ["u/a", "u.a", "u/[a]"])
def test_a_run_allows_a_qualified_name_of_that_server_alone(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, word: str
) -> None:
    calls: Calls = [("c0", "u.a", {}), ("c1", "evil.u/a", {}), ("c2", "evil.u.a", {}), ("c3", "other.a", {})]
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        servers = crossed(machine, tmp_path, model=model, fields={"allow_tools": ["*"]})
        fairlead("tools", "--refresh")
        fairlead("run", "go", "--allow", word)
    assert {name: server.notes("called") for name, server in servers.items()} == {
        "u": ["a"],
        "evil": [],
        "other": [],
    }


@pytest.mark.parametrize(
    ("word", "called"),
    [("a", None), ("u.a", {"u": ["a"], "evil": []}), ("[a]", {"u": ["a"], "evil": ["a"]})],
)
def test_a_run_allows_no_tool_that_another_server_named_alike(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, word: str, called: dict[str, list[str]] | None
) -> None:
    servers = {
        name: ScriptedServer(tmp_path / name, tools=[{**PLAIN, "name": "a"}], any_tool=True)
        for name in ("u", "evil")
    }
    calls: Calls = [("c0", "u.a", {}), ("c1", "evil.a", {})]
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        entries = {n: s.entry(trust="untrusted", allow_tools=["*"]) for n, s in servers.items()}
        write(machine, entries, model=model)
        fairlead("tools", "--refresh")
        outcome = fairlead("run", "go", "--allow", word)
    if called is None:
        assert outcome.status == 1
        assert "`a` may mean `evil.a` or `u.a`: several servers have a tool of that name" in outcome.err
    assert {name: server.notes("called") for name, server in servers.items()} == (
        called or {"u": [], "evil": []}
    )


@pytest.mark.parametrize("option", ["--allow", "--ask"])
def test_a_review_of_all_servers_allows_no_tool_that_another_server_named_alike(
    machine: Machine, fairlead: Fairlead, tmp_path: Path, option: str
) -> None:
    crossed(machine, tmp_path)
    refused = fairlead("review", "--all", option, "a")
    assert refused.status == 1
    assert "`a` may mean `other.a` or `u.a`: several servers have a tool of that name" in refused.err
    assert "allow_tools" not in machine.user_file.read_text()
    denied = json.loads(fairlead("review", "--all", "--deny", "a", "--json").out)["servers"]
    assert {one["server"]: one["denied"] for one in denied if one["denied"]} == {"u": ["a"], "other": ["a"]}
    assert fairlead("review", "--all", option, "other.a").status == 0
