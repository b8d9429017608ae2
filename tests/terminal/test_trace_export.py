"""Where spans go is what the environment says; where it says nothing, nothing is loaded."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from fairlead.connection.tracing import SpanDetails
from fairlead.terminal.trace_export import read_exporters, tracing
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.tracing_support import collecting

NOBODY_THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, ()),
        (NOBODY_THERE, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp")),
        ({"OTEL_TRACES_EXPORTER": "none", **NOBODY_THERE}, ()),
        ({"OTEL_TRACES_EXPORTER": "", **NOBODY_THERE}, ("otlp",)),
        ({"OTEL_SDK_DISABLED": "True", **NOBODY_THERE}, ()),
        ({"OTEL_SDK_DISABLED": "false", **NOBODY_THERE}, ("otlp",)),
        ({"OTEL_SERVICE_NAME": "agents"}, ()),
    ],
)
def test_the_usual_variables_mean_what_they_mean_elsewhere(
    env: dict[str, str], wanted: tuple[str, ...]
) -> None:
    assert read_exporters(env) == wanted


async def one_span() -> bool:
    """Make a span, if spans are wanted, and see them sent. Says whether they were."""
    with anyio.fail_after(30):
        async with tracing() as tracer:
            if tracer is not None:
                with tracer.requesting(SpanDetails(method="tools/call", name="echo"), None):
                    pass
        return tracer is not None


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]
)
async def test_a_way_out_that_is_not_known_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    for key, said in {**NOBODY_THERE, name: value}.items():
        monkeypatch.setenv(key, said)
    assert not await one_span()
    assert f"`{value}`" in capsys.readouterr().err


async def test_traces_that_need_the_extra_are_missed_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as if it were not installed
    assert not await one_span()
    assert capsys.readouterr().err.count("--extra otel") == 1


async def test_spans_can_be_shown_in_the_terminal_and_never_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert await one_span()
    shown = capsys.readouterr()
    assert '"name": "tools/call echo"' in shown.err
    assert not shown.out


async def test_a_collector_that_is_away_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert await one_span()


async def test_what_the_service_is_called_is_for_the_environment_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        assert await one_span()
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=agents")
        assert await one_span()
        assert [span.service for span in collector.spans] == ["fairlead", "agents"]


PROGRAM = """
import sys
from fairlead.cli.main import run
status = run(sys.argv[1:])
print(sum(name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")) for name in sys.modules))
sys.exit(status)
"""


def called(machine: Machine, tmp_path: Path, **env: str) -> tuple[str, str]:
    """Call a tool at the command line: what it was sent as `_meta`, and how much was loaded for traces."""
    server = ScriptedServer(tmp_path / "record", tools=["meta"])
    machine.write_user(json.dumps({"servers": {"s": server.entry()}}))
    words = [sys.executable, "-c", PROGRAM, "call", "s", "meta", "--yes"]
    whole = {**machine.env, **env}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=whole)
    meta, loaded = done.stdout.splitlines()
    return json.loads(meta).get("traceparent", ""), loaded


def test_where_nobody_wants_traces_nothing_is_loaded_and_nothing_sent(
    machine: Machine, tmp_path: Path
) -> None:
    assert called(machine, tmp_path, OTEL_SDK_DISABLED="true", **NOBODY_THERE) == ("", "0")


def test_a_call_at_the_command_line_is_recorded(machine: Machine, tmp_path: Path) -> None:
    with collecting() as collector:
        endpoint = f"{collector.url}/v1/traces"
        traceparent, _ = called(machine, tmp_path, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=endpoint)
        (span,) = collector.spans
        assert span.kind == "CLIENT"
        assert traceparent.startswith(span.place)
