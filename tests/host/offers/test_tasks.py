"""Calls that go on in the background: waited for, looked after, and found again by the next host."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import CallDenied, CallFailed, FairleadError, StoreError
from fairlead.host.host import Host
from fairlead.host.offers.tasks import NAMESPACE
from fairlead.host.operator import UNATTENDED, Callbacks, FormAnswer, FormRequest, Operator
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY
from tests.conftest import Machine
from tests.host.support import unasked

SECONDS = 60
SERVER = Path(__file__).parents[2] / "fixtures" / "tasks_server.py"

LEGACY, MODERN = "2025-11-25", "2026-07-28"


@pytest.fixture(params=[LEGACY, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def name_ada(question: FormRequest) -> FormAnswer:
    return FormAnswer(action="accept", content={"name": "Ada"})


ADA = Callbacks(on_form=name_ada)


@asynccontextmanager
async def hosting(
    machine: Machine, era: str, operator: Operator = UNATTENDED, **fields: Any
) -> AsyncGenerator[Host]:
    """A host of one server whose tasks outlive its process."""
    arguments = ["-I", "-S", str(SERVER), str(machine.home / "tasks.json"), era]
    entry = {"command": sys.executable, "args": arguments, "trust": "trusted", **fields}
    servers = unasked({"x": entry})
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=servers, env=machine.env, cwd=machine.project, operator=operator
        ) as host:
            await host.require(["x"])
            assert host.status()[0].version == era
            yield host


class Mortal:
    """A server of tasks that can be killed, and then does not start again or has forgotten everything."""

    def __init__(self, machine: Machine, era: str) -> None:
        self._tasks = machine.home / "tasks.json"
        self._gone, self._pid = machine.home / "gone", machine.home / "pid"
        self._program = f"[ -e '{self._gone}' ] && exit 3; echo $$ >'{self._pid}'; exec \"$@\""
        self._arguments = [sys.executable, "-I", "-S", str(SERVER), str(self._tasks), era]

    @property
    def entry(self) -> dict[str, Any]:
        return {"command": "sh", "args": ["-c", self._program, "sh", *self._arguments]}

    def end(self, *, for_good: bool) -> None:
        if self._gone.exists() or not self._tasks.exists():
            return
        if for_good:
            self._gone.touch()
        self._tasks.unlink()
        os.kill(int(self._pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("for_good", [True, False], ids=["gone", "forgetful"])
async def test_a_call_whose_task_was_accepted_may_have_been_carried_out(
    machine: Machine, era: str, for_good: bool
) -> None:
    server = Mortal(machine, era)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        server.end(for_good=for_good)

    async with hosting(machine, era, **server.entry) as host:
        with pytest.raises(FairleadError) as raised:
            await host.call("x", "long", {"polls": 50}, on_progress=progressed)
    assert raised.value.delivery == "unknown"


async def test_an_error_that_a_task_ended_with_is_its_outcome(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "crash")
        assert begun.task is not None
        with pytest.raises(CallFailed, match="the disk is full") as raised:
            await host.tasks.result("x", begun.task.id)
    assert raised.value.delivery == "done"


async def test_a_call_whose_second_round_was_not_sent_may_have_been_carried_out(machine: Machine) -> None:
    server = Mortal(machine, MODERN)

    async def end(question: FormRequest) -> FormAnswer:
        (machine.home / "tasks.json").touch()
        server.end(for_good=True)
        return FormAnswer(action="accept", content={"name": "Ada"})

    async with hosting(machine, MODERN, Callbacks(on_form=end), **server.entry) as host:
        with pytest.raises(FairleadError) as raised:
            await host.call("x", "ask_first", {})
    assert raised.value.delivery == "unknown"


def _break(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the store fail where it keeps tasks."""
    works = getattr(AsyncStore, name)

    async def fail(self: AsyncStore, namespace: str, *given: Any, **more: Any) -> Any:
        if namespace == NAMESPACE:
            raise StoreError("the disk is full")
        return await works(self, namespace, *given, **more)

    monkeypatch.setattr(AsyncStore, name, fail)


