"""Parser of HTML into a tree of its visible content, in linear time."""

import re
import time
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
MAX_SECONDS = 3.0
"""Of processor time for one page; what was read by then is the answer."""

_UNSEEN_TAGS = frozenset(
    {
        "annotation",
        "applet",
        "audio",
        "button",
        "canvas",
        "datalist",
        "dialog",
        "embed",
        "footer",
        "iframe",
        "input",
        "meter",
    }
    | {
        "nav",
        "noembed",
        "noframes",
        "noscript",
        "object",
        "progress",
        "rp",
        "script",
        "select",
        "style",
        "svg",
    }
    | {"template", "textarea", "video"}
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
_ATTRIBUTES = ("alt", "class", "href", "id", "role", "start")

_MAX_STYLE = 20_000
"""How much of an inline style is read; one that is longer hides its element."""
_MAX_SHEETS = 200_000
"""How much of all style sheets in a page is read."""
_MAX_RULES = 5_000


class _PageTooComplex(Exception):
    """A page exceeds the limits of elements, depth or style rules."""


@dataclass(slots=True)
class Element:
    """Element of a page: its tag, relevant attributes, and children."""

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
    """A parsed page: its title, its main content, and the base URL of its links.

    `whole` is false if the page exceeded a limit.
    """

    title: str | None
    main: Element
    base: str
    whole: bool


def parse_html(text: str, url: str) -> HtmlPage:
    """Parse a page found at `url`."""
    # Imported late because it is slow, and by name because it has no types. It gets a target rather than
    # build a tree of its own: with that, it would need hours for a tag with half a million attributes.
    etree: Any = import_module("lxml.etree")
    builder = _Builder()
    parser = etree.HTMLParser(target=builder, encoding="utf-8", no_network=True)
    whole = True
    try:
        # In small pieces, because the parser goes on to the end of one before it minds our exception.
        until = time.thread_time() + MAX_SECONDS
        for start in range(0, len(text), _FEED):
            if time.thread_time() > until:
                raise _PageTooComplex
            parser.feed(text[start : start + _FEED].encode(errors="replace"))
        parser.close()
    except _PageTooComplex:
        whole = False
    except etree.XMLSyntaxError:
        whole = not text.strip()  # all it complains about is that there is nothing
    builder.drop_hidden()
    return HtmlPage(title=builder.title(), main=builder.main(), base=builder.base(url), whole=whole)


class _Builder:
    """Builds the tree from parser events, without what is not visible."""

    def __init__(self) -> None:
        self._root = Element("", {})
        self._open = [self._root]
        self._landmarks: dict[str, list[Element]] = {name: [] for name in _LANDMARKS}
        self._unseen = 0
        self._count = 0
        self._in_sheet = False
        self._css: list[str] = []
        self._css_size = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) + self._unseen > MAX_DEPTH:
            raise _PageTooComplex
        if self._unseen or _is_unseen(tag, attributes):
            self._in_sheet = tag == "style"
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
            self._in_sheet = False
            self._unseen -= 1
        elif len(self._open) > 1:
            self._open.pop()

    def data(self, text: str) -> None:
        if not self._unseen:
            self._open[-1].children.append(text)
        elif self._in_sheet and self._css_size < _MAX_SHEETS:
            self._css.append(text)
            self._css_size += len(text)

    def close(self) -> None:
        """Do nothing at the end of parsing."""

    def drop_hidden(self) -> None:
        """Remove elements that the page's own style sheets hide."""
        rules = HidingRules("".join(self._css))
        if not rules.has_any:
            return
        path: list[Element] = []
        waiting = [(self._root, 0)]
        while waiting:
            element, depth = waiting.pop()
            del path[depth:]
            path.append(element)
            element.children = [
                child for child in element.children if isinstance(child, str) or not rules.hide(child, path)
            ]
            waiting += [(child, depth + 1) for child in element.elements]

    def title(self) -> str | None:
        for element in (*self._landmarks["title"], *self._landmarks["h1"]):
            if title := " ".join(element.text.split()):
                return title[:_MAX_TITLE]
        return None

    def base(self, url: str) -> str:
        """The base URL of links."""
        named = next((e.attributes["href"] for e in self._landmarks["base"] if "href" in e.attributes), "")
        try:
            return urljoin(url, named)
        except ValueError:
            return url

    def main(self) -> Element:
        """The main content: the element that the page marks as such, else all but navigation and the like."""
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
        or "popover" in attributes
        or role in _UNSEEN_ROLES
        or attributes.get("aria-hidden") == "true"
        or not _UNSEEN_CLASSES.isdisjoint(attributes.get("class", "").split())
        or ("style" in attributes and is_hiding(attributes["style"]))
    )


