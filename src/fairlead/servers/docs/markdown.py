"""Conversion of a parsed page to Markdown, with its links and code.

Pages of documentation are the point, so signatures, tables and indexes are kept. It is for reading and not
for turning back into HTML: nothing is escaped, which would only cost the reader.
"""

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

from fairlead.servers.docs.html import MAX_SECONDS, Element

_MAX_INDENTS = 8

_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "tt": "`"}
_BLOCKS = frozenset(
    {"address", "article", "aside", "body", "caption", "center", "details", "div", "fieldset", "figcaption"}
    | {"figure", "form", "header", "hgroup", "html", "legend", "li", "main", "p", "section", "summary"}
    | {"tbody", "td", "tfoot", "th", "thead", "tr"}
)
_NOT_IN_A_CELL = frozenset({"blockquote", "dl", "ol", "pre", "table", "ul", *_HEADINGS})

_BREAK = "\x0b"
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source|highlight)-([\w+#.-]+)")
_NO_LANGUAGE = frozenset({"default", "none", "notranslate", "plain", "plaintext", "text"})
_ANCHOR = re.compile(r"[¶§#🔗\s]*")
_FENCE = re.compile(r"`{3,}")


class _Full(Exception):
    """There is no more room."""


@dataclass(slots=True)
class _Indent:
    """Beginnings of lines inside a list or a quotation: of the first, and of the others."""

    first: str
    rest: str
    used: bool = False

    def take(self) -> str:
        taken = self.rest if self.used else self.first
        self.used = True
        return taken


def to_markdown(root: Element, base: str, limit: int) -> tuple[str, bool]:
    """Convert an element to Markdown of at most `limit` characters; also returns whether that is all.

    Links are relative to `base` in the page and absolute in the text.
    """
    writer = _Writer(base, limit)
    try:
        writer.visit(root)
        writer.end_block()
    except _Full:
        return writer.text[:limit], False
    return writer.text, True


class _Writer:
    """Writes lines as it is led through a tree. Words are gathered until the block they are in ends."""

    def __init__(self, base: str, room: int) -> None:
        self._base = base
        self._room = room
        self._until = time.thread_time() + MAX_SECONDS
        self._lines: list[str] = []
        self._words: list[str] = []
        self._link_size = 0
        self._blocks = 0
        self._indents: list[_Indent] = []
        self._gap = False
        self._plain = 0
        self._language = ""

    @property
    def text(self) -> str:
        """The Markdown written so far."""
        return "\n".join(self._lines)

    def visit(self, element: Element) -> None:
        """Write an element."""
        _VISITORS.get(element.tag, _Writer.visit_children)(self, element)

    def end_block(self) -> None:
        """Write the collected words, if there are any."""
        self._blocks += 1
        if not self._words:
            return
        lines = [" ".join(line.split()) for line in "".join(self._words).split(_BREAK)]
        self._words.clear()
        self._link_size = 0
        if any(lines):
            self._write(line for line in lines if line)

    def _write(self, lines: Iterable[str]) -> None:
        if self._gap and self._lines:
            self._put("".join(indent.rest for indent in self._indents if indent.used))
        prefix = "".join(indent.take() for indent in self._indents)
        rest = "".join(indent.rest for indent in self._indents)
        for line in lines:
            self._put(prefix + line)
            prefix = rest
        self._gap = True

    def _put(self, line: str) -> None:
        if len(self._lines) % 256 == 0 and time.thread_time() > self._until:
            raise _Full
        self._lines.append(line.rstrip())
        self._room -= len(line) + 1
        if self._room < 0:
            raise _Full

    @contextmanager
    def _indent_block(self, first: str, rest: str = "") -> Generator[None]:
        self.end_block()
        if len(self._indents) >= _MAX_INDENTS:
            # Every line is written with all indents: without a bound a page of nested headings is quadratic.
            yield
            self.end_block()
            return
        self._indents.append(_Indent(first, rest))
        yield
        self.end_block()
        self._indents.pop()

    @contextmanager
    def _plainly(self) -> Generator[None]:
        """Write without links and marks: in a heading or a signature they only get in the way."""
        self._plain += 1
        yield
        self._plain -= 1

    # Blocks.

    def visit_children(self, element: Element) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._words.append(child)
            else:
                self.visit(child)

    def visit_block(self, element: Element) -> None:
        self._language = _language(element) or self._language
        self.end_block()
        self.visit_children(element)
        self.end_block()

    def visit_heading(self, element: Element) -> None:
        with self._indent_block(_HEADINGS[element.tag]), self._plainly():
            self.visit_children(element)

    def visit_quotation(self, element: Element) -> None:
        with self._indent_block("> ", "> "):
            self.visit_children(element)

    def visit_rule(self, element: Element) -> None:
        self.end_block()
        self._write(["---"])

    def visit_list(self, element: Element) -> None:
        self.end_block()
        start = element.attributes.get("start", "")
        number = int(start) if start.isdecimal() and len(start) < 9 else 1
        self._gap = self._gap and not self._indents  # a list in a list goes on with it
        for child in element.elements:
            marker = f"{number}. " if element.tag == "ol" else "- "
            with self._indent_block(marker, " " * len(marker)):
                self.visit_children(child)
            self._gap = False
            number += 1
        self._gap = True

    def visit_terms(self, element: Element) -> None:
        self.end_block()
        for child in element.elements:
            self.visit(child)
            self._gap = False
        self._gap = True

    def visit_term(self, element: Element) -> None:
        with self._indent_block("- ", "  "), self._plainly():
            self.visit_children(element)
        self._gap = False

    def visit_description(self, element: Element) -> None:
        with self._indent_block("  ", "  "):
            self.visit_children(element)
        self._gap = False

    def visit_code(self, element: Element) -> None:
        self.end_block()
        code = element.text.replace("\r\n", "\n").strip("\n").rstrip()
        named = [language for inner in (element, *element.elements[:1]) if (language := _language(inner))]
        language, self._language = (*named, self._language)[0], ""
        if code:
            fence = max(("```", *(run + "`" for run in _FENCE.findall(code))), key=len)
            self._write((f"{fence}{language}", *code.split("\n"), fence))

    def visit_table(self, element: Element) -> None:
        self.end_block()
        for part in element.elements:
            if part.tag == "caption":
                self.visit_block(part)
        rows = _rows(element)
        inside = (inner.tag for part in element.elements for inner in part.walk())
        if max(map(len, rows), default=0) > 1 and _NOT_IN_A_CELL.isdisjoint(inside):
            self._write(self._table_lines(rows))
        else:
            # Made for the looks of it, or too rich for a row of a table in Markdown.
            for row in rows:
                for cell in row:
                    self.visit_block(cell)

    def _table_lines(self, rows: list[list[Element]]) -> Iterator[str]:
        width = max(map(len, rows))
        for index, row in enumerate(rows):
            yield f"| {' | '.join([*map(self._cell, row), *[''] * (width - len(row))])} |"
            if index == 0:
                yield "|" + "---|" * width

    def _cell(self, element: Element) -> str:
        writer = _Writer(self._base, self._room)
        writer.visit(element)
        return " ".join(writer.text.split()).replace("|", "\\|")

    # Words.

    def visit_marked(self, element: Element) -> None:
        mark = _MARKS[element.tag]
        if mark == "`" and any(child.tag == "a" for child in element.elements):
            mark = ""  # A link is worth more than the looks of code, and cannot be inside it.
        self._visit_words(element, lambda words: f"{mark}{words}{mark}")

    def visit_link(self, element: Element) -> None:
        target = self._target(element.attributes.get("href", ""))
        blocks = self._blocks
        self._visit_words(element, lambda words: f"[{words}]({target})" if target else words)
        if target and blocks != self._blocks:
            self.end_block()  # A card, rather than words: the link comes after it.
            self._write([f"<{target}>"])

    def _visit_words(self, element: Element, mark: Callable[[str], str]) -> None:
        """Gather the words inside and mark them, unless they are more than words or none."""
        start, blocks = len(self._words), self._blocks
        self.visit_children(element)
        if blocks != self._blocks:
            return
        inside = "".join(self._words[start:])
        words = inside.strip()
        del self._words[start:]
        if element.tag == "a" and _ANCHOR.fullmatch(words):
            return  # The sign that links a heading to itself.
        before, _, after = inside.partition(words) if words else (inside, "", "")
        self._words += (before, mark(words) if words and not self._plain else words, after)

    def _target(self, reference: str) -> str:
        """URL of a link, if that is another page on the web."""
        if not reference or reference.startswith("#"):
            return ""
        try:
            target = urljoin(self._base, reference.strip())
        except ValueError:
            return ""
        if not target.startswith(("https://", "http://")):
            return ""
        self._link_size += len(target)
        if self._link_size > self._room:
            raise _Full
        return target.replace(" ", "%20")

    def visit_image(self, element: Element) -> None:
        words = " ".join(element.attributes.get("alt", "").split())
        if words:
            self._words.append(words if self._plain else f"![{words}]")

    def visit_break(self, element: Element) -> None:
        self._words.append(_BREAK)


_VISITORS: dict[str, Callable[[_Writer, Element], None]] = {
    **dict.fromkeys(_BLOCKS, _Writer.visit_block),
    **dict.fromkeys(_HEADINGS, _Writer.visit_heading),
    **dict.fromkeys(_MARKS, _Writer.visit_marked),
    "a": _Writer.visit_link,
    "blockquote": _Writer.visit_quotation,
    "br": _Writer.visit_break,
    "dd": _Writer.visit_description,
    "dl": _Writer.visit_terms,
    "dt": _Writer.visit_term,
    "hr": _Writer.visit_rule,
    "img": _Writer.visit_image,
    "ol": _Writer.visit_list,
    "pre": _Writer.visit_code,
    "table": _Writer.visit_table,
    "ul": _Writer.visit_list,
}


def _rows(table: Element) -> list[list[Element]]:
    """The cells of a table, row by row; those of tables inside it are none of its own."""
    rows: list[list[Element]] = []
    for part in table.elements:
        for row in part.elements if part.tag in ("thead", "tbody", "tfoot") else (part,):
            cells = [cell for cell in row.elements if cell.tag in ("td", "th")]
            if row.tag == "tr" and cells:
                rows.append(cells)
    return rows


def _language(element: Element) -> str:
    named = _LANGUAGE.search(element.attributes.get("class", ""))
    return "" if named is None or named[1] in _NO_LANGUAGE else named[1]
