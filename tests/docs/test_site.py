"""The site has every page, every link leads somewhere, and nothing is loaded from elsewhere.

`.ci/run` builds it strictly, which finds broken links between pages and broken anchors; here is what that
does not look at.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT, Page, all_pages

SITE: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
PAGES = [*all_pages(), *(Page(ROOT / name) for name in ("CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[\w-]+\]: (\S+)$", re.MULTILINE)


def listed(entries: list[Any]) -> Iterator[str]:
    """The pages in a part of the navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from [below] if isinstance(below, str) else listed(below)


def test_every_page_is_in_the_navigation_once() -> None:
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(listed(SITE["nav"])) == pages


def test_the_navigation_is_by_kind() -> None:
    assert [name for entry in SITE["nav"] for name in entry] == [
        "Start here",
        "How-to",
        "Concepts",
        "Reference",
        "Help",
    ]


def test_the_first_page_says_which_how_tos_are_not_run() -> None:
    (how_to,) = [entry["How-to"] for entry in SITE["nav"] if "How-to" in entry]
    read_only = {name for name in listed(how_to) if not Page(DOCS / name).is_session}
    (said,) = re.findall(r"run word for word, except(.*)\Z", (DOCS / "index.md").read_text(), re.DOTALL)
    assert set(re.findall(r"\]\(([^)]+)\)", said)) == read_only


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_to_a_file_leads_to_one(page: Page) -> None:
    prose = re.sub(r"^( *)```.*?^\1```", "", page.text, flags=re.DOTALL | re.MULTILINE)
    for found in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose)):
        target = (found[1] or found[2]).partition("#")[0]
        if target and not target.startswith(("http://", "https://")):
            path = (page.path.parent / target).resolve()
            assert path.exists(), target
            assert page.path.parent == ROOT or path.is_relative_to(DOCS), f"{target} is not on the site"


def test_pages_load_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript", "extra", "repo_url"} & SITE.keys()
    for page in PAGES:
        assert not re.search(
            r"!\[[^\]]*\]\(http|<(?:script|img|link|iframe)\b", re.sub(r"`[^`\n]*`", "", page.text)
        ), page.name


def test_the_site_is_built_for_every_change() -> None:
    assert "zensical build --strict" in (ROOT / ".ci" / "run").read_text()