# ── hidden text ──

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(%|[a-z]*)")
_TERM = re.compile(r"([+-]?)\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%|[a-z]*)")
_MATH = re.compile(r"(calc|min|max|clamp)\(([^()]{0,200})\)")
_VARIABLE = re.compile(r"var\(\s*(--[\w-]+)\s*(?:,([^()]*))?\)")
_MAX_VARIABLES = 4
"""How deep custom properties may refer to each other."""
_COMPOUND = r"(?=[\w.#*])(?:[a-z][\w-]*+|\*)?(?:[.#][\w-]++)*+"
_SELECTOR = re.compile(rf"{_COMPOUND}(?:(?:\s*+>\s*+|\s++){_COMPOUND}){{0,7}}", re.I)
_MAX_STEPS = 1_000_000
"""How many elements above others are compared with rules; after that the end of a selector decides."""
_FAR = 200.0
"""How far off the page text has to stand, in pixels, not to be seen there."""
_VERY_FAR = 2000.0
"""Likewise to the right and below, and in sums: `calc(50% - 50vw)` is seen, whatever the window."""
_PIXELS = {"px": 1.0, "": 1.0, "em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0, "pt": 1.33, "pc": 16.0}
_PIXELS.update(
    {"in": 96.0, "cm": 37.8, "mm": 3.78, "vw": 10.0, "vh": 10.0, "vmin": 10.0, "vmax": 10.0, "%": 2.0}
)
_FAINT = 0.05
"""Less opacity, or a smaller scale, counts as hidden."""
_LEGIBLE = 2.0
"""In pixels: smaller letters count as hidden."""


def is_hiding(style: str) -> bool:
    """Whether style declarations hide an element from readers."""
    if len(style) > _MAX_STYLE:
        return True
    declarations = _declarations(style)
    return (
        declarations.get("display") == "none"
        or declarations.get("visibility") in ("hidden", "collapse")
        or declarations.get("content-visibility") == "hidden"
        or _is_faint(declarations)
        or _is_tiny(declarations)
        or _is_clipped(declarations)
        or _is_off_page(declarations)
    )


def _declarations(style: str) -> dict[str, str]:
    """The declarations of a style, plainly written; of two about one thing the last, or the important one."""
    plain = _ESCAPE.sub(_unescape_css, _COMMENT.sub("", style)).lower()
    declarations: dict[str, str] = {}
    important: set[str] = set()
    for declaration in plain.split(";"):
        name, _, value = declaration.partition(":")
        words = " ".join(value.replace("!", " !").split())
        weighty = words.endswith(("!important", "! important"))
        name, words = name.strip(), words.partition("!")[0].strip()
        if words and (weighty or name not in important):
            declarations[name] = words
            important |= {name} if weighty else set()
    if "var(" in plain:
        for name, words in declarations.items():
            declarations[name] = _resolve_variables(words, declarations)
    return declarations


def _resolve_variables(words: str, declarations: dict[str, str]) -> str:
    """A value with the custom properties that the same style sets, or their fallbacks."""
    for _ in range(_MAX_VARIABLES):
        resolved = _VARIABLE.sub(lambda found: declarations.get(found[1], found[2] or ""), words).strip()
        if resolved == words or len(resolved) > _MAX_STYLE:
            break
        words = resolved
    return words


def _unescape_css(escape: re.Match[str]) -> str:
    code = int(escape[1], 16) if escape[1] else 0
    return (chr(code) if 0 < code < 0x110000 else "\ufffd") if escape[1] else escape[2]


def _size(value: str | None) -> float | None:
    """A length in about so many pixels, or a plain number; None where it is neither."""
    if (math := _MATH.match(value or "")) is not None:
        return _calculate(math[1], math[2])
    found = _NUMBER.match(value or "")
    return float(found[1]) * _PIXELS.get(found[2], 1.0) if found else None


def _calculate(function: str, terms: str) -> float | None:
    """About what a function of lengths gives."""
    sizes = [float(f"{sign}{number}") * _PIXELS.get(unit, 1.0) for sign, number, unit in _TERM.findall(terms)]
    if not sizes:
        return None
    match function:
        case "calc":
            return sum(sizes)
        case "min":
            return min(sizes)
        case "max":
            return max(sizes)
        case _:
            return sizes[0]


def _is_faint(declarations: dict[str, str]) -> bool:
    opacity = declarations.get("opacity", "")
    share = _size(opacity)
    if share is not None and (share / 200 if opacity.endswith("%") else share) < _FAINT:
        return True
    if "opacity(0" in declarations.get("filter", "").replace(
        " ", ""
    ) and "opacity(0." not in declarations.get("filter", ""):
        return True
    if (blurred := re.search(r"blur\(([^()]*)\)", declarations.get("filter", ""))) is not None:
        radius = _size(blurred[1].strip())
        if radius is not None and radius >= _ILLEGIBLE_BLUR:
            return True
    color = declarations.get("-webkit-text-fill-color", declarations.get("color", ""))
    if color == "transparent" or _TRANSPARENT.fullmatch(color.replace(" ", "")):
        return True
    behind = declarations.get("background-color", declarations.get("background", ""))
    if not color or not behind:
        return False
    one, other = _rgb(color), _rgb(behind)
    if one is None or other is None:
        return color == behind
    return all(abs(part - against) <= _ALIKE for part, against in zip(one, other, strict=True))


_ILLEGIBLE_BLUR = 8.0
_ALIKE = 16
"""Parts of two colors, of 255, that differ no more than this look the same."""
_TRANSPARENT = re.compile(
    r"(?:rgb|hsl)a?\((?:[^,]*,){3}(?:0|0?\.0+|0%)\)|[a-z]+\([^/]*/(?:0|0?\.0+|0%)\)"
    r"|#[0-9a-f]{3}0|#[0-9a-f]{6}00"
)
_NAMED_COLORS = {"white": "fff", "black": "000"}


def _rgb(color: str) -> tuple[int, int, int] | None:
    """The three parts of a color; None where it is written in another way than most are."""
    digits = _NAMED_COLORS.get(color, color.removeprefix("#"))
    if re.fullmatch(r"[0-9a-f]{3,4}", digits):
        digits = "".join(digit * 2 for digit in digits)
    if re.fullmatch(r"[0-9a-f]{6}(?:[0-9a-f]{2})?", digits):
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if (parts := re.match(r"rgba?\(\s*(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})\b(?!%)", color)) is not None:
        return int(parts[1]), int(parts[2]), int(parts[3])
    if (parts := re.match(r"hsla?\([^%/]{1,40}%[\s,]+(0|100)%", color)) is not None:
        return (255, 255, 255) if parts[1] == "100" else (0, 0, 0)
    return None


def _is_tiny(declarations: dict[str, str]) -> bool:
    size = _size(declarations.get("font-size"))
    if size is None and "font" in declarations:
        size = next(
            (_size(word) for word in declarations["font"].split() if re.match(r"[+.\d]+[a-z%]", word)), None
        )
        size = 0.0 if re.search(r"(?:^|\s)0(?:\s|/)", declarations["font"]) else size
    zoom = _size(declarations.get("zoom"))
    if (size is not None and size < _LEGIBLE) or (zoom is not None and 0 <= zoom < _FAINT):
        return True
    if _is_cut(declarations):
        sides = [_size(declarations.get(f"{most}{side}")) for most in ("", "max-") for side in _SIDES]
        indent = declarations.get("text-indent", "")
        return (
            any(side is not None and side <= 1 for side in sides)
            or _size(declarations.get("line-height")) == 0
            or (indent.endswith("%") and (_size(indent) or 0) >= 100 * _PIXELS["%"])
        )
    return _is_flat(f"{declarations.get('transform', '')} scale({declarations.get('scale', '1')})") or bool(
        re.search(r"[xy]\s+-?(?:90|270)deg", declarations.get("rotate", ""))
    )


_SIDES = ("width", "height", "block-size", "inline-size")


def _is_cut(declarations: dict[str, str]) -> bool:
    """Whether what does not fit in an element is not seen."""
    overflow = " ".join(declarations.get(name, "") for name in ("overflow", "overflow-x", "overflow-y"))
    contained = declarations.get("contain", "")
    return any(word in overflow for word in ("hidden", "clip", "scroll", "auto")) or any(
        word in contained for word in ("paint", "strict", "content")
    )


def _is_flat(transform: str) -> bool:
    """Whether a transformation leaves next to nothing of a width or a height."""
    if re.search(r"rotate[xy]\(\s*-?(?:90|270)deg", transform):
        return True
    for name, given in re.findall(r"(scale[xy3d]*|matrix(?:3d)?)\(([^()]*)\)", transform):
        parts = [_size(part) for part in re.split(r"[\s,]+", given.strip())]
        numbers = [1.0 if part is None else part for part in parts]
        if name.startswith("scale"):
            if any(abs(number) < _FAINT for number in numbers[:2]):
                return True
        elif len(numbers) in (6, 16):
            a, b, c, d = numbers[:4] if len(numbers) == 6 else (*numbers[:2], *numbers[4:6])
            if abs(a * d - b * c) < _FAINT * _FAINT:
                return True
    return False


def _is_clipped(declarations: dict[str, str]) -> bool:
    clip = declarations.get("clip", "").replace(" ", "")
    if re.fullmatch(r"rect\((?:[01](?:px)?,?){4}\)", clip):
        return True
    path = declarations.get("clip-path", declarations.get("-webkit-clip-path", ""))
    if re.match(r"(?:circle|ellipse)\(\s*0|polygon\([0px%,\s]*\)", path):
        return True
    inset = re.match(r"inset\(([\d.%\s]{1,80})[)r]", path)
    sides = [float(side) for side in re.findall(r"(\d+(?:\.\d+)?)%?", inset[1])] if inset else []
    if not sides or "%" not in path:
        return False
    top, right, bottom, left = sides + sides[:1] * 3 if len(sides) == 1 else (sides * 2)[:4]
    if len(sides) == 3:
        left = right
    return top + bottom >= 100 or left + right >= 100


def _is_off_page(declarations: dict[str, str]) -> bool:
    away = [
        "text-indent",
        "letter-spacing",
        "word-spacing",
        "translate",
        "margin",
        "margin-left",
        "margin-top",
    ]
    away += ["margin-right", "margin-inline-start", "margin-inline", "margin-block-start", "margin-block"]
    if declarations.get("position") in ("absolute", "fixed", "relative", "sticky"):
        away += ["left", "top", "right", "bottom", "inset", "inset-inline", "inset-inline-start"]
        away += ["inset-block", "inset-block-start", "inset-block-end", "inset-inline-end"]
        beside = (declarations.get(name, "") for name in ("left", "right", "bottom"))
        if any(re.fullmatch(r"\d{3,}(?:\.\d+)?v[wh]|[2-9]\d\d%|\d{4,}%", value) for value in beside):
            return True
    values = [declarations[name] for name in away if name in declarations]
    transform = declarations.get("transform", "")
    values += re.findall(r"translate[xyz3d]*\(((?:[^()]|\([^()]*\))*)\)", transform)
    values += [" ".join(moved.split(",")[4:6]) for moved in re.findall(r"matrix\(([^)]*)\)", transform)]
    return any(map(_is_far, values))


def _is_far(lengths: str) -> bool:
    """Whether any of these lengths leads off the page."""
    for math in _MATH.finditer(lengths):
        if abs(_calculate(math[1], math[2]) or 0.0) >= _VERY_FAR:
            return True
    sizes = (_size(length) for length in re.split(r"[, ]+", _MATH.sub("", lengths)))
    return any(size is not None and (size <= -_FAR or size >= _VERY_FAR) for size in sizes)


_ALWAYS = re.compile(
    r"@(?:(?:layer|supports|container|scope)[^{};]{0,200}|media\s{0,9}(?:only\s{1,9})?(?:all|screen)?\s{0,9}"
    r"(?:and\s{1,9})?(?:\(\s{0,9}min-width\s{0,9}:\s{0,9}(?:\d{1,3}(?:\.\d{1,4})?px|[0-5]?\d(?:\.\d{1,4})?r?em|0)"
    r"\s{0,9}\)\s{0,9})?)\{",
    re.I,
)


@dataclass(frozen=True, slots=True)
class _Compound:
    """One part of a selector: an element's tag, classes and id; `is_child` where a `>` is before it."""

    is_child: bool
    tag: str
    marks: frozenset[str]

    def fits(self, element: Element) -> bool:
        return self.tag in ("", "*", element.tag) and self.marks.issubset(_marks(element))


class HidingRules:
    """The elements that style sheets hide in every medium, by tag, class, id, and what they are in."""

    def __init__(self, css: str) -> None:
        self._by_end: dict[str, list[tuple[_Compound, ...]]] = {}
        self._steps_left = _MAX_STEPS
        depth = 0
        # Layers, and conditions that hold on a wide screen, are left out; others are for print or small ones.
        for rule in _ALWAYS.sub("", _COMMENT.sub("", css)).split("}", _MAX_RULES)[:_MAX_RULES]:
            selectors, opened, style = rule.rpartition("{")
            depth += rule.count("{")
            # One that is deeper is for print, or for other screens.
            if opened and depth == 1 and is_hiding(style):
                for selector in selectors.split(","):
                    self._add(selector.strip())
            depth = max(0, depth - 1)

    @property
    def has_any(self) -> bool:
        """Whether there is any rule that hides something."""
        return bool(self._by_end)

    def _add(self, selector: str) -> None:
        if not _SELECTOR.fullmatch(selector):
            return
        parts: list[_Compound] = []
        is_child = False
        for word in _ESCAPE.sub(_unescape_css, selector).lower().replace(">", " > ").split():
            if word != ">":
                tag, *marks = re.split(r"(?=[.#])", word)
                parts.append(_Compound(is_child, tag, frozenset(marks)))
            is_child = word == ">"
        last = parts[-1]
        self._by_end.setdefault(next(iter(last.marks), last.tag or "*"), []).append(tuple(parts))

    def hide(self, element: Element, above: list[Element]) -> bool:
        """Whether a rule hides an element that is in these others."""
        for name in (element.tag, "*", *_marks(element)):
            for parts in self._by_end.get(name, ()):
                if parts[-1].fits(element) and (len(parts) == 1 or self._is_in(parts, element, above)):
                    return True
        return False

    def _is_in(self, parts: tuple[_Compound, ...], element: Element, above: list[Element]) -> bool:
        """Whether the elements above fit the other parts of a selector, in their order."""
        self._steps_left -= len(above) * len(parts)
        if self._steps_left < 0:
            return True
        matched, here = {0}, set[int]()
        for each in (*above, element):
            before, here = here, set[int]()
            for place, part in enumerate(parts):
                if (place in before if part.is_child else place in matched) and part.fits(each):
                    here.add(place + 1)
            matched |= here
        return len(parts) in here


def _marks(element: Element) -> list[str]:
    """The classes and the id of an element, as selectors have them."""
    marks = [f".{name}".lower() for name in element.attributes.get("class", "").split()]
    if "id" in element.attributes:
        marks.append(f"#{element.attributes['id']}".lower())
    return marks


def _is_around(child: Element | str) -> bool:
    if isinstance(child, str) or child.tag not in _AROUND:
        return False
    return all(element.tag != "h1" for element in islice(child.walk(), _NEARBY))
