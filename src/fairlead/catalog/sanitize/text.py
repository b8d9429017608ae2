r"""Sanitizing of text: removal of hidden characters, control characters and escape sequences.

Removes what controls a terminal, reorders text or is invisible: escape sequences with their payload,
control characters except `\n` and `\t`, tags, bidirectional controls, zero-width and other invisible
characters, lone surrogates, private use and noncharacters. Other line breaks become `\n`.

Some invisible characters carry meaning, and stay where they do, one at a time:

- a joiner or non-joiner after a letter of a script that joins its letters (Persian, Hindi, Bengali, …),
- the selectors and the vowel separator of Mongolian after a Mongolian letter,
- the choice between text and picture after a character that has both, and in a keycap,
- the joiner between two emoji.

Everywhere else they can spell an invisible message and are removed, at a price: the flags of England,
Scotland and Wales (written with tags) become black flags, rare variants of Han characters their usual form,
and Khmer or Thai loses its hints for line breaks. An unterminated escape sequence loses only its start, and
so does one of the 8-bit kind, which garbled text has by accident: what they would have hidden stays.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal

HiddenKind = Literal[
    "escape", "control", "tag", "bidi", "variation", "invisible", "surrogate", "private", "noncharacter"
]

MAX_READ_CHARACTERS = 8192
MAX_ADVISED_CHARACTERS = 50_000
"""A longer text is suspicious by its length alone."""

_Ranges = tuple[tuple[int, int], ...]

_HIDDEN_RANGES: dict[HiddenKind, _Ranges] = {
    "control": ((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029)),
    "tag": ((0xE0000, 0xE007F),),
    "bidi": ((0x061C, 0x061C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069)),
    "variation": ((0x180B, 0x180D), (0x180F, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)),
    "invisible": (
        *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180E, 0x180E)),
        *((0x200B, 0x200D), (0x2060, 0x2065), (0x206A, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF)),
        *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
        *((0xE0080, 0xE00FF), (0xE01F0, 0xE0FFF)),
    ),
    "surrogate": ((0xD800, 0xDFFF),),
    "private": ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)),
    "noncharacter": (
        *((0xFDD0, 0xFDEF), (0xFFFE, 0xFFFF)),
        *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 17)),
    ),
}


def _characters(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)


_ALL = sorted(limits for ranges in _HIDDEN_RANGES.values() for limits in ranges)
_BASIC = _characters(limits for limits in _ALL if limits[0] < 0x10000)
_BEYOND = [limits for limits in _ALL if limits[0] >= 0x10000]
_VISIBLE_BEYOND = _characters(
    (before + 1, after - 1)
    for (_, before), (after, _) in pairwise([(0, 0xFFFF), *_BEYOND, (0x110000, 0x110000)])
    if before + 1 < after
)

_JOINING = (
    "[\u0620-\u074f\u0750-\u077f\u07ca-\u07fa\u0840-\u085b\u0860-\u08ff"  # Arabic and related scripts
    "\u0900-\u0dff\u1820-\u18aa\u1b00-\u1b7f\ua980-\ua9df]"  # India, Mongolia, Bali and Java
)
_EMOJI = (
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_KEPT = (
    f"[{_VISIBLE_BEYOND}]",
    f"{_JOINING}[\u200c\u200d]",
    "[\u1820-\u18aa][\u180b-\u180f]",
    f"{_EMOJI}[\ufe0e\ufe0f]",
    "[#*0-9]\ufe0f(?=\u20e3)",
    f"{_EMOJI}\u200d(?={_EMOJI})",
    f"{_EMOJI}\ufe0f\u200d(?={_EMOJI})",
)

# CSI; OSC, DCS and similar with their payload, if they end on their line; any other escape.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b[]PX^_][^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*+[0-~]?"
)
_BREAKS = ("\r\n", "\r", "\v", "\f", "\u2028", "\u2029")
_PLAIN_ASCII = bytes((*b"\t\n", *range(0x20, 0x7F)))
_ASCII_CONTROLS = bytes({*range(0x80)} - {*_PLAIN_ASCII})
_ASTRAL_BYTES = tuple(bytes((lead,)) for lead in range(0xF0, 0xF5))


def clean(text: str) -> str:
    """Sanitize a text; most often returns the very same text, at little cost."""
    if not _is_suspect(text, text.encode(errors="surrogatepass")):
        return text
    return _without_hidden(_with_plain_breaks(_ESCAPES.sub("", text)))


# Patterns with thousands of characters take milliseconds to compile, and most commands need none of them.
# Each begins with one set of characters, which the engine finds quickly; it has all of the astral planes,
# since one range takes a fraction of the time of twenty.


@cache
def _basic_suspect() -> re.Pattern[str]:
    return re.compile(f"[{_BASIC}]")


@cache
def _suspect() -> re.Pattern[str]:
    return re.compile(f"[{_BASIC}\U00010000-\U0010ffff](?<!{_KEPT[0]})")


@cache
def _hidden_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_BASIC}\U00010000-\U0010ffff]" + "".join(f"(?<!{kept})" for kept in _KEPT))


def _without_hidden(text: str) -> str:
    if text.isascii():
        return text.encode().translate(None, _ASCII_CONTROLS).decode()
    # A native pass over a long text blocks other threads; calling back does not.
    return _hidden_pattern().sub("" if len(text) <= _LONG_TEXT else _remove, text)


_LONG_TEXT = 32 * 1024


def _remove(_match: re.Match[str]) -> str:
    return ""


def _is_suspect(text: str, encoded: bytes) -> bool:
    """Whether there is any character that has to be removed, unless its place is valid."""
    if text.isascii():
        return bool(encoded.translate(None, _PLAIN_ASCII))
    if len(encoded) < 1.5 * len(text):  # mostly ASCII, which goes faster by bytes
        text = encoded.translate(None, _PLAIN_ASCII).decode(errors="surrogatepass")
    astral = any(lead in encoded for lead in _ASTRAL_BYTES)
    return bool((_suspect() if astral else _basic_suspect()).search(text))


def _with_plain_breaks(text: str) -> str:
    for line_break in _BREAKS:
        text = text.replace(line_break, "\n")
    return text


# JSON.

# Escapes of what may have to be removed. All surrogates are included: only a parser tells a pair.
_ESCAPED = re.compile(
    rb"\\(?:[bfr]|u(?:0(?:0(?:[0189]|7[fF]|[aA][dD])|34[fF]|61[cC])|1(?:15[fF]|160|7[bB][45]|80[b-fB-F])"
    rb"|2(?:00[b-fB-F]|02[89a-eA-E]|06)|3164|[dD][89a-fA-F]|[eE]"
    rb"|[fF](?:[0-8]|[dD][deDE]|[eE](?:0|[fF][fF])|[fF](?:[aA]0|[fF]))))"
)


def has_hiding_escape(raw: bytes) -> bool:
    """Whether there is an escape in this JSON that may be a hidden character."""
    # Looking for one byte first takes a thirtieth of the time.
    return b"\\" in raw and bool(_ESCAPED.search(raw))


def may_hide(raw: bytes) -> bool:
    """Whether this JSON may have hidden characters. A no is certain and cheap, a yes asks for a closer look.

    Raises `ValueError` for invalid UTF-8.
    """
    return has_hiding_escape(raw) or _is_suspect(raw.decode(errors="surrogatepass"), raw)


# Findings for reviewers.


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenText:
    """Hidden characters in a text: their kind, count, and beginning made readable.

    `gate.sample` masks and cuts it, in this order, before it is shown.
    """

    kind: HiddenKind
    count: int
    sample: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanText:
    """A sanitized text, and the findings in the original."""

    text: str
    findings: tuple[HiddenText, ...] = ()


def inspect(text: str) -> CleanText:
    """Sanitize the text, and report what was hidden in it, except Windows line ends."""
    found: dict[HiddenKind, list[str]] = {}

    def note(match: re.Match[str]) -> str:
        found.setdefault(_kind(match[0]), []).append(match[0])
        return ""

    if not _is_suspect(text, text.encode(errors="surrogatepass")):
        return CleanText(text=text)
    unescaped = _ESCAPES.sub(note, text).replace("\r\n", "\n")
    _hidden_pattern().sub(note, unescaped)
    findings = (
        HiddenText(kind=kind, count=len(parts), sample=_sample(kind, "".join(parts)))
        for kind, parts in found.items()
    )
    return CleanText(text=_without_hidden(_with_plain_breaks(unescaped)), findings=tuple(findings))


def reveal_hidden(text: str) -> str:
    """The text with hidden characters spelled out, such as ⟨U+200B⟩."""
    return _hidden_pattern().sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def _kind(removed: str) -> HiddenKind:
    return _kind_of(removed[0])


@lru_cache(maxsize=4096)
def _kind_of(character: str) -> HiddenKind:
    code = ord(character)
    if code == 0x1B:
        return "escape"
    return next(
        kind
        for kind, ranges in _HIDDEN_RANGES.items()
        if any(first <= code <= last for first, last in ranges)
    )


def _sample(kind: HiddenKind, removed: str) -> str:
    removed = removed[:MAX_READ_CHARACTERS]
    decode = _DECODERS.get(kind)
    decoded = decode(removed) if decode else ""
    return decoded if len(decoded) > 1 and decoded.isprintable() else reveal_hidden(removed)


def _read_tags(tags: str) -> str:
    """ASCII that tags spell."""
    return "".join(chr(ord(tag) - 0xE0000) for tag in tags if 0xE0020 <= ord(tag) < 0xE007F)


def _read_selectors(selectors: str) -> str:
    """Bytes that variation selectors encode, all 256 of them, as text."""
    codes = (ord(selector) for selector in selectors)
    offsets = (code - 0xFE00 if code <= 0xFE0F else code - 0xE0100 + 16 for code in codes if code >= 0xFE00)
    return clean(bytes(offsets).decode(errors="replace"))


_DECODERS: dict[HiddenKind, Callable[[str], str]] = {"tag": _read_tags, "variation": _read_selectors}


# Suspicious text.

_FILLER = r"(?:[\w'’,-]{1,20}\s{1,5})"  # noqa: RUF001 - a quotation mark that people write
_SUSPICIONS = {
    "overrides instructions": (
        rf"(?:ignore|disregard|forget|override|bypass)\s{{1,5}}{_FILLER}{{0,4}}"
        rf"(?:previous|prior|earlier|above|preceding|existing|system|safety|your)\s{{1,5}}{_FILLER}{{0,2}}"
        r"(?:instruction|prompt|rule|guideline|message|directive|context)"
    ),
    "hides from the user": (
        rf"(?:do not|don['’]?t|never|without|avoid)\s{{1,5}}{_FILLER}{{0,2}}"  # noqa: RUF001
        r"(?:tell|inform|mention|reveal|notify|alert|disclose)(?:ing)?\b[^.\n]{0,60}\buser"
        r"|without the user(?:['’]s)? (?:knowing|knowledge|noticing|consent)"  # noqa: RUF001
        r"|(?:secret|hidden|hide (?:this|it)) from the user"
    ),
    "sends data away": (
        r"(?:send|post|upload|forward|transmit|submit|leak|append|bcc)\b[^.\n]{0,60}\b(?:contents?|files?"
        r"|conversation|history|keys?|tokens?|credentials|secrets?|passwords?|everything|it|them|results?)\b"
        r"[^.\n]{0,40}\bto\s{1,5}[^\s]{0,3}(?:https?://|[\w.+-]{1,64}@[\w-]{1,64}\.)"
        r"|exfiltrat"
    ),
    "wants secrets": (
        r"(?:~|\$home|%userprofile%|/root)[/\\]\.(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|cursor|claude)\b"
        r"|id_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow)\b|\.aws/credentials"
    ),
    "poses as the system": (
        r"<\s{0,3}/?\s{0,3}(?:important|system|admin|secret|override|hidden)(?:[_-]\w{1,20})?\s{0,3}>"
        r"|<\|[a-z_]{2,20}\|>|\[/?inst\]|<<sys>>"
    ),
    "orders a detour": (
        r"before\s{1,5}(?:you\s{1,5})?(?:us|call|run|invok|execut)(?:e|ing|ning)?\s{1,5}(?:this|any|other)\b"
        r"[^.\n]{0,60}\b(?:read|open|cat|load|access)\b[^\n]{0,40}[/~\\]"
    ),
    "active markup": (
        r"<\s{0,3}(?:script|iframe|object|embed)\b|<[a-z][^<>]{0,80}\son(?:error|load|click)\s{0,3}="
        r"|javascript:"
    ),
    "padding": r"(?<!\n)(?:\n[ \t]{0,9}){30}|(?<![ \t\xa0\u3000])[ \t\xa0\u3000]{200}",
}


@cache
def _suspicions() -> dict[str, re.Pattern[str]]:
    return {name: re.compile(pattern) for name, pattern in _SUSPICIONS.items()}


def suspicious(text: str) -> tuple[str, ...]:
    """Why a reviewer should look twice at this text, hidden text included; advice, never a refusal."""
    cleaned = inspect(text)
    shown = "\n".join((*(finding.sample for finding in cleaned.findings), cleaned.text))
    # In one width and case, so that look-alike letters do not hide a match.
    seen = unicodedata.normalize("NFKC", shown[:MAX_ADVISED_CHARACTERS]).lower()
    found = [name for name, pattern in _suspicions().items() if pattern.search(seen)]
    return (*found, "too long") if len(shown) > MAX_ADVISED_CHARACTERS else tuple(found)
