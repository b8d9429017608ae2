"""File names: how they are shown, and which ones are not for reading."""

import unicodedata
from collections.abc import Iterable

_PRIVATE = {".git", ".hg", ".jj", ".svn", "git~1"}
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escaped(name: str) -> str:
    r"""A file name fit to be shown: what is not UTF-8, or cannot be seen, becomes `\xff` or `\u200b`."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(map(_escaped, name))


def _escaped(character: str) -> str:
    code = ord(character)
    if character == "\\":
        return r"\\"
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def similar(name: str, among: Iterable[str]) -> list[str]:
    """Up to three names that may have been meant, likeliest first: they share half of their pairs of letters.

    More thorough ways take a time that grows with the square of the lengths, and names can be made for that.
    """
    scored = sorted((-_likeness(name, other), other) for other in among)
    return [other for score, other in scored[:3] if score <= -0.5]


def _likeness(one: str, other: str) -> float:
    pairs, others = ({*zip(f" {name}", name, strict=False)} for name in (one.lower(), other.lower()))
    return 2 * len(pairs & others) / max(1, len(pairs) + len(others))


def is_private(name: str) -> bool:
    """Whether a folder of that name is where a version control system keeps its own, credentials included.

    Some file systems ignore case, characters that cannot be seen, or dots at the end; so does this.
    """
    return "".join(filter(str.isprintable, name)).rstrip(". ").casefold() in _PRIVATE
