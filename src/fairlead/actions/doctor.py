"""Diagnosis of this machine, the configuration and the servers: problems, each with a fix.

Each check is a function that yields findings. A check never raises for what it looks for, and every wait in
it has a limit: a machine that is broken is what it is run on.
"""

import os
import platform
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from fairlead.actions.saved_state import UNREADABLE_ANSWERS_HINT, note_unreadable_answers
from fairlead.config.command_lines import command_line
from fairlead.config.document.files import hold_lock
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import BuiltinServer, Config, ExtensionServer, RemoteServer, StdioServer
from fairlead.config.paths import STATE_HINT, state_folder, user_file
from fairlead.config.secrets.redaction import redact_url
from fairlead.config.store_location import RedisLocation, StoreLocation, store_location
from fairlead.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigUnwritable,
    FairleadError,
    Problem,
    StoreError,
)
from fairlead.wording import without_server

if TYPE_CHECKING:
    from fairlead.host.host import Host

Status = Literal["ok", "note", "problem"]
"""`note` is for what works less well than it could, and for what nothing here needs."""

PROGRAM_SECONDS: Final = 10.0
SERVER_SECONDS: Final = 60.0
CLOCK_SECONDS: Final = 5.0
MAX_SKEW_SECONDS: Final = 60.0
_MIN_FREE_BYTES: Final = 100 * 1024 * 1024
_MIN_NODE: Final = 18
_LOCK_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result of one check."""

    area: str
    """What was looked at: `programs`, `configuration`, `servers` …"""
    subject: str
    status: Status
    message: str
    fix: str | None = None
    """What the user can do about it: a command where there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Program:
    """A program that servers or Fairlead itself may need."""

    name: str
    use: str
    install: str
    only_on: str = ""

    def is_run_by(self, server: LoadedServer) -> bool:
        config = server.config
        if self.name == "bwrap" and isinstance(config, StdioServer | ExtensionServer):
            return config.sandbox is not None
        if isinstance(config, BuiltinServer):
            return self.name == "bwrap" and config.builtin == "shell"
        if not isinstance(config, StdioServer):
            return False
        return Path(config.command).name.removesuffix(".exe").removesuffix(".cmd") == self.name


_PROGRAMS: Final = (
    _Program(
        name="uvx", use="runs servers that are Python packages", install="install uv (`pip install uv`)"
    ),
    _Program(name="npx", use="runs servers that are npm packages", install="install Node.js 20 or newer"),
    _Program(name="node", use="runs servers written in JavaScript", install="install Node.js 20 or newer"),
    _Program(
        name="rg", use="searches repositories faster", install="install ripgrep with your package manager"
    ),
    _Program(
        name="bwrap",
        use="runs servers in a sandbox",
        install="install bubblewrap with your package manager",
        only_on="linux",
    ),
)


def diagnose(env: Mapping[str, str], load: Callable[[], LoadedConfig]) -> Iterator[Finding]:
    """Check everything that can be checked without contacting a server.

    Args:
        env: Environment variables of this process.
        load: Loads the configuration. What it raises is a finding.

    Yields:
        The findings, in the order of the checks.
    """
    yield from _check_installation(env)
    loaded: LoadedConfig | None = None
    try:
        loaded = load()
    except ConfigInvalid as exc:
        yield from _config_findings(exc.problems)
    except ConfigError as exc:
        yield Finding(area="configuration", subject="files", status="problem", message=str(exc), fix=exc.hint)
    else:
        yield from _check_config(loaded)
    yield from _check_programs(env, loaded.servers.values() if loaded else ())
    yield from _check_keyring()
    yield from _check_network(env)
    yield from _check_state(env, loaded)
    yield from _check_gateways(env)
    yield from _check_processes()


async def diagnose_servers(loaded: LoadedConfig, report: Callable[[Finding], None]) -> None:
    """Connect to every enabled server, and compare clocks with the remote ones.

    Args:
        loaded: The configuration.
        report: Called with the finding about each server, as soon as it is known.
    """
    import anyio

    from fairlead.host.host import Host

    enabled = [server for server in loaded.servers.values() if server.enabled and server.usable]
    if not enabled:
        return

    async def check(host: Host, server: LoadedServer) -> None:
        found = await _server_finding(host, server.server_id)
        report(found)
        # The URL of a project's server is contacted only with the user's consent, which the host looks after.
        may_contact = found.status == "ok" or not server.needs_consent
        if isinstance(server.config, RemoteServer) and may_contact and not server.has_references:
            finding = await _clock_finding(server.server_id, server.config.url)
            if finding is not None:
                report(finding)

    async with Host.open(loaded) as host, anyio.create_task_group() as tasks:
        for server in enabled:
            tasks.start_soon(check, host, server)


