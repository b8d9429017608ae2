"""Ask a server for everything it offers: all pages, within limits, read as little as possible."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import msgspec
from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import METHOD_NOT_FOUND

from fairlead.catalog.entries import Listing, RejectedTool, ToolEntry, read_tools
from fairlead.catalog.sanitise import clean, inspect
from fairlead.connection.outcomes import RequestRejected
from fairlead.connection.session import HeaderMap, Session
from fairlead.errors import ListFailed

MAX_PAGES = 100
MAX_SECONDS = 30.0

_ANNOTATED = X_MCP_HEADER_KEY.encode()


_WIRE_NAMES = {"next_cursor": "nextCursor", "templates": "resourceTemplates", "ttl_ms": "ttlMs"}


class _Page(msgspec.Struct, gc=False, rename=_WIRE_NAMES):
    tools: list[msgspec.Raw] | None = None
    resources: list[msgspec.Raw] | None = None
    templates: list[msgspec.Raw] | None = None
    prompts: list[msgspec.Raw] | None = None
    next_cursor: str | None = None
    ttl_ms: msgspec.Raw = msgspec.Raw()


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_schema = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A listing, and which arguments of its tools go into headers as well."""

    listing: Listing
    header_maps: dict[str, HeaderMap]


async def list_all(server_id: str, session: Session, *, max_items: int) -> Listed:
    """List everything the server offers. Raises `ListFailed`; what it does not offer is simply not there."""
    offers = session.capabilities
    notes: list[str] = []
    pages = partial(_pages, server_id, session, max_items, notes=notes)
    tools, ttl_ms = await pages("tools/list", "tools", declared=offers.tools is not None)
    resources: list[msgspec.Raw] = []
    templates: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    if offers.resources is not None:
        resources, _ = await pages("resources/list", "resources", declared=True)
        templates, _ = await pages("resources/templates/list", "templates", declared=True)
    if offers.prompts is not None:
        prompts, _ = await pages("prompts/list", "prompts", declared=True)
    header_maps: dict[str, HeaderMap] = {}
    rejected: list[RejectedTool] = []
    usable = _with_headers(tools, header_maps, rejected) if session.modern else iter(tools)
    entries, unreadable = read_tools(server_id, usable)
    notes += _hidden_instructions(session)
    listing = Listing(
        tools=tuple(entries),
        rejected=(*unreadable, *rejected),
        resources=tuple(map(bytes, resources)),
        templates=tuple(map(bytes, templates)),
        prompts=tuple(map(bytes, prompts)),
        instructions=session.instructions,
        ttl_ms=ttl_ms,
        notes=tuple(notes),
    )
    return Listed(listing=listing, header_maps=header_maps)


async def list_anyway(server_id: str, session: Session, method: str, *, max_items: int) -> tuple[bytes, ...]:
    """One list of a server that did not declare it: some have it all the same. Nothing, if it has not."""
    field = {"resources/list": "resources", "resources/templates/list": "templates"}.get(method, "prompts")
    items, _ = await _pages(server_id, session, max_items, method, field, declared=False)
    return tuple(map(bytes, items))


async def _pages(  # noqa: PLR0913 - the parts of one list
    server_id: str,
    session: Session,
    max_items: int,
    method: str,
    field: str,
    *,
    declared: bool,
    notes: list[str] | None = None,
) -> tuple[list[msgspec.Raw], int | None]:
    """All pages of one list. A server that did not declare it may refuse it: then there is none."""
    items: list[msgspec.Raw] = []
    seen: set[str] = set()
    params: dict[str, str] | None = None
    try:
        with anyio.fail_after(MAX_SECONDS):
            for _ in range(MAX_PAGES):
                page = _decode_page(await session.request(method, params, seconds=MAX_SECONDS))
                items += getattr(page, field) or ()
                if page.next_cursor is None:
                    return items, _milliseconds(page.ttl_ms)
                if page.next_cursor in seen or len(items) > max_items:
                    break
                seen.add(page.next_cursor)
                params = {"cursor": page.next_cursor}
    except RequestRejected as exc:
        if not declared or (exc.code == METHOD_NOT_FOUND and field != "tools"):
            if declared and notes is not None and field != "templates":  # which many leave out
                notes.append(f"it declares {field}, and does not list them")
            return [], None
        raise ListFailed(server_id, f"{method} failed: {clean(str(exc))}") from exc
    except TimeoutError as exc:
        raise ListFailed(server_id, f"{method} took longer than {MAX_SECONDS:g} s") from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ListFailed(server_id, f"{method} was answered with something else: {exc}") from exc
    raise ListFailed(server_id, f"{method} does not end: {len(items)} items, {len(seen)} pages")


def _hidden_instructions(session: Session) -> list[str]:
    """What was hidden in what the server wants a model to know."""
    said = session.sdk.initialize_result or session.sdk.discover_result
    found = inspect(said.instructions or "").findings if said else ()
    return [f"hidden in its instructions ({hidden.kind}): {hidden.sample}" for hidden in found]


def _with_headers(
    tools: list[msgspec.Raw], header_maps: dict[str, HeaderMap], rejected: list[RejectedTool]
) -> Iterator[msgspec.Raw]:
    """Note the header annotations of tools, and leave out those whose annotations are not valid."""
    for definition in tools:
        annotated = _annotated(definition)
        if annotated is None:
            yield definition
            continue
        name, schema = annotated
        reason = find_invalid_x_mcp_header(schema)
        if reason is not None:
            rejected.append(RejectedTool(name=name, reason=clean(reason)))
        else:
            header_maps[name] = x_mcp_header_map(schema)
            yield definition


def known_headers(entries: Iterable[ToolEntry]) -> dict[str, HeaderMap]:
    """Which arguments of tools that were listed before go into headers as well."""
    annotated = filter(None, (_annotated(entry.definition) for entry in entries))
    return {
        name: x_mcp_header_map(schema)
        for name, schema in annotated
        if find_invalid_x_mcp_header(schema) is None
    }


def _annotated(definition: msgspec.Raw | bytes) -> tuple[str, Any] | None:
    """A tool's name and input schema, if its definition mentions header annotations and can be read."""
    if _ANNOTATED not in bytes(definition):
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
