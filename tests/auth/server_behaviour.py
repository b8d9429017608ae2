"""What the test authorization server can be told to do, and what it remembers."""

from dataclasses import dataclass, field
from typing import Any

Form = dict[str, str]


@dataclass
class Behaviour:
    """What the server does; a test changes it before or while the server runs."""

    # What it says about itself.
    issuer_path: str = ""
    metadata_paths: tuple[str, ...] = ("/.well-known/oauth-authorization-server",)
    """Where metadata is found; empty for a server that has none."""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """Laid over the metadata; None takes a field away."""
    metadata_status: int = 200
    registration: bool = True
    client_metadata: bool = False
    """Are URLs accepted as client ids?"""
    auth_methods: tuple[str, ...] | None = (
        *("none", "client_secret_basic", "client_secret_post", "private_key_jwt"),
    )
    register_as: str = ""
    """How registered clients authenticate, whatever they asked for."""
    registration_status: int = 201
    registration_overlay: dict[str, Any] = field(default_factory=dict[str, Any])
    """Laid over the answer to a registration; None takes a field away."""
    pkce: tuple[str, ...] | None = ("S256",)
    login_page: bool = True
    """Is there a page to log in at? A server that takes keys has none."""

    every_page: tuple[int, dict[str, str], str] | None = None
    """Status, headers and content of every other address; None where those do not exist."""

    # How it sends the browser back.
    advertise_iss: bool = False
    iss: str | None = ""
    """The `iss` of the answer: "" for the right one, None for none."""
    answer: Form = field(default_factory=Form)
    """Laid over what the browser is sent back with, for wrong states, errors and worse."""

    # What the token endpoint does.
    token_status: int = 200
    token_hangs: bool = False
    token_error: str = ""
    token_delay: float = 0
    token_body: str | None = None
    token_redirect: str = ""
    expires_in: int | float | str | None = 3600
    rotate: bool = True
    refresh_tokens: bool = True
    token_overlay: dict[str, Any] = field(default_factory=dict[str, Any])
    dpop: bool = False
    """Bind tokens to the key of a proof, and insist on one."""
    dpop_nonce: str = ""

    revocation_status: int = 0
    """What the revocation endpoint answers with; 0 where there is none."""

    # What the MCP server does.
    resource_metadata: bool = True
    resource_overlay: dict[str, Any] = field(default_factory=dict[str, Any])
    challenge_metadata: bool = True
    """Does the challenge name the metadata?"""
    scope: str = ""
    """What every request needs, and the challenge names."""
    tool_scopes: dict[str, str] = field(default_factory=lambda: {"administer": "mcp:admin"})
    insatiable: bool = False
    """Is every scope insufficient?"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    form: Form
    headers: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a person (or a machine) gave a client."""

    account: str
    client_id: str
    scope: str
    resource: str
    family: str
    redirect_uri: str = ""
    code_challenge: str = ""
    expires_at: float = float("inf")
    thumbprint: str = ""


@dataclass(frozen=True, kw_only=True)
class RegisteredClient:
    client_id: str
    auth: str = "none"
    client_secret: str | None = None
    redirect_uris: tuple[str, ...] = ()
    public_key: str | None = None


def mcp_answer(message: dict[str, Any], grant: Grant) -> dict[str, Any]:
    """What the MCP server says to whom it knows: `whoami` names the account and the scopes."""
    match message["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "protected", "version": "1"},
                }
            }
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("whoami", "administer")]
            return {"result": {"tools": tools}}
        case "tools/call":
            text = f"{grant.account or grant.client_id} {grant.scope}".strip()
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}
