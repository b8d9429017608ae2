"""Spellings of one path or URL: decoded, expanded, resolved, or inside a longer text.

Rules on arguments compare globs with all of them (see `policy.arguments`). Everything here is bounded, and
only `real_path`, `expand_home`, `WildcardExpander` and their callers read the file system.
"""

import base64
import binascii
import html
import ipaddress
import os
import posixpath
import re
import socket
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from fairlead.catalog.sanitize.text import clean

MAX_SPELLINGS: Final = 64
"""Most spellings of one text: each decoding can make another possible."""
MAX_PATH_LENGTH: Final = 16_384
"""A longer text is no path that a system would open as it is."""
MAX_PIECES: Final = 256
"""Most paths extracted from one text, such as a command line."""
MAX_ENTRIES: Final = 5_000
"""Most entries of folders that are looked at to expand the wildcards of one argument."""

FILE_URL = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}:){0,3}file:(?://[^/\\]{0,255}(?=[/\\]))?", re.IGNORECASE)
URL = re.compile(r"([a-z][a-z0-9+.-]{0,30}):[/\\]{1,8}([^/\\?#]*)", re.IGNORECASE)
_BARE_URL = re.compile(r"(https?|wss?|ftp):(?![/\\])([^/\\?#]+)", re.IGNORECASE)
_STRICT_URL = re.compile(r"([a-z][a-z0-9+.-]{0,30})://([^/?#]*)", re.IGNORECASE)
_URL_IN_TEXT = re.compile(r"""[a-z][a-z0-9+.-]{0,30}:[/\\]{1,8}[^\s"'<>|,;]+""", re.IGNORECASE)
_ROOT_LINK = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/root(?=/|$)")
PROCESS_LINK = re.compile(
    r"/proc/[^/]+(?:/task/[^/]+)?/(?:cwd|exe|fd|map_files)(?:/|$)|/dev/(?:fd|std(?:in|out|err))(?:/|$)"
)
"""Links of a process: targets of the server's own are not known here."""
_HOME_VARIABLE = re.compile(r"\$(?:HOME\b|\{HOME\}|env:HOME\b)|%(?:HOME|USERPROFILE)%", re.IGNORECASE)
VARIABLE = re.compile(r"\$[\w{(@*#?!$-]|`|%[A-Za-z_]{2,}%|(?<![\w./~-])~(?:[+-]\d*|\d+)(?![\w.])")
"""What a shell replaces by a text that is not known here; `~-` and `~1` are folders it was in before."""
WILDCARD = re.compile(r"[*?\[{]")
_PATH_IN_TEXT = re.compile(
    r"""(?:^|[^\w./~\\-]|(?:^|(?<=[\s,;]))--?\w{1,3})((?:file:|~|/)[^\s,;|"'<>()&]+)""", re.IGNORECASE
)
_PARTS_OF_PIECE = re.compile(r"[:=?#&!]")
"""What stands before a path in a search path (`/a:/b`), an option (`--in=/a`) or a URL (`php://filter/resource=/a`)."""
_BRACES = re.compile(r"\{([^{}]*)\}")
DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAMES: Final = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"))
NETWORK_SCHEMES: Final = frozenset(("http", "https", "ws", "wss", "ftp", "ftps", "git", "ssh", "s3", "gs"))
"""Schemes whose URLs name a file of another machine; any other may name one of this machine."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


# Escapes: text that must occur, pattern, and the character it encodes. A run of backslashes is
# looked at once, from its start, so that the time is linear; each JSON around an escape doubles them.
_HEX: Final = "[0-9a-fA-F]"
_BACKSLASHES: Final = r"(?<!\\)\\++"
_HEX_ESCAPE: Final = (
    rf"(?:U({_HEX}{{8}})|[uU]({_HEX}{{4}})|[uUxX]\{{0{{0,8}}({_HEX}{{1,6}})\}}|[xX]({_HEX}{{2}}))"
)
_ESCAPES: Final[tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (
        "\\",
        re.compile(_BACKSLASHES + _HEX_ESCAPE),
        lambda match: _character(match[1] or match[2] or match[3] or match[4]),
    ),
    (
        "\\",
        re.compile(_BACKSLASHES + r"[oO]?\{?(0[0-3][0-7]{2}|[0-3]?[0-7]{1,2})\}?"),
        lambda match: _character(match[1], 8),
    ),
    ("&", re.compile(rf"&(?:amp;)*+#[xX]0*+({_HEX}{{1,6}});?"), lambda match: _character(match[1])),
    ("&", re.compile(r"&(?:amp;)*+#0*+([0-9]{1,7});?"), lambda match: _character(match[1], 10)),
    (
        "&",
        re.compile(r"&(?:amp;)*+([A-Za-z][A-Za-z0-9]{1,31};?)"),
        lambda match: html.unescape(f"&{match[1]}"),
    ),
    ("%", re.compile(rf"%(?:25)*+[uU]({_HEX}{{4}})"), lambda match: _character(match[1])),
    ("=", re.compile(rf"=({_HEX}{{2}})"), lambda match: _character(match[1])),
    ("+", re.compile(r"\+([A-Za-z0-9/]{2,}+)-?"), lambda match: _decode_utf_7(match[1])),
)
_OVERLONG: Final = re.compile(
    rb"[\xc0\xc1].|\xe0[\x80-\x9f].|\xf0[\x80-\x8f]..|\xf8[\x80-\x87]...|\xfc[\x80-\x83]....", re.DOTALL
)
_LOOKALIKES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2044\u2215\u29f8\u2571\u27cb", "/"),
        **dict.fromkeys("\u2216\u29f5\u2572\u27cd\u29f9\xa5\u20a9", "\\"),
        "\u3002": ".",
    }
)
"""Characters that code pages and fonts turn into slashes and dots, and NFKC does not."""
# ASCII alone: beyond it, letters such as the Kelvin sign are a `k` in another case, and nothing in base64.
_BASE64: Final = re.compile(
    r"(?:data:[^,]{0,255};base64,|base64[:,]|b64:)?([A-Za-z0-9+/_-]{4,})={0,2}", re.IGNORECASE | re.ASCII
)
_HEX_TEXT: Final = re.compile(rf"(?:0[xX])?((?:{_HEX}{{2}}){{2,}})")
_NO_QUOTES: Final = str.maketrans("", "", "\"'")
_EXTENDED_GLOB: Final = re.compile(r"[+@!?*]\([^()/]*\)")
"""Alternatives in a glob of bash and of many glob libraries: `@(etc|tmp)`."""
_PATH_BEGINNING: Final = re.compile(r"[/~\\]|\.\.|file:|[A-Za-z]:[\\/]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class PathContext:
    """Meaning of relative paths and `~` for a server, as far as it is known."""

    cwd: str | None
    """Working directory; None for a server that runs elsewhere."""
    homes: tuple[str, ...]


def expand_braces(path: str) -> list[str]:
    """Expand `{a,b}` in a path as shells and many glob libraries do, up to a limit."""
    done: list[str] = []
    waiting = [path]
    while waiting and len(done) + len(waiting) <= MAX_SPELLINGS:
        text = waiting.pop()
        found = _BRACES.search(text)
        if found is None or "," not in found[1]:
            done.append(text)
        else:
            waiting += [text[: found.start()] + part + text[found.end() :] for part in found[1].split(",")]
    return [*done, *waiting]


class WildcardExpander:
    """Expands wildcards to the files that they match on this machine, as shells do.

    `glob` would look at every folder of the machine for `/*/*/*/*/*/x`, which takes minutes in a thread that
    cannot be interrupted; here the number of entries looked at is limited, over all calls.
    """

    def __init__(self, limit: int = MAX_ENTRIES) -> None:
        self._left = limit

    def expand(self, pattern: str) -> list[str] | None:
        """Return the paths that an absolute pattern matches; None where the limit was reached before that."""
        root, *parts = pattern.split("/")
        found = [root or "/"]
        for part in filter(None, parts):
            found = [path for folder in found for path in self._members(folder, part)]
            if self._left < 0:
                return None
        return found

    def _members(self, folder: str, name: str) -> Iterator[str]:
        self._left -= 1
        if self._left < 0:
            return
        if WILDCARD.search(name) is None:
            if os.path.lexists(path := posixpath.join(folder, name)):
                yield path
            return
        try:
            entries = os.scandir(folder)
        except (OSError, ValueError):
            return
        with entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0:
                    return
                if fnmatchcase(entry.name, name):
                    yield posixpath.join(folder, entry.name)


def spellings_of(text: str, limit: int = MAX_SPELLINGS) -> dict[str, None]:
    """A text and its decodings: each spelling found is decoded again, up to a limit."""
    found = {text: None}
    waiting = deque((text,))  # in order, so that the limit cuts off combinations and no single decoding
    while waiting and len(found) < limit:
        for other in _decodings(waiting.popleft()):
            if other and other not in found and len(found) < limit:
                found[other] = None
                waiting.append(other)
    return found


def _decodings(text: str) -> Iterator[str]:
    if text != (stripped := text.strip().strip("\"'")):
        yield stripped
    if "\0" in text:
        yield text.partition("\0")[0]
    if "%" in text:
        yield unquote(text, errors="replace")
        raw = unquote_to_bytes(text.encode(errors="replace"))
        yield _OVERLONG.sub(_overlong_character, raw).decode(errors="replace")
    if "\\" in text:
        yield text.replace("\\", "/")
        yield text.replace("\\", "")  # as shells read it
    if _PATH_BEGINNING.match(unquoted := text.translate(_NO_QUOTES)):
        yield unquoted  # as shells join the parts of a word: `/e''tc`
        yield _EXTENDED_GLOB.sub("*", unquoted)
    if not text.isascii() or not text.isprintable():
        yield unicodedata.normalize("NFKC", clean(text)).translate(_LOOKALIKES)
        yield text.replace("\t", "").replace("\r", "").replace("\n", "")
    yield from _escape_decodings(text)
    yield from _url_decodings(text)
    if "...." in text or "..././" in text:
        yield text.replace("../", "")  # as filters leave it that remove `../` once
    for inner in (_base64_path(text), _hex_path(text)):
        if inner is not None:
            yield inner


def _escape_decodings(text: str) -> Iterator[str]:
    """Decodings of a text, one for each kind of escape: a server knows one of them, rarely two."""
    for sign, pattern, decode in _ESCAPES:
        if sign in text:
            decoded = pattern.sub(decode, text)
            if decoded != text:  # two escapes of UTF-16 are one character
                yield decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(digits: str, base: int = 16) -> str:
    code = int(digits, base)
    return chr(code) if code <= sys.maxunicode else "\ufffd"


def _overlong_character(match: re.Match[bytes]) -> bytes:
    """Character that a lenient decoder finds in overlong UTF-8."""
    first, *others = match[0]
    code = first & (0x7F >> len(match[0]))
    for byte in others:
        code = code << 6 | byte & 0x3F
    return chr(code).encode(errors="replace")


def _decode_utf_7(letters: str) -> str:
    padded = letters + "=" * (-len(letters) % 4)
    try:
        return base64.b64decode(padded).decode("utf-16-be", "replace")
    except binascii.Error:  # one letter too many
        return letters


def _base64_path(text: str, layers: int = 2) -> str | None:
    """Path encoded as base64, as in `data:` URLs, or again as that; None where the text is none."""
    found = _BASE64.fullmatch(text)
    if found is None:
        return None
    letters = found[1].replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(letters + "=" * (-len(letters) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    if _PATH_BEGINNING.match(decoded):
        return decoded
    return _base64_path(decoded, layers - 1) if layers else None


def _hex_path(text: str) -> str | None:
    """Path written in hexadecimal digits, as in SQL; None where the text is none."""
    found = _HEX_TEXT.fullmatch(text)
    return None if found is None else path_in_bytes(bytes.fromhex(found[1]))


def path_in_bytes(encoded: bytes) -> str | None:
    """Path that bytes encode; None where they are another text, or none."""
    decoded = encoded.decode(errors="replace")
    return decoded if _PATH_BEGINNING.match(decoded) else None


def _url_decodings(text: str) -> Iterator[str]:
    """Path of a file URL, or the canonical form of another URL."""
    if (file_url := FILE_URL.match(text)) is not None:
        path = text[file_url.end() :]
        yield path
        if not path.startswith("/"):
            yield f"/{path}"  # `file:etc/x`, as browsers read it
        host = _STRICT_URL.match(text)
        if host is not None:
            yield f"/{host[2]}{text[host.end() :]}"  # `file://etc/x`: some take the host for a folder
        yield re.split(r"[?#]", path, maxsplit=1)[0]
        return
    # A browser ends the host at a backslash, other clients do not.
    for found in (URL.match(text) or _BARE_URL.match(text), _STRICT_URL.match(text)):
        if found is not None and (canonical := _canonical_url(text, found)) is not None:
            yield canonical


def _canonical_url(text: str, found: re.Match[str]) -> str | None:
    """Canonical URL: no user, host in lower case, numbers as an address, no default port."""
    scheme, authority = found[1].lower(), found[2].rpartition("@")[2]
    try:
        parts = urlsplit(f"{scheme}://{unquote(authority)}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    port = None if port == _DEFAULT_PORTS.get(scheme) else port
    rest = text[found.end() :].replace("\\", "/")
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    normal = normalize_path(f"/{path}")
    normal += "/" if path.endswith("/") and normal != "/" else ""
    return (
        f"{scheme}://{_canonical_host(host)}{'' if port is None else f':{port}'}{normal}{rest[len(path) :]}"
    )


def is_this_machine(host: str | None) -> bool:
    """Whether the host of a canonical URL is this machine, by a usual name or address."""
    if not host:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in _LOCAL_NAMES or host.endswith(".localhost") or host == socket.gethostname().lower()
    return address.is_loopback or address.is_unspecified


def _canonical_host(host: str) -> str:
    host = host.rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host.isascii() and host.isdigit() and len(host) < 64:
            return str(ipaddress.IPv4Address(int(host) % 2**32))  # as some resolvers count
        try:
            return socket.inet_ntoa(socket.inet_aton(host))  # 0x7f.1
        except (OSError, ValueError):
            pass
        try:
            return unicodedata.normalize("NFKC", host).encode("idna").decode()
        except UnicodeError:
            return host
    mapped = _extract_ipv4(address)
    return str(mapped) if mapped is not None else f"[{address}]" if address.version == 6 else str(address)


def _extract_ipv4(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    """IPv4 address that an IPv6 one embeds: mapped, compatible, or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    number = int(address)
    if address.ipv4_mapped is not None or (number >> 32 == 0 and number > 1) or address in _NAT64:
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return None


def expand_home(path: str, context: PathContext) -> Iterator[str]:
    """A path with `~` and `$HOME` replaced by every home directory that could be meant."""
    yield path
    plain = _HOME_VARIABLE.sub("~", path, count=1) if _HOME_VARIABLE.match(path) else path
    if not plain.startswith("~"):
        return
    name, _, rest = plain[1:].partition("/")
    homes: Iterable[str] = context.homes
    if name:
        homes = _homes_of(name)
    for home in homes:
        yield f"{home.rstrip('/')}/{rest}"


def _homes_of(user: str) -> tuple[str, ...]:
    """The home directory of a user; none where no user can have that name."""
    try:
        known = os.path.expanduser(f"~{user}")
    except ValueError:  # a NUL or a lone surrogate, which the system's database of users cannot be asked for
        return ()
    return () if known.startswith("~") else (known,)


def normalize_path(path: str) -> str:
    """Remove `.`, `..`, repeated slashes and the `/proc/*/root` that leads back to `/` from a path."""
    if not path:
        return path
    normal = posixpath.normpath(path)
    normal = "/" + normal.lstrip("/") if normal.startswith("//") else normal
    while (link := _ROOT_LINK.match(normal)) is not None:
        normal = posixpath.normpath(normal[link.end() :] or "/")
    return normal


def real_path(path: str) -> str | None:
    """Resolve symbolic links of a path; None where the system refuses."""
    while (link := _ROOT_LINK.match(path)) is not None:
        path = path[link.end() :] or "/"
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError):
        return None


