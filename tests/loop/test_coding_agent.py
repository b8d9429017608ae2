"""A model with the built-in servers `repo`, `edit` and `shell` (seed 002): a small coding agent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.test_run import configure
from tests.conftest import Machine, Outcome
from tests.loop.model_server import KEY, Reply, results_in, says, serving, tool_names
from tests.servers.shell.support import git, needs_bwrap

BROKEN = "def add(a, b):\n    return a - b\n"
TESTS = """\
import unittest

from sums import add


class SumTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""
# Without bytecode: Python takes that of a file which was changed within the second and kept its size.
RUN_TESTS = {"argv": ["/usr/bin/python3", "-B", "-m", "unittest", "-q"]}
ENTRY = {"trust": "trusted"}


@needs_bwrap
def test_a_model_mends_a_failing_test(
    fairlead: Callable[..., Outcome], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    (machine.project / "sums.py").write_text(BROKEN)
    (machine.project / "test_sums.py").write_text(TESTS)
    git(machine.project, "init", "-q")
    seen: list[str] = []

    def step(call: str, tool: str, arguments: dict[str, Any]) -> Callable[[dict[str, Any]], Reply]:
        def reply(body: dict[str, Any]) -> Reply:
            seen[:] = results_in("openai", body).values()
            name = next(
                name for name in tool_names("openai", body) if tool.lower() in name.replace("_", ".").lower()
            )
            return says("openai", calls=[(call, name, arguments)])

        return reply

    def end(body: dict[str, Any]) -> Reply:
        seen[:] = results_in("openai", body).values()
        return says("openai", "The test passes now." if "OK" in seen[-1] else "It still fails.")

    steps = (
        step("c1", "shell.run", RUN_TESTS),
        step("c2", "repo.readFile", {"path": "sums.py"}),
        step("c3", "edit.replace", {"path": "sums.py", "oldText": "a - b", "newText": "a + b"}),
        step("c4", "shell.run", RUN_TESTS),
        end,
    )
    with serving(*steps) as api:
        servers = {name: {"builtin": name, **ENTRY} for name in ("repo", "edit", "shell")}
        configure(machine, api, servers, policy={})
        refused = fairlead("run", "Mend the failing test.", "--allow", "repo.*")
        assert "FAILED" not in json.dumps(api.bodies), "no command was approved"
        assert (machine.project / "sums.py").read_text() == BROKEN
    with serving(*steps) as api:
        configure(machine, api, servers, policy={})
        done = fairlead("run", "Mend the failing test.", "--allow", "edit.replace,shell.run")
    assert refused.status != 0 or "The test passes now." not in refused.out
    assert (done.status, done.out) == (0, "The test passes now.\n")
    assert "FAILED" in seen[0]
    assert BROKEN in seen[1]
    assert "+    return a + b" in seen[2]
    assert "exit status 0" in seen[3]
    assert (machine.project / "sums.py").read_text() == BROKEN.replace("-", "+")
