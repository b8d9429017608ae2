"""The catalog of the gateway that runs, for the commands that look into it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.cli.known import Absence, Known
from fairlead.cli.saved import Saved
from fairlead.config.load import LoadedServer
from fairlead.gateway.running import Running
from fairlead.host.snapshots import snapshot_of
from fairlead.policy.quarantine import Screened

if TYPE_CHECKING:
    from fairlead.gateway.errands import KnownServer


def with_live(found: Known, servers: Sequence[LoadedServer], running: Running, *, refresh: bool) -> Known:
    """What a gateway knows of servers, once those that never were asked are; raises `GatewayGone`."""
    from fairlead.cli.running import run_with_host, spinning
    from fairlead.cli.terminal import operator_here
    from fairlead.gateway.attached_host import attached_host

    live: dict[str, KnownServer] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        async with attached_host(running, found.loaded, operator) as host, spinning("asking …"):
            wanted = tuple(server.server_id for server in servers)
            live.update(await host.servers(wanted, refresh=refresh))
        return 0

    run_with_host(main)
    return replace(
        found,
        saved={**found.saved, **{name: _saved(found.saved[name], name, said) for name, said in live.items()}},
        failed={name: _absence(said) for name, said in live.items() if said.failure},
    )


def _saved(before: Saved, server_id: str, said: "KnownServer") -> Saved:
    snapshot = snapshot_of(server_id, said.snapshot) if said.snapshot else None
    screened = Screened(listing=snapshot.listing, quarantined=said.quarantined) if snapshot else None
    return replace(before, snapshot=snapshot, screened=screened, trouble=said.trouble)


def _absence(said: "KnownServer") -> Absence:
    from fairlead.gateway.errands import raised

    assert said.failure is not None
    return Absence.because(raised(said.failure))
