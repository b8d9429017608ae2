"""Approvals of tool calls, remembered for a session or for good.

An approval is bound to the principal, the server's target (its command or URL, not only its name), the tool
and its definition: a changed tool, or another server under the same name, needs a new approval.
"""

import hashlib
import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from fairlead.config.store_location import StoreLocation
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY, Database, Store, StoredValue

logger = logging.getLogger(__name__)

NAMESPACE: Final = "approvals"
WITHDRAWN: Final = "withdrawn approvals"
"""By server: the version of its value changes whenever approvals are withdrawn, also those of sessions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedApproval:
    """Identity of an approved call: principal, server target, tool and definition."""

    principal: str
    server_id: str
    server_digest: str
    tool: str
    definition_digest: str

    @property
    def key(self) -> str:
        """Key in the store: a digest, since names may contain any character."""
        parts = (self.principal, self.server_id, self.server_digest, self.tool, self.definition_digest)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class KeptApproval(msgspec.Struct, frozen=True, kw_only=True):
    """Approval for good as stored, to be listed and revoked."""

    principal: str
    server_id: str
    tool: str
    approved_at: float


def read_kept(stored: Iterable[StoredValue]) -> list[tuple[str, KeptApproval]]:
    """Decode stored approvals, each with its key, sorted by server and tool.

    One that is damaged, or of a newer release, allows nothing and is left out.
    """
    read = [(found.key, _read(found)) for found in stored]
    kept = [(key, one) for key, one in read if one is not None]
    return sorted(kept, key=lambda pair: (pair[1].server_id, pair[1].tool, pair[1].principal))


def count_unreadable(stored: Iterable[StoredValue]) -> int:
    """Number of stored approvals that are damaged, or of a newer release."""
    return sum(_decode(found) is None for found in stored)


def _read(stored: StoredValue) -> KeptApproval | None:
    found = _decode(stored)
    if found is None:
        logger.warning("an approval is damaged, or of a newer Fairlead", extra={"key": stored.key})
    return found


def _decode(stored: StoredValue) -> KeptApproval | None:
    try:
        return msgspec.json.decode(stored.value, type=KeptApproval)
    except (msgspec.DecodeError, RecursionError):
        return None


def by_tool(kept: Iterable[tuple[str, KeptApproval]]) -> list[tuple[list[str], KeptApproval]]:
    """Group approvals by principal and tool: the keys of each group, and its newest approval.

    A group has several where the tool or its server changed and was approved again.
    """
    found: dict[tuple[str, str, str], tuple[list[str], KeptApproval]] = {}
    for key, one in kept:
        about = (one.server_id, one.tool, one.principal)
        keys, newest = found.get(about, ([], one))
        found[about] = ([*keys, key], one if one.approved_at > newest.approved_at else newest)
    return list(found.values())


def forget_answers(store_path: StoreLocation, server_id: str, tools: Collection[str]) -> None:
    """Delete the approvals of these tools, for every principal: a review supersedes them.

    Approvals for a session of other tools of the server end as well, as with any change of its entry.
    """
    if not tools:
        return
    with open_database(store_path) as database:
        for key, kept in read_kept(database.scan(NAMESPACE)):
            if kept.server_id == server_id and kept.tool in tools:
                database.delete(NAMESPACE, key, expect=ANY)
        withdraw(database, server_id)


def withdraw(database: Database, server_id: str) -> None:
    """End the approvals for a session of a server's tools, in every process that uses this store."""
    database.put(WITHDRAWN, server_id, msgspec.json.encode({"server_id": server_id}), expect=ANY)


class Approvals:
    """Approvals of one host: for the session in memory, for good in the store.

    Both are checked with the store at each call: what another process withdraws ends at once.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._session: dict[RememberedApproval, int | None] = {}
        """Each with the revision at which it was asked for; None where that is not known yet."""

    async def revision(self, server_id: str) -> int:
        """Number that changes whenever approvals of a server's tools are withdrawn."""
        found = await self._store.get(WITHDRAWN, server_id) if self._store is not None else None
        return found.version if found is not None else 0

    async def look_up(self, approval: RememberedApproval) -> bool:
        """Whether the call is approved, for this session or for good."""
        if approval in self._session:
            now = await self.revision(approval.server_id)
            # It may have been revoked meanwhile.
            if approval in self._session and self._session[approval] in (None, now):
                self._session[approval] = now
                return True
            self._session.pop(approval, None)
        found = await self._store.get(NAMESPACE, approval.key) if self._store is not None else None
        return found is not None and _read(found) is not None

    async def of_session(self) -> list[RememberedApproval]:
        """Approvals of this session that still hold, sorted by server and tool."""
        now = {each: await self.revision(each) for each in {one.server_id for one in self._session}}
        held = [one for one, asked in self._session.items() if asked in (None, now.get(one.server_id, asked))]
        return sorted(held, key=lambda one: (one.server_id, one.tool, one.principal))

    async def list_kept(self) -> list[tuple[str, KeptApproval]]:
        """Approvals for good, each with its key, sorted by server and tool."""
        return read_kept(await self._store.scan(NAMESPACE)) if self._store is not None else []

    async def forget(self, key: str) -> None:
        """Revoke the approval with this key, of the session or for good."""
        for approval in [one for one in self._session if one.key == key]:
            del self._session[approval]
        if self._store is not None:
            await self._store.delete(NAMESPACE, key, expect=ANY)

    def forget_session(self, server_id: str | None = None) -> None:
        """Revoke the approvals of this session: of one server, or of all."""
        for approval in [one for one in self._session if server_id in (None, one.server_id)]:
            del self._session[approval]

    def allow_for_session(self, approval: RememberedApproval, revision: int | None = None) -> None:
        """Approve the call while this host runs.

        Args:
            approval: The call.
            revision: That of its server when the user was asked: what was withdrawn since stays withdrawn.
        """
        self._session[approval] = revision

    async def allow_always(self, approval: RememberedApproval) -> None:
        """Approve the call for good. Without a store the approval lasts as long as this host."""
        if self._store is None:
            self._session[approval] = None
            return
        kept = KeptApproval(
            principal=approval.principal,
            server_id=approval.server_id,
            tool=approval.tool,
            approved_at=time.time(),
        )
        await self._store.put(NAMESPACE, approval.key, msgspec.json.encode(kept), expect=ANY)
