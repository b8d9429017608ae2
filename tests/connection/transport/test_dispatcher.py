import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError

from fairlead.connection.outcomes import (
    ConnectionClosed,
    ConnectionEnding,
    NotEncodable,
    NotSent,
    RequestExpired,
    RequestRejected,
)
from fairlead.connection.transport import calls
from fairlead.connection.transport.memory import MemoryEnd
from tests.connection.servers import Context, answer_nothing, ignore, running

Params = Mapping[str, Any] | None


def pair(**options: Any) -> tuple[MemoryEnd, MemoryEnd]:
    ours, theirs = MemoryEnd(**options), MemoryEnd(**options)
    ours.join(theirs)
    return ours, theirs


async def echo(context: Context, method: str, params: Params) -> dict[str, Any]:
    return {"method": method, "params": params, "id": context.request_id}


async def hang(context: Context, method: str, params: Params) -> dict[str, Any]:
    await anyio.sleep_forever()
    return {}


async def test_a_request_brings_its_result_as_a_dict_or_as_bytes() -> None:
    ours, theirs = pair()
    async with running(ours, theirs, on_request=echo):
        with anyio.fail_after(10):
            assert await ours.send_raw_request("a", {"x": 1}) == {"method": "a", "params": {"x": 1}, "id": 1}
            assert bytes(await ours.call_raw("b", None)) == b'{"method":"b","params":null,"id":2}'
            raw = {"x": msgspec.Raw(b"[1,2]")}
            assert (await ours.send_raw_request("c", raw))["params"] == {"x": [1, 2]}


async def test_an_id_the_caller_chose_is_sent_as_it_is_and_only_once() -> None:
    ours, theirs = pair()
    async with running(ours, theirs, on_request=echo):
        with anyio.fail_after(10):
            assert (await ours.send_raw_request("a", None, {"request_id": "7"}))["id"] == "7"

    ours, theirs = pair()
    opts: CallOptions = {"request_id": "7"}
    async with running(ours, theirs, on_request=hang), anyio.create_task_group() as tasks:
        tasks.start_soon(ours.call_raw, "a", None, opts)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ValueError, match="already in flight"):
            await ours.call_raw("b", None, {"request_id": 7})
        tasks.cancel_scope.cancel()


async def test_the_stateless_era_reads_a_missing_result_type_as_complete() -> None:
    ours, theirs = pair()
    async with running(ours, theirs):
        with anyio.fail_after(10):
            modern: CallOptions = {"headers": {"mcp-protocol-version": "2026-07-28"}}
            assert await ours.send_raw_request("a", None, modern) == {"resultType": "complete"}
            assert await ours.send_raw_request("a", None) == {}


async def test_an_error_says_that_the_server_has_answered() -> None:
    async def refuse(context: Context, method: str, params: Params) -> dict[str, Any]:
        raise MCPError(-32001, "not today", {"when": "tomorrow"})

    ours, theirs = pair()
    async with running(ours, theirs, on_request=refuse):
        with anyio.fail_after(10), pytest.raises(RequestRejected) as caught:
            await ours.call_raw("a", None)

    assert (caught.value.code, caught.value.message) == (-32001, "not today")
    assert (caught.value.data, caught.value.delivery) == ({"when": "tomorrow"}, "done")


async def test_a_handler_that_breaks_answers_with_an_error_that_tells_nothing() -> None:
    async def fail(context: Context, method: str, params: Params) -> dict[str, Any]:
        raise KeyError("password")

    ours, theirs = pair()
    async with running(ours, theirs, on_request=fail):
        with anyio.fail_after(10), pytest.raises(RequestRejected) as caught:
            await ours.call_raw("a", None)

    assert (caught.value.code, caught.value.message) == (-32603, "internal error")


async def test_an_answer_that_is_no_json_is_an_error_too() -> None:
    async def answer(context: Context, method: str, params: Params) -> dict[str, Any]:
        return {"value": object()}

    ours, theirs = pair()
    async with running(ours, theirs, on_request=answer):
        with anyio.fail_after(10), pytest.raises(RequestRejected, match="internal error"):
            await ours.call_raw("a", None)


async def test_what_cannot_be_sent_is_not_sent_and_leaves_nothing_behind() -> None:
    ours, theirs = pair()
    async with running(ours, theirs, on_request=echo):
        with anyio.fail_after(10):
            with pytest.raises(NotEncodable):
                await ours.call_raw("a", {"x": float("nan")}, {"request_id": "mine"})
            assert await ours.send_raw_request("a", None, {"request_id": "mine"})


async def test_a_request_before_or_after_the_run_fails_at_once() -> None:
    ours, theirs = pair()
    with pytest.raises(RuntimeError, match="before run"):
        await ours.call_raw("a", None)
    async with running(ours, theirs):
        pass

    with pytest.raises(ConnectionClosed) as caught:
        await ours.call_raw("a", None)
    assert caught.value.delivery == "not_sent"
    await ours.notify("a", None)


