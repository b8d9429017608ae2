"""HTML as values. Everything but `Html` is text: escaped, and with all that hides in it spelled out.

There is no way to write markup but `tag`, and none to have a string taken for markup.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.text import reveal_hidden

_VOID: Final = frozenset({"input", "link", "meta", "wbr"})
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_ADDRESSES: Final = frozenset({"action", "href", "src"})
_SCHEMES: Final = ("https://", "http://", "/", "#")
_PLACELESS: Final = ("/static/", "/login", "/connect/")

BASE: ContextVar[str] = ContextVar("dashboard_base", default="")
"""The path that the pages of the present session are under."""

THEME: ContextVar[str] = ContextVar("dashboard_theme", default="")
"""The theme that the visitor chose; empty where the system's applies."""


def with_session_base(path: str) -> str:
    """Path of a page below the base of this session; paths that need no session stay unchanged."""
    return path if path.startswith(_PLACELESS) else BASE.get() + path


@dataclass(frozen=True, slots=True)
class Html:
    """Markup made by `tag`, which is not escaped again."""

    markup: str


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | bool | None"


def tag(element: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An HTML element. `class_` is the attribute `class`, `aria_label` is `aria-label`; None omits one."""
    opening = f"<{element}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if element in _VOID:
        return Html(opening)
    return Html(f"{opening}{_markup(children)}</{element}>")


def join(*children: Child) -> Html:
    """Several parts as one."""
    return Html(_markup(children))


def image(media_type: str, data: str, alt: str) -> Html | None:
    """An image embedded in the page, from base64; None for any other than a plain raster image."""
    # No regular expression: one takes 60 ms for the longest picture, in which no other thread can run.
    if media_type not in _IMAGES or not data.isascii() or data.encode().translate(None, _BASE64):
        return None
    return Html(f'<img src="data:{media_type};base64,{data}" alt="{_text(alt)}">')


def document(*children: Child, **attributes: Attribute) -> str:
    """A whole HTML document. The attributes are those of its root."""
    return f"<!doctype html>\n{tag('html', *children, lang='en', **attributes).markup}"


def _markup(child: Child) -> str:
    match child:
        case None:
            return ""
        case Html():
            return child.markup
        case str() | int():
            return _content(str(child))
        case _:
            return "".join(map(_markup, child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES and (not text.startswith(_SCHEMES) or text.startswith("//")):
        raise ValueError(f"no page leads to such an address: {name}")
    if name in _ADDRESSES and text.startswith("/"):
        text = with_session_base(text)
    return f' {name}="{_text(text)}"'


def _text(text: str) -> str:
    return escape(text if text.isascii() and text.isprintable() else reveal_hidden(text))


def _content(text: str) -> str:
    """The text of an element. Known secrets are masked here, once for every page, wherever they come from."""
    return _text(gate.mask_secrets(text))
