"""Carry out what a review decided, and say what became of it."""

import os

import click

from fairlead.catalog.entries import Listing
from fairlead.cli.changes import settle
from fairlead.cli.output import say, shown_path
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.policy.allowing import Decided, record_decision


def carry_out(
    ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, listing: Listing, decided: Decided
) -> None:
    """Pin what was approved, write both lists, and tell the person."""
    entry = record_decision(store_file(os.environ, loaded.config.store.path), server, listing, decided)
    where = f" in {shown_path(entry.target.path)}" if entry else ""
    for word, tools in (("allowed", decided.approved), ("denied", decided.denied)):
        if tools:
            say(
                f"{word} {len(tools)} {'tool' if len(tools) == 1 else 'tools'} of `{server.server_id}`{where}"
            )
    if entry is not None:
        settle(ctx, entry.target, [server.server_id])
