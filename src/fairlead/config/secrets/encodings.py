"""Decoders of escapes, base64 and hex in a text, for the search for secrets (`config.secrets.masking`).

Nothing here raises for any bytes, and the time is linear in them.
"""

import base64
import re
from collections.abc import Callable

_BASE64 = bytes({*b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"})
_NOT_BASE64 = bytes({*range(256)} - {*_BASE64})
_STANDARD = bytes.maketrans(b"-_", b"+/")
_HEX_LOWERED = bytes.maketrans(b"ABCDEF", b"abcdef")
_NOT_HEX = bytes({*range(256)} - {*b"0123456789abcdefABCDEF"})
MAX_ROUNDS = 3
"""Most nested encodings that are undone."""


_LAST_CHARACTER = 0x10FFFF
BREAKS = {"\n": "n", "\r": "r", "\t": "t"}
"""Characters that JSON writes with a letter."""
ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
"""Character names of HTML and XML. The last comes last, since all of them begin with it."""
RARE_ENTITIES = {
    "excl": "!",
    "num": "#",
    "dollar": "$",
    "percnt": "%",
    "lpar": "(",
    "rpar": ")",
    "ast": "*",
    "plus": "+",
    "comma": ",",
    "period": ".",
    "sol": "/",
    "colon": ":",
    "semi": ";",
    "equals": "=",
    "quest": "?",
    "commat": "@",
    "lsqb": "[",
    "lbrack": "[",
    "bsol": "\\",
    "rsqb": "]",
    "rbrack": "]",
    "Hat": "^",
    "lowbar": "_",
    "UnderBar": "_",
    "grave": "`",
    "lcub": "{",
    "lbrace": "{",
    "verbar": "|",
    "vert": "|",
    "rcub": "}",
    "rbrace": "}",
    "Tab": "\t",
    "NewLine": "\n",
    "QUOT": '"',
    "AMP": "&",
    "LT": "<",
    "GT": ">",
}
"""More names of HTML that encoders of every character write."""
_RARE_ENTITY = re.compile(rf"&(?:amp;){{0,4}}({'|'.join(RARE_ENTITIES)});".encode())


def _character(digits: bytes, base: int = 16) -> bytes:
    code = int(digits, base)
    return chr(code).encode(errors="surrogatepass") if code <= _LAST_CHARACTER else b""


def _pair(match: re.Match[bytes]) -> bytes:
    """Character that two UTF-16 escapes encode together."""
    return bytes.fromhex((match[1] + match[2]).decode()).decode("utf-16-be").encode()


# Each begins with a literal, which the engine finds at the speed of memory.
_Escape = tuple[bytes, re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]]
_BACKSLASH_ESCAPES: tuple[_Escape, ...] = (
    (
        b"\\u",
        re.compile(rb"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"),
        _pair,
    ),
    (b"\\u", re.compile(rb"\\u([0-9a-fA-F]{4})"), lambda match: _character(match[1])),
    (b"\\x", re.compile(rb"\\x([0-9a-fA-F]{2})"), lambda match: bytes((int(match[1], 16),))),
    (b"\\U", re.compile(rb"\\U([0-9a-fA-F]{8})"), lambda match: _character(match[1])),
    (b"{", re.compile(rb"\\[uUxX]\{0{0,8}([0-9a-fA-F]{1,6})\}"), lambda match: _character(match[1])),
    (b"\\", re.compile(rb"\\([0-3][0-7]{2})"), lambda match: bytes((int(match[1], 8),))),
)
_ESCAPES: tuple[_Escape, ...] = (
    (b"%", re.compile(rb"%([0-9a-fA-F]{2})"), lambda match: bytes((int(match[1], 16),))),
    (
        b"0",
        re.compile(rb"0[xX]([0-9a-fA-F]{2})(?:[^0-9A-Za-z]{1,8}(?=0[xX]))?"),
        lambda match: bytes((int(match[1], 16),)),
    ),
    (b"&", re.compile(rb"&(?:amp;){0,4}#[xX]0*+([0-9a-fA-F]{1,6});?"), lambda match: _character(match[1])),
    (b"&", re.compile(rb"&(?:amp;){0,4}#0*+([0-9]{1,7});?"), lambda match: _character(match[1], 10)),
)
_APART = re.compile(rb"(#[xX]?[0-9a-fA-F]{1,16}+;?)(?:\\{1,16}[nrt]|[^0-9A-Za-z&\\]){1,4}(?=&)")
"""Separators between escapes of HTML where each is on a line of its own."""
_SOFT_BREAK = re.compile(rb"=(?:\\{1,16}r|\r)?(?:\\{1,16}n|\n)")
_MAIL_ESCAPE = re.compile(rb"=([0-9A-F]{2})")
"""Soft line breaks and character escapes of mail (quoted-printable)."""
_BACKSLASHES = re.compile(rb"\\{2,}+")
HEX_PREFIX = re.compile(rb"0[xX]")


class DecodedViews:
    """Views of a text that are searched: unchanged, decoded, and its base64 and hex runs."""

    __slots__ = ("base64", "hex", "texts")

    def __init__(self, raw: bytes) -> None:
        texts = _decode_rounds(raw)
        if b"#" in raw and (joined := _APART.sub(rb"\1", raw)) != raw:
            texts += _decode_rounds(joined)
        if b"=" in raw:
            # Separate from other escapes: `key=AB%31` would lose what follows the sign.
            whole = _SOFT_BREAK.sub(b"", raw)
            read = _MAIL_ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), whole)
            texts += [text for other in {whole, read} - {raw} for text in _decode_rounds(other)]
        self.texts = texts = [*texts, *find_nested_texts(b"\n".join(texts))]
        self.base64 = [text.translate(_STANDARD, _NOT_BASE64) for text in texts]
        self.hex = [text.translate(_HEX_LOWERED, _NOT_HEX) for text in texts]
        self.hex += [
            HEX_PREFIX.sub(b"", text).translate(_HEX_LOWERED, _NOT_HEX)
            for text in texts
            if b"0x" in text or b"0X" in text
        ]


