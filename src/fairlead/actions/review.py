"""Review the tools of a server: what is open, which tools a name means, recording the decision."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fairlead.actions.config_edits import EditOutcome, approved_servers, precedence, settle
from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.saved_state import read_saved
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey, find_tool, unescape_name
from fairlead.config.edit_scope import EditTarget
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, FairleadError, ListFailed, UnknownTool
from fairlead.policy.decision import Decision, approval_mode_of, decide_by_lists, stricter_than_review
from fairlead.policy.pins import InstructionsState, Pins, UntrustedPins, instructions_state, is_guarded
from fairlead.policy.review import (
    ReviewAnswer,
    ReviewDecision,
    ReviewedTool,
    record_decision,
    tools_to_review,
)
from fairlead.policy.tool_names import (
    ALL,
    NONE,
    command_line_name,
    escape_name,
    is_glob,
    matches,
    owners_of,
    qualified_name,
    split_names,
)
from fairlead.policy.unreviewed import unread_offers

if TYPE_CHECKING:
    from fairlead.host.host import Host

_MOST_NAMED: Final = 12
_STRICTNESS: Final[dict[ReviewAnswer, int]] = {"allow": 0, "ask": 1, "deny": 2}


# What there is to review.


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerReview:
    """Review of a server: its tools with their changes, and its instructions."""

    server: LoadedServer
    listing: Listing
    pins: Pins | None
    tools: list[ReviewedTool]

    @property
    def open_tools(self) -> list[ReviewedTool]:
        """The tools that need a decision."""
        return [tool for tool in self.tools if tool.is_open]

    @property
    def withheld(self) -> InstructionsState | None:
        """Why models do not see the server's instructions; None where it has none, or they may be seen."""
        if not is_guarded(self.server):
            return None
        return instructions_state(self.listing.instructions, self.pins)

    @property
    def asks_about_instructions(self) -> bool:
        """Whether the server's instructions need a decision: no one accepted or refused them as they are."""
        return self.withheld in ("new", "changed")

    @property
    def unread(self) -> str:
        """What it offers besides tools that models may not read before a review; empty for nothing."""
        return unread_offers(self.server, self.listing)

    @property
    def is_open(self) -> bool:
        """Whether there is anything to decide: about its tools, its instructions, or what else it offers."""
        return bool(self.open_tools or self.unread or self.asks_about_instructions)

    def leaves_instructions(self, decision: ReviewDecision) -> bool:
        """Whether a decision says nothing about instructions that need one, so that they stay withheld."""
        return self.asks_about_instructions and decision.instructions is None


def load_reviews(
    loaded: LoadedConfig, servers: Iterable[LoadedServer]
) -> tuple[list[ServerReview], dict[str, FairleadError]]:
    """Reviews of servers that were just listed; and the errors of those that cannot be reviewed."""
    saved = read_saved(loaded)
    reviews: list[ServerReview] = []
    failures: dict[str, FairleadError] = {}
    for server in servers:
        of_server = saved[server.server_id]
        if of_server.snapshot is None:
            failures[server.server_id] = _no_listing_error(server.server_id)
            continue
        listing = of_server.snapshot.listing
        tools = tools_to_review(server, listing, of_server.pins, before_defaults=of_server.before_defaults)
        reviews.append(ServerReview(server=server, listing=listing, pins=of_server.pins, tools=tools))
    return reviews, failures


async def live_review(host: "Host", server: LoadedServer) -> ServerReview:
    """Review of a server of a running host, as it last listed its tools.

    Raises:
        ListFailed: It has not been listed.
    """
    from anyio import to_thread

    from fairlead.host.snapshots import load_pins

    managed = next((each for each in host.servers if each.server.server_id == server.server_id), None)
    if managed is None or managed.snapshot is None:
        raise _no_listing_error(server.server_id)
    # Another process may have pinned something since this one read the pins.
    pins = (await load_pins(host.store, server) if host.store is not None else None) or managed.pins
    known = None if isinstance(pins, UntrustedPins) else pins
    listing = managed.snapshot.listing  # as it came
    find = partial(tools_to_review, server, listing, known, before_defaults=managed.before_defaults)
    return ServerReview(server=server, listing=listing, pins=known, tools=await to_thread.run_sync(find))


