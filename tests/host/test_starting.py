"""Starting servers: lazily, at once, in time, and what is said of those that do not start."""

import stat
from pathlib import Path

import anyio
import pytest

from fairlead.config.paths import state_folder
from fairlead.errors import (
    AuthRequired,
    ConfigInvalid,
    ConnectFailed,
    FairleadError,
    ListFailed,
    UnknownServer,
)
from fairlead.host.host import Host
from fairlead.host.server_status import ServerStatus
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures.hostile_http import serving
from tests.host.support import hosting


def status_of(host: Host, server_id: str) -> ServerStatus:
    return next(status for status in host.status() if status.server_id == server_id)


async def failure_of(host: Host, server_id: str) -> FairleadError:
    return (await host.connect(server_id))[server_id]


async def test_a_host_starts_nothing_by_itself(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        status = status_of(host, "x")
        assert (status.state, status.tools, status.connects) == ("idle", None, 0)
    assert server.starts == 0


async def test_a_server_that_is_not_lazy_connects_by_itself(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(lazy=False)) as host, host.events() as events:
        while status_of(host, "x").state != "ready":
            await anext(events)
    assert server.starts == 1


async def test_a_disabled_server_says_so(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(enabled=False, lazy=False)) as host:
        assert status_of(host, "x").state == "disabled"
        assert await host.connect_all() == {}
        with pytest.raises(ConnectFailed, match="is disabled") as raised:
            await host.call("x", "echo")
        assert raised.value.hint == "run `fairlead enable x`"
    assert server.starts == 0


async def test_a_server_with_a_bad_entry_says_what_is_wrong_with_it(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(lazyy=True), y=server.entry()) as host:
        assert status_of(host, "x").state == "error"
        assert "lazyy" in str(status_of(host, "x").last_error)
        assert isinstance(await failure_of(host, "x"), ConfigInvalid)
        assert (await host.call("y", "echo")).text == "{}"


@pytest.mark.requirement("HARD-14", "NEED-9")
async def test_a_hang_on_the_handshake_ends_in_time_and_holds_up_nobody(
    machine: Machine, tmp_path: Path
) -> None:
    hanging = ScriptedServer(tmp_path / "hanging", silent_after=0, stderr="thinking …")
    other = ScriptedServer(tmp_path / "other")
    entry = hanging.entry(startup_timeout_ms=1500)
    async with hosting(machine, hanging=entry, other=other.entry()) as host:
        started = anyio.current_time()
        failures: dict[str, FairleadError] = {}
        async with anyio.create_task_group() as tasks:

            async def connect() -> None:
                failures.update(await host.connect("hanging"))

            tasks.start_soon(connect)
            assert (await host.call("other", "echo")).text == "{}"
            assert status_of(host, "hanging").state in ("idle", "connecting")
        assert anyio.current_time() - started < 10
        assert isinstance(failures["hanging"], ConnectFailed)
        status = status_of(host, "hanging")
        assert status.state == "error"
        assert "1.5 s" in str(status.last_error)
        assert "startup_timeout_ms" in str(status.hint)


@pytest.mark.requirement("NEED-4")
async def test_the_tools_of_a_slow_server_are_there_at_once_and_it_is_not_started(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", silent_after=1)
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
    async with hosting(machine, x=server.entry()) as host:
        assert [tool.key.tool for tool in await host.tools_of("x")] == ["echo"]
        status = status_of(host, "x")
        assert (status.state, status.tools, status.version) == ("idle", 1, "2025-11-25")
    assert server.starts == 1


@pytest.mark.requirement("NEED-4")
async def test_a_slow_server_holds_up_neither_the_start_nor_the_end(machine: Machine, tmp_path: Path) -> None:
    slow, quick = ScriptedServer(tmp_path / "slow", silent_after=0), ScriptedServer(tmp_path / "quick")
    entry = slow.entry(lazy=False, startup_timeout_ms=60_000)
    async with hosting(machine, slow=entry, quick=quick.entry()) as host:
        assert (await host.call("quick", "echo")).text == "{}"
        assert status_of(host, "slow").state in ("idle", "connecting")


@pytest.mark.requirement("NEED-8")
async def test_a_server_that_exits_at_once_shows_its_code_and_its_last_words(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", exit=3, stderr="ModuleNotFoundError: no module named 'mcp'")
    async with hosting(machine, x=server.entry()) as host:
        failure = await failure_of(host, "x")
        status = status_of(host, "x")
        assert status.state == "error"
        assert str(failure) == status.last_error
        assert "exited with code 3" in str(failure)
        assert "no module named 'mcp'" in str(failure)


@pytest.mark.requirement("NEED-8")
async def test_a_command_that_does_not_exist_is_named_with_a_hint(machine: Machine) -> None:
    async with hosting(machine, x={"command": "no-such-program-anywhere"}) as host:
        failure = await failure_of(host, "x")
        assert "no-such-program-anywhere" in str(failure)
        status = status_of(host, "x")
        assert (status.state, status.last_error) == ("error", str(failure))
        assert "install it" in str(status.hint)


@pytest.mark.requirement("NEED-8")
async def test_an_address_nobody_listens_at_is_named_with_a_hint(machine: Machine) -> None:
    async with serving() as server:
        url = server.url
    async with hosting(machine, x={"url": url}) as host:
        failure = await failure_of(host, "x")
        assert isinstance(failure, ConnectFailed)
        assert "127.0.0.1" in str(failure)
        assert "running" in str(status_of(host, "x").hint)


@pytest.mark.requirement("NEED-8")
@pytest.mark.parametrize(
    "fault", [{"list_error": -32603}, {"list_error": -32601}, {"list_result": {"tools": 5}}]
)
async def test_a_server_that_cannot_list_its_tools_is_never_ready(
    machine: Machine, tmp_path: Path, fault: dict[str, object]
) -> None:
    server = ScriptedServer(tmp_path / "record", **fault)
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        assert isinstance(await failure_of(host, "x"), ListFailed)
        assert status_of(host, "x").state == "error"
        assert "tools/list" in str(status_of(host, "x").last_error)
        with pytest.raises(ListFailed):
            await host.tools_of("x")
        await host.close("x")
        states: list[str] = []
        while "idle" not in states:
            states.append(str(getattr(await anext(events), "state", "")))
        assert "ready" not in states


@pytest.mark.requirement("NEED-8")
async def test_a_list_that_works_again_ends_the_error(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", failing_lists=1)
    async with hosting(machine, x=server.entry()) as host:
        assert isinstance(await failure_of(host, "x"), ListFailed)
        assert await host.connect("x") == {}
        assert status_of(host, "x").state == "ready"
        assert status_of(host, "x").tools == 1
    assert server.starts == 1


@pytest.mark.requirement("HARD-27")
async def test_a_call_before_the_listing_works_and_a_failing_list_does_not_fail_it(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", list_error=-32603)
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.call("x", "echo", {"n": 1})).text == '{"n": 1}'
        assert isinstance(await failure_of(host, "x"), ListFailed)
        assert (await host.call("x", "echo", {"n": 2})).text == '{"n": 2}'
    received = server.notes("received")
    assert received.index("tools/call") <= received.index("tools/list") + 1
    assert server.starts == 1


@pytest.mark.requirement("NEED-9")
async def test_a_dead_server_costs_its_own_tools_only(machine: Machine, tmp_path: Path) -> None:
    dead = ScriptedServer(tmp_path / "dead", exit=1)
    servers = {name: ScriptedServer(tmp_path / name, tools=[name]) for name in ("a", "b")}
    entries = {name: server.entry() for name, server in servers.items()}
    async with hosting(machine, dead=dead.entry(), **entries) as host:
        failures = await host.connect_all()
        assert [*failures] == ["dead"]
        for name in entries:
            assert [tool.key.tool for tool in await host.tools_of(name)] == [name]
        assert {status.server_id: status.state for status in host.status()} == {
            "dead": "error",
            "a": "ready",
            "b": "ready",
        }


@pytest.mark.requirement("NEED-12")
async def test_require_waits_until_servers_are_ready(machine: Machine, tmp_path: Path) -> None:
    servers = {name: ScriptedServer(tmp_path / name).entry() for name in ("a", "b")}
    async with hosting(machine, **servers) as host:
        await host.require(["a", "b"])
        assert {status.state for status in host.status()} == {"ready"}
        await host.require(["a"])


@pytest.mark.requirement("NEED-12")
async def test_require_raises_what_is_wrong(machine: Machine, tmp_path: Path) -> None:
    good, broken = ScriptedServer(tmp_path / "good"), ScriptedServer(tmp_path / "broken", exit=9)
    listless = ScriptedServer(tmp_path / "listless", list_error=-32603)
    async with hosting(machine, good=good.entry(), broken=broken.entry(), listless=listless.entry()) as host:
        with pytest.raises(ConnectFailed, match="code 9"):
            await host.require(["good", "broken"])
        with pytest.raises(ListFailed):
            await host.require(["listless"])
        with pytest.raises(UnknownServer):
            await host.require(["nobody"])


@pytest.mark.requirement("NEED-12")
async def test_require_does_not_wait_longer_than_it_is_told(machine: Machine, tmp_path: Path) -> None:
    good = ScriptedServer(tmp_path / "good")
    silent = ScriptedServer(tmp_path / "silent", silent_after=0)
    async with hosting(machine, good=good.entry(), silent=silent.entry()) as host:
        await host.require(["good"])
        with pytest.raises(ConnectFailed, match=r"`silent`: not ready after 0\.2 s"):
            await host.require(["good", "silent"], seconds=0.2)


@pytest.mark.requirement("NEED-12")
async def test_a_required_server_that_fails_fails_the_start(machine: Machine, tmp_path: Path) -> None:
    broken, other = ScriptedServer(tmp_path / "broken", exit=4), ScriptedServer(tmp_path / "other")
    entered = False
    with pytest.raises(ConnectFailed, match="code 4"):
        async with hosting(machine, x=broken.entry(required=True), y=other.entry()):
            entered = True
    assert not entered


async def test_a_required_server_is_ready_when_the_block_begins(machine: Machine, tmp_path: Path) -> None:
    server, broken = ScriptedServer(tmp_path / "server"), ScriptedServer(tmp_path / "broken", exit=4)
    async with hosting(machine, x=server.entry(required=True), y=broken.entry(lazy=False)) as host:
        assert status_of(host, "x").state == "ready"


async def test_a_host_works_without_a_state_folder(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    folder = state_folder(machine.env)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file is no folder")
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.call("x", "echo")).text == "{}"
        assert await host.connect("x") == {}
        assert len(await host.tools_of("x")) == 1


async def test_a_host_works_with_a_state_folder_it_may_not_write_to(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    folder = state_folder(machine.env)
    folder.mkdir(parents=True)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        async with hosting(machine, x=server.entry()) as host:
            assert (await host.call("x", "echo")).text == "{}"
    finally:
        folder.chmod(stat.S_IRWXU)


async def test_secrets_in_headers_are_resolved_when_the_server_is_connected(machine: Machine) -> None:
    machine.env["TOKEN"] = "right"
    async with serving("token") as server:
        entry = {"url": server.url, "headers": {"Authorization": "Bearer ${TOKEN}"}, "trust": "trusted"}
        async with hosting(machine, x=entry) as host:
            assert (await host.call("x", "echo")).text == "{}"
        assert all(request.headers["authorization"] == "Bearer right" for request in server.requests)


async def test_a_server_that_wants_a_login_says_so(machine: Machine) -> None:
    async with serving("token") as server:
        entry = {"url": server.url, "headers": {"Authorization": "Bearer wrong"}, "trust": "trusted"}
        async with hosting(machine, x=entry) as host:
            assert isinstance(await failure_of(host, "x"), AuthRequired)
            status = status_of(host, "x")
            assert status.state == "auth_required"
            assert status.hint is not None
            with pytest.raises(AuthRequired):
                await host.call("x", "echo")


async def test_a_secret_that_cannot_be_had_fails_that_server_alone(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    secret = server.entry(env={"KEY": f"${{file:{tmp_path}/nothing}}"})
    async with hosting(machine, x=secret, y=server.entry()) as host:
        failures = await host.connect_all()
        assert [*failures] == ["x"]
        assert "nothing" in str(failures["x"])
        assert status_of(host, "y").state == "ready"
    assert server.starts == 1