async def _server_finding(host: "Host", server_id: str) -> Finding:
    import anyio

    from fairlead.catalog.sanitize import gate

    try:
        with anyio.fail_after(SERVER_SECONDS):
            listing = await host.list_now(server_id)
    except FairleadError as exc:
        message = without_server(gate.error_text(exc), server_id)
        fix = exc.hint or f"run `{command_line('test', server_id)}`"
        return Finding(area="servers", subject=server_id, status="problem", message=message, fix=fix)
    except TimeoutError:
        message = f"not ready within {SERVER_SECONDS:g} s"
        fix = f"run `{command_line('test', server_id)}`"
        return Finding(area="servers", subject=server_id, status="problem", message=message, fix=fix)
    count = len(listing.tools)
    message = f"ready, {count} {'tool' if count == 1 else 'tools'}"
    if listing.notes and host.config.servers[server_id].transport == "extension":
        message = "; ".join((message, *listing.notes))
        fix = f"mend the files; `{command_line('logs', server_id)}` says more"
        return Finding(area="servers", subject=server_id, status="problem", message=message, fix=fix)
    return Finding(area="servers", subject=server_id, status="ok", message=message)


# The machine.


def _check_installation(env: Mapping[str, str]) -> Generator[Finding]:
    yield Finding(
        area="installation",
        subject="fairlead",
        status="ok",
        message=f"{installed_version('fairlead')}, Python {platform.python_version()} at {sys.executable}",
    )
    command = shutil.which("fairlead", path=env.get("PATH"))
    if command is None:
        yield Finding(
            area="installation",
            subject="command",
            status="note",
            message="`fairlead` is not on PATH, so a shell finds it only by its full path",
            fix="run `uv tool install .` in the project's folder, then `uv tool update-shell`",
        )


def _check_programs(env: Mapping[str, str], servers: Iterable[LoadedServer]) -> Generator[Finding]:
    enabled = [server for server in servers if server.enabled]
    for program in _PROGRAMS:
        if program.only_on and sys.platform != program.only_on:
            continue
        users = [server.server_id for server in enabled if program.is_run_by(server)]
        path = shutil.which(program.name, path=env.get("PATH"))
        if path is None:
            yield _missing_program(program, users)
            continue
        version = _ask_version(path, env)
        if version is None:
            yield Finding(
                area="programs",
                subject=program.name,
                status="problem" if users else "note",
                message=f"{path} does not run",
                fix=program.install,
            )
        elif program.name == "node" and _major(version) < _MIN_NODE:
            yield Finding(
                area="programs",
                subject="node",
                status="problem" if users else "note",
                message=f"{version} is too old for most servers",
                fix=program.install,
            )
        else:
            yield Finding(area="programs", subject=program.name, status="ok", message=f"{version} at {path}")


def _missing_program(program: _Program, users: Collection[str]) -> Finding:
    if users:
        names = ", ".join(f"`{name}`" for name in users)
        message = f"not found on PATH, and needed by {names}"
    else:
        message = f"not found on PATH; {program.use}"
    return Finding(
        area="programs",
        subject=program.name,
        status="problem" if users else "note",
        message=message,
        fix=program.install,
    )


