"""The messages that the page on troubleshooting quotes are ones that Fairlead prints."""

import ast
import functools
import re

import pytest

from tests.docs.pages import DOCS, ROOT

MESSAGES = re.findall(
    r"^### `(.*)`$", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
)


@functools.cache
def said() -> str:
    """Every text in the source, with `…` where values are filled in."""
    texts: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values]
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return re.sub(r"`?…(?::…)?`?", "…", "\n".join(texts))


def test_there_are_messages() -> None:
    assert len(MESSAGES) >= 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_that_is_printed(message: str) -> None:
    assert message in said()
