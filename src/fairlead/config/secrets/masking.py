"""Masking of secrets in running text: logs, errors, the audit log, and content from servers.

A secret is known by its value, once the code that handles it registered it (`learn`), or by its shape: an
`Authorization` line, tokens of well-known services, private keys, passwords in URLs, parameters of an OAuth
exchange. The time is linear in the text, which a server may choose.

Known values are found in the encodings that a server may echo them in: literally, percent-encoded, as escapes
of JSON, C, HTML or quoted-printable, in base64 at any offset (so inside `Basic` and `Bearer` headers too) and
in hex, in any case, with any punctuation or white space between the digits. Base64 and hex may be those of
UTF-16; base64, and hex without gaps, may hold any of these again, up to three times.
"""

import base64
import json
import re
from collections.abc import Hashable, Iterator
from functools import cache, cached_property
from threading import Lock
from typing import Final
from urllib.parse import quote, quote_plus

from fairlead.config.secrets.encodings import (
    BREAKS,
    ENTITIES,
    HEX_PREFIX,
    LONG_RUNS_IN_TEXT,
    MAX_ROUNDS,
    RARE_ENTITIES,
    DecodedViews,
    decode_layer,
    find_nested_texts,
    has_escapes,
)

MASK = "•••"

SHORTEST_SECRET = 6
"""A shorter value is too common a word: masking it would garble unrelated text."""

SHORTEST_ENCODED = 8
"""Values of this length or longer are looked for in every encoding, and in what servers send."""

MAX_ENCODED_SECRETS = 500
"""Most values of owners that are looked for in every encoding, since each costs a few searches per text."""

MAX_SECRETS = 2000
"""Most configured values known at once, and most spellings of values that owners had."""

KEPT_PER_OWNER = 3
"""Most sets of values kept for one owner: a server may still echo the token before the last."""

KEPT_HEADERS = 50
"""The same for headers of requests, which several connections of one server have made at a time."""

_MAX_PIECE = 2048
"""About the longest part of a value that is looked for at once, in bytes: a text is searched in windows which
overlap by several times this. A longer value is known by its parts: an echo of half of it is masked, too."""

# A run of the characters that tokens are made of is only looked at from its start, and what a pattern looked
# at it takes with it: else a hostile text would take a time that grows with the square of its length.
_RUN = r"(?<![A-Za-z0-9_-])"
_HAS_DIGIT = r"(?=[a-z_-]*+[0-9])"
_QUOTE = r"\\?[\"']"
_HEADERS = r"(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token"
_NAMES = (
    r"(?:access|refresh|id|auth|device|session)_token|client_secret|client_assertion|code_verifier|device_code"
    r"|api_?key|passwd|password|private_key"
)

_SHAPES: dict[tuple[str, ...], str] = {
    ("-----begin ",): (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]*+(?:-(?!----END)[^-]*+)*+"
        r"(?:-----END[A-Z0-9 ]{0,60}-----)?+"
    ),
    ("authorization", "cookie", "x-a"): (
        rf"(?P<kept>\b(?:{_HEADERS})(?:{_QUOTE})?[ \t]{{0,8}}[:=][ \t]{{0,8}}(?:{_QUOTE})?)[^\r\n\"'\\]++"
    ),
    ("bearer",): rf"(?P<kept>{_RUN}bearer[ \t]{{1,8}})[^\s\"',;]{{6,}}+",
    ("basic",): rf"(?P<kept>{_RUN}basic[ \t]{{1,8}})(?-i:(?=[a-zA-Z][a-z+/]*+[A-Z0-9=]))[a-z0-9+/]{{6,}}+=*+",
    ("://",): r"(?P<kept>://)[^/?#\s:@\"'<>]*+:[^/?#\s@\"'<>]++(?=@)",
    ("_token=", "client_", "code", "key=", "passw", "token=", "sig", "secret="): (
        rf"(?P<kept>(?<![A-Za-z0-9])(?:{_NAMES})=|[?&](?:code|token|key|sig|signature|secret)=)[^&\s\"'<>]++"
    ),
    ("_token", "client_", "code", "key", "passw"): (
        rf"(?P<kept>{_QUOTE}(?:{_NAMES}){_QUOTE}[ \t]{{0,4}}:[ \t]{{0,4}}{_QUOTE})[^\"'\\]++"
    ),
    ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"): rf"{_RUN}[spr]k[-_][a-z0-9_-]{{12,}}+",
    ("gh", "github_pat_", "glpat-", "xox"): (
        rf"{_RUN}(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-)[a-z0-9_-]{{8,}}+"
    ),
    ("ya29.", "npm_", "pypi-", "hf_", "lin_api_", "ntn_", "secret_"): (
        rf"{_RUN}(?:ya29\.|npm_|pypi-|hf_|lin_api_|ntn_|secret_){_HAS_DIGIT}[a-z0-9_-]{{8,}}+"
    ),
    ("akia", "asia"): r"(?-i:\b(?:AKIA|ASIA)[A-Z0-9]{12,}+)",
    ("eyj",): rf"{_RUN}(?-i:eyJ)[a-z0-9_-]{{8,}}+\.[a-z0-9_-]++(?:\.[a-z0-9_-]*+)?",
}
"""Shapes of secrets: patterns, and for each the words of which one must occur, in lower case, for a match.

A pattern's group `kept` stays in the text: it says what was there.
"""


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)  # on demand: a dozen would slow down a quick start


