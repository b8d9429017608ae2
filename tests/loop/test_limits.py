"""Limits of a run of the model loop."""

from typing import Any

import pytest

from fairlead.errors import ArgumentsInvalid
from fairlead.loop.run import RunLimits


@pytest.mark.parametrize(
    "limits",
    [{"max_steps": 0}, {"max_steps": -1}, {"max_tokens": 0}, {"max_steps": None}, {"max_steps": 1.5}],
)
def test_limits_with_which_no_run_could_begin_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsInvalid, match="must be a whole number above zero"):
        RunLimits(**limits)
