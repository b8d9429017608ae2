"""`docs/seeds.md` has a table for each of the five seeds, and names nothing that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
SEEDS = ("000", "001", "002", "003", "004")
VERBS = {verb for group in COMMANDS.values() for verb in group}


def tables() -> dict[str, list[list[str]]]:
    """The rows of each seed's table, without its head."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", (ROOT / "docs" / "seeds.md").read_text(), flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]
        found[section[:3]] = rows
    return found


def rows() -> Iterator[tuple[str, list[str]]]:
    for seed, table in tables().items():
        for row in table:
            yield f"seed {seed}: {row[0][:60]}", row


ROWS = list(rows())


def test_each_seed_has_a_table() -> None:
    assert tuple(tables()) == SEEDS
    assert all(len(table) >= 10 for table in tables().values())


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_a_row_says_what_is_done_and_where_to_see_it(name: str, row: list[str]) -> None:
    assert len(row) == 4, name
    said, done, _, seen = row
    assert said
    assert done
    [place] = re.findall(r"`([^`]+)`", seen)
    if place.startswith("fairlead "):
        assert place.split()[1] in VERBS
    else:
        assert (ROOT / place).exists(), place
    for command in re.findall(r"`fairlead ([a-z]+)", f"{done} {row[2]}"):
        assert command in VERBS, command