def _no_listing_error(server_id: str) -> ListFailed:
    return ListFailed(
        server_id,
        "what it offers could not be kept, and so nothing can be pinned",
        hint="see that the state folder can be written to",
    )


def by_risk(reviews: Sequence[ServerReview]) -> list[ServerReview]:
    """Servers sorted by risk: by their riskiest tool, then by the number of such tools."""

    def risk(review: ServerReview) -> tuple[int, int]:
        risks = [tool.risk for tool in review.open_tools]
        return -max(risks, default=0), -sum(map(bool, risks))

    return sorted(reviews, key=risk)


# Deciding.


def without_globs(tools: Iterable[ReviewedTool], decision: ReviewDecision) -> ReviewDecision:
    """The same decision, with globs in the allow list replaced by the names of what was reviewed."""
    names = [tool.name for tool in tools if tool.allowed and tool.state == "reviewed"]
    return replace(decision, without_globs=[name for name in names if name not in decision.deny])


def decision_of(
    answers: Iterable[tuple[ReviewedTool, ReviewAnswer]],
    *,
    instructions: bool | None = None,
    reading: bool = False,
) -> ReviewDecision:
    """A decision from the answer to each tool."""
    given = [*answers]

    def tools_with(answer: ReviewAnswer) -> list[ToolEntry]:
        return [tool.entry for tool, given_answer in given if given_answer == answer]

    return ReviewDecision(
        allow=tools_with("allow"),
        ask=tools_with("ask"),
        deny=[entry.key.tool for entry in tools_with("deny")],
        instructions=instructions,
        reading=reading,
    )


def preselect_decision(review: ServerReview, every: ReviewAnswer | None = None) -> ReviewDecision:
    """The preselected answers to the open tools, or one answer for all but those preselected `deny`.

    It says nothing about instructions, which have an answer of their own.
    """

    def answer(tool: ReviewedTool) -> ReviewAnswer:
        return tool.suggested if every is None or tool.suggested == "deny" else every

    answered: list[tuple[ReviewedTool, ReviewAnswer]] = [(tool, answer(tool)) for tool in review.open_tools]
    return decision_of(answered, reading=every == "allow" and bool(review.unread))


def decide_by_names(
    named: Iterable[tuple[ReviewAnswer, str]],
    review: ServerReview,
    *,
    servers: Collection[str],
    preselected: bool = False,
    instructions: bool | None = None,
    strict: bool = True,
) -> ReviewDecision:
    """The decision that typed names mean: the strictest answer that names a tool counts.

    Args:
        named: Answers, each with names as `resolve_tool_names` reads them. Single names count more than
            `all`, so that `--deny all --allow x` allows x.
        review: What is reviewed.
        servers: The ids of all servers.
        preselected: Are the preselected answers taken for the rest?
        instructions: Were the server's instructions accepted, or refused? No answer about tools says that: a
            model would take what no user looked at. Where all tools are allowed, models may read what a
            server without tools offers.
        strict: Is a name that means no tool an error?
    """
    given: list[tuple[ReviewAnswer, str]] = [
        (answer, part) for answer, word in named for part in _parts_with_all(word)
    ]
    answered: dict[str, tuple[ReviewedTool, ReviewAnswer]] = {}
    if preselected:
        answered = {tool.name: (tool, tool.suggested) for tool in review.open_tools}
    for answer, word in sorted(given, key=lambda one: (one[1] != ALL, _STRICTNESS[one[0]])):
        for tool in resolve_tool_names([word], review.tools, answer=answer, servers=servers, strict=strict):
            answered[tool.name] = (tool, answer)
    is_all_allowed = ("allow", ALL) in given
    return decision_of(
        answered.values(),
        instructions=_answer_about_instructions(review, accepted=instructions),
        reading=is_all_allowed and bool(review.unread),
    )


def _answer_about_instructions(review: ServerReview, *, accepted: bool | None) -> bool | None:
    """What an answer about instructions changes; None for nothing. Accepted ones can be refused again."""
    is_there = is_guarded(review.server) and review.listing.instructions is not None
    would_change = review.withheld is not None if accepted else review.withheld != "refused"
    return accepted if is_there and would_change else None


def _parts_with_all(word: str) -> list[str]:
    """A word as it is; one with `all` among its names in two parts, as the single names count more."""
    names = split_names(word)
    others = [name for name in names if name != ALL]
    return [ALL, ",".join(others)] if others and len(others) < len(names) else [word]


