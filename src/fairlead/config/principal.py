"""Principals: the identities that calls are made for. A library's host has one; a gateway one per token."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import quote

LOCAL: Final = "local"
"""The user of this machine."""
GROUP: Final = "group:"
"""Prefix of a group's name, where a principal or a group can be named."""
TOKEN_OWNER: Final = "token:"  # noqa: S105 - a prefix, no password
"""Prefix of a gateway token's principal; the token's name follows."""
OAUTH_SUBJECT: Final = "oauth:"
"""Prefix of an OAuth subject's principal; issuer and subject follow."""


def oauth_principal(issuer: str, subject: str) -> str:
    """Principal of a subject of an issuer.

    Prefixed, so that no subject can be the local user or the owner of a token. The issuer is part of it: a
    subject is unique at its own issuer only (RFC 7519, 4.1.2). It is written without spaces, so that no two
    pairs of issuer and subject give the same text.
    """
    return f"{OAUTH_SUBJECT}{_without_spaces(issuer)} {subject}"


class GroupedPrincipal(NamedTuple):
    """Principal with the groups that its token names."""

    principal: str = LOCAL
    groups: frozenset[str] = frozenset()

    def is_named(self, name: str) -> bool:
        """Whether a name or glob means this caller: `group:NAME` one of its groups, else its principal."""
        if name.startswith(GROUP):
            wanted = name.removeprefix(GROUP)
            return any(_matches(group, wanted) for group in self.groups)
        return _matches(self.principal, name)

    def may_be_named(self, name: str) -> bool:
        """Like `is_named`, and also by the bare subject of any issuer, or the bare name of a gateway token.

        For rules that narrow: a rule that denies something to `ada` must not lapse because the audit log
        shows the principal as `oauth:https://issuer.example ada`.
        """
        return self.is_named(name) or (not name.startswith(GROUP) and _matches(self._bare_name, name))

    def is_subject(self, name: str, issuer: str | None) -> bool:
        """Whether a name or glob means the subject that this caller is at this issuer.

        For rules that allow: the subject of another issuer is another user, a subject `local` is not the
        local user, and a name with a prefix (`oauth:`, `token:`, `group:`) is no subject.
        """
        if issuer is None or name.startswith((GROUP, TOKEN_OWNER, OAUTH_SUBJECT)) or self._bare_name == LOCAL:
            return False
        is_of_issuer = self.principal.startswith(f"{OAUTH_SUBJECT}{_without_spaces(issuer)} ")
        return is_of_issuer and _matches(self._bare_name, name)

    @property
    def _bare_name(self) -> str:
        """Its subject, or the name of its token, without the prefix."""
        if self.principal.startswith(OAUTH_SUBJECT):
            return self.principal.partition(" ")[2]
        return self.principal.removeprefix(TOKEN_OWNER)


def bundles_granted(
    mapping: Mapping[str, str | Sequence[str]], issuer: str, caller: GroupedPrincipal
) -> frozenset[str] | None:
    """Bundles that `gateway.oauth.bundles` grants to a subject of the issuer and its groups.

    Args:
        mapping: Bundles by `group:NAME` or subject, name or glob.
        issuer: The issuer whose subjects are mapped.
        caller: The subject, with the groups that its token names.

    Returns:
        The bundles of every name that matches; empty where none does, so that the caller gets nothing. None
        where nothing is mapped, and bundles are not restricted.
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
