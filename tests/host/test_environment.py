"""What a server's process gets to know of the environment."""

import json
import sys

import pytest

from fairlead.host.host import Host
from tests.conftest import Machine

TELL = "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))"


@pytest.mark.requirement("HARD-6", "NEED-23")
async def test_a_server_gets_what_is_declared_over_the_safe_part_of_the_hosts_own_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "of-the-process")
    told = machine.home / "told.json"
    entry = {"command": sys.executable, "args": ["-c", TELL, str(told)], "env": {"GIVEN": "${SECRET}"}}
    env = machine.env | {"LANG": "of-the-host", "SECRET": "s3cret", "AWS_SECRET_ACCESS_KEY": "never"}
    async with Host.open(overrides={"servers": {"s": entry}}, env=env, cwd=machine.project) as host:
        assert set(await host.connect("s")) == {"s"}  # it only tells, and exits
    seen = json.loads(told.read_text())
    assert (seen["LANG"], seen["GIVEN"]) == ("of-the-host", "s3cret")
    assert "SECRET" not in seen
    assert "AWS_SECRET_ACCESS_KEY" not in seen
