"""URLs of elicitations and logins: checked, and shown in full with warnings before they are opened."""

import re
import unicodedata
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote

from yarl import URL

MAX_URL_CHARACTERS = 4_096

_URL = re.compile(r"(https?)://([^/?#]*)([/?#].*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f.]*:[0-9a-f:.]*)\]|([^:\[\]%]+))(?::([0-9]{1,5}))?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LEGAL = ":/?#[]@!$&'()*+,;=%"
# Scripts that are written together as a matter of course.
_MIXES = ({"CJK", "HIRAGANA", "KATAKANA"}, {"CJK", "HANGUL"}, {"CJK", "BOPOMOFO"})

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownUrl:
    """A URL to show and, if the user accepts, to open: `url`, character for character.

    `host` is where it leads, port included, to be shown apart; `readable_host` is how one in punycode reads.
    """

    url: str = field(repr=False)
    """The URL, as it is opened."""
    host: str
    """Where it leads, port included."""
    readable_host: str | None = None
    """How a host in punycode reads; None for others."""
    warnings: tuple[str, ...] = ()
    """What the user should know before, such as a host that looks like another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UrlRefused:
    """Why a URL is refused."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def show_url(url: str) -> ShownUrl | UrlRefused:
    """Judge a URL that a server wants opened. Nothing is contacted."""
    try:
        return _check_url(url)
    except ValueError as exc:
        return UrlRefused(reason=str(exc))


def _check_url(url: str) -> ShownUrl:
    if len(url) > MAX_URL_CHARACTERS:
        raise ValueError(f"the URL is longer than {MAX_URL_CHARACTERS} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        # A backslash is where parsers disagree about the host, and the rest hides what is there.
        raise ValueError("the URL has spaces, backslashes or invisible characters in it")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("the URL does not begin with https://")
    scheme, authority, rest = parts[1].lower(), parts[2], parts[3] or "/"
    if "@" in authority:
        raise ValueError("the URL names a user before the host, which hides where it leads")
    host, port = _split(authority)
    address = _address(host)
    name = host if address else _encode_host(host)
    local = address.is_loopback if address else f".{name.rstrip('.')}".endswith(".localhost")
    if scheme == "http" and not local:
        raise ValueError("the URL is not encrypted: only https:// is opened")
    readable = _readable(name)
    netloc = (f"[{name}]" if isinstance(address, IPv6Address) else name) + port
    return ShownUrl(
        url=f"{scheme}://{netloc}{quote(rest, safe=_LEGAL)}",
        host=netloc,
        readable_host=readable if readable != name else None,
        warnings=tuple(_oddities(name, readable, address, is_local=local)),
    )


def _split(authority: str) -> tuple[str, str]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("the URL has no valid host")
    port = match[3]
    if port is not None and not 0 < int(port) < 65_536:
        raise ValueError("the URL has an invalid port")
    return match[1] or match[2], f":{int(port)}" if port else ""


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        pass
    if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2].lower()):
        raise ValueError("the URL has an address for a host, written in an unusual way")
    return None


def _encode_host(host: str) -> str:
    try:
        name = URL.build(scheme="https", host=host).raw_host or ""
    except ValueError:
        name = ""
    if not _NAME.fullmatch(name) or _NUMERIC_LABEL.fullmatch(name.rstrip(".").rpartition(".")[2]):
        raise ValueError("the URL has an invalid host name")
    return name


def _readable(name: str) -> str:
    """A host name in readable form; punycode that cannot be shown stays as it is written."""
    if "xn--" not in name:
        return name
    try:
        decoded = URL.build(scheme="https", host=name).host or name
    except ValueError:
        return name
    return decoded if decoded.isprintable() else name


def _oddities(name: str, readable: str, address: Address | None, *, is_local: bool) -> list[str]:
    odd: list[str] = []
    if "xn--" in name:
        reading = f"reads `{readable}`" if readable != name else "cannot be read"
        odd.append(f"the host is written in punycode and {reading}: it may look like another")
    if any(_mixes_scripts(label) for label in readable.split(".")):
        odd.append("the host mixes letters of several scripts: it may imitate another")
    if is_local:
        odd.append("it leads to a program on this machine")
    elif address is not None:
        odd.append("the host is a bare address, not a name")
    return odd


def _mixes_scripts(label: str) -> bool:
    letters = (unicodedata.name(character, "?") for character in label if character.isalpha())
    scripts = {re.split(r"[ -]", name, maxsplit=1)[0] for name in letters}
    return len(scripts) > 1 and not any(scripts <= mix for mix in _MIXES)
