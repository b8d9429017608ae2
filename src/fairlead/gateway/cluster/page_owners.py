"""Pages of one replica: login links and dashboard sessions, whose logins are under way in that process.

Their addresses name the replica that gave them out. Any other one forwards requests for them, with the `Host`
and `Origin` that it checked: forms and cookies are bound to the address that the browser knows.
"""

import re
from typing import Final

from starlette.types import Scope

from fairlead.gateway.cluster.replica_keys import PAGE_HOST, PAGE_ORIGIN
from fairlead.gateway.cluster.replicas import REPLICA_ID_BYTES

_PAGE: Final = re.compile(rf"/(?:connect/|~)r([0-9a-f]{{{2 * REPLICA_ID_BYTES}}})-", re.ASCII)
_METHODS: Final = frozenset(("GET", "POST"))
_ON_THE_WAY: Final = {b"host": PAGE_HOST, b"origin": PAGE_ORIGIN}


def page_prefix(replica_id: str) -> str:
    """Return what the addresses of a replica's pages begin with, after `/connect/` or `/~`."""
    return f"r{replica_id}-"


def page_owner(scope: Scope) -> str | None:
    """Return the id of the replica whose page a request is for, if it is one's."""
    if scope["method"] not in _METHODS:
        return None
    found = _PAGE.match(scope["path"])
    return found[1] if found is not None else None


def keep_address(scope: Scope) -> Scope:
    """Return a request for a page as it is forwarded: `Host` and `Origin` under names of their own."""
    kept = [(name, value) for name, value in scope["headers"] if name not in _ON_THE_WAY.values()]
    kept += [(_ON_THE_WAY[name], value) for name, value in kept if name in _ON_THE_WAY]
    return {**scope, "headers": kept}


def restore_address(scope: Scope) -> None:
    """Give a request for a page that another replica forwarded the `Host` and `Origin` that it had there."""
    if page_owner(scope) is None:
        return
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    restored = {sent: name for name, sent in _ON_THE_WAY.items()}
    kept = [pair for pair in headers if pair[0] not in _ON_THE_WAY and pair[0] not in restored]
    scope["headers"] = kept + [(restored[name], value) for name, value in headers if name in restored]
