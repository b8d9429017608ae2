"""The gateway in the background: as a detached process, and by a systemd that starts what a unit says."""

import json
import os
import plistlib
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.actions.context import ActionContext
from fairlead.actions.gateway_service import stop_gateway
from fairlead.gateway.registry import gateway_folder, living
from fairlead.gateway.service import (
    Detached,
    Launchd,
    ServiceCommand,
    Systemd,
    is_temporary,
    launchd_agent,
    own_command,
    process_identity,
    service_manager,
    systemd_unit,
)
from fairlead.terminal.output import printable
from tests.cli.gateway_support import (
    INITIALIZE,
    INITIALIZED,
    SECONDS,
    add_scripted,
    call,
    command,
    talk,
)
from tests.conftest import Machine

SYSTEMCTL = f"""#!{sys.executable}
import os, re, shlex, signal, subprocess, sys, time
from pathlib import Path

home = Path(os.environ["HOME"])
with open(home / "systemctl.calls", "a") as calls:
    print(shlex.join(sys.argv[1:]), file=calls)
words = [word for word in sys.argv[2:] if not word.startswith("-")]
unit, pid = home / ".config/systemd/user/fairlead-gateway.service", home / "unit.pid"
enabled = home / "unit.enabled"
if words[0] == "restart":
    text = unit.read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    env = {{"HOME": str(home)}}
    for line in text.splitlines():
        if line.startswith("Environment="):
            (word,) = shlex.split(line.partition("=")[2])
            name, _, value = word.partition("=")
            env[name] = value.replace("%%", "%")
    start = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(said["ExecStart"])]
    process = subprocess.Popen(start, cwd=said["WorkingDirectory"], env=env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid.write_text(str(process.pid))
elif words[0] == "stop":
    os.kill(int(pid.read_text()), signal.SIGTERM)
elif words[0] == "enable":
    enabled.touch()
elif words[0] == "disable":
    enabled.unlink(missing_ok=True)
elif words[0] == "is-enabled":
    print("enabled" if enabled.exists() else "disabled")
elif words[0] == "is-active":
    try:
        os.kill(int(pid.read_text()), 0)
        print("active")
    except ProcessLookupError:
        print("failed")
"""


@pytest.fixture(autouse=True)
def nothing_is_left(machine: Machine) -> Iterator[None]:
    """End what a test started and did not end."""
    yield
    subprocess.run(
        command("gateway", "stop", "--all"),
        env=machine.env,
        cwd=machine.project,
        timeout=SECONDS,
        capture_output=True,
        check=False,
    )
    assert living(machine.env) == []


