"""The resources of all servers, in both eras: listed together, read, filled in, watched."""

import base64
import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from fairlead.errors import CallFailed, CallRejected, ConnectFailed, UnknownServer
from fairlead.events import Event, ResourceUpdated, ServerState, StateChanged
from fairlead.host.host import Host
from fairlead.host.offers.contents import ResourceContents
from tests.conftest import Machine
from tests.host.asking import BOTH_ERAS, HANDSHAKE, MODERN, AskingServer, hosting, until

pytestmark = pytest.mark.requirement("NEED-36")


@pytest.fixture(params=BOTH_ERAS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=request.param)


async def test_resources_of_all_servers_are_listed_together(machine: Machine, tmp_path: Path) -> None:
    older = AskingServer(tmp_path / "older", version=HANDSHAKE, resources=[{"uri": "a://1", "name": "one"}])
    modern = AskingServer(
        tmp_path / "modern",
        version=MODERN,
        resources=[{"uri": "b://2", "name": "two", "size": 7, "extra": {}}, {"name": "no uri"}, 3],
        templates=[{"uriTemplate": "b://{n}", "name": "any", "mimeType": "text/plain"}],
    )
    broken = {"command": "/nowhere/at-all", "trust": "trusted"}
    async with hosting(machine, older=older.entry(), modern=modern.entry(), broken=broken) as host:
        found = await host.resources.list()
        assert [(item.server_id, item.uri, item.name) for item in found.items] == [
            ("older", "a://1", "one"),
            ("modern", "b://2", "two"),
        ]
        assert found.failures.keys() == {"broken"}
        assert isinstance(found.failures["broken"], ConnectFailed)
        templates = await host.resources.templates("modern")
        assert [(item.uri_template, item.mime_type) for item in templates.items] == [
            ("b://{n}", "text/plain")
        ]
        with pytest.raises(UnknownServer):
            await host.resources.list("nobody")


