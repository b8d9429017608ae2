"""A review at the terminal: the questions, one screen for several servers, the first after `add`."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
from fairlead.policy.tool_names import ALL, NONE, split_names
from fairlead.terminal.decisions import (
    remind_of_instructions,
    show_in_one_line,
    show_instructions,
    show_recorded,
    show_settled,
    show_tool,
)
from fairlead.terminal.output import (
    confirm,
    is_interactive,
    on_one_line,
    print_data,
    print_table,
    printable,
    say,
    warn,
)
from fairlead.wording import end_sentence


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
    """Show every tool of a server whole, and ask about each. Answers of a review cut short are not kept."""
    with _saying_what_is_lost([review]):
        return _ask_about_each(review)


@contextmanager
def _saying_what_is_lost(reviews: Sequence[ServerReview]) -> Generator[None]:
    """Say that nothing was recorded about these servers where the user stops with Ctrl-C."""
    try:
        yield
    except click.Abort:
        ids = [review.server.server_id for review in reviews]
        names = ", ".join(f"`{server_id}`" for server_id in ids)
        say(f"\nnothing was recorded about {names}: `{command_line('review', *ids)}` asks again")
        raise


def _ask_about_each(review: ServerReview) -> ReviewDecision:
    if not review.is_open:
        show_settled(review)
        return ReviewDecision()
    accepted: bool | None = None
    if review.asks_about_instructions:
        show_instructions(review.listing, review.pins)
        accepted = confirm("May models see these instructions?")
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
        question = f"`{printable(tool.entry.key.revealed_tool)}`: {_CHOICES}"
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
        (review.server.server_id, tool.entry.key.revealed_tool, tool.suggested, _remark(tool))
        for review in by_risk(reviews)
        for tool in sorted(review.open_tools, key=lambda tool: -tool.risk)
    ]
    rows += [
        (review.server.server_id, "(no tools)", "later", f"`all`: models may read {review.unread}")
        for review in reviews
        if review.unread
    ]
    saying = [review for review in reviews if review.asks_about_instructions]
    rows += [
        (review.server.server_id, "(instructions)", "later", f"{_STATES[review.withheld]}; below")
        for review in saying
    ]
    print_table(("server", "tool", "answer", "remark"), rows)
    for review in saying:
        print_data(f"\n{review.server.server_id}")
        show_instructions(review.listing, review.pins)


_STATES: Final[dict[str | None, str]] = {"new": "not reviewed", "changed": "changed"}


def _remark(tool: ReviewedTool) -> str:
    found = [words_of(finding) for finding in findings_of(tool.entry)]
    claims = [f"claims: {claim}" for claim in claims_of(tool.entry.definition)]
    state = [tool.state] if tool.state in ("changed", "same but for defaults") else []
    return "; ".join([*state, *found, *claims]) or on_one_line(tool.entry.description or tool.entry.title)


def confirm_screen(
    reviews: Sequence[ServerReview],
) -> Iterator[tuple[ServerReview, ReviewDecision]] | None:
    """Confirm the answers on the screen; None without a terminal, or where the user postpones them.

    The decisions come server by server, so that those that were made are recorded if the user stops later.
    """
    hint = (
        "hint: `fairlead review --all --yes` records these answers; `fairlead review ID` asks about each tool"
    )
    if not is_interactive():
        say(hint)
        return None
    with _saying_what_is_lost(reviews):
        typed = _ask_about_all("Record these answers?", default="yes")
    if typed == "later":
        say(hint)
        return None
    return _decide_on_screen(reviews, typed)


def _decide_on_screen(
    reviews: Sequence[ServerReview], typed: str
) -> Iterator[tuple[ServerReview, ReviewDecision]]:
    if typed == "each":
        for review in by_risk(reviews):
            yield review, ask_about_each(review)
        return
    saying = [review for review in reviews if review.asks_about_instructions]
    with _saying_what_is_lost(reviews):
        accepted = _ask_about_instructions(saying) if saying else None
    for review in reviews:
        decision = preselect_decision(review, SERVER_ANSWERS[typed])
        yield review, replace(decision, instructions=accepted if review in saying else None)


def _ask_about_instructions(saying: Sequence[ServerReview]) -> bool:
    names = ", ".join(f"`{review.server.server_id}`" for review in saying)
    return confirm(f"May models see the instructions of {names}, as they are shown above?")


SERVER_ANSWERS: Final[dict[str, ReviewAnswer | None]] = {
    "yes": None,
    "all": "allow",
    "ask": "ask",
    "deny": "deny",
    "each": None,
    "later": None,
}
"""What can be answered about all tools at once, and the answer that each gets; None for the preselected."""
_ALSO: Final = {"preselected": "yes", "allow": "all", "some": "each"}


def _ask_about_all(question: str, *, default: str) -> str:
    """Ask once about all open tools, of one server or several, and return a word of `SERVER_ANSWERS`."""
    choices = (
        "yes (as preselected), all (allow all but the denied),"
        " ask (each time), deny, each (one by one), later"
    )
    while True:
        typed: str = click.prompt(f"{question} {choices}", default=default, err=True)
        word = typed.strip().lower()
        meant = {_ALSO.get(each, each) for each in (*SERVER_ANSWERS, *_ALSO) if each.startswith(word)}
        exact = word if word in SERVER_ANSWERS else _ALSO.get(word)
        if exact or (word and len(meant) == 1):
            return exact or meant.pop()
        say(f"  please type one of {', '.join(SERVER_ANSWERS)}")


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
    if review.asks_about_instructions:
        show_instructions(review.listing, review.pins)
    what = "this tool" if len(tools) == 1 else f"these {len(tools)} tools"
    with _saying_what_is_lost([review]):
        typed = _ask_about_all(f"What may {what} do?", default="later")
    if typed == "later":
        say(f"`{command_line('review', server_id)}` asks again; {_until_then(server)}")
    else:
        for _, decision in _decide_on_screen([review], typed):
            if not decision.is_empty:
                carry_out(ctx, loaded, review, decision)
            remind_of_instructions(review, decision)
    say(f"hint: `{command_line('call', tools[0].entry.key.qualified)}` calls one")


def _ask_about_reading(ctx: click.Context, loaded: LoadedConfig, review: ServerReview) -> None:
    if review.unread and confirm(reading_question(review)):
        carry_out(ctx, loaded, review, decision_of((), reading=True))
    elif review.unread:
        command = command_line("review", review.server.server_id)
        say(f"`{command}` asks again; until then agents read nothing of it")


def allow_named(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, names: str) -> None:
    """Connect a server that was added, and allow what the command line names.

    Args:
        ctx: The command.
        loaded: The configuration with the server.
        server: The server.
        names: `all`, names and globs with commas; or `none`, which denies all its tools.

    Raises:
        FairleadError: It cannot be listed, or a name means no tool; the hint says how to go on.
    """
    server_id = server.server_id
    try:
        review = read_review(loaded, server)
    except FairleadError as failure:
        if names == NONE:
            warn(f"it was added, and its tools are not known yet: {failure}", failure.hint)
            return
        raise
    if names == NONE:
        _deny_all(ctx, loaded, review)
        return
    try:
        allowed = resolve_tool_names([names], review.tools, servers=loaded.servers.keys())
    except FairleadError as failure:
        command = command_line("review", server_id, options=("--allow", "NAMES"))
        settle = f"`{server_id}` was added, and none of its tools is allowed yet: `{command}` allows them"
        failure.hint = f"{end_sentence(failure.hint)} {settle}" if failure.hint else settle
        raise
    reading = bool(review.unread) and ALL in split_names(names)
    decision = decision_of(((tool, "allow") for tool in allowed), reading=reading)
    if not decision.is_empty:
        carry_out(ctx, loaded, review, decision)
    else:
        say(f"nothing was allowed: that names no tool of `{server_id}`")
    _name_left_out(review, {tool.key.tool for tool in decision.allow})
    remind_of_instructions(review, decision)


def _deny_all(ctx: click.Context, loaded: LoadedConfig, review: ServerReview) -> None:
    """Record that none of a server's tools may be used, so that no surface asks about them again."""
    decision = decision_of((tool, "deny") for tool in review.tools if not tool.denied)
    if decision.is_empty:
        say(f"`{review.server.server_id}` has no tools to deny")
    else:
        carry_out(ctx, loaded, review, decision)


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
    return entry.key.revealed_tool, tool.suggested, on_one_line(entry.description or entry.title)


def _warn_of_findings(tools: list[ReviewedTool]) -> None:
    found = [printable(tool.entry.key.revealed_tool) for tool in tools if has_findings(tool.entry)]
    if found:
        warn(f"look closer at {', '.join(found)}: there are findings in the definitions", "answer `each`")
