"""Traces through the gateway: from a client's span, over ours, to the server's."""

import json
import os
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from opentelemetry.trace import SpanKind

from fairlead.config.load import load_config
from fairlead.gateway.gateway import open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import Up, gateway, talk
from tests.conftest import Machine
from tests.gateway.support import HANDSHAKE, MODERN, ByName, Raw, serving, text_of, until
from tests.host.tracing_support import PARENT, TRACE_ID, Collector, Recorded, collecting, showing

SECRET = "hunter2-and-nobody-else"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"

META_INFO = {"name": "test", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": META_INFO,
}


class Client:
    """A client of a gateway in another process, of either era."""

    def __init__(self, up: Up, version: str) -> None:
        self._url = up.url
        self.version = version
        self.headers = {
            "Authorization": f"Bearer {up.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Mcp-Protocol-Version": version,
        }
        if version == HANDSHAKE:
            hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": META_INFO}
            self.session = self._post("initialize", hello)[0]["mcp-session-id"]
            self.headers["Mcp-Session-Id"] = self.session
            self._post("notifications/initialized", None)

    def call(self, tool: str, meta: Mapping[str, Any], **headers: str) -> Any:
        """Call a tool; the answer."""
        envelope = {**META, **meta} if self.version == MODERN else meta
        params = {"name": tool, "arguments": {"word": SECRET}, "_meta": envelope}
        if self.version == MODERN:
            headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        return self._post("tools/call", params, headers)[1]

    def _post(
        self, method: str, params: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, str], Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        message |= {} if params is None else {"id": 1, "params": params}
        sent = {**self.headers, **(headers or {})}
        request = urllib.request.Request(self._url, json.dumps(message).encode(), sent)
        with urllib.request.urlopen(request, timeout=60) as response:
            text: str = response.read().decode()
            named = {name.lower(): value for name, value in response.headers.items()}
        data = [
            line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: {", "{"))
        ]
        return named, json.loads(data[-1]) if data else None


def span_id_of(place: str) -> str:
    return place.split("-")[2]


def check_chain(collector: Collector, trace_id: str, parent: str, answer: Any, tool: str) -> None:
    """Is there one span for the request and one below it for what the server was asked, and no more?"""
    (server,) = collector.of("SERVER", trace_id)
    (client,) = collector.of("CLIENT", trace_id)
    assert (server.name, server.parent_id) == (f"tools/call {tool}", span_id_of(parent))
    assert (client.name, client.parent_id) == ("tools/call meta", server.span_id)
    assert json.loads(text_of(answer))["traceparent"].startswith(client.place)


@pytest.mark.slow
def test_a_trace_goes_on_through_a_gateway_to_servers_of_every_kind(machine: Machine, tmp_path: Path) -> None:
    old = ScriptedServer(tmp_path / "old", tools=["meta", "fail"])
    new = ScriptedServer(tmp_path / "new", tools=["meta"], version=MODERN, probe="answer")
    with collecting() as collector, showing(HANDSHAKE) as old_http, showing(MODERN) as new_http:
        allowed = {"approval": "allow", "trust": "trusted"}
        entries = {
            "old": old.entry(**allowed),
            "new": new.entry(**allowed),
            "old-http": old_http.entry(),
            "new-http": new_http.entry(),
        }
        machine.write_user(json.dumps({"servers": entries}))
        machine.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        machine.env["OTEL_SERVICE_NAME"] = "the gateway"
        calls: list[tuple[str, str, str, Any]] = []
        with gateway(machine) as up:
            clients = [Client(up, version) for version in (MODERN, HANDSHAKE)]
            for client in clients:
                for name in entries:
                    tool = f"{name}_meta"
                    trace_id = f"{len(calls) + 1:032x}"
                    parent = f"00-{trace_id}-00f067aa0ba902b7-01"
                    answer = client.call(tool, {"traceparent": parent, "baggage": f"who={SECRET}"})
                    calls.append((trace_id, parent, tool, answer))
            failed = clients[0].call("old_fail", {"traceparent": PARENT})
            assert failed["result"]["isError"]
            status, _ = up.stop()
            assert status == 0
        assert len(calls) == 8
        for trace_id, parent, tool, answer in calls:
            check_chain(collector, trace_id, parent, answer, tool)
            assert "baggage" not in json.loads(text_of(answer))
        for kind in ("SERVER", "CLIENT"):
            (span,) = collector.of(kind, TRACE_ID)
            assert span.has_failed
            assert span.attributes["error.type"] == "tool_error"
        assert {span.service for span in collector.spans} == {"the gateway"}
        assert {span.attributes["mcp.protocol.version"] for span in collector.spans} == {MODERN, HANDSHAKE}
        told = b"".join(collector.bodies)
        for secret in (SECRET, "it failed", str(up.token), clients[1].session):
            assert secret.encode() not in told


def test_a_gateway_over_stdio_records_too(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["meta", "refuse"])
    with collecting() as collector:
        entry = server.entry(approval="allow")
        machine.write_user(json.dumps({"servers": {"s": entry}}))
        machine.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": META_INFO}
        params = {"name": "s_meta", "arguments": {}, "_meta": {"traceparent": PARENT}}
        refused = {"name": "s_refuse", "arguments": {}, "_meta": {"traceparent": OTHER}}
        messages = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": refused},
        ]
        answers = talk(machine, messages)
        check_chain(collector, TRACE_ID, PARENT, answers[1], "s_meta")
        assert "error" in answers[2]
        (span,) = collector.of("SERVER", TRACE_ID)
        assert span.attributes["network.transport"] == "pipe"
        assert span.service == "fairlead"
        assert not collector.of("SERVER", OTHER[3:35])  # whose client did not want it recorded


@asynccontextmanager
async def recording(folder: Path, **servers: dict[str, Any]) -> AsyncGenerator[tuple[Raw, Recorded]]:
    """A gateway in this process, a client of it, and what is recorded."""
    env = {"HOME": str(folder), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    loaded = load_config(None, {"servers": servers}, env, folder)
    recorded = Recorded()
    with anyio.fail_after(60), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(loaded, env=env, tracer=recorded.tracer) as up,
            listening(up.app(ByName()), listener),
            aiohttp.ClientSession() as http,
        ):
            yield Raw(http, f"{url_of(listener)}/mcp"), recorded


async def test_every_request_is_one_span_whoever_answers_it(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "fail", "refuse"])
    async with recording(tmp_path, s=server.entry(approval="allow")) as (client, recorded):
        await client.modern("tools/list")
        await client.modern("tools/list", cursor="more")  # begun by the front, answered by the SDK's server
        await client.modern("tools/call", name="s_echo", arguments={}, meta={"progressToken": 1})
        await client.modern("tools/call", name="s_fail", arguments={}, meta={"progressToken": 1})
        await client.modern("tools/call", name="s_refuse", arguments={})
        await client.modern("resources/list")
        await client.begin()
        await client.older("resources/read", uri=f"file:///{SECRET}")
        await client.older("tools/call", name="n" * 1_000, arguments={})
    served = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    assert [(span.name, (span.attributes or {}).get("error.type")) for span in served] == [
        ("tools/list", None),
        ("tools/list", "-32602"),
        ("tools/call s_echo", None),
        ("tools/call s_fail", "tool_error"),
        ("tools/call s_refuse", "-32602"),
        ("resources/list", None),
        ("initialize", None),
        ("resources/read", "-32002"),
        (f"tools/call {'n' * 125}…", "-32602"),
    ]
    assert not any(SECRET in span.to_json() for span in recorded.spans)


