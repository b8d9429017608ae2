"""Principals: whom a call is made for. A library's host has one; a gateway has one for each of its tokens."""

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

LOCAL: Final = "local"
"""The person whose machine this is."""
GROUP: Final = "group:"
"""What the name of a group begins with, where a principal or a group can be named."""


class Caller(NamedTuple):
    """A principal and the groups that its token says it is a member of."""

    principal: str = LOCAL
    groups: frozenset[str] = frozenset()

    def is_named(self, name: str) -> bool:
        """Does a name or glob mean this caller: `group:NAME` one of its groups, any other its principal?"""
        if name.startswith(GROUP):
            wanted = name.removeprefix(GROUP)
            return any(group == wanted or fnmatchcase(group, wanted) for group in self.groups)
        return self.principal == name or fnmatchcase(self.principal, name)


LOCAL_CALLER: Final = Caller()
