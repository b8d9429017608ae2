"""The table of states: every pair is either a legal move or a bug."""

from itertools import product
from typing import get_args

import pytest

from fairlead.connection.state import NEXT, check_move
from fairlead.events import ServerState

STATES: tuple[ServerState, ...] = get_args(ServerState)

LEGAL: set[tuple[ServerState, ServerState]] = {
    ("idle", "connecting"),
    ("connecting", "ready"),
    ("connecting", "error"),
    ("connecting", "auth_required"),
    ("connecting", "idle"),
    ("ready", "idle"),
    ("ready", "error"),
    ("ready", "auth_required"),
    ("ready", "connecting"),
    ("error", "connecting"),
    ("error", "ready"),
    ("error", "auth_required"),
    ("error", "idle"),
    ("auth_required", "connecting"),
    ("auth_required", "ready"),
    ("auth_required", "error"),
    ("auth_required", "idle"),
    ("connecting", "needs_client_registration"),
    ("ready", "needs_client_registration"),
    ("error", "needs_client_registration"),
    ("auth_required", "needs_client_registration"),
    ("needs_client_registration", "connecting"),
    ("needs_client_registration", "ready"),
    ("needs_client_registration", "error"),
    ("needs_client_registration", "auth_required"),
    ("needs_client_registration", "idle"),
}


def test_the_table_names_every_state() -> None:
    assert set(NEXT) == set(STATES)


@pytest.mark.parametrize(("before", "after"), [*product(STATES, STATES)])
def test_a_move_is_allowed_if_and_only_if_it_is_in_the_table(before: ServerState, after: ServerState) -> None:
    if (before, after) in LEGAL:
        check_move(before, after)
    else:
        with pytest.raises(AssertionError, match=f"from {before} to {after}"):
            check_move(before, after)