async def test_a_call_whose_client_went_away_was_cancelled(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wait"])
    async with recording(tmp_path, s=server.entry(approval="allow")) as (client, recorded):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.modern, "tools/call", name="s_wait", arguments={}))
            await until(lambda: server.calls("wait") == 1)
            tasks.cancel_scope.cancel()
        await until(lambda: len(recorded.spans) == 2)
    assert [(span.attributes or {})["error.type"] for span in recorded.spans] == ["cancelled"] * 2


# Without a tracer.


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[Raw, Raw]]:
    """A gateway without a tracer in front of a server that all share, and two clients of it."""
    server = ScriptedServer(folder / "record", tools=["meta"], version=MODERN, probe="answer")
    entry = server.entry(approval="allow")
    async with serving(folder, s=entry) as up, aiohttp.ClientSession() as http:
        yield Raw(http, f"{up.url}/mcp", "ada"), Raw(http, f"{up.url}/mcp", "bob")


def traced(answer: Any) -> str | None:
    return json.loads(text_of(answer)).get("traceparent")


@pytest.mark.parametrize("more", [{}, {"progressToken": 7}], ids=["the short way", "the long way"])
async def test_without_a_tracer_a_trace_is_handed_on_as_it_came(
    tmp_path: Path, more: Mapping[str, Any]
) -> None:
    async with served(tmp_path) as (ada, bob):
        await bob.begin()

        async def modern(**meta: object) -> str | None:
            return traced(await ada.modern("tools/call", name="s_meta", arguments={}, meta={**more, **meta}))

        async def older(**meta: object) -> str | None:
            return traced(await bob.older("tools/call", name="s_meta", arguments={}, _meta={**more, **meta}))

        for ask in (modern, older):
            assert await ask(traceparent=PARENT) == PARENT
            assert await ask() is None
            assert await ask(traceparent=PARENT.upper()) is None
            assert await ask(traceparent=5) is None


@pytest.mark.parametrize("more", [{}, {"progressToken": 7}], ids=["the short way", "the long way"])
async def test_a_header_names_the_trace_where_the_request_itself_does_not(
    tmp_path: Path, more: Mapping[str, Any]
) -> None:
    async with served(tmp_path) as (ada, bob):
        await bob.begin()
        for client in (ada, bob):
            client.headers["traceparent"] = OTHER

        async def ask(meta: Mapping[str, Any]) -> list[str | None]:
            new = await ada.modern("tools/call", name="s_meta", arguments={}, meta={**more, **meta})
            old = await bob.older("tools/call", name="s_meta", arguments={}, _meta={**more, **meta})
            return [traced(new), traced(old)]

        assert await ask({}) == [OTHER, OTHER]
        assert await ask({"traceparent": PARENT}) == [PARENT, PARENT]


async def test_no_trace_crosses_from_one_client_to_another(tmp_path: Path) -> None:
    async with served(tmp_path) as (ada, bob):
        seen: dict[str, set[str | None]] = {"ada": set(), "bob": set(), "nobody": set()}

        async def ask(client: Raw, who: str, parent: str | None) -> None:
            meta = {"traceparent": parent} if parent else {}
            for _ in range(10):
                answer = await client.modern("tools/call", name="s_meta", arguments={}, meta=meta)
                seen[who].add(traced(answer))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, ada, "ada", PARENT)
            tasks.start_soon(ask, bob, "bob", OTHER)
            tasks.start_soon(ask, ada, "nobody", None)
        assert seen == {"ada": {PARENT}, "bob": {OTHER}, "nobody": {None}}
