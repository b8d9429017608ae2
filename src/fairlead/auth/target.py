"""What somebody logs in to, and how the user said it is to be done."""

from dataclasses import dataclass, field

from fairlead.auth.guard import read_url
from fairlead.config.models import OAuth
from fairlead.config.principal import LOCAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One MCP server, for one account of one principal. References in `oauth` are resolved."""

    server_id: str
    url: str
    principal: str = LOCAL
    account: str = ""
    oauth: OAuth = field(default_factory=OAuth, repr=False)

    @property
    def resource(self) -> str:
        """The name that logins to it are kept under: its URL, in canonical form."""
        return canonical(self.url)

    @property
    def chosen_hosts(self) -> frozenset[str]:
        """The hosts the user wrote down, which need no vetting."""
        oauth = self.oauth
        identity = oauth.identity.token_url if oauth.identity is not None else None
        named = (oauth.authorization_url, oauth.token_url, oauth.registration_url, identity)
        urls = map(read_url, filter(None, named))
        return frozenset(url.host for url in urls if url is not None and url.host is not None)


def canonical(url: str) -> str:
    """Return a server's URL as RFC 8707 wants it: lower case where it may be; no query, no fragment."""
    read = read_url(url)
    if read is None:
        return url
    bare = read.with_query(None)
    return str(bare.origin() if bare.path == "/" else bare)
