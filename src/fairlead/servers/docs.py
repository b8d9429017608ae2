"""docs.fetch: read a page of documentation, of the sites the user allowed."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
from mcp_types import TextContent, ToolAnnotations
from pydantic import Field
from yarl import URL

from fairlead.errors import ConfigError, ToolFailed
from fairlead.servers.allowlist import MAX_URL, AllowList, join_url, parse_url, shown
from fairlead.servers.definition import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.page_cache import CachedPage, PageCache, fresh_seconds
from fairlead.servers.pages import media_type, read_page
from fairlead.servers.web import Answer, Web

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
    """What to read."""

    url: str = Field(max_length=MAX_URL)
    """The page's URL, beginning with https://"""
    max_bytes: int = Field(default=DEFAULT_BYTES, ge=1, le=MAX_BYTES)
    """How much text to return at most, in bytes."""
    start: int = Field(default=0, ge=0)
    """Where in the text to begin, in characters: 0, or the nextStart of the answer before."""


class FetchOutput(ToolModel):
    """What was read."""

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
    web: Web | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> AnyTool:
    """Make the tool for the sites that `allow` names at the time; pages are kept in the folder `cache`."""
    reader = _Reader(allow, None if cache is None else PageCache(cache), web or Web(), deadline_seconds)
    return ToolDefinition(
        name="docs.fetch",
        title="Read documentation",
        description=DESCRIPTION,
        input=FetchInput,
        output=FetchOutput,
        handler=reader.fetch,
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True),
    )


class _Reader:
    def __init__(
        self,
        allow: Callable[[], Sequence[str]],
        cache: PageCache | None,
        web: Web,
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
            raise ToolFailed(f"`{shown(request.url)}` is not read: {exc}") from exc
        try:
            allow = AllowList(self._allowed())
        except ConfigError as exc:
            raise ToolFailed(f"what may be read is not clear: {exc}", hint=exc.hint) from exc
        try:
            with anyio.fail_after(self._deadline_seconds):
                page = await self._find(url, allow, paging=request.start > 0)
        except TimeoutError as exc:
            raise ToolFailed(f"{shown(url)} took longer than {self._deadline_seconds:g} seconds") from exc
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
        raise ToolFailed(f"more than {MAX_REDIRECTS} redirects, the last one to {shown(url)}")

    async def _step(self, client: aiohttp.ClientSession, url: URL, *, paging: bool) -> CachedPage | str:
        """Return the page at a URL, or where it says to look instead."""
        kept = await self._kept(url)
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

    async def _kept(self, url: URL) -> CachedPage | None:
        return None if self._cache is None else await anyio.to_thread.run_sync(self._cache.get, str(url))

    async def _read(self, answer: Answer) -> CachedPage:
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
            f"{shown(url)} redirects to `{shown(location)}`, which is not followed: {exc}",
            hint=exc.hint if isinstance(exc, ToolFailed) else None,
        ) from exc
    return target


def _sendable(value: str) -> str | None:
    """Return what a header says if it can be sent back."""
    return value if value.isascii() and value.isprintable() and 0 < len(value) <= _MAX_VALIDATOR else None


def _reply(page: CachedPage, request: FetchInput) -> Reply[FetchOutput]:
    size = len(page.text)
    if request.start > size:
        raise ToolFailed(f"the text of {shown(page.url)} has {size} characters, so none at {request.start}")
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
    """Return as much of a text as fits, but never nothing, or nobody would get on."""
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
