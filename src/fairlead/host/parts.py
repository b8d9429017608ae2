"""The parts a host is made of, and how the parts of a program's own host are opened and closed.

A gateway's hosts for single principals and clients share most parts of the host above them (`client_host`).
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from fairlead.catalog.naming import Scheme
from fairlead.config.argument_types import wrong_type
from fairlead.config.command_lines import command_line
from fairlead.config.models import Config
from fairlead.config.paths import state_folder
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.start_limit import StartLimit
from fairlead.connection.tracing import Tracer
from fairlead.connection.transport.auth_flow import AuthFlow, is_auth_flow
from fairlead.connection.transport.factory import ServerOwnership, TransportContext
from fairlead.connection.transport.request_headers import AuthProvider
from fairlead.host.background import task_owner
from fairlead.host.events import EventBus
from fairlead.host.logins import Logins
from fairlead.host.managed_server import HumanSide, ServerContext
from fairlead.host.managed_servers import HostServers, ManagedServers
from fairlead.host.model.catalogs import HostCatalogs
from fairlead.host.model.embeddings import ToolEmbeddings
from fairlead.host.operator import Operator
from fairlead.host.records import HostRecords, open_records
from fairlead.host.running_calls import RunningCalls
from fairlead.host.server_peer import CustomCapabilities
from fairlead.host.telemetry import programs_tracer
from fairlead.net.http import open_client
from fairlead.policy.pins import UntrustedPins

if TYPE_CHECKING:
    from fairlead.servers.framework.server import McpServer


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayBacking:
    """Options of a host behind a gateway: its connections serve many clients."""

    names: Scheme = "gateway"
    """How public tool names are made."""
    ownership: ServerOwnership | None = None
    """Decides which of several gateway processes starts a server that all clients share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostParts:
    """Everything a host works with, except its configuration, which a reload replaces."""

    context: ServerContext
    """The task group, transports, store, operator and event bus, which its connections use as well."""
    records: HostRecords
    logins: Logins
    servers: HostServers
    running_calls: RunningCalls
    """The calls under way, by their ids in events. Shared with the host above: no two have the same id."""
    embeddings: ToolEmbeddings
    """Searches by meaning with a model that is elsewhere. Shared with the host above."""
    login_hint: Callable[[str], str]
    """Returns what the user of the host does to log in to a server."""
    catalogs_above: HostCatalogs | None = None
    """The catalogs of the host above, used for as long as both offer the same."""
    names: Scheme | None = None
    """How public tool names are made; None for `tools.names` of the configuration."""


@asynccontextmanager
async def open_parts(  # noqa: PLR0913 - everything a host can be given, named
    config: Config,
    env: Mapping[str, str],
    *,
    programs: Mapping[str, "McpServer"],
    operator: Operator,
    capabilities: CustomCapabilities | None,
    auth_providers: Mapping[str, AuthProvider | AuthFlow] | None,
    backing: GatewayBacking | None,
    tracer: Tracer | None,
    docs_allow: Callable[[], Sequence[str]],
    own_code: Callable[[], Sequence[Path]],
) -> AsyncGenerator[HostParts]:
    """Open the parts of a program's own host for the length of the block.

    The parameters are those of `Host.open`, and:

    Args:
        config: The configuration that the records (store, audit, artifacts) are opened with.
        programs: The servers that run in this process, by id.
        docs_allow: Returns the sites that the documentation server may read now.
        own_code: Returns the files and folders that decide what is started without asking.
    """
    async with AsyncExitStack() as stack:
        records = await open_records(stack, config, env)
        http = _http_client(stack)
        guardian = Guardian()
        stack.callback(guardian.close)
        # Not on the stack: tasks end before the HTTP client, the guardian and the records are closed.
        async with task_owner("Host") as tasks:
            bus = EventBus()
            logins = Logins(
                env,
                records,
                operator=operator,
                providers=auth_providers or {},
                http=http,
                tasks=tasks,
                emit=bus.emit,
            )
            human = HumanSide(
                operator=operator,
                capabilities=capabilities or CustomCapabilities(),
                log_in=logins.log_in_on_demand,
                shared=backing is not None,
            )
            transports = TransportContext(
                env=env,
                guardian=guardian,
                http=http,
                logs=state_folder(env) / "logs",
                cache=state_folder(env) / "cache",
                docs_allow=docs_allow,
                own_code=lambda: (*own_code(), state_folder(env)),  # approvals and consent are in there
                programs=programs,
                headers_for=logins.headers_for,
                require_approved=lambda key: servers.require_approved(key),
                tracer=tracer or programs_tracer(),
                ownership=backing.ownership if backing else None,
            )
            context = ServerContext(
                tasks=tasks,
                transports=transports,
                store=records.store,
                human=human,
                bus=bus,
                start_limit=StartLimit(),
            )
            failure = records.store_error
            no_pins = UntrustedPins.because(failure) if failure is not None else None
            servers = ManagedServers(context, no_pins=no_pins)
            tasks.start_soon(records.audit.rotate)
            yield HostParts(
                context=context,
                records=records,
                logins=logins,
                servers=servers,
                running_calls=RunningCalls(),
                embeddings=ToolEmbeddings(records.store, http, tasks, env),
                login_hint=_login_hint,
                names=backing.names if backing else None,
            )


def _login_hint(server_id: str) -> str:
    return f"run `{command_line('login', server_id)}`"


def _http_client(stack: AsyncExitStack) -> Callable[[], aiohttp.ClientSession]:
    """The HTTP client that all servers share, opened on first use and closed with the stack."""
    clients: list[aiohttp.ClientSession] = []

    def client() -> aiohttp.ClientSession:
        if not clients:
            clients.append(open_client())
            stack.push_async_callback(clients[0].close)
        return clients[0]

    return client


def require_sound(
    opener: Callable[..., object],
    operator: object,
    servers: Mapping[str, object],
    auth_providers: Mapping[str, object],
) -> None:
    """Raise `WrongType`, in the name of `opener`, for an operator, server or auth provider that is none."""
    if not isinstance(getattr(operator, "abilities", None), frozenset):
        hint = "pass `Callbacks(on_approve=…)`, or an object with all methods of `Operator`"
        raise wrong_type(opener, "operator", Operator, operator, hint=hint)
    for server_id, server in servers.items():
        if not callable(getattr(server, "sdk_server", None)):
            hint = (
                f"`servers` are `McpServer`s by id; configure others as `servers.{server_id}` in `overrides`"
            )
            raise wrong_type(opener, f"servers[{server_id!r}]", "McpServer", server, hint=hint)
    for name, provider in auth_providers.items():
        is_one = is_auth_flow(provider) or callable(getattr(provider, "headers", None))
        if not is_one or isinstance(provider, type):
            hint = "pass an `OAuthClientProvider`, an auth flow of httpx, or an object with `headers`"
            raise wrong_type(opener, f"auth_providers[{name!r}]", AuthProvider, provider, hint=hint)