def paths_inside(text: str, context: PathContext) -> Iterator[str]:
    """Absolute paths inside a text, such as a command line, a list with commas or the query of a URL.

    At most `MAX_PIECES` pieces and one more are yielded, so that a caller sees that there are others.
    """
    left = MAX_PIECES + 1
    for piece in _PATH_IN_TEXT.finditer(text):
        whole = FILE_URL.sub("", piece[1], count=1)
        # Each part that begins like a path may be one, regardless of what stands before it.
        for part in (whole, *_PARTS_OF_PIECE.split(whole, maxsplit=left)):
            if not part.startswith(("/", "~", "$", "%", "..")):
                continue
            for path in expand_home(part, context):
                if path.startswith("/"):
                    yield normalize_path(path)
                elif path.startswith(".."):
                    yield normalize_path(f"/{path}")
            left -= 1
            if left < 0:
                return


def urls_inside(text: str) -> Iterator[str]:
    """Canonical URLs inside a text, and the URL that a text without a scheme would be."""
    for number, piece in enumerate(_URL_IN_TEXT.finditer(text)):
        if number > MAX_PIECES:
            return
        found = URL.match(piece[0])
        if found is not None and (canonical := _canonical_url(piece[0], found)) is not None:
            yield canonical
    if "://" not in text and len(text) <= 2048 and not any(map(str.isspace, text)):
        bare = text.lstrip("/\\")
        for scheme in ("http", "https"):
            whole = f"{scheme}://{bare}"
            found = URL.match(whole)
            if found is not None and (canonical := _canonical_url(whole, found)) is not None:
                yield canonical
