"""The catalog as far as it is known without contacting a server, and why servers are unavailable."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from fairlead.actions.saved_state import SavedState, read_saved
from fairlead.catalog.catalog import Catalog
from fairlead.catalog.tools import Listing
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.principal import LOCAL, LOCAL_CALLER, GroupedPrincipal
from fairlead.errors import NEEDS_USER, FairleadError, UnknownServer
from fairlead.host.model.bundles import Selection, select
from fairlead.host.model.catalogs import catalog_of
from fairlead.policy.quarantine import ScreenedListing


@dataclass(frozen=True, kw_only=True, slots=True)
class UnavailableServer:
    """Reason why a server is unavailable, with a hint."""

    reason: str
    hint: str | None = None
    needs_a_person: bool = False
    """A login or an approval is all that is missing."""

    @classmethod
    def because(cls, error: FairleadError) -> "UnavailableServer":
        """The reason that an error gives."""
        return cls(reason=str(error), hint=error.hint, needs_a_person=isinstance(error, NEEDS_USER))


@dataclass(frozen=True, kw_only=True)
class KnownCatalog:
    """Catalog of a selection of servers, from the configuration and stored listings."""

    loaded: LoadedConfig
    selection: Selection
    saved: Mapping[str, SavedState]
    failed: Mapping[str, UnavailableServer] = field(default_factory=dict[str, UnavailableServer])
    """What went wrong just now."""

    @property
    def chosen(self) -> list[LoadedServer]:
        """The enabled servers of the selection."""
        return [
            server
            for server_id, server in self.loaded.servers.items()
            if server.enabled and self.selection.has(server_id)
        ]

    def server(self, server_id: str) -> LoadedServer:
        """The server of the selection with that id, enabled or not."""
        server = self.loaded.server(server_id)
        if not self.selection.has(server_id):
            raise UnknownServer(f"the bundle `{self.selection.name}` has no server `{server_id}`")
        return server

    @cached_property
    def listings(self) -> dict[str, Listing]:
        """The stored listings of servers."""
        return {name: screened.listing for name, screened in self.screened.items()}

    @cached_property
    def screened(self) -> dict[str, ScreenedListing]:
        """The listings, with the tools that wait for a review quarantined."""
        return {name: saved.screened for name, saved in self.saved.items() if saved.screened}

    @property
    def before_defaults(self) -> set[str]:
        """The servers that keep the defaults of an earlier release (see `policy.upgrade`)."""
        return {name for name, saved in self.saved.items() if saved.before_defaults}

    @cached_property
    def catalog(self) -> Catalog:
        """The tools of the selection, as agents get them."""
        return catalog_of(self.loaded, self.selection, self.screened)

    def absence(self, server_id: str) -> UnavailableServer | None:
        """The reason why a server is unavailable, as far as that is known without connecting."""
        server, saved = self.loaded.servers[server_id], self.saved[server_id]
        if not server.enabled:
            return UnavailableServer(reason=f"server `{server_id}`: it is disabled", hint=server.enable_hint)
        for problem in server.problems:
            if problem.severity == "error":
                return UnavailableServer(reason=str(problem), hint=problem.hint)
        if not saved.approved:
            return UnavailableServer(
                reason=f"server `{server_id}`: you have not approved this entry",
                hint=f"run `{command_line('approve', server_id)}`",
                needs_a_person=True,
            )
        if saved.trouble is not None:
            wanted = saved.trouble.state in ("auth_required", "needs_client_registration")
            return UnavailableServer(
                reason=saved.trouble.message, hint=saved.trouble.hint, needs_a_person=wanted
            )
        return self.failed.get(server_id)


def read_catalog(
    loaded: LoadedConfig, bundle: str | None = None, caller: GroupedPrincipal = LOCAL_CALLER
) -> KnownCatalog:
    """Read the catalog that earlier runs stored, as a caller gets it. Contacts no server.

    Another principal than the local user calls over the gateway, whose `approval` counts for it.
    """
    selection = select(loaded, bundle, caller)
    if caller.principal != LOCAL:
        selection = replace(selection, approval=loaded.config.gateway.approval)
    return KnownCatalog(loaded=loaded, selection=selection, saved=read_saved(loaded))
