"""A review at the terminal: what there is to look at, the questions, and one screen for several servers.

Record what a review decided, and say what became of it.

After a server was added: it is connected and shown, and one question settles what its tools may do.
"""

import os
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click

from fairlead.catalog.sanitize.text import reveal_hidden, suspicious
from fairlead.catalog.tools import Listing, ToolEntry, tool_called, unescape_name
from fairlead.cli.catalogs import ask_now, on_one_line, read_saved
from fairlead.cli.config_edits import approved_servers, settle
from fairlead.cli.output import (
    confirm,
    counted,
    display_path,
    is_interactive,
    print_data,
    print_table,
    printable,
    say,
    warn,
)
from fairlead.config.command_lines import command_line
from fairlead.config.edit_scope import EditTarget
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, FairleadError, ListFailed, UnknownTool
from fairlead.policy.decision import claims_of, stricter_than_review
from fairlead.policy.pins import Pins, is_guarded
from fairlead.policy.review import (
    Answer,
    ReviewDecision,
    ReviewedTool,
    diff,
    findings_of,
    instructions_changed,
    instructions_diff,
    record_decision,
    tools_to_review,
    whole,
    words_of,
)
from fairlead.policy.tool_names import (
    ALL,
    NONE,
    command_line_name,
    escape_name,
    matches,
    owner_of,
    split_names,
)

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
    where = f" in {display_path(entry.target.path)}" if entry else ""
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


