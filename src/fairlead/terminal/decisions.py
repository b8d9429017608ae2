"""Display of pending decisions: calls that wait, servers to approve, tools to review."""

import json
from collections.abc import Sequence
from typing import Any

from fairlead.actions.consent import consent_question
from fairlead.actions.review import RecordedReview, ServerReview
from fairlead.catalog.sanitize.text import suspicious
from fairlead.catalog.tools import Listing
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.config.load import LoadedServer
from fairlead.policy.decision import claims_of
from fairlead.policy.findings import findings_of, has_findings, words_of
from fairlead.policy.pins import Pins
from fairlead.policy.review import ReviewDecision, ReviewedTool, diff, instructions_diff, whole
from fairlead.terminal.output import (
    display_path,
    plural,
    print_data,
    print_notices,
    printable,
    printable_lines,
    say,
    warn,
)


def lines_of_calls(same: Sequence[dict[str, Any]]) -> list[str]:
    """The lines that show a call whole, with the ids of equal calls."""
    call, *others = same
    lines = [f"{call['id']}  {printable(call['server'])}.{printable(call['tool'])}"]
    if others:
        lines.append(f"  the same call waits as {', '.join(str(other['id']) for other in others)}")
    lines.append(f"  for {printable(call['principal'])}: {printable_lines(call['reason'])}")
    lines += [f"  its server claims, unchecked: {printable(claim)}" for claim in call["claims"]]
    shown = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
    lines += [f"  {printable(line)}" for line in shown.split("\n")]
    if preview := call.get("preview"):
        lines += ["  it would change:", *(f"    {printable(line)}" for line in preview.split("\n"))]
    if hint := call.get("hint"):  # a gateway of an earlier version sends none
        lines.append(f"  to settle it for good: {printable_lines(hint)}")
    return lines


def show_consent(server: LoadedServer, key: ConsentKey) -> None:
    """Show an entry before consent: the whole command, its rights, and what consent is bound to."""
    asked = consent_question(server, key)
    print_data(f"{asked.server_id}, from {asked.origin}")
    print_data(f"  {printable(asked.start)}")
    for word in asked.words:
        print_data(f"    {printable(word)}")
    if asked.caution:
        print_data(f"  {asked.caution}")
    for name, value in asked.fields:
        print_data(f"  {name}: {printable(str(value))}")
    for fact in key.facts:
        print_data(f"  {fact.label}: {printable(fact.text)}")
    if asked.rights:
        print_data(f"  {asked.rights}")
    for line in asked.shared:
        print_data(f"    {printable(line)}")
    if asked.tools:
        print_data(f"  {asked.tools}")


def show_tool(tool: ReviewedTool) -> None:
    """Show a tool whole, or what changed in it; all that is hidden spelled out, and its words as its own."""
    print_data(f"{printable(tool.entry.key.revealed_tool)}: {tool.state}, {tool.standing}")
    before = tool.before()
    for line in whole(tool.definition()) if before is None else diff(before, tool.definition()):
        print_data(f"  {printable(line)}")
    claims = claims_of(tool.entry.definition)
    if claims:
        print_data(f"  it claims (not verified): {'; '.join(claims)}")
    for finding in findings_of(tool.entry):
        print_data(f"  warning: {printable(words_of(finding))}")
    if tool.is_open:
        print_data(f"  preselected answer: {tool.suggested}")
    print_data("")


def show_settled(review: ServerReview) -> None:
    """Show what was decided about a server with nothing left to decide: every definition whole."""
    for tool in review.tools:
        show_tool(tool)
    said = review.listing.instructions
    if said is not None:
        print_data("instructions for models, refused:" if review.withheld else "instructions for models:")
        print_data("\n".join(f"  {printable(line)}" for line in said.split("\n")))
    say(f"nothing is left to decide about `{review.server.server_id}`")


def show_instructions(listing: Listing, pins: Pins | None) -> None:
    """Show a server's instructions for models, and what of them is new."""
    print_data("instructions for models:")
    for line in instructions_diff(listing, pins):
        print_data(f"  {printable(line)}")
    for look in suspicious(listing.instructions or ""):
        print_data(f"  warning: it {look}")
    print_data("")


def remind_of_instructions(review: ServerReview, decision: ReviewDecision) -> None:
    """Say which command accepts instructions, where the answers did not say anything about them."""
    if review.leaves_instructions(decision):
        server_id = review.server.server_id
        command = command_line("review", server_id, options=("--instructions",))
        were = "changed" if review.withheld == "changed" else "were not reviewed"
        say(
            f"note: the instructions of `{server_id}` {were}, and stay withheld: `{command}` shows and"
            " accepts them"
        )


def show_in_one_line(tool: ReviewedTool) -> None:
    """Show a tool that needs no decision, by name."""
    shown = "denied" if tool.denied else f"reviewed, and as it was; {tool.standing}"
    say(f"{printable(tool.entry.key.revealed_tool)}: {shown}")


def show_recorded(recorded: RecordedReview) -> None:
    """Show the outcome of a review."""
    decision, server_id = recorded.decision, recorded.server.server_id
    if recorded.target is None and decision.usable:
        say(f"pinned {plural(len(decision.usable), 'tool')} of `{server_id}` as they are now")
        warn(
            f"no file has the entry of `{server_id}`, so that no answer could be written",
            "write `approval` there by hand to call its tools without approval",
        )
        print_notices(recorded.notices)
        return
    where = f" in {display_path(recorded.target.path)}" if recorded.target else ""
    for word, tools in (
        ("allowed", decision.allow),
        ("need approval:", decision.ask),
        ("denied", decision.deny),
    ):
        if tools:
            say(f"{word} {plural(len(tools), 'tool')} of `{server_id}`{where}")
    if decision.reading:
        say(f"models may read what `{server_id}` offers{where}")
    if decision.instructions is not None:
        may = "may see" if decision.instructions else "do not see"
        say(f"models {may} the instructions of `{server_id}` as they are now")
    if odd := [tool.key for tool in decision.allow if has_findings(tool)]:
        names = ", ".join(f"`{printable(key.revealed_tool)}`" for key in odd)
        command = command_line("review", server_id)
        warn(f"look closer at {names}: there are findings in the definitions", f"`{command}` shows it")
    if recorded.failure is not None:
        warn(recorded.failure)
    for tool, stricter in recorded.stricter:
        origin = stricter.rule.origin if stricter.rule else None
        place = str(origin or "the administrator's policy")
        state = "denied" if stricter.verdict == "deny" else "subject to approval"
        name = f"{server_id}.{printable(tool.key.revealed_tool)}"
        warn(f"`{name}` is still {state}: {stricter.reason}", f"change that in {place}")
    print_notices(recorded.notices)
