"""What is kept of every call, what is not, and that keeping it never gets in anybody's way."""

import contextlib
import itertools
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.streams.text import TextReceiveStream

from fairlead.config.models import AuditSettings
from fairlead.config.principal import LOCAL
from fairlead.config.secrets.masking import MASK, Masker
from fairlead.policy.argument_shapes import MAX_KEYS, MAX_NAME, MORE, SafeNames, mask_arguments, shape_of
from fairlead.policy.audit import (
    LOG,
    NAMESPACE,
    AuditedCall,
    AuditLog,
    AuditQuery,
    AuditRecord,
    CallSubject,
    decode,
    latest_calls,
    latest_records,
    note,
)
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database
from tests.policy import auditing

PATIENCE = 60.0
TOKEN = "ghp_Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[AsyncStore]:
    async with AsyncStore.open(path) as store:
        yield store


@pytest.fixture
async def audit(store: AsyncStore) -> AuditLog:
    return await AuditLog.open(store, AuditSettings(), masker=Masker())


@contextlib.contextmanager
def write_locked(path: Path) -> Generator[None]:
    """A disk that takes nothing for as long as the block runs."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")


def propose(audit: AuditLog, tool: str = "search", **arguments: Any) -> AuditedCall:
    return audit.begin_call(
        principal=LOCAL, server="github", tool=tool, arguments=arguments, definition_digest="d1"
    )


async def kept(store: AsyncStore) -> list[AuditRecord]:
    records = [decode(record) for record in await store.read_log(LOG)]
    assert None not in records
    return [record for record in records if record is not None]


@pytest.mark.requirement("NEED-30")
async def test_a_quick_call_is_one_record_that_tells_it_whole(audit: AuditLog, store: AsyncStore) -> None:
    call = propose(audit, query="where", limit=3)
    call.record_decision("allow", "listed in allow_tools")
    call.record_sent()
    call.record_result("ok", "done", size=321, findings=["bidi"])
    (record,) = await kept(store)
    assert (record.kind, record.stage, record.principal) == ("call", "returned", LOCAL)
    assert (record.server, record.tool, record.definition_digest) == ("github", "search", "d1")
    assert (record.verdict, record.reason, record.by) == ("allow", "listed in allow_tools", "policy")
    assert (record.outcome, record.delivery, record.bytes) == ("ok", "done", 321)
    assert record.findings == ("bidi",)
    assert record.arguments == {"query": "string(5)", "limit": "integer"}
    assert record.seconds is not None
    assert record.sent_at is not None
    assert time.time() - 60 < record.at <= record.sent_at


async def test_a_call_that_lasts_is_on_disk_before_it_ends(
    audit: AuditLog, store: AsyncStore, path: Path
) -> None:
    call = propose(audit)
    call.record_ask()
    await store.flush()
    call.record_decision("allow", "you said so", by="person")
    call.record_sent()
    await store.flush()
    with open_database(path) as database:
        (waiting,) = latest_calls(database, AuditQuery(), 10)
        assert (waiting.stage, waiting.by, waiting.outcome) == ("sent", "person", "")
        call.record_result("call_timed_out", "unknown")
        await store.flush()
        (ended,) = latest_calls(database, AuditQuery(), 10)
        assert (ended.stage, ended.outcome, ended.delivery) == ("returned", "call_timed_out", "unknown")
        stages = [record.stage for record in latest_records(database, AuditQuery(), 10)]
    assert stages == ["asked", "sent", "returned"]


async def test_a_refused_call_says_why_and_that_nothing_was_sent(audit: AuditLog, store: AsyncStore) -> None:
    call = propose(audit)
    call.record_decision("deny", "listed in deny_tools")
    call.record_refusal("call_denied")
    (record,) = await kept(store)
    assert (record.stage, record.verdict, record.reason) == ("refused", "deny", "listed in deny_tools")
    assert (record.outcome, record.delivery, record.sent_at) == ("call_denied", "not_sent", None)


async def test_nothing_is_kept_of_a_call_that_was_only_proposed(audit: AuditLog, store: AsyncStore) -> None:
    propose(audit).record_decision("allow", "no rule matches")
    assert await kept(store) == []


@pytest.mark.requirement("NEED-30", "HARD-10")
async def test_arguments_are_kept_as_a_shape_and_nothing_of_what_they_say(
    audit: AuditLog, store: AsyncStore
) -> None:
    inner = {"deep": {"deeper": "hidden-1"}, "flag": True, "rows": [1, 2]}
    call = propose(audit, path="hidden-2", lines=["hidden-3"], ratio=0.5, none=None, inner=inner)
    call.record_sent()
    (record,) = await store.read_log(LOG)
    assert b"hidden" not in record.value
    assert json.loads(record.value)["arguments"] == {
        "path": "string(8)",
        "lines": "array(1)",
        "ratio": "number",
        "none": "null",
        "inner": {"deep": "object(1)", "flag": "boolean", "rows": "array(2)"},
    }


def test_names_of_arguments_are_bounded_cleaned_and_masked() -> None:
    masker = Masker()
    name = SafeNames(masker)
    hostile: dict[str, Any] = {f"k{number}": number for number in range(1000)}
    shape = shape_of({"a" * 10_000: 1, "b\u202e\x1b[31m\ud800c": 2, TOKEN: 3, **hostile}, name)
    assert len(shape) == MAX_KEYS + 1
    assert shape[MORE] == f"{1003 - MAX_KEYS} more"
    assert list(shape)[:3] == ["a" * MAX_NAME + MORE, "bc", MASK]
    assert len(msgspec.json.encode(shape)) < 2000
    assert list(shape_of({"learnt-later": 1}, name)) == ["learnt-later"]
    masker.learn("learnt-later")
    assert list(shape_of({"learnt-later": 1}, name)) == [MASK]


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (b'{"a": "xyz"}', {"a": "string(3)"}),
        (b"{nonsense", {MORE: "not JSON"}),
        (b'{"a": "%b"}' % (b"x" * 100_000), {MORE: "json(100009)"}),
    ],
    ids=["small", "broken", "large"],
)
def test_arguments_that_come_as_bytes_have_a_shape_too(raw: bytes, shape: dict[str, str]) -> None:
    assert shape_of(msgspec.Raw(raw), SafeNames(Masker())) == shape


@pytest.mark.requirement("NEED-30")
async def test_equal_arguments_have_equal_digests_in_every_run_of_one_store_and_no_other(
    store: AsyncStore, tmp_path: Path
) -> None:
    async def digest(store: AsyncStore, arguments: Any) -> str:
        audit = await AuditLog.open(store, AuditSettings())
        audit.begin_call(principal=LOCAL, server="s", tool="t", arguments=arguments).record_sent()
        return (await kept(store))[-1].arguments_digest

    first = await digest(store, {"pin": 1234, "user": "me"})
    assert len(first) == 32
    assert first == await digest(store, {"user": "me", "pin": 1234})
    assert first == await digest(store, msgspec.Raw(b'{"user": "me", "pin": 1234}'))
    assert first != await digest(store, {"pin": 1235, "user": "me"})
    assert await digest(store, {"not JSON": object()}) == ""
    async with AsyncStore.open(tmp_path / "other" / "store.db") as other:
        assert first != await digest(other, {"pin": 1234, "user": "me"})


@pytest.mark.requirement("NEED-30", "HARD-10")
async def test_values_are_kept_where_the_settings_say_so_and_secrets_are_masked_even_then(
    store: AsyncStore,
) -> None:
    masker = Masker()
    masker.learn("learnt-secret")
    audit = await AuditLog.open(store, AuditSettings(values=True), masker=masker)
    deep: Any = "bottom"
    for _ in range(50):
        deep = [deep]
    propose(
        audit,
        city="Berlin",
        password="hunter2",
        note=f"use {TOKEN} or learnt-secret",
        long="x" * 10_000,
        huge=1 << 100,
        deep=deep,
        headers={"Authorization": "abc", "many": list(range(1000))},
    ).record_sent()
    (record,) = await kept(store)
    values = record.values
    assert values["city"] == "Berlin"
    assert values["password"] == MASK
    assert values["note"] == f"use {MASK} or {MASK}"
    assert len(values["long"]) < 2100
    assert values["huge"] == MORE
    assert values["headers"]["Authorization"] == MASK
    assert len(values["headers"]["many"]) == 100
    assert "bottom" not in json.dumps(values)


def test_values_of_every_kind_can_be_kept() -> None:
    masker = Masker()
    raw = msgspec.Raw(
        b'{"a": [1, true, null, 0.5, "ghp_Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5"], "b": {"api_key": "x1"}}'
    )
    assert mask_arguments(raw, masker) == {"a": [1, True, None, 0.5, MASK], "b": {"api_key": MASK}}
    assert mask_arguments(msgspec.Raw(b"{nonsense"), masker) is None
    assert mask_arguments({"what": object(), "pair": ("a", "b")}, masker) == {
        "what": MORE,
        "pair": ["a", "b"],
    }


async def test_other_things_that_matter_are_noted_without_secrets(
    audit: AuditLog, store: AsyncStore, path: Path
) -> None:
    audit.record_event(
        "approval", principal="agent", server="github", details={"tool": "search", "for": "ever"}
    )
    await store.flush()
    with open_database(path) as database:
        note(database, AuditSettings(), "consent", server="fs", details={"file": "x.json", "token": TOKEN})
        note(database, AuditSettings(enabled=False), "consent")
    approval, consent = await kept(store)
    assert (approval.kind, approval.principal, approval.server) == ("approval", "agent", "github")
    assert approval.details == {"tool": "search", "for": "ever"}
    assert (consent.kind, consent.principal, consent.server) == ("consent", LOCAL, "fs")
    assert consent.details == {"file": "x.json", "token": MASK}


async def test_an_audit_that_is_off_or_has_no_store_keeps_nothing_and_stops_nobody(
    store: AsyncStore,
) -> None:
    for audit in (
        await AuditLog.open(None, AuditSettings()),
        await AuditLog.open(store, AuditSettings(enabled=False)),
    ):
        call = propose(audit, a=1)
        call.record_ask()
        call.record_decision("allow", "why not")
        call.record_sent()
        call.record_result("ok", "done")
        audit.record_event("login", principal=LOCAL)
        assert audit.lost == 0
    with anyio.fail_after(PATIENCE):
        await (await AuditLog.open(None, AuditSettings())).rotate()
    assert await kept(store) == []


async def test_a_disk_that_takes_nothing_fails_no_call_and_the_audit_says_what_it_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("fairlead.store.async_store.UNFLUSHED_RECORDS", 10)
    async with AsyncStore.open(path) as store:
        audit = await AuditLog.open(store, AuditSettings())
        with write_locked(path):
            for number in range(15):
                propose(audit, f"tool_{number}").record_sent()
        assert audit.lost == 5
        await store.flush()
        propose(audit, "after").record_sent()
        records = await kept(store)
    assert [record.tool for record in records] == [*(f"tool_{number}" for number in range(10)), "", "after"]
    assert (records[10].kind, records[10].details) == ("lost", {"records": 5})
    assert caplog.text.count("audit records are lost") == 1


async def test_a_call_that_ends_after_the_store_was_closed_is_only_lost(path: Path) -> None:
    async with AsyncStore.open(path) as store:
        audit = await AuditLog.open(store, AuditSettings())
    propose(audit).record_sent()
    assert audit.lost == 1


async def test_a_store_that_cannot_keep_the_key_is_no_reason_to_fail(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    async with AsyncStore.open(path) as store:
        with write_locked(path):
            audit = await AuditLog.open(store, AuditSettings())
        propose(audit, a=1).record_sent()
        assert (await kept(store))[0].arguments_digest


async def test_hosts_that_start_together_share_one_key(store: AsyncStore) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(AuditLog.open, store, AuditSettings())
    assert len(await store.scan(NAMESPACE, "key")) == 1


@pytest.mark.requirement("NEED-30")
async def test_old_and_surplus_records_are_dropped_by_one_process_now_and_then(
    store: AsyncStore, path: Path
) -> None:
    with open_database(path) as database:
        long_ago = time.time() - 10 * 86_400
        database.append_all([(LOG, long_ago, b"{}")] * 5 + [(LOG, time.time(), b"{}")] * 30)
    audit = await AuditLog.open(store, AuditSettings(keep_days=7, keep_records=20))
    await audit.prune()
    assert len(await store.read_log(LOG)) == 20
    for _ in range(5):
        store.append(LOG, b"{}")
    await audit.prune()
    assert len(await store.read_log(LOG)) == 25  # it was done a moment ago


async def test_rotation_goes_on_by_itself(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.policy.audit.ROTATION_SECONDS", 0.01)
    audit = await AuditLog.open(store, AuditSettings(keep_records=1))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(audit.rotate)
            for _ in range(3):
                store.append(LOG, b"{}")
                store.append(LOG, b"{}")
                for _ in itertools.count():
                    if len(await store.read_log(LOG)) == 1:
                        break
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_a_log_is_searched_from_its_end_by_what_is_wanted(
    audit: AuditLog, store: AsyncStore, path: Path
) -> None:
    for number in range(2500):
        call = propose(audit, f"tool_{number}")
        call.record_sent()
        call.record_result("tool_error" if number % 1000 == 0 else "ok", "done")
    store.append(LOG, b"what a newer version writes")
    await store.flush()
    with open_database(path) as database:

        def tools(limit: int = 100, **wanted: Any) -> list[str]:
            return [record.tool for record in latest_calls(database, AuditQuery(**wanted), limit)]

        assert tools(limit=2) == ["tool_2498", "tool_2499"]
        assert tools(outcome="tool_error") == ["tool_0", "tool_1000", "tool_2000"]
        assert tools(tool="tool_7") == ["tool_7"]
        assert tools(server="gitlab") == tools(principal="other") == []
        assert len(tools(limit=9000, since=time.time() - 3600, server="github", principal=LOCAL)) == 2500
        assert tools(since=time.time() + 3600) == tools(until=time.time() - 3600) == []


@pytest.mark.requirement("NEED-30")
async def test_a_kill_loses_at_most_the_last_moment_and_calls_under_way_are_known(path: Path) -> None:
    moment = 0.5  # 0.1 s is what is promised; a busy machine may take longer to write
    sent: list[float] = []
    with anyio.fail_after(PATIENCE):
        async with await anyio.open_process(auditing.command(path), stderr=None) as process:
            assert process.stdout is not None
            text = ""
            async for chunk in TextReceiveStream(process.stdout):
                text += chunk
                *lines, text = text.split("\n")
                sent += map(float, lines)
                if sent and sent[-1] > sent[0] + 3 * moment:
                    break
            killed = time.monotonic()
            process.kill()
            await process.wait()
    with open_database(path) as database:
        stored = database.read_log(LOG, limit=1_000_000)
        calls = latest_calls(database, AuditQuery(), 1_000_000)
    assert all(decode(record) is not None for record in stored)
    assert [call.tool for call in calls] == [f"tool_{number}" for number in range(len(calls))]
    assert len(calls) >= sum(when < killed - moment for when in sent)
    assert {call.stage for call in calls[1:-1:2]} == {"returned"}
    assert {call.stage for call in calls[0:-1:2]} == {"sent"}


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({"path": "a" * 256, "deep": True}, {"path": "string(256)", "deep": "boolean"}),
        ({"path": "a" * 257}, {"path": "string(257)"}),
        ({"k" * 300: 1}, {"k" * 120 + "…": "integer"}),
        ({7: "seven", "none": None}, {"7": "string(5)", "none": "null"}),
        ({"list": [1, 2]}, {"list": "array(2)"}),
        ({"object": {"inner": 1.5}}, {"object": {"inner": "number"}}),
        ({f"key_{number}": number for number in range(17)}, {f"key_{n}": "integer" for n in range(17)}),
        ({}, None),
    ],
)
async def test_arguments_are_recorded_as_they_were_when_the_call_was_proposed(
    audit: AuditLog, store: AsyncStore, arguments: dict[Any, Any], shape: dict[str, Any] | None
) -> None:
    call = audit.begin_call(principal=LOCAL, server="s", tool="t", arguments=arguments)
    same = audit.begin_call(principal=LOCAL, server="s", tool="t", arguments={**arguments})
    for value in arguments.values():
        if isinstance(value, list | dict):
            value.clear()
    arguments["later"] = "changed"
    call.record_sent()
    same.record_sent()
    first, second = await kept(store)
    assert (first.arguments or None) == shape
    is_nested = any(isinstance(value, list | dict) for value in arguments.values())
    if not is_nested:
        assert first.arguments_digest == second.arguments_digest


async def test_a_call_recorded_in_one_step_reads_as_one_recorded_step_by_step(
    audit: AuditLog, store: AsyncStore
) -> None:
    arguments: dict[str, Any] = {"query": "where", "limit": 3, "deep": None}
    by_steps = propose(audit, **arguments)
    by_steps.record_decision("allow", "listed in allow_tools")
    by_steps.record_sent()
    subject = CallSubject(server="github", tool="search", definition_digest="d1")
    at_once = audit.send(subject, LOCAL, arguments, "listed in allow_tools")
    arguments["later"] = "changed"
    for call in (by_steps, at_once):
        call.record_result("ok", "done", size=5)
    first, second = await kept(store)
    assert second.sent_at is not None
    assert second.at <= second.sent_at
    assert second.seconds is not None
    for record in (first, second):
        record.at = 0.0
        record.call, record.sent_at, record.seconds = "", None, None
    assert first == second


async def test_a_call_sent_in_one_step_that_lasts_is_on_disk_before_it_ends(
    audit: AuditLog, store: AsyncStore
) -> None:
    call = audit.send(CallSubject(server="s", tool="t"), LOCAL, {}, "allowed")
    (sent,) = await kept(store)
    call.record_result("call_timed_out", "unknown")
    _, ended = await kept(store)
    assert (sent.stage, sent.outcome, ended.stage, ended.outcome) == (
        "sent",
        "",
        "returned",
        "call_timed_out",
    )
    assert sent.call == ended.call


@pytest.mark.requirement("HARD-10")
async def test_a_secret_learnt_between_two_calls_is_in_no_record_from_then_on(store: AsyncStore) -> None:
    masker = Masker()
    audit = await AuditLog.open(store, AuditSettings(), masker=masker)
    secret = "correct-horse-battery"
    subject = CallSubject(server="s", tool=f"tool {secret}")
    audit.send(subject, LOCAL, {secret: 1}, f"because of {secret}").record_result("ok", "done")
    (before,) = await store.read_log(LOG)
    assert before.value.count(secret.encode()) == 3, "nothing said that it is secret"
    masker.learn(secret)
    audit.send(subject, secret, {secret: 1}, f"because of {secret}").record_result("ok", "done")
    _, after = await store.read_log(LOG)
    assert secret.encode() not in after.value
    assert after.value.count(MASK.encode()) == 4


async def test_limits_that_were_changed_apply_at_once(store: AsyncStore) -> None:
    audit = await AuditLog.open(store, AuditSettings(keep_records=100))
    for number in range(10):
        audit.record_event("add", principal="local", server=f"s{number}")
    await audit.prune()
    shorter = await AuditLog.open(store, AuditSettings(keep_records=3))
    await shorter.prune()
    assert len(await store.read_log(LOG)) == 3
