"""Calls of agents that wait in a running gateway for approval, shown and answered at the terminal."""

from collections.abc import Sequence
from typing import Any

import click

from fairlead.actions.approvals import (
    APPROVAL_ANSWERS,
    RememberedAnswer,
    answers_of_sessions,
    answers_to,
    equal_calls,
    gateways_running,
    give_answer,
    pending_calls,
)
from fairlead.actions.context import ActionContext
from fairlead.errors import ConfigError, ConnectFailed, UnknownCall
from fairlead.gateway.registry import RunningGateway
from fairlead.terminal.decisions import lines_of_calls
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    is_interactive,
    print_data,
    print_json,
    print_notices,
    printable,
    say,
    warn,
)


def read_pending(gateways: Sequence[RunningGateway]) -> list[dict[str, Any]]:
    """The calls that wait at gateways; warns of gateways that did not answer."""
    calls, failures = pending_calls(gateways)
    _warn_of(failures)
    return calls


def read_session_answers(gateways: Sequence[RunningGateway]) -> list[RememberedAnswer]:
    """The approvals for a session of a gateway's client; warns of gateways that did not answer."""
    answers, failures = answers_of_sessions(gateways)
    _warn_of(failures)
    return answers


def answer_pending(context: ActionContext, given: dict[str, str], *, as_json: bool = False) -> int:
    """Give the answers on the command line; without any, show the pending calls, and ask at a terminal."""
    gateways = gateways_running()
    if not gateways:
        raise ConfigError("no gateway is running, so no call waits", hint="start one with `fairlead gateway`")
    if given:
        _give_all(context, gateways, given)
        return Exit.OK
    pending = read_pending(gateways)
    if as_json:
        print_json({"pending": pending})
        return Exit.OK
    if not pending:
        say("no call waits for you")
        return Exit.OK
    for same in equal_calls(pending):
        show_calls(same)
        if is_interactive():
            _ask(context, gateways, same)
    if is_interactive():
        return Exit.OK
    others = ", ".join(APPROVAL_ANSWERS[1:])
    say(f"hint: `fairlead approvals answer {pending[0]['id']} once` answers; or {others}")
    return Exit.NEEDS_A_PERSON


def show_calls(same: Sequence[dict[str, Any]]) -> None:
    """Show all of a call, once for those that are the same: what is allowed is exactly this."""
    for line in lines_of_calls(same):
        print_data(line)


def _ask(context: ActionContext, gateways: Sequence[RunningGateway], same: Sequence[dict[str, Any]]) -> None:
    """Ask about calls that are the same, and give the answer to each."""
    words = [*answers_to(same), "later"]
    word = str(click.prompt("Allow it?", type=click.Choice(words), default="later", err=True))
    if word == "later":
        return
    for name in [str(call["id"]) for call in same]:
        if not _give(context, gateways, name, word):
            warn(_waits_no_more(name))


def _give_all(context: ActionContext, gateways: Sequence[RunningGateway], given: dict[str, str]) -> None:
    """Give every answer; raises for those whose calls wait no more."""
    gone = [name for name, word in given.items() if not _give(context, gateways, name, word)]
    if gone:
        raise UnknownCall(_waits_no_more(", ".join(gone)), hint="`fairlead approvals` shows what waits")


def _give(context: ActionContext, gateways: Sequence[RunningGateway], name: str, word: str) -> bool:
    given = give_answer(context, gateways, name, word)
    _warn_of(given.failures)
    print_notices(given.notices)
    if given.is_taken:
        say(f"{name}: {word}")
    return given.is_taken


def _waits_no_more(name: str) -> str:
    return f"no call {printable(name)} is waiting any more"


def _warn_of(failures: Sequence[ConnectFailed]) -> None:
    for failure in failures:
        warn(str(failure))
