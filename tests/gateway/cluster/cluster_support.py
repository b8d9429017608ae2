"""Several gateways in one process that act as one, on real sockets, and clients that go round them."""

import itertools
import os
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import aiohttp
import anyio
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.config.load import load_config
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import OriginPolicy, RequestRefused, deciding_headers
from fairlead.gateway.cluster.cluster import Cluster, ReplicaPlace
from fairlead.gateway.cluster.replica_keys import ReplicaKeys
from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from tests.gateway.support import HANDSHAKE, ByName, Raw

Wire = Literal["tcp", "unix"]
MACHINE = "machine@"
"""How a name begins that only the replica with the name after it accepts, as a machine its own tokens."""
KEYS = ReplicaKeys.derive([b"k" * 32])


@dataclass(frozen=True, kw_only=True)
class ServedReplica:
    """One of the gateways, on a socket."""

    gateway: Gateway
    url: str

    @property
    def cluster(self) -> Cluster:
        assert self.gateway.cluster is not None
        return self.gateway.cluster


class OnMachine(ByName):
    """Lets clients in by name, as on one machine: tokens that are of another one are unknown."""

    def __init__(self, machine: str) -> None:
        self._machine = machine

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        admitted = await super().admit(scope)
        if not isinstance(admitted, AuthenticatedRequest) or not admitted.principal.startswith(MACHINE):
            return admitted
        if admitted.principal != f"{MACHINE}{self._machine}":
            return RequestRefused.saying(401, "unknown token")
        return msgspec.structs.replace(admitted, principal="local", is_of_machine=True)


@contextmanager
def unix_listener() -> Generator[tuple[socket.socket, Path]]:
    """A listening Unix socket, at a path that is short enough for one."""
    with TemporaryDirectory(prefix="fl") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "s"
        listener.bind(str(path))
        listener.listen(100)
        yield listener, path


def _screened(app: ASGIApp) -> ASGIApp:
    """An application that gets only what gets through to one on a network, between replicas as well."""
    policy = OriginPolicy("127.0.0.1", 1)  # loopback names may have any port

    async def screen(scope: Scope, receive: Receive, send: Send) -> None:
        refused = policy.screen(scope, deciding_headers(scope)) if scope["type"] == "http" else None
        await (refused or app)(scope, receive, send)

    return screen


@asynccontextmanager
async def replica(
    folder: Path,
    name: str,
    servers: Mapping[str, dict[str, Any]],
    *,
    over: Wire = "tcp",
    mode: str = "direct",
    bundle: str = "work",
) -> AsyncGenerator[ServedReplica]:
    """Run one gateway with a home of its own, and the store that all have in the folder."""
    home, project = folder / name, folder / "project"
    home.mkdir(parents=True)
    project.mkdir(exist_ok=True)
    own = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "FAIRLEAD_BUILTINS": "off",
    }
    document: dict[str, Any] = {
        "servers": servers,
        "gateway": {"approval": "allow", "startup_wait_ms": 60_000, "mode": mode},
        "bundles": {bundle: {"servers": {server: {} for server in servers}}},
        "store": {"path": str(folder / "store.db")},
    }
    loaded = load_config(None, document, own, project)
    with bind("127.0.0.1", 0) as listener, unix_listener() as (unix, path):
        address = url_of(listener) if over == "tcp" else f"unix:{path}"
        place = ReplicaPlace(address=address, keys=KEYS)
        options = GatewayOptions(grace_seconds=2.0)
        async with (
            open_gateway(loaded, options, env=own, place=place) as gateway,
            listening(_screened(gateway.app(OnMachine(name))), listener),
            listening(_screened(gateway.app(OnMachine(name))), unix),
        ):
            yield ServedReplica(gateway=gateway, url=url_of(listener))


@asynccontextmanager
async def replicas(
    folder: Path,
    count: int = 3,
    *,
    over: Wire = "tcp",
    mode: str = "direct",
    seconds: float = 120.0,
    **servers: dict[str, Any],
) -> AsyncGenerator[list[ServedReplica]]:
    """Run several gateways for at most so many seconds."""
    with anyio.fail_after(seconds):
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    replica(folder, f"home-{number}", servers, over=over, mode=mode)
                )
                for number in range(count)
            ]


class Rounds(Raw):
    """A client whose every request goes to the next replica, as behind a plain load balancer."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        served: Sequence[ServedReplica],
        name: str = "local",
        path: str = "/mcp",
    ) -> None:
        self._urls = itertools.cycle([f"{each.url}{path}" for each in served])
        super().__init__(http, "", name)

    @property
    def url(self) -> str:
        return next(self._urls)

    @url.setter
    def url(self, url: str) -> None:
        """It has several."""


def initialize() -> Any:
    """The message that a session begins with."""
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
