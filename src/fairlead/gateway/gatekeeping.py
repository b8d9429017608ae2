"""Who is let in, as the configuration says."""

from collections.abc import Callable, Mapping

from fairlead.auth.guard import read_url
from fairlead.auth.web import Web
from fairlead.config.models import Gateway
from fairlead.gateway.access import Gatekeeper
from fairlead.gateway.folder import dashboard_name, decide_token_file, local_token_file
from fairlead.gateway.issuer_keys import IssuerKeys
from fairlead.gateway.jwt_access import JwtAccess
from fairlead.gateway.local_token import decide_token, local_token
from fairlead.gateway.perimeter import Perimeter
from fairlead.gateway.rate import RateLimit
from fairlead.gateway.tokens import Tokens, token_file
from fairlead.net.addresses import is_loopback_host


def gatekeeper_for(
    settings: Gateway,
    host: str,
    port: int,
    env: Mapping[str, str],
    *,
    with_tokens: bool = True,
    names_groups: Callable[[], bool] = lambda: False,
) -> Gatekeeper:
    """Guard a gateway that listens there.

    Without tokens every client that can reach it may call; deciding takes the user's token even then.
    """
    own_name = dashboard_name(env) if is_loopback_host(host) else None
    names = (*settings.names, *_public_names(settings))
    perimeter = Perimeter(host, port, names, dashboard_name=own_name)
    rate = RateLimit(settings.requests_per_minute)
    decide_token(env)  # created where it is missing
    if not with_tokens:
        tokens = Tokens(None, decide=decide_token_file(env))
        return Gatekeeper(perimeter, tokens=tokens, rate=rate, open_to_all=True)
    local_token(env)
    oauth = settings.oauth
    jwt = None
    if oauth:
        jwt = JwtAccess(oauth, IssuerKeys(oauth, Web(environment=env)), names_groups=names_groups)
    tokens = Tokens(local_token_file(env), token_file(env), decide=decide_token_file(env))
    return Gatekeeper(perimeter, tokens=tokens, jwt=jwt, rate=rate)


def _public_names(settings: Gateway) -> tuple[str, ...]:
    """What tokens are made out to is a name that clients know it by, if it is a URL."""
    audience = read_url(settings.oauth.audience) if settings.oauth else None
    return (audience.host_port_subcomponent,) if audience and audience.host_port_subcomponent else ()
