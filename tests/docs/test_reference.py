"""The generated pages are what the code says now."""

import re
from pathlib import Path

import pytest

from fairlead.errors import FairleadError
from fairlead.terminal.exit_codes import Exit
from tests.docs.pages import DOCS
from tests.tools.reference.pages import generated_pages


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """All of them, as they would be written now."""
    return generated_pages()


def test_no_generated_page_is_stale(made: dict[str, str]) -> None:
    stale = [name for name, text in made.items() if not _is(DOCS / name, text)]
    assert stale == [], "run `uv run python -m tests.tools.reference`"


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def test_every_error_has_its_code_and_every_exit_status_its_meaning(made: dict[str, str]) -> None:
    for each in _all_errors(FairleadError):
        assert f"| `{each.code}` |" in made["reference/errors.md"]
        assert re.search(rf"^[│├└─ ]*{each.__name__} ", made["reference/errors.md"], re.MULTILINE)
    for status in Exit:
        assert re.search(rf"^\| {int(status)} \| \S", made["reference/exit-codes.md"], re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    ["configuration", "events", "metrics", "python-api", "adapters", "testing", "errors", "exit-codes"],
)
def test_every_row_of_a_table_has_a_meaning(made: dict[str, str], page: str) -> None:
    rows = re.findall(r"^\| `+ ?(\S+?)`.*\| *\|$", made[f"reference/{page}.md"], re.MULTILINE)
    assert rows == [], "write a description in the model, or a docstring below the field"


def test_headings_of_the_configuration_are_words(made: dict[str, str]) -> None:
    headings = re.findall(r"^## (.*)$", made["reference/configuration.md"], re.MULTILINE)
    assert headings[:3] == ["The file", "A server that is a program", "A server at a URL"]
    assert not [each for each in headings if re.search(r"[a-z][A-Z]", each)]


def _all_errors(kind: type[FairleadError]) -> set[type[FairleadError]]:
    below = [each for each in kind.__subclasses__() if each.__module__ == kind.__module__]
    return {kind}.union(*map(_all_errors, below))
