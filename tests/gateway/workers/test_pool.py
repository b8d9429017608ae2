"""A gateway of two workers: one port, one registration, and no difference which of them answers."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead.connection.peer import SESSION_META_KEY
from fairlead.gateway.cluster.peer_transport import MEMORY_LOST
from fairlead.gateway.registry import APPROVALS_PATH, DASHBOARD_LINKS_PATH, RELOAD_PATH, STATUS_PATH, living
from tests.cli.gateway_support import INITIALIZE, Up, command
from tests.conftest import Machine
from tests.gateway.workers.support import (
    PATIENCE,
    Answered,
    Client,
    configure,
    eventually,
    is_alive,
    modern_call,
    new_machine,
    scripted_entry,
    serving,
    sockets_of,
    worker_of,
    workers_of,
)
from tests.loop.model_server import KEY, says
from tests.loop.model_server import serving as serving_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


class Pool:
    """A gateway and its machine."""

    def __init__(self, machine: Machine, up: Up) -> None:
        self.machine = machine
        self.up = up

    @contextmanager
    def connections(self, number: int, token: str | None = None) -> Generator[list[Client]]:
        """As many connections at once: equally many at each worker."""
        with ExitStack() as stack:
            yield [stack.enter_context(Client(self.up, token)) for _ in range(number)]

    @contextmanager
    def both(self, token: str | None = None) -> Generator[tuple[Client, str, Client, str]]:
        """A connection and a session at each of two workers."""
        with ExitStack() as stack:
            found: dict[str, tuple[Client, str]] = {}
            for _ in range(60):  # a worker that just lost many connections gets the next ones
                client = stack.enter_context(Client(self.up, token))
                session = client.open_session()
                found.setdefault(worker_of(session), (client, session))
                if len(found) == 2:
                    break
            (one, first), (two, second) = found.values()
            yield one, first, two, second

    def run(self, *words: str) -> str:
        done = subprocess.run(
            command(*words),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=self.machine.project,
            env=self.machine.env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    machine = new_machine(tmp_path_factory.mktemp("pool"))
    with serving(machine) as up:
        yield Pool(machine, up)


def test_connections_are_spread_over_the_workers(pool: Pool) -> None:
    assert pool.up.said["workers"] == 2
    with pool.connections(8) as clients:
        at = [worker_of(client.open_session()) for client in clients]
    assert {at.count("w1"), at.count("w2")} == {4}


def test_a_session_works_over_any_connection(pool: Pool) -> None:
    with pool.both() as (one, first, two, second):
        for client, session in ((two, first), (two, second), (one, second), (one, first), (two, first)):
            assert "s_echo" in client.list_tools(session).body.decode()
            answered = client.call(session, "s_echo", text="x" * 200_000)
            assert "result" in answered.message(6), answered
        # Others cannot use it, wherever they come in.
        stranger = {"Authorization": "Bearer no-token"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for client, session in ((one, second), (two, first)):
            assert client.send("/mcp", message, Mcp_Session_Id=session, **stranger).status == 401
        assert one.list_tools("w2-0123").status == one.list_tools("w9-0123").status == 404


def test_calls_are_counted_by_worker(pool: Pool) -> None:
    with pool.both() as (one, first, two, second):
        one.call(first, "s_echo")
        two.call(second, "s_echo")
        metrics = one.send("/metrics").body.decode()
    counted = re.findall(r'fairlead_calls_total\{server="s",outcome="ok",worker="(\d)"\} ([\d.]+)', metrics)
    assert {worker for worker, count in counted if float(count) > 0} == {"1", "2"}
    assert metrics.count("# TYPE fairlead_calls_total counter") == 1


def test_a_shared_server_runs_once_for_all_workers(pool: Pool) -> None:
    with pool.both() as (one, first, two, second):
        said = [client.call(session, "modern_pid") for client, session in ((one, first), (two, second))]
        pids = [answered.message(6)["result"]["content"][0]["text"] for answered in said]
        numbers = [client.send("/metrics").body.decode() for client in (one, two)]
    assert pids[0] == pids[1]
    assert pids[0].isdigit()
    for metrics in numbers:  # the same, whichever worker is asked
        owned = dict(re.findall(r'fairlead_owned_servers\{worker="(\d)"\} (\d+)', metrics))
        assert owned.keys() == {"1", "2"}
        assert sum(map(int, owned.values())) >= 1
        for name in ("lease_losses_total", "peer_requests_open", "forwarded_requests_open"):
            assert len(re.findall(rf'fairlead_{name}\{{worker="\d"\}} \d', metrics)) == 2


@pytest.mark.parametrize("path", ["/mcp", "/metrics", "/healthz", "/replica", "/replica/servers/x"])
def test_the_sockets_of_workers_are_for_workers_alone(pool: Pool, path: str) -> None:
    sockets = [each for pid in workers_of(pool.up) for each in sockets_of(pid)]
    assert len(sockets) == 4
    for each in sockets:
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        assert stat.S_IMODE(each.parent.stat().st_mode) == 0o700
    for each in sockets:
        if each.suffix != ".calls":
            continue
        for token in (pool.up.token, pool.up.decide):
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(PATIENCE)
                wire.connect(str(each))
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                wire.sendall(f"{head}Connection: close\r\n\r\n".encode())
                assert wire.recv(1000).startswith(b"HTTP/1.1 404 ")


def _calls_by_worker(client: Client) -> dict[str, float]:
    metrics = client.send("/metrics").body.decode()
    found = re.findall(r'fairlead_calls_total\{server="s",outcome="ok",worker="(\d)"\} ([\d.]+)', metrics)
    return {worker: float(count) for worker, count in found}


def test_a_stateless_client_that_names_its_session_is_always_served_by_one_worker(pool: Pool) -> None:
    with pool.both() as (one, first, two, second), Client(pool.up) as watching:
        one.call(first, "s_echo")
        two.call(second, "s_echo")
        before = _calls_by_worker(watching)
        message, headers = modern_call("s_echo", {SESSION_META_KEY: "my own"})
        for client in (one, two, one, two):
            assert "result" in client.send("/mcp", message, **headers).message(6)
        after = _calls_by_worker(watching)
    assert sorted(after[worker] - before[worker] for worker in after) == [0.0, 4.0]


def test_connections_of_stateless_clients_move_to_the_worker_that_runs_the_server_they_use(
    pool: Pool,
) -> None:
    info: dict[str, object] = {"io.modelcontextprotocol/clientInfo": {"name": "mover", "version": "1"}}
    message, headers = modern_call("modern_pid", info)
    with pool.both() as (one, first, two, second):
        assert worker_of(first) != worker_of(second)
        answers = [client.send("/mcp", message, **headers) for client in (one, two) for _ in range(12)]
        assert len({answered.message(6)["result"]["content"][0]["text"] for answered in answers}) == 1
        assert worker_of(one.open_session()) == worker_of(two.open_session())
        # A session stays where it is, and is found from there.
        assert one.list_tools(first).status == two.list_tools(second).status == 200


def test_a_stateless_client_without_a_session_keeps_its_own_server_whichever_worker_it_comes_to(
    tmp_path: Path,
) -> None:
    machine = new_machine(tmp_path)
    own: dict[str, object] = {**scripted_entry(machine, "own"), "sharing": "session"}
    machine.write_user(json.dumps({"servers": {"own": own}, "gateway": {"startup_wait_ms": 60_000}}))
    with serving(machine) as up:
        pool = Pool(machine, up)
        token = pool.run("gateway", "token", "add", "ada").split()[0]

        def pids(name: str, token: str | None = None) -> set[str]:
            """The processes that answer a client on connections to both workers."""
            info: dict[str, object] = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            message, headers = modern_call("own_pid", info)
            found: set[str] = set()
            with pool.both(token) as (one, _, two, _):
                for client in (one, two) * 3:
                    result = client.send("/mcp", message, **headers).message(6)["result"]
                    found.add(result["content"][0]["text"])
            return found

        asked = [("first", None), ("second", None), ("first", token)]
        found = [pids(*who) for who in asked]
        assert [len(each) for each in found] == [1, 1, 1]
        # None gets what the server of another one keeps.
        assert len({pid for each in found for pid in each}) == 3
        assert [pids(*who) for who in asked] == found


def test_an_answer_to_an_elicitation_reaches_the_worker_whose_call_waits_for_it(pool: Pool) -> None:
    asked_of: dict[str, object] = {
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}
    }
    with pool.both() as (one, first, two, second):
        for client, session, other in ((one, first, two), (two, second, one)):
            message, headers = modern_call("s_ask_first", asked_of)
            asked = client.send("/mcp", message, **headers).message(6)["result"]
            assert worker_of(asked["requestState"]) == worker_of(session)
            yes = {"action": "accept", "content": {"answer": "once"}}
            answers = {"requestState": asked["requestState"]}
            answers["inputResponses"] = dict.fromkeys(asked["inputRequests"], yes)
            message, headers = modern_call("s_ask_first", asked_of, **answers)
            assert not other.send("/mcp", message, **headers).message(6)["result"].get("isError")
            # The other connection is at the owner now: back to where it was.
            other.list_tools(second if other is two else first)


def test_commands_find_one_gateway_with_the_supervisors_process(pool: Pool) -> None:
    (running,) = living(pool.machine.env)
    assert (running.pid, running.workers) == (pool.up.process.pid, 2)
    assert '"workers": 2' in pool.run("gateway", "status", "--json")
    second = subprocess.run(
        command("gateway", "--port", str(urlsplit(pool.up.url).port), "--workers", "2"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=pool.machine.project,
        env=pool.machine.env,
    )
    assert f"process {pool.up.process.pid}" in second.stderr


def test_the_status_shows_every_worker_with_its_load_and_servers(pool: Pool) -> None:
    with pool.both() as (one, first, two, second):
        one.call(first, "modern_pid")
        two.call(second, "modern_pid")

        def look() -> list[dict[str, Any]]:
            found = json.loads(pool.run("gateway", "status", "--json"))["replicas"]
            runs = [each for each in found if "modern" in each["servers"]]
            load = ("sessions", "requests_in_minute", "connections")
            is_busy = all(each[measure] for each in found for measure in load)
            return found if len(found) == 2 and len(runs) == 1 and is_busy else []

        found = eventually(look)  # each announces itself every other second
        assert sum(each["is_asked"] for each in found) == 1
        assert {each["condition"] for each in found} == {"ready"}
        assert {each["pid"] for each in found} == {*workers_of(pool.up)}
        assert all(each["memory_bytes"] for each in found)
        text = pool.run("gateway", "status")
    assert "replicas   2 of 2 ready" in text
    assert {"worker 1", "worker 2"} <= {*re.findall(r"worker \d", text)}


def test_a_token_made_by_a_command_opens_all_workers_until_it_is_revoked(pool: Pool) -> None:
    token = pool.run("gateway", "token", "add", "ada").split()[0]
    with pool.connections(6, token) as clients:
        assert {worker_of(client.open_session()) for client in clients} == {"w1", "w2"}
        pool.run("gateway", "token", "remove", "ada")
        assert {client.send("/mcp", INITIALIZE).status for client in clients} == {401}


def test_a_dashboard_login_is_valid_at_all_workers_and_ends_at_all(pool: Pool) -> None:
    with pool.connections(6) as clients:
        place = urlsplit(str(clients[0].send(DASHBOARD_LINKS_PATH, {}).json["links"][0]))
        entered = [client.send(f"/login?{place.query}", Host=place.netloc) for client in clients]
        (entry,) = [each for each in entered if each.status == 303]  # one code, one login
        cookie, base = entry.headers["set-cookie"].partition(";")[0], entry.headers["location"].rstrip("/")
        session = {"Host": place.netloc, "Cookie": cookie, "Authorization": ""}
        pages = [client.send(f"{base}/", **session) for client in clients]
        assert [page.status for page in pages] == [200] * 6
        form = re.search(rb'name="form_token" value="([^"]+)"', pages[-1].body)
        assert form is not None
        sent = {**session, "Origin": f"http://{place.netloc}"}
        sent["Content_Type"] = "application/x-www-form-urlencoded"
        assert clients[3].send(f"{base}/logout", b"form_token=" + form[1], **sent).status == 303
        assert {client.send(f"{base}/", **session).status for client in clients}.isdisjoint({200})


def test_a_call_that_waits_in_one_worker_is_answered_at_the_other(pool: Pool) -> None:
    answers: list[Answered] = []
    with pool.both() as (one, first, two, _), pool.connections(4) as others:
        one.list_tools(first)
        waiting = threading.Thread(target=lambda: answers.append(one.call(first, "s_ask_first")), daemon=True)
        waiting.start()
        calls = [_wait_for_pending(client) for client in (two, *others)]
        (call,) = set(calls)
        assert "ask_first" in pool.run("approvals", "--json")
        assert two.send(APPROVALS_PATH, {"id": call, "answer": "once"}).json == {"answered": True}
        assert not others[0].send(APPROVALS_PATH, {"id": call, "answer": "no"}).json["answered"]
        waiting.join(PATIENCE)
        assert "result" in answers[0].message(6)


def test_a_reload_that_was_answered_holds_in_all_workers(pool: Pool) -> None:
    with pool.connections(6) as clients:
        configure(pool.machine, "s", "modern", "t")
        assert clients[0].send(RELOAD_PATH, {}).json == {"reloaded": True}
        for client in clients:
            servers = client.send(STATUS_PATH).json["servers"]
            assert {server["id"] for server in servers} >= {"s", "t"}
        configure(pool.machine, "s", "modern")
        assert clients[1].send(RELOAD_PATH, {}).json == {"reloaded": True}
        for client in clients:
            assert "t" not in {server["id"] for server in client.send(STATUS_PATH).json["servers"]}


def test_clients_that_say_nothing_hold_up_no_others(pool: Pool) -> None:
    place = urlsplit(pool.up.url)
    address = (place.hostname or "", place.port or 0)
    with ExitStack() as stack:
        for number in range(40):
            silent = stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
            if number % 3:
                silent.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Le")
            if number % 3 == 2:
                silent.shutdown(socket.SHUT_WR)
        with pool.connections(4) as clients:
            assert {worker_of(client.open_session()) for client in clients} == {"w1", "w2"}
        with socket.create_connection(address, timeout=PATIENCE) as odd:
            odd.send(b"\x16\x03\x01 not HTTP at all\r\n\r\n")
            assert odd.recv(1000).startswith(b"HTTP/1.1 400")

    def is_even() -> bool:
        with pool.connections(4) as clients:
            at = [worker_of(client.open_session()) for client in clients]
        return at.count("w1") == 2

    eventually(is_even)  # each of them was counted, and its end too


def test_the_old_transport_finds_the_worker_with_its_stream(pool: Pool) -> None:
    place = urlsplit(pool.up.url)
    address = (place.hostname or "", place.port or 0)
    with socket.create_connection(address, timeout=PATIENCE) as stream, pool.both() as (one, _, two, _):
        head = f"GET /sse HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {pool.up.token}\r\n\r\n"
        stream.send(head.encode())
        text = b""
        while b"session_id=" not in text or not text.endswith(b"\r\n\r\n"):
            text += stream.recv(10_000)
        found = re.search(rb"data: (/messages\S+)", text)
        assert found is not None
        path, own = found[1].decode(), {"Authorization": f"Bearer {pool.up.token}"}
        for client in (one, two):
            assert client.send(path, INITIALIZE, **own).status == 202
        while text.count(b'"serverInfo"') < 2:
            text += stream.recv(10_000)


def test_a_killed_worker_is_replaced_and_the_other_does_not_notice(pool: Pool) -> None:
    with pool.both() as (one, first, two, second):
        before = workers_of(pool.up)
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: not is_alive(before[0]))
        survivors = [
            (client, session) for client, session in ((one, first), (two, second)) if _works(client, session)
        ]
        ((survivor, session),) = survivors
        assert "s_echo" in survivor.list_tools(session).body.decode()
        lost = second if session == first else first
        # What the killed one had is gone, and said so, wherever that is asked.
        assert survivor.list_tools(lost).status == 404
        with Client(pool.up) as new:
            assert new.open_session()
        eventually(lambda: len(set(workers_of(pool.up)) - set(before)) == 1)

        eventually(lambda: _are_both_up(survivor))
        with pool.connections(4) as clients:
            assert {worker_of(client.open_session()) for client in clients} == {"w1", "w2"}
        assert "s_echo" in survivor.list_tools(session).body.decode()


def _wait_for_pending(client: Client) -> str:
    """The id of the one call that waits, as a connection's worker knows it."""
    (call,) = eventually(lambda: client.send(APPROVALS_PATH).json["pending"])
    return str(call["id"])


