"""What a login asks to be allowed to do."""

from fairlead.auth.challenge import Challenge
from fairlead.auth.metadata import Issuer, Resource
from fairlead.auth.target import Target
from fairlead.auth.tokens import Login

OFFLINE = "offline_access"


def scope_to_ask(
    target: Target, resource: Resource, challenge: Challenge | None, granted: str | None, wanted: str | None
) -> str | None:
    """Return the scope to ask for, or None to leave it to the issuer.

    What the user says (`wanted` now, `oauth.scope` for good) counts as it is. Else it is what the server's
    challenge demands, or what its metadata lists; and what was `granted` before stays. A token that does not
    allow enough gets what it has and what is demanded, whoever said what.
    """
    demanded = challenge.scope if challenge is not None else None
    if challenge is not None and challenge.wants_more_scope:
        return united(wanted or target.oauth.scope, granted, demanded)
    if wanted or target.oauth.scope:
        return united(wanted or target.oauth.scope)
    return united(granted, demanded or " ".join(resource.scopes or ()))


def with_offline_access(scope: str | None, issuer: Issuer) -> str | None:
    """Ask for a refresh token where the issuer wants to be asked. No scope at all stays no scope at all."""
    return united(scope, OFFLINE) if scope and OFFLINE in issuer.scopes else scope


def granted_before(previous: Login | None, issuer: Issuer) -> str | None:
    """Return what the last login with this issuer may do."""
    return previous.token.scope if previous is not None and previous.issuer == issuer.name else None


def united(*scopes: str | None) -> str | None:
    """Return all scopes of all, each once, in order."""
    names = (name for scope in scopes for name in (scope or "").split())
    return " ".join(dict.fromkeys(names)) or None
