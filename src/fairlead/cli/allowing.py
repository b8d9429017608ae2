"""Record what a review decided, and say what became of it."""

import os
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

import click

from fairlead.catalog.entries import Listing, ToolEntry, tool_called, unescape_name
from fairlead.cli.changes import approved_servers, settle
from fairlead.cli.output import counted, printable, say, shown_path, warn
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.scopes import EditTarget
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, UnknownTool
from fairlead.policy.allowing import Answer, ReviewDecision, record_decision
from fairlead.policy.decision import stricter_than_review
from fairlead.policy.findings import findings_of
from fairlead.policy.reviewing import ReviewedTool
from fairlead.policy.tool_patterns import escape_name, matches
from fairlead.policy.typed_names import ALL, NONE, owner_of, split_names, typed_name

_MOST_NAMED: Final = 12


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
    if decision.instructions:
        say(f"models may see what `{server.server_id}` says of itself as it is now")
    if odd := [tool.key for tool in decision.allow if findings_of(tool)]:
        names = ", ".join(f"`{printable(key.shown_tool)}`" for key in odd)
        command = command_line("review", server.server_id)
        warn(f"look closer at {names}: what they say of themselves is odd", f"`{command}` shows it")
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


def named_tools(
    words: Sequence[str],
    tools: Sequence[ReviewedTool],
    *,
    answer: Answer = "allow",
    servers: Collection[str] = (),
    strict: bool = True,
) -> list[ReviewedTool]:
    """The tools that the command line names: `all`, exact names and globs, separated by commas.

    `all` leaves out those that are denied. A server may call a tool `del_*` or `a,b`, so that a word has
    several readings. Denied is what it means in any of them; allowed or asked about is nothing then.

    Args:
        words: What was typed.
        tools: The tools of one server.
        answer: What is to be said about them.
        servers: The ids of all servers: `ID/TOOL` allows a tool of that server, and of no other.
        strict: Is a name that means no tool an error? Not where it may mean another server's.

    Raises:
        UnknownTool: A name means none of the tools.
        ConfigError: A word to allow or to ask about has several readings.
    """
    found: dict[str, ReviewedTool] = {}
    for word in words:
        for tool in _meant(word, tools, () if answer == "deny" else servers, answer, strict=strict):
            found[tool.name] = tool
    return list(found.values())


def _meant(
    word: str, tools: Sequence[ReviewedTool], servers: Collection[str], answer: Answer, *, strict: bool
) -> list[ReviewedTool]:
    narrows = answer == "deny"
    names = [name for name in split_names(word) if name]
    readings = [_readings(name, tools, servers, narrows=narrows) for name in names]
    whole = _exact(word, tools) if len(names) > 1 else None
    if whole is not None:
        if not any(readings):
            return [whole]
        if not narrows:
            parts = [tool for each in readings for reading in each for tool in reading]
            raise _ambiguous(word, [[whole], parts])
        readings.append([[whole]])
    for name, each in zip(names, readings, strict=False):
        if not each and whole is None and strict:
            raise UnknownTool(f"there is no tool `{name}`", hint=_hint_for(name, tools))
        if len(each) > 1 and not narrows:
            raise _ambiguous(name, each)
    return [tool for each in readings for reading in each for tool in reading]


def _readings(
    name: str, tools: Sequence[ReviewedTool], servers: Collection[str], *, narrows: bool
) -> list[list[ReviewedTool]]:
    """The different choices of tools that a name may mean; none where it means no tool.

    `all` and `none` mean no tool of that name, unless that is to be denied.
    """
    exact = _exact(name, tools)
    if name in (ALL, NONE):
        meant = [tool for tool in tools if not tool.denied] if name == ALL else []
        return [meant, [exact]] if narrows and exact is not None else [meant]
    own = {tool.entry.key.server_id for tool in tools}
    owner = owner_of(name, {*servers, *own})
    if owner is not None and owner not in own:
        return []
    found = [[exact]] if exact is not None else []
    if escape_name(name) != name:
        patterns = {name, unescape_name(name)}
        found.append([tool for tool in tools if any(matches(tool.name, pattern) for pattern in patterns)])
    if owner is not None:
        found += _readings(name.removeprefix(f"{owner}/"), tools, (), narrows=narrows)
    different = {tuple(tool.name for tool in reading): reading for reading in found if reading}
    return list(different.values())


def _hint_for(name: str, tools: Sequence[ReviewedTool]) -> str | None:
    """What may be meant by a name that means no tool."""
    if (exact := _exact(name, tools)) is not None:
        return f"the tool of that name is {shlex.quote(typed_name(exact.entry.key))}"
    near = suggestion(name, [tool.entry.key.typed_tool for tool in tools])
    if near or not tools:
        return near
    names = ", ".join(shlex.quote(typed_name(tool.entry.key)) for tool in tools[:_MOST_NAMED])
    return f"its tools are {names}{', …' if len(tools) > _MOST_NAMED else ''}"


def _exact(name: str, tools: Sequence[ReviewedTool]) -> ReviewedTool | None:
    entry = tool_called(name, [tool.entry for tool in tools])
    return next((tool for tool in tools if tool.entry is entry), None) if entry is not None else None


def _ambiguous(word: str, readings: Sequence[Sequence[ReviewedTool]]) -> ConfigError:
    """A server has a tool whose name looks like more than one: nothing is allowed by a guess."""
    joined = [",".join(typed_name(tool.entry.key) for tool in reading) for reading in readings]
    # With a comma at its end it is a list, and no longer the name of a tool.
    choices = [shlex.quote(f"{choice}," if choice == word else choice) for choice in joined]
    return ConfigError(
        f"`{printable(word)}` may mean {' or '.join(f'`{printable(choice)}`' for choice in choices)}:"
        " a tool has a name that looks like several",
        hint="type one of these; nothing was changed",
    )
