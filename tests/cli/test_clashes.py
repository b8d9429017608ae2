"""`fairlead lint` names resources that several servers have under one URI."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Machine, Outcome
from tests.host.asking import AskingServer


@pytest.mark.requirement("HARD-65")
def test_lint_names_clashing_resources(
    machine: Machine, fairlead: Callable[..., Outcome], tmp_path: Path
) -> None:
    notes = [{"uri": "file:///notes", "name": "notes"}]
    servers = {
        name: AskingServer(tmp_path / name, resources=notes, templates=[]).entry() for name in ("a", "b")
    }
    machine.write_user(json.dumps({"servers": servers}))
    found = fairlead("lint")
    assert "several servers have a resource `file:///notes`: `a`, `b`" in found.err
    assert "fairlead://server/a/file:///notes" in found.err
    said = json.loads(fairlead("lint", "--json").out)
    assert said["clashes"] == [{"uri": "file:///notes", "servers": ["a", "b"]}]
