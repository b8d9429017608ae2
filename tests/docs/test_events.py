"""`docs/events.md` lists every event with all its fields."""

import re
from collections.abc import Iterable
from typing import get_args

import pytest

from fairlead.events import Event
from tests.docs.pages import DOCS

TEXT = (DOCS / "events.md").read_text(encoding="utf-8")
ROWS = {
    found[1]: set(re.findall(r"`(\w+)`", found[2]))
    for found in re.finditer(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", TEXT, re.MULTILINE)
}


def fields_of(kind: type) -> set[str]:
    """What a program can read of an event: fields and properties."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    return {*names} | {name for name in dir(kind) if isinstance(getattr(kind, name), property)}


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_the_docs_list_all_fields_of_an_event(kind: type) -> None:
    """Seed 004: events for the terminal, with invocation details and timing of each call."""
    assert ROWS[kind.__name__] == fields_of(kind)


def test_the_docs_list_no_other_events() -> None:
    assert ROWS.keys() == {kind.__name__ for kind in get_args(Event)}
