"""Connection of a Redis store: checked when it is made, bounded in every wait, and made again by itself.

A Redis that does not answer fails every operation at once until the next attempt is due; attempts grow apart
and are spread by chance, so that many replicas do not return at the same moment. No operation is sent twice.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, NoReturn, Protocol, cast

from fairlead.config.command_lines import extra_hint
from fairlead.config.store_location import RedisLocation
from fairlead.errors import StoreError, StoreUnavailable
from fairlead.store import redis_scripts as scripts
from fairlead.store.cluster_key import ClusterKeys
from fairlead.store.redis_sentinel import parse_sentinel_url

OPERATION_SECONDS: Final = 2.0
CONNECT_SECONDS: Final = 2.0
RENEWAL_SECONDS: Final = 0.75
"""How long the renewal of a lease may take, and each step of a connection that is made anew.

A lease of 5 seconds is renewed after 1.5, and what runs under it is ended after 4: two renewals may fail.
"""
CHECK_SECONDS: Final = 30.0
"""How often a server is asked whether it is still fit: its settings may be changed while it runs."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 2.0
META: Final = b"fairlead:meta"
MESSAGES: Final = b"fairlead:messages"
_CHECK: Final = b"fairlead"
_LAYOUT: Final = b"1"
_NEEDED_VERSION: Final = (6, 2)

_ACL: Final = "its ACL user needs `~fairlead:* +@read +@write +@scripting +@connection +info +time`"
_ADDRESS_HINT: Final = (
    "write `redis://USER:${PASSWORD}@HOST:PORT/0`: a password in the address itself is percent-encoded, the"
    " value of a reference is not"
)
_PARAMETER_HINT: Final = (
    "of TLS there are `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile` and `ssl_check_hostname`"
)
_TLS_HINT: Final = "name the certificate of its authority: `?ssl_ca_certs=/path/to/ca.crt` after the address"
_AWAY_HINT: Final = "check that Redis runs and can be reached; Fairlead goes on by itself once it answers"
_REFUSALS: Final = {
    "NOAUTH": "it wants a password: write `redis://USER:${PASSWORD}@HOST`",
    "WRONGPASS": "check the user and the password in the store's address",
    "NOPERM": _ACL,
    "READONLY": "the address leads to a replica: use that of the primary",
    "OOM": "its memory is full: raise `maxmemory`, or lower `audit.keep_records` and `artifacts.max_bytes`",
    "MISCONF": "it cannot save to its disk: see Redis's log",
    "LOADING": "it is reading its data; Fairlead goes on by itself",
    "MASTERDOWN": "it waits for its primary",
}
"""What to do about a refusal of Redis, by the word that it begins with."""

_IN_SCRIPT: Final = "The user executing the script"
"""How Redis begins to say that a script's user lacks a permission, without a word in front."""

logger = logging.getLogger(__name__)


class RawConnection(Protocol):
    """A connection of redis-py, as far as it is used here; its own types are incomplete."""

    def connect(self) -> None:
        """Connect, and log in."""
        ...

    def disconnect(self) -> None:
        """Close the connection."""
        ...

    def send_command(self, *parts: bytes | str | float) -> None:
        """Send a command."""
        ...

    def send_packed_command(self, packed: Sequence[bytes]) -> None:
        """Send a command that is bytes already."""
        ...

    def read_response(self) -> Any:  # noqa: ANN401 - as Redis answers
        """Wait for an answer."""
        ...

    def update_current_socket_timeout(self, relaxed_timeout: float) -> None:
        """Wait for so long from now on."""
        ...

    def can_read(self, timeout: float) -> bool:
        """Whether there is something to read, the end of the connection included."""
        ...


