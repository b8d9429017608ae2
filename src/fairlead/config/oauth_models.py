"""Models of logins to servers with OAuth."""

from typing import Annotated, Literal

from pydantic import Field

from fairlead.config.field_types import StrictModel, Text, WebUrl


class IdentityProvider(StrictModel):
    """A company's identity provider, whose tokens are exchanged for assertions."""

    token_url: WebUrl = Field(description="The token endpoint of the identity provider.")
    token: Text = Field(description="The identity token it issued: use a reference.")
    client_id: Text | None = Field(default=None, description="Our client id there.")


class OAuthSettings(StrictModel):
    """OAuth settings, where discovery is not enough."""

    authorization_url: WebUrl | None = Field(
        default=None, description="The authorization endpoint, in place of the one in the issuer's metadata."
    )
    token_url: WebUrl | None = Field(
        default=None,
        description="The token endpoint; with `authorization_url`, no metadata is looked for.",
    )
    registration_url: WebUrl | None = Field(
        default=None, description="The endpoint where we register a client, likewise."
    )
    client_id: Text | None = Field(
        default=None, description="The id of a client that you registered; else we register one."
    )
    client_secret: Text | None = Field(default=None, description="Use a reference such as `${NAME}`.")
    scope: Text | None = Field(default=None, description="Scopes to ask for, separated by spaces.")
    callback_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="A fixed port for the login callback; random if not set."
    )
    client_metadata_url: WebUrl | None = Field(
        default=None,
        description="An https URL with metadata of the client, which is its id where an issuer takes such.",
    )
    grant: Literal["authorization_code", "client_credentials", "jwt_bearer"] = Field(
        default="authorization_code",
        description="How tokens are obtained: by a login, by the client itself, or for an `assertion`.",
    )
    auth_method: Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"] | None = (
        Field(default=None, description="How the client authenticates; as the issuer prefers if not set.")
    )
    private_key: Text | None = Field(
        default=None, description="A key (PEM) that the client authenticates with: use a reference."
    )
    key_algorithm: Literal["RS256", "ES256"] | None = Field(
        default=None, description="What `private_key` signs with; as the key suggests if not set."
    )
    assertion: Text | None = Field(
        default=None, description="A token of this workload, for `jwt_bearer`: use a reference."
    )
    identity: IdentityProvider | None = Field(
        default=None, description="The identity provider that issues an assertion first, for `jwt_bearer`."
    )