def _decode_rounds(raw: bytes) -> list[bytes]:
    """A text, and the results of each round of decoding its escapes."""
    texts = [raw]
    for _ in range(MAX_ROUNDS):
        text = decode_layer(texts[-1])
        if text == texts[-1]:
            break
        texts.append(text)
    return texts


# Texts inside base64 or hex: long runs are decoded, and text found in them is searched like any text.
_LONG_RUN = b"a" * 14
"""Shortest base64 of the base64 of the shortest value."""
_RUN_LETTERS = bytes.maketrans(_BASE64, b"a" * len(_BASE64))
_LONG_RUNS = re.compile(rb"(?:[A-Za-z0-9+/_-]{14,}+[^A-Za-z0-9+/_-]{0,4}+)++[A-Za-z0-9+/_-]*+")
LONG_RUNS_IN_TEXT = re.compile(_LONG_RUNS.pattern.decode())
_INNER_BYTES = _BASE64 + b"=%\\:&#; "
"""Characters of encodings: base64, hex with gaps, and escapes."""
_INNER_LETTERS = bytes.maketrans(_INNER_BYTES, b"a" * len(_INNER_BYTES))
_INNER_RUN = b"a" * 11
"""Length of the base64 of the shortest value."""
_INNER_TEXTS = re.compile(rb"[\t\n\r -~]{11,}+")
_INNER_UTF_16 = re.compile(rb"(?:[\t\n\r -~]\0){7,}+[\t\n\r -~]?+")
_ZEROS = bytes(7)
_ZERO_LETTERS = b"A" * 6
"""Base64 of at least three zero bytes, wherever a group of four letters begins."""


def _base64_group_pattern(first: bytes, second: bytes, third: bytes) -> bytes:
    """Pattern for the four letters of base64 that encode three bytes, each one of these."""
    sextets = (
        {one >> 2 for one in first},
        {(one & 0x03) << 4 | two >> 4 for one in first for two in second},
        {(two & 0x0F) << 2 | three >> 6 for two in second for three in third},
        {three & 0x3F for three in third},
    )
    return b"".join(b"[" + bytes(_LETTERS[sextet] for sextet in sorted(group)) + b"]" for group in sextets)


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SHOWN_BYTES, _ZERO = bytes((*b"\t\n\r", *range(0x20, 0x7F))), b"\0"
# Wherever the groups of four letters begin, what `_INNER_RUN` and `_ZEROS` look for fills these whole groups.
_ENCODED_TEXT = re.compile(_base64_group_pattern(_INNER_BYTES, _INNER_BYTES, _INNER_BYTES) * 3)
_ENCODED_UTF_16 = re.compile(
    _base64_group_pattern(_ZERO, _SHOWN_BYTES, _ZERO)
    + _base64_group_pattern(_SHOWN_BYTES, _ZERO, _SHOWN_BYTES)
)

_HEX_RUN = b"a" * 22
"""Length of the hex of `_INNER_RUN`."""
_HEX_LETTERS = bytes.maketrans(b"0123456789abcdefABCDEF", _HEX_RUN)
_HEX_RUNS = re.compile(rb"[0-9a-fA-F]{22,}+")


