"""Address of a replica: where its peers reach it."""

import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from fairlead.config.load import LoadedConfig
from fairlead.config.paths import config_folder
from fairlead.config.secrets.references import resolve
from fairlead.config.store_location import RedisLocation, store_location
from fairlead.errors import ConfigError

_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_REDIS_PORT: Final = 6379


def replica_address(loaded: LoadedConfig, env: Mapping[str, str], host: str, port: int) -> str | None:
    """Return where the other replicas of a gateway reach it; None where it shares no store with others.

    Args:
        loaded: The configuration.
        env: The environment.
        host: The address that it listens on.
        port: Its port.

    Raises:
        ConfigError: `gateway.replica_address` cannot be used.
        StoreError: The address of the store cannot be used.
    """
    location = store_location(env, loaded.config.store)
    if not isinstance(location, RedisLocation):
        return None
    said = loaded.config.gateway.replica_address
    if said is not None:
        return _check_address(resolve(said, env=env, base=config_folder(env)))
    if host in _EVERYWHERE:
        host = _address_towards(location.url()) or host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def socket_path(address: str) -> str | None:
    """The path of a replica's Unix socket; None where its address is one of TCP."""
    return address.removeprefix("unix:") if address.startswith("unix:") else None


@lru_cache(maxsize=256)
def authority(address: str) -> str:
    """The `Host` of requests to a replica's address."""
    return "localhost" if socket_path(address) else urlsplit(address).netloc


def _check_address(address: str) -> str:
    url = urlsplit(address)
    try:
        is_web = url.scheme == "http" and bool(url.hostname) and url.port is not None
    except ValueError:
        is_web = False
    if is_web and url.path in ("", "/") and not url.query and not url.username:
        return f"http://{url.netloc}"
    raise ConfigError(
        f"`{address}` is no address of a replica",
        hint="write `http://HOST:PORT`, as other replicas reach this one",
    )


def _address_towards(store_url: str) -> str | None:
    """The address of this machine that packets to the store come from: its peers are in that network, too."""
    url = urlsplit(store_url)
    if url.scheme.endswith("+sentinel"):  # the Redis is in the network of its Sentinels
        url = urlsplit(f"//{url.netloc.rpartition('@')[2].partition(',')[0]}")
    try:
        found = socket.getaddrinfo(url.hostname, url.port or _REDIS_PORT, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # chooses a route, and sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None
