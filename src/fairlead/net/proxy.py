"""Which proxy a URL is reached through, as the usual environment variables say it."""

import ipaddress
from collections.abc import Mapping

from yarl import URL


def proxy_for(url: URL, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that `HTTP_PROXY` or `HTTPS_PROXY` name for `url`, unless `NO_PROXY` exempts it.

    A lower-case variable goes before its upper-case twin. Loopback is never reached through a proxy.
    """
    proxy = _variable(environment, f"{url.scheme}_proxy")
    host = (url.host or "").rstrip(".")
    if not proxy or _is_loopback(host):
        return None
    exempt = _variable(environment, "no_proxy").lower().split(",")
    if any(_covers(entry.strip(), host, url.port) for entry in exempt):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper(), "")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    network = _network(host)
    if network is None:
        return host == "localhost" or host.endswith(".localhost")
    return network.is_loopback


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Tell whether an entry of `NO_PROXY` (name, address, network, `*`, `name:port`) means this host."""
    if entry == "*":
        return True
    name, colon, named_port = entry.rpartition(":")
    if colon and named_port.isdecimal() and _network(entry) is None:
        if int(named_port) != port:
            return False
        entry = name
    address, network = _network(host), _network(entry)
    if address is not None:
        return (
            network is not None and network.version == address.version and address.network_address in network
        )
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
