"""What people answered when they were asked about calls, for as long as they wanted it to hold.

An answer is bound to whoever the call was for, to the very server (its command or URL, not only its name), to
the tool and its definition: a tool that changed, or another server under that name, is asked about anew.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairlead.store.protocol import ANY, Store, StoredValue
from fairlead.store.sqlite import Database

NAMESPACE: Final = "approvals"
FRESH_SECONDS: Final = 2.0
"""How long what was read from the store is taken for granted, so that what was taken back elsewhere ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedApproval:
    """A call that a person allowed: whose, of which server and tool, defined how."""

    principal: str
    server_id: str
    server_digest: str
    tool: str
    definition_digest: str

    @property
    def key(self) -> str:
        """Where it is kept. The parts are digested, since names may hold anything."""
        parts = (self.principal, self.server_id, self.server_digest, self.tool, self.definition_digest)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class KeptApproval(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it is kept, for people to look at and to take back."""

    principal: str
    server_id: str
    tool: str
    approved_at: float


def read_kept(stored: Iterable[StoredValue]) -> list[tuple[str, KeptApproval]]:
    """The answers that hold for good, each with its key in the store, by server and tool."""
    kept = [(found.key, msgspec.json.decode(found.value, type=KeptApproval)) for found in stored]
    return sorted(kept, key=lambda pair: (pair[1].server_id, pair[1].tool, pair[1].principal))


def by_tool(kept: Iterable[tuple[str, KeptApproval]]) -> list[tuple[list[str], KeptApproval]]:
    """The answers of one principal about one tool together: their keys, and the newest of them.

    There are several where a tool or its server changed and was allowed again.
    """
    found: dict[tuple[str, str, str], tuple[list[str], KeptApproval]] = {}
    for key, one in kept:
        about = (one.server_id, one.tool, one.principal)
        keys, newest = found.get(about, ([], one))
        found[about] = ([*keys, key], one if one.approved_at > newest.approved_at else newest)
    return list(found.values())


def forget_answers(store_path: Path, server_id: str, tools: Collection[str]) -> None:
    """Drop what was allowed for good of these tools, for every principal: a review is the newer word."""
    if not tools:
        return
    with Database.open(store_path) as database:
        for key, kept in read_kept(database.scan(NAMESPACE)):
            if kept.server_id == server_id and kept.tool in tools:
                database.delete(NAMESPACE, key, expect=ANY)


class Approvals:
    """The answers of one host: for this session in memory, for good in the store."""

    def __init__(self, store: Store | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._session: set[RememberedApproval] = set()
        self._read: dict[RememberedApproval, float] = {}

    def holds(self, approval: RememberedApproval) -> bool:
        """Was it allowed, as far as is known without asking the store?"""
        read = self._read.get(approval)
        return approval in self._session or (read is not None and self._clock() - read < FRESH_SECONDS)

    async def look_up(self, approval: RememberedApproval) -> bool:
        """Was it allowed, in this session or for good?"""
        if self.holds(approval):
            return True
        self._read.pop(approval, None)
        if self._store is None or await self._store.get(NAMESPACE, approval.key) is None:
            return False
        self._read[approval] = self._clock()
        return True

    def of_session(self) -> list[RememberedApproval]:
        """What was allowed for as long as this host runs, by server and tool."""
        return sorted(self._session, key=lambda one: (one.server_id, one.tool, one.principal))

    async def kept(self) -> list[tuple[str, KeptApproval]]:
        """What was allowed for good, each with its key, by server and tool."""
        return read_kept(await self._store.scan(NAMESPACE)) if self._store is not None else []

    async def forget(self, key: str) -> None:
        """Ask again about what has this key, whether it was allowed for this session or for good."""
        self._session = {approval for approval in self._session if approval.key != key}
        self._read = {approval: at for approval, at in self._read.items() if approval.key != key}
        if self._store is not None:
            await self._store.delete(NAMESPACE, key, expect=ANY)

    def forget_session(self, server_id: str | None = None) -> None:
        """Ask again about what was allowed for this session: of one server, or of all."""
        self._session = {one for one in self._session if server_id not in (None, one.server_id)}

    def allow_for_session(self, approval: RememberedApproval) -> None:
        """Ask no more while this host runs."""
        self._session.add(approval)

    async def allow_always(self, approval: RememberedApproval) -> None:
        """Ask no more. Without a store that lasts as long as this host does."""
        self._session.add(approval)
        if self._store is not None:
            kept = KeptApproval(
                principal=approval.principal,
                server_id=approval.server_id,
                tool=approval.tool,
                approved_at=time.time(),
            )
            await self._store.put(NAMESPACE, approval.key, msgspec.json.encode(kept), expect=ANY)
            self._session.discard(approval)
            self._read[approval] = self._clock()