async def test_a_store_that_fails_costs_neither_a_task_nor_its_result(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hosting(machine, MODERN) as host:
        kept = await host.tasks.begin("x", "work", {"text": "kept"})
        for name in ("put", "delete"):
            _break(monkeypatch, name)
        begun = await host.tasks.begin("x", "work", {"text": "not kept"})
        assert begun.task is not None
        assert kept.task is not None
        for task, text in ((begun.task, "not kept"), (kept.task, "kept")):
            assert (await host.tasks.result("x", task.id)).text == text


async def test_a_task_that_cannot_be_read_costs_no_other_and_is_no_ones(machine: Machine) -> None:
    async with hosting(machine, LEGACY) as host:
        mine = await host.tasks.begin("x", "work")
        theirs = await host.tasks.begin("x", "work", principal="token:ada")
        assert mine.task is not None
        assert theirs.task is not None
        store = host.store
        assert store is not None
        await store.put(NAMESPACE, f"x/{theirs.task.id}", b'{"of": "a newer release"}', expect=ANY)
        assert [task.task_id for task in await host.tasks.known()] == [mine.task.id]
        assert [task.id for task in await host.tasks.list("x")] == [mine.task.id]
        for principal in ("local", "token:ada"):
            with pytest.raises(StoreError, match="newer Fairlead"):
                await host.tasks.get("x", theirs.task.id, principal=principal)


@pytest.mark.parametrize("tool", ["work", "long"])
async def test_a_call_waits_for_work_in_the_background(machine: Machine, era: str, tool: str) -> None:
    reports: list[str | None] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        reports.append(message)

    async with hosting(machine, era) as host:
        result = await host.call("x", tool, {"text": "all of it", "polls": 2}, on_progress=progressed)
    assert result.text == "all of it"
    if tool == "long" or era == MODERN:  # the older era lets the client choose, and plain calls are simpler
        assert reports == ["1 to go", "0 to go", "over"]


async def test_a_task_is_begun_looked_at_and_fetched(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "work", {"text": "done", "polls": 1})
        assert begun.task is not None
        task = await host.tasks.get("x", begun.task.id)
        assert task.status == "working"
        assert [known.task_id for known in await host.tasks.known()] == [task.id]
        assert (await host.tasks.result("x", task.id)).text == "done"
        assert await host.tasks.known() == ()


async def test_what_is_quick_has_its_result_at_once(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "quick", {"text": "now"})
    assert begun.task is None
    assert begun.result is not None


async def test_a_task_is_found_again_after_a_restart_of_the_host(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        await host.tasks.begin("x", "work", {"text": "patience", "polls": 3})
    async with hosting(machine, era) as host:
        (known,) = await host.tasks.known()
        assert (known.server_id, known.tool) == ("x", "work")
        assert (await host.tasks.result(known.server_id, known.task_id)).text == "patience"


async def test_a_task_asks_a_person_and_goes_on(machine: Machine, era: str) -> None:
    async with hosting(machine, era, ADA) as host:
        begun = await host.tasks.begin("x", "greet")
        assert begun.task is not None
        result = await host.tasks.result("x", begun.task.id)
    assert result.text == "Hello, Ada!"


async def test_a_cancelled_task_is_over(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "endless")
        assert begun.task is not None
        await host.tasks.cancel("x", begun.task.id)
        assert (await host.tasks.get("x", begun.task.id)).status == "cancelled"
        with pytest.raises(CallFailed):
            await host.tasks.result("x", begun.task.id)


async def test_who_stops_waiting_stops_the_task(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "endless")
        assert begun.task is not None
        with anyio.move_on_after(0.2):
            await host.tasks.result("x", begun.task.id)
        assert (await host.tasks.get("x", begun.task.id)).status == "cancelled"


async def test_a_task_that_takes_too_long_is_given_up(machine: Machine, era: str) -> None:
    async with hosting(machine, era, max_request_ms=300) as host:
        begun = await host.tasks.begin("x", "endless")
        assert begun.task is not None
        with pytest.raises(CallFailed, match="not done after") as raised:
            await host.tasks.result("x", begun.task.id)
        assert raised.value.delivery == "unknown"
        assert (await host.tasks.get("x", begun.task.id)).status == "cancelled"


async def test_a_task_outlives_the_connection_it_was_begun_on(machine: Machine, era: str) -> None:
    async with hosting(machine, era) as host:
        begun = await host.tasks.begin("x", "work", {"text": "still here", "polls": 5})
        assert begun.task is not None
        await host.close("x")
        assert (await host.tasks.result("x", begun.task.id)).text == "still here"


async def test_the_older_era_lists_its_tasks(machine: Machine) -> None:
    async with hosting(machine, LEGACY) as host:
        for _ in range(3):
            await host.tasks.begin("x", "endless")
        assert len(await host.tasks.list("x")) == 3


async def test_what_may_not_be_called_may_not_be_begun_either(machine: Machine, era: str) -> None:
    async with hosting(machine, era, deny_tools=["work"]) as host:
        with pytest.raises(CallDenied):
            await host.tasks.begin("x", "work", confirmed=True)
