"""Principals: whom a call is made for. A library's host has one; a gateway has one for each of its tokens."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import quote

LOCAL: Final = "local"
"""The person whose machine this is."""
GROUP: Final = "group:"
"""What the name of a group begins with, where a principal or a group can be named."""
TOKEN_OWNER: Final = "token:"  # noqa: S105 - a prefix, no password
"""What the principal of a gateway token begins with; the rest is the name it was made with."""
OAUTH_SUBJECT: Final = "oauth:"
"""What the principal of an issuer's subject begins with; issuer and subject follow."""


def oauth_principal(issuer: str, subject: str) -> str:
    """The principal that a subject of an issuer is.

    Prefixed, so that no subject can be the local user or the owner of a token. The issuer is part of it: a
    subject means something to its own issuer only (RFC 7519, 4.1.2). It is written without spaces, so that no
    two pairs of issuer and subject give the same text.
    """
    return f"{OAUTH_SUBJECT}{_without_spaces(issuer)} {subject}"


class GroupedPrincipal(NamedTuple):
    """A principal and the groups that its token says it is a member of."""

    principal: str = LOCAL
    groups: frozenset[str] = frozenset()

    def is_named(self, name: str) -> bool:
        """Does a name or glob mean this caller: `group:NAME` one of its groups, any other its principal?"""
        if name.startswith(GROUP):
            wanted = name.removeprefix(GROUP)
            return any(_matches(group, wanted) for group in self.groups)
        return _matches(self.principal, name)

    def may_be_named(self, name: str) -> bool:
        """The same, and does it name the subject of any issuer, or a gateway token, without the prefix?

        For what narrows: a rule that denies something to `ada` must not lapse because the audit log shows
        the principal as `oauth:https://issuer.example ada`.
        """
        return self.is_named(name) or (not name.startswith(GROUP) and _matches(self._bare_name, name))

    def is_subject(self, name: str, issuer: str | None) -> bool:
        """Does a name or glob mean the subject that this caller is at this issuer?

        For what allows: the subject of another issuer is another person, a subject `local` is not the local
        user, and a name with a prefix (`oauth:`, `token:`, `group:`) is no subject.
        """
        if issuer is None or name.startswith((GROUP, TOKEN_OWNER, OAUTH_SUBJECT)) or self._bare_name == LOCAL:
            return False
        is_of_issuer = self.principal.startswith(f"{OAUTH_SUBJECT}{_without_spaces(issuer)} ")
        return is_of_issuer and _matches(self._bare_name, name)

    @property
    def _bare_name(self) -> str:
        """Its subject or the name of its token, without what tells those apart from others."""
        if self.principal.startswith(OAUTH_SUBJECT):
            return self.principal.partition(" ")[2]
        return self.principal.removeprefix(TOKEN_OWNER)


def bundles_granted(
    mapping: Mapping[str, str | Sequence[str]], issuer: str, caller: GroupedPrincipal
) -> frozenset[str] | None:
    """The bundles that `gateway.oauth.bundles` maps a subject of the issuer and its groups to.

    Args:
        mapping: Bundles by `group:NAME` or subject, name or glob.
        issuer: Whose subjects are mapped.
        caller: The subject, with the groups that its token names.

    Returns:
        The bundles of every name that matches, together; empty where none does, and so the caller gets
        nothing. None where nothing is mapped, and bundles are restricted for no one.
    """
    if not mapping:
        return None
    return frozenset(
        bundle
        for name, bundles in mapping.items()
        if caller.is_named(name) or caller.is_subject(name, issuer)
        for bundle in ([bundles] if isinstance(bundles, str) else bundles)
    )


def _matches(text: str, name: str) -> bool:
    return text == name or fnmatchcase(text, name)


def _without_spaces(issuer: str) -> str:
    return quote(issuer, safe=":/?#[]@!$&()*+,;=%")


LOCAL_CALLER: Final = GroupedPrincipal()
