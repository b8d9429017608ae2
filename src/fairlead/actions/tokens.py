"""Make and revoke the named tokens of a gateway."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.store_location import RedisLocation, StoreLocation
from fairlead.errors import ConfigError
from fairlead.gateway.access.shared_tokens import StoredTokens
from fairlead.gateway.access.tokens import TokenFile, token_file


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeToken:
    """A token that was just made. It is kept nowhere else."""

    token: str
    notices: list[Notice]


def named_tokens(env: Mapping[str, str], location: StoreLocation) -> TokenFile:
    """List the named tokens: of this machine's user, and of all replicas where they share a store."""
    machine = token_file(env)
    return StoredTokens(location, machine) if isinstance(location, RedisLocation) else machine


def make_token(
    context: ActionContext,
    name: str,
    *,
    bundles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    principal: str | None = None,
) -> MadeToken:
    """Make a token of a gateway, which a running one accepts at once.

    Args:
        context: Who makes it.
        name: What the client with this token is called.
        bundles: The only bundles it may use; none for all.
        scopes: What it is for; for calling tools if left out.
        principal: Whose it is; a principal of the token's own name if left out.

    Raises:
        UnknownBundle: The configuration has no such bundle.
        ConfigError: There is a token of that name, or a name or scope is none.
    """
    for bundle in bundles:
        context.loaded.bundle(bundle)  # raises where there is none
    wanted = tuple(scopes) or ("mcp",)
    token = named_tokens(context.env, context.store).add(
        name, bundles=tuple(bundles), scopes=wanted, principal=principal
    )
    return MadeToken(token=token, notices=context.record("add token", "", name=name, scopes=[*wanted]))


def revoke_token(context: ActionContext, name: str) -> list[Notice]:
    """Revoke a named token.

    Raises:
        ConfigError: There is none of that name.
    """
    if not named_tokens(context.env, context.store).remove(name):
        raise ConfigError(f"there is no token `{name}`", hint="run `fairlead gateway token list`")
    return context.record("remove token", "", name=name)