async def test_closing_wakes_every_waiter_and_says_why() -> None:
    ours, theirs = pair()
    caught: list[ConnectionClosed] = []

    async def call() -> None:
        with pytest.raises(ConnectionClosed) as one:
            await ours.call_raw("a", None)
        caught.append(one.value)

    async with anyio.create_task_group() as tasks:
        await tasks.start(ours.run, answer_nothing, ignore)
        async with running(theirs, on_request=hang):
            for _ in range(20):
                tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(10):
            assert (await ours.wait_closed()).kind == "hung_up"

    assert [(one.delivery, one.ending) for one in caught] == [("unknown", ours.ending)] * 20


async def test_a_timeout_ends_the_call_and_tells_the_server() -> None:
    cancelled = anyio.Event()

    async def wait(context: Context, method: str, params: Params) -> dict[str, Any]:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return {}

    ours, theirs = pair()
    async with running(ours, theirs, on_request=wait):
        with anyio.fail_after(10):
            with pytest.raises(RequestExpired) as caught:
                await ours.call_raw("a", None, {"timeout": 0.01})
            await cancelled.wait()

    assert caught.value.delivery == "unknown"


@pytest.mark.parametrize("tell", [True, False])
async def test_a_cancelled_caller_tells_the_server_unless_it_must_not(tell: bool) -> None:
    notified: list[tuple[str, Params]] = []

    async def note(context: Context, method: str, params: Params) -> None:
        notified.append((method, params))

    ours, theirs = pair()
    async with running(ours, theirs, on_request=hang, on_notify=note):
        with anyio.move_on_after(0.01):
            await ours.call_raw("a", None, {"cancel_on_abandon": tell})
        await ours.notify("last", None)
        await anyio.wait_all_tasks_blocked()

    expected = ("notifications/cancelled", {"requestId": 1, "reason": "the caller gave up"})
    assert notified == [expected, ("last", None)] if tell else [("last", None)]


async def test_a_late_answer_is_ignored() -> None:
    answered = anyio.Event()

    async def answer_late(context: Context, method: str, params: Params) -> dict[str, Any]:
        with anyio.CancelScope(shield=True):
            await answered.wait()
        return {"from": method}

    ours, theirs = pair()
    async with running(ours, theirs, on_request=answer_late):
        with anyio.fail_after(10):
            with pytest.raises(RequestExpired):
                await ours.call_raw("first", None, {"timeout": 0.01, "cancel_on_abandon": False})
            answered.set()
            assert await ours.send_raw_request("second", None) == {"from": "second"}


async def test_progress_comes_in_order_to_whom_it_concerns() -> None:
    async def work(context: Context, method: str, params: Params) -> dict[str, Any]:
        for step in range(5):
            await context.progress(step, 5, f"step {step}")
        return {}

    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))
        if progress == 1:
            raise RuntimeError("a callback's errors are its own")

    ours, theirs = pair()
    async with running(ours, theirs, on_request=work):
        with anyio.fail_after(10):
            await ours.call_raw("quiet", None)
            await ours.call_raw("loud", {"_meta": {"kept": 1}}, {"on_progress": report})
            await anyio.wait_all_tasks_blocked()

    assert reports == [(float(step), 5.0, f"step {step}") for step in range(5)]


async def test_a_slow_progress_callback_gets_the_latest_reports() -> None:
    async def work(context: Context, method: str, params: Params) -> dict[str, Any]:
        for step in range(1_000):
            await context.progress(step)
        return {}

    reports: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        await anyio.lowlevel.checkpoint()

    ours, theirs = pair()
    async with running(ours, theirs, on_request=work):
        with anyio.fail_after(10):
            await ours.call_raw("a", None, {"on_progress": report})
            await anyio.wait_all_tasks_blocked()

    assert reports == sorted(reports)
    assert reports[-1] == 999


async def test_a_progress_callback_that_hangs_does_not_hold_up_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "MAX_REPORTING_SECONDS", 0.05)

    async def work(context: Context, method: str, params: Params) -> dict[str, Any]:
        for step in range(3):
            await context.progress(step)
        return {"done": True}

    reports: list[float] = []
    resumed = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        await resumed.wait()

    ours, theirs = pair()
    async with running(ours, theirs, on_request=work):
        with anyio.fail_after(10):
            assert await ours.send_raw_request("a", None, {"on_progress": report}) == {"done": True}
            resumed.set()
            await anyio.wait_all_tasks_blocked()

    assert reports == [0], "no progress is reported after the result"


async def test_a_handler_can_ask_back_and_is_closed_when_it_is_done() -> None:
    contexts: list[Context] = []

    async def ask_back(context: Context, method: str, params: Params) -> dict[str, Any]:
        contexts.append(context)
        if method == "question":
            return {"answer": 42}
        await context.notify("note", None)
        return await context.send_raw_request("question", None)

    ours, theirs = pair()
    async with running(ours, theirs, on_request=ask_back):
        with anyio.fail_after(10):
            assert await ours.send_raw_request("a", None) == {"answer": 42}
            assert not contexts[0].can_send_request
            with pytest.raises(MCPError):
                await contexts[0].send_raw_request("question", None)


