"""`fairlead prompts` and `fairlead prompt`, with a real server."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cli.test_resources import add
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

pytestmark = pytest.mark.requirement("NEED-36")

GREET = {
    "name": "greet",
    "description": "Say hello",
    "arguments": [{"name": "who", "required": True}, {"name": "how", "description": "x"}],
}


def test_prompts_are_shown_with_what_they_want_to_know(fairlead: Fairlead, machine: Machine) -> None:
    server = add(fairlead, machine, prompts=[GREET, {"name": "plain", "title": "A \u202etitle"}])
    outcome = fairlead("prompts")
    assert outcome.status == 0
    assert [re.split(" {2,}", line) for line in outcome.out.splitlines()[1:]] == [
        ["s", "greet", "who [how]", "Say hello"],
        ["s", "plain", "-", "A title"],
    ]
    assert "greet" in fairlead("prompts", "s").out
    assert server.starts == 1
    (first, _) = json.loads(fairlead("prompts", "--json").out)["prompts"]
    assert first["arguments"][0] == {"name": "who", "description": None, "required": True}
    assert fairlead("prompts", "--refresh").status == 0
    assert server.starts == 2


def test_no_prompts_are_none(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, prompts=[])
    assert "no prompts known" in fairlead("prompts").err


def test_a_prompt_is_filled_in(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, prompts=[GREET])
    outcome = fairlead("prompt", "s", "greet", "who=Ada", "how=so=so")
    assert outcome.status == 0
    assert json.loads(outcome.out) == {"who": "Ada", "how": "so=so"}
    raw = json.loads(fairlead("prompt", "s", "greet", "who=Ada", "--json").out)
    assert raw["messages"][0]["role"] == "user"


def test_what_is_missing_is_said_where_nobody_can_be_asked(fairlead: Fairlead, machine: Machine) -> None:
    server = add(fairlead, machine, prompts=[GREET])
    outcome = fairlead("prompt", "s", "greet")
    assert outcome.status == 2
    assert "needs the argument `who`" in outcome.err
    assert not server.heard("prompts/get")
    assert fairlead("prompt", "s", "greet", "who").status == 2


def test_a_prompt_that_is_not_there_is_suggested(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, refused={"prompts/get": -32602})
    outcome = fairlead("prompt", "s", "gret")
    assert outcome.status == 1
    assert "greet" in outcome.err
    assert "fairlead prompts s" in fairlead("prompt", "s", "something else").err


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([{"role": "user", "content": {"type": "text", "text": "a\n\x1b[0mb"}}], "a\nb\n"),
        ([{"role": "user", "content": "a text for a block"}], "a text for a block\n"),
        ([], ""),
        (
            [
                {"role": "user", "content": {"type": "text", "text": "q"}},
                {"role": "assistant", "content": {"type": "image", "data": "", "mimeType": "image/png"}},
                {"role": "user", "content": {"type": "resource", "resource": {"uri": "u", "text": "r"}}},
            ],
            "[user]\nq\n\n[assistant]\n[image; --json shows it]\n\n[user]\nr\n",
        ),
    ],
)
def test_messages_are_shown_by_who_says_them(
    fairlead: Fairlead, machine: Machine, messages: list[object], shown: str
) -> None:
    add(fairlead, machine, prompts=[{"name": "p"}], messages=messages)
    assert fairlead("prompt", "s", "p").out == shown