def _are_both_up(client: Client) -> bool:
    metrics = client.send("/metrics").body
    return all(b'fairlead_calls_running{worker="%d"}' % number in metrics for number in (1, 2))


def _works(client: Client, session: str) -> bool:
    try:
        return client.list_tools(session).status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_a_worker_that_is_asked_to_end_finishes_and_is_replaced(pool: Pool) -> None:
    before = workers_of(pool.up)
    with pool.both() as (one, first, two, second):
        os.kill(before[1], signal.SIGTERM)
        eventually(lambda: not is_alive(before[1]))
        assert sum(_works(client, session) for client, session in ((one, first), (two, second))) == 1
    eventually(lambda: len(workers_of(pool.up)) == 2 and before[1] not in workers_of(pool.up))
    with Client(pool.up) as client:
        eventually(lambda: _are_both_up(client))


def test_a_worker_that_is_asked_to_end_leaves_its_shared_server_to_another_which_says_so(
    tmp_path: Path,
) -> None:
    machine = new_machine(tmp_path)
    configure(machine, "modern")
    with serving(machine) as up, Pool(machine, up).both() as (one, first, two, second):
        for client, session in ((one, first), (two, second)):
            client.call(session, "modern_pid")
        metrics = one.send("/metrics").body.decode()
        (owner,) = re.findall(r'fairlead_owned_servers\{worker="(\d)"\} 1', metrics)
        (pid,) = [
            each for each in workers_of(up) if f"{owner}.calls" in {path.name for path in sockets_of(each)}
        ]
        stays, session = (two, second) if worker_of(first) == f"w{owner}" else (one, first)
        os.kill(pid, signal.SIGTERM)
        said: list[str] = []

        def is_told() -> bool:
            result = stays.call(session, "modern_pid").message(6)["result"]
            said.append(json.dumps(result))
            return MEMORY_LOST in said[-1]

        eventually(is_told)
        assert not any('"isError": true' in each for each in said), said


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_no_worker_outlives_the_supervisor(tmp_path: Path, how: str) -> None:
    machine = new_machine(tmp_path)
    with serving(machine) as up, Client(up) as client:
        session = client.open_session()
        client.call(session, "s_echo")
        workers = workers_of(up)
        assert len(workers) == 2
        up.process.send_signal(getattr(signal, how))
        status = up.process.wait(PATIENCE)
        assert status == (-signal.SIGKILL if how == "SIGKILL" else 0)
        eventually(lambda: not any(map(is_alive, workers)))
        assert living(machine.env) == []


