"""What a host asks of servers, as parts of traces."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.trace import SpanKind, use_span

from fairlead.connection.tracing import Trace, carrying, read_trace
from fairlead.errors import CallRejected, ConnectionLost
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS, begin, hosting, unasked
from tests.host.tracing_support import MODERN, PARENT, TRACE_ID, Recorded, showing

ZEROES = "0" * 32


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "nonsense",
        PARENT.upper(),
        PARENT + " ",
        PARENT + "-00",
        PARENT[:-1],
        f" {PARENT}",
        f"{PARENT}\n",
        f"01{PARENT[2:]}",
        f"ff{PARENT[2:]}",
        f"00-{ZEROES}-b7ad6b7169203331-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-{'g' * 16}-01",
        "00-" + "a" * 1_000_000,
        7,
        None,
        ["a"],
    ],
)
def test_what_names_no_trace_as_the_standard_has_it_is_dropped(parent: object) -> None:
    assert read_trace({"traceparent": parent, "tracestate": "a=1"}) is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
        ("tenant@vendor=x y", True),
        ("a=1, b=2", True),
        ("", False),
        ("a", False),
        ("A=1", False),
        ("a=1=2", False),
        ("a=\u00e4", False),
        ("a=1\nb=2", False),
        ("a=" + "1" * 600, False),
        (",".join(f"k{number}=1" for number in range(33)), False),
        (5, False),
    ],
)
def test_a_trace_keeps_its_state_only_where_that_is_sound(state: object, kept: bool) -> None:
    trace = read_trace({"traceparent": PARENT, "tracestate": state, "baggage": "user=ada"})
    assert trace == Trace(PARENT, str(state) if kept else None)
    assert trace is not None
    assert trace.meta.keys() == ({"traceparent", "tracestate"} if kept else {"traceparent"})


@asynccontextmanager
async def recording(machine: Machine, **servers: Any) -> AsyncGenerator[tuple[Host, Recorded]]:
    recorded = Recorded()
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=unasked(servers), env=machine.env, cwd=machine.project, tracer=recorded.tracer
        ) as host:
            yield host, recorded


async def meta_of(host: Host, server_id: str = "x") -> Mapping[str, Any]:
    """What a server was sent in the `_meta` of a call."""
    return json.loads((await host.call(server_id, "meta", {"word": "hunter2"})).text)


@pytest.mark.parametrize(("version", "probe"), [("2025-11-25", -32601), (MODERN, "answer")])
async def test_a_call_is_a_span_that_the_server_is_told_of(
    machine: Machine, tmp_path: Path, version: str, probe: object
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["meta"], version=version, probe=probe)
    async with recording(machine, x=server.entry()) as (host, recorded):
        meta = await meta_of(host)
        (span,) = recorded.spans
        assert (span.name, span.kind, span.parent) == ("tools/call meta", SpanKind.CLIENT, None)
        assert span.attributes == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": version,
            "network.transport": "pipe",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "meta",
            "fairlead.server.id": "x",
        }
        assert span.context is not None
        assert meta["traceparent"][:52] == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}"
        assert "hunter2" not in span.to_json()


async def test_a_call_belongs_to_the_span_that_the_program_is_in(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["meta"])
    async with recording(machine, x=server.entry()) as (host, recorded):
        outer = recorded.provider.get_tracer("program").start_span("work")
        with use_span(outer):
            await meta_of(host)
        assert recorded.last.parent == outer.get_span_context()


async def test_a_trace_that_was_handed_in_goes_on_with_its_state(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["meta"])
    async with recording(machine, x=server.entry()) as (host, recorded):
        with carrying(Trace(PARENT, "vendor=1")):
            meta = await meta_of(host)
        assert recorded.last.parent is not None
        assert recorded.last.parent.is_remote
        assert f"{recorded.last.parent.span_id:016x}" == "b7ad6b7169203331"
        assert meta["traceparent"].startswith(f"00-{TRACE_ID}-")
        assert meta["traceparent"] != PARENT
        assert meta["tracestate"] == "vendor=1"


async def test_a_span_says_in_a_word_how_a_call_failed(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["crash", "fail", "refuse", "wait"])
    async with recording(machine, x=server.entry()) as (host, recorded):
        assert (await host.call("x", "fail")).is_error
        assert recorded.error == "tool_error"
        with pytest.raises(CallRejected):
            await host.call("x", "refuse")
        assert recorded.error == "-32602"
        assert (recorded.last.attributes or {})["rpc.response.status_code"] == "-32602"
        async with anyio.create_task_group() as tasks:
            (await begin(tasks, host, "x", "wait")).scope.cancel()
        assert recorded.error == "cancelled"
        with pytest.raises(ConnectionLost):
            await host.call("x", "crash")
        assert recorded.error == ConnectionLost.code


async def test_without_a_tracer_a_trace_is_handed_on_as_it_came(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["meta"])
    async with hosting(machine, x=server.entry()) as host:
        with carrying(Trace(PARENT, "vendor=1")):
            meta = await meta_of(host)
        assert (meta["traceparent"], meta["tracestate"]) == (PARENT, "vendor=1")
        assert "traceparent" not in await meta_of(host)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_a_connection_does_on_its_own_belongs_to_nobodys_trace(
    machine: Machine, version: str
) -> None:
    with showing(version) as server:
        async with recording(machine, x=server.entry()) as (host, recorded):
            with carrying(Trace(PARENT)):
                meta = await meta_of(host)  # which is also what starts and lists it
                assert meta["traceparent"].startswith(f"00-{TRACE_ID}-")
                await host.connect("x")
        traced = [each["method"] for each in server.messages if TRACE_ID in json.dumps(each)]
        assert traced == ["tools/call"]
        assert [span.name for span in recorded.spans] == ["tools/call meta"]
        assert (recorded.last.attributes or {})["network.transport"] == "tcp"


PROGRAM = """
import sys
import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from fairlead.testing import ScriptedServer, open_host
from pathlib import Path

provider = TracerProvider()
exporter = ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main():
    folder = Path(sys.argv[1])
    server = ScriptedServer(folder / "record", tools=["echo"])
    async with open_host(folder, x=server.entry()) as host:
        await host.call("x", "echo")

anyio.run(main)
"""


def test_a_program_with_a_tracer_provider_gets_spans_without_asking(machine: Machine, tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=machine.env)
    assert done.stdout.split("\n") == ["tools/call echo", ""]