def has_token(text: str) -> bool:
    """Whether anything in the text has the shape of a secret."""
    return any(pattern.search(text) for pattern in _patterns_for(text))


# Detection works on views of a text: with escapes decoded, and with all that does not belong to base64 or hex
# left out. Each is one native pass, and each value costs five native searches. Before that, a sieve rules out
# nearly all values: of the text and of every encoded value only the digits and capital letters are compared,
# in their order. Few of them are in prose, so the searches cost next to nothing, and what is left out of both
# cannot hide a match.
_TELLING = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NOT_TELLING = bytes({*range(256)} - {*_TELLING})
_NOT_DIGITS = bytes({*range(256)} - {*b"0123456789"})
_SHORTEST_SIEVED = 4
"""A shorter sieved value would be found in many texts that do not hold it."""
_MAX_SIEVED_DIGITS = 10
"""A longer sieved value rules out no more, and takes longer to look for."""
_MAX_PATTERN_CHARACTERS = 64
"""Up to this length a value is located by a pattern, which takes about 20 ms to compile."""
_MAX_COMPILED_AT_ONCE = 1
"""Most patterns that are compiled for one text: a server may know many secrets, and echo all of them."""


class _Secret:
    """One known value, and its forms in each encoding."""

    def __init__(self, value: str) -> None:
        plain = value.encode(errors="surrogatepass")
        self.value = value
        self.plain = plain
        self.bare = plain.replace(b"\\", b"")
        """Its form where backslashes were removed."""
        self.variants = _variants(plain)
        """Its forms where the text around it is decoded: a secret may itself look like an escape."""
        self.plus = self.bare.replace(b" ", b"+") if " " in value else b""
        """Its form in URL-encoded forms, where that differs."""
        wide = _in_utf_16(value)
        self.hex = plain.hex().encode()
        self.wide_hex = tuple(form.hex().encode() for form in wide)
        # What is ASCII is read from UTF-16 in base64 by decoding that: see `_inner_text`.
        binary = (plain,) if value.isascii() else (plain, *wide)
        self.base64 = tuple(_base64_at_offset(form, offset) for form in binary for offset in range(3))
        forms = [plain, *self.base64]
        sieved = [form.translate(None, _NOT_TELLING) for form in forms]
        digits = self.hex.translate(None, _NOT_DIGITS)
        wide_digits = tuple(form.translate(None, _NOT_DIGITS) for form in self.wide_hex)
        self.sieved = tuple(form for form in sieved if len(form) >= _SHORTEST_SIEVED)
        """Needles of the sieve: these among digits and capitals, `sieved_hex` among digits alone."""
        self.sieved_hex = tuple(form[:_MAX_SIEVED_DIGITS] for form in (digits, *wide_digits))
        encoded = sieved[1:]
        self.is_sievable = min(map(len, (*encoded, *self.sieved_hex))) >= _SHORTEST_SIEVED
        """Whether the sieve finds it in every encoding. Else its literal form is looked for itself."""
        self.is_plainly_sievable = len(sieved[0]) >= _SHORTEST_SIEVED
        others = [variant.translate(None, _NOT_TELLING) for variant in self.variants]
        self.sieved += tuple(form for form in others if form not in self.sieved)
        if any(len(form) < _SHORTEST_SIEVED for form in others):
            self.is_sievable = False
        if not self.is_plainly_sievable and not {*BREAKS, *ENTITIES.values()}.isdisjoint(value):
            self.is_sievable = False  # escapes of these would have to be decoded first

    def is_in(self, views: "DecodedViews") -> bool:
        # Plain loops: this runs for every value on every result, and generators take three times as long.
        for index, text in enumerate(views.texts):
            if self.plain in text or (index and self.bare in text) or (self.plus and self.plus in text):
                return True
            if _has_any(self.base64, views.base64[index]) or _has_any(self.variants, text):
                return True
        return any(self.hex in digits or _has_any(self.wide_hex, digits) for digits in views.hex)

    def is_plainly_in(self, text: bytes, bare: bytes) -> bool:
        """Whether it is literally in a text, or in the text without backslashes."""
        if bare.rfind(self.bare) >= 0 or text.rfind(self.plain) >= 0:
            return True
        return bool(self.plus) and bare.rfind(self.plus) >= 0

    @property
    def has_pattern(self) -> bool:
        """Whether it can be masked without compiling its pattern, which takes long."""
        return "pattern" in self.__dict__ or len(self.value) > _MAX_PATTERN_CHARACTERS

    def mask_in(self, text: str) -> str:
        """Mask this value in the text, where it can be distinguished from the text around it."""
        if len(self.value) <= _MAX_PATTERN_CHARACTERS:
            return self.pattern.sub(MASK, text)
        # A pattern of thousands of characters takes seconds to compile.
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        standard = [needle.decode() for needle in self.base64]
        web_safe = [needle.replace("+", "-").replace("/", "_") for needle in standard]
        digits = self.hex.decode()
        percent = quote(self.value, safe="", errors="surrogatepass")
        written = json.dumps(self.value)[1:-1]
        form = quote_plus(self.value, errors="surrogatepass")
        found = (
            self.value,
            written,
            percent,
            percent.lower(),
            form,
            form.lower(),
            digits,
            digits.upper(),
            *standard,
            *web_safe,
        )
        return tuple(sorted(dict.fromkeys(found), key=len, reverse=True))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of any encoding of it. Compiled on demand: nearly none is ever needed."""
        gap = r"[^A-Za-z0-9+/_-]{0,4}"
        letters = {"+": "[+-]", "/": "[/_]"}
        encoded = (
            gap.join(letters.get(letter, letter) for letter in needle.decode()) for needle in self.base64
        )
        digits = "|".join(_hex_pattern(form) for form in (self.plain, *_in_utf_16(self.value)))
        spelled = "".join(_spelling_patterns(self.value))
        neighbours = "[A-Za-z0-9+/_-]{0,2}"
        return re.compile(f"{spelled}|{neighbours}(?:{'|'.join(encoded)}){neighbours}={{0,2}}|{digits}")


def _has_any(forms: tuple[bytes, ...], text: bytes) -> bool:
    for form in forms:  # noqa: SIM110 - three times as fast as a generator
        if form in text:
            return True
    return False


def _in_utf_16(value: str) -> tuple[bytes, ...]:
    """Certain bytes of a value in UTF-16, in either byte order."""
    big = value.encode("utf-16-be", errors="surrogatepass")
    if all(character < "\u0100" for character in value):
        return (big[1:],)  # the first zero, or in the other order the last, is left out
    return (big, value.encode("utf-16-le", errors="surrogatepass"))


def _hex_pattern(plain: bytes) -> str:
    # Whatever takes a character keeps it: of two ways to read each gap, as many as gaps would be tried in all
    # combinations wherever a text only begins like the value, which is for ever.
    gap = r"[^0-9A-Za-z]{0,6}+\\{0,16}+(?:0?[xXuU])?+"
    return gap.join("".join(f"[{digit}{digit.upper()}]" for digit in f"{byte:02x}") for byte in plain)


def _variants(plain: bytes) -> tuple[bytes, ...]:
    """A value after each round of decoding, as far as that changes it."""
    found: list[bytes] = []
    text = plain
    for _ in range(MAX_ROUNDS):
        decoded = decode_layer(text)
        if decoded == text or len(decoded) < _SHORTEST_SIEVED:
            break
        found.append(decoded)
        text = decoded
    return tuple(variant for variant in found if variant != plain.replace(b"\\", b""))


def _base64_at_offset(plain: bytes, offset: int) -> bytes:
    """Certain letters of a value's base64 where so many bytes precede it in its group of three."""
    encoded = base64.b64encode(bytes(offset) + plain)
    bits = 8 * (offset + len(plain))
    return encoded[-(-8 * offset // 6) : bits // 6]


def _spelling_patterns(value: str) -> Iterator[str]:
    """Patterns for the characters of a value in order, each literally or in any escape.

    Backslashes side by side are one pattern, which takes all that there are: else there were a way to match
    for each share that the next character's escape could have of them.
    """
    follows_backslash = False
    for run in re.findall(r"\\+|[^\\]", value):
        follows_backslash, was_backslash = run.startswith("\\"), follows_backslash
        escapes = _escapes_of(run[0], r"\\{0,16}" if was_backslash else r"\\{1,16}")
        if follows_backslash:
            yield rf"(?:(?:{escapes}){{{len(run)}}}|\\{{{len(run)},{17 * len(run)}}}+)(?:=\r?\n)?"
        else:
            literal = rf"\\{{0,16}}{re.escape(run)}" if run in "/\"'" else re.escape(run)
            yield rf"(?:{literal}|{escapes})(?:=\r?\n)?"


def _escapes_of(character: str, slashes: str) -> str:
    """Pattern for the escapes of one character; `slashes` is that of their backslashes."""
    percent = "".join(
        f"%(?:25)?{''.join(f'[{digit}{digit.upper()}]' for digit in f'{byte:02x}')}"
        for byte in character.encode(errors="surrogatepass")
    )
    forms = [percent]
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    groups = (units[index : index + 4] for index in range(0, len(units), 4))
    forms.append(
        "".join(rf"{slashes}u{''.join(f'[{digit}{digit.upper()}]' for digit in group)}" for group in groups)
    )
    code = ord(character)
    if code < 0x100:
        digits = "".join(f"[{digit}{digit.upper()}]" for digit in f"{code:02x}")
        forms.append(rf"(?:{slashes}|0)[xX]{digits}[ ,]{{0,2}}")
        forms.append(rf"{slashes}{code:03o}")
    forms += (f"&(?:amp;){{0,4}}#0*+{code};?", f"&(?:amp;){{0,4}}#[xX]0*+(?i:{code:x});?")
    forms += [entity for entity, spelled in ENTITIES.items() if spelled == character]
    forms += [f"&(?:amp;){{0,4}}{name};" for name, spelled in RARE_ENTITIES.items() if spelled == character]
    if character in BREAKS:
        forms.append(rf"{slashes}{BREAKS[character]}")
    if character == " ":
        forms.append(r"\+")
    forms.append(rf"{slashes}(?:U{code:08x}|[uUxX]\{{0*+(?i:{code:x})\}})")
    forms.append("".join(f"=(?i:{byte:02x})" for byte in character.encode(errors="surrogatepass")))
    return "|".join(forms)


def digits_and_capitals(text: bytes) -> bytes:
    """Digits and capital letters of a text, which the sieve compares."""
    return text.translate(None, _NOT_TELLING)


class _Forms:
    """What is looked for of one value: its plain spellings, and its parts in every encoding."""

    def __init__(self, value: str) -> None:
        self.spellings = (value, quote(value, safe="", errors="surrogatepass"), json.dumps(value)[1:-1])
        self.parts = tuple(map(_Secret, _parts(value))) if len(value) >= SHORTEST_ENCODED else ()


class Masker:
    """Registry of known secrets that masks them in texts. Thread-safe."""

    def __init__(self) -> None:
        self._learning = Lock()
        # Each is replaced whole, since another thread may be looking for the secrets known so far.
        self._configured: dict[str, None] = {}
        self._rotating: dict[Hashable, list[tuple[str, ...]]] = {}  # by owner: the sets of values it had last
        self._former: dict[str, None] = {}  # spellings of values that owners had
        self._forms: dict[str, _Forms] = {}
        self._known: tuple[str, ...] = ()
        self._secrets: tuple[_Secret, ...] = ()
        self.reach = 16
        """Longest form of a known value's part, or a JSON escape, in a text."""
        self.knows_any = False
        """Whether there is any value to look for in what servers send."""
        self.generation = 0
        """Grows with each learned value: what was safe to show before need not be any more."""

    def learn(self, *values: str, owner: Hashable | None = None, kept: int = KEPT_PER_OWNER) -> None:
        """Mask these values from now on, in any encoding.

        Args:
            values: The values. Those that are too short to be secrets are left out.
            owner: Who changes them again and again: a login, a program that prints headers. Only what it had
                last is kept, so that an owner that renews its token often makes no other forgotten. None for
                values of the configuration, which are kept.
            kept: How many sets of values of this owner are kept.
        """
        wanted = tuple(value for value in dict.fromkeys(values) if len(value) >= SHORTEST_SECRET)
        if not wanted:
            return
        with self._learning:
            if owner is None:
                if all(value in self._configured for value in wanted):
                    return
                self._configured = _latest({**self._configured, **dict.fromkeys(wanted)}, MAX_SECRETS)
            else:
                others = {**self._rotating}
                had = others.pop(owner, [])
                # The one that was used last comes last, also where nothing is new.
                kept_sets = [*(values for values in had if values != wanted), wanted][-kept:]
                self._rotating = {**others, owner: kept_sets}
                if wanted in had:
                    return
                spelled = [spelling for value in wanted for spelling in self._forms_of(value).spellings]
                former = {known: None for known in self._former if known not in spelled}
                self._former = _latest({**former, **dict.fromkeys(spelled)}, MAX_SECRETS)
            self._renew()

    def _renew(self) -> None:
        """Make anew what is looked for, from all that is known."""
        forms = {value: self._forms_of(value) for value in self._configured}
        rotating: dict[Hashable, list[tuple[str, ...]]] = {}
        used = 0
        for owner, sets in reversed([*self._rotating.items()]):
            made = {value: self._forms_of(value) for values in sets for value in values if value not in forms}
            used += sum(len(each.parts) for each in made.values())
            if rotating and used > MAX_ENCODED_SECRETS:
                break
            rotating[owner] = sets
            forms |= made
        self._rotating = dict(reversed(rotating.items()))
        self._forms = forms
        self._secrets = tuple(dict.fromkeys(part for each in forms.values() for part in each.parts))
        known = (spelling for each in forms.values() for spelling in each.spellings)
        self._known = tuple(dict.fromkeys((*known, *self._former)))
        self.knows_any = bool(self._secrets)
        self.reach = max((self.reach, *(12 * len(part.plain) for part in self._secrets)))
        self.generation += 1

    def _forms_of(self, value: str) -> "_Forms":
        return self._forms.get(value) or _Forms(value)

    def mask(self, text: str) -> str:
        """Mask known secrets and what has the shape of one; most often returns the same text."""
        for value in self._known:
            if value in text:
                text = text.replace(value, MASK)
        text = self.mask_known(text)
        for pattern in _patterns_for(text):
            text = pattern.sub(_mask_match, text)
        return text

    def may_hold(self, raw: bytes, sieved: bytes | None = None) -> bool:
        """Whether any known value is in these bytes, text or JSON, in any encoding.

        `sieved` is the result of `digits_and_capitals` for them, where the caller has it already.
        """
        return bool(self._find_secrets(raw, sieved))

    def _find_secrets(self, raw: bytes, sieved: bytes | None = None) -> list[_Secret]:
        if not self._secrets:
            return []
        views = None
        if has_escapes(raw):
            views = DecodedViews(raw)
            others = views.texts[1:]
        else:
            others = find_nested_texts(raw)
        found = _sift(self._secrets, raw, digits_and_capitals(raw) if sieved is None else sieved)
        for text in others:
            found += _sift(self._secrets, text, digits_and_capitals(text))
        if not found:
            return []
        views = views or DecodedViews(raw)
        return [secret for secret in dict.fromkeys(found) if secret.is_in(views)]

    def mask_known(self, text: str) -> str:
        """Mask known values in any encoding, but not what only looks like a secret.

        Where a value cannot be distinguished from the text around it, the whole text is masked.
        """
        if not self._secrets:
            return text
        found = self._find_secrets(text.encode(errors="surrogatepass"))
        if not found:
            return text
        patterns_left = _MAX_COMPILED_AT_ONCE
        for secret in sorted(found, key=lambda secret: -len(secret.value)):
            if not secret.has_pattern:
                text = text.replace(secret.value, MASK)
                if not patterns_left or not _holds_any(text, [secret]):
                    continue  # mostly nothing is left; else it is masked with the text around it
                patterns_left -= 1
            text = secret.mask_in(text)
        if not _holds_any(text, found):
            return text
        text = LONG_RUNS_IN_TEXT.sub(lambda run: MASK if _holds_any(run[0], found) else run[0], text)
        return MASK if _holds_any(text, found) else text


def _latest(known: dict[str, None], limit: int) -> dict[str, None]:
    return known if len(known) <= limit else dict.fromkeys([*known][-limit:])


_ESCAPE_SIGNS = frozenset("\\%&=;#")


def _parts(value: str) -> Iterator[str]:
    """A value, or its parts where it is long: of about one size, so that none is a common word."""
    most = _MAX_PIECE if value.isascii() else _MAX_PIECE // 4
    number = -(-len(value) // most)
    size = -(-len(value) // number)
    start = 0
    for even in range(size, len(value), size):
        # Not within an escape, whose halves are no escapes.
        ends = range(even, even - 128, -1)
        end = next((end for end in ends if _ESCAPE_SIGNS.isdisjoint(value[end - 12 : end + 12])), even)
        yield value[start:end]
        start = end
    yield value[start:]


def _holds_any(text: str, secrets: list[_Secret]) -> bool:
    views = DecodedViews(text.encode(errors="surrogatepass"))
    return any(secret.is_in(views) for secret in secrets)


def _sift(secrets: tuple[_Secret, ...], text: bytes, kept: bytes) -> list[_Secret]:
    """Values that may be in a text: all that are, and few others."""
    digits = kept.translate(None, _NOT_DIGITS)
    if b"0" in digits and HEX_PREFIX.search(text):
        digits += b" " + HEX_PREFIX.sub(b"", text).translate(None, _NOT_DIGITS)
    bare = text.translate(None, b"\\") if b"\\" in text else text
    can_match = len(kept) >= _SHORTEST_SIEVED
    # Plain loops: this runs for every value on every result.
    found: list[_Secret] = []
    for secret in secrets:
        if not secret.is_sievable:
            found.append(secret)
            continue
        if can_match:
            for form in secret.sieved_hex:
                if digits.rfind(form) >= 0:
                    found.append(secret)
                    break
            for form in secret.sieved:
                if kept.find(form) >= 0:
                    found.append(secret)
                    break
        if not secret.is_plainly_sievable and secret.is_plainly_in(text, bare):
            found.append(secret)
    return found


SECRETS: Final = Masker()
"""Secrets of this process: its hosts share its logs."""


def _patterns_for(text: str) -> list[re.Pattern[str]]:
    """Patterns that can match: looking for a few words takes a fraction of the time."""
    lowered = text.lower()
    found: list[str] = []
    for signs, pattern in _SHAPES.items():
        for sign in signs:  # a loop: this runs for every line that is logged, and for every start
            if sign in lowered:
                found.append(pattern)
                break
    return [_compile_pattern(pattern) for pattern in found]


def _mask_match(match: re.Match[str]) -> str:
    return f"{match.groupdict().get('kept') or ''}{MASK}"