def _ask_version(path: str, env: Mapping[str, str]) -> str | None:
    """First line that a program prints of its version; None where it does not run."""
    try:
        ended = subprocess.run(
            [path, "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = ended.stdout.splitlines()
    return lines[0].strip()[:80] if ended.returncode == 0 and lines else None


def _major(version: str) -> int:
    digits = version.removeprefix("v").partition(".")[0]
    return int(digits) if digits.isdigit() else _MIN_NODE


def _check_keyring() -> Generator[Finding]:
    from fairlead.config.secrets import keyring

    if keyring.is_available():
        yield Finding(area="secrets", subject="keyring", status="ok", message="secrets are kept in it")
        return
    yield Finding(
        area="secrets",
        subject="keyring",
        status="note",
        message="none that can be used: secrets and logins are kept in files that only you can read",
        fix="unlock or install a keyring (GNOME Keyring, KWallet, macOS Keychain) if you want one",
    )


def _check_network(env: Mapping[str, str]) -> Generator[Finding]:
    from fairlead.net.http import tls_context

    try:
        tls_context()
    except (ConfigError, OSError) as exc:
        fix = exc.hint if isinstance(exc, ConfigError) else "reinstall the system's CA certificates"
        yield Finding(area="network", subject="certificates", status="problem", message=str(exc), fix=fix)
    else:
        named = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if env.get(name)]
        whose = f"those that {' and '.join(named)} name" if named else "those of this system"
        yield Finding(area="network", subject="certificates", status="ok", message=f"trusts {whose}")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        if value := env.get(name):
            yield _proxy_finding(name, value)


def _proxy_finding(name: str, value: str) -> Finding:
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if is_usable:
        return Finding(
            area="network", subject=name, status="ok", message=f"requests go through {redact_url(text)}"
        )
    return Finding(
        area="network",
        subject=name,
        status="problem",
        message=f"{redact_url(text)} is not the URL of an HTTP proxy",
        fix=f"correct or unset {name}",
    )


# Configuration and state.


def _check_config(loaded: LoadedConfig) -> Generator[Finding]:
    files = [str(layer.path) for layer in loaded.layers if layer.path]
    enabled = sum(server.enabled for server in loaded.servers.values())
    where = f" in {', '.join(files)}" if files else ""
    yield Finding(
        area="configuration",
        subject="servers",
        status="ok",
        message=f"{enabled} enabled, {len(loaded.servers) - enabled} disabled{where}",
    )
    of_servers = (problem for server in loaded.servers.values() for problem in server.problems)
    yield from _config_findings(dict.fromkeys((*loaded.problems, *of_servers)))


def _config_findings(problems: Iterable[Problem]) -> Generator[Finding]:
    for problem in problems:
        yield Finding(
            area="configuration",
            subject=".".join(map(str, problem.path[:2])) or "files",
            status="problem" if problem.severity == "error" else "note",
            message=str(problem),
            fix=problem.hint or "correct that file; `fairlead schema` prints what each field may be",
        )


def _check_state(env: Mapping[str, str], loaded: LoadedConfig | None) -> Generator[Finding]:
    folder = state_folder(env)
    existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            area="state",
            subject="folder",
            status="problem",
            message=f"`{folder}` cannot be written",
            fix=STATE_HINT,
        )
        return
    free = shutil.disk_usage(existing).free
    if free < _MIN_FREE_BYTES:
        yield Finding(
            area="state",
            subject="disk",
            status="problem",
            message=f"{free // 1024 // 1024} MB are free at `{folder}`",
            fix="make room on that disk, or set XDG_STATE_HOME to a folder on another",
        )
    yield from _check_lock(user_file(env))
    location = store_location(env, loaded.config.store if loaded else None)
    store = _store_finding(location)
    yield store
    if loaded is not None and store.status != "problem" and (note := note_unreadable_answers(loaded)):
        yield Finding(
            area="state", subject="approvals", status="problem", message=note, fix=UNREADABLE_ANSWERS_HINT
        )
    if loaded is not None and (loaded.config.artifacts.s3 or isinstance(location, RedisLocation)):
        yield _artifacts_finding(env, loaded.config)


def _check_lock(path: Path) -> Generator[Finding]:
    if not path.parent.exists():
        return
    try:
        with hold_lock(path, timeout=_LOCK_SECONDS):
            return
    except ConfigUnwritable as exc:
        holder = _lock_holder(path.parent)
        fix = f"wait for process {holder}, or run `kill -9 {holder}`" if holder else exc.hint
        yield Finding(area="state", subject="lock", status="problem", message=str(exc), fix=fix)


def _lock_holder(folder: Path) -> int | None:
    """The process that holds the lock on a folder, where the system tells."""
    inode = str(folder.stat().st_ino)
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for words in (line.split() for line in lines):
        # Such as `1: FLOCK ADVISORY WRITE 708 00:32:13 0 EOF`; a process out of sight is 0 or -1.
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
            return int(words[4]) if words[4].isdigit() and words[4] != "0" else None
    return None


def _store_finding(path: StoreLocation) -> Finding:
    if isinstance(path, RedisLocation):
        return _redis_finding(path)
    if not path.exists():
        return Finding(area="state", subject="store", status="ok", message="nothing is stored yet")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as store:
            (result,) = store.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as exc:
        result = str(exc)
    if result == "ok":
        size = path.stat().st_size / 1024 / 1024
        return Finding(area="state", subject="store", status="ok", message=f"{path}, {size:.1f} MB")
    return Finding(
        area="state",
        subject="store",
        status="problem",
        message=f"`{path}` is damaged: {result}",
        fix=f"run `fairlead gateway stop --all`, then `{shlex.join(['mv', str(path), f'{path}.damaged'])}`; "
        "approvals and reviews are needed again",
    )