async def test_what_is_known_is_listed_without_starting_anything(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        assert await host.connect("x") == {}
    async with hosting(machine, x=server.entry()) as host:
        assert [item.uri for item in (await host.resources.list()).items] == ["test://a"]
        assert [item.name for item in (await host.resources.templates("x")).items] == ["any"]
    assert server.starts == 1


async def test_a_resource_is_read(machine: Machine, server: AskingServer) -> None:
    async with hosting(machine, x=server.entry()) as host:
        contents = await host.resources.read("x", "test://a b/é")
    assert contents.text == "test://a b/é"
    assert contents.content() == "test://a b/é".encode()
    assert [part["mimeType"] for part in contents.parts] == ["text/plain"]


async def test_a_template_is_filled_in_and_its_blanks_are_completed(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        uri = host.resources.expand("test://{name}{?q,r}", {"name": "a b", "q": "é"})
        assert uri == "test://a%20b?q=%C3%A9"
        assert (await host.resources.read("x", uri)).text == uri
        found = await host.resources.complete("x", "test://{name}", "name", "al", others={"q": "aloe"})
        assert found.values == ("alpha", "aloe")
        with pytest.raises(ValueError, match="brace"):
            host.resources.expand("test://{name", {})
    (asked,) = server.heard("completion/complete")
    assert asked["params"]["ref"] == {"type": "ref/resource", "uri": "test://{name}"}
    assert asked["params"]["context"] == {"arguments": {"q": "aloe"}}


@pytest.mark.parametrize("code", [-32601, -32602, -32603])
async def test_a_server_may_offer_what_it_did_not_declare_or_not(
    machine: Machine, tmp_path: Path, code: int
) -> None:
    for version in BOTH_ERAS:
        quiet = AskingServer(tmp_path / version, version=version, capabilities={"tools": {}})
        refused = {"resources/list": code, "resources/templates/list": code, "prompts/list": code}
        without = AskingServer(
            tmp_path / f"{version}-", version=version, capabilities={"tools": {}}, refused=refused
        )
        async with hosting(machine, quiet=quiet.entry(), without=without.entry()) as host:
            assert [item.uri for item in (await host.resources.list("quiet")).items] == ["test://a"]
            assert [item.name for item in (await host.resources.templates("quiet")).items] == ["any"]
            assert [item.name for item in (await host.prompts.list("quiet")).items] == ["greet"]
            assert (await host.resources.read("quiet", "test://a")).text == "test://a"
            assert (await host.resources.list("without")).items == ()
            assert (await host.prompts.list("without")).items == ()
            assert host.status()[1].state == "ready"


async def test_lists_that_are_null_are_empty(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", resources=None, templates=None, prompts=None)
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.resources.list("x")).items == ()
        assert (await host.prompts.list("x")).items == ()


async def test_a_refusal_is_an_error_and_says_so(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", refused={"resources/read": -32002})
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(CallRejected) as rejected:
            await host.resources.read("x", "test://nothing")
    assert rejected.value.rpc_code == -32002


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ([{"uri": "u", "blob": base64.b64encode(b"\0\xff").decode()}], b"\0\xff"),
        ([{"uri": "u", "text": "a"}, {"uri": "v", "blob": "Yg=="}], b"ab"),
        ([], b""),
    ],
)
async def test_what_is_in_a_resource_is_had_as_a_file_would_hold_it(parts: Any, content: bytes) -> None:
    assert _contents({"contents": parts}).content() == content


@pytest.mark.parametrize("parts", [[{"blob": "not base64!"}], [{"blob": 1}], [{"text": "a", "blob": "?"}]])
async def test_binary_data_that_is_none_is_an_error(parts: Any) -> None:
    with pytest.raises(CallFailed) as failed:
        _contents({"contents": parts}).content()
    assert failed.value.delivery == "done"


async def test_an_answer_without_contents_is_an_error() -> None:
    with pytest.raises(CallFailed, match="no contents"):
        _contents({"more": 1}).content()


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ("x", b"x"),
        ([1], b"1"),
        (None, b""),
        ({"uri": "u", "text": "a"}, b"a"),
        ([{"uri": "u", "text": "a", "blob": "Yg=="}], b"a"),
        ([{"uri": "u", "blob": "Y\ng"}], b"b"),
    ],
)
async def test_malformed_contents_are_read_as_what_they_mean(parts: Any, content: bytes) -> None:
    assert _contents({"contents": parts}).content() == content


@pytest.mark.parametrize("forged", [5, [5], "x", None, ["is not base64; given as text"]])
async def test_what_a_server_says_of_repairs_is_not_taken_for_ours(forged: Any) -> None:
    answer = {
        "contents": [{"uri": "a:b", "text": "x"}],
        "_meta": {"own": 1, "fairlead/repaired": forged},
    }
    contents = await ResourceContents.read("x", msgspec.Raw(json.dumps(answer).encode()), untrusted=False)
    assert json.loads(contents.raw)["_meta"] == contents.valid["_meta"] == {"own": 1}
    assert contents.content() == contents.content(unchanged=True) == b"x"


def _contents(answer: dict[str, Any]) -> ResourceContents:
    return ResourceContents("x", msgspec.Raw(json.dumps(answer).encode()))


# Changes.


async def test_a_changed_list_is_known_soon_and_in_the_next_run(
    machine: Machine, server: AskingServer
) -> None:
    other = {"resources": [{"uri": "test://new", "name": "new"}], "prompts": [{"name": "bow"}]}
    async with hosting(machine, x=server.entry()) as host:
        assert [item.uri for item in (await host.resources.list("x")).items] == ["test://a"]
        await host.call("x", "change", other)
        while [item.uri for item in (await host.resources.list("x")).items] != ["test://new"]:  # noqa: ASYNC110
            await anyio.sleep(0.02)
        assert [item.name for item in (await host.prompts.list("x")).items] == ["bow"]
    async with hosting(machine, x=server.entry()) as host:
        assert [item.uri for item in (await host.resources.list()).items] == ["test://new"]
    assert server.starts == 1


def is_state(state: ServerState) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, StateChanged) and event.state == state


async def update(host: Host, uri: str, below: str = "") -> None:
    await host.call("x", "update", {"uri": uri, "below": below})


