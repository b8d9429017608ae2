"""`fairlead review`."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import click

from fairlead.actions.review import (
    ServerReview,
    decide_by_names,
    require_one_server,
    resolve_tool_names,
    without_globs,
)
from fairlead.cli.options import complete_server, entry_scope_option, json_option, load
from fairlead.cli.review import (
    ask_about_each,
    carry_out,
    confirm_screen,
    read_review,
    read_reviews,
    reading_question,
    show_screen,
)
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig
from fairlead.errors import FairleadError, UnknownTool
from fairlead.policy.review import ReviewAnswer, ReviewDecision, ReviewedTool, globs_of, review_as_json
from fairlead.policy.tool_names import ALL, NONE, command_line_name, split_names
from fairlead.terminal.decisions import (
    remind_of_instructions,
    show_in_one_line,
    show_instructions,
    show_tool,
)
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import (
    confirm,
    is_interactive,
    plural,
    print_data,
    print_error,
    print_json,
    say,
    warn,
)

_MOST_NAMED = 12
_ANSWERING = ("--allow", "NAMES", "--ask", "NAMES", "--deny", "NAMES")


@click.command("review")
@click.argument("server_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_server)
@click.option("--all", "every", is_flag=True, help="Every server that has something to decide.")
@click.option("--allow", multiple=True, metavar="NAMES", help="Allow these tools: names, globs or `all`.")
@click.option("--ask", multiple=True, metavar="NAMES", help="Ask before each call of these tools.")
@click.option("--deny", multiple=True, metavar="NAMES", help="Deny these tools.")
@click.option("--yes", is_flag=True, help="Take the preselected answers for the rest without asking.")
@click.option(
    "--instructions/--no-instructions",
    default=None,
    help="Show the server's instructions as they are now, and accept or refuse them for models.",
)
@click.option("--approve", multiple=True, hidden=True)
@click.option("--approve-all", is_flag=True, hidden=True)
@click.option("--replace-globs", is_flag=True, help="Replace globs in allow_tools by names without asking.")
@entry_scope_option
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    server_ids: tuple[str, ...],
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
    approve: tuple[str, ...],
    scope: str | None,
    *,
    every: bool,
    yes: bool,
    instructions: bool | None,
    approve_all: bool,
    replace_globs: bool,
    as_json: bool,
) -> int:
    """Look at every tool of a server, with nothing hidden, and say what it may do: allow, ask, deny.

    The answers are written into the server's entry, and what you saw is pinned: a tool that changes later is
    held back until you have looked again. Servers are connected for it. Several servers, or --all, are one
    screen with preselected answers and one confirmation.

    Preselected: of a trusted server, tools that are annotated as read-only are allowed; tools whose
    definition hides something or looks odd are denied; all others need approval.

    \b
    Examples:
      fairlead review github
      fairlead review github --allow search_issues,get_issue --ask create_issue --deny 'delete_*'
      fairlead review github --deny 'delete_*' --scope project
      fairlead review --all
      fairlead review --all --yes
      fairlead review github --json
    """
    if approve or approve_all:
        message = "`--approve NAME` is `--allow NAME` now, and `--approve-all` is `--allow all`"
        say(f"note: {message}")
        allow = (*allow, *approve, *(("all",) if approve_all else ()))
    if bool(server_ids) == every:
        raise click.UsageError("name the servers to review, or give `--all`")
    loaded, server_ids = load(ctx), tuple(dict.fromkeys(server_ids))
    named: dict[ReviewAnswer, tuple[str, ...]] = {"allow": allow, "ask": ask, "deny": deny}
    words = _TypedAnswers(
        named,
        loaded.servers.keys(),
        yes=yes,
        instructions=instructions,
        replace_globs=replace_globs,
        scope=scope,
    )
    if len(server_ids) == 1:
        review = read_review(loaded, loaded.server(server_ids[0]))
        return _review_one(ctx, loaded, review, words, as_json=as_json)
    return _review_many(ctx, loaded, server_ids, words, as_json=as_json)


class _TypedAnswers:
    """The answers that the command line gives, and where they go."""

    def __init__(
        self,
        named: Mapping[ReviewAnswer, tuple[str, ...]],
        servers: Collection[str],
        *,
        yes: bool,
        instructions: bool | None,
        replace_globs: bool,
        scope: str | None,
    ) -> None:
        self.scope = scope
        """Whose file the answers go to; None for the one that decides."""
        self.replace_globs = replace_globs
        """Whether globs in `allow_tools` are replaced by names without asking."""
        self._named = named
        self._instructions = instructions
        self.yes = yes
        self._servers = servers

    @property
    def are_given(self) -> bool:
        """Whether the command line has any answer."""
        return self.yes or self._instructions is not None or any(self._named.values())

    def answers(self, review: ServerReview, *, strict: bool = True) -> ReviewDecision:
        """The decision that they make for the tools of a server.

        Args:
            review: What is reviewed.
            strict: Is a name that means no tool an error? Not where it may mean another server's.
        """
        named: list[tuple[ReviewAnswer, str]] = [
            (answer, name) for answer, names in self._named.items() for name in names
        ]
        return decide_by_names(
            named,
            review,
            servers=self._servers,
            preselected=self.yes,
            instructions=self._instructions,
            strict=strict,
        )

    @property
    def are_preselected_alone(self) -> bool:
        """Whether they are `--yes`, and name no tool."""
        return self.yes and not any(self._named.values())

    @property
    def say_all(self) -> bool:
        """Whether `all` is among the names."""
        return any(ALL in split_names(word) for words in self._named.values() for word in words)

    def _tools(self, name: str, review: ServerReview, answer: ReviewAnswer) -> list[ReviewedTool]:
        return resolve_tool_names([name], review.tools, answer=answer, servers=self._servers, strict=False)

    def require_meant(self, reviews: list[ServerReview], *, of_all: bool) -> None:
        """Refuse a name that means a tool of none of the servers.

        Args:
            reviews: What is reviewed.
            of_all: Are these all servers, rather than those that were named? Then a name to allow has to mean
                one server's tools: any of the others may have called its own so.
        """
        for answer, words in self._named.items():
            for name in (name for word in words for name in split_names(word) if name not in ("", ALL, NONE)):
                found = [tool.entry.key for review in reviews for tool in self._tools(name, review, answer)]
                if not found:
                    raise UnknownTool(f"none of these servers has a tool `{name}`")
                if of_all and answer != "deny":
                    require_one_server(name, found)


def _review_one(
    ctx: click.Context,
    loaded: LoadedConfig,
    review: ServerReview,
    words: _TypedAnswers,
    *,
    as_json: bool,
) -> int:
    if words.are_given:
        decision = words.answers(review)
        _show_answered_instructions(review, decision, as_json=as_json)
    elif as_json:
        print_json(_as_json(review))
        return Exit.OK
    else:
        answered = _ask(review)
        if answered is None:
            return Exit.NEEDS_A_PERSON
        decision = answered
    if not decision.is_empty:
        decision = _without_globs(review, decision, replace=words.replace_globs)
        carry_out(ctx, loaded, review, decision, words.scope)
    elif words.are_given:
        say(f"nothing was changed: {_why_nothing(review, words)}")
    if words.are_given:
        remind_of_instructions(review, decision)
    if as_json:
        print_json(_decision_as_json(review, decision))
    return Exit.OK


def _show_answered_instructions(review: ServerReview, decision: ReviewDecision, *, as_json: bool) -> None:
    """Show the instructions that a typed answer is about, whole."""
    if decision.instructions is not None and not as_json:
        print_data(review.server.server_id)
        show_instructions(review.listing, review.pins)


def _why_nothing(review: ServerReview, words: _TypedAnswers) -> str:
    """Why typed answers are about no tool. `all` takes no denial back: those are named."""
    server_id = review.server.server_id
    if words.are_preselected_alone:
        return f"nothing is left to decide about `{server_id}`"
    denied = [tool for tool in review.tools if tool.denied]
    if not denied or not words.say_all:
        return f"that names nothing of `{server_id}`"
    # Nothing but denied tools is left here, so that the glob means the same as all their names.
    names = [command_line_name(tool.entry.key) for tool in denied] if len(denied) <= _MOST_NAMED else ["*"]
    command = command_line("review", server_id, options=("--allow", ",".join(names)))
    return f"`all` leaves out the {plural(len(denied), 'tool')} of `{server_id}` that are denied: `{command}`"


def _review_many(
    ctx: click.Context,
    loaded: LoadedConfig,
    server_ids: tuple[str, ...],
    words: _TypedAnswers,
    *,
    as_json: bool,
) -> int:
    wanted = [loaded.server(name) for name in server_ids] or [
        server for server in loaded.servers.values() if server.usable and not server.is_built_in
    ]
    reviews, failures = read_reviews(loaded, wanted)
    for failure in failures.values():
        print_error(failure) if server_ids else warn(str(failure), failure.hint)
    words.require_meant(reviews, of_all=not server_ids)
    return review_together(ctx, loaded, reviews, failures, words=words, as_json=as_json)


def review_together(
    ctx: click.Context,
    loaded: LoadedConfig,
    reviews: list[ServerReview],
    failures: dict[str, FairleadError],
    *,
    words: _TypedAnswers | None = None,
    as_json: bool = False,
) -> int:
    """One screen for several servers: preselected answers, one confirmation, one edit for each entry."""
    open_reviews = [review for review in reviews if review.is_open]
    given = words if words is not None and words.are_given else None
    if given is not None:
        decisions = [(review, given.answers(review, strict=False)) for review in reviews]
        for review, decision in decisions:
            _show_answered_instructions(review, decision, as_json=as_json)
    elif as_json:
        print_json({"servers": [_as_json(review) for review in reviews]})
        return Exit.OK
    elif not open_reviews:
        say("there is nothing to decide")
        decisions = []
    else:
        show_screen(open_reviews)
        answered = confirm_screen(open_reviews)
        if answered is None:
            return Exit.NEEDS_A_PERSON
        decisions = answered
    recorded = _record_each(ctx, loaded, decisions, words)
    if as_json:
        print_json({"servers": recorded})
    statuses = [exit_of(failure) for failure in failures.values()]
    if not statuses:
        return Exit.OK
    return Exit.NEEDS_A_PERSON if all(one == Exit.NEEDS_A_PERSON for one in statuses) else Exit.NOT_READY


def _record_each(
    ctx: click.Context,
    loaded: LoadedConfig,
    decisions: Iterable[tuple[ServerReview, ReviewDecision]],
    words: _TypedAnswers | None,
) -> list[dict[str, Any]]:
    """Record decisions one by one, as they are made, and return them as JSON."""
    recorded: list[dict[str, Any]] = []
    for review, decision in decisions:
        recorded.append(_decision_as_json(review, decision))
        if not decision.is_empty:
            if words is not None and words.replace_globs:
                decision = _without_globs(review, decision, replace=True)
            carry_out(ctx, loaded, review, decision, words.scope if words else None)
        remind_of_instructions(review, decision)
    return recorded


def _as_json(review: ServerReview) -> dict[str, Any]:
    whole = review_as_json(review.server.server_id, review.listing, review.pins, review.tools)
    return {**whole, "unread": review.unread or None}


def _decision_as_json(review: ServerReview, decision: ReviewDecision) -> dict[str, Any]:
    return {
        "server": review.server.server_id,
        "allowed": [tool.key.tool for tool in decision.allow],
        "asked": [tool.key.tool for tool in decision.ask],
        "denied": [*decision.deny],
    }


def _ask(review: ServerReview) -> ReviewDecision | None:
    """Show everything, and ask about each tool at a terminal; None where there is none."""
    if is_interactive() or (review.tools and not review.is_open):
        return ask_about_each(review)
    if review.asks_about_instructions:
        show_instructions(review.listing, review.pins)
    for tool in review.tools:
        show_tool(tool) if tool.is_open else show_in_one_line(tool)
    if review.unread:
        command = command_line("review", review.server.server_id, options=("--allow", "all"))
        print_data(reading_question(review))
        say(f"hint: `{command}` allows it")
        return None
    if not review.tools:
        say(f"`{review.server.server_id}` has no tools, so there is nothing to decide")
    if any(tool.is_open for tool in review.tools) or review.asks_about_instructions:
        server_id = review.server.server_id
        say(
            f"hint: `{command_line('review', server_id, options=_ANSWERING)}` answers;"
            f" `--allow all` allows all, `--yes` takes the preselected answers"
            f"{'; `--instructions` accepts the instructions' if review.asks_about_instructions else ''}"
        )
        return None
    return ReviewDecision()


def _without_globs(review: ServerReview, decision: ReviewDecision, *, replace: bool) -> ReviewDecision:
    """The same, with globs replaced by the names of what they allow, if that is wanted."""
    globs = globs_of(review.server)
    if not globs or not decision.usable:
        return decision
    shown = ", ".join(f"`{glob}`" for glob in globs)
    if not replace and not confirm(f"allow_tools has {shown}: write the names of reviewed tools instead?"):
        return decision
    return without_globs(review.tools, decision)
