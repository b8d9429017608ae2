"""The pages of the documentation and the code blocks in them: what tests run, and what they leave as output.

The language of a block says what a test does with it:

- `console`: commands after `$ `, and what they print. They are run in a terminal where the page is a session
  (the tutorial and the how-tos, see `session.py`); elsewhere the command line has to take them.
- `python`: a program. It is run, and prints what its comments `# → …` say. With `title="name"` it is a file
  of a session.
- `json`, `jsonc`, `yaml`: read; what is a configuration has to be a valid one. With a title they are files of
  a session.
- `text`: output, or a drawing. It is not run.

A comment `<!-- test: … -->` on a line of its own tells a session what to do there; `not run, REASON` is for a
block that cannot be run in a test.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_PART = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ \t]*$"
    r"|^<!-- test: (?P<words>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = "not run, "


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block."""

    language: str
    title: str | None
    text: str
    line: int
    not_run: str = ""
    """Why it cannot be run."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A comment that tells a session what to do."""

    words: str


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def is_generated(self) -> bool:
        """Is it written by `tests.tools.reference`?"""
        return self.text.startswith("<!-- Generated")

    @property
    def is_session(self) -> bool:
        """Are its blocks run one after the other, in one session?"""
        return self.path.name == "tutorial.md" or self.path.parent.name == "how-to"

    def parts(self) -> Iterator[Block | Step]:
        """The blocks, and what a session has to do between them."""
        reason = ""
        for found in _PART.finditer(self.text):
            if words := found["words"]:
                if words.startswith(_NOT_RUN):
                    reason = words.removeprefix(_NOT_RUN)
                else:
                    yield Step(words=words)
                continue
            language, _, rest = found["info"].strip().partition(" ")
            title = _TITLE.search(rest)
            yield Block(
                language=language,
                title=title[1] if title else None,
                text=_included(_dedented(found["text"], found["indent"])),
                line=self.text.count("\n", 0, found.start()) + 1,
                not_run=reason,
            )
            reason = ""

    def blocks(self, *languages: str) -> list[Block]:
        """The blocks of some languages, or all."""
        found = [part for part in self.parts() if isinstance(part, Block)]
        return [block for block in found if not languages or block.language in languages]


def _dedented(text: str, indent: str) -> str:
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) if indent else text


def _included(text: str) -> str:
    """A text with the files that it includes, as the site shows them."""
    return re.sub(
        r'^--8<-- "(.*)"$',
        lambda found: (ROOT / found[1]).read_text(encoding="utf-8"),
        text,
        flags=re.MULTILINE,
    )


def document(block: Block) -> Any:
    """The JSON in a block, comments left out."""
    return json.loads(re.sub(r"^\s*//.*$", "", block.text, flags=re.MULTILINE))


def all_pages() -> list[Page]:
    """Every page of the site, and those of the repository that are for its users."""
    return [Page(ROOT / "README.md"), *map(Page, sorted(DOCS.rglob("*.md")))]
