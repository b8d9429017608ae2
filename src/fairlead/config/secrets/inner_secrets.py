"""Secrets inside longer values: connection strings, URLs, headers, cookies, JSON, and `NAME=value`.

A server that is given `postgres://me:PASSWORD@host` or `Basic BASE64` can say the password alone. So each
part that is a secret is masked by itself, too.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from fairlead.config.untyped import is_list, is_object

MAX_LENGTH = 64 * 1024
"""A longer value is a document, and is known as a whole only."""
MAX_PARTS = 32
_MAX_DEPTH = 8

IsSecret = Callable[[str, str], bool]
"""Whether a value is a secret, by its name and itself."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}+://[^\s\"'<>]++")
_BASIC = re.compile(r"(?i)\bbasic[ \t]{1,8}([A-Za-z0-9+/_-]{6,}+={0,2})")
_NAMED = re.compile(r"([A-Za-z][\w.-]{0,63}+)[ \t]{0,8}[=:][ \t]{0,8}(\"[^\"]*+\"|'[^']*+'|[^\s;,&\"'\\]++)")
"""A member of a connection string, a parameter of a scheme, or a variable (`docker run -e NAME=value`)."""
_USER = re.compile(r"[^\s:/={}\[\]\"']{1,128}+:(\S{6,}+)")
"""A user and password, as `Basic` has them."""
_SCHEME = re.compile(r"[A-Za-z][\w-]{1,31}+[ \t]{1,8}(\S{8,}+)")
"""The value of an `Authorization` header, of any scheme."""
_MIN_LONE_USER = 12


def inner_secrets(text: str, is_secret: IsSecret, *, is_whole: bool = False) -> Iterator[str]:
    """Parts of a value that are secrets, and the forms that they stand for once decoded.

    Args:
        text: The value of a variable, an argument, a header or a URL.
        is_secret: Judges what has a name inside it.
        is_whole: The value as a whole is a secret.
    """
    if len(text) > MAX_LENGTH:
        return
    for number, part in enumerate(_parts(text, is_secret, is_whole=is_whole, depth=_MAX_DEPTH)):
        if number >= MAX_PARTS:
            return
        yield part


def _parts(text: str, is_secret: IsSecret, *, is_whole: bool, depth: int) -> Iterator[str]:
    stripped = text.strip()
    if is_whole:
        yield stripped  # a file ends with a line break
    if stripped[:1] in ("{", "[") and depth and (members := _members(stripped)) is not None:
        for name, value in members:
            is_named = is_secret(_words(name), value)
            yield from _parts(value, is_secret, is_whole=is_named, depth=depth - 1)
        return
    yield from _named_parts(text, is_secret)
    if is_whole and "://" not in text:
        for pattern in (_SCHEME, _USER):
            if (found := pattern.fullmatch(stripped)) is not None and not found[1].isalpha():
                yield found[1]


def _named_parts(text: str, is_secret: IsSecret) -> Iterator[str]:
    for found in _BASIC.finditer(text):
        yield from _credentials(found[1])
    for url in _URL.findall(text):
        yield from _in_url(url, is_secret)
    for name, quoted in _NAMED.findall(text):
        value = quoted.strip("\"'")
        if is_secret(_words(name), value):
            yield value


def cookie_values(text: str) -> Iterator[str]:
    """Values of a `Cookie` header."""
    for pair in text.split(";")[:MAX_PARTS]:
        _, equals, value = pair.partition("=")
        if equals:
            yield value.strip().strip('"')


def _credentials(encoded: str) -> Iterator[str]:
    """User and password of `Basic`, together and the password by itself."""
    letters = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        pair = base64.b64decode(letters + "=" * (-len(letters) % 4)).decode()
    except ValueError:
        return
    user, colon, password = pair.partition(":")
    if colon:
        yield pair
        yield password if password and password != user else user


def _in_url(url: str, is_secret: IsSecret) -> Iterator[str]:
    """Password of a URL, or a lone user name, and its secret parameters; as written, and decoded."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    userinfo, at, host = parts.netloc.rpartition("@")
    user, _, password = map(unquote, userinfo.partition(":"))
    # `postgres://postgres:postgres@localhost` has no secret, and a word that would be masked in every result.
    others = {parts.scheme, user, *re.split(r"[.:,]", host), *parts.path.split("/")}
    if at and password and password not in others:
        yield from dict.fromkeys((userinfo.partition(":")[2], password))
    if at and (is_secret("", user) or (not password and _is_key(user))):
        yield user
    for parameters in (parts.query, parts.fragment):
        yield from (value for name, value in parse_qsl(parameters) if is_secret(name, value))


def _is_key(user: str) -> bool:
    """Whether a user without a password is a key: `https://KEY@errors.example/1`."""
    return len(user) >= _MIN_LONE_USER and any(map(str.isdigit, user))


def _members(text: str) -> list[tuple[str, str]] | None:
    """Names and texts in a JSON document; None where it is none."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found: list[tuple[str, str]] = []
    pending: list[tuple[str, object]] = [("", document)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, str):
            found.append((name, value))
        elif is_object(value):
            pending += value.items()
        elif is_list(value):
            pending += [(name, item) for item in value]
    return found


def _words(name: str) -> str:
    """A name with its words apart: `AccountKey` is `Account_Key`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
