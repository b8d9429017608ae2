"""A journey for each test; what it took is shown at the end of the run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys.support.person import Journey


@pytest.fixture
def journey(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Journey]:
    """A person with a machine of their own, on the journey that the test's module describes."""
    name = request.node.path.stem.removeprefix("test_").replace("_", " ")
    taken = Journey(name=name, home=tmp_path / "home")
    yield taken
    record_property("journey", (taken.name, taken.commands, round(taken.seconds, 1)))
