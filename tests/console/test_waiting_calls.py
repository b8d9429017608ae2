"""Calls of agents that wait at a gateway, in the list of the command line and in the console."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from fairlead.errors import ArgumentsInvalid
from tests.cli.gateway_support import INITIALIZE, INITIALIZED, SECONDS, add_scripted, call, gateway, talk
from tests.conftest import Machine, Outcome
from tests.console.support import session_on

Fairlead = Callable[..., Outcome]


def test_calls_that_are_the_same_are_shown_once_and_can_be_answered_in_the_console(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine, tools=["echo"])
    document = json.loads(machine.user_file.read_text())
    document["servers"]["s"]["approval"] = "ask"
    machine.write_user(json.dumps(document))
    with gateway(machine), ThreadPoolExecutor() as threads:
        talks = [[INITIALIZE, INITIALIZED, call(3, "s_echo")] for _ in range(2)]
        asked = [threads.submit(talk, machine, each) for each in talks]
        deadline = time.monotonic() + SECONDS
        while len(waiting := json.loads(fairlead("approvals", "list", "--json").out)["pending"]) < 2:
            assert time.monotonic() < deadline
        first, second = (one["id"] for one in waiting)
        listed = fairlead("approvals", "list")
        assert listed.out.count("s.echo") == 1
        assert f"the same call waits as {second}" in listed.out
        assert "2 calls waiting" in listed.err

        async def answer_in_the_console() -> None:
            async with session_on(machine) as console:
                shown = await console.does("/approve")
                assert shown.count("s.echo") == 1
                assert f"/approve {first} once|session|always|no" in shown
                assert await console.does(f"/approve {first} once") == f"{first}: allowed once"
                assert await console.does(f"/approve {second} no") == f"{second}: not allowed"
                with pytest.raises(ArgumentsInvalid, match="is waiting"):
                    await console.does(f"/approve {first} once")

        anyio.run(answer_in_the_console)
        answers = [each.result(timeout=SECONDS)[-1] for each in asked]
        refused = ["error" in answer or answer["result"].get("isError", False) for answer in answers]
        assert sorted(refused) == [False, True]
