"""Every call that failed says how far it got: as data, to models, on the command line and in the console."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import click
import pytest
from mcp.shared.exceptions import MCPError

from fairlead import errors
from fairlead.catalog.results import ToolResult
from fairlead.console.screen import Screen
from fairlead.errors import CallTimedOut, ConnectFailed, FairleadError
from fairlead.gateway.carried_errors import decode_error, encode_error
from fairlead.gateway.client_session import rejection
from fairlead.gateway.control.server import work_at
from fairlead.loop.events import ToolReturned
from fairlead.terminal.output import noting_delivery, print_error
from fairlead.terminal.tables import call_line
from fairlead.testing.fixtures import open_host
from fairlead.testing.scripted import ScriptedServer
from tests.gateway.support import Raw, serving

MISSING = {"command": "no-such-program-anywhere", "trust": "trusted", "approval": "allow"}
NOT_SENT, UNKNOWN = "the call was not carried out", "the server may have carried out the call"


def test_every_error_has_a_delivery() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = [kind for kind in classes if issubclass(kind, FairleadError)]
    assert len(kinds) > 25
    for kind in kinds:
        error = kind.__new__(kind)
        expected = {"tool_failed": "done", "wait_timed_out": "unknown"}.get(kind.code, "not_sent")
        if not issubclass(kind, errors.CallFailed):
            assert error.delivery == expected


async def test_a_call_to_a_server_that_does_not_start_was_not_sent(tmp_path: Path) -> None:
    exits = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"], "trust": "trusted"}
    async with open_host(tmp_path, missing=MISSING, exits=exits, off={**MISSING, "enabled": False}) as host:
        for server_id in ("missing", "exits", "off"):
            with pytest.raises(FairleadError) as failed:
                await host.call(server_id, "any", {})
            assert failed.value.delivery == "not_sent"
            assert failed.value.delivery_notice == NOT_SENT
        answer = await host.tools.answer("nothing_like_it", {})
        assert answer.is_error
        assert NOT_SENT in answer.text


async def test_a_call_to_a_server_that_dies_may_have_been_carried_out(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["crash", "echo"])
    async with open_host(tmp_path, flaky=server.entry()) as host:
        with pytest.raises(FairleadError) as failed:
            await host.call("flaky", "crash", {})
        assert failed.value.delivery == "unknown"
        result = ToolResult.from_error(failed.value)
        assert UNKNOWN in result.text
        assert b'"fairlead/delivery":"unknown"' in result.raw


async def test_the_gateway_says_how_far_a_failed_call_got(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["crash", "echo", "refuse"])
    flaky: dict[str, Any] = server.entry(approval="allow")
    async with serving(tmp_path, flaky=flaky) as served, aiohttp.ClientSession() as http:
        modern, older = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp", "older")
        await older.begin()
        for request in (modern.modern, older.older):
            result = (await request("tools/call", 3, name="flaky_crash", arguments={}))["result"]
            assert result["isError"] is True
            assert result["_meta"]["fairlead/delivery"] == "unknown"
            error = (await request("tools/call", 4, name="flaky_none", arguments={}))["error"]
            assert error["data"]["fairlead/delivery"] == "not_sent"
            error = (await request("tools/call", 5, name="flaky_refuse", arguments={}))["error"]
            assert error["data"]["fairlead/delivery"] == "done"


@pytest.mark.parametrize(
    ("data", "delivery", "expected"),
    [
        (None, "done", {"fairlead/delivery": "done"}),
        ({"free": 0}, "unknown", {"free": 0, "fairlead/delivery": "unknown"}),
        ("a word", "done", {"data": "a word", "fairlead/delivery": "done"}),
    ],
)
def test_a_protocol_error_of_a_server_says_how_far_its_call_got(
    data: object, delivery: Any, expected: dict[str, Any]
) -> None:
    error = errors.CallRejected("x", "refused", rpc_code=-32602, data=data, untrusted=False)
    error.delivery = delivery
    sent = rejection(error).error
    assert (sent.code, sent.message, sent.data) == (-32602, "refused", expected)


@pytest.mark.parametrize(("is_entered", "delivery"), [(False, "not_sent"), (True, "unknown")])
async def test_a_command_whose_call_ends_with_a_protocol_error_may_have_been_carried_out(
    is_entered: bool, delivery: str
) -> None:
    @asynccontextmanager
    async def at(context: object, server_id: str) -> AsyncGenerator[None]:
        if not is_entered:
            raise MCPError(-32603, "too many")
        yield

    context: Any = SimpleNamespace(abilities={"form"}, client=SimpleNamespace(at=at))
    with pytest.raises(errors.CallFailed) as failed:
        async with work_at(context, "x"):
            raise MCPError(-32603, "given up")
    assert failed.value.delivery == delivery


@pytest.mark.parametrize(("delivery", "is_said"), [("unknown", True), ("not_sent", False), ("done", False)])
def test_a_models_call_that_may_have_been_carried_out_says_so(delivery: Any, is_said: bool) -> None:
    result = ToolResult.from_error(errors.CallFailed("x", "lost", delivery=delivery, hint="look"))
    line = call_line(ToolReturned(call_id="1", tool="x.y", seconds=0.1, result=result, hint="look"))
    assert (UNKNOWN in line) == is_said
    assert "lost" in line
    forged = b'{"content": [{"type": "text", "text": "no"}], "isError": true, "_meta": %b}'
    theirs = ToolResult("x", forged % b'{"fairlead/delivery": "unknown"}')
    assert UNKNOWN not in call_line(ToolReturned(call_id="1", tool="x.y", seconds=0.1, result=theirs))


@pytest.mark.parametrize(
    ("error", "notice"),
    [
        (ConnectFailed("x", "it would not start", hint="install it"), NOT_SENT),
        (CallTimedOut("x", "no answer", delivery="unknown"), UNKNOWN),
        (errors.CallDenied("no"), NOT_SENT),
        (errors.CallRejected("x", "refused", rpc_code=1), None),
    ],
)
def test_the_command_line_and_the_console_say_it(
    error: FairleadError, notice: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FairleadError), noting_delivery():
        raise error
    print_error(error)
    lines: list[str] = []
    Screen(lines.append).error(error)
    for said in (click.unstyle(capsys.readouterr().err), click.unstyle("\n".join(lines))):
        if notice is None:
            assert "note:" not in said
        else:
            assert said.count(notice) == 1


def test_an_error_that_ends_a_call_after_its_first_part_is_not_the_one_that_other_calls_get() -> None:
    error = ConnectFailed("x", "gone", hint="start it")
    later = error.after_sending()
    assert (error.delivery, later.delivery) == ("not_sent", "unknown")
    assert (type(later), str(later), later.hint, later.server_id) == (
        ConnectFailed,
        str(error),
        "start it",
        "x",
    )
    done = errors.CallRejected("x", "refused", rpc_code=1)
    assert done.after_sending() is done


def test_an_error_of_a_gateway_keeps_its_delivery() -> None:
    gone = ConnectFailed("x", "gone")
    refused = errors.CallRejected("x", "refused", rpc_code=1)
    for error in (gone, gone.after_sending(), refused, CallTimedOut("x", "late", delivery="unknown")):
        again = cast("Any", decode_error(encode_error(error)))
        assert type(again) is type(error)
        assert again.delivery == error.delivery
