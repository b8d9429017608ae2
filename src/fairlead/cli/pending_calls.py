"""Calls of agents that wait in a running gateway for approval, shown and answered at the terminal."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from fairlead.cli.exit_codes import Exit
from fairlead.cli.output import is_interactive, print_data, print_json, printable, printable_lines, say, warn
from fairlead.config.load import LoadedConfig
from fairlead.config.untyped import as_list
from fairlead.errors import ConfigError, ConnectFailed
from fairlead.gateway.registry import RunningGateway, answering, find, sources_of

PATH: Final = "/api/approvals"
_SHOWN: Final = ("server", "tool", "principal", "arguments", "reason", "claims", "remember")
ANSWERS: Final = ("once", "session", "always", "no")


def gateway_if_any(loaded: LoadedConfig) -> RunningGateway | None:
    """The gateway that runs with this configuration, if one does."""
    return find(os.environ, sources_of(loaded))


def gateways_running(env: Mapping[str, str] = os.environ) -> list[RunningGateway]:
    """Every gateway of this user that answers, with whatever configuration: its calls wait for them."""
    return answering(env)


def pending_calls(gateways: Sequence[RunningGateway]) -> list[dict[str, Any]]:
    """The calls that wait at gateways."""
    found = (call for running in gateways for call in as_list(_ask(running).get("pending")))
    return list({call["id"]: call for call in found}.values())


def equal_calls(pending: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The calls that wait, those that are the same together: made by several sessions, or tried again."""
    found: dict[str, list[dict[str, Any]]] = {}
    for call in pending:
        about = {name: call[name] for name in _SHOWN}
        found.setdefault(json.dumps(about, sort_keys=True), []).append(call)
    return list(found.values())


def _ask(running: RunningGateway, message: dict[str, str] | None = None) -> dict[str, Any]:
    """What a gateway says. One that does not answer as it should keeps no other from being asked."""
    try:
        return running.ask(PATH, message)
    except ConnectFailed as exc:
        warn(str(exc))
        return {}


def gateway_here(loaded: LoadedConfig) -> RunningGateway:
    """The gateway that runs with this configuration; an error if none does."""
    running = gateway_if_any(loaded)
    if running is None:
        raise ConfigError("no gateway runs with this configuration", hint="start it with `fairlead gateway`")
    return running


def answer_pending(given: dict[str, str], *, as_json: bool = False) -> int:
    """Give the answers that were named; without any, show what waits, and ask a person who is there."""
    gateways = gateways_running()
    if not gateways:
        raise ConfigError("no gateway runs, so that no call waits", hint="start one with `fairlead gateway`")
    if given:
        taken = [_give(gateways, name, word) for name, word in given.items()]
        return Exit.OK if all(taken) else Exit.FIXABLE
    pending = pending_calls(gateways)
    if as_json:
        print_json({"pending": pending})
        return Exit.OK
    if not pending:
        say("no call waits for you")
        return Exit.OK
    for same in equal_calls(pending):
        show_calls(same)
        if is_interactive():
            words = [*answers_to(same), "later"]
            word = str(click.prompt("Allow it?", type=click.Choice(words), default="later", err=True))
            if word != "later":
                for call in same:
                    _give(gateways, str(call["id"]), word)
    if is_interactive():
        return Exit.OK
    say(f"hint: `fairlead approvals answer {pending[0]['id']} once` answers; or {', '.join(ANSWERS[1:])}")
    return Exit.NEEDS_A_PERSON


def answers_to(same: Sequence[dict[str, Any]]) -> list[str]:
    """What can be said to calls that are the same."""
    return [*ANSWERS] if all(call["remember"] for call in same) else ["once", "no"]


def show_calls(same: Sequence[dict[str, Any]]) -> None:
    """Show all of a call, once for those that are the same: what is allowed is exactly this."""
    for line in lines_of(same):
        print_data(line)


def lines_of(same: Sequence[dict[str, Any]]) -> list[str]:
    """All of a call in lines, with the ids of those that are the same."""
    call, *others = same
    lines = [f"{call['id']}  {printable(call['server'])}/{printable(call['tool'])}"]
    if others:
        lines.append(f"  the same call waits as {', '.join(str(other['id']) for other in others)}")
    lines.append(f"  for {printable(call['principal'])}: {printable_lines(call['reason'])}")
    lines += [f"  its server claims, unchecked: {printable(claim)}" for claim in call["claims"]]
    shown = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
    return [*lines, *(f"  {printable(line)}" for line in shown.split("\n"))]


def give_answer(gateways: Sequence[RunningGateway], name: str, word: str) -> bool:
    """Answer a call that waits; False where it waits no more."""
    message = {"id": name, "answer": word}
    return any(_ask(running, message).get("answered") is True for running in gateways)


def _give(gateways: Sequence[RunningGateway], name: str, word: str) -> bool:
    if give_answer(gateways, name, word):
        say(f"{name}: {word}")
        return True
    warn(f"no call {printable(name)} is waiting any more")
    return False
