"""A review at the terminal: the questions, one screen for several servers, the first after `add`."""

from collections.abc import Sequence
from typing import Final

import click

from fairlead.actions.review import (
    ServerReview,
    by_risk,
    decision_of,
    load_reviews,
    preselect_decision,
    record_review,
    resolve_tool_names,
)
from fairlead.cli.catalogs import ask_now
from fairlead.cli.config_edits import action_context, show_edit
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.errors import FairleadError
from fairlead.policy.decision import claims_of
from fairlead.policy.findings import findings_of, has_findings, words_of
from fairlead.policy.review import ReviewAnswer, ReviewDecision, ReviewedTool
from fairlead.policy.tool_names import ALL, split_names
from fairlead.terminal.decisions import show_in_one_line, show_instructions, show_recorded, show_tool
from fairlead.terminal.output import (
    confirm,
    is_interactive,
    on_one_line,
    print_data,
    print_table,
    say,
    warn,
)


def carry_out(
    ctx: click.Context,
    loaded: LoadedConfig,
    review: ServerReview,
    decision: ReviewDecision,
    scope: str | None = None,
) -> None:
    """Record a decision, and print the outcome."""
    context = action_context(ctx, loaded)
    recorded = record_review(context, review.server, review.listing, decision, scope=scope)
    show_recorded(recorded)
    if recorded.edit is not None:
        show_edit(recorded.edit)


def read_review(loaded: LoadedConfig, server: LoadedServer) -> ServerReview:
    """List a server now, and prepare its review."""
    reviews, failures = read_reviews(loaded, [server])
    for failure in failures.values():
        raise failure
    return reviews[0]


def read_reviews(
    loaded: LoadedConfig, servers: Sequence[LoadedServer]
) -> tuple[list[ServerReview], dict[str, FairleadError]]:
    """Like `read_review` for several servers at once; with the errors of those that failed."""
    failures = ask_now(loaded, [server.server_id for server in servers])
    listed = [server for server in servers if server.server_id not in failures]
    reviews, not_kept = load_reviews(loaded, listed)
    return reviews, {**failures, **not_kept}


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
    """Show every tool of a server whole, and ask about each."""
    accepted = False
    if review.instructions_changed:
        show_instructions(review.listing, review.pins)
        accepted = review.pins is not None and confirm("May models see these instructions?")
    answered: list[tuple[ReviewedTool, ReviewAnswer]] = []
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
    reading = bool(review.unread) and confirm(reading_question(review))
    return decision_of(answered, instructions=accepted, reading=reading)


def reading_question(review: ServerReview) -> str:
    """The question about a server that has no tools to decide about."""
    return f"`{review.server.server_id}` offers {review.unread}: may models read them?"


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
    rows += [
        (review.server.server_id, "(no tools)", "later", f"`all`: models may read {review.unread}")
        for review in reviews
        if review.unread
    ]
    rows += [_instructions_row(review) for review in reviews if review.instructions_changed]
    print_table(("server", "tool", "answer", "remark"), rows)
    for review in reviews:
        if review.instructions_changed and not review.is_first:
            print_data(f"\n{review.server.server_id}")
            show_instructions(review.listing, review.pins)


def _instructions_row(review: ServerReview) -> tuple[str, str, str, str]:
    server_id = review.server.server_id
    if review.is_first:
        return server_id, "(instructions)", "allow", on_one_line(review.listing.instructions)
    command = command_line("review", server_id, options=("--instructions",))
    return server_id, "(instructions)", "later", f"changed; `all` or `{command}` accepts them"


def remind_of_instructions(review: ServerReview, decision: ReviewDecision) -> None:
    """Say which command accepts changed instructions, where the answers did not."""
    if review.leaves_instructions(decision):
        server_id = review.server.server_id
        command = command_line("review", server_id, options=("--instructions",))
        say(f"note: the instructions of `{server_id}` changed, and stay withheld: `{command}` accepts them")


