"""The question that a person answers at the issuer's page, and what counts as its answer."""

import hmac
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from fairlead.auth.guard import shown
from fairlead.auth.metadata import Issuer
from fairlead.auth.pkce import Pkce, new_pkce, new_state
from fairlead.auth.scopes import OFFLINE
from fairlead.config.command_lines import command_line
from fairlead.errors import LoginFailed

_MAX_FIELDS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthorizationRequest:
    """One request. Its state is its own, so that the answer to another one is none to it."""

    server_id: str
    issuer: Issuer
    client_id: str
    redirect_uri: str
    audience: str
    scope: str | None
    pkce: Pkce = field(default_factory=new_pkce)
    state: str = field(default_factory=new_state, repr=False)

    @property
    def url(self) -> str:
        """The page where a person says yes. Whatever else a stranger put into it is percent-encoded."""
        endpoint = self.issuer.authorization_endpoint
        assert endpoint is not None
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "code_challenge": self.pkce.challenge,
            "code_challenge_method": "S256",
            "state": self.state,
            "resource": self.audience,
        }
        if self.scope:
            query["scope"] = self.scope
            if OFFLINE in self.scope.split():
                # OpenID Connect gives refresh tokens only to those whose consent is asked for.
                query["prompt"] = "consent"
        theirs = [(name, value) for name, value in endpoint.query.items() if name not in query]
        return f"{endpoint.with_query(None)}?{urlencode([*theirs, *query.items()])}"

    def code_in(self, answer: str) -> str:
        """Return the code in the URL that the browser was sent back to, if it is the answer to this request.

        Until state and issuer are known to be right, nothing of the answer is believed or shown.
        """
        fields = self._fields_of(answer)
        if not hmac.compare_digest(fields.get("state", "").encode(), self.state.encode()):
            raise LoginFailed(
                self.server_id,
                "what came back is not the answer to this login (wrong or missing `state`)",
                hint=f"run `{command_line('login', self.server_id)}` again, and use only the page it opens",
            )
        self._check_issuer(fields.get("iss"))
        name = shown(self.issuer.name)
        if "error" in fields:
            words = f"{name} says `{shown(fields['error'], 60)}`"
            if fields.get("error_description"):
                words += f": {shown(fields['error_description'])}"
            raise LoginFailed(self.server_id, words)
        if not fields.get("code"):
            raise LoginFailed(self.server_id, f"{name} sent the browser back without a code")
        return fields["code"]

    def _check_issuer(self, iss: str | None) -> None:
        """Refuse what comes from another issuer (RFC 9207), whose code would go to the wrong place."""
        if iss is None:
            if self.issuer.advertises_iss:
                raise LoginFailed(self.server_id, "the answer does not say which issuer it is from; refused")
        elif self.issuer.is_named and iss != self.issuer.name:
            raise LoginFailed(self.server_id, f"the answer is not from {shown(self.issuer.name)}; refused")

    def _fields_of(self, answer: str) -> dict[str, str]:
        try:
            query = urlsplit(answer).query
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError as exc:
            raise LoginFailed(self.server_id, "what came back cannot be read") from exc
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise LoginFailed(self.server_id, "what came back says one thing twice; refused")
        return fields
