"""Sentinel addresses of a Redis store: which Redis is the primary now.

`redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DATABASE`; `rediss+sentinel://` speaks TLS with
the Sentinels and with Redis. User and password are those of Redis; `?sentinel_user=…&sentinel_password=…`
are those of the Sentinels, where they have any. All other parameters are for the connection to Redis.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fairlead.config.secrets.masking import SECRETS
from fairlead.errors import StoreError

SENTINEL_PORT: Final = 26379
_EXAMPLE: Final = "write `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0`"
_HOST: Final = re.compile(rb"[A-Za-z0-9_.:%-]{1,255}")
"""A host that changes nothing else in an address: neither how Redis is spoken to, nor as whom."""
_OWN: Final = ("sentinel_user", "sentinel_password")


class SentinelConnection(Protocol):
    """A connection to one Sentinel."""

    def connect(self) -> None:
        """Connect, and log in."""
        ...

    def disconnect(self) -> None:
        """Close the connection."""
        ...

    def send_command(self, *parts: str) -> None:
        """Send a command."""
        ...

    def read_response(self) -> object:
        """Wait for an answer."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SentinelAddress:
    """The Sentinels of a store, and how to connect to the primary that they name."""

    sentinels: tuple[str, ...] = field(repr=False)
    """The URL of each."""
    service: str
    """What the Sentinels call the primary."""
    scheme: str
    userinfo: str = field(repr=False)
    database: str
    query: str = field(repr=False)

    def primary_url(self, host: str, port: int) -> str:
        """The address of a Redis of this service."""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.userinfo}{place}/{self.database}{query}"

    def find_primary(self, open_connection: Callable[[str], SentinelConnection]) -> str:
        """Ask the Sentinels, one after another, and return the address of the primary.

        Args:
            open_connection: Makes a connection to the Redis or Sentinel at a URL.

        Raises:
            OSError: None of them answers, or knows a primary. The message says what each said.
        """
        from redis.exceptions import RedisError

        reasons: list[str] = []
        for url in self.sentinels:
            connection = open_connection(url)
            try:
                connection.connect()
                connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
                found = connection.read_response()
            except (RedisError, OSError) as exc:
                reasons.append(str(exc))
                continue
            finally:
                connection.disconnect()
            match found:
                case [bytes() as host, bytes() as port] if _HOST.fullmatch(host) and port.isdigit():
                    return self.primary_url(host.decode(), int(port))
                case None:
                    reasons.append(f"a Sentinel does not know `{self.service}`")
                case _:
                    reasons.append("a Sentinel names no host and port")
        raise OSError(f"no Sentinel names a primary: {'; '.join(reasons)}")


def parse_sentinel_url(url: str) -> SentinelAddress | None:
    """Read the address of a store; None where it names a Redis itself. Raises `StoreError`."""
    parts = urlsplit(url)
    scheme, plus, kind = parts.scheme.partition("+")
    if not plus or kind != "sentinel":
        return None
    userinfo, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    given = dict(parse_qsl(parts.query))
    user, password = (given.pop(name, "") for name in _OWN)
    SECRETS.learn(*filter(None, (password,)))
    try:
        places = [urlsplit(f"//{host}") for host in hosts.split(",")]
        names = [(place.hostname or "", place.port or SENTINEL_PORT) for place in places]
    except ValueError:
        names = [("", 0)]
    if not all(host for host, _ in names) or not service or not (database or "0").isdigit():
        raise StoreError("the store's address names no Sentinels, or no service of theirs", hint=_EXAMPLE)
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""
    tls = f"?{urlencode(given)}" if scheme == "rediss" and given else ""
    return SentinelAddress(
        sentinels=tuple(
            f"{scheme}://{login}{f'[{host}]' if ':' in host else host}:{port}{tls}" for host, port in names
        ),
        service=service,
        scheme=scheme,
        userinfo=userinfo + at,
        database=database or "0",
        query=urlencode(given),
    )
