"""Write the lockfile of servers, and check that servers are as it says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.actions.context import ActionContext, Notice
from fairlead.catalog.definitions import FORMAT
from fairlead.config.document.files import write_atomic
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.errors import ConfigError, ListFailed, Remedy
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

if TYPE_CHECKING:
    from fairlead.host.host import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class LockPlan:
    """Servers to lock or check, and the lockfile."""

    path: Path
    servers: Sequence[LoadedServer]
    before: Mapping[str, LockedServer]
    """What the file says of servers, as far as that is compared or kept."""
    only: Sequence[str] = ()
    """The servers that were named, where not all are meant."""


def plan_lock(loaded: LoadedConfig, *, file: Path | None = None, only: Sequence[str] = ()) -> LockPlan:
    """Choose the servers to lock, and the file: in the folder of the one that describes them.

    Raises:
        ConfigError: There is no server to lock; they are described by several files and `file` is None; or
            the lockfile was written by a newer release.
    """
    servers = _servers_to_lock(loaded, only)
    path = file or _lock_file(servers)
    require_replaceable(path)
    lock = read_lock(path) if only else None
    return LockPlan(path=path, servers=servers, before=lock.servers if lock else {}, only=only)


def plan_check(loaded: LoadedConfig, *, file: Path | None = None, only: Sequence[str] = ()) -> LockPlan:
    """Choose the servers to check, and the file, as `plan_lock` does.

    Raises:
        ConfigError: As for `plan_lock`; or there is no such file.
    """
    servers = _servers_to_lock(loaded, only)
    path = file or _lock_file(servers)
    lock = read_lock(path)
    if lock is None:
        raise ConfigError(f"there is no {path}", hint="run `fairlead lock` to write it")
    return LockPlan(path=path, servers=servers, before=lock.servers, only=only)


def _servers_to_lock(loaded: LoadedConfig, only: Sequence[str]) -> list[LoadedServer]:
    """The servers that are named; else those switched on in the project's file; else in the user's."""
    if only:
        return [loaded.server(server_id) for server_id in only]
    layers = {layer.name for layer in loaded.layers}
    whose = next((name for name in ("file", "project", "user") if name in layers), None)
    servers = [server for server in loaded.servers.values() if server.enabled and server.source == whose]
    if not servers:
        raise ConfigError("there is no server to lock", hint="run `fairlead list` to see the configured ones")
    return servers


def _lock_file(servers: Iterable[LoadedServer]) -> Path:
    places = {place for server in servers if (place := lock_path(server)) is not None}
    if len(places) != 1:
        raise ConfigError(
            "these servers are not described by one file", hint="say which file", remedy=Remedy(input="file")
        )
    return places.pop()


async def describe_servers(
    host: "Host", servers: Sequence[LoadedServer], formats: Mapping[str, int] | None = None
) -> dict[str, LockedServer]:
    """Connect servers and describe what they offer at this moment. One that fails is an error.

    Args:
        host: The host to connect them with.
        servers: The servers.
        formats: The format of digests by server, where it is not the present one.

    Raises:
        FairleadError: What went wrong with one of them: a lock of a part is no lock.
    """
    ids = [server.server_id for server in servers]
    for failure in (await host.connect(*ids)).values():
        raise failure
    managed = {each.server.server_id: each for each in host.servers}
    found: dict[str, LockedServer] = {}
    for server in servers:
        snapshot = managed[server.server_id].snapshot
        if snapshot is None:
            raise ListFailed(server.server_id, "what it offers could not be kept")
        found[server.server_id] = lock_server(
            server,
            snapshot.listing,
            protocol=snapshot.version,
            reported=(await host.describe(server.server_id)).name,
            format=(formats or {}).get(server.server_id, FORMAT),
        )
    return found


def write_lock(context: ActionContext, plan: LockPlan, now: Mapping[str, LockedServer]) -> list[Notice]:
    """Write what servers offer into the lockfile; those that were not described stay as they are.

    Returns:
        What the user should know about it.
    """
    write_atomic(plan.path, lock_text(Lock(servers={**plan.before, **now})))
    notices = context.tell_gateways()
    for server_id in now:
        notices += context.record("lock", server_id, file=str(plan.path.absolute()))
    return notices


@dataclass(frozen=True, kw_only=True, slots=True)
class LockCheck:
    """Differences of servers from the lockfile."""

    drifts: list[Drift]
    is_older: bool
    """Was the lockfile written by an older release, which had fewer fields in it?"""


async def check_servers(host: "Host", plan: LockPlan) -> LockCheck:
    """Connect servers and compare what they offer with the lockfile. Changes nothing."""
    # What is compared must be digests of one format.
    formats = {name: locked.format for name, locked in plan.before.items()}
    now = await describe_servers(host, plan.servers, formats)
    compared = {name: locked for name, locked in plan.before.items() if not plan.only or name in plan.only}
    is_older = any(locked.format < FORMAT for locked in plan.before.values())
    return LockCheck(drifts=drifts(compared, now), is_older=is_older)
