"""Reviews of built-in servers, whose tools carry their server's id, and what `all` leaves out."""

import json
import re
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.permission_support import PLAIN, Fairlead, entry, follow, write
from tests.conftest import Machine
from tests.loop.model_server import Calls, results_in, says, serving

TOOLS = {"repo": "readFile", "docs": "fetch", "edit": "delete", "shell": "run"}
ANSWERS = {"allow": "allow", "ask": "ask", "deny": "deny"}


@pytest.mark.parametrize("server", TOOLS)
def test_each_spelling_that_call_takes_is_taken_by_a_review_of_a_built_in_server(
    machine: Machine, fairlead: Fairlead, server: str
) -> None:
    tool = TOOLS[server]
    for spelling in (tool, f"{server}.{tool}", f"{server}/{tool}", f"{server}__{tool}"):
        for answer in ANSWERS:
            write(machine, {server: {"builtin": server, "trust": "trusted"}})
            outcome = fairlead("review", server, f"--{answer}", spelling)
            assert outcome.status == 0, (spelling, answer, outcome.err)
            said = json.loads(fairlead("explain", server, "--json").out)["tools"]
            verdicts = {one["tool"]: one["verdict"] for one in said}
            assert verdicts[f"{server}.{tool}"] == answer, (spelling, answer)
            written = entry(machine, server)
            named = {*written.get("deny_tools", ()), *written.get("approval", {}).get("tools", {})}
            assert named == {f"{server}.{tool}"}, "and no other tool"


@pytest.mark.parametrize("word", ["readFile", "repo/readFile", "repo.readFile", "repo.read*", "read*"])
def test_a_run_takes_the_spellings_of_a_built_in_servers_tool_that_a_review_takes(
    machine: Machine, fairlead: Fairlead, word: str
) -> None:
    (machine.project / "notes.txt").write_text("the text of the notes")
    calls: Calls = [("c0", "repo.repo.readFile", {"path": "notes.txt"})]
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        write(machine, {"repo": {"builtin": "repo", "trust": "trusted", "approval": "ask"}}, model=model)
        outcome = fairlead("run", "go", "--allow", word)
        assert outcome.status == 0, outcome.err
        told = results_in("openai", api.bodies[1])["c0"]
        assert "the text of the notes" in told, told


@pytest.mark.parametrize("word", ["delete", "edit.delete", "edit/delete"])
def test_an_answer_about_a_built_in_servers_tool_is_forgotten_in_each_spelling(
    machine: Machine, fairlead: Fairlead, word: str
) -> None:
    (machine.project / "old.txt").write_text("x")
    write(machine, {"edit": {"builtin": "edit", "trust": "trusted"}})
    assert fairlead("call", "edit.delete", "path=old.txt", "--yes", "--always").status == 0
    assert fairlead("approvals", "forget", "edit", "undo").status == 1
    assert fairlead("approvals", "forget", "edit", word).status == 0
    assert json.loads(fairlead("approvals", "--json").out)["approvals"] == []


def test_a_tool_of_a_built_in_server_that_is_denied_by_its_short_name_can_be_allowed_again(
    machine: Machine, fairlead: Fairlead
) -> None:
    write(machine, {"edit": {"builtin": "edit", "deny_tools": ["delete"]}})
    refused = fairlead("call", "edit.delete", "path=old.txt")
    assert refused.status == 3
    assert "take `delete` out of deny_tools" in refused.err
    (explained,) = json.loads(fairlead("explain", "tool", "edit.delete", "--json").out)["tools"]
    assert (explained["verdict"], explained["rule"]["reason"]) == (
        "deny",
        "listed in deny_tools, as `delete`",
    )


