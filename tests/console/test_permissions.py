"""The console decides by the table of permissions: what the user types, and what the model calls for them."""

from collections.abc import Callable

import pytest

from fairlead.errors import FairleadError
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.loop.model_server import Calls, results_in, says, serving
from tests.policy.permission_cells import CELLS, Cell, Table, outcome_of, require_alike


@pytest.fixture
def table(machine: Machine, fairlead: Callable[..., Outcome]) -> Table:
    table = Table(machine)
    table.prepare(fairlead)
    table.forget_calls()
    return table


async def test_what_is_typed_is_the_users_own_word_for_one_call(table: Table, machine: Machine) -> None:
    outcomes: dict[Cell, str] = {}
    async with session_on(machine) as console:
        for cell in CELLS:
            try:
                shown = await console.does(f"/call {cell.server} {cell.tool}")
                outcomes[cell] = "called" if shown == "{}" else shown
            except FairleadError as exc:  # which the prompt shows
                outcomes[cell] = f"{exc}; {exc.hint}"
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow" or cell.is_users_to_overrule)


@pytest.mark.parametrize("answer", ["once", "no"])
async def test_the_user_is_asked_about_the_models_calls_that_ask_and_about_no_others(
    table: Table, machine: Machine, answer: str
) -> None:
    calls: Calls = [(f"c{number}", f"{cell.server}.{cell.tool}", {}) for number, cell in enumerate(CELLS)]
    asking = [cell for cell in CELLS if cell.verdict == "ask"]
    with serving(says("openai", calls=calls), says("openai", "done")) as api:
        async with session_on(machine, *[answer] * len(asking)) as console:
            console.session.conversation.model = api.model("openai")
            await console.does("go")
        told = results_in("openai", api.bodies[1])
        assert len(console.prompts) == len(asking)
    outcomes = {cell: outcome_of(told[f"c{number}"]) for number, cell in enumerate(CELLS)}
    if answer == "no":
        for cell in asking:
            assert "the user denied it" in outcomes.pop(cell)
    is_called = ("allow", "ask")
    require_alike(table, outcomes, called=lambda cell: cell.verdict in is_called, refused=Cell.require_told)
