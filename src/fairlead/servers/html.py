"""HTML read into a tree of what people would see of it. The work is linear in its size, whatever it holds."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any
from urllib.parse import urljoin

MAX_DEPTH = 200
MAX_ELEMENTS = 200_000

_FEED = 16 * 1024
_NEARBY = 50
_MAX_TITLE = 300

_UNSEEN_TAGS = frozenset(
    {"audio", "button", "canvas", "dialog", "embed", "footer", "iframe", "input", "nav", "noscript"}
    | {"object", "script", "select", "style", "svg", "template", "textarea", "video"}
)
_UNSEEN_ROLES = frozenset({"banner", "contentinfo", "dialog", "menu", "navigation", "search"})
_UNSEEN_CLASSES = frozenset(
    {"bottomNav", "breadcrumbs", "skip-link", "skipNav", "sphinxsidebar", "subNav", "topNav"}
    | {"copybtn", "hash-link", "headerlink", "lineno", "linenodiv", "linenos"}
    | {"sr-only", "visually-hidden", "wy-breadcrumbs"}
)
_AROUND = frozenset({"aside", "header"})
"""What holds no content where a page does not say which part of it is the main one."""

_LANDMARKS = frozenset({"article", "base", "body", "h1", "main", "title"})
_NONE: dict[str, str] = {}
_ATTRIBUTES = ("alt", "class", "href", "role", "start")
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)


class _TooMuch(Exception):
    """Nobody writes such a page for readers."""


@dataclass(slots=True)
class Element:
    """A piece of a page: its tag, the attributes that matter, and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: "list[Element | str]" = field(default_factory=list["Element | str"])

    @property
    def elements(self) -> "list[Element]":
        """The elements directly inside."""
        return [child for child in self.children if isinstance(child, Element)]

    def walk(self) -> "Iterator[Element]":
        """This element and every one inside, in the order of the page."""
        waiting: list[Element] = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.elements))

    @property
    def text(self) -> str:
        """All text inside, as it stands, in lines where the page says so."""
        parts: list[str] = []
        waiting: list[Element | str] = [self]
        while waiting:
            piece = waiting.pop()
            if isinstance(piece, str):
                parts.append(piece)
            elif piece.tag == "br":
                parts.append("\n")
            else:
                waiting.extend(reversed(piece.children))
        return "".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class HtmlPage:
    """A page: its title, what it is there to say, and the URL its links are relative to.

    `whole` is false where there was more of it than anybody reads.
    """

    title: str | None
    main: Element
    base: str
    whole: bool


def parse_html(text: str, url: str) -> HtmlPage:
    """Read a page found at `url`."""
    # Imported late because it is slow, and by name because it has no types. It gets a target rather than
    # build a tree of its own: with that, it would need hours for a tag with half a million attributes.
    etree: Any = import_module("lxml.etree")
    builder = _Builder()
    parser = etree.HTMLParser(target=builder, encoding="utf-8", no_network=True)
    whole = True
    try:
        # In small pieces, because the parser goes on to the end of one before it minds our exception.
        for start in range(0, len(text), _FEED):
            parser.feed(text[start : start + _FEED].encode(errors="replace"))
        parser.close()
    except _TooMuch:
        whole = False
    except etree.XMLSyntaxError:
        whole = not text.strip()  # all it complains about is that there is nothing
    return HtmlPage(title=builder.title(), main=builder.main(), base=builder.base(url), whole=whole)


class _Builder:
    """Takes what the parser finds, and leaves out what nobody would see."""

    def __init__(self) -> None:
        self._root = Element("", {})
        self._open = [self._root]
        self._landmarks: dict[str, list[Element]] = {name: [] for name in _LANDMARKS}
        self._unseen = 0
        self._count = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) + self._unseen > MAX_DEPTH:
            raise _TooMuch
        if self._unseen or _is_unseen(tag, attributes):
            self._unseen += 1
            return
        kept = {name: attributes[name] for name in _ATTRIBUTES if name in attributes} if attributes else _NONE
        element = Element(tag, kept)
        self._open[-1].children.append(element)
        self._open.append(element)
        landmark = "main" if kept.get("role") == "main" else tag
        if landmark in _LANDMARKS:
            self._landmarks[landmark].append(element)

    def end(self, tag: str) -> None:
        if self._unseen:
            self._unseen -= 1
        elif len(self._open) > 1:
            self._open.pop()

    def data(self, text: str) -> None:
        if not self._unseen:
            self._open[-1].children.append(text)

    def close(self) -> None:
        """The parser wants to say that it is done."""

    def title(self) -> str | None:
        for element in (*self._landmarks["title"], *self._landmarks["h1"]):
            if title := " ".join(element.text.split()):
                return title[:_MAX_TITLE]
        return None

    def base(self, url: str) -> str:
        """What links are relative to."""
        named = next((e.attributes["href"] for e in self._landmarks["base"] if "href" in e.attributes), "")
        try:
            return urljoin(url, named)
        except ValueError:
            return url

    def main(self) -> Element:
        """What the page is there to say: its main part if it names one, else all but its surroundings."""
        articles = self._landmarks["article"]
        for element in (*self._landmarks["main"][:1], *(articles if len(articles) == 1 else ())):
            if element.text.strip():
                return element
        body = next(iter(self._landmarks["body"]), self._root)
        for element in body.walk():
            element.children = [child for child in element.children if not _is_around(child)]
        return body


def _is_unseen(tag: str, attributes: Mapping[str, str]) -> bool:
    if tag in _UNSEEN_TAGS:
        return True
    if not attributes:
        return False
    role = attributes.get("role")
    # Tabs and folded sections are there to be opened.
    hidden = "hidden" in attributes and attributes["hidden"] != "until-found" and role != "tabpanel"
    return (
        hidden
        or role in _UNSEEN_ROLES
        or attributes.get("aria-hidden") == "true"
        or not _UNSEEN_CLASSES.isdisjoint(attributes.get("class", "").split())
        or _INVISIBLE.search(attributes.get("style", "")) is not None
    )


def _is_around(child: Element | str) -> bool:
    if isinstance(child, str) or child.tag not in _AROUND:
        return False
    return all(element.tag != "h1" for element in islice(child.walk(), _NEARBY))
