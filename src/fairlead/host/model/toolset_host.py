"""Protocol of the host as a toolset uses it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import Listing
from fairlead.errors import FairleadError
from fairlead.host.call import OnProgress
from fairlead.host.model.bundles import Selection
from fairlead.host.model.resource_tools import ReadingHost
from fairlead.host.search_memory import SearchMemory

if TYPE_CHECKING:
    from fairlead.config.models import ApprovalMode
    from fairlead.host.call import CallRunner
    from fairlead.host.managed_servers import HostServers
    from fairlead.host.model.embeddings import ToolEmbeddings
    from fairlead.host.permission import ProposedCall
    from fairlead.policy.decision import BundleFilter


class ToolsetHost(ReadingHost, Protocol):
    """A host as toolsets use it."""

    @property
    def calls(self) -> "CallRunner":
        """Runs its calls."""
        ...

    @property
    def servers(self) -> "HostServers":
        """The managed servers, by id."""
        ...

    @property
    def embeddings(self) -> "ToolEmbeddings":
        """Searches by meaning with a model that is elsewhere."""
        ...

    @property
    def search_memory(self) -> SearchMemory:
        """The tools that searches led to, by principal."""
        ...

    def catalog(self, selection: Selection) -> Catalog:
        """The tools of a selection that are known now."""
        ...

    async def wait_for_catalog(self, selection: Selection) -> None:
        """Wait until a large catalog that is being built is ready."""
        ...

    def listing(self, server_id: str) -> Listing | None:
        """The listing of a server; None if there is none."""
        ...

    async def connect(self, *server_ids: str) -> dict[str, FairleadError]:
        """Connect servers concurrently. Returns what went wrong, by server."""
        ...

    def retry(self, *server_ids: str) -> None:
        """Connect servers that failed again, in the background."""
        ...

    async def notice_consents(self) -> None:
        """Look up whether servers that wait for the user's consent have been approved meanwhile."""
        ...

    def login_hint(self, server_id: str) -> str:
        """The way in which the user of this host logs in to a server."""
        ...

    def propose(
        self,
        server_id: str,
        tool: str,
        bundle_filter: "BundleFilter | None",
        principal: str,
        *,
        groups: frozenset[str],
        default_mode: "ApprovalMode | None",
    ) -> "ProposedCall":
        """A call as policy decides about it."""
        ...

    async def call(  # noqa: PLR0913 - the parts of one call
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: "OnProgress | None",
        confirmed: bool,
        bundle_filter: "BundleFilter | None",
        principal: str,
        groups: frozenset[str],
        default_mode: "ApprovalMode | None",
    ) -> ToolResult:
        """Call a tool, after the operator's approval if policy says `ask`."""
        ...
