"""`fairlead.lock`: digests of a configuration's servers and tools, committed with the file and checked.

A lockfile narrows and never grants: a tool that differs from it is not offered, a tool that matches is no
more allowed than before. A file of an older version is checked by the digests of that version.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from fairlead.catalog.definitions import FORMAT, entry_digests, field_digests, text_digest
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.config.document.files import read_text
from fairlead.config.load import LoadedServer
from fairlead.config.paths import LOCK_NAME
from fairlead.config.untyped import as_list, as_object
from fairlead.errors import ConfigError, ConfigUnreadable
from fairlead.policy.pins import UNCHANGED, PinChange, PinDifferences, change_of

VERSION = 2
"""Version 1 was written by the first releases; its digests are of format 1."""

_VERSIONED = re.compile(r"(?P<package>@?[\w./-]+?)(?:\[[\w,-]*\])?(?:==|@)(?P<version>\d[\w.+!-]*)")


class LockedTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool: its digest, the digest without texts of defaults where that differs, and one per field."""

    digest: str
    without_defaults: str | None = None
    fields: dict[str, str] = {}

    @property
    def loose(self) -> str:
        """Digest that ignores the texts of defaults."""
        return self.without_defaults or self.digest


class LockedServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server: protocol version, name and version, the package its command names, and its tools."""

    protocol: str
    server: str | None = None
    package: str | None = None
    instructions: str | None = None
    """Digest of its instructions, where it has any."""
    tools: dict[str, LockedTool] = {}
    format: int = FORMAT
    """Format of its tools' digests."""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a lockfile."""

    version: Literal[1, 2] = VERSION
    servers: dict[str, LockedServer] = {}


_decode = msgspec.json.Decoder(Lock).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def lock_server(
    server: LoadedServer,
    listing: Listing,
    *,
    protocol: str,
    reported: str | None,
    format: int = FORMAT,  # noqa: A002 - as the field is called
) -> LockedServer:
    """Lock a server as a listing describes it.

    Args:
        server: The server.
        listing: What it offers.
        protocol: The protocol version it speaks.
        reported: The name and version it reports.
        format: The format of the digests.
    """
    return LockedServer(
        protocol=protocol,
        server=reported,
        package=package_of(server),
        instructions=text_digest(listing.instructions) if listing.instructions is not None else None,
        tools={entry.key.tool: _lock_tool(entry, format) for entry in listing.tools},
        format=format,
    )


def _lock_tool(entry: ToolEntry, format: int) -> LockedTool:  # noqa: A002
    digests = entry_digests(entry, format)
    loose = digests.loose if digests.loose != digests.strict else None
    fields = field_digests(entry.definition, format)
    return LockedTool(digest=digests.strict, without_defaults=loose, fields=fields)


def package_of(server: LoadedServer) -> str | None:
    """Package and version that a command line pins, such as `pkg@1.2.3` or `pkg==1.2.3`."""
    for word in (server.entry.get("command"), *as_list(server.entry.get("args"))):
        if isinstance(word, str) and (named := _VERSIONED.fullmatch(word)):
            return f"{named['package']} {named['version']}"
    return None


# The file.


def lock_path(server: LoadedServer) -> Path | None:
    """Path of a server's lockfile: in the folder of its entry's file; None where it has no file."""
    path = server.definition.source.path
    return path.with_name(LOCK_NAME) if path is not None else None


def read_lock(path: Path) -> Lock | None:
    """Read a lockfile; None where there is none.

    Raises:
        ConfigUnreadable: The file is not a lockfile, or a newer release wrote it.
    """
    if not path.exists():
        return None
    text = read_text(path)
    hint = f"restore {path.name}, or write a new one with `fairlead lock`"
    try:
        _require_known(msgspec.json.decode(text), path)
        lock = _decode(text.encode())
    except msgspec.DecodeError as exc:
        raise ConfigUnreadable(f"{path} is not a valid lockfile: {exc}", hint=hint) from exc
    if lock.version == 1:
        servers = {name: msgspec.structs.replace(of, format=1) for name, of in lock.servers.items()}
        return Lock(version=VERSION, servers=servers)
    if any(of.format < 1 for of in lock.servers.values()):
        raise ConfigUnreadable(f"{path} is not a valid lockfile: unknown format", hint=hint)
    return lock


def require_replaceable(path: Path) -> None:
    """Refuse to overwrite a lockfile of a newer release. A damaged one may be overwritten."""
    if not path.exists():
        return
    try:
        _require_known(msgspec.json.decode(read_text(path)), path)
    except msgspec.DecodeError:
        return


