"""The `docs.fetch` tool: read a page of an allowed site, with a cache on disk.

The cache follows HTTP freshness and validators. If it cannot be used, the page is fetched.
"""

import contextlib
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import msgspec
from mcp_types import TextContent, ToolAnnotations
from pydantic import Field
from yarl import URL

from fairlead.errors import ConfigError, ToolFailed
from fairlead.servers.docs.allowlist import MAX_URL, AllowList, escape_url, join_url, parse_url
from fairlead.servers.docs.fetch import FetchContext, FetchedResponse
from fairlead.servers.docs.pages import media_type, read_page
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel

logger = logging.getLogger(__name__)

MAX_CACHE_BYTES = 64 * 1024 * 1024
MAX_FRESH_SECONDS = 3600.0
"""Longest time before a cached page is revalidated, even where its server allows more."""
PAGING_SECONDS = 600.0
"""How long a page that is read part by part stays the same."""

_FORMAT = "1"
"""Part of every name, so that what another version wrote is not found."""
_MAX_AGE = re.compile(r"max-age\s*=\s*\"?([0-9]{1,10})")
_SUFFIX = ".json"
_TEMPORARY = ".tmp"
_STALE_SECONDS = 3600.0


class CachedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page in the cache, with the validators to ask whether it has changed."""

    url: str
    status: int
    content_type: str
    title: str | None
    text: str
    whole: bool
    note: str | None
    etag: str | None = None
    last_modified: str | None = None
    checked_at: float
    fresh_seconds: float

    def is_fresh(self, now: float, *, paging: bool = False) -> bool:
        """Whether it need not be revalidated. A clock that was set back makes nothing fresh."""
        age = now - self.checked_at
        return 0 <= age < max(self.fresh_seconds, PAGING_SECONDS if paging else 0.0)

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that ask for it only if it has changed."""
        headers = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in headers.items() if value}