def resolve_tool_names(
    words: Sequence[str],
    tools: Sequence[ReviewedTool],
    *,
    answer: ReviewAnswer = "allow",
    servers: Collection[str] = (),
    strict: bool = True,
) -> list[ReviewedTool]:
    """Parse the tools named on the command line: `all`, exact names and globs, separated by commas.

    `all` leaves out those that are denied. A server may call a tool `del_*` or `a,b`, so that a word has
    several readings. A denial applies to every tool it may mean; `allow` and `ask` then apply to none.

    Args:
        words: What was typed.
        tools: The tools of one server.
        answer: What is to be said about them.
        servers: The ids of all servers: `ID.TOOL` allows a tool of that server, and of no other.
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
    word: str, tools: Sequence[ReviewedTool], servers: Collection[str], answer: ReviewAnswer, *, strict: bool
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

    `all` and `none` mean no tool of that name, unless that is to be denied. Tools of built-in servers are
    called `repo.readFile` themselves: `readFile` and `repo/readFile` mean them where nothing else is meant.
    """
    exact = _exact(name, tools)
    if name in (ALL, NONE):
        meant = [tool for tool in tools if not tool.denied] if name == ALL else []
        return [meant, [exact]] if narrows and exact is not None else [meant]
    own = {tool.entry.key.server_id for tool in tools}
    owners = owners_of(name, {*servers, *own})
    ours = [(owner, rest) for owner, rest in owners if owner in own]
    if owners and not ours:
        return []
    found = [[exact]] if exact is not None else []
    if escape_name(name) != name:
        patterns = {name, unescape_name(name)}
        found.append([tool for tool in tools if any(matches(tool.name, pattern) for pattern in patterns)])
    for _, rest in ours:
        found += _readings_of_rest(rest, tools, narrows=narrows)
    if narrows or not found:
        prefixed = [f"{owner}.{rest}" for owner, rest in ours] or [f"{owner}.{name}" for owner in own]
        found += [[whole] for each in prefixed if (whole := _exact(each, tools)) is not None]
    different = {tuple(tool.name for tool in reading): reading for reading in found if reading}
    return list(different.values())


def _readings_of_rest(rest: str, tools: Sequence[ReviewedTool], *, narrows: bool) -> list[list[ReviewedTool]]:
    """The readings of what follows a server's id: no further server is in it, but a glob or `all` may be."""
    if rest in (ALL, NONE) or escape_name(rest) != rest:
        return _readings(rest, tools, (), narrows=narrows)
    exact = _exact(rest, tools)
    return [[exact]] if exact is not None else []


def _hint_for(name: str, tools: Sequence[ReviewedTool]) -> str | None:
    """Hint for a name that no tool has: the tool that may be meant."""
    if (exact := _exact(name, tools)) is not None:
        return f"the tool of that name is {shlex.quote(command_line_name(exact.entry.key))}"
    near = suggestion(name, [tool.entry.key.typed_tool for tool in tools])
    if near or not tools:
        return near
    names = ", ".join(shlex.quote(command_line_name(tool.entry.key)) for tool in tools[:_MOST_NAMED])
    return f"its tools are {names}{', …' if len(tools) > _MOST_NAMED else ''}"


def _exact(name: str, tools: Sequence[ReviewedTool]) -> ReviewedTool | None:
    entry = find_tool(name, [tool.entry for tool in tools])
    return next((tool for tool in tools if tool.entry is entry), None) if entry is not None else None


def _ambiguous(word: str, readings: Sequence[Sequence[ReviewedTool]]) -> ConfigError:
    """A server has a tool whose name looks like more than one: nothing is allowed by a guess."""
    joined = [
        ",".join(command_line_name(tool.entry.key, long=True) for tool in reading) for reading in readings
    ]
    # With a comma at its end it is a list, and no longer the name of a tool.
    choices = [shlex.quote(f"{choice}," if choice == word else choice) for choice in joined]
    return ConfigError(
        f"`{word}` may mean {' or '.join(f'`{choice}`' for choice in choices)}:"
        " a tool has a name that looks like several",
        hint="type one of these; nothing was changed",
    )