def _remark(tool: ReviewedTool) -> str:
    found = [words_of(finding) for finding in findings_of(tool.entry)]
    claims = [f"claims: {claim}" for claim in claims_of(tool.entry.definition)]
    state = [tool.state] if tool.state in ("changed", "same but for defaults") else []
    return "; ".join([*state, *found, *claims]) or on_one_line(tool.entry.description or tool.entry.title)


def confirm_screen(
    reviews: Sequence[ServerReview],
) -> list[tuple[ServerReview, ReviewDecision]] | None:
    """Confirm the answers on the screen; None without a terminal, or where the user postpones them."""
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
    return [(review, preselect_decision(review, allow_all=typed == "all")) for review in reviews]


SERVER_ANSWERS: Final = ("preselected", "allow", "ask", "deny", "some", "later")


def take_first_look(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer) -> None:
    """Connect a new server, show its tools, and ask once about their permissions."""
    server_id = server.server_id
    try:
        review = read_review(loaded, server)
    except FairleadError as failure:
        warn(f"it was added, but cannot be used yet: {failure}", failure.hint)
        return
    tools = review.open_tools
    if not review.tools:
        say(f"`{server_id}` is ready; it has no tools")
        _ask_about_reading(ctx, loaded, review)
        return
    print_table(("tool", "preselected", "what it is for"), [_row(tool) for tool in review.tools])
    if not tools:
        say(f"`{server_id}` is ready, and nothing is left to decide about its tools")
        return
    _warn_of_findings(tools)
    match _ask_after_adding(len(tools)):
        case "preselected":
            carry_out(ctx, loaded, review, decision_of((t, t.suggested) for t in tools))
        case "allow":
            carry_out(ctx, loaded, review, decision_of((t, "allow") for t in tools))
        case "ask":
            carry_out(ctx, loaded, review, decision_of((t, "ask") for t in tools))
        case "deny":
            carry_out(ctx, loaded, review, decision_of((t, "deny") for t in tools))
        case "some":
            decision = ask_about_each(review)
            if not decision.is_empty:
                carry_out(ctx, loaded, review, decision)
        case _:
            say(f"`{command_line('review', server_id)}` asks again; {_until_then(server)}")
    say(f"hint: `{command_line('call', tools[0].entry.key.qualified)}` calls one")


def _ask_about_reading(ctx: click.Context, loaded: LoadedConfig, review: ServerReview) -> None:
    if review.unread and confirm(reading_question(review)):
        carry_out(ctx, loaded, review, decision_of((), reading=True))
    elif review.unread:
        command = command_line("review", review.server.server_id)
        say(f"`{command}` asks again; until then agents read nothing of it")


def allow_named(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, names: str) -> None:
    """Connect a server and allow what the command line names: `all`, or names and globs with commas."""
    review = read_review(loaded, server)
    allowed = resolve_tool_names([names], review.tools, servers=loaded.servers.keys())
    reading = bool(review.unread) and ALL in split_names(names)
    decision = decision_of(((tool, "allow") for tool in allowed), reading=reading)
    if not decision.is_empty:
        carry_out(ctx, loaded, review, decision)
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
        return "until then they go by their annotations: read-only ones are called, others need approval"
    return "until then agents get none of them"


def _row(tool: ReviewedTool) -> tuple[str, str, str]:
    entry = tool.entry
    return entry.key.shown_tool, tool.suggested, on_one_line(entry.description or entry.title)


def _warn_of_findings(tools: list[ReviewedTool]) -> None:
    found = [tool.entry.key.shown_tool for tool in tools if has_findings(tool.entry)]
    if found:
        warn(f"look closer at {', '.join(found)}: there are findings in the definitions", "answer `some`")


def _ask_after_adding(count: int) -> str:
    what = "this tool" if count == 1 else f"these {count} tools"
    while True:
        typed: str = click.prompt(
            f"What may {what} do? allow, ask (each time), deny, preselected, some, later",
            default="later",
            err=True,
        )
        meant = [answer for answer in SERVER_ANSWERS if typed and answer.startswith(typed.strip().lower())]
        if typed.strip().lower() == "all":
            return "allow"
        if len(meant) == 1:
            return meant[0]
        say(f"  please type one of {', '.join(SERVER_ANSWERS)}")