def fresh_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the freshness lifetime of a response by its headers; None where it may not be cached."""
    cache_control = headers.get("Cache-Control", "").lower()
    if "no-store" in cache_control or headers.get("Vary", "").strip() == "*":
        return None
    limit = _MAX_AGE.search(cache_control)
    if limit is None or "no-cache" in cache_control:
        return 0.0
    age = headers.get("Age", "").strip()
    spent = int(age) if age.isdecimal() and len(age) < 10 else 0
    return float(min(max(int(limit[1]) - spent, 0), MAX_FRESH_SECONDS))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CachedPage).decode


class PageCache:
    """Pages in a folder that is its owner's alone, no more than `max_bytes` of them: the oldest go first.

    Its methods touch the disk: call them in a thread. Several processes may share a folder.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, url: str) -> CachedPage | None:
        """Return the cached page of a URL."""
        try:
            page = _decode(self._read(self._file(url)))
        except (OSError, msgspec.MsgspecError):
            return None
        return page if page.url == url else None

    def put(self, page: CachedPage) -> None:
        """Cache a page in place of the earlier one of its URL."""
        try:
            content = _encode(page)
            if len(content) > self._max_bytes // 4:
                return
            self._secure_folder()
            self._replace(self._file(page.url), content)
            self._trim()
        except (OSError, UnicodeEncodeError) as exc:
            logger.debug("a page could not be kept", extra={"reason": str(exc)})

    def renew(self, page: CachedPage, fresh: float) -> CachedPage:
        """Renew a page that was revalidated."""
        renewed = msgspec.structs.replace(page, checked_at=time.time(), fresh_seconds=fresh)
        self.put(renewed)
        return renewed

    def _file(self, url: str) -> Path:
        name = hashlib.sha256(f"{_FORMAT} {url}".encode()).hexdigest()
        return self._folder / f"{name}{_SUFFIX}"

    def _read(self, file: Path) -> bytes:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as opened:
            return opened.read(self._max_bytes)

    def _secure_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform == "win32":
            return
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError("the folder is a link, or belongs to another user")
        if stat.S_IMODE(status.st_mode) & 0o077:
            self._folder.chmod(0o700)

    def _replace(self, file: Path, content: bytes) -> None:
        # It can be fetched again, so there is no fsync; and a torn file fails to decode.
        descriptor, name = tempfile.mkstemp(_TEMPORARY, dir=self._folder)
        try:
            with open(descriptor, "wb") as opened:
                opened.write(content)
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _trim(self) -> None:
        """Remove what killed writers left, and the oldest pages if there are too many."""
        kept: list[tuple[float, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    age = time.time() - status.st_mtime
                    if entry.name.endswith(_SUFFIX):
                        kept.append((status.st_mtime, status.st_size, entry.path))
                    elif entry.name.endswith(_TEMPORARY) and age > _STALE_SECONDS:
                        os.unlink(entry.path)
        excess = sum(size for _, size, _ in kept) - self._max_bytes
        for _, size, path in sorted(kept):
            if excess <= 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            excess -= size


DEADLINE_SECONDS = 20.0
MAX_REDIRECTS = 5
DEFAULT_BYTES = 200_000
MAX_BYTES = 2_000_000

_MAX_ERROR_TEXT = 2_000
_MAX_VALIDATOR = 1024
_READERS = 4
"""How many pages are worked through at once: one that takes for ever keeps others waiting, not the host."""

DESCRIPTION = """\
Read a web page of documentation as Markdown, or a text, JSON or PDF file as text. Only https pages of the \
sites the user allowed can be read; the error for any other says how the user can allow it. A long page \
comes in parts: go on with `start` set to the `nextStart` of the answer.\
"""


class FetchInput(ToolModel):
    """Input of `docs.fetch`."""

    url: str = Field(max_length=MAX_URL)
    """The page's URL, beginning with https://"""
    max_bytes: int = Field(default=DEFAULT_BYTES, ge=1, le=MAX_BYTES)
    """How much text to return at most, in bytes."""
    start: int = Field(default=0, ge=0)
    """Where in the text to begin, in characters: 0, or the nextStart of the answer before."""


class FetchOutput(ToolModel):
    """Output of `docs.fetch`."""

    url: str
    """Where the page was found, after redirects."""
    status: int
    """The HTTP status; the text is the page's own only where it is 200."""
    content_type: str
    title: str | None = None
    text: str
    truncated: bool
    """Is there more of it?"""
    next_start: int | None = None
    """Where to go on. Missing where the rest cannot be had."""
    note: str | None = None
    """What the text does not say, such as why there is none."""


def docs_tool(
    *,
    allow: Callable[[], Sequence[str]],
    cache: Path | None,
    web: FetchContext | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> AnyTool:
    """Make the tool for the sites that `allow` names at the time; pages are kept in the folder `cache`."""
    reader = _PageReader(
        allow, None if cache is None else PageCache(cache), web or FetchContext(), deadline_seconds
    )
    return ToolDefinition(
        name="docs.fetch",
        title="Read documentation",
        description=DESCRIPTION,
        input=FetchInput,
        output=FetchOutput,
        handler=reader.fetch,
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True),
    )


class _PageReader:
    def __init__(
        self,
        allow: Callable[[], Sequence[str]],
        cache: PageCache | None,
        web: FetchContext,
        deadline_seconds: float,
    ) -> None:
        self._allowed = allow
        self._cache = cache
        self._web = web
        self._deadline_seconds = deadline_seconds
        self._readers = anyio.CapacityLimiter(_READERS)

    async def fetch(self, context: ToolContext, request: FetchInput) -> Reply[FetchOutput]:
        try:
            url = parse_url(request.url)
        except ValueError as exc:
            raise ToolFailed(f"`{escape_url(request.url)}` is not read: {exc}") from exc
        try:
            allow = AllowList(self._allowed())
        except ConfigError as exc:
            raise ToolFailed(f"what may be read is not clear: {exc}", hint=exc.hint) from exc
        try:
            with anyio.fail_after(self._deadline_seconds):
                page = await self._find(url, allow, paging=request.start > 0)
        except TimeoutError as exc:
            raise ToolFailed(
                f"{escape_url(url)} took longer than {self._deadline_seconds:g} seconds"
            ) from exc
        return _reply(page, request)

    async def _find(self, url: URL, allow: AllowList, *, paging: bool) -> CachedPage:
        """Return the page at a URL, or where that sends us, with each step checked as the first one is."""
        allow.check(url)
        async with self._web.open() as client:
            for _ in range(MAX_REDIRECTS + 1):
                found = await self._step(client, url, paging=paging)
                if isinstance(found, CachedPage):
                    return found
                url = _next(url, found, allow)
        raise ToolFailed(f"more than {MAX_REDIRECTS} redirects, the last one to {escape_url(url)}")

    async def _step(self, client: aiohttp.ClientSession, url: URL, *, paging: bool) -> CachedPage | str:
        """Return the page at a URL, or where it says to look instead."""
        kept = await self._get_cached_page(url)
        if kept is not None and kept.is_fresh(time.time(), paging=paging):
            return kept
        answer = await self._web.get(client, url, kept.conditions if kept else {})
        if answer.location is not None:
            return answer.location
        if answer.status == 304 and kept is not None and self._cache is not None:
            fresh = fresh_seconds(answer.headers)
            return await anyio.to_thread.run_sync(self._cache.renew, kept, fresh or 0.0)
        page = await self._read(answer)
        if self._cache is not None and page.status == 200 and fresh_seconds(answer.headers) is not None:
            await anyio.to_thread.run_sync(self._cache.put, page)
        return page

    async def _get_cached_page(self, url: URL) -> CachedPage | None:
        return None if self._cache is None else await anyio.to_thread.run_sync(self._cache.get, str(url))

    async def _read(self, answer: FetchedResponse) -> CachedPage:
        page = await anyio.to_thread.run_sync(
            partial(read_page, answer.body, answer.content_type, url=str(answer.url), whole=answer.whole),
            abandon_on_cancel=True,
            limiter=self._readers,
        )
        fine = 200 <= answer.status < 300
        return CachedPage(
            url=str(answer.url),
            status=answer.status,
            content_type=answer.content_type,
            title=page.title,
            text=page.text if fine else page.text[:_MAX_ERROR_TEXT],
            whole=page.whole if fine else page.whole and len(page.text) <= _MAX_ERROR_TEXT,
            note=page.note,
            etag=_sendable(answer.headers.get("ETag", "")),
            last_modified=_sendable(answer.headers.get("Last-Modified", "")),
            checked_at=time.time(),
            fresh_seconds=fresh_seconds(answer.headers) or 0.0,
        )


def _next(url: URL, location: str, allow: AllowList) -> URL:
    try:
        target = join_url(url, location)
        allow.check(target)
    except (ValueError, ToolFailed) as exc:
        raise ToolFailed(
            f"{escape_url(url)} redirects to `{escape_url(location)}`, which is not followed: {exc}",
            hint=exc.hint if isinstance(exc, ToolFailed) else None,
        ) from exc
    return target


def _sendable(value: str) -> str | None:
    """Return what a header says if it can be sent back."""
    return value if value.isascii() and value.isprintable() and 0 < len(value) <= _MAX_VALIDATOR else None


def _reply(page: CachedPage, request: FetchInput) -> Reply[FetchOutput]:
    size = len(page.text)
    if request.start > size:
        raise ToolFailed(
            f"the text of {escape_url(page.url)} has {size} characters, so none at {request.start}"
        )
    text = _cut(page.text[request.start : request.start + request.max_bytes], request.max_bytes)
    end = request.start + len(text)
    output = FetchOutput(
        url=page.url,
        status=page.status,
        content_type=page.content_type,
        title=page.title,
        text=text,
        truncated=end < size or not page.whole,
        next_start=end if end < size else None,
        note=page.note or (None if page.whole else "the page is longer than what is read of one"),
    )
    head = _head(output, request.start, end, size)
    return Reply(output=output, content=(TextContent(text=f"{head}\n\n{text}" if text else head),))


def _cut(text: str, max_bytes: int) -> str:
    """Return as much of a text as fits, at least one character, so that reading makes progress."""
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode(errors="ignore") or text[:1]


def _head(output: FetchOutput, start: int, end: int, size: int) -> str:
    """Return the one line that says what the text below it is."""
    parts = [f"{output.status} {media_type(output.content_type)}".rstrip()]
    if start or end < size:
        parts.append(f"characters {start} to {end} of {size}")
    if output.next_start is not None:
        parts.append(f"go on with start={output.next_start}")
    if output.note is not None:
        parts.append(output.note)
    return f"{output.title or 'Untitled'} <{output.url}> ({'; '.join(parts)})"
