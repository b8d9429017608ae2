"""Answer calls that wait in running gateways for the user's approval."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def pending_calls(
    gateways: Sequence[RunningGateway],
) -> tuple[list[dict[str, Any]], list[ConnectFailed]]:
    """The calls that wait at gateways, and why some gateways could not be asked."""
    answers, failures = _ask_each(gateways)
    found = (call for answer in answers for call in as_list(answer.get("pending")))
    return list({call["id"]: call for call in found}.values()), failures


def equal_calls(pending: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The calls that wait, those that are the same together: made by several sessions, or tried again."""
    found: dict[str, list[dict[str, Any]]] = {}
    for call in pending:
        about = {name: call[name] for name in _SHOWN}
        found.setdefault(json.dumps(about, sort_keys=True), []).append(call)
    return list(found.values())


def gateway_here(loaded: LoadedConfig) -> RunningGateway:
    """The gateway that runs with this configuration; an error if none does."""
    running = gateway_if_any(loaded)
    if running is None:
        raise ConfigError("no gateway runs with this configuration", hint="start it with `fairlead gateway`")
    return running


def answers_to(same: Sequence[dict[str, Any]]) -> list[str]:
    """What can be said to calls that are the same."""
    return [*ANSWERS] if all(call["remember"] for call in same) else ["once", "no"]


def give_answer(
    gateways: Sequence[RunningGateway], call_id: str, answer: str
) -> tuple[bool, list[ConnectFailed]]:
    """Answer a call that waits; False where it waits no more. Also why some gateways could not be asked."""
    answers, failures = _ask_each(gateways, {"id": call_id, "answer": answer})
    return any(each.get("answered") is True for each in answers), failures


def _ask_each(
    gateways: Sequence[RunningGateway], message: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[ConnectFailed]]:
    """What gateways say. One that does not answer as it should keeps no other from being asked."""
    answers: list[dict[str, Any]] = []
    failures: list[ConnectFailed] = []
    for running in gateways:
        try:
            answers.append(running.ask(PATH, message))
        except ConnectFailed as exc:
            failures.append(exc)
    return answers, failures
