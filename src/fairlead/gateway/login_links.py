"""One-time links by which a principal logs in to a server, for clients that cannot open a page themselves.

A link is for one principal and one server, holds for some minutes, and belongs to the first browser that
begins a login with it, until that login is made or another link is used in its place. What comes of it is
that principal's login and no other's.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

LINK_SECONDS: Final = 900.0
MAX_LINKS: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginLink:
    """A login link: its principal and server."""

    principal: str
    server_id: str
    ends: float
    browser: str | None = None
    """The digest of the cookie of the browser that began the login."""

    @property
    def is_begun(self) -> bool:
        """Whether a browser began the login."""
        return self.browser is not None


class LoginLinks:
    """The links of one gateway."""

    def __init__(self, id_prefix: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with none; the codes of links begin with `id_prefix`, which says what process has them."""
        self.id_prefix = id_prefix
        self._clock = clock
        self._links: OrderedDict[str, LoginLink] = OrderedDict()
        self._given: dict[tuple[str, str], str] = {}
        self.origin: str | None = None
        """Origin of the gateway's pages; None where it has none."""

    def url(self, principal: str, server_id: str) -> str | None:
        """Return the link of a principal for a server: the latest, while that is unused, else a new one."""
        if self.origin is None:
            return None
        key = (principal, server_id)
        code = self._given.get(key)
        link = self._links.get(_digest(code)) if code is not None else None
        if code is None or link is None or link.is_begun or link.ends < self._clock():
            code = self._given[key] = f"{self.id_prefix}{secrets.token_urlsafe(24)}"
            self._links[_digest(code)] = LoginLink(
                principal=principal, server_id=server_id, ends=self._clock() + LINK_SECONDS
            )
            if len(self._links) > MAX_LINKS:
                _, oldest = self._links.popitem(last=False)
                self._given.pop((oldest.principal, oldest.server_id), None)
        return f"{self.origin}/connect/{code}"

    def find(self, code: str, cookie: str) -> LoginLink | None:
        """Return a link; None where it is expired, unknown, or another browser's."""
        link = self._links.get(_digest(code))
        if link is None or link.ends < self._clock() or link.browser not in (None, _digest(cookie)):
            return None
        return link

    def claim(self, code: str, cookie: str) -> LoginLink | None:
        """Bind a link to a browser, and return it. None where it is no link of that browser."""
        link = self.find(code, cookie)
        if link is not None and not link.is_begun:
            # There is one login at a time for a principal and a server: no other browser may follow this one.
            for digest, other in [*self._links.items()]:
                if other.is_begun and (other.principal, other.server_id) == (link.principal, link.server_id):
                    del self._links[digest]
            link = self._links[_digest(code)] = replace(link, browser=_digest(cookie))
        return link


def _digest(secret: str) -> str:
    # Codes and cookies are kept and looked up as digests alone, so that no comparison tells them by its time.
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
