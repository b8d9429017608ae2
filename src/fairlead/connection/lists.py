"""List everything a server offers: each list on its own, page by page, within budgets of items and bytes.

A failing or hanging list of resources, templates or prompts costs nothing but itself. Pages are read one at a
time; what is kept of them is copied, so that no page outlives its turn, and what is over the budget is left
out and named in the listing's notes.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import (
    has_slow_numbers,
    without_constants_steps,
    without_lone_surrogates_steps,
)
from fairlead.catalog.tools import NOTES_META_KEY, Listing, RejectedTool, ToolEntry, read_tools
from fairlead.config.untyped import is_list
from fairlead.connection.outcomes import NotSent, RequestExpired, RequestRejected
from fairlead.connection.session import HeaderMap, Session
from fairlead.errors import AuthRequired, FairleadError, ListFailed

MAX_PAGES = 100
MAX_SECONDS = 30.0
"""How long one list may take, all its pages together."""
UNDECLARED_SECONDS = 5.0
"""How long a list may take that the server did not declare."""
GRACE_SECONDS = 1.0
"""How long the tools wait for the other lists, so that as a rule a server is listed once and not twice."""
MAX_ENTRY_BYTES = 1024 * 1024
"""The largest definition of one tool, resource or prompt."""
MAX_ENTRY_PARTS = 40_000
"""How many commas and brackets a definition may have: every part is an object once it is read."""
MAX_PAGE_PARTS = 600_000
"""How many commas and brackets a page may have: so many are read in less than 50 ms."""
MAX_NOTE = 2_000

_NOT_YET: Final = "has not been answered yet"
_MAX_NAMED = 10
_HEAD_BYTES = 4096
_SLICE_ENTRIES = 256
_SLICE_BYTES = 256 * 1024

_ANNOTATED = X_MCP_HEADER_KEY.encode()


_WIRE_NAMES = {
    "next_cursor": "nextCursor",
    "templates": "resourceTemplates",
    "ttl_ms": "ttlMs",
    "meta": "_meta",
}


class _ListPage(msgspec.Struct, gc=False, rename=_WIRE_NAMES):
    tools: list[msgspec.Raw] | None = None
    resources: list[msgspec.Raw] | None = None
    templates: list[msgspec.Raw] | None = None
    prompts: list[msgspec.Raw] | None = None
    next_cursor: msgspec.Raw = msgspec.Raw()
    ttl_ms: msgspec.Raw = msgspec.Raw()
    meta: msgspec.Raw = msgspec.Raw()


_decode_page = msgspec.json.Decoder(_ListPage).decode
_decode_schema = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedServer:
    """A listing, and which arguments of its tools go into headers as well."""

    listing: Listing
    header_maps: dict[str, HeaderMap]
    failure: Exception | None = None
    """Why the tools could not be listed, where they are only those of before."""
    is_interim: bool = False
    """Whether the tools are those of before because their list takes long: another listing follows."""


ListKind = Literal["tools", "resources", "templates", "prompts"]

KINDS: Final[tuple[ListKind, ...]] = ("tools", "resources", "templates", "prompts")
_METHODS: Final[Mapping[ListKind, str]] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "prompts": "prompts/list",
}


@dataclass(slots=True)
class ListBudget:
    """The limits of a listing: entries of each kind, and bytes of all kinds together."""

    max_items: int
    max_bytes: int
    request_seconds: float = MAX_SECONDS
    """How long one page may take, as any request."""
    used_bytes: int = 0

    def take(self, size: int) -> bool:
        """Count an entry, if there is room for it."""
        if self.used_bytes + size > self.max_bytes:
            return False
        self.used_bytes += size
        return True


@dataclass(slots=True)
class _Pages:
    """The entries kept from all pages of one list."""

    entries: list[bytes] = field(default_factory=list[bytes])
    too_large: list[bytes] = field(default_factory=list[bytes])
    """The beginnings of entries that are too large."""
    ttl_ms: int | None = None
    notes: list[str] = field(default_factory=list[str])
    failure: ListFailed | None = None
    """Why the list could not be read to its end."""

    def cut_off(self, failure: ListFailed, reason: str) -> None:
        """Keep what was read, and note that it may not be all."""
        self.failure = failure
        self.notes.append(
            gate.text(f"{reason}; what follows the first {len(self.entries)} entries is left out")
        )


class Lister:
    """Lists one server once. `publish` gets the listing as soon as the tools are known.

    The other lists are requested together then, or where the tools take long, meanwhile. Those that take long
    are published when they come; until then, and where one fails, what was known `before` stays.
    """

    def __init__(
        self,
        server_id: str,
        session: Session,
        budget: ListBudget,
        before: Listing,
        publish: Callable[[ListedServer], Awaitable[None]],
    ) -> None:
        self._server_id = server_id
        self._session = session
        self._budget = budget
        self._publish = publish
        self._known = before
        self._others: dict[ListKind, tuple[bytes, ...]] = {}
        self._before: Mapping[ListKind, tuple[bytes, ...]] = {
            "resources": before.resources,
            "templates": before.templates,
            "prompts": before.prompts,
        }
        self._notes: dict[ListKind, list[str]] = {}
        self._tools: ListedServer | None = None
        self._late: set[ListKind] = set()
        self._tools_came = anyio.Event()
        self._are_others_begun = False
        self._all_came = anyio.Event()
        self._is_published = False
        self._publishing = anyio.Lock()

    async def run(self) -> None:
        """List everything. Raises `ListFailed` where the tools cannot be had, or what ended their request.

        Where the tools cannot be had the other lists are published all the same, with the tools as before.
        """
        failure: Exception | None = None
        is_over = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._list_others_meanwhile, tasks)
            try:
                self._tools = await self._list_tools()
            except (MCPError, NotSent, FairleadError) as exc:
                failure = exc
                is_over = isinstance(exc, AuthRequired) or not self._has_others()
                is_over = is_over or self._session.dispatcher.ending is not None
                if not is_over:
                    self._tools = self._fall_back_to_known_tools(exc)
            self._tools_came.set()
            if is_over:
                tasks.cancel_scope.cancel()
            else:
                self._begin_others(tasks)
                if self._late:
                    with anyio.move_on_after(GRACE_SECONDS):
                        await self._all_came.wait()
                await self._publish_all()
        if failure is not None:
            raise failure

    async def _list_tools(self) -> ListedServer:
        pages = await self._list("tools", declared=self._session.capabilities.tools is not None)
        listed = await self._read_tools(pages)
        if pages.failure is not None and _names(self._known.tools) - _names(listed.listing.tools):
            raise pages.failure  # else tools would be gone that only were not listed this time
        return listed

    def _has_others(self) -> bool:
        offers = self._session.capabilities
        return offers.resources is not None or offers.prompts is not None

    def _begin_others(self, tasks: TaskGroup) -> None:
        """Begin with the other lists, unless they are begun."""
        if self._are_others_begun:
            return
        self._are_others_begun = True
        offers = self._session.capabilities
        if offers.resources is not None:
            self._late |= {"resources", "templates"}
        if offers.prompts is not None:
            self._late.add("prompts")
        for kind in KINDS:
            if kind in self._late:
                tasks.start_soon(self._list_other, kind)

    async def _list_others_meanwhile(self, tasks: TaskGroup) -> None:
        """List the others while the tools take long, and publish them with the tools that are known."""
        with anyio.move_on_after(GRACE_SECONDS):
            await self._tools_came.wait()
        if self._tools_came.is_set() or not self._has_others():
            return
        self._begin_others(tasks)
        with anyio.move_on_after(GRACE_SECONDS):
            await self._all_came.wait()
        if not self._tools_came.is_set():
            self._tools = replace(self._known_tools(f"{_METHODS['tools']} {_NOT_YET}"), is_interim=True)
            await self._publish_all()

    def _fall_back_to_known_tools(self, failure: Exception) -> ListedServer:
        """The tools as they were known before, because they could not be listed."""
        return replace(self._known_tools(gate.text(str(failure), MAX_NOTE)), failure=failure)

    def _known_tools(self, note: str) -> ListedServer:
        tools, rejected = self._known.tools, self._known.rejected
        listing = Listing(tools=tools, rejected=rejected, notes=(note,), is_partial=True)
        return ListedServer(listing=listing, header_maps=read_header_maps(tools))

    async def list_undeclared(self, kind: ListKind) -> list[bytes]:
        """One list that the server did not declare."""
        return (await self._list(kind, declared=False)).entries

    async def _list_other(self, kind: ListKind) -> None:
        """List resources, templates or prompts. What goes wrong is noted, and costs nothing else."""
        try:
            pages = await self._list(kind, declared=True)
            if pages.failure is not None and not set(self._before[kind]) <= set(pages.entries):
                raise pages.failure
        except (MCPError, NotSent, FairleadError) as exc:
            if self._session.dispatcher.ending is not None:
                return  # which ends this listing as well
            reason = str(exc) if isinstance(exc, ListFailed) else f"{_METHODS[kind]} failed: {exc}"
            self._notes[kind] = [gate.text(reason)[:MAX_NOTE]]
            self._others[kind] = self._before[kind]
        else:
            self._notes[kind] = [*pages.notes, *_too_large(kind, pages.too_large)]
            self._others[kind] = tuple(pages.entries)
        self._late.discard(kind)
        if self._is_published:
            await self._publish_all()
        elif not self._late:
            self._all_came.set()

    async def _publish_all(self) -> None:
        """Publish what is known, one listing after the other: preparing one may take a while."""
        self._is_published = True
        async with self._publishing:
            await self._publish(self._current_listing())

    def _current_listing(self) -> ListedServer:
        assert self._tools is not None
        notes = [note for kind in KINDS for note in self._notes.get(kind, ())]
        notes += [f"{_METHODS[kind]} {_NOT_YET}" for kind in KINDS if kind in self._late]
        lists: dict[ListKind, tuple[bytes, ...]] = {kind: self._before[kind] for kind in self._late}
        lists |= self._others
        listing = replace(
            self._tools.listing,
            resources=lists.get("resources", ()),
            templates=lists.get("templates", ()),
            prompts=lists.get("prompts", ()),
            notes=(*notes, *self._tools.listing.notes),
        )
        return replace(self._tools, listing=listing)

    async def _read_tools(self, pages: _Pages) -> ListedServer:
        header_maps: dict[str, HeaderMap] = {}
        rejected: list[RejectedTool] = []
        usable: Iterator[bytes] = iter(pages.entries)
        if self._session.modern:
            usable = _with_headers(usable, header_maps, rejected)
        tools: list[ToolEntry] = []
        seen: set[str] = set()
        position = 0
        while chunk := [*islice(usable, _SLICE_ENTRIES)]:
            entries, unreadable = read_tools(self._server_id, iter(chunk), seen=seen, first=position)
            position += len(chunk)
            tools += entries
            rejected += unreadable
            await anyio.lowlevel.checkpoint()
        rejected += [RejectedTool(name=_name_in(head), reason=_TOO_LARGE) for head in pages.too_large]
        instructions, notes = await self._session.read_instructions()
        listing = Listing(
            tools=tuple(tools),
            rejected=tuple(rejected),
            instructions=instructions,
            ttl_ms=pages.ttl_ms,
            notes=(*pages.notes, *notes),
        )
        return ListedServer(listing=listing, header_maps=header_maps)

    async def _list(self, kind: ListKind, *, declared: bool) -> _Pages:
        """All pages of one list. A server that did not declare it need not have it: then there is none."""
        method = _METHODS[kind]
        seconds = MAX_SECONDS if declared else UNDECLARED_SECONDS
        pages = _Pages()
        try:
            with anyio.fail_after(seconds):
                await self._follow(kind, pages, seconds, declared=declared)
        except RequestRejected as exc:
            is_absent = not pages.entries and (
                not declared or (exc.code == METHOD_NOT_FOUND and kind != "tools")
            )
            if not is_absent:
                self._cut_off(pages, f"{method} failed: {gate.text(str(exc))}", exc)
            elif declared and kind != "templates":  # which many leave out
                pages.notes.append(f"it declares {kind}, and does not list them")
        except (TimeoutError, RequestExpired) as exc:
            if isinstance(exc, RequestExpired):
                seconds = min(seconds, self._budget.request_seconds)
            if declared or pages.entries:
                self._cut_off(pages, f"{method} took longer than {seconds:g} s", exc)
        except (msgspec.DecodeError, RecursionError) as exc:
            self._cut_off(pages, f"{method} was answered with something else: {exc}", exc)
        return pages

    def _cut_off(self, pages: _Pages, reason: str, cause: Exception | None = None) -> None:
        """End a list that cannot be read further. Raises `ListFailed` where nothing of it was read."""
        failure = ListFailed(self._server_id, reason)
        if not pages.entries:
            raise failure from cause
        pages.cut_off(failure, reason)

    async def _follow(self, kind: ListKind, pages: _Pages, seconds: float, *, declared: bool) -> None:
        seen: set[str] = set()
        cursor: str | None = None
        seconds = min(seconds, self._budget.request_seconds)
        for _ in range(MAX_PAGES):
            page = await self._ask_page(kind, pages, cursor, seconds)
            cursor = await self._read_page(kind, pages, page, seen, declared=declared) if page else None
            if cursor is None:
                return
            seen.add(cursor)
        message = f"{_METHODS[kind]} does not end: {len(pages.entries)} items, {len(seen)} pages"
        raise ListFailed(self._server_id, message)

    async def _ask_page(
        self, kind: ListKind, pages: _Pages, cursor: str | None, seconds: float
    ) -> _ListPage | None:
        """The page at a cursor; None where there is none, or none that can be read quickly."""
        method = _METHODS[kind]
        try:
            params = None if cursor is None else {"cursor": cursor}
            answer = await self._session.request(method, params, seconds=seconds)
        except RequestRejected:
            if cursor == "":
                return None  # an empty cursor was how the server says that there is no more
            raise
        if len(answer) > MAX_PAGE_PARTS and _count_parts(bytes(answer)) > MAX_PAGE_PARTS:
            reason = f"{method}: a page has more than {MAX_PAGE_PARTS} parts"
            if not pages.entries:
                raise ListFailed(self._server_id, reason)
            pages.notes.append(f"{reason}; it and what follows are left out")
            return None
        try:
            return _decode_page(answer)
        except ValueError:
            # A small page was repaired where it came in.
            sound = await gate.run(without_lone_surrogates_steps(bytes(answer)))
            return _decode_page(await gate.run(without_constants_steps(sound)))

    async def _read_page(
        self, kind: ListKind, pages: _Pages, page: _ListPage, seen: set[str], *, declared: bool
    ) -> str | None:
        """Keep a page's entries. Returns the cursor of the next page, None at the end of the list."""
        method = _METHODS[kind]
        found: list[msgspec.Raw] | None = getattr(page, kind)
        if found is None:
            if declared or pages.entries:
                self._cut_off(pages, f"{method} was answered without a list of {kind}")
            return None
        pages.notes += _own_notes(page.meta)
        before, cursor = len(pages.entries), _cursor(page.next_cursor)
        is_whole = await self._keep(method, found, pages)
        if not is_whole or cursor is None:
            pages.ttl_ms = _milliseconds(page.ttl_ms)
            if cursor is None and bytes(page.next_cursor) not in _NO_CURSORS:
                pages.notes.append(f"{method}: `nextCursor` is not a text; there may be more entries")
            return None
        if cursor not in seen:
            return cursor
        await _drop_repeated(pages)
        if cursor or len(pages.entries) > before:  # else an empty cursor led to the first page again
            self._cut_off(pages, f"{method} does not end: it gives the same `nextCursor` again")
        return None

    async def _keep(self, method: str, found: list[msgspec.Raw], pages: _Pages) -> bool:
        """Keep copies of a page's entries, in slices. False where the budget is used up."""
        slice_bytes = 0
        for number, raw in enumerate(found):
            size = len(raw)
            slice_bytes += size
            if slice_bytes > _SLICE_BYTES or number % _SLICE_ENTRIES == _SLICE_ENTRIES - 1:
                slice_bytes = 0
                await anyio.lowlevel.checkpoint()
            # A copy: a view would keep its whole page, which may be a thousand times as large.
            definition = bytes(raw) if size <= MAX_ENTRY_BYTES else b""
            if not definition or _is_costly(definition):
                pages.too_large.append(bytes(memoryview(raw)[:_HEAD_BYTES]))
                continue
            over = ""
            if len(pages.entries) >= self._budget.max_items:
                over = f"`max_list_items` is {self._budget.max_items}"
            elif not self._budget.take(size):
                over = f"`max_list_bytes` is {self._budget.max_bytes}, for all its lists together"
            if over:
                pages.notes.append(
                    f"{method}: {len(found) - number} entries of a page and what follows are left out: {over}"
                )
                return False
            pages.entries.append(definition)
        return True


