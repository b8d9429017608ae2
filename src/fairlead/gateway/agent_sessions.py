"""Sessions of the gateway's agent: conversations that `agent.reply` goes on with."""

import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec

from fairlead.config.principal import GroupedPrincipal
from fairlead.errors import ToolFailed
from fairlead.gateway.client_session import ClientSession
from fairlead.gateway.worker_ids import owner_of
from fairlead.gateway.workers.member import PoolMember
from fairlead.host.search_memory import SearchSession
from fairlead.loop.provider import Message, Provider

SESSION_SECONDS: Final = 3_600.0
"""How long after its last run a session can be continued."""
MAX_SESSIONS_OF_PRINCIPAL: Final = 20
MAX_SESSIONS: Final = 200
MAX_SESSION_BYTES: Final = 64 * 1024 * 1024
"""The size of all sessions together. Of more, or of more sessions, the oldest are forgotten."""
MAX_MOVED_BYTES: Final = 4 * 1024 * 1024
"""A larger session stays with its worker: messages between workers are bounded."""
_QUESTION: Final = "agent session"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOwner:
    """Owner of a session. Another token of the principal, or another bundle, may be offered other tools."""

    caller: GroupedPrincipal
    credential: str | None
    endpoint: str | None
    """The bundle of the endpoint."""

    @classmethod
    def of(cls, client: ClientSession) -> "SessionOwner":
        """The owner of the sessions that a client begins."""
        return cls(caller=client.caller, credential=client.credential, endpoint=client.endpoint.bundle)


@dataclass(eq=False, kw_only=True, slots=True)
class AgentSession:
    """A conversation that can be continued."""

    id: str
    owner: SessionOwner
    provider: Provider
    """Whose API the messages are written for."""
    bundle: str | None
    messages: list[Message] = field(default_factory=list[Message], repr=False)
    searches: SearchSession = field(default_factory=SearchSession, repr=False)
    """What its agent searched for and was shown. It begins anew where the session moves to another worker."""
    size: int = 0
    last_used: float = 0.0
    is_busy: bool = False


class _WantedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that another worker is asked for."""

    id: str
    principal: str
    groups: list[str]
    credential: str | None
    endpoint: str | None

    @classmethod
    def of(cls, session_id: str, owner: SessionOwner) -> "_WantedSession":
        principal, groups = owner.caller
        return cls(
            id=session_id,
            principal=principal,
            groups=sorted(groups),
            credential=owner.credential,
            endpoint=owner.endpoint,
        )

    @property
    def owner(self) -> SessionOwner:
        caller = GroupedPrincipal(self.principal, frozenset(self.groups))
        return SessionOwner(caller=caller, credential=self.credential, endpoint=self.endpoint)


class _MovedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that goes to another worker, or why it stays."""

    provider: Provider = "openai"
    bundle: str | None = None
    messages: list[Message] = []
    last_used: float = 0.0
    """By the clock of the machine, which its processes share."""
    is_busy: bool = False
    is_too_large: bool = False


_encode = msgspec.json.Encoder().encode
_decode_wanted = msgspec.json.Decoder(_WantedSession).decode
_decode_moved = msgspec.json.Decoder(_MovedSession).decode


class AgentSessions:
    """The sessions of all principals, limited in number, size and age.

    Among workers a session is where it was used last. A worker with a reply to one that it does not have asks
    the others, and it moves.
    """

    def __init__(self, member: PoolMember | None = None) -> None:
        """Keep sessions; `member` is this process among the workers of the gateway, if it has several."""
        self._sessions: dict[str, AgentSession] = {}  # the one that was used last is the last
        self._member = member
        if member is not None:
            member.answer(_QUESTION, self._give_away)

    def __len__(self) -> int:
        return len(self._sessions)

    def new_id(self) -> str:
        """Make a random id."""
        return secrets.token_urlsafe(18) if self._member is None else self._member.new_id()

    async def find(self, session_id: str, owner: SessionOwner) -> AgentSession:
        """Return a session of its owner. Another's is as unknown as one that never was.

        Raises:
            ToolFailed: There is none, or it is at work in another process.
        """
        self._forget_old()
        if session_id not in self._sessions and owner_of(session_id) is not None:
            await self._fetch(session_id, owner)
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise ToolFailed(
                "there is no such session of yours",
                hint=f"a session ends {SESSION_SECONDS / 60:.0f} minutes after its last run, or when there"
                " are many newer ones: begin another with `agent.run`",
            )
        return session

    async def _fetch(self, session_id: str, owner: SessionOwner) -> None:
        """Have the worker that has a session hand it over."""
        if self._member is None:
            return
        wanted = _encode(_WantedSession.of(session_id, owner)).decode()
        answer = next(filter(None, await self._member.ask_peers(_QUESTION, wanted)), None)
        if answer is None:
            return
        moved = _decode_moved(answer)
        if moved.is_busy:
            raise busy_session()
        if moved.is_too_large:
            raise ToolFailed(
                "this session is too large to go on with over another connection",
                hint="go on over the connection that it began on, or begin another with `agent.run`",
            )
        session = AgentSession(id=session_id, owner=owner, provider=moved.provider, bundle=moved.bundle)
        self._keep(session, moved.messages, moved.last_used)

    async def _give_away(self, question: str) -> str:
        """Give a session to another worker that wants it. It is no longer here then."""
        wanted = _decode_wanted(question)
        session = self._sessions.get(wanted.id)
        if session is None or session.owner != wanted.owner:
            return ""
        if session.is_busy or session.size > MAX_MOVED_BYTES:
            return _encode(_MovedSession(is_busy=session.is_busy, is_too_large=not session.is_busy)).decode()
        del self._sessions[wanted.id]
        moved = _MovedSession(
            provider=session.provider,
            bundle=session.bundle,
            messages=session.messages,
            last_used=session.last_used,
        )
        return _encode(moved).decode()

    def keep(self, session: AgentSession, messages: list[Message]) -> None:
        """Keep what was said, to be continued. The oldest sessions make room."""
        self._keep(session, messages, time.monotonic())

    def _keep(self, session: AgentSession, messages: list[Message], last_used: float) -> None:
        session.messages, session.size = messages, len(_encode(messages))
        session.last_used = last_used
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        self._forget_old()

    def _forget_old(self) -> None:
        limit = time.monotonic() - SESSION_SECONDS
        newest_first = [*reversed(self._sessions.values())]
        size = 0
        counted: Counter[str] = Counter()
        for number, session in enumerate(newest_first):
            principal = session.owner.caller.principal
            size += session.size
            counted[principal] += 1
            if (
                session.last_used < limit
                or number >= MAX_SESSIONS
                or counted[principal] > MAX_SESSIONS_OF_PRINCIPAL
                or size > MAX_SESSION_BYTES
            ):
                del self._sessions[session.id]


def busy_session() -> ToolFailed:
    """The error for a session that a call goes on with already."""
    return ToolFailed("this session is at work", hint="wait for its result, or cancel that call")
