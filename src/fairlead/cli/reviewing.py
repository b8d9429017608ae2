"""A review at the terminal: what there is to look at, the questions, and one screen for several servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from fairlead.catalog.entries import Listing
from fairlead.catalog.sanitise import made_visible, suspicious
from fairlead.cli.allowing import decision_of
from fairlead.cli.known import ask_now
from fairlead.cli.offered import on_one_line
from fairlead.cli.output import confirm, is_interactive, print_data, print_table, printable, say
from fairlead.cli.saved import read_saved
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.errors import FairleadError, ListFailed
from fairlead.policy.allowing import Answer, ReviewDecision
from fairlead.policy.claims import claims_of
from fairlead.policy.findings import findings_of
from fairlead.policy.pins import Pins, is_guarded
from fairlead.policy.reviewing import (
    ReviewedTool,
    diff,
    instructions_changed,
    instructions_diff,
    tools_to_review,
    whole,
    words_of,
)


def show_tool(tool: ReviewedTool) -> None:
    """Show a tool whole, or what changed in it; all that is hidden spelled out, and its words as its own."""
    print_data(f"{printable(made_visible(tool.name))}: {tool.state}, {tool.standing}")
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
    say(f"{printable(made_visible(tool.name))}: {shown}")


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
    return [(review, _preselected(review, allow_all=typed == "all")) for review in reviews]


def _preselected(review: ServerReview, *, allow_all: bool) -> ReviewDecision:
    def answer(tool: ReviewedTool) -> Answer:
        return "allow" if allow_all and tool.suggested == "ask" else tool.suggested

    first = review.pins is None  # the first review of a server covers what it says of itself
    answered: list[tuple[ReviewedTool, Answer]] = [(tool, answer(tool)) for tool in review.open_tools]
    return decision_of(answered, instructions=first and review.instructions_changed)
