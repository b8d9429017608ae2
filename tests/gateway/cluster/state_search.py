"""An explicit-state model checker: every state that a model can reach, breadth first, each looked at once."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

MAX_STATES = 2_000_000
"""A model with more states than this is too large to be searched in a test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome(Generic[State]):
    """What a search found: how many states there are, and the shortest way to one that must not be."""

    states: int
    steps: int
    broken: str | None = None
    """The rule that does not hold in the last state of the trace; None where all rules hold in all states."""
    trace: tuple[tuple[str, State], ...] = ()
    """What happened, step by step, and the state after each."""
    seen: frozenset[str] = frozenset()
    """The goals that some state reaches: a model in which nothing happens breaks no rule either."""

    def explain(self) -> str:
        """The trace as lines to read."""
        lines = [f"{number:3}. {label}" for number, (label, _) in enumerate(self.trace, 1)]
        return "\n".join([*lines, f"  => {self.broken}"])


def search(
    start: State,
    successors: Callable[[State], Iterable[tuple[str, State]]],
    broken_rule: Callable[[State], str | None],
    goals: Callable[[State], Iterable[str]] = lambda _state: (),
) -> SearchOutcome[State]:
    """Visit every reachable state, up to the first that breaks a rule.

    Args:
        start: The first state.
        successors: Returns what can happen in a state: a label, and the state after it.
        broken_rule: Returns the rule that a state breaks, or None.
        goals: Returns the goals that a state reaches.

    Returns:
        The counts, and the shortest trace to a state that breaks a rule if there is one.
    """
    came_from: dict[State, tuple[str, State] | None] = {start: None}
    waiting = deque([start])
    seen: set[str] = set()
    steps = 0
    while waiting:
        state = waiting.popleft()
        for label, following in successors(state):
            steps += 1
            if following in came_from:
                continue
            came_from[following] = (label, state)
            seen.update(goals(following))
            if (broken := broken_rule(following)) is not None:
                trace = _trace_to(following, came_from)
                return SearchOutcome(
                    states=len(came_from), steps=steps, broken=broken, trace=trace, seen=frozenset(seen)
                )
            waiting.append(following)
        if len(came_from) > MAX_STATES:
            raise AssertionError(f"the model has more than {MAX_STATES} states")
    return SearchOutcome(states=len(came_from), steps=steps, seen=frozenset(seen))


def _trace_to(
    state: State, came_from: dict[State, tuple[str, State] | None]
) -> tuple[tuple[str, State], ...]:
    trace: list[tuple[str, State]] = []
    while (step := came_from[state]) is not None:
        label, before = step
        trace.append((label, state))
        state = before
    return tuple(reversed(trace))