def test_the_error_that_keeps_all_workers_from_starting_is_the_commands(tmp_path: Path) -> None:
    machine = new_machine(tmp_path)
    configure(machine, "agent")
    done = subprocess.run(
        command("gateway", "--port", "0", "--workers", "2", "--agent"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=machine.project,
        env=machine.env,
    )
    assert done.returncode != 0
    assert "a server is called `agent`" in done.stderr
    assert "hint: give that server another id" in done.stderr
    assert done.stderr.count("a server is called") == 1


def test_a_session_of_the_agent_goes_on_at_any_worker_for_its_owner_alone(tmp_path: Path) -> None:
    machine = new_machine(tmp_path)
    with serving_model(says("openai", "first"), says("openai", "later")) as model:
        chosen = {"provider": "openai", "name": "m", "base_url": f"{model.url}/v1", "api_key": KEY}
        rules = {"rules": [{"action": "allow", "server": "agent"}]}
        machine.write_user(json.dumps({"model": chosen, "gateway": {"agent": {}}, "policy": rules}))
        with serving(machine) as up:
            pool = Pool(machine, up)
            token = pool.run("gateway", "token", "add", "ada").split()[0]
            with pool.both() as (one, first, two, second):
                ran = one.call(first, "agent_run", task="remember this").message(6)["result"]
                session = ran["structuredContent"]["session"]
                with pool.connections(4, token) as others:
                    for other in others:
                        refused = other.call(other.open_session(), "agent_reply", session=session, text="x")
                        assert "no such session" in refused.body.decode()
                for client, at in ((two, second), (one, first), (two, second)):
                    replied = client.call(at, "agent_reply", session=session, text="go on").message(6)
                    assert replied["result"]["structuredContent"]["text"] == "later"
        said = [message["content"] for message in model.bodies[-1]["messages"] if message["role"] == "user"]
    assert said == ["remember this", "go on", "go on", "go on"]
