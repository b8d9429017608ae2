"""Record what a review decided, and say what became of it."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

import click

from fairlead.catalog.entries import Listing, ToolEntry, tool_called
from fairlead.cli.changes import approved_servers, settle
from fairlead.cli.output import counted, printable, say, shown_path, warn
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.scopes import EditTarget
from fairlead.config.validate import suggestion
from fairlead.errors import UnknownTool
from fairlead.policy.allowing import Answer, ReviewDecision, record_decision
from fairlead.policy.decision import stricter_than_review
from fairlead.policy.reviewing import ReviewedTool
from fairlead.policy.tool_patterns import is_glob, matches


def carry_out(
    ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, listing: Listing, decision: ReviewDecision
) -> None:
    """Pin what was looked at, write the answers, and say so."""
    approved = approved_servers(loaded, [server.server_id])
    target = record(loaded, server, listing, decision)
    if target is not None:
        settle(ctx, target, [server.server_id], approved=approved)


def record(
    loaded: LoadedConfig, server: LoadedServer, listing: Listing, decision: ReviewDecision
) -> EditTarget | None:
    """Do so, and return the file that was written, if one was: what follows from that is yet to be done."""
    entry = record_decision(store_file(os.environ, loaded.config.store.path), server, listing, decision)
    where = f" in {shown_path(entry.target.path)}" if entry else ""
    if entry is None and (decision.allow or decision.ask):
        say(f"pinned {counted(len(decision.usable), 'tool')} of `{server.server_id}` as they are now")
        warn(
            f"no file has the entry of `{server.server_id}`, so that no answer could be written",
            "write `approval` there by hand to call its tools without being asked",
        )
        return None
    for word, tools in (
        ("allowed", decision.allow),
        ("to be asked about:", decision.ask),
        ("denied", decision.deny),
    ):
        if tools:
            say(f"{word} {counted(len(tools), 'tool')} of `{server.server_id}`{where}")
    _warn_of_rules(server, decision)
    return entry.target if entry else None


def _warn_of_rules(server: LoadedServer, decision: ReviewDecision) -> None:
    """Say which answers have no effect, since a rule or the administrator is stricter."""
    allowed = {tool.key for tool in decision.allow}
    for tool in decision.usable:
        answer: Answer = "allow" if tool.key in allowed else "ask"
        stricter = stricter_than_review(server, tool.key.tool, answer)
        if stricter is not None:
            origin = stricter.rule.origin if stricter.rule else None
            place = str(origin or "the administrator's policy")
            state = "denied" if stricter.verdict == "deny" else "asked about"
            name = f"{server.server_id}/{printable(tool.key.shown_tool)}"
            warn(f"`{name}` is still {state}: {stricter.reason}", f"change that in {place}")


def without_globs(tools: Iterable[ReviewedTool], decision: ReviewDecision) -> ReviewDecision:
    """The same decision, with globs in the allow list replaced by the names of what was reviewed."""
    names = [tool.name for tool in tools if tool.allowed and tool.state == "reviewed"]
    return replace(decision, without_globs=[name for name in names if name not in decision.deny])


def decision_of(
    answers: Iterable[tuple[ReviewedTool, Answer]], *, instructions: bool = False
) -> ReviewDecision:
    """A decision from the answer to each tool."""
    given = [*answers]

    def answered(answer: Answer) -> list[ToolEntry]:
        return [tool.entry for tool, said in given if said == answer]

    return ReviewDecision(
        allow=answered("allow"),
        ask=answered("ask"),
        deny=[entry.key.tool for entry in answered("deny")],
        instructions=instructions,
    )


def named_tools(names: Sequence[str], tools: Sequence[ReviewedTool]) -> list[ReviewedTool]:
    """The tools that the command line names: `all`, exact names and globs, separated by commas.

    `all` leaves out those that are denied. A name that has a comma is taken as it is, if there is such a
    tool.

    Raises:
        UnknownTool: A name means none of the tools.
    """
    found: dict[str, ReviewedTool] = {}
    for word in names:
        for name in [word] if _exact(word, tools) else [part.strip() for part in word.split(",")]:
            for tool in _named(name, tools):
                found[tool.name] = tool
    return list(found.values())


def _named(name: str, tools: Sequence[ReviewedTool]) -> list[ReviewedTool]:
    exact = _exact(name, tools)
    if exact is not None:
        return [exact]
    if name in ("", "none"):
        return []
    if name == "all":
        return [tool for tool in tools if not tool.denied]
    by_glob = [tool for tool in tools if matches(tool.name, name)] if is_glob(name) else []
    if not by_glob:
        hint = suggestion(name, [tool.entry.key.shown_tool for tool in tools])
        raise UnknownTool(f"there is no tool `{name}`", hint=hint)
    return by_glob


def _exact(name: str, tools: Sequence[ReviewedTool]) -> ReviewedTool | None:
    entry = tool_called(name, [tool.entry for tool in tools])
    return next((tool for tool in tools if tool.entry is entry), None) if entry is not None else None
