"""A login as an entry of the token file: flat, with the names other hosts use for the same things."""

import hashlib
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from fairlead.auth.tokens import Client, Login, LoginKey, Token
from fairlead.auth.vault_file import Entry

PUBLIC: Final = frozenset(
    {
        *("principal", "account", "issuer", "resource", "audience", "token_endpoint"),
        *("token_type", "expires_at", "issued_at", "scope"),
        *("client_id", "client_auth", "client_origin", "client_redirect_uri", "client_secret_expires_at"),
    }
)
"""Fields that may stand in a file where secrets are elsewhere. All others count as secrets."""


def name_of(key: LoginKey) -> str:
    """What the entry of a login is called: by the server's host, and so that no two share a name."""
    text = "\0".join((key.principal, key.account, key.issuer, key.resource))
    return f"{urlsplit(key.resource).hostname}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def entry_of(login: Login) -> Entry:
    """Everything about a login, without the fields that say nothing."""
    fields: Entry = msgspec.to_builtins(login)
    client, token = fields.pop("client"), fields.pop("token")
    fields |= token | {_client_field(name): value for name, value in client.items()}
    return {name: value for name, value in fields.items() if value is not None}


def login_of(entry: Entry) -> Login | None:
    """The login of an entry, or None where something that it needs is not there."""
    fields: dict[str, Any] = {
        **entry,
        "token": entry,
        "client": {name: entry[_client_field(name)] for name in _CLIENT if _client_field(name) in entry},
    }
    try:
        return msgspec.convert(fields, Login)
    except msgspec.ValidationError:
        return None


def _client_field(name: str) -> str:
    return name if name.startswith("client_") else f"client_{name}"


_CLIENT: Final = tuple(Client.__struct_fields__)

FIELDS: Final = frozenset(
    {*Login.__struct_fields__, *Token.__struct_fields__, *map(_client_field, _CLIENT)} - {"client", "token"}
)
"""All fields of an entry that are ours."""