_MAX_OWN_NOTES: Final = 50
_MAX_OWN_NOTES_BYTES: Final = 64 * 1024


def _own_notes(meta: msgspec.Raw) -> list[str]:
    """Notes of a server for its user about its list (`NOTES_META_KEY`), cleaned."""
    if len(meta) > _MAX_OWN_NOTES_BYTES or NOTES_META_KEY.encode() not in bytes(meta):
        return []
    try:
        own_notes: object = msgspec.json.decode(meta, type=dict[str, Any]).get(NOTES_META_KEY)
    except (msgspec.DecodeError, RecursionError):
        return []
    notes = [note for note in own_notes if isinstance(note, str)] if is_list(own_notes) else []
    return [gate.text(note)[:MAX_NOTE] for note in notes[:_MAX_OWN_NOTES]]


_NO_CURSORS: Final = frozenset((b"", b"null", b"false", b"0"))


def _cursor(raw: msgspec.Raw) -> str | None:
    """The cursor of the next page; None if there is none, or no valid one."""
    try:
        return msgspec.json.decode(raw, type=str) if raw else None
    except msgspec.DecodeError:
        return None


async def _drop_repeated(pages: _Pages) -> None:
    """Keep each entry once: a server that gives a cursor again has given its entries again as well."""
    kept: dict[bytes, None] = {}
    for start in range(0, len(pages.entries), _SLICE_ENTRIES):
        kept |= dict.fromkeys(pages.entries[start : start + _SLICE_ENTRIES])
        await anyio.lowlevel.checkpoint()
    pages.entries[:] = kept