async def test_who_watches_a_resource_is_told_of_changes_to_it_once_each(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        async with host.resources.watch("x", "test://a") as changed:
            async with host.resources.watch("x", "test://b", "test://a/") as others:
                await update(host, "test://b")
                assert await anext(others) == "test://b"
                await update(host, "test://a")
                assert await anext(changed) == "test://a"
                await update(host, "test://a", "/below")  # a part of what is watched
                assert await anext(changed) == "test://a/below"
                assert await anext(others) == "test://a/below"
            await update(host, "test://a", "bc")  # which is something else
            await update(host, "test://a")
            assert await anext(changed) == "test://a"
        told: list[str] = []
        while len(told) < 5:
            event = await until(events, lambda event: isinstance(event, ResourceUpdated))
            assert isinstance(event, ResourceUpdated)
            told.append(event.uri)
    assert told == ["test://b", "test://a", "test://a/below", "test://abc", "test://a"]


async def test_a_watch_outlives_the_connection_and_brings_it_back(
    machine: Machine, server: AskingServer
) -> None:
    async with (
        hosting(machine, x=server.entry()) as host,
        host.events() as events,
        host.resources.watch("x", "test://a") as changed,
    ):
        for _ in range(2):
            os.kill(server.notes("started")[-1], signal.SIGKILL)
            await until(events, is_state("error"))
            await until(events, is_state("ready"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_keep_updating, host)  # for the wish follows a moment later
                assert await anext(changed) == "test://a"
                tasks.cancel_scope.cancel()
    assert server.starts == 3


async def _keep_updating(host: Host) -> None:
    while True:
        await update(host, "test://a")
        await anyio.sleep(0.05)


async def test_a_server_that_cannot_come_back_is_tried_again_with_patience(
    machine: Machine, tmp_path: Path
) -> None:
    command = tmp_path / "server"
    server = AskingServer(tmp_path / "record")
    _write_program(command, server)
    async with (
        hosting(machine, x={"command": str(command), "trust": "trusted"}) as host,
        host.events() as events,
    ):
        async with host.resources.watch("x", "test://a"):
            command.write_text("#!/bin/sh\nexit 3\n")
            os.kill(server.notes("started")[-1], signal.SIGKILL)
            for _ in range(3):
                await until(events, lambda event: isinstance(event, StateChanged) and event.state == "error")
            _write_program(command, server)
            await until(events, lambda event: isinstance(event, StateChanged) and event.state == "ready")
        await host.close("x")


def _write_program(path: Path, server: AskingServer) -> None:
    path.write_text(f"#!/bin/sh\nexec {shlex.join(server.argv)}\n")
    path.chmod(0o755)


async def test_a_server_is_not_stopped_as_idle_while_somebody_watches(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry(idle_stop_ms=100)) as host:
        async with host.resources.watch("x", "test://a") as changed:
            with anyio.move_on_after(0.5):
                await anext(changed)
            await update(host, "test://a")
            assert await anext(changed) == "test://a"
            assert server.starts == 1
        async with host.events() as events:
            if host.status()[0].state != "idle":
                await until(events, is_state("idle"))


async def test_a_server_that_will_not_tell_of_changes_is_an_error(machine: Machine, tmp_path: Path) -> None:
    refusals: list[dict[str, Any]] = [
        {"version": HANDSHAKE, "refused": {"resources/subscribe": -32601}},
        {"version": MODERN, "refused": {"subscriptions/listen": -32601}},
        {"version": MODERN, "refused": {"subscriptions/listen": -32603}},
        {"version": MODERN, "unhonoured": ["test://a"]},
    ]
    for number, script in enumerate(refusals):
        server = AskingServer(tmp_path / str(number), **script)
        async with hosting(machine, x=server.entry()) as host:
            with anyio.fail_after(10):
                for _ in range(2):
                    with pytest.raises(CallFailed, match="it refused the subscription"):
                        async with host.resources.watch("x", "test://a"):
                            raise AssertionError("it is not watched")
            assert (await host.call("x", "echo", {})).text == "{}"
            assert host.status()[0].connects == 1
