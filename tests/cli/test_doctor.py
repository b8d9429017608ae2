"""`fairlead doctor`: what is wrong with a machine is found, and named with what mends it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from fairlead.actions.orphans import find_orphaned_guardians
from fairlead.config.document.files import hold_lock
from fairlead.config.paths import state_folder, store_file
from fairlead.connection.process import guardian
from fairlead.gateway.registry import RunningGateway
from fairlead.host.host import Host
from fairlead.net.http import tls_context
from fairlead.policy.approvals import NAMESPACE as APPROVALS
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome, write

Fairlead = Callable[..., Outcome]


def diagnose(fairlead: Fairlead, *options: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit status, and the findings by area and subject."""
    outcome = fairlead("doctor", "--json", *options)
    said = json.loads(outcome.out)
    assert said["ok"] == (outcome.status == 0)
    assert all(found["fix"] for found in said["findings"] if found["status"] == "problem")
    return outcome.status, {(found["area"], found["subject"]): found for found in said["findings"]}


def configure(machine: Machine, **servers: Mapping[str, Any]) -> None:
    machine.write_user(json.dumps({"servers": servers}))


@pytest.fixture(autouse=True)
def no_network_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_healthy_machine_has_no_problem_and_its_servers_are_ready(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    configure(machine, s=server.entry(trust="trusted"))

    status, found = diagnose(fairlead)

    assert status == 0
    assert found["servers", "s"]["message"] == "ready, 1 tool"
    assert {area for area, _ in found} >= {"installation", "configuration", "programs", "network", "state"}
    assert server.starts == 1
    shown = fairlead("doctor", "--offline")
    assert "no problem found" in shown.err
    assert server.starts == 1, "offline, nothing is started"


def test_each_server_that_is_not_ready_is_named_with_what_to_do(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    configure(
        machine,
        good=ScriptedServer(tmp_path / "record", tools=["echo"]).entry(),
        missing={"command": "no-such-program-here"},
        refused={"url": "http://127.0.0.1:9/mcp"},
        off={"command": "no-such-program-here", "enabled": False},
    )
    write(machine.project_file, json.dumps({"servers": {"theirs": {"command": sys.executable}}}))

    status, found = diagnose(fairlead)

    assert status == 1
    assert found["servers", "good"]["status"] == "ok"
    assert "no-such-program-here" in found["servers", "missing"]["message"]
    assert found["servers", "refused"]["status"] == "problem"
    assert "fairlead approve theirs" in found["servers", "theirs"]["fix"]
    assert ("servers", "off") not in found


def test_a_configuration_that_cannot_be_used_hides_nothing_else(machine: Machine, fairlead: Fairlead) -> None:
    machine.write_user('{"servers": {"a": {"comand": "x"}, "b": {"url": 3}}}')

    status, found = diagnose(fairlead)

    assert status == 1
    assert "did you mean `command`" in fairlead("doctor", "--offline").out
    assert found["configuration", "servers.b"]["status"] == "problem"
    assert found["state", "store"]["status"] == "ok"
    machine.write_user("{")
    status, found = diagnose(fairlead)
    assert status == 1
    assert ("state", "store") in found


def test_a_program_is_missed_only_by_the_servers_that_need_it(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    configure(
        machine,
        time={"command": "uvx", "args": ["mcp-server-time"]},
        boxed={"command": "/bin/cat", "sandbox": {}},
        unused={"command": "npx", "enabled": False},
    )

    status, found = diagnose(fairlead, "--offline")

    assert status == 1
    assert found["programs", "uvx"]["message"] == "not found on PATH, and needed by `time`"
    assert "`boxed`" in found["programs", "bwrap"]["message"]
    assert [found["programs", name]["status"] for name in ("npx", "node", "rg")] == ["note"] * 3


@pytest.mark.parametrize(
    ("script", "message"), [("exit 1", "does not run"), ("echo v12.22.1", "v12.22.1 is too old")]
)
def test_a_program_that_does_not_do_is_named(
    machine: Machine,
    fairlead: Fairlead,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str,
    message: str,
) -> None:
    program = write(tmp_path / "bin" / "node", f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    configure(machine, s={"command": "node", "args": ["server.js"]})

    _, found = diagnose(fairlead, "--offline")

    assert found["programs", "node"]["status"] == "problem"
    assert message in found["programs", "node"]["message"]


@pytest.fixture
def unread_certificates() -> Generator[None]:
    """Certificates are read once in a process: here as in a process of its own."""
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.mark.usefixtures("unread_certificates")
def test_network_settings_that_cannot_work_are_found_and_no_password_is_shown(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
    monkeypatch.setenv("HTTPS_PROXY", "socks9://proxy.example:80")
    monkeypatch.setenv("HTTP_PROXY", "http://me:s3cret-passw0rd@proxy.example:3128")

    status, found = diagnose(fairlead, "--offline")

    assert status == 1
    assert "SSL_CERT_FILE" in found["network", "certificates"]["fix"]
    assert found["network", "HTTPS_PROXY"]["fix"] == "correct or unset HTTPS_PROXY"
    assert found["network", "HTTP_PROXY"]["status"] == "ok"
    assert "s3cret" not in json.dumps([*found.values()])


def test_a_damaged_store_and_a_lock_that_is_held_are_found(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine)
    write(store_file(machine.env), "not a database, but as long as the head of one " * 40)

    with hold_lock(machine.user_file):
        status, found = diagnose(fairlead, "--offline")

    assert status == 1
    assert "is damaged" in found["state", "store"]["message"]
    assert found["state", "lock"]["status"] == "problem"
    assert f"`kill -9 {os.getpid()}`" in found["state", "lock"]["fix"]


def test_a_remembered_answer_that_cannot_be_read_is_named_where_a_user_looks(
    machine: Machine, fairlead: Fairlead
) -> None:
    configure(machine, s={"command": sys.executable})
    kept = {"principal": "local", "server_id": "s", "tool": "t", "approved_at": 1.0}
    with open_database(store_file(machine.env)) as database:
        database.put(APPROVALS, "sound", json.dumps(kept).encode(), expect=ANY)
    assert ("state", "approvals") not in diagnose(fairlead, "--offline")[1]
    with open_database(store_file(machine.env)) as database:
        database.put(APPROVALS, "damaged", b"not JSON", expect=ANY)
        database.put(APPROVALS, "newer", b'{"format":9}', expect=ANY)

    status, found = diagnose(fairlead, "--offline")

    assert status == 1
    assert found["state", "approvals"]["message"].startswith("2 remembered answers cannot be read")
    assert "answer again" in found["state", "approvals"]["fix"]
    listed = fairlead("approvals")
    assert "warning: 2 remembered answers cannot be read" in listed.err
    assert "local" in listed.out
    assert "note: 2 remembered answers cannot be read" in fairlead("status").err


def test_a_gateway_that_lives_and_does_not_answer_is_found(machine: Machine, fairlead: Fairlead) -> None:
    about = state_folder(machine.env) / "gateway" / "running" / "one" / "about.json"
    gateway = RunningGateway(
        url="http://127.0.0.1:9", pid=os.getpid(), token_file=None, sources=(), workspace="/", started_at=0
    )
    write(about, msgspec.json.encode(gateway).decode())

    with hold_lock(about):
        status, found = diagnose(fairlead, "--offline")

    assert status == 1
    assert "does not answer" in found["gateways", "http://127.0.0.1:9"]["message"]
    assert diagnose(fairlead, "--offline")[0] == 0, "what a dead one left is no problem"


@contextmanager
def web_server(date: datetime, asked: list[str] | None = None) -> Generator[str]:
    """A web server whose clock says this, and that speaks no MCP. `asked` gets the methods of requests."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            if asked is not None:
                asked.append(self.command)
            self.send_response_only(404)
            self.send_header("Date", format_datetime(date, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_HEAD = respond  # noqa: N815 - names that the class looks for

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing to say."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("minutes", "how"), [(10, "behind"), (-10, "ahead of"), (0, None)])
def test_a_clock_that_is_wrong_is_told_by_the_dates_of_remote_servers(
    machine: Machine, fairlead: Fairlead, minutes: int, how: str | None
) -> None:
    with web_server(datetime.now(UTC) + timedelta(minutes=minutes)) as url:
        configure(machine, far={"url": url})
        _, found = diagnose(fairlead)

    clock = found.get(("clock", "far"))
    assert (clock is None) == (how is None)
    if clock is not None:
        assert f"s {how} the one of 127.0.0.1" in clock["message"]


@pytest.mark.requirement("HARD-75")
def test_the_url_of_a_projects_server_is_not_contacted_before_it_is_approved(
    machine: Machine, fairlead: Fairlead
) -> None:
    asked: list[str] = []
    with web_server(datetime.now(UTC) + timedelta(hours=1), asked) as url:
        machine.write_project(json.dumps({"servers": {"theirs": {"url": url}}}))
        _, found = diagnose(fairlead)

    assert "fairlead approve theirs" in found["servers", "theirs"]["fix"]
    assert ("clock", "theirs") not in found
    assert asked == []


ADOPTER = """
import ctypes, os, subprocess, sys
# As `systemd --user`: what loses its parent below is a child of this process, and not of process 1.
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
words = [sys.executable, "-c", sys.argv[1], *sys.argv[2:]]
host = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
guardian = host.stdout.readline().decode().strip()
print(guardian, flush=True)
sys.stdin.readline()
host.kill()
host.wait()
print("gone", flush=True)
sys.stdin.read()
os.kill(int(guardian), 9)
"""
HOST = """
import os, subprocess, sys
boot, folder, limits = sys.argv[1:]
words = [sys.executable, "-I", "-S", "-c", boot, folder, str(os.getpid()), limits]
print(subprocess.Popen(words, stdin=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_guardian_whose_host_is_gone_is_found_whoever_adopted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    folder = tmp_path / "a folder" / "fairlead"
    folder.mkdir(parents=True)
    (folder / "reaper.py").write_text("import time\ndef main(host, limits): time.sleep(60)\n")
    monkeypatch.setattr(sys, "platform", platform)
    boot, limits = guardian._BOOT, guardian._resource_limits()  # pyright: ignore[reportPrivateUsage]
    words = [sys.executable, "-c", ADOPTER, HOST, boot, str(folder), limits]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as adopter:
        assert adopter.stdout is not None
        assert adopter.stdin is not None
        pid = int(adopter.stdout.readline())
        assert pid not in find_orphaned_guardians(), "its host lives"
        adopter.stdin.write("\n")
        adopter.stdin.flush()
        assert adopter.stdout.readline() == "gone\n"
        assert pid in find_orphaned_guardians()
        adopter.stdin.close()
        adopter.wait(30)


def commands() -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            found[int(entry.name)] = words.decode(errors="replace")
    return found


async def test_a_guardian_at_work_and_its_reapers_are_no_orphans(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    configure(machine, s=server.entry(trust="trusted"))
    async with Host.open(env=machine.env, cwd=machine.project) as host:
        await host.list_now("s")
        ours = {pid for pid, said in commands().items() if guardian.host_of_guardian(said) == os.getpid()}
        assert len(ours) >= 2, "a guardian and a reaper"
        assert not ours & set(find_orphaned_guardians())