def _names(tools: Iterable[ToolEntry]) -> set[str]:
    return {tool.key.tool for tool in tools}


async def _ignore(_current_listing: ListedServer) -> None:
    """Take no listing: only one list is wanted."""


async def list_anyway(
    server_id: str, session: Session, method: str, *, budget: ListBudget
) -> tuple[bytes, ...]:
    """One list of a server that did not declare it: some have it all the same. Nothing, if it has not."""
    kinds: dict[str, ListKind] = {method: kind for kind, method in _METHODS.items()}
    lister = Lister(server_id, session, budget, Listing(), _ignore)
    return tuple(await lister.list_undeclared(kinds.get(method, "prompts")))


_TOO_LARGE: Final = (
    f"its definition is larger than {MAX_ENTRY_BYTES} bytes, has more than {MAX_ENTRY_PARTS} parts,"
    " or many numbers near 1e300"
)
_NAME: Final = re.compile(rb'"(?:name|uri|uriTemplate)"\s*:\s*"((?:[^"\\]|\\.){1,200})"')


def _name_in(head: bytes) -> str:
    """The name near the beginning of a definition that is too large to be read."""
    found = _NAME.search(head)
    return (
        gate.text(found[1].decode(errors="replace"))
        if found
        else "# (a tool without a name at its beginning)"
    )


