"""Remember the OAuth client that a login worked with, in the entry of its server."""

import os
from dataclasses import dataclass
from typing import Any

import click

from fairlead.cli.changes import approved_servers, forget_entry_secrets, settle
from fairlead.cli.options import load
from fairlead.cli.output import say, shown_path
from fairlead.config import jsonc
from fairlead.config.edit import edit_file, set_value
from fairlead.config.load import LoadedServer
from fairlead.config.scopes import EditScope, EditTarget
from fairlead.config.shapes import as_object
from fairlead.config.sources import LayerName
from fairlead.config.stash import stash_secrets
from fairlead.errors import ConfigUnwritable

_SCOPES: dict[LayerName, EditScope] = {"project": "project", "user": "user", "file": "file"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientPlace:
    """Where the client of a server is written."""

    server_id: str
    target: EditTarget
    path: tuple[str, ...]


def client_place(server: LoadedServer) -> ClientPlace:
    """The file that names a server's client, else the one that says what the server is."""
    setting = next(server.definition.settings(("oauth", "client_id")), None)
    part = server.definition.parts[0]
    layer, entry = (setting.origin.layer, setting.origin.path[:-2]) if setting else (part.layer, part.prefix)
    if layer.path is None or layer.dialect is not None:
        reason = "which Fairlead reads but does not edit" if layer.path else "which is no file"
        raise ConfigUnwritable(
            f"`{server.server_id}` is described by {layer.label}, {reason}",
            hint="write `oauth.client_id` there by hand, and log in without `--client-id`",
        )
    target = EditTarget(scope=_SCOPES.get(layer.name, "file"), path=layer.path)
    return ClientPlace(server_id=server.server_id, target=target, path=(*map(str, entry), "oauth"))


def remember_client(ctx: click.Context, place: ClientPlace, client: dict[str, Any]) -> None:
    """Write the client, its secret as a reference, so that it need not be given again."""
    entry, stashed = stash_secrets(place.server_id, {"oauth": client}, os.environ, file=place.target.path)
    fields: dict[str, Any] = entry["oauth"]

    earlier: dict[str, Any] = {}

    def change(text: str) -> str:
        present = as_object(jsonc.parse(text, file=str(place.target.path)).data)
        for name in place.path:
            present = as_object(present.get(name))
        earlier.clear()
        earlier.update(present)
        for name, value in fields.items():
            text = set_value(text, (*place.path, name), value)
        return text

    approved = approved_servers(load(ctx), [place.server_id])
    if edit_file(place.target.path, change):
        say(f"wrote the client of `{place.server_id}` to {shown_path(place.target.path)}")
        for secret in stashed:
            say(f"  {secret.field}: the value was put away; the file says {secret.reference}")
        loaded = settle(ctx, place.target, [place.server_id], approved=approved)
        forget_entry_secrets(place.target, earlier, loaded)