@pytest.mark.requirement("HARD-46")
async def test_too_many_requests_at_once_are_refused_and_the_rest_answered() -> None:
    release = anyio.Event()
    refused: list[str] = []
    working = 0
    most = 0

    async def work(context: Context, method: str, params: Params) -> dict[str, Any]:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await release.wait()
        working -= 1
        return {}

    async def ask() -> None:
        try:
            await theirs.call_raw("sampling/createMessage", None)
        except RequestRejected as exc:
            refused.append(exc.message)
            if len(refused) == 1_992:
                release.set()

    ours, theirs = pair(max_inbound_requests=8)
    async with running(ours, theirs, on_request=work):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(2_000):
                    tasks.start_soon(ask)

    assert most == 8
    assert refused == ["too many requests at once"] * 1_992


@pytest.mark.requirement("HARD-46")
async def test_answers_that_the_server_does_not_take_do_not_pile_up() -> None:
    class SlowSender(MemoryEnd):
        waiting = 0
        taken = anyio.Event()

        async def post(self, frame: bytes, opts: CallOptions | None = None) -> None:
            self.waiting += 1
            await self.taken.wait()
            await super().post(frame)

    async def answer_at_once(context: Context, method: str, params: Params) -> dict[str, Any]:
        return {}

    refused: list[str] = []

    async def ask() -> None:
        try:
            await theirs.call_raw("sampling/createMessage", None)
        except RequestRejected as exc:
            refused.append(exc.message)
            if len(refused) == 192:
                ours.taken.set()

    ours, theirs = SlowSender(max_inbound_requests=8), MemoryEnd()
    ours.join(theirs)
    async with running(ours, theirs, on_request=answer_at_once):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(ask)
                    if number % 8 == 7:
                        await anyio.wait_all_tasks_blocked()  # what can be answered has been

    assert ours.waiting == 8
    assert refused == ["too many requests at once"] * 192


@pytest.mark.requirement("HARD-46")
async def test_a_flood_of_equal_notifications_is_handled_as_few() -> None:
    handled: list[str] = []
    last = anyio.Event()

    async def note(context: Context, method: str, params: Params) -> None:
        handled.append(method)
        if method == "last":
            last.set()

    ours, theirs = pair()
    async with running(ours, theirs, on_notify=note):
        with anyio.fail_after(30):
            for _ in range(20_000):
                await theirs.notify("notifications/tools/list_changed", None)
            await theirs.notify("last", None)
            await last.wait()

    assert len(handled) < 100
    assert handled[-1] == "last"


@pytest.mark.requirement("HARD-46")
async def test_where_notifications_come_too_fast_the_latest_are_kept() -> None:
    handled: list[Params] = []
    all_arrived, last = anyio.Event(), anyio.Event()

    async def note(context: Context, method: str, params: Params) -> None:
        await all_arrived.wait()
        handled.append(params)
        if params == {"number": 19_999}:
            last.set()

    ours, theirs = pair()
    async with running(ours, theirs, on_request=echo, on_notify=note):
        with anyio.fail_after(30):
            for number in range(20_000):
                await theirs.notify("notifications/message", {"number": number})
            await theirs.call_raw("ping", None)
            all_arrived.set()
            await last.wait()

    assert 1_000 <= len(handled) <= 1_001


async def test_a_notification_handler_that_breaks_is_asked_again() -> None:
    handled: list[str] = []
    second = anyio.Event()

    async def note(context: Context, method: str, params: Params) -> None:
        handled.append(method)
        if method == "second":
            second.set()
        raise RuntimeError(method)

    ours, theirs = pair()
    async with running(ours, theirs, on_notify=note):
        with anyio.fail_after(10):
            await theirs.notify("first", None)
            await theirs.notify("second", None)
            await second.wait()

    assert handled == ["first", "second"]


async def test_what_cannot_be_read_is_answered_or_noted() -> None:
    ours, theirs = pair()
    async with running(ours, theirs):
        with anyio.fail_after(10):
            for message in (
                b'{"id": 1, "method": "ping", "params": [1]}',
                b'{"id": 2, "method": "ping", "params": {"x": NaN}}',
                b'{"method": "notifications/message", "params": [1]}',
                b'{"id": null, "error": {"code": -32700, "message": "what?"}}',
                b'{"id": 99, "result": {}}',
                b"not a message",
            ):
                await theirs.post(message)
            assert await ours.send_raw_request("ping", None) == {}

    assert ours.noise.lines == (
        '{"id": 2, "method": "ping", "params": {"x": NaN}}',
        "[1]",
        '{"code": -32700, "message": "what?"}',
        "not a message",
    )


@pytest.mark.requirement("NEED-21")
async def test_a_call_that_failed_as_not_sent_is_not_sent_any_more() -> None:
    call = calls.Call(1, "tools/call", asyncio.get_running_loop().create_future())
    ending = ConnectionEnding(kind="hung_up", message="the server closed the stream")
    call.settle(ConnectionClosed(ending, call.delivery))
    with pytest.raises(NotSent):
        call.begin_sending()
    assert call.delivery == "not_sent"
