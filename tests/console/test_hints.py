"""What a hint names can be typed at the console's prompt."""

import re
from typing import Any

import pytest

from fairlead.console.hints import console_hint
from fairlead.errors import ArgumentsInvalid, CallDenied
from tests.conftest import Machine
from tests.console.support import session_with
from tests.console.test_records import server


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("run `fairlead review x --allow echo` to allow it", "run `/mcp review x --allow echo` to allow it"),
        (
            "run `fairlead review --allow 'a b' -- -x` to allow it",
            "run `/mcp review --allow 'a b' -- -x` to allow it",
        ),
        ("run `fairlead approve x`", "run `/mcp review x`"),
        ("run `fairlead login x`", "run `/mcp login x`"),
        ("run `fairlead login -- -x`", "run `/mcp login -x`"),
        ("run `fairlead login x --scope 'a b'`", "run `fairlead login x --scope 'a b'`"),
        ("call it: `fairlead call x echo --yes`; or", "call it: `/call x echo`; or"),
        ("with `fairlead approvals`", "with `/approve`"),
        ("`fairlead approvals answer 3f once` answers", "`/approve 3f once` answers"),
        ("`fairlead approvals forget x echo` or", "`fairlead approvals forget x echo` or"),
        ("run `fairlead review --all`", "run `fairlead review --all`"),
        ("run `fairlead add x`, `fairlead tools x`", "run `fairlead add x`, `/tools x`"),
        ("an `odd' quote: `fairlead call x 'a`", "an `odd' quote: `fairlead call x 'a`"),
    ],
)
def test_commands_that_the_console_has_are_named_as_they_are_typed_there(said: str, typed: str) -> None:
    assert console_hint(said) == typed


@pytest.mark.parametrize("fields", [{"deny_tools": ["echo"]}, {"approval": {"tools": {"echo": "deny"}}}])
async def test_a_refusal_is_settled_by_typing_what_its_hint_says(
    machine: Machine, fields: dict[str, Any]
) -> None:
    x = server(machine)
    entry = x.entry(trust="untrusted", allow_tools=["*"], **fields)
    async with session_with(machine, {"x": entry}) as console:
        with pytest.raises(CallDenied) as refused:
            await console.does("/call x echo a=1")
        before = len(console.lines)
        console.session.screen.error(refused.value)
        found = re.search(r"run `(/mcp review [^`]+)`", "\n".join(console.lines[before:]))
        assert found is not None, console.lines[before:]
        console.typed.answers = ["no"]  # globs stay
        await console.does(found[1])
        await console.does("/call x echo a=1")
    assert x.calls("echo") == 1


async def test_answers_to_a_review_can_be_typed(machine: Machine) -> None:
    x = server(machine)
    async with session_with(machine, {"x": x.entry(trust="untrusted")}) as console:
        await console.does("/mcp review x --allow all --deny=echo")
        assert machine.load().servers["x"].entry["deny_tools"] == ["echo"]
        for typed in ("x --allow", "x y", "--deny echo"):
            with pytest.raises(ArgumentsInvalid) as caught:
                await console.does(f"/mcp review {typed}")
            assert "/mcp review server" in (caught.value.hint or "")
