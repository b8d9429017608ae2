"""`fairlead lock`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from fairlead.actions.saved_state import read_saved
from fairlead.catalog.definitions import FORMAT
from fairlead.cli.options import json_option, load
from fairlead.config.document.files import write_atomic
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import LOCK_NAME
from fairlead.errors import ConfigError, FairleadError, ListFailed
from fairlead.policy.lockfile import (
    Drift,
    Lock,
    LockedServer,
    drifts,
    lock_path,
    lock_server,
    lock_text,
    read_lock,
    require_replaceable,
)
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import counted, display_path, print_data, print_json, printable, say


@click.command("lock")
@click.option(
    "--check", is_flag=True, help="Write nothing; say what differs, and exit with 6 if anything does."
)
@click.option(
    "--file", "file", type=click.Path(path_type=Path), metavar="FILE", help=f"Another file than {LOCK_NAME}."
)
@click.option("--only", "only", multiple=True, metavar="ID", help="Only this server; repeat it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: Path | None, only: tuple[str, ...], *, check: bool, as_json: bool
) -> int:
    """Write down what servers offer in fairlead.lock, beside the project's file, or check that it is so.

    With a lock, a tool that is not what the lock says is not offered. Nothing is allowed by it. The servers
    that the project's file describes are connected for it; without one, those that your own file describes.

    \b
    Examples:
      fairlead lock
      fairlead lock --check
      fairlead lock --only github
    """
    loaded = load(ctx)
    servers = [loaded.server(server_id) for server_id in only] or _servers_to_lock(loaded)
    path = file or _path(servers)
    if not check:
        require_replaceable(path)
    lock = read_lock(path) if check or only else None
    if check and lock is None:
        raise ConfigError(f"there is no {display_path(path)}", hint="run `fairlead lock` to write it")
    before = lock.servers if lock else {}
    # What is compared must be digests of one format; what is written is of the present one.
    formats = {name: of.format for name, of in before.items()} if check else {}
    now = _lock_servers(loaded, servers, formats)
    if check:
        if any(of.format < FORMAT for of in before.values()):
            say(f"{display_path(path)} is of an older release: `fairlead lock` adds icons and `_meta`")
        compared = {name: of for name, of in before.items() if name in only} if only else before
        return _report(drifts(compared, now), path, as_json=as_json)
    write_atomic(path, lock_text(Lock(servers={**before, **now})))
    tools = sum(len(server.tools) for server in now.values())
    say(f"locked {counted(tools, 'tool')} of {counted(len(now), 'server')} in {display_path(path)}")
    if as_json:
        print_json({"file": str(path), "servers": {name: len(of.tools) for name, of in now.items()}})
    return Exit.OK


def _servers_to_lock(loaded: LoadedConfig) -> list[LoadedServer]:
    """The servers that are switched on and described by the project's file; else by the user's."""
    layers = {layer.name for layer in loaded.layers}
    whose = next((name for name in ("file", "project", "user") if name in layers), None)
    servers = [server for server in loaded.servers.values() if server.enabled and server.source == whose]
    if not servers:
        raise ConfigError("there is no server to lock", hint="run `fairlead list` to see the configured ones")
    return servers


def _path(servers: Iterable[LoadedServer]) -> Path:
    places = {place for server in servers if (place := lock_path(server)) is not None}
    if len(places) != 1:
        raise ConfigError("these servers are not described by one file", hint="say where with `--file`")
    return places.pop()


def _lock_servers(
    loaded: LoadedConfig, servers: list[LoadedServer], formats: Mapping[str, int]
) -> dict[str, LockedServer]:
    """What the servers are at this moment. One that fails is an error: half a lock is no lock."""
    reported = _connect(loaded, [server.server_id for server in servers])
    saved = read_saved(loaded)
    found: dict[str, LockedServer] = {}
    for server in servers:
        snapshot = saved[server.server_id].snapshot
        if snapshot is None:
            raise ListFailed(server.server_id, "what it offers could not be kept")
        found[server.server_id] = lock_server(
            server,
            snapshot.listing,
            protocol=snapshot.version,
            reported=reported[server.server_id],
            format=formats.get(server.server_id, FORMAT),
        )
    return found


def _connect(loaded: LoadedConfig, server_ids: list[str]) -> Mapping[str, str | None]:
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_with_host, spinning
    from fairlead.terminal.prompts import operator_here

    reported: dict[str, str | None] = {}
    failures: dict[str, FairleadError] = {}

    async def main() -> int:
        async with Host.open(loaded, operator=operator_here()) as host:
            async with spinning(f"connecting {', '.join(server_ids)} …"):
                failures.update(await host.connect(*server_ids))
            for server_id in server_ids if not failures else ():
                reported[server_id] = (await host.describe(server_id)).name
        return Exit.OK

    run_with_host(main)
    for failure in failures.values():
        raise failure
    return reported


def _report(found: list[Drift], path: Path, *, as_json: bool) -> int:
    if as_json:
        print_json({"file": str(path), "drift": [asdict(drift) for drift in found]})
    else:
        for drift in found:
            print_data(printable(_line(drift)))
        differing = f"{counted(len(found), 'difference')} from {display_path(path)}"
        say(differing if found else f"as {display_path(path)} says")
    return Exit.DRIFT if found else Exit.OK


def _line(drift: Drift) -> str:
    subject = drift.server_id if drift.tool is None else f"{drift.server_id}/{drift.tool}"
    if drift.before is not None or drift.now is not None:
        return f"{subject}: {drift.fields[0]} was {_short(drift.before)}, is {_short(drift.now)}"
    fields = f" ({', '.join(drift.fields)})" if drift.fields else ""
    return f"{subject}: {drift.what}{fields}"


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return f"{value[:12]}…" if len(value) == 64 else value
