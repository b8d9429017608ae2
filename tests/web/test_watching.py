"""Watching calls, records and logs in the dashboard, and cancelling a call."""

import asyncio
import csv
import io
import json
import logging
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from fairlead.actions.logs import LogReader, server_log
from fairlead.config.paths import store_file
from fairlead.errors import CallFailed
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest
from fairlead.policy.audit import LOG, AuditQuery, AuditRecord, encode, latest_records
from fairlead.store.opening import open_database
from fairlead.testing import ScriptedServer
from fairlead.web.call_history import CallHistory, FinishedCall, summarize
from fairlead.web.charts import calls_chart, duration, latency_chart
from tests.conftest import Machine
from tests.web.support import dashboard
from tests.web.test_pages import EVIL, HIDDEN

NOW = 1_800_000_000.0


def finished(number: int, **fields: object) -> AuditRecord:
    known = {"at": NOW - number, "call": f"c-{number}", "stage": "returned", "server": "x", "outcome": "ok"}
    return AuditRecord(**(known | fields))  # pyright: ignore[reportArgumentType] - fields as tests name them


def append(path: Path, *records: AuditRecord) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_database(path) as database:
        for record in records:
            database.append(LOG, encode(record))


async def test_a_call_is_cancelled_for_its_caller_and_its_server_and_the_audit_log_says_by_whom(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wait", "echo"])
    failures: list[CallFailed] = []

    async def call() -> None:
        try:
            await board.host.call("x", "wait", principal="token:ada")
        except CallFailed as exc:
            failures.append(exc)
        await anyio.lowlevel.checkpoint()  # the task that made the call is not cancelled

    async with dashboard(machine, {"x": server.entry(approval="allow")}) as board, board.visited() as client:
        number = ""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            page = await client.sees("/calls", 'data-column="Progress">1</td>')
            assert "token:ada" in page.text
            number = page.text.split('name="cancel" value="')[1].split('"')[0]
            done = await client.send("/calls", "/calls", cancel=number, back="/calls?window=6h")
            assert done.headers["location"] == f"{client.base}/calls?window=6h"
        assert "Cancelled x.wait." in (await client.get("/calls")).text
        assert [error.delivery for error in failures] == ["unknown"]
        assert "the call was cancelled: `local` did so in the dashboard" in str(failures[0])
        assert (await board.host.call("x", "echo", {"a": 1})).text
        assert "notifications/cancelled" in server.notes("received")
        over = await client.send("/calls", "/calls", cancel=number)
        assert over.status == 409
        assert "that call is over" in over.text
        assert (await client.send("/calls", "/calls", cancel="x")).status == 409
        shown = (await client.get("/calls?outcome=failed")).text
        assert "x.wait" in shown
        assert "cancelled" in shown
        assert "x.echo" not in shown
        audit = (await client.get("/audit")).text
        assert "cancel call" in audit
        assert "in dashboard; tool: wait; for: token:ada" in audit


async def test_a_caller_who_gives_up_while_its_call_is_cancelled_is_cancelled(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wait"])
    async with dashboard(machine, {"x": server.entry(approval="allow")}) as board:
        callers: list[asyncio.Task[object] | None] = []
        ends: list[type[BaseException]] = []

        async def call() -> None:
            callers.append(asyncio.current_task())
            try:
                await board.host.call("x", "wait")
            except BaseException as exc:
                ends.append(type(exc))
                raise

        running = board.host.calls.running
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not any(each.progress for each in board.panel.activity.running):  # noqa: ASYNC110 - until it is sent
                await anyio.sleep(0.01)
            assert running.cancel(1, "a test did so")
            assert not running.cancel(1, "a test did so again")
            assert callers[0] is not None
            callers[0].cancel()
        assert ends == [asyncio.CancelledError]
        assert not board.panel.activity.running
        assert not running.cancel(1, "it is over")


def test_the_history_reads_what_is_new_counts_each_call_once_and_forgets_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    append(
        path,
        finished(9, at=NOW - 90_000),
        finished(5, stage="sent", outcome=""),
        finished(4, kind="restart", call=""),
        finished(3, outcome="tool_error"),
        finished(2, stage="refused", outcome="call_denied"),
    )
    history = CallHistory()
    with open_database(path) as database:
        history.read(database, NOW)
        assert [call.call for call in history.calls] == ["c-3", "c-2"]
        append(path, finished(5), finished(5), finished(1, stage="sent", outcome=""))
        database.append(LOG, b"not a record")
        history.read(database, NOW)
        assert [call.fate for call in history.calls] == ["failed", "refused", "ok"]
        history.read(database, NOW + 86_400 - 2.5)
        assert [call.call for call in history.calls] == ["c-2", "c-5"]
    small = CallHistory(most=2)
    with open_database(path) as database:
        small.read(database, NOW)
    assert len(small.calls) == 2
    assert small.is_full


def test_calls_are_counted_by_time_server_and_principal_with_percentiles() -> None:
    calls = [
        FinishedCall(
            at=NOW - 60 * n, server="a", principal="p", stage="returned", outcome="ok", seconds=n / 100
        )
        for n in range(1, 51)
    ]
    calls += [
        FinishedCall(
            at=NOW - 30, server="b", principal="q", stage="returned", outcome="tool_error", seconds=2.0
        ),
        FinishedCall(at=NOW - 30, server="b", principal="q", stage="refused", outcome="call_denied"),
        FinishedCall(at=NOW - 7200, server="c", principal="q", stage="returned", outcome="ok"),
    ]
    found = summarize(calls, now=NOW, seconds=3600.0)
    assert (found.all.ok, found.all.failed, found.all.refused) == (50, 1, 1)
    assert [*found.by_server] == ["b", "a"], "what fails comes first"
    assert [*found.by_principal] == ["q", "p"]
    assert found.by_server["a"].percentile(50) == 0.25
    assert found.by_server["a"].percentile(99) == 0.5
    assert sum(bucket.total for bucket in found.buckets) == 52
    charts = calls_chart(found, key="k").markup + latency_chart(found, key="l").markup
    assert 'role="img" aria-labelledby="k-title k-words"' in charts
    assert '<desc id="k-words">52 calls: 50 ok, 1 failed, 1 refused.</desc>' in charts
    assert "As a table" in charts
    assert "style=" not in charts
    empty = summarize([], now=NOW, seconds=900.0)
    assert "No call was sent." in latency_chart(empty, key="l").markup
    assert "0 calls" in calls_chart(empty, key="k").markup
    assert [duration(seconds) for seconds in (None, 0.0004, 0.25, 1.5, 200)] == [
        "-",
        "0.4 ms",
        "250 ms",
        "1.5 s",
        "3 min",
    ]


async def test_calls_are_filtered_and_counted_on_their_page(machine: Machine) -> None:
    now = time.time()
    append(
        store_file(machine.env),
        *(
            finished(n, at=now - n, server=server, tool="t", principal=who, outcome=outcome, seconds=0.01)
            for n, (server, who, outcome) in enumerate(
                [("a", "token:ada", "ok"), ("b", "token:bob", "tool_error"), ("b", "token:ada", "ok")] * 3
            )
        ),
    )
    async with dashboard(machine, {}) as board, board.visited() as client:
        every = (await client.get("/calls")).text
        assert "By server" in every
        assert "By principal" in every
        assert every.index(">b</a>") < every.index(">a</a>"), "failures first"
        failed = (await client.get("/calls?outcome=failed")).text
        assert "b.t" in failed
        assert "a.t" not in failed
        ada = (await client.get("/calls?principal=token%3Aada&server=b")).text
        assert "tool_error</span>" not in ada
        assert "No call fits." in (await client.get("/calls?server=nobody")).text


@pytest.mark.requirement("NEED-30")
async def test_the_audit_log_is_filtered_paged_and_exported_as_the_command_line_prints_it(
    machine: Machine,
) -> None:
    now = time.time()
    records = [finished(n, at=now - n, tool="t", outcome="ok" if n % 2 else "tool_error") for n in range(150)]
    dangerous = AuditRecord(at=now + 1, kind="review", principal="=1+1", server="x", details={"a": EVIL})
    append(store_file(machine.env), *reversed(records), dangerous)
    async with dashboard(machine, {}) as board, board.visited() as client:
        page = (await client.get("/audit")).text
        assert page.count("<tr") == 101
        older = page.split(">Older</a>")[0].rsplit('href="', 1)[1].split('"')[0].replace("&amp;", "&")
        assert 40 < (await client.get(older.removeprefix(client.base))).text.count("<tr") < 60
        odd = (await client.get("/audit?outcome=tool_error&span=1h")).text
        assert "tool_error" in odd
        assert ">ok</span>" not in odd
        assert "No record fits." in (await client.get("/audit?tool=nothing")).text
        assert (await client.get("/audit?until=nan&span=x")).status == 200
        exported = await client.get("/audit.csv?outcome=tool_error")
        assert exported.headers["content-type"].startswith("text/csv")
        assert "attachment" in exported.headers["content-disposition"]
        rows = [*csv.DictReader(io.StringIO(exported.text))]
        assert len(rows) == 75
        assert {row["outcome"] for row in rows} == {"tool_error"}
        everything = [*csv.DictReader(io.StringIO((await client.get("/audit.csv")).text))]
        assert everything[-1]["principal"] == "'=1+1", "no formula"
        lines = (await client.get("/audit.jsonl?tool=t")).text.splitlines()
        with open_database(store_file(machine.env)) as database:
            printed = [encode(each).decode() for each in latest_records(database, AuditQuery(tool="t"), 1000)]
        assert lines == printed
        assert json.loads(lines[-1])["call"] == "c-0"


@pytest.mark.requirement("HARD-41")
async def test_logs_are_searched_and_what_they_say_is_text(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", stderr=f"one\nTwo {EVIL}{HIDDEN}\nthree")
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        assert "x has logged nothing yet." in (await client.get("/logs?server=x")).text
        await board.host.connect("x")
        page = (await client.sees("/logs?server=x", "three")).text
        assert "The last 3 of 3 lines there are." in page
        assert 'tabindex="0" role="region" aria-label="Log of x"' in page
        found = (await client.get("/logs?server=x&q=two")).text
        assert "<mark>Two</mark>" in found
        assert "three" not in found
        assert "<script>alert" not in found
        assert "None of 3 lines contains that." in (await client.get("/logs?server=x&q=four")).text
        assert (await client.get("/logs?server=nobody")).status == 404
        assert (await client.get("/logs?server=../../etc/passwd")).status == 404
        logging.getLogger("fairlead.test").warning("said by the gateway", extra={"about": EVIL})
        own = (await client.get("/logs")).text
        assert "warning: said by the gateway" in own
        assert "<script>alert" not in own


def test_a_log_is_read_from_its_end_and_followed(tmp_path: Path) -> None:
    path = server_log({"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}, "x")
    reader = LogReader(path)
    assert reader.tail() is None
    assert reader.new_lines() == []
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\n")
    assert reader.new_lines() == ["one", "two"]
    assert reader.tail(6) == ["two"]
    with path.open("a") as log:
        log.write("three\n")
    assert reader.new_lines() == ["three"]
    path.write_text("new\n")
    assert reader.new_lines() == ["new"]


@pytest.mark.requirement("HARD-47")
async def test_calls_that_are_alike_are_answered_together_and_shown_whole(machine: Machine) -> None:
    async with dashboard(machine, {}) as board, board.visited() as client:
        answers: list[ApprovalAnswer] = []
        other = ""

        async def ask(path: str, principal: str) -> None:
            text = f"line one\n{EVIL}{HIDDEN}\nline three"
            request = ApprovalRequest(
                server_id="files",
                tool="write",
                arguments={"path": path, "content": text, "mode": 420, "tags": ["a", {"b": None}]},
                reason="no rule allows it",
                claims=("destructive", "closed-world"),
                principal=principal,
                preview=f"--- a/{path}\n-old\n+new {EVIL}",
            )
            answers.append(await board.queue.ask(request))

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(ask, f"/tmp/{number}", "token:ada")
            tasks.start_soon(ask, "/tmp/other", "token:bob")
            await anyio.wait_all_tasks_blocked()
            page = (await client.get("/approvals")).text
            assert "<title>(4) Approvals · fairlead</title>" in page
            assert 'data-waiting="4"' in page
            assert page.count("<article") == 2
            assert "Allow all 3 once" in page
            assert '<span class="tag warn">destructive</span>' in page
            assert "line one\n&lt;script&gt;" in page
            assert '<span class="went">  -old\n</span><span class="came">  +new &lt;script&gt;' in page
            assert "⟨U+202E⟩" in page
            assert "<code>420</code>" in page
            ids = page.split("Allow all 3 once")[0].rsplit("<form", 1)[1].split('name="id" value="')[1:]
            chosen = [each.split('"')[0] for each in ids]
            assert len(chosen) == 3
            token = (await client.get("/approvals")).form_token
            fields = [
                ("form_token", token),
                ("answer", "once"),
                *(("id", each) for each in chosen),
                ("id", "gone"),
            ]
            done = await client.post("/approvals", fields)
            assert done.status == 303
            said = (await client.get("/approvals")).text
            assert "Allowed: 3 calls. 1 call did not wait any more." in said
            assert answers == ["once"] * 3
            other = said.split('name="id" value="')[1].split('"')[0]
            assert (await client.send("/approvals", "/approvals", id=other, answer="no")).status == 303
        assert answers[-1] == "no"
        assert (await client.send("/approvals", "/approvals", id=other, answer="no")).status == 409


async def test_what_needs_the_user_comes_first(machine: Machine) -> None:
    machine.write_project(json.dumps({"servers": {"p": {"command": "no-such-program"}}}))
    servers = {"broken": {"command": "no-such-program", "trust": "trusted"}}
    async with dashboard(machine, servers) as board, board.visited() as client:
        await board.host.connect("broken")
        page = (await client.get("/")).text
        assert "Needs you" in page
        assert "no-such-program" in page
        assert "Hint: install it" in page
        assert "waits for your consent" in page
        assert f'href="{client.base}/servers/p/approve"' in page
        assert page.index("Needs you") < page.index("servers without trouble")
        assert page.index('id="restart-broken"') < page.index("waits for your consent")
    async with dashboard(machine, {"off": {"command": "x", "enabled": False}}) as board:
        machine.project_file.unlink()
        await board.configuration.reload()
        async with board.visited() as client:
            assert "Nothing needs you now." in (await client.get("/")).text
