"""Reviews of built-in servers, whose tools carry their server's id, and what `all` leaves out."""

import json
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.permission_support import PLAIN, Fairlead, entry, write
from tests.conftest import Machine

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