def _redis_finding(location: RedisLocation) -> Finding:
    from fairlead.store.redis_database import RedisDatabase

    try:
        with RedisDatabase.open(location) as database:
            facts = database.facts
    except StoreError as exc:
        return Finding(area="state", subject="store", status="problem", message=str(exc), fix=exc.hint)
    name = facts.get("server_name", "redis")
    shown = f"{location}, {name} {facts.get('redis_version')}, {facts.get('used_memory_human')} in use"
    if facts.get("aof_enabled") != "1":
        return Finding(
            area="state",
            subject="store",
            status="note",
            message=f"{shown}; it may lose the latest writes when it is restarted",
            fix="set `appendonly yes` in Redis",
        )
    return Finding(area="state", subject="store", status="ok", message=shown)


def _artifacts_finding(env: Mapping[str, str], config: Config) -> Finding:
    """Where replicas have artifacts that are too large for their store. A bucket is tried."""
    import anyio

    from fairlead.store.artifact_contents import ArtifactBucket, open_contents
    from fairlead.store.artifacts import MAX_BYTES_IN_STORE

    async def check() -> str | None:
        async with open_contents(env, config) as contents:
            if isinstance(contents, ArtifactBucket):
                await contents.check()
                return f"{contents.name}, encrypted"
            return f"`{config.artifacts.folder}`, not encrypted" if contents is not None else None

    try:
        place = anyio.run(check)
    except FairleadError as exc:
        return Finding(area="state", subject="artifacts", status="problem", message=str(exc), fix=exc.hint)
    limit = f"{MAX_BYTES_IN_STORE // 1024 // 1024} MB"
    if place is not None:
        message = f"over {limit} in {place}"
        return Finding(area="state", subject="artifacts", status="ok", message=message)
    return Finding(
        area="state",
        subject="artifacts",
        status="note",
        message=f"those over {limit} cannot be kept: there is no place for them that all replicas share",
        fix="set `artifacts.s3` to a bucket, or `artifacts.folder` to a shared folder",
    )


# What runs.


def _check_gateways(env: Mapping[str, str]) -> Generator[Finding]:
    from fairlead.gateway.registry import answering, living

    alive = living(env)
    pids = {running.pid for running in answering(env)}
    for running in alive:
        age = max(0, int(time.time() - running.started_at))
        if running.pid in pids:
            message = f"{running.url}, process {running.pid}, for {age // 60} minutes"
            yield Finding(area="gateways", subject=running.url, status="ok", message=message)
        else:
            yield Finding(
                area="gateways",
                subject=running.url,
                status="problem",
                message=f"process {running.pid} is alive, and does not answer",
                # It handles no other signal where it hangs; its guardian ends its servers.
                fix=f"run `kill -9 {running.pid}`; `fairlead gateway start` starts another",
            )


def _check_processes() -> Generator[Finding]:
    """Look for guardians of servers whose host is gone. Each ends by itself within a minute."""
    from fairlead.actions.orphans import find_orphaned_guardians

    for pid in find_orphaned_guardians():
        yield Finding(
            area="processes",
            subject=str(pid),
            status="problem",
            message="still ends the servers of a program that is gone",
            fix=f"wait a minute; if it is still there, run `kill -9 {pid}`",
        )


async def _clock_finding(server_id: str, url: str) -> Finding | None:
    """Compare this machine's clock with the one that a remote server's responses are dated by."""
    import aiohttp
    import anyio

    from fairlead.net.http import open_client

    try:
        with anyio.fail_after(CLOCK_SECONDS):
            async with open_client() as client, client.head(url) as response:
                date = response.headers.get("Date", "")
        behind = parsedate_to_datetime(date).timestamp() - time.time()
    except (aiohttp.ClientError, OSError, ValueError, TypeError):
        return None  # whether it can be reached has been said already
    if abs(behind) <= MAX_SKEW_SECONDS:
        return None
    how = "behind" if behind > 0 else "ahead of"
    return Finding(
        area="clock",
        subject=server_id,
        status="problem",
        message=f"this machine's clock is {abs(behind):.0f} s {how} the one of {urlsplit(url).hostname}",
        fix="set the clock (`timedatectl set-ntp true`): tokens are refused when it is wrong",
    )