def resolve_tool_names(
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
        for tool in _match_tools(word, tools, () if answer == "deny" else servers, answer, strict=strict):
            found[tool.name] = tool
    return list(found.values())


def _match_tools(
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
        return f"the tool of that name is {shlex.quote(command_line_name(exact.entry.key))}"
    near = suggestion(name, [tool.entry.key.typed_tool for tool in tools])
    if near or not tools:
        return near
    names = ", ".join(shlex.quote(command_line_name(tool.entry.key)) for tool in tools[:_MOST_NAMED])
    return f"its tools are {names}{', …' if len(tools) > _MOST_NAMED else ''}"


def _exact(name: str, tools: Sequence[ReviewedTool]) -> ReviewedTool | None:
    entry = tool_called(name, [tool.entry for tool in tools])
    return next((tool for tool in tools if tool.entry is entry), None) if entry is not None else None


def _ambiguous(word: str, readings: Sequence[Sequence[ReviewedTool]]) -> ConfigError:
    """A server has a tool whose name looks like more than one: nothing is allowed by a guess."""
    joined = [",".join(command_line_name(tool.entry.key) for tool in reading) for reading in readings]
    # With a comma at its end it is a list, and no longer the name of a tool.
    choices = [shlex.quote(f"{choice}," if choice == word else choice) for choice in joined]
    return ConfigError(
        f"`{printable(word)}` may mean {' or '.join(f'`{printable(choice)}`' for choice in choices)}:"
        " a tool has a name that looks like several",
        hint="type one of these; nothing was changed",
    )


def show_tool(tool: ReviewedTool) -> None:
    """Show a tool whole, or what changed in it; all that is hidden spelled out, and its words as its own."""
    print_data(f"{printable(reveal_hidden(tool.name))}: {tool.state}, {tool.standing}")
    before = tool.before()
    for line in whole(tool.definition()) if before is None else diff(before, tool.definition()):
        print_data(f"  {printable(line)}")
    claims = claims_of(tool.entry.definition)
    if claims:
        print_data(f"  it claims, and nobody has checked: {'; '.join(claims)}")
    for finding in findings_of(tool.entry):
        print_data(f"  warning: {printable(words_of(finding))}")
    print_data(f"  preselected answer: {tool.suggested}")
    print_data("")


def show_instructions(listing: Listing, pins: Pins | None) -> None:
    """Show what a server tells models about itself, and what of it is new."""
    print_data("instructions for models:")
    for line in instructions_diff(listing, pins):
        print_data(f"  {printable(line)}")
    for look in suspicious(listing.instructions or ""):
        print_data(f"  warning: it {look}")
    print_data("")


def show_in_one_line(tool: ReviewedTool) -> None:
    """Name a tool about which there is nothing to decide."""
    shown = "denied" if tool.denied else f"reviewed, and as it was; {tool.standing}"
    say(f"{printable(reveal_hidden(tool.name))}: {shown}")


# Reading what there is to review.


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerReview:
    """What there is to review of a server."""

    server: LoadedServer
    listing: Listing
    pins: Pins | None
    tools: list[ReviewedTool]

    @property
    def open_tools(self) -> list[ReviewedTool]:
        """The tools about which there is something to decide."""
        return [tool for tool in self.tools if tool.is_open]

    @property
    def instructions_changed(self) -> bool:
        """Does the server say something of itself that was not reviewed?"""
        return is_guarded(self.server) and instructions_changed(self.listing, self.pins)


def read_review(loaded: LoadedConfig, server: LoadedServer) -> ServerReview:
    """Ask a server what it offers at this moment, and read what is pinned of it."""
    reviews, failures = read_reviews(loaded, [server])
    for failure in failures.values():
        raise failure
    return reviews[0]


def read_reviews(
    loaded: LoadedConfig, servers: Sequence[LoadedServer]
) -> tuple[list[ServerReview], dict[str, FairleadError]]:
    """The same for several servers, all at once; and why some could not be asked."""
    failures = ask_now(loaded, [server.server_id for server in servers])
    saved = read_saved(loaded)
    reviews: list[ServerReview] = []
    for server in servers:
        name = server.server_id
        if name in failures:
            continue
        snapshot = saved[name].snapshot
        if snapshot is None:
            failures[name] = ListFailed(
                name,
                "what it offers could not be kept, and so nothing can be pinned",
                hint="see that the state folder can be written to",
            )
            continue
        tools = tools_to_review(
            server, snapshot.listing, saved[name].pins, before_defaults=saved[name].before_defaults
        )
        reviews.append(
            ServerReview(server=server, listing=snapshot.listing, pins=saved[name].pins, tools=tools)
        )
    return reviews, failures


# Asking.

_ANSWERS: Final = {
    "y": "allow",
    "k": "ask",
    "d": "deny",
    "s": "skip",
    "a": "all",
    "q": "quit",
}
_CHOICES: Final = "allow (y), ask each time (k), deny (d), skip (s), allow all the rest (a), quit (q)"


def ask_about_each(review: ServerReview) -> ReviewDecision:
    """Show everything of a server, and ask about each tool."""
    accepted = False
    if review.instructions_changed:
        show_instructions(review.listing, review.pins)
        accepted = review.pins is not None and confirm("May models see these instructions?")
    answered: list[tuple[ReviewedTool, Answer]] = []
    answer = "skip"
    for tool in review.tools:
        if not tool.is_open:
            show_in_one_line(tool)
            continue
        show_tool(tool)
        if answer != "all":
            answer = _ask(tool)
        if answer == "quit":
            break
        if answer == "all":
            answered.append((tool, "allow"))
        elif answer in ("allow", "ask", "deny"):
            answered.append((tool, answer))
    return decision_of(answered, instructions=accepted)


def _ask(tool: ReviewedTool) -> str:
    while True:
        question = f"`{tool.entry.key.shown_tool}`: {_CHOICES}"
        preselected = next(letter for letter, word in _ANSWERS.items() if word == tool.suggested)
        typed: str = click.prompt(question, default=preselected, err=True)
        answer = _ANSWERS.get(typed, typed)
        if answer in _ANSWERS.values():
            return answer
        say(f"  please type one of {', '.join(_ANSWERS)}")


# One screen for several servers.


def show_screen(reviews: Sequence[ServerReview]) -> None:
    """Show the open tools of several servers, grouped, the risky servers and tools first."""
    rows = [
        (review.server.server_id, tool.entry.key.shown_tool, tool.suggested, _remark(tool))
        for review in by_risk(reviews)
        for tool in sorted(review.open_tools, key=lambda tool: -tool.risk)
    ]
    print_table(("server", "tool", "answer", "remark"), rows)


def by_risk(reviews: Sequence[ServerReview]) -> list[ServerReview]:
    """The servers first that need the closest look: by their riskiest tool, then by how many there are."""

    def risk(review: ServerReview) -> tuple[int, int]:
        risks = [tool.risk for tool in review.open_tools]
        return -max(risks, default=0), -sum(map(bool, risks))

    return sorted(reviews, key=risk)


def _remark(tool: ReviewedTool) -> str:
    found = [words_of(finding) for finding in findings_of(tool.entry)]
    claims = [f"claims: {claim}" for claim in claims_of(tool.entry.definition)]
    state = [tool.state] if tool.state in ("changed", "same but for defaults") else []
    return "; ".join([*state, *found, *claims]) or on_one_line(tool.entry.description or tool.entry.title)


def confirm_screen(
    reviews: Sequence[ServerReview],
) -> list[tuple[ServerReview, ReviewDecision]] | None:
    """Ask the one question about what the screen shows; None where it cannot be asked or is for later."""
    hint = (
        "hint: `fairlead review --all --yes` records these answers; `fairlead review ID` asks about each tool"
    )
    if not is_interactive():
        say(hint)
        return None
    choices = ["yes", "all", "each", "later"]
    question = "Record these answers? yes; all: allow all but the denied; each: ask about each tool; later"
    typed = click.prompt(question, type=click.Choice(choices), default="yes", show_choices=False, err=True)
    if typed == "later":
        say(hint)
        return None
    if typed == "each":
        return [(review, ask_about_each(review)) for review in by_risk(reviews)]
    return [(review, _preselect_answers(review, allow_all=typed == "all")) for review in reviews]


def _preselect_answers(review: ServerReview, *, allow_all: bool) -> ReviewDecision:
    def answer(tool: ReviewedTool) -> Answer:
        return "allow" if allow_all and tool.suggested == "ask" else tool.suggested

    first = review.pins is None  # the first review of a server covers what it says of itself
    answered: list[tuple[ReviewedTool, Answer]] = [(tool, answer(tool)) for tool in review.open_tools]
    return decision_of(answered, instructions=first and review.instructions_changed)


ANSWERS: Final = ("preselected", "allow", "ask", "deny", "some", "later")


def take_first_look(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer) -> None:
    """Connect a server, show its tools, and ask once what they may do."""
    server_id = server.server_id
    try:
        review = read_review(loaded, server)
    except FairleadError as failure:
        warn(f"it was added, but cannot be used yet: {failure}", failure.hint)
        return
    tools = review.open_tools
    if not review.tools:
        say(f"`{server_id}` is ready; it has no tools")
        return
    print_table(("tool", "preselected", "what it is for"), [_row(tool) for tool in review.tools])
    if not tools:
        say(f"`{server_id}` is ready, and nothing is left to decide about its tools")
        return
    _warn_of_findings(tools)
    match _ask_after_adding(len(tools)):
        case "preselected":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, t.suggested) for t in tools))
        case "allow":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "allow") for t in tools))
        case "ask":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "ask") for t in tools))
        case "deny":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "deny") for t in tools))
        case "some":
            decision = ask_about_each(review)
            if not decision.is_empty:
                carry_out(ctx, loaded, server, review.listing, decision)
        case _:
            say(f"`{command_line('review', server_id)}` asks again; {_until_then(server)}")
    say(f"hint: `{command_line('call', server_id, tools[0].entry.key.typed_tool)}` calls one")


