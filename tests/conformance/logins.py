"""How the suite's client logs in: with what the suite gives it, and as a person who always agrees."""

import json
import os
from typing import Any

import aiohttp

from fairlead.host.operator import UrlAnswer, UrlRequest

CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""Where the suite says that a client describes itself. Nobody can look it up, and nobody has to."""


def context() -> dict[str, Any]:
    """What the suite tells the client about the scenario, besides its name."""
    return json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


def oauth_for(scenario: str) -> dict[str, Any]:
    """The `oauth` of a server's entry, as a user would write it with what the suite gives."""
    given = context()
    match scenario:
        case "auth/basic-cimd":
            return {"client_metadata_url": CLIENT_DOCUMENT}
        case "auth/pre-registration":
            return {"client_id": given["client_id"], "client_secret": given["client_secret"]}
        case "auth/client-credentials-basic":
            return {
                "grant": "client_credentials",
                "client_id": given["client_id"],
                "client_secret": given["client_secret"],
            }
        case "auth/client-credentials-jwt":
            return {
                "grant": "client_credentials",
                "client_id": given["client_id"],
                "private_key": given["private_key_pem"],
                "key_algorithm": given["signing_algorithm"],
            }
        case "auth/wif-jwt-bearer":
            return {
                "grant": "jwt_bearer",
                "client_id": given["client_id"],
                "assertion": given["valid_jwt"],
            }
        case "auth/enterprise-managed-authorization":
            return {
                "grant": "jwt_bearer",
                "client_id": given["client_id"],
                "client_secret": given["client_secret"],
                "identity": {
                    "token_url": given["idp_token_endpoint"],
                    "token": given["idp_id_token"],
                    "client_id": given["idp_client_id"],
                },
            }
        case _:
            return {}


async def agree(question: UrlRequest) -> UrlAnswer:
    """Want to log in."""
    return "accept"


async def visit(url: str) -> bool:
    """Be a browser: open the login page, and follow it back to where Fairlead listens."""
    async with aiohttp.ClientSession() as browser, browser.get(url) as page:
        return page.ok
