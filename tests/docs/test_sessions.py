"""The tutorial and the how-tos are run word for word, each on a machine with nothing on it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Page, all_pages
from tests.docs.session import compare, follow
from tests.journeys.support.person import Journey

SESSIONS = [page for page in all_pages() if page.is_session and page.blocks("console")]

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)


@pytest.fixture
def journey() -> Iterator[Journey]:
    """A reader with a machine of their own. Its path is short, as it is for most readers."""
    with tempfile.TemporaryDirectory(prefix="reader-") as home:
        yield Journey(name="docs", home=Path(home))


@pytest.mark.slow
@pytest.mark.parametrize("page", SESSIONS, ids=[page.name for page in SESSIONS])
def test_a_page_works_as_it_is_printed(page: Page, journey: Journey) -> None:
    follow(page, journey)


def test_output_that_is_not_what_the_page_says_is_noticed() -> None:
    compare("added `…` to fairlead.json\n…\nlast\n", "added `time` to fairlead.json\none\ntwo\nlast\n")
    with pytest.raises(AssertionError):
        compare("added `…` to fairlead.json\nlast\n", "added `time` to fairlead.json\none\ntwo\nlast\n")


def test_a_terminal_where_the_environment_was_not_activated_is_noticed(
    journey: Journey, tmp_path: Path
) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text(
        "<!-- test: clone fairlead -->\n"
        "```console\n$ source ~/fairlead/.venv/bin/activate\n$ fairlead version\n```\n"
        "<!-- test: terminal second -->\n"
        "```console\n$ fairlead version\n```\n"
    )
    with pytest.raises(AssertionError, match="`fairlead version` ended with 127"):
        follow(page, journey)