class RedisConnection:
    """One connection to the Redis of a location, for one thread; it is made when it is first needed."""

    def __init__(self, location: RedisLocation) -> None:
        if find_spec("redis") is None:
            raise StoreError("a Redis store needs the package `redis`", hint=extra_hint("redis"))
        self.name = str(location)
        self.keys = ClusterKeys(location.cluster_keys())
        self._url = location.url()
        self._sentinels = parse_sentinel_url(self._url)
        self._connection: RawConnection | None = None
        self._epoch: bytes | None = None
        self._origin = b""
        """What the store's data began with; empty before the first connection."""
        self._failures = 0
        self._next_attempt = 0.0
        self._checked_at = 0.0
        self.facts: dict[str, str] = {}
        """What the server said of itself when the connection was made (`INFO`)."""

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def run(self, *command: bytes | str | int) -> Any:  # noqa: ANN401 - as Redis answers
        """Run one command and return its answer. Raises `StoreError`."""
        return self._exchange(self._ensure_connected(), command)

    def call(
        self,
        script: scripts.Script,
        keys: list[bytes],
        *arguments: bytes | str | int | float,
        seconds: float = OPERATION_SECONDS,
    ) -> Any:  # noqa: ANN401 - as the script returns
        """Run a script. One that meets another epoch did nothing, and is run again in that epoch.

        Args:
            script: The script.
            keys: Its keys, besides the one with what the store is.
            arguments: Its arguments, besides the epoch.
            seconds: How long its answer may take.
        """
        for attempt in range(2):
            connection = self._ensure_connected()
            assert self._epoch is not None
            parts = (len(keys) + 1, META, *keys, self._epoch, *arguments)
            try:
                if seconds != OPERATION_SECONDS:
                    connection.update_current_socket_timeout(seconds)
                return self._evaluate(connection, script, parts)
            except _EpochChanged:
                self.close()
                if attempt:
                    break
            finally:
                if seconds != OPERATION_SECONDS and self._connection is connection:
                    connection.update_current_socket_timeout(OPERATION_SECONDS)
        raise StoreUnavailable(f"store {self.name}: it changes its epoch again and again", hint=_AWAY_HINT)

    def _evaluate(
        self,
        connection: RawConnection,
        script: scripts.Script,
        parts: tuple[bytes | str | int | float, ...],
    ) -> Any:  # noqa: ANN401
        from redis.exceptions import NoScriptError

        try:
            return self._exchange(connection, ("EVALSHA", script.digest, *parts))
        except NoScriptError:  # it was not run
            return self._exchange(connection, ("EVAL", script.text, *parts))

    def _exchange(self, connection: RawConnection, command: tuple[bytes | str | int | float, ...]) -> Any:  # noqa: ANN401
        from redis.exceptions import NoScriptError, RedisError, ResponseError

        try:
            connection.send_packed_command((_pack(command),))
            return connection.read_response()
        except NoScriptError:
            raise
        except ResponseError as exc:
            self._refuse(exc)
        except (RedisError, OSError) as exc:
            self._fail(exc)

    def _refuse(self, error: Exception) -> NoReturn:
        """Explain an answer of Redis that is an error: the connection is whole, nothing was changed."""
        text = str(error)
        if scripts.WRONG_EPOCH in text:
            raise _EpochChanged from error
        # redis-py takes the word off the errors that it knows by a class.
        kind = _WORDS.get(type(error).__name__) or text.partition(" ")[0]
        if _IN_SCRIPT in text:
            kind = "NOPERM"
        if kind in ("READONLY", "LOADING", "MASTERDOWN"):
            self._fail(error, _REFUSALS[kind])
        raise StoreError(f"store {self.name}: {text}", hint=_REFUSALS.get(kind)) from error

    def _fail(self, error: Exception, hint: str = _AWAY_HINT) -> NoReturn:
        """Drop the connection, and have no other attempt made for a while."""
        self.close()
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            hint = _TLS_HINT
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._next_attempt = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311 - not all at once
        raise StoreUnavailable(f"store {self.name} does not answer: {error}", hint=hint) from error

    def _ensure_connected(self) -> RawConnection:
        connection = self._connection
        if connection is not None:
            if not _is_stale(connection):
                if time.monotonic() - self._checked_at > CHECK_SECONDS:
                    self._check(connection)
                return connection
            self.close()  # it ended while it was idle: nothing was sent over it
        if time.monotonic() < self._next_attempt:
            raise StoreUnavailable(f"store {self.name} does not answer", hint=_AWAY_HINT)
        return self._connect()

    def _connect(self) -> RawConnection:
        from redis.exceptions import AuthenticationError, RedisError, ResponseError

        # Once there was one, there may be leases to renew: nothing may wait for long for the next.
        seconds = CONNECT_SECONDS if self._epoch is None else RENEWAL_SECONDS
        try:
            url = self._url
            if self._sentinels is not None:
                url = self._sentinels.find_primary(partial(_new_connection, seconds=seconds))
            connection = _new_connection(url, seconds)
            connection.connect()
        except (AuthenticationError, ResponseError) as exc:
            self._refuse(exc)
        except (RedisError, OSError) as exc:
            self._fail(exc)
        try:
            self._check(connection)
            self._begin(connection)
            connection.update_current_socket_timeout(OPERATION_SECONDS)
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        self._failures = 0
        return connection

    def _check(self, connection: RawConnection) -> None:
        """Learn what the server says of itself, and raise `StoreError` where it cannot be used."""
        self.facts = _parse_facts(self._exchange(connection, ("INFO", "everything")))
        self._require_suitable()
        self._checked_at = time.monotonic()  # one that is not fit is asked each time, until it is

    def _require_suitable(self) -> None:
        facts, hint = self.facts, None
        version = tuple(int(part) for part in facts.get("redis_version", "0.0").split(".")[:2])
        if version < _NEEDED_VERSION:
            trouble, hint = f"it is version {facts.get('redis_version')}", "Redis 6.2 or later is needed"
        elif facts.get("cluster_enabled") == "1":
            trouble = "it is a Redis Cluster, whose scripts cannot change several keys at one moment"
            hint = "use a single Redis, with replicas if you like"
        elif facts.get("role") == "slave":
            if self._sentinels is not None:  # what they named a moment ago: they are about to name another
                self._fail(OSError("the primary that the Sentinels name is a replica by now"))
            trouble, hint = "it is a replica", _REFUSALS["READONLY"]
        elif facts.get("maxmemory_policy", "noeviction") != "noeviction":
            trouble = (
                f"it drops data when its memory is full (`maxmemory-policy {facts['maxmemory_policy']}`)"
            )
            hint = "set `maxmemory-policy noeviction`: pins and approvals must not disappear"
        else:
            return
        raise StoreError(f"store {self.name} cannot be used: {trouble}", hint=hint)

    def _begin(self, connection: RawConnection) -> None:
        """Learn the store's epoch, and begin a new one where this is another run of the server."""
        check = self.keys.seal(_CHECK, b"check")
        new_epoch, new_origin = secrets.token_hex(16), secrets.token_hex(16)
        parts = (2, META, MESSAGES, self.facts["run_id"], new_epoch, self._origin, new_origin, check)
        found = cast("list[bytes] | None", self._evaluate(connection, scripts.BEGIN, parts))
        if found is None:
            # As with a file that was emptied: to go on would be to go on without pins and denials.
            raise StoreError(
                f"store {self.name} was emptied while it was in use",
                hint="restore it from a backup, or restart Fairlead to begin with an empty store",
            )
        epoch, origin, layout, check, ended = found
        if layout != _LAYOUT:
            raise StoreError(f"store {self.name} was written by a newer Fairlead", hint="update Fairlead")
        self.keys.open(check, b"check")
        if ended == b"1":  # once, by the process that found it so: all others follow
            logger.warning("the store was restarted, restored or failed over", extra={"store": self.name})
        self._epoch, self._origin = epoch, origin