def _require_known(document: object, path: Path) -> None:
    """Refuse versions, formats and fields that this release does not know.

    An unknown field would escape the check, and would be lost when the file is written.
    """
    lock = as_object(document)
    servers = [as_object(server) for server in as_object(lock.get("servers")).values()]
    tools = [as_object(tool) for server in servers for tool in as_object(server.get("tools")).values()]
    known = (
        _is_at_most(lock.get("version"), VERSION)
        and all(_is_at_most(server.get("format"), FORMAT) for server in servers)
        and _has_only_fields_of(Lock, [lock])
        and _has_only_fields_of(LockedServer, servers)
        and _has_only_fields_of(LockedTool, tools)
    )
    if not known:
        raise ConfigUnreadable(f"{path} was written by a newer Fairlead", hint="update Fairlead")


def _is_at_most(number: object, highest: int) -> bool:
    """False for a higher number; the decoder refuses what is not a number."""
    return not isinstance(number, int) or number <= highest


def _has_only_fields_of(kind: type[msgspec.Struct], found: list[dict[str, Any]]) -> bool:
    return all(each.keys() <= set(kind.__struct_fields__) for each in found)


def lock_text(lock: Lock) -> str:
    """Text of a lockfile: sorted, one line for each thing that can change."""
    return msgspec.json.format(_encode(lock), indent=2).decode() + "\n"


def locks_of(servers: Iterable[LoadedServer]) -> dict[str, "LockedServer | str"]:
    """Locks of servers by id. A text is why a lock cannot be read; then nothing of the server is offered."""
    found: dict[str, LockedServer | str] = {}
    read: dict[Path, Lock | str | None] = {}
    for server in servers:
        path = lock_path(server)
        if path is None:
            continue
        if path not in read:
            read[path] = _lock_or_reason(path)
        lock = read[path]
        if isinstance(lock, str):
            found[server.server_id] = lock
        elif lock is not None and server.server_id in lock.servers:
            found[server.server_id] = lock.servers[server.server_id]
    return found


def _lock_or_reason(path: Path) -> Lock | str | None:
    try:
        return read_lock(path)
    except ConfigError as exc:
        return str(exc)


# Holding servers to it.


def check_lock(locked: LockedServer, listing: Listing) -> PinDifferences:
    """Compare a listing with a lock; a tool that is not in the lock is new."""
    if not listing.tools and listing.instructions is None:
        return UNCHANGED
    verdicts: dict[str, PinChange] = {}
    for entry in listing.tools:
        tool = locked.tools.get(entry.key.tool)
        verdict = change_of(tool.digest, tool.loose, entry, locked.format) if tool else "new"
        if verdict is not None:
            verdicts[entry.key.tool] = verdict
    instructions = listing.instructions
    changed = instructions is not None and text_digest(instructions) != locked.instructions
    return PinDifferences(tools=verdicts, instructions_changed=changed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One difference from the lockfile."""

    server_id: str
    what: Literal["added", "removed", "changed"]
    tool: str | None = None
    """None where it concerns the server itself."""
    fields: tuple[str, ...] = ()
    before: str | None = None
    now: str | None = None


def drifts(locked: Mapping[str, LockedServer], now: Mapping[str, LockedServer]) -> list[Drift]:
    """All differences of servers from a lockfile, by server and tool."""
    found: list[Drift] = []
    for server_id in sorted(locked.keys() | now.keys()):
        if server_id not in now:
            found.append(Drift(server_id=server_id, what="removed"))
        elif server_id not in locked:
            found.append(Drift(server_id=server_id, what="added"))
        else:
            found += _server_drifts(server_id, locked[server_id], now[server_id])
            found += _tool_drifts(server_id, locked[server_id].tools, now[server_id].tools)
    return found


def _server_drifts(server_id: str, locked: LockedServer, now: LockedServer) -> Iterator[Drift]:
    for name in ("protocol", "server", "package", "instructions"):
        before, after = getattr(locked, name), getattr(now, name)
        if before != after:
            yield Drift(server_id=server_id, what="changed", fields=(name,), before=before, now=after)


def _tool_drifts(
    server_id: str, locked: Mapping[str, LockedTool], now: Mapping[str, LockedTool]
) -> Iterator[Drift]:
    for tool in sorted(locked.keys() | now.keys()):
        if tool not in now:
            yield Drift(server_id=server_id, what="removed", tool=tool)
        elif tool not in locked:
            yield Drift(server_id=server_id, what="added", tool=tool)
        elif locked[tool].loose != now[tool].loose:
            before, after = locked[tool].fields, now[tool].fields
            names = sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            yield Drift(server_id=server_id, what="changed", tool=tool, fields=tuple(names))
