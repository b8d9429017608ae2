"""List the processes that act as one gateway: replicas that share a store, or the workers of one machine."""

import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from fairlead.gateway.cluster.replicas import PEER_PROTOCOL, ReplicaDirectory, SeenReplica

ReplicaCondition = Literal["ready", "not ready", "draining", "not heard from", "other version"]
"""`not ready`: a required server is not. `draining`: it is about to stop. `not heard from`: its announcement
ran out while the store is away. `other version`: it speaks to its peers in another way."""

_MEGABYTE: Final = 1024 * 1024


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a gateway, as the queried process knows it."""

    id: str
    name: str
    """The name of its machine, or which worker it is."""
    address: str
    version: str
    pid: int
    condition: ReplicaCondition
    is_asked: bool
    """Whether it is the one that tells all this."""
    uptime_seconds: float
    seen_seconds: float
    """How long ago it was heard from."""
    sessions: int
    connections: int
    requests: int
    """Requests under way."""
    requests_in_minute: int
    cpu_percent: float
    memory_bytes: int | None
    servers: tuple[str, ...]
    """The servers whose one process it runs for all."""

    @property
    def memory(self) -> str:
        """Its memory as text."""
        return "-" if self.memory_bytes is None else f"{self.memory_bytes / _MEGABYTE:,.0f} MB"


def list_replicas(directory: ReplicaDirectory | None) -> list[ReplicaState]:
    """Return every process of a gateway, the oldest first; none where there is one process alone."""
    if directory is None:
        return []
    return [_describe(each, directory.id) for each in directory.seen()]


def replicas_as_json(replicas: Sequence[ReplicaState]) -> list[dict[str, Any]]:
    """The processes as JSON: for `/api/status` and `fairlead gateway status --json`."""
    return msgspec.to_builtins(replicas)


def read_replicas(said: object) -> list[ReplicaState]:
    """Parse the processes in `/api/status`; none where a gateway of another version has none."""
    try:
        return msgspec.convert(said, list[ReplicaState], strict=False)
    except msgspec.ValidationError:
        return []


def describe_seconds(seconds: float) -> str:
    """A duration in its two largest units: `3 d 4 h`."""
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def _describe(seen: SeenReplica, asked: str) -> ReplicaState:
    replica, details = seen.replica, seen.replica.details
    return ReplicaState(
        id=replica.id,
        name=details.name or replica.id,
        address=replica.address,
        version=replica.version,
        pid=details.pid,
        condition=_condition(seen),
        is_asked=replica.id == asked,
        uptime_seconds=max(0.0, time.time() - replica.started),
        seen_seconds=round(seen.seconds, 1),
        sessions=replica.sessions,
        connections=details.connections,
        requests=replica.calls,
        requests_in_minute=details.requests_in_minute,
        cpu_percent=details.cpu_percent,
        memory_bytes=details.memory_bytes,
        servers=details.servers,
    )


def _condition(seen: SeenReplica) -> ReplicaCondition:
    if not seen.is_living:
        return "not heard from"
    if seen.replica.protocol != PEER_PROTOCOL:
        return "other version"
    if seen.replica.is_draining:
        return "draining"
    return "ready" if seen.replica.details.is_ready else "not ready"
