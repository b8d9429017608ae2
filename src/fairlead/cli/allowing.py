"""Carry out what a review decided, and say what became of it."""

import os
from collections.abc import Iterable
from dataclasses import replace

import click

from fairlead.catalog.entries import Listing
from fairlead.cli.changes import approved_servers, settle
from fairlead.cli.output import counted, say, shown_path
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.scopes import EditTarget
from fairlead.policy.allowing import Decided, record_decision
from fairlead.policy.reviewing import ReviewedTool


def carry_out(
    ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, listing: Listing, decided: Decided
) -> None:
    """Pin what was approved, write both lists, and tell the person."""
    approved = approved_servers(loaded, [server.server_id])
    target = record(loaded, server, listing, decided)
    if target is not None:
        settle(ctx, target, [server.server_id], approved=approved)


def record(
    loaded: LoadedConfig, server: LoadedServer, listing: Listing, decided: Decided
) -> EditTarget | None:
    """Do so, and return the file that was written, if one was: what follows from that is yet to be done."""
    entry = record_decision(store_file(os.environ, loaded.config.store.path), server, listing, decided)
    where = f" in {shown_path(entry.target.path)}" if entry else ""
    for word, tools in (("allowed", decided.approved), ("denied", decided.denied)):
        if tools:
            say(f"{word} {counted(len(tools), 'tool')} of `{server.server_id}`{where}")
    return entry.target if entry else None


def without_globs(tools: Iterable[ReviewedTool], decided: Decided) -> Decided:
    """The same decision, with globs in the allow list replaced by the names of what was reviewed."""
    names = [tool.name for tool in tools if tool.allowed and tool.state == "reviewed"]
    return replace(decided, without_globs=[name for name in names if name not in decided.denied])