@pytest.fixture
def no_manager(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without systemd, as a container is."""
    folder = machine.home / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    (folder / "systemctl").chmod(0o755)
    return with_path(machine, folder, monkeypatch)


@pytest.fixture
def systemd(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a systemd that starts what the unit says, and notes what it is told."""
    folder = machine.home / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    return with_path(machine, folder, monkeypatch)


def with_path(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    path = f"{folder}{os.pathsep}{machine.env['PATH']}"
    monkeypatch.setenv("PATH", path)
    return Machine(home=machine.home, project=machine.project, env={**machine.env, "PATH": path})


def run(machine: Machine, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as a shell would: what it starts is no child of this process."""
    return subprocess.run(
        command(*words),
        env=machine.env,
        cwd=machine.project,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def ask(machine: Machine, *words: str) -> dict[str, Any]:
    done = run(machine, *words, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    return process_identity(pid) is not None


def test_it_runs_in_the_background_and_ends_with_its_servers(no_manager: Machine) -> None:
    machine = no_manager
    record = add_scripted(machine, tools=["pid"])
    assert run(machine, "gateway", "status").returncode == 4
    assert ask(machine, "gateway", "status")["running"] is False
    started = ask(machine, "gateway", "start", "--port", "0")
    assert started["is_new"]
    assert started["started_by"] == "background"
    (running,) = living(machine.env)
    assert (running.pid, running.workspace) == (started["pid"], str(machine.project))
    state = ask(machine, "gateway", "status")
    assert (state["running"], state["answering"], state["pid"]) == (True, True, running.pid)
    assert state["version"]
    assert state["started_at"] <= time.time()
    assert [server["id"] for server in state["servers"]] == ["s"]
    shown = run(machine, "gateway", "status")
    assert shown.returncode == 0
    assert f"process {running.pid}" in shown.stdout
    answer = talk(machine, [INITIALIZE, INITIALIZED, call(3, "s_pid")])[-1]
    server = int(answer["result"]["content"][0]["text"])
    assert record.exists()
    assert is_alive(server)
    stopped = run(machine, "gateway", "stop")
    assert stopped.returncode == 0
    assert f"process {running.pid}" in stopped.stderr
    assert not is_alive(running.pid)
    wait_for(lambda: not is_alive(server))
    again = run(machine, "gateway", "stop")
    assert (again.returncode, again.stderr) == (0, "no gateway was running\n")


def test_a_second_one_is_told_of_the_first(no_manager: Machine) -> None:
    machine = no_manager
    first = ask(machine, "gateway", "start", "--port", "0")
    second = ask(machine, "gateway", "start")
    assert (second["is_new"], second["pid"], second["url"]) == (False, first["pid"], first["url"])
    port = re.search(r":(\d+)/", first["url"])
    assert port is not None
    foreground = run(machine, "gateway", "--port", port[1])
    assert foreground.returncode == 1
    assert f"already (process {first['pid']})" in foreground.stderr
    assert "`fairlead gateway stop` ends it" in foreground.stderr
    elsewhere = machine.project / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "fairlead.json").write_text("{}")
    other = run(Machine(home=machine.home, project=elsewhere, env=machine.env), "gateway", "start")
    assert other.returncode == 1
    assert f"{first['url'].removesuffix('/mcp')} (process {first['pid']})" in other.stderr
    assert "fairlead gateway stop" in other.stderr


def test_a_start_that_fails_says_why(no_manager: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(no_manager, "gateway", "start", "--port", str(port))
    assert done.returncode == 1
    assert f"the port is in use by `{process_name()}` (process {os.getpid()})" in done.stderr
    assert "--port 0" in done.stderr
    assert living(no_manager.env) == []


def test_the_file_that_config_names_is_the_services_too(no_manager: Machine) -> None:
    machine = no_manager
    file = machine.project / "other.json"
    file.write_text('{"servers": {}}')
    started = ask(machine, "--config", str(file), "gateway", "start", "--port", "0")
    assert started["is_new"]
    (running,) = living(machine.env)
    assert running.pid == started["pid"]
    words = command_of(running.pid)
    assert words[words.index("gateway") - 2 : words.index("gateway")] == ["--config", str(file)]


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_options_before_start_are_the_services(no_manager: Machine) -> None:
    refused = run(no_manager, "gateway", "--auth", "none", "start")
    assert refused.returncode == 2
    assert "--i-know" in refused.stderr
    assert json.loads(run(no_manager, "gateway", "--json", "status").stdout)["running"] is False
    started = ask(no_manager, "gateway", "--port", "0", "--agent", "--auth", "none", "--i-know", "start")
    (running,) = living(no_manager.env)
    assert running.token_file is None, "any program may call"
    assert "--agent" in command_of(started["pid"])


def test_the_store_before_start_is_the_services_and_no_password_is_written_down(
    systemd: Machine,
) -> None:
    machine = systemd
    refused = run(machine, "gateway", "--store", "redis://:hunter2secret@localhost/0", "start")
    assert refused.returncode == 2
    assert "password" in refused.stderr
    assert "hunter2secret" not in refused.stderr
    unit = machine.home / ".config/systemd/user/fairlead-gateway.service"
    assert not unit.exists()
    keyless = run(machine, "gateway", "--store", "redis://127.0.0.1:1/0", "start")
    assert keyless.returncode == 1
    assert "there is no cluster key, and nothing is kept in Redis without" in keyless.stderr
    assert '"--store" "redis://127.0.0.1:1/0"' in unit.read_text()


@pytest.mark.parametrize("words", [("--stdio", "start"), ("--agent", "stop"), ("--bundle", "b", "status")])
def test_an_option_that_a_subcommand_would_drop_is_refused(
    no_manager: Machine, words: tuple[str, ...]
) -> None:
    refused = run(no_manager, "gateway", *words)
    assert refused.returncode == 2
    assert f"`{words[0]}` is of no use to `fairlead gateway {words[-1]}`" in refused.stderr


def process_name() -> str:
    return Path("/proc/self/comm").read_text().strip()


def test_at_login_needs_a_manager(no_manager: Machine) -> None:
    done = run(no_manager, "gateway", "start", "--port", "0", "--at-login")
    assert done.returncode == 1
    assert "neither systemd nor launchd" in done.stderr
    assert living(no_manager.env) == []


@pytest.mark.requirement("HARD-10")
def test_its_log_is_private_shown_and_without_secrets(no_manager: Machine) -> None:
    machine = no_manager
    assert "no gateway has run in the background yet" in run(machine, "gateway", "logs").stderr
    ask(machine, "gateway", "start", "--port", "0")
    log = gateway_folder(machine.env) / "gateway.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "info: listening url=http://127.0.0.1:" in run(machine, "gateway", "logs").stdout
    opened = run(machine, "gateway", "open")
    assert "/login?code=" in opened.stdout
    run(machine, "gateway", "stop")
    text = log.read_text()
    assert "info: stopping" in text
    assert "code=" not in text
    for name in ("token", "decide-token"):
        assert (gateway_folder(machine.env) / name).read_text().strip() not in text


def test_a_log_is_followed_until_ctrl_c(no_manager: Machine) -> None:
    machine = no_manager
    ask(machine, "gateway", "start", "--port", "0")
    words = command("gateway", "logs", "--follow", "--lines", "1")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=machine.project, env=machine.env
    ) as following:
        assert following.stdout is not None
        assert "listening" in following.stdout.readline()
        run(machine, "gateway", "stop")
        assert "stopping" in following.stdout.readline()
        following.terminate()
        following.communicate(timeout=SECONDS)


def test_a_log_that_is_followed_as_json_has_an_object_on_each_line_at_once(no_manager: Machine) -> None:
    machine = no_manager
    log = machine.home / ".local/state/fairlead/gateway/gateway.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n\x1b[31mtwo\n")
    shown = run(machine, "gateway", "logs", "-n", "1", "--json")
    assert [json.loads(line)["line"] for line in shown.stdout.splitlines()] == [printable("\x1b[31mtwo")]
    words = command("gateway", "logs", "--json", "--follow")
    with subprocess.Popen(
        words, env=machine.env, cwd=machine.project, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"line": "one"}
        assert "two" in json.loads(process.stdout.readline())["line"]
        with log.open("a") as file:
            file.write("three\n")
        assert json.loads(process.stdout.readline()) == {"line": "three"}
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=SECONDS)
        assert json.loads(rest)["error"]["code"] == "interrupted"


def test_a_log_file_stays_bounded(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    script = (
        "import logging, sys; from pathlib import Path\n"
        "from fairlead.terminal.log_output import log_to_file\n"
        "log_to_file(Path(sys.argv[1]), 2000)\n"
        "for number in range(200): logging.getLogger('fairlead.x').info('line %d', number)\n"
        "print('from the program', flush=True)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(log)], check=True, timeout=SECONDS)
    assert log.stat().st_size <= 2100
    older = log.with_name("x.log.1")
    assert older.stat().st_size <= 2100
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log, older)] == [0o600, 0o600]
    assert "line 199" in log.read_text()
    assert "from the program" in log.read_text()


def test_a_gateway_that_hangs_is_killed(no_manager: Machine) -> None:
    machine = no_manager
    started = ask(machine, "gateway", "start", "--port", "0")
    os.kill(started["pid"], signal.SIGSTOP)
    context = ActionContext(surface="command line", env=machine.env, reload=machine.load)
    stopped = stop_gateway(context, seconds=1.0)
    assert [running.pid for running in stopped.killed] == [started["pid"]]
    wait_for(lambda: not is_alive(started["pid"]))


def test_systemd_runs_it_from_a_unit_and_at_login(systemd: Machine) -> None:
    machine = systemd
    started = ask(machine, "gateway", "start", "--port", "0")
    assert (started["started_by"], started["at_login"]) == ("systemd", False)
    unit = machine.home / ".config/systemd/user/fairlead-gateway.service"
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    text = unit.read_text()
    start = shlex.split(re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)[0])
    assert Path(start[0]).is_absolute()
    assert os.access(start[0], os.X_OK)
    assert start[-4:] == ["--started-by", "systemd", "--port", "0"]
    assert f"WorkingDirectory={machine.project}\n" in text
    assert ask(machine, "gateway", "start", "--at-login")["at_login"] is True
    assert ask(machine, "gateway", "status")["at_login"] is True
    stopped = ask(machine, "gateway", "stop", "--disable")
    assert [running["pid"] for running in stopped["stopped"]] == [started["pid"]]
    assert stopped["removed"] == str(unit)
    assert not unit.exists()
    calls = (machine.home / "systemctl.calls").read_text().splitlines()
    managed = [call for call in calls if "show-environment" not in call and " is-" not in call]
    assert managed == [
        "--user daemon-reload",
        "--user restart fairlead-gateway.service",
        "--user daemon-reload",
        "--user enable fairlead-gateway.service",
        "--user stop --no-block fairlead-gateway.service",
        "--user disable fairlead-gateway.service",
        "--user daemon-reload",
    ]


def test_a_unit_that_fails_says_why(systemd: Machine) -> None:
    systemd.write_user('{"gateway": {"port": "many"}}')
    done = run(systemd, "gateway", "start")
    assert done.returncode == 1
    assert "gateway" in done.stderr
    assert living(systemd.env) == []


AWKWARD = ServiceCommand(
    words=('/opt/my apps/100%/fair"lead', "gateway", "--bundle", "a$b\\c"),
    folder=Path("/home/me/50% off"),
    env={
        "PATH": "/a b:/c%d",
        "HTTPS_PROXY": "http://u:pw@proxy",
        "HTTP_PROXY": "http://proxy:1",
        "KEY": "sk-1",
    },
)


def test_a_unit_quotes_what_systemd_would_take_for_its_own() -> None:
    text = systemd_unit(AWKWARD)
    assert 'ExecStart="/opt/my apps/100%%/fair\\"lead" "gateway" "--bundle" "a$$b\\\\c"\n' in text
    assert "WorkingDirectory=/home/me/50%% off\n" in text
    assert 'Environment="PATH=/a b:/c%%d"\n' in text
    assert 'Environment="HTTP_PROXY=http://proxy:1"\n' in text
    assert "pw" not in text
    assert "sk-1" not in text
    for line in ("Restart=on-failure", "UMask=0077", "WantedBy=default.target"):
        assert f"{line}\n" in text


def test_a_launchd_agent_has_the_same() -> None:
    agent = plistlib.loads(launchd_agent(AWKWARD).encode())
    assert agent["ProgramArguments"] == [*AWKWARD.words]
    assert agent["WorkingDirectory"] == "/home/me/50% off"
    assert agent["EnvironmentVariables"] == {"PATH": "/a b:/c%d", "HTTP_PROXY": "http://proxy:1"}
    assert (agent["Label"], agent["RunAtLoad"], agent["Umask"]) == ("fairlead.gateway", True, 0o077)


def test_launchd_is_told_what_to_load_and_starts_at_login_only_if_wanted(
    machine: Machine, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    program = tmp_path / "launchctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(calls))}\n')
    program.chmod(0o755)
    env = {**machine.env, "PATH": f"{tmp_path}:{machine.env['PATH']}"}
    manager = service_manager(env, "darwin")
    assert isinstance(manager, Launchd)
    domain = f"gui/{os.getuid()}"
    manager.start(AWKWARD, at_login=False)
    plain = gateway_folder(env) / "fairlead.gateway.plist"
    assert plain.exists()
    assert not manager.is_at_login()
    manager.start(AWKWARD, at_login=True)
    at_login = machine.home / "Library/LaunchAgents/fairlead.gateway.plist"
    assert manager.is_at_login()
    assert plistlib.loads(at_login.read_bytes())["Label"] == "fairlead.gateway"
    manager.stop(1)
    assert manager.remove() == at_login
    assert not at_login.exists()
    assert manager.remove() is None
    bootout = f"bootout {domain}/fairlead.gateway"
    assert calls.read_text().splitlines() == [
        bootout,
        f"bootstrap {domain} {plain}",
        bootout,
        f"bootstrap {domain} {at_login}",
        bootout,
    ]


def test_where_there_is_no_manager_a_process_is_detached(no_manager: Machine, machine: Machine) -> None:
    assert isinstance(service_manager(no_manager.env, "linux"), Detached)
    assert isinstance(service_manager({"PATH": "/nonexistent", "HOME": str(machine.home)}, "linux"), Detached)
    assert isinstance(
        service_manager({"PATH": "/nonexistent", "HOME": str(machine.home)}, "darwin"), Detached
    )


def test_a_systemd_that_answers_is_used(systemd: Machine) -> None:
    assert isinstance(service_manager(systemd.env, "linux"), Systemd)


def test_the_command_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fairlead"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    link = tmp_path / "links" / "fairlead"
    link.parent.mkdir()
    link.symlink_to(script)
    assert own_command([str(link)]) == (str(link),)  # which outlives what it leads to now
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command(["fairlead"]) == (str(script),)
    for words in (own_command(["/x/fairlead/__main__.py"]), own_command([])):
        assert Path(words[0]).is_absolute()
        assert os.access(words[0], os.X_OK)
    assert is_temporary(["/home/me/.cache/uv/archive-v0/abc/bin/fairlead"])
    assert not is_temporary(["/home/me/.local/bin/fairlead"])