def find_nested_texts(outer: bytes) -> list[bytes]:
    """Texts inside the base64 and hex of a text, and inside those again, with their escapes decoded."""
    found: list[bytes] = []
    inner = _inner_text(outer)
    room = 4 * len(outer)  # text may be found at each of several offsets, and again in that
    for _ in range(MAX_ROUNDS):
        if not inner or len(inner) > room:
            break
        room -= len(inner)
        decoded = _decode_rounds(inner)
        found += decoded
        inner = _inner_text(b"\n".join(decoded))
    return found


def _inner_text(text: bytes) -> bytes:
    """Encoded text or UTF-16 inside the long runs of base64 or hex in a text."""
    lettered = text.translate(_RUN_LETTERS)
    at = lettered.find(_LONG_RUN)
    if at < 0:
        return b""
    runs: list[bytes] = []
    while at >= 0 and (run := _LONG_RUNS.match(text, at)) is not None:
        runs.append(run[0])
        at = lettered.find(_LONG_RUN, run.end())
    # Zeros end each run at any length: all four offsets are tried.
    joined = (_ZERO_LETTERS.join(runs) + _ZERO_LETTERS).translate(_STANDARD, _NOT_BASE64)
    found = _hex_texts(joined)
    if not _ENCODED_TEXT.search(joined) and not _ENCODED_UTF_16.search(joined):
        # Long words and paths, as nearly always: to decode them takes three times as long.
        return b"\n".join(found)
    for skipped in range(4):
        letters = joined[skipped:]
        binary = base64.b64decode(letters + b"A" * (-len(letters) % 4))
        if _INNER_RUN in binary.translate(_INNER_LETTERS):
            found += _INNER_TEXTS.findall(binary)
        if _ZEROS in binary[::2] or _ZEROS in binary[1::2]:
            found += (wide.replace(b"\0", b"") for wide in _INNER_UTF_16.findall(binary))
    return b"\n".join(found)


def _hex_texts(joined: bytes) -> list[bytes]:
    """Text in the hex of these runs, wherever its pairs of digits begin."""
    found: list[bytes] = []
    if _HEX_RUN not in joined.translate(_HEX_LETTERS):  # a tenth of the time that the pattern takes
        return found
    runs = _HEX_RUNS.findall(joined)
    for skipped in range(2):
        digits = b"0a".join([run[skipped : len(run) - (len(run) - skipped) % 2] for run in runs])
        binary = bytes.fromhex(digits.decode())
        if _INNER_RUN in binary.translate(_INNER_LETTERS):
            found += _INNER_TEXTS.findall(binary)
    return found


def has_escapes(text: bytes) -> bool:
    """Whether there can be an escape of a digit or a capital letter."""
    # One byte is found at the speed of memory, and mostly it is not there. Lists of `0x4a` need no decoding:
    # the sieve leaves out their zeros.
    for sign, other, pattern in _TELLING_ESCAPES:  # a loop: twice as fast as a generator
        if sign in text and other in text and pattern.search(text):
            return True
    return False


# Two bytes that each has, and what it looks like. A pattern that begins with one byte and a set of others is
# searched for twice as fast as one that begins with a byte and a choice: text may have a `=` in every line.
_TELLING_ESCAPES = (
    (b"%", b"%", re.compile(rb"%[0-9a-fA-F]{2}")),
    (b"\\", b"\\", re.compile(rb"\\[uUx0-3]")),
    (b"&", b"#", re.compile(rb"&[#a](?:(?<=#)|mp;(?:amp;){0,3}#)")),
    # Of mail only what its encoders write, `=3D`, `=C3=A4` and `=` at a line's end: `page=20` is in many an
    # address.
    (
        b"=",
        b"=",
        re.compile(rb"=[3C-F\\\r\n](?:(?<=3)D|(?<=[C-F])[0-9A-F]=[0-9A-F]|(?<=\\)[rn]|(?<=[\r\n]))"),
    ),
)


def decode_layer(text: bytes) -> bytes:
    """Decode one layer of escapes, and drop the remaining backslashes."""
    if b"\\" in text:
        text = _BACKSLASHES.sub(rb"\\", text)  # each JSON around it doubles them
        text = _decode_escapes(text, _BACKSLASH_ESCAPES)
        for character, letter in BREAKS.items():
            text = text.replace(b"\\" + letter.encode(), character.encode())
        text = text.replace(b"\\", b"")
    # These come last: a backslash that one of them encodes is a layer of its own.
    text = _decode_escapes(text, _ESCAPES)
    if b"&" in text:
        for entity, character in ENTITIES.items():
            text = text.replace(entity.encode(), character.encode())
        text = _RARE_ENTITY.sub(lambda match: RARE_ENTITIES[match[1].decode()].encode(), text)
    return text


def _decode_escapes(text: bytes, escapes: tuple[_Escape, ...]) -> bytes:
    for sign, pattern, decode in escapes:
        if sign in text:
            text = pattern.sub(decode, text)
    return text