def allow_named(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, names: str) -> None:
    """Connect a server and allow what the command line names: `all`, or names and globs with commas."""
    review = read_review(loaded, server)
    decision = decision_of(
        (tool, "allow") for tool in resolve_tool_names([names], review.tools, servers=loaded.servers.keys())
    )
    if not decision.is_empty:
        carry_out(ctx, loaded, server, review.listing, decision)
    else:
        say(f"nothing was allowed: that names no tool of `{server.server_id}`")
    _name_left_out(review, {tool.key.tool for tool in decision.allow})


def _name_left_out(review: ServerReview, allowed: set[str]) -> None:
    left = sum(tool.name not in allowed and not tool.denied for tool in review.tools)
    if left:
        server_id = review.server.server_id
        command = command_line("review", server_id)
        say(f"{left} more of its tools: `{command}`; {_until_then(review.server)}")


def _until_then(server: LoadedServer) -> str:
    if server.config is not None and server.config.trust == "trusted":
        return "until then they go by their annotations: read-only ones are called, others asked about"
    return "until then agents get none of them"


def _row(tool: ReviewedTool) -> tuple[str, str, str]:
    entry = tool.entry
    return entry.key.shown_tool, tool.suggested, on_one_line(entry.description or entry.title)


def _warn_of_findings(tools: list[ReviewedTool]) -> None:
    found = [tool.entry.key.shown_tool for tool in tools if findings_of(tool.entry)]
    if found:
        warn(f"look closer at {', '.join(found)}: what they say of themselves is odd", "answer `some`")


def _ask_after_adding(count: int) -> str:
    what = "this tool" if count == 1 else f"these {count} tools"
    while True:
        typed: str = click.prompt(
            f"What may {what} do? allow, ask (each time), deny, preselected, some, later",
            default="later",
            err=True,
        )
        meant = [answer for answer in ANSWERS if typed and answer.startswith(typed.strip().lower())]
        if typed.strip().lower() == "all":
            return "allow"
        if len(meant) == 1:
            return meant[0]
        say(f"  please type one of {', '.join(ANSWERS)}")
