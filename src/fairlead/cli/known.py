"""The catalog for the commands that look into it: what is known at once, servers never asked by asking."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import click

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.entries import Listing
from fairlead.cli.exits import Exit, exit_of
from fairlead.cli.output import warn
from fairlead.cli.saved import Saved, read_saved
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.principal import LOCAL, LOCAL_CALLER, Caller
from fairlead.errors import FairleadError, UnknownServer
from fairlead.host.bundles import Selection, select
from fairlead.host.catalogs import catalog_of
from fairlead.policy.quarantine import Screened

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def bundle_option(function: FunctionT) -> FunctionT:
    """Add `--bundle`: whose tools."""
    return click.option("--bundle", metavar="NAME", help="Only what this bundle has, as it has it.")(function)


@dataclass(frozen=True, kw_only=True, slots=True)
class Absence:
    """Why a server cannot be had, and what to do."""

    reason: str
    hint: str | None = None
    needs_a_person: bool = False
    """A login or an approval is all that is missing."""

    @classmethod
    def because(cls, error: FairleadError) -> "Absence":
        """What an error means for whoever wants the server."""
        wanted = exit_of(error) == Exit.NEEDS_A_PERSON
        return cls(reason=str(error), hint=error.hint, needs_a_person=wanted)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A configuration, a choice of it, and what is known of its servers."""

    loaded: LoadedConfig
    selection: Selection
    saved: Mapping[str, Saved]
    failed: Mapping[str, Absence] = field(default_factory=dict[str, Absence])
    """What went wrong just now."""

    @property
    def chosen(self) -> list[LoadedServer]:
        """The servers of the choice that are switched on."""
        return [
            server
            for server_id, server in self.loaded.servers.items()
            if server.enabled and self.selection.has(server_id)
        ]

    def server(self, server_id: str) -> LoadedServer:
        """The server of the choice with that id, switched on or not."""
        server = self.loaded.server(server_id)
        if not self.selection.has(server_id):
            raise UnknownServer(f"the bundle `{self.selection.name}` has no server `{server_id}`")
        return server

    @cached_property
    def listings(self) -> dict[str, Listing]:
        """What servers are known to offer."""
        return {name: screened.listing for name, screened in self.screened.items()}

    @cached_property
    def screened(self) -> dict[str, Screened]:
        """The same, with what of it waits for a review."""
        return {name: saved.screened for name, saved in self.saved.items() if saved.screened}

    @property
    def before_defaults(self) -> set[str]:
        """The servers that keep the defaults of an earlier release (see `policy.upgrade`)."""
        return {name for name, saved in self.saved.items() if saved.before_defaults}

    @cached_property
    def catalog(self) -> Catalog:
        """The tools of the choice, as agents get them."""
        return catalog_of(self.loaded, self.selection, self.screened)

    def absence(self, server_id: str) -> Absence | None:
        """Why a server cannot be had, as far as that is known without trying."""
        server, saved = self.loaded.servers[server_id], self.saved[server_id]
        if not server.enabled:
            return Absence(reason=f"server `{server_id}`: it is switched off", hint=server.enable_hint)
        for problem in server.problems:
            if problem.severity == "error":
                return Absence(reason=str(problem), hint=problem.hint)
        if not saved.approved:
            return Absence(
                reason=f"server `{server_id}`: you have not approved this entry",
                hint=f"run `{command_line('approve', server_id)}`",
                needs_a_person=True,
            )
        if saved.trouble is not None:
            wanted = saved.trouble.state == "auth_required"
            return Absence(reason=saved.trouble.message, hint=saved.trouble.hint, needs_a_person=wanted)
        return self.failed.get(server_id)


def known(loaded: LoadedConfig, bundle: str | None = None, caller: Caller = LOCAL_CALLER) -> Known:
    """What earlier runs left behind, as a caller sees it. Contacts nobody.

    Another principal than the local user calls over the gateway, whose `approval` counts for it.
    """
    selection = select(loaded, bundle, caller)
    if caller.principal != LOCAL:
        selection = replace(selection, approval=loaded.config.gateway.approval)
    return Known(loaded=loaded, selection=selection, saved=read_saved(loaded))


def with_unasked(found: Known, servers: Iterable[LoadedServer], *, refresh: bool = False) -> Known:
    """The same, after asking those of the servers that never were; with `refresh`, all of them.

    Servers that need an approval are not asked.
    """
    ask = [
        server.server_id
        for server in servers
        if server.usable
        and found.saved[server.server_id].approved
        and (refresh or server.server_id not in found.listings)
    ]
    if not ask:
        return found
    failures = ask_now(found.loaded, ask)
    return Known(
        loaded=found.loaded,
        selection=found.selection,
        saved=read_saved(found.loaded),
        failed={name: Absence.because(error) for name, error in failures.items()},
    )


def exit_without(found: Known, missing: Iterable[LoadedServer]) -> Exit:
    """The status of a command that had to do without some servers."""
    absences = [found.absence(server.server_id) for server in missing]
    if not absences:
        return Exit.OK
    persons = all(absence is not None and absence.needs_a_person for absence in absences)
    return Exit.NEEDS_A_PERSON if persons else Exit.NOT_READY


def warn_of_absent(found: Known, servers: Iterable[LoadedServer]) -> None:
    """Name the servers that cannot be had, so that what is missing is not taken for what is not there."""
    for server in servers:
        if (absence := found.absence(server.server_id)) is not None:
            warn(absence.reason, absence.hint)


def ask_now(loaded: LoadedConfig, server_ids: list[str]) -> dict[str, FairleadError]:
    """Connect servers and keep what they offer. Returns what went wrong, by server."""
    from fairlead.cli.running import run_with_host, spinning
    from fairlead.cli.terminal import operator_here
    from fairlead.host.host import Host

    failures: dict[str, FairleadError] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        doing = f"connecting {', '.join(server_ids)} …"
        async with Host.open(loaded, operator=operator) as host, spinning(doing):
            failures.update(await host.connect(*server_ids))
        return 0

    run_with_host(main)
    return failures
