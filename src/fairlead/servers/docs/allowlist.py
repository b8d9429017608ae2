"""The allowlist of the `docs` server: host patterns, and the parsed URLs they are matched against.

A URL is read once. The object that comes of it is what the patterns look at and what is sent, so there are no
two parsers to disagree; and a text that readers are known to disagree about is not read at all.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from yarl import URL

from fairlead.config.command_lines import command_line
from fairlead.errors import ConfigError, ToolFailed
from fairlead.net.ssrf import is_loopback_host, literal_address, why_not_public

MAX_URL = 4096

_BEGINNING = re.compile(r"https?://(?:([a-z0-9_.-]+)|\[([0-9a-f:.]+)\])(?::[0-9]+)?(?=[/?#]|\Z)", re.I)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
_UNSPEAKABLE = re.compile(r"[\x00-\x20\x7f\\]")
_UNSPEAKABLE_REASON = "it holds a space, a control character or a backslash"
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\.?", re.I)
_SEPARATOR = re.compile(r"[/\\]")
_SHOWN = 120


def parse_url(text: str) -> URL:
    """Parse a URL that every parser reads in the same way. Raises `ValueError` with the reason."""
    if len(text) > MAX_URL:
        raise ValueError(f"it is longer than {MAX_URL} characters")
    if _UNSPEAKABLE.search(text):
        raise ValueError(_UNSPEAKABLE_REASON)
    if not text.lower().startswith(("https://", "http://")):
        raise ValueError("it does not begin with `https://`")
    beginning = _BEGINNING.match(text)
    if beginning is None:
        raise ValueError("its host is not a plain one: letters, digits, `-` and dots, no user before it")
    url = URL(text).with_fragment(None)
    if not _is_same_host(beginning[1] or beginning[2], url.raw_host or ""):
        raise ValueError("its host can be read in more than one way")
    if url.port == 0:
        raise ValueError("there is no port 0")
    if ".." in _SEPARATOR.split(unquote(url.raw_path)):
        raise ValueError("its path goes up (`..`) in disguise")
    return url


def join_url(base: URL, reference: str) -> URL:
    """Resolve a reference found at `base`, as strictly as `parse_url`."""
    if reference.startswith("//"):
        reference = f"{base.scheme}:{reference}"
    if _SCHEME.match(reference):
        return parse_url(reference)
    if _UNSPEAKABLE.search(reference):
        raise ValueError(_UNSPEAKABLE_REASON)
    return parse_url(str(base.join(URL(reference))))


def _is_same_host(written: str, understood: str) -> bool:
    address = literal_address(written)
    if address is not None:
        return address == literal_address(understood)
    # What ends in a number is an address to some, however it is spelled: 2130706433, 0177.0.0.1, 127.1
    return written.lower() == understood and not _NUMBER.fullmatch(written.rpartition(".")[2])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """Entry of the allowlist: a host or a domain, an optional port, and an optional path prefix."""

    text: str = field(compare=False)
    schemes: frozenset[str]
    host: str
    under: bool
    """Whether it matches the hosts below `host`, rather than that one."""
    port: int | None
    """None: the usual one."""
    path: str

    @property
    def place(self) -> str:
        """The host with its port and path prefix, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}{'' if self.port is None else f':{self.port}'}{self.path}"

    @property
    def meaning(self) -> str:
        """The pattern as a URL with `*` for what may vary."""
        scheme = "http(s)" if len(self.schemes) > 1 else next(iter(self.schemes))
        return f"{scheme}://{'*.' if self.under else ''}{self.place}/*"

    def covers(self, url: URL) -> bool:
        """Whether it allows this URL."""
        host = url.raw_host or ""
        return (
            (host.endswith(f".{self.host}") if self.under else host == self.host)
            and url.scheme in self.schemes
            and (url.is_default_port() if self.port is None else url.port == self.port)
            and (url.raw_path == self.path or url.raw_path.startswith(f"{self.path}/"))
        )


def parse_pattern(text: str) -> Pattern:
    """Parse an entry: `docs.python.org`, `*.example.org`, `example.org:8443/docs`, `localhost:8000`.

    A scheme may stand before it. Plain http is for this machine only, and there it goes without saying.
    """
    try:
        return _pattern(text)
    except ValueError as exc:
        raise ConfigError(
            f"`{text[:_SHOWN]}` is no site that can be allowed: {exc}",
            hint="write a host such as `docs.python.org` or `*.readthedocs.io`, and a path if you like",
        ) from exc


def _pattern(text: str) -> Pattern:
    scheme, separator, rest = text.rpartition("://")
    if rest == "*":
        raise ValueError("it means every site there is")
    under = rest.startswith("*.")
    plain = rest.removeprefix("*.").removesuffix("/*")
    if "*" in plain:
        raise ValueError("`*.` stands before a host, and nowhere else")
    url = parse_url(f"{scheme or 'https'}://{plain}")
    host = url.raw_host or ""
    local = is_loopback_host(host)
    if under and "." not in host and not local:
        raise ValueError(f"it means every site under .{host}")
    if url.scheme == "http" and not local:
        raise ValueError("only this machine (`localhost`) may be read over plain http")
    if url.raw_query_string or "?" in rest or "#" in rest:
        raise ValueError("it has a query or a fragment")
    address = literal_address(host)
    if address is not None and (under or (not local and why_not_public(address))):
        raise ValueError(f"it is {why_not_public(address) or 'an address'}")
    return Pattern(
        text=text,
        schemes=frozenset({url.scheme} if separator else {"https", "http"} if local else {"https"}),
        host=host,
        under=under,
        port=None if url.is_default_port() else url.port,
        path=url.raw_path.rstrip("/"),
    )


class AllowList:
    """The sites that may be read; none if it is empty. `ConfigError` names an invalid entry."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._patterns = tuple(map(parse_pattern, entries))

    def find_entry(self, url: URL) -> Pattern | None:
        """Return the entry that allows this URL, if there is one."""
        return next((pattern for pattern in self._patterns if pattern.covers(url)), None)

    def check(self, url: URL) -> None:
        """Raise `ToolFailed`, with the reason and what would allow it, unless this URL may be read."""
        if self.find_entry(url) is not None:
            return
        host = url.raw_host or ""
        if url.scheme == "http" and not is_loopback_host(host):
            raise ToolFailed(
                f"{escape_url(url)} is not https, so it is not read", hint="try it with `https://`"
            )
        if not self._patterns:
            reason = "no site may be read yet: the user has allowed none"
        else:
            names = ", ".join(pattern.text for pattern in self._patterns[:20])
            reason = f"{escape_url(url)} is not among what may be read: {names}"
        raise ToolFailed(
            reason,
            hint=f"the user can allow it: `{command_line('docs allow', str(url.host_port_subcomponent))}`",
        )


def escape_url(url: URL | str) -> str:
    """Escape a URL, or untrusted text in its place, for a message."""
    text = ascii(str(url))[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