def test_a_tools_own_name_means_itself_and_a_denial_means_both(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    tools = [{**PLAIN, "name": name} for name in ("put", "s.put", "s.get")]
    server = ScriptedServer(tmp_path / "record", tools=tools)
    write(machine, {"s": server.entry(trust="untrusted")})
    assert fairlead("review", "s", "--allow", "put,get").status == 0
    assert entry(machine)["allow_tools"] == ["put", "s.get"], "`put` is no other tool for a server's sake"
    write(machine, {"s": server.entry(trust="untrusted")})
    assert fairlead("review", "s", "--deny", "put").status == 0
    assert sorted(entry(machine)["deny_tools"]) == ["put", "s.put"]


def test_names_count_more_than_all_also_in_one_word(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, {**PLAIN, "name": "other"}])
    write(machine, {"s": server.entry(trust="untrusted")})
    outcome = fairlead("review", "s", "--deny", "all", "--allow", "all,echo", "--json")
    said = json.loads(outcome.out)
    assert (said["allowed"], said["denied"]) == (["echo"], ["other"])


def test_all_says_what_it_leaves_out_and_how_that_is_allowed(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, {**PLAIN, "name": "other"}])
    write(machine, {"s": server.entry(trust="untrusted")})
    assert fairlead("review", "s", "--deny", "all").status == 0
    outcome = fairlead("review", "s", "--allow", "all")
    assert "nothing was changed" in outcome.err
    assert "`all` leaves out the 2 tools of `s` that are denied" in outcome.err
    assert "`fairlead review s --allow echo,other`" in outcome.err
    assert fairlead("review", "s", "--allow", "echo,other").status == 0
    assert fairlead("call", "s", "echo").status == 0


@pytest.fixture
def built_ins(fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in servers are there, as for every user."""
    monkeypatch.delenv("FAIRLEAD_BUILTINS")


@pytest.mark.usefixtures("built_ins")
@pytest.mark.parametrize("answer", ["allow", "ask"])
def test_a_built_in_servers_tool_that_one_projects_file_denies_is_settled_by_following_the_hint(
    machine: Machine, fairlead: Fairlead, answer: str
) -> None:
    (machine.project / "notes.txt").write_text("the text of the notes")
    call = ("call", "repo.readFile", "path=notes.txt")
    write(machine, {})
    assert fairlead("review", "repo", "--deny", "readFile", "--scope", "project").status == 0
    refused = fairlead(*call)
    assert refused.status == 3
    assert "`fairlead review repo --allow repo.readFile --scope project`" in refused.err
    refused = fairlead("review", "repo", f"--{answer}", "readFile")
    assert refused.status == 1
    assert follow(fairlead, refused.err.split("hint:")[1]).status == 0
    (said,) = json.loads(fairlead("explain", "tool", "readFile", "--json").out)["tools"]
    assert said["verdict"] == answer
    assert fairlead(*call, "--yes").status == 0


@pytest.mark.usefixtures("built_ins")
def test_a_tool_that_two_files_deny_is_settled_by_hand(machine: Machine, fairlead: Fairlead) -> None:
    denied = {"servers": {"repo": {"deny_tools": ["repo.readFile"]}}}
    machine.write_user(json.dumps(denied))
    machine.write_project(json.dumps(denied))
    said = fairlead("call", "repo.readFile", "path=x").err
    assert "take `repo.readFile` out of deny_tools in " in said
    assert "--scope" not in said


@pytest.mark.usefixtures("built_ins")
def test_hints_name_a_built_in_servers_tool_once(machine: Machine, fairlead: Fairlead) -> None:
    write(machine, {})
    assert (
        "its tools are repo.ripgrep, repo.readFile, repo.listDir"
        in fairlead("review", "repo", "--deny", "x").err
    )
    assert fairlead("review", "repo", "--deny", "readFile").status == 0
    refused = fairlead("call", "repo.readFile", "path=x").err
    assert "`fairlead review repo --allow repo.readFile`" in refused
    assert follow(fairlead, refused.split("hint:")[1]).status == 0


def test_a_server_in_the_place_of_a_built_in_one_may_have_tools_that_look_alike(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    tools = [{**PLAIN, "name": name} for name in ("put", "repo.put")]
    write(machine, {"repo": ScriptedServer(tmp_path / "record", tools=tools).entry(trust="untrusted")})
    refused = fairlead("review", "repo", "--allow", "repo.put")
    (choice,) = re.findall(r"`(repo\.repo\.put)`", refused.err)
    assert fairlead("review", "repo", "--allow", choice).status == 0
    assert entry(machine, "repo")["allow_tools"] == ["repo.put"]
