"""Paths of modules that the documents for contributors name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACES = (ROOT, ROOT / "src" / "fairlead", ROOT / "src", ROOT / "tests")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_in_documents_exist(page: str) -> None:
    named = set(re.findall(r"`((?:[\w.]+/)+\w+\.py)`", (ROOT / page).read_text()))
    assert named
    assert {path for path in named if not any((place / path).exists() for place in PLACES)} == set()
