"""What every test can use: a machine of its own, with nothing on it."""

import functools
import inspect
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from fairlead.config.load import LoadedConfig, load_config
from fairlead.config.secrets.masking import SECRETS
from fairlead.terminal.log_output import SDK_LOGGERS
from fairlead.testing.watchdog import watch_loop
from tests.loops import backend_of, chosen_loops

# A busy machine is no reason to fail: the time an example takes says nothing about whether it is right.
settings.register_profile("fairlead", deadline=None)
settings.load_profile("fairlead")


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interruptible, also where tests run under `nohup` or in a shell's background.

    There SIGINT is ignored, and every program inherits that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `long`, except where everything is to run; begin with the slow files.

    A file runs in one process: a slow one that began last would have all others wait for it.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    if long and not os.environ.get("FAIRLEAD_FULL"):
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


LOOP_LIMIT_SECONDS = 0.5
"""How long any asynchronous test may hold its event loop; hostile servers are examined with less."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Watch the event loop of each asynchronous test. A test that must block it is marked `blocks_loop`."""
    if inspect.iscoroutinefunction(pyfuncitem.obj) and not pyfuncitem.get_closest_marker("blocks_loop"):
        pyfuncitem.obj = _watched(pyfuncitem.obj)
    return (yield)


def _watched(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def run(**arguments: Any) -> None:
        with watch_loop(LOOP_LIMIT_SECONDS):
            await test(**arguments)

    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped tests where nothing may be skipped, and list what failed: see `.ci/run`."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped") if reporter else None
    if skipped and os.environ.get("FAIRLEAD_SKIPS") == "refuse":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif reporter and (path := os.environ.get("FAIRLEAD_FAILED_TESTS")):
        failed = {report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, ())}
        Path(path).write_text("".join(f"{nodeid}\n" for nodeid in sorted(failed)), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show what each journey took: see `tests/journeys`."""
    taken: dict[str, list[tuple[int, float]]] = {}
    for report in terminalreporter.stats.get("", ()):  # where the ends of tests are
        for name, value in getattr(report, "user_properties", ()):
            if name == "journey" and report.when == "teardown":
                taken.setdefault(value[0], []).append((value[1], value[2]))
    for name, parts in sorted(taken.items()):
        commands, seconds = sum(part[0] for part in parts), sum(part[1] for part in parts)
        terminalreporter.write_line(f"journey, {name}: {commands} commands, {seconds:.1f} s")


@pytest.fixture(params=chosen_loops())
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The event loop a test runs on; `FAIRLEAD_TEST_LOOPS` says which, see `tests/loops.py`."""
    return backend_of(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_keyring() -> None:
    """No test meets the keyring of this machine, nor one that another test defines."""
    import keyring
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())


@pytest.fixture(autouse=True)
def secrets_of_this_test() -> Iterator[None]:
    """What a test has masked, no later one of the same process has: its secrets are ordinary words there."""
    before = dict(vars(SECRETS))
    yield
    vars(SECRETS).update(before, generation=SECRETS.generation + 1)


@pytest.fixture(autouse=True)
def log_handlers_of_this_test() -> Iterator[None]:
    """A command that ran in this process logs to the stderr of its test: no later test has that handler."""
    loggers = [logging.getLogger(name) for name in ("fairlead", *SDK_LOGGERS)]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)


@dataclass(frozen=True)
class Machine:
    """A home, a project folder and an environment that no other test and no real user shares."""

    home: Path
    project: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def user_file(self) -> Path:
        return self.home / ".config" / "fairlead" / "fairlead.json"

    @property
    def project_file(self) -> Path:
        return self.project / "fairlead.json"

    def write_user(self, text: str) -> Path:
        return write(self.user_file, text)

    def write_project(self, text: str) -> Path:
        return write(self.project_file, text)

    def load(self, **rest: Any) -> LoadedConfig:
        return load_config(env=self.env, cwd=self.project, **rest)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine of the test's own; it is also the one the real environment and current folder point at.

    It has no built-in servers, so that a test sees only what it configures.
    """
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"]}
    env["FAIRLEAD_BUILTINS"] = "off"
    for name in list(os.environ):
        if name.startswith(("XDG_", "FAIRLEAD_", "CODELIA_", "CODEX_")):
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(project)
    return Machine(home=home, project=project, env=env)


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def fairlead(machine: Machine, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process, as `fairlead` would, and return what it printed."""
    from fairlead.cli.main import run

    def invoke(*arguments: str) -> Outcome:
        capfd.readouterr()
        status = run(arguments)
        captured = capfd.readouterr()
        return Outcome(status=int(status), out=captured.out, err=captured.err)

    return invoke


@pytest.fixture
def python() -> str:
    return sys.executable
