"""Known secrets in random texts: what a plain search finds in any encoding, the masker finds and masks."""

import base64
import html
import html.entities
import json
import quopri
import re
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.config.secrets.encodings import DecodedViews, has_escapes
from fairlead.config.secrets.masking import Masker

pytestmark = pytest.mark.requirement("HARD-62")

ALPHABETS = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "digits": string.digits,
    "hex": "0123456789abcdef",
    "base64": string.ascii_letters + string.digits + "+/=",
    "web safe": string.ascii_letters + string.digits + "-_.~",
    "ascii": "".join(map(chr, range(0x20, 0x7F))),
    "punctuation": string.punctuation,
    "few": "aA0%",
    "escapes": "\\ux0&#;%41nrt",
    "blanks": "ab \t\n\r",
    "latin": "äöüßéñàçÿ÷ab",
    "greek": "αβγδεζηθλμ",
    "cjk": "密码令牌秘密键値",
    "emoji": "🔑🗝️🔐ab",
    "mixed": "aZ9_é密🔑%\\\"'&",
}

# How a server may write a value, apart from the code that is tested.


def percent_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def javascript(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def hex_escapes(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def encoded_64(before: bytes, after: bytes, width: int = 0) -> Callable[[str], str]:
    def encode(text: str) -> str:
        encoded = base64.b64encode(before + text.encode() + after).decode()
        return "\n".join(re.findall(f".{{1,{width}}}", encoded)) if width else encoded

    return encode


def hex_list(separator: str) -> Callable[[str], str]:
    return lambda text: separator.join(f"0x{byte:02x}" for byte in text.encode())


def pairs_of(text: str) -> list[str]:
    return re.findall("..?.?.?", text.encode().hex())


ENCODERS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in a URL": lambda text: quote(text, safe=""),
    "in a URL, lower case": lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")),
    "all percent": percent_all,
    "twice in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[1:-1],
    "JavaScript": javascript,
    "upper JavaScript": lambda text: re.sub(r"u....", lambda m: "u" + m[0][1:].upper(), javascript(text)),
    "HTML": html.escape,
    "HTML decimal": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "HTML hexadecimal": lambda text: "".join(f"&#x{ord(character):X};" for character in text),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "hex with colons": lambda text: text.encode().hex(":"),
    "hex with blanks": lambda text: text.encode().hex(" "),
    "hex escapes": hex_escapes,
    "hex list": lambda text: ", ".join(f"0x{byte:02x}" for byte in text.encode()),
    "hex list in lines": hex_list(",\n  "),
    "hex list with line breaks": hex_list("\n"),
    "hex list with tabs": hex_list("\t"),
    "hex list with semicolons": hex_list("; "),
    "hex list, upper case": lambda text: hex_list(" ")(text).upper(),
    "hex list of pairs": lambda text: " ".join("0x" + pair for pair in pairs_of(text)),
    "JavaScript in JSON": lambda text: json.dumps(javascript(text))[1:-1],
    "JavaScript in JSON in JSON": lambda text: json.dumps(json.dumps(javascript(text))[1:-1])[1:-1],
    "JavaScript in lines": lambda text: javascript(text).replace("\\u", "\n\\u"),
    "HTML in HTML": lambda text: html.escape("".join(f"&#{ord(character)};" for character in text)),
    "HTML without semicolons": lambda text: "".join(f"&#{ord(character)}" for character in text),
    "HTML with zeros": lambda text: "".join(f"&#{ord(character):012d};" for character in text),
    "HTML in lines": lambda text: "".join(f"&#{ord(character)};\n" for character in text),
    "in a form": quote_plus,
    "hex of UTF-16": lambda text: text.encode("utf-16-be").hex(),
    "hex of UTF-16, little end first": lambda text: text.encode("utf-16-le").hex(" "),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-be")).decode(),
    "base64 of UTF-16, little end first": lambda text: base64.b64encode(text.encode("utf-16")).decode(),
    "base64 of base64": lambda text: encoded_64(b"", b"")(encoded_64(b"", b"")(text)),
    "base64 of base64 in lines": lambda text: encoded_64(b"x", b"y", 64)(encoded_64(b"u:", b"")(text)),
    "base64 of hex": lambda text: encoded_64(b"", b"")(text.encode().hex()),
    "base64": encoded_64(b"", b""),
    "base64 after one": encoded_64(b"x", b"after"),
    "base64 after two": encoded_64(b"u:", b""),
    "base64 in lines": encoded_64(b"user:", b":rest", 16),
    "web-safe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 in a URL": lambda text: quote(encoded_64(b"a", b"")(text), safe=""),
    "hex in JSON": lambda text: json.dumps(text.encode().hex())[1:-1],
    "URL in JSON": lambda text: json.dumps(quote(text, safe=""))[1:-1],
    "JSON in a URL": lambda text: quote(json.dumps(text), safe=""),
}


def escapes_of_c(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in text.encode())


def mail(text: str) -> str:
    return quopri.encodestring(text.encode(), quotetabs=True).decode()


NAMES = {character: name for name, character in html.entities.html5.items() if name.endswith(";")}

MORE_ENCODERS: dict[str, Callable[[str], str]] = {
    "octal escapes": escapes_of_c,
    "long escapes of C": lambda text: "".join(f"\\U{ord(character):08x}" for character in text),
    "escapes with braces": lambda text: "".join(f"\\u{{{ord(character):x}}}" for character in text),
    "quoted-printable": mail,
    "quoted-printable, broken into lines": lambda text: "=\n".join(re.findall(".{1,7}", mail(text), re.S)),
    "quoted-printable in JSON": lambda text: json.dumps(mail(text)[:7] + "=\r\n" + mail(text)[7:])[1:-1],
    "hex with colons in base64": lambda text: encoded_64(b"", b"")(text.encode().hex(":")),
    "hex with blanks in base64": lambda text: encoded_64(b"x", b"")(text.encode().hex(" ")),
    "JavaScript in base64": lambda text: encoded_64(b"", b"")(javascript(text)),
    "percent in base64": lambda text: encoded_64(b"", b"")(percent_all(text)),
    "HTML in base64": lambda text: encoded_64(b"", b"")("".join(f"&#{ord(one)};" for one in text)),
    "base64 three times": lambda text: encoded_64(b"", b"")(encoded_64(b"", b"")(encoded_64(b"", b"")(text))),
    "base64 in hex": lambda text: encoded_64(b"", b"")(text).encode().hex(),
    "hex in hex": lambda text: text.encode().hex().encode().hex().upper(),
    "base64 of UTF-16 in base64": lambda text: encoded_64(b"", b"")(
        base64.b64encode(text.encode("utf-16-le")).decode()
    ),
}


@pytest.mark.parametrize("encoding", MORE_ENCODERS)
def test_escapes_of_c_and_mail_and_encodings_around_each_other_are_found(encoding: str) -> None:
    encode = MORE_ENCODERS[encoding]
    secrets = [
        "Tr0ub4dor&3-secretValue",
        "abcdefghijkl",
        "p@ss w\xf6rd/42+x=",
        "deadbeefcafe0011",
        "x=y_z|q.w",
    ]
    for secret in secrets:
        masker = Masker()
        masker.learn(secret)
        for before, after in (
            ("", ""),
            ("it is ", "; no more"),
            ('{"key":"', '"}'),
            ("key=", "&x=20"),
        ):
            text = before + encode(secret) + after
            assert masker.may_hold(text.encode()), (secret, text)
            shown = masker.mask_known(text)
            assert encode(secret) not in shown
            assert not masker.may_hold(shown.encode())


def test_punctuation_by_its_name_in_html_hides_no_secret() -> None:
    masker = Masker()
    masker.learn("sk_live_51H8+xYz/9Q=")
    text = "".join(f"&{NAMES[one]}" if not one.isalnum() else one for one in "sk_live_51H8+xYz/9Q=")
    assert masker.mask_known(f"<p>{text}</p>") == "<p>•••</p>"


def test_a_secret_in_mail_is_masked_where_it_is() -> None:
    masker = Masker()
    masker.learn("k3y=with=Signs_and_length")
    text = "Hello,\nyour key is k3y=3Dwith=3DSig=\nns_and_length, keep it.\n"
    assert masker.mask_known(text) == "Hello,\nyour key is •••, keep it.\n"


@pytest.mark.parametrize(
    "text",
    ["YWFh" * 50_000, "61" * 100_000, "aWlp" * 50_000, "=41" * 60_000, "\\101" * 50_000, "&amp;" * 40_000],
)
def test_encodings_around_each_other_take_no_more_than_a_multiple_of_their_bytes(text: str) -> None:
    masker = Masker()
    masker.learn("Tr0ub4dor&3-secretValue")
    views = DecodedViews(text.encode())
    assert sum(map(len, views.texts)) <= 16 * len(text)
    assert not masker.may_hold(text.encode())


# A plain search: everything is decoded, in all ways and everywhere, and then compared.


def full_search(text: str, secret: str) -> bool:
    wanted = (secret.encode(), secret.encode("utf-16-be"), secret.encode("utf-16-le"))
    seen = {text}
    for _ in range(3):
        seen |= {decode(known) for known in seen for decode in DECODERS}
    if any(secret in known for known in seen):
        return True
    for known in seen:
        for found in _binaries(known):
            inner = [found]
            for encoded in re.findall(rb"[\x20-\x7e]{10,}", found):
                inner += _binaries(encoded.decode())
            if any(form in binary for form in wanted for binary in inner):
                return True
    return False


def _decode_json(text: str) -> str:
    try:
        return json.loads(f'"{text}"', strict=False)
    except ValueError:
        pairs = r"((?:\\u[0-9a-fA-F]{4})+)|\\([\"\\/bfnrt])"
        plain = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
        return re.sub(pairs, lambda m: _units(m[1]) if m[1] else plain.get(m[2], m[2]), text)


def _units(escapes: str) -> str:
    return bytes.fromhex(escapes.replace("\\u", "")).decode("utf-16-be", "replace")


def _bytes_of(digits: str) -> str:
    return bytes.fromhex(digits).decode(errors="replace")


def _decode_percent(text: str) -> str:
    return re.sub(r"(?:%[0-9a-fA-F]{2})+", lambda m: _bytes_of(m[0].replace("%", "")), text)


def _decode_hex_escapes(text: str) -> str:
    return re.sub(r"(?:\\x[0-9a-fA-F]{2})+", lambda m: _bytes_of(m[0].replace("\\x", "")), text)


def _decode_html_lines(text: str) -> str:
    return html.unescape(text.replace(";\n&#", ";&#"))


DECODERS = (
    _decode_json,
    _decode_percent,
    unquote_plus,
    _decode_hex_escapes,
    html.unescape,
    _decode_html_lines,
)


def _binaries(text: str) -> list[bytes]:
    found: list[bytes] = []
    for run in re.findall(r"[A-Za-z0-9+/_\-\s]+", text):
        letters = re.sub(r"\s", "", run).replace("-", "+").replace("_", "/")
        for skipped in range(4):
            part = letters[skipped:]
            found.append(base64.b64decode(part[: len(part) // 4 * 4]))
            found.append(base64.b64decode(part + "A" * (-len(part) % 4)))
    for run in re.findall(r"(?:(?:0[xX]|\\u)?(?:[0-9a-fA-F]{2})+[:;\s,]{0,4})+", text):
        digits = re.sub(r"0[xX]|\\u|[:;\s,]", "", run)
        found += [bytes.fromhex(digits[skipped:][: (len(digits) - skipped) // 2 * 2]) for skipped in (0, 1)]
    return found


# The comparison.

SECRETS = st.sampled_from(sorted(ALPHABETS)).flatmap(
    lambda name: st.text(ALPHABETS[name], min_size=8, max_size=200)
)
FILLERS = st.one_of(
    st.just(""),
    st.sampled_from(sorted(ALPHABETS)).flatmap(lambda name: st.text(ALPHABETS[name], max_size=40)),
    st.sampled_from([" ", '"', "{", "}", '{"a":"', '"}', "Bearer ", "Basic ", "\n", "&", "=", "%", "\\"]),
)


@settings(max_examples=500)
@given(
    secret=SECRETS,
    others=st.lists(SECRETS, max_size=3),
    encoder=st.sampled_from(sorted(ENCODERS)),
    before=FILLERS,
    after=FILLERS,
)
def test_what_a_full_search_finds_is_found_and_masked(
    secret: str, others: list[str], encoder: str, before: str, after: str
) -> None:
    text = before + ENCODERS[encoder](secret) + after
    masker = Masker()
    masker.learn(*others, secret)
    if not full_search(text, secret):
        return
    assert masker.may_hold(text.encode())
    assert not full_search(masker.mask_known(text), secret)
    assert not full_search(masker.mask(text), secret)


@settings(max_examples=200)
@given(secrets=st.lists(SECRETS, min_size=1, max_size=8), parts=st.lists(FILLERS, max_size=6))
def test_a_text_that_holds_no_secret_on_purpose_is_searched_as_fully(
    secrets: list[str], parts: list[str]
) -> None:
    text = "".join(parts)
    masker = Masker()
    masker.learn(*secrets)
    if any(full_search(text, secret) for secret in secrets):
        assert masker.may_hold(text.encode())


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_every_alphabet_is_found_in_every_encoding(alphabet: str) -> None:
    letters = ALPHABETS[alphabet]
    for length in (8, 9, 65, 200):
        secret = "".join(letters[(7 * index + index // 3) % len(letters)] for index in range(length))
        masker = Masker()
        masker.learn(secret)
        for name, encode in ENCODERS.items():
            text = f"before {encode(secret)} after"
            assert full_search(text, secret), "the search of this test"
            assert masker.may_hold(text.encode()), (name, length)
            assert not full_search(masker.mask_known(text), secret), (name, length)


def _nested(secret: str, kind: str, before: bytes, after: bytes) -> bytes:
    """A secret in some encoding, with other bytes around it, in base64."""
    inner = {
        "base64": base64.b64encode(before + secret.encode() + after),
        "web safe": base64.urlsafe_b64encode(before + secret.encode() + after),
        "hex": secret.encode().hex().encode(),
        "HEX": secret.encode().hex().upper().encode(),
        "UTF-16": secret.encode("utf-16-le"),
        "UTF-16, big first": secret.encode("utf-16-be"),
    }[kind]
    return base64.b64encode(after + inner + before)


@pytest.mark.parametrize("kind", ["base64", "web safe", "hex", "HEX", "UTF-16", "UTF-16, big first"])
@pytest.mark.parametrize("gap", ["", "\n", ", "])
def test_secrets_in_base64_in_base64_are_found_at_every_offset_between_long_words(
    kind: str, gap: str
) -> None:
    # Secrets whose double base64 has few digits and capitals, or none, and others.
    secrets = ["jjjjjjjj", "nnrrvvzznnrr", "kokokoko1", "correct-horse", "A1b2C3d4E5", "~~~~~~~~", "00000000"]
    words = "internationalization/of_identifiers " * 20
    for secret in secrets:
        masker = Masker()
        masker.learn(secret)
        assert not masker.may_hold(words.encode())
        for offset in range(6):
            form = _nested(secret, kind, b"j" * offset, b"\x00\xff" * (offset % 3)).decode()
            width = 76 if len(gap) > 1 else 16
            lines = (
                gap.join(form[start : start + width] for start in range(0, len(form), width)) if gap else form
            )
            text = f"{words}{lines} {words}"
            assert masker.may_hold(text.encode()), (secret, offset, form)
            assert form not in masker.mask_known(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=3Db", True),
        (b"x=3=3D", True),
        (b"=C3=A4", True),
        (b"=C=C3=A4", True),
        (b"broken=\nline", True),
        (b"broken=\r\nline", True),
        (rb"broken=\nline", True),
        (rb"broken=\rline", True),
        (b"&#65;", True),
        (b"&amp;#65;", True),
        (b"&amp;amp;amp;amp;#65;", True),
        (b"&&a&am&amp;&#65;", True),
        (b"page=20&sort=asc#top", False),
        (b"a=C3 b=3 c=\\t", False),
        (b"x &amp; y #1", False),
        (b"& # & # &a# &amp# &amp;a#", False),
        (b"key=CA key=C3=x", False),
    ],
)
def test_escapes_are_told_from_signs_that_spell_nothing(text: bytes, *, expected: bool) -> None:
    assert has_escapes(text) is expected
    assert has_escapes(b"words before & after = " * 20 + text) is expected