def require_one_server(name: str, keys: Collection[ToolKey]) -> None:
    """Refuse a name that several servers' tools have: servers choose their names, and a glob says so.

    Raises:
        ConfigError: It may mean the tool of any of them.
    """
    if is_glob(name) or len({key.server_id for key in keys}) <= 1:
        return
    choices = [shlex.quote(qualified_name(key)) for key in sorted(keys)[:_MOST_NAMED]]
    raise ConfigError(
        f"`{name}` may mean {' or '.join(f'`{choice}`' for choice in choices)}:"
        " several servers have a tool of that name",
        hint="type one of these; nothing was changed",
    )


# Recording.


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedReview:
    """Outcome of a review."""

    server: LoadedServer
    decision: ReviewDecision
    target: EditTarget | None
    """The file that has the answers; None where none had to be, or could be, written."""
    edit: EditOutcome | None = None
    """What became of the edit of that file."""
    overridden: str | None = None
    """Which other setting takes precedence, so that answers have no effect."""
    stricter: list[tuple[ToolEntry, Decision]] = field(default_factory=list[tuple[ToolEntry, Decision]])
    """Tools whose answer has no effect, since a rule or the administrator's policy is stricter."""
    notices: list[Notice] = field(default_factory=list[Notice])

    @property
    def failure(self) -> str | None:
        """The reason why answers have no effect."""
        return f"the review is recorded, but {self.overridden}" if self.overridden is not None else None

    def require_effect(self) -> None:
        """Raise where answers have no effect."""
        if self.failure is not None:
            raise ConfigError(self.failure)


def record_review(
    context: ActionContext,
    server: LoadedServer,
    listing: Listing,
    decision: ReviewDecision,
    *,
    scope: str | None = None,
) -> RecordedReview:
    """Pin what was reviewed, write the answers into the server's entry, and apply them.

    Args:
        context: Who reviewed.
        server: The server.
        listing: What was looked at.
        decision: The answers.
        scope: Whose file to write them into; by default the one whose entry decides about its tools.

    Raises:
        ConfigError: A tool to be allowed is denied by a pattern that a review cannot take out, or there is no
            such scope.
        ConfigUnwritable: The entry is not in a file that Fairlead edits.
        UnknownServer: The scope is below the file that defines the server.
    """
    server_id = server.server_id
    target = context.chosen_target(scope)
    approved = approved_servers(context, [server_id])
    layers = context.loaded.layers
    is_new = target is not None and not target.path.exists()
    entry = record_decision(context.store, server, listing, decision, target=target, layers=layers)
    edit = settle(context, entry.target, [server_id], approved=approved, is_new=is_new) if entry else None
    notices = context.record(
        "review",
        server_id,
        allowed=[tool.key.tool for tool in decision.allow],
        asked=[tool.key.tool for tool in decision.ask],
        denied=[*decision.deny],
        **({"reading": True} if decision.reading else {}),
        **({} if decision.instructions is None else {"instructions": decision.instructions}),
    )
    return RecordedReview(
        server=server,
        decision=decision,
        target=entry.target if entry else None,
        edit=edit,
        overridden=_overridden(edit, server_id, decision) if edit else None,
        stricter=[*_stricter(server, decision)],
        notices=notices,
    )


def _overridden(edit: EditOutcome, server_id: str, decision: ReviewDecision) -> str | None:
    """Say which setting of another file keeps an answer from having an effect."""
    server = edit.loaded.servers.get(server_id) if edit.loaded else None
    if server is None or server.config is None:
        return None
    allowed = {tool.key for tool in decision.allow}
    for tool in decision.usable:
        name, definition = tool.key.tool, server.definition
        by_list = decide_by_lists(server.config, name, server_id=server_id)
        if by_list.verdict == "deny":
            return precedence(definition.origin((by_list.field or "allow_tools",)))
        mode = approval_mode_of(server.config, name, server_id)
        if mode is not None and mode[0] != ("allow" if tool.key in allowed else "ask"):
            return precedence(definition.origin(("approval", "tools", mode[1]) if mode[1] else ("approval",)))
    return None


def _stricter(server: LoadedServer, decision: ReviewDecision) -> Iterable[tuple[ToolEntry, Decision]]:
    allowed = {tool.key for tool in decision.allow}
    for tool in decision.usable:
        answer: ReviewAnswer = "allow" if tool.key in allowed else "ask"
        stricter = stricter_than_review(server, tool.key.tool, answer)
        if stricter is not None:
            yield tool, stricter