class _EpochChanged(Exception):
    """The store has another epoch than this connection knows."""


_WORDS: Final = {
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
}


def _new_connection(url: str, seconds: float) -> RawConnection:
    """A connection whose answers, until it is told otherwise, may take so long."""
    from redis import connection as redis_connection
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        options = cast("dict[str, Any]", cast("Any", redis_connection).parse_url(url))
    except ValueError:  # its text may quote a part of the password
        raise StoreError("the store's address cannot be read", hint=_ADDRESS_HINT) from None
    kind: Callable[..., RawConnection] = options.pop("connection_class", redis_connection.Connection)
    own = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        # Never by itself: what was sent may have happened, even if no answer came.
        "retry": Retry(NoBackoff(), 0),
        "client_name": "fairlead",
    }
    try:
        return kind(**options | own)
    except TypeError:
        raise StoreError(
            "the store's address has a parameter that is not known", hint=_PARAMETER_HINT
        ) from None


def _pack(command: tuple[bytes | str | int | float, ...]) -> bytes:
    """A command as Redis reads it. redis-py takes three times as long, and sends it in parts of 6 kB."""
    lines = [b"*%d\r\n" % len(command)]
    for part in command:
        data = part if isinstance(part, bytes) else str(part).encode()
        lines.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(lines)


def _is_stale(connection: RawConnection) -> bool:
    """Whether the server closed the connection: between two commands there is nothing to read on it."""
    try:
        return connection.can_read(0)
    except Exception:  # noqa: BLE001 - however it says so
        return True


def _parse_facts(answer: bytes | str) -> dict[str, str]:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, colon, value in pairs if colon}
