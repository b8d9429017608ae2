"""Who may see the dashboard: a token, once, and from then on a cookie. And which forms are its own.

The token never stands in an address that anybody logs: it is pasted, or comes after the `#` of a link, which
browsers keep to themselves. A form counts only with a token of its own, which belongs to the cookie.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from fairlead.config.principal import LOCAL
from fairlead.gateway.access import SCREENED, Admitted
from fairlead.gateway.perimeter import Refused
from fairlead.net.connections import mark_authenticated

SESSION_SECONDS: Final = 12 * 3600.0
CODE_SECONDS: Final = 600.0
MAX_SESSIONS: Final = 1000
COOKIE: Final = "fairlead_session"


class Doorkeeper(Protocol):
    """What the dashboard needs of whoever guards the gateway."""

    async def admit(self, scope: Scope) -> Admitted | Refused:
        """Say for whom a request goes on, or how it is answered instead."""
        ...

    async def identify(self, token: str) -> Admitted | None:
        """Say whose token this is."""
        ...

    def screen(self, scope: Scope) -> Refused | None:
        """Check where a request comes from, whoever it is from."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """What a browser shows of itself: the value of its cookie."""

    value: str
    is_new: bool = False
    """It came without one, and gets this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    token: str | None
    """Asked about again with every request, since it may be taken back; None for a one-time code."""
    ends: float


class Entrance:
    """Lets people in, and remembers whom it let in."""

    def __init__(self, keeper: Doorkeeper) -> None:
        self._keeper = keeper
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._codes: dict[str, float] = {}

    # Who is there.

    def screen(self, scope: Scope) -> Refused | None:
        """Check where a request comes from, unless somebody did before."""
        return None if scope.get(SCREENED) else self._keeper.screen(scope)

    def ticket(self, scope: Scope) -> Ticket:
        """The cookie of a request, or a new one."""
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        morsel = cookies.get(_cookie_name(scope))
        return Ticket(value=morsel.value) if morsel and morsel.value else _new_ticket()

    async def admit(self, scope: Scope, ticket: Ticket, needed: str) -> Admitted | Refused:
        """Say who a request is from: by its cookie, else as for any other request."""
        admitted = await self._by_session(ticket)
        if admitted is None:
            return await self._keeper.admit(scope)
        if needed not in admitted.scopes:
            return Refused.saying(403, f"this token is not for that: it lacks the scope `{needed}`")
        mark_authenticated(scope)
        return admitted

    async def _by_session(self, ticket: Ticket) -> Admitted | None:
        session = self._sessions.get(_digest(ticket.value))
        if session is None or session.ends < time.time():
            return None
        return (
            Admitted(principal=LOCAL) if session.token is None else await self._keeper.identify(session.token)
        )

    # Coming and going.

    def one_time_code(self) -> str:
        """A code that lets one person in, once, for some minutes: for a link such as `/login#code`."""
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = time.time() + CODE_SECONDS
        return code

    async def log_in(self, secret: str) -> Ticket | None:
        """Let somebody in who has a token or a one-time code. The cookie is new, whatever was before."""
        ends = self._codes.pop(_digest(secret), None)
        is_code = ends is not None and ends >= time.time()
        if not is_code:
            admitted = await self._keeper.identify(secret)
            if admitted is None or "admin" not in admitted.scopes:
                return None
        ticket = _new_ticket()
        self._sessions[_digest(ticket.value)] = _Session(
            token=None if is_code else secret, ends=time.time() + SESSION_SECONDS
        )
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return ticket

    def log_out(self, ticket: Ticket) -> None:
        """Forget somebody."""
        self._sessions.pop(_digest(ticket.value), None)

    # Forms.

    def form_token(self, ticket: Ticket) -> str:
        """What every form sent by this browser has to carry."""
        return hmac.new(self._key, ticket.value.encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, ticket: Ticket, given: str) -> bool:
        """Does a form come from a page of ours, in this very browser?"""
        expected = self.form_token(ticket).encode()
        return not ticket.is_new and hmac.compare_digest(given.encode(errors="replace"), expected)


def keep_ticket(response: Response, ticket: Ticket, scope: Scope) -> None:
    """Have the browser keep its cookie."""
    response.set_cookie(
        _cookie_name(scope),
        ticket.value,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=scope["scheme"] == "https",
    )


def _new_ticket() -> Ticket:
    return Ticket(value=secrets.token_urlsafe(32), is_new=True)


def _digest(secret: str) -> str:
    """What secrets are kept and found by, so that neither memory nor timing tells them."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _cookie_name(scope: Scope) -> str:
    """Browsers send cookies to all ports of a machine, so that each gateway has to know its own."""
    port = (scope.get("server") or ("", 0))[1]
    return f"{COOKIE}_{port}"