def _too_large(kind: ListKind, heads: list[bytes]) -> list[str]:
    if not heads:
        return []
    names = ", ".join(f"`{_name_in(head)}`" for head in heads[:_MAX_NAMED])
    return [f"{_METHODS[kind]}: left out, each because {_TOO_LARGE}: {names}"[:MAX_NOTE]]


def _is_costly(definition: bytes) -> bool:
    """Whether parsing a definition would block the event loop, though it is within the limits."""
    return len(definition) > MAX_ENTRY_PARTS and (
        _count_parts(definition) > MAX_ENTRY_PARTS or has_slow_numbers(definition)
    )


def _count_parts(text: bytes) -> int:
    """The approximate cost of parsing JSON: the number of its separators."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _with_headers(
    tools: Iterable[bytes], header_maps: dict[str, HeaderMap], rejected: list[RejectedTool]
) -> Iterator[bytes]:
    """Note the header annotations of tools, and leave out those whose annotations are not valid."""
    for definition in tools:
        annotated = _read_annotated_schema(definition)
        if annotated is None:
            yield definition
            continue
        name, schema = annotated
        reason = find_invalid_x_mcp_header(schema)
        if reason is not None:
            rejected.append(RejectedTool(name=name, reason=gate.text(reason)))
        else:
            header_maps[name] = x_mcp_header_map(schema)
            yield definition


def read_header_maps(entries: Iterable[ToolEntry]) -> dict[str, HeaderMap]:
    """The arguments of known tools that are also sent as headers."""
    annotated = filter(None, (_read_annotated_schema(entry.definition) for entry in entries))
    return {
        name: x_mcp_header_map(schema)
        for name, schema in annotated
        if find_invalid_x_mcp_header(schema) is None
    }


def _read_annotated_schema(definition: bytes) -> tuple[str, Any] | None:
    """A tool's name and input schema, if its definition mentions header annotations and can be read."""
    if _ANNOTATED not in definition:
        return None
    try:
        fields = _decode_schema(definition)
        name = msgspec.json.decode(fields["name"], type=str)
        return name, msgspec.json.decode(fields.get("inputSchema", b"{}"))
    except (ValueError, KeyError, RecursionError):
        return None  # reading the tool will say what is wrong


def _milliseconds(raw: msgspec.Raw) -> int | None:
    try:
        value = msgspec.json.decode(raw, type=float | None) if raw else None
    except msgspec.DecodeError:
        return None
    return max(0, int(value)) if value is not None else None
