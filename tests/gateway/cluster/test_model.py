"""Every run of the model of owners, leases and delivery keeps its promises, and none of its rules is idle."""

import logging
import os
from functools import partial

import pytest

from tests.gateway.cluster.ownership_model import Rules, System, broken_rule, first_state, goals, successors
from tests.gateway.cluster.state_search import SearchOutcome, search

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

ALL_GOALS = {
    "all calls answered",
    "answered by way of the owner",
    "answered after a takeover",
    "unknown, and it was run",
}

SIZES = [
    pytest.param(Rules(faults=1, clock_step=1), id="two calls, one fault"),
    pytest.param(Rules(replicas=3, faults=0), id="two calls at three replicas"),
    pytest.param(Rules(replicas=3, calls=1, faults=3, leases=3), id="one call, three faults"),
]
if os.environ.get("FAIRLEAD_FULL"):
    SIZES.append(pytest.param(Rules(faults=2, clock_step=1), id="two calls, two faults"))


def search_all(rules: Rules) -> SearchOutcome[System]:
    return search(first_state(rules), partial(successors, rules), broken_rule, goals)


@pytest.mark.parametrize("rules", SIZES)
def test_no_run_executes_a_call_twice_crosses_answers_or_has_two_processes(rules: Rules) -> None:
    outcome = search_all(rules)
    assert outcome.broken is None, outcome.explain()
    assert outcome.seen == ALL_GOALS
    assert outcome.states > 10_000


@pytest.mark.parametrize(
    ("rules", "broken", "decisive"),
    [
        pytest.param(
            Rules(guardian_has_deadline=False),
            "two processes take calls at the same time",
            "replica 0 is paused",
            id="no deadline at the guardian",
        ),
        pytest.param(
            Rules(silence_is_unknown=False),
            "a call was run twice",
            "replica 0 hears nothing about call 0: it is sent again",
            id="silence is tried again",
        ),
        pytest.param(
            Rules(answers_belong_to_exchanges=False),
            "a call was answered with another's answer",
            "replica 0 gets the answer of call 1 for call 0",
            id="answers in one stream",
        ),
        pytest.param(
            Rules(process_ends_before_release=False),
            "two processes take calls at the same time",
            "replica 0 releases its lease",
            id="released before the process ends",
        ),
    ],
)
def test_without_one_of_the_rules_a_run_breaks_a_promise(rules: Rules, broken: str, decisive: str) -> None:
    outcome = search_all(rules)
    logger.info("the shortest run that breaks it:\n%s", outcome.explain())
    assert outcome.broken == broken
    assert decisive in [label for label, _ in outcome.trace]


def test_a_clock_of_the_store_that_is_set_by_more_than_the_margin_can_let_two_processes_overlap() -> None:
    """The limit of what is promised: calls still run once each, but for a moment two processes live."""
    outcome = search_all(Rules(faults=1, clock_step=2))
    logger.info("the shortest run that breaks it:\n%s", outcome.explain())
    assert outcome.broken == "two processes take calls at the same time"
    assert all(call.runs <= 1 for call in outcome.trace[-1][1].calls)
