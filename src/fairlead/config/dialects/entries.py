"""Entries between a format's words and ours, driven by a table of fields per format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.config.dialects.dialect import Entry, Imported, Note
from fairlead.config.dialects.ids import server_ids
from fairlead.config.dialects.kinds import NEGATED, TOOL_NAMES, Kind, Malformed, Spot, mapping
from fairlead.config.dialects.references import Unfit
from fairlead.config.shapes import is_list, is_object
from fairlead.errors import ConfigInvalid, Problem

Reader = Callable[[object, Spot], Entry]
"""From the value of one of their fields to the fields of ours it means."""
Writer = Callable[[object, Spot], dict[str, Any]]
"""From the value of one of our fields to the fields of theirs that say it."""

TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
"""The words most formats have for a transport."""

_LOCAL = ("command", "args", "cwd", "env")
_REMOTE = ("url", "headers", "headers_helper", "oauth", "auth_provider_id")
_ESSENTIAL = frozenset({"command", "args", "url"})
_DEFAULT_CAP_MS = 600_000
_LEFT_OUT = "this server is left out"
_NO_TARGET = "is missing, and so is `url`"


@dataclass(frozen=True, slots=True)
class Field:
    """One of their fields that is one of ours. A dot leads into a nested object."""

    theirs: str
    ours: str
    kind: Kind

    def read(self, value: object, spot: Spot) -> Entry:
        """Our field, from their value."""
        return _nested(self.ours, self.kind.read(value, spot))

    def write(self, value: object, spot: Spot) -> dict[str, Any]:
        """Their field, from our value."""
        return _nested(self.theirs, self.kind.write(value, spot))


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """How a format describes a server. `reading` and `writing` are for what is not one field for one."""

    title: str
    fields: Sequence[Field] = ()
    reading: Mapping[str, Reader] = field(default_factory=dict[str, Reader])
    writing: Mapping[str, Writer] = field(default_factory=dict[str, Writer])
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The transports it has, and the fields that say so."""
    overlays: bool = False
    """Does it take an entry without a target, which changes one defined elsewhere?"""

    def readers(self) -> dict[str, Reader]:
        """Every field of theirs that is understood."""
        return {item.theirs: item.read for item in self.fields} | dict(self.reading)

    def writers(self) -> dict[str, Writer]:
        """Every field of ours that can be said."""
        return {item.ours: item.write for item in reversed(self.fields)} | dict(self.writing)


disabled: Reader = Field("disabled", "enabled", NEGATED).read
"""Not a field of every format, but in so many files that the author's wish is clear."""


def noted(message: str) -> Reader:
    """A reader of a field that means nothing here, and is reported."""

    def read(_: object, spot: Spot) -> Entry:
        spot.note(message)
        return {}

    return read


def silently(_: object, __: Spot) -> Entry:
    """Read a field that only repeats what is clear without it."""
    return {}


def noted_if(value: object, message: str) -> Reader:
    """A reader of a field that is reported where it has this value, and says nothing otherwise."""
    report = noted(message)
    return lambda found, spot: report(found, spot) if found == value else {}


def allowed(value: object, spot: Spot) -> Entry:
    """Read a list of the only tools there are. An empty one denies all of them: ours are never empty."""
    if names := TOOL_NAMES.read(value, spot):
        return {"allow_tools": names}
    spot.note("allows no tool at all; all are denied")
    return {"deny_tools": ["*"]}


def approved(value: object, spot: Spot) -> Entry:
    """Read a list of tools that are never asked about."""
    names = TOOL_NAMES.read(value, spot)
    return {"approval": {"tools": dict.fromkeys(names, "allow")}} if names else {}


def section(data: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """The object at that path, empty if there is none. Anything else there makes the document an error."""
    found = dict(data)
    for count, step in enumerate(path, start=1):
        try:
            found = {} if found.get(step) is None else mapping(found[step])
        except Malformed as exc:
            raise ConfigInvalid(Problem(message=str(exc), path=path[:count])) from None
    return found


def read_servers(servers: Mapping[str, Any], form: Format | Callable[[object], Format]) -> Imported:
    """All servers in our words. What cannot be read is noted and leaves out that server alone.

    The format is a function of the entry where what one field means depends on another.
    """
    imported = Imported()
    ids = server_ids(servers, imported.notes)
    for name, raw in servers.items():
        its_form = form if isinstance(form, Format) else form(raw)
        entry = _read(raw, its_form, Spot(ids[name], "", imported.notes))
        if entry is not None:
            imported.servers[ids[name]] = entry
    return imported


def note_other_keys(data: Mapping[str, Any], known: Sequence[str], notes: list[Note]) -> None:
    """Note what else a document says, where it is about MCP servers and nothing else."""
    notes.extend(
        Note(server_id=None, field=key, message="is not known here; ignored")
        for key in data
        if key not in known
    )


def _read(raw: object, form: Format, spot: Spot) -> Entry | None:
    try:
        return _settled(read_fields(raw, form.readers(), spot), form, spot)
    except Malformed as exc:
        (exc.spot or spot).note(f"{exc}; {_LEFT_OUT}")
        return None


def read_fields(raw: object, readers: Mapping[str, Reader], spot: Spot) -> Entry:
    """What readers make of an object. `Malformed`, with its spot, if it cannot be used."""
    return _fields(mapping(raw), readers, spot)


def _fields(raw: Mapping[str, Any], readers: Mapping[str, Reader], spot: Spot, prefix: str = "") -> Entry:
    entry: Entry = {}
    for key, value in raw.items():
        path, here = prefix + key, spot.inside(key)
        reader = readers.get(path)
        if value is None:
            continue
        if is_object(value) and any(known.startswith(f"{path}.") for known in readers):
            merge(entry, _fields(mapping(value), readers, here, f"{path}."))
        elif reader is None:
            here.note("is not known here; ignored")
        else:
            merge(entry, _field(reader, value, here, essential=key in _ESSENTIAL))
    return entry


def _field(reader: Reader, value: object, spot: Spot, *, essential: bool) -> Entry:
    try:
        return reader(value, spot)
    except Malformed as exc:
        raise Malformed(str(exc), exc.spot or spot) from None
    except Unfit as exc:
        if essential:
            raise Malformed(str(exc), spot) from None
        spot.note(f"{exc}; ignored")
        return {}


def _settled(entry: Entry, form: Format, spot: Spot) -> Entry:
    """The entry with one target, only fields that go with it, and nothing said that is clear without."""
    transport = entry.pop("transport", None) or (
        "stdio" if "command" in entry else "http" if "url" in entry else None
    )
    target, other = ("command", _REMOTE) if transport == "stdio" else ("url", _LOCAL)
    if transport is not None and target not in entry:
        raise Malformed("is missing", spot.inside(target))
    if transport is None and not form.overlays:
        raise Malformed(_NO_TARGET, spot.inside("command"))
    for name in other if transport is not None else ():
        if entry.pop(name, None):
            spot.inside(name).note("means nothing for this kind of server; ignored")
    if transport == "sse":
        entry["transport"] = "sse"
    approval = entry.get("approval")
    if is_object(approval) and set(approval) == {"default"}:
        entry["approval"] = approval["default"]
    if entry.get("request_timeout_ms", 0) > _DEFAULT_CAP_MS:
        spot.inside("request_timeout_ms").note(f"is over {_DEFAULT_CAP_MS} ms; raise `max_request_ms` too")
    return entry


def write_servers(entries: Mapping[str, Entry], form: Format, notes: list[Note]) -> dict[str, Any]:
    """All servers in the format's words. What it cannot say is noted."""
    writers = form.writers()
    written = {name: _write(entry, form, writers, Spot(name, "", notes)) for name, entry in entries.items()}
    return {name: theirs for name, theirs in written.items() if theirs is not None}


def _write(entry: Entry, form: Format, writers: Mapping[str, Writer], spot: Spot) -> dict[str, Any] | None:
    fields = {name: value for name, value in _flat(entry) if value is not None}
    transport = fields.pop("transport", None) or _inferred(fields)
    if transport is None:
        spot.inside("command").note(f"{_NO_TARGET}; {_LEFT_OUT}")
        return None
    if transport not in form.targets:
        spot.inside("transport").note(f"is `{transport}`, which {form.title} does not have; {_LEFT_OUT}")
        return None
    if "enabled" not in writers and not fields.pop("enabled", True):
        spot.inside("enabled").note(f"is false, which {form.title} cannot say; {_LEFT_OUT}")
        return None
    theirs: dict[str, Any] = {}
    merge(theirs, form.targets[transport])
    for name, value in fields.items():
        here, writer = spot.inside(name), writers.get(name)
        if writer is None:
            here.note(f"cannot be said in {form.title}")
            continue
        try:
            merge(theirs, writer(value, here))
        except (Unfit, Malformed) as exc:
            if name in _ESSENTIAL:
                here.note(f"{exc}; {_LEFT_OUT}")
                return None
            here.note(f"{exc}; left out")
    return theirs


def _inferred(fields: Mapping[str, Any]) -> str | None:
    targets = {"command": "stdio", "url": "http", "builtin": "builtin"}
    return next((transport for name, transport in targets.items() if name in fields), None)


def _flat(entry: Entry) -> Iterator[tuple[str, Any]]:
    """Every field with its value; of the login, each of its own, as formats know some of them."""
    for name, value in entry.items():
        if name == "oauth" and is_object(value):
            yield from ((f"oauth.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Put fields into an entry: objects and lists grow, anything else is replaced."""
    for name, value in part.items():
        present = into.get(name)
        if is_object(present) and is_object(value):
            merge(present, value)
        elif is_list(present) and is_list(value):
            into[name] = [*present, *(item for item in value if item not in present)]
        else:
            into[name] = dict(value) if is_object(value) else value


def _nested(path: str, value: object) -> dict[str, Any]:
    """The value at a dotted path; nothing if there is none."""
    if value is None:
        return {}
    outer, _, inner = path.partition(".")
    return {outer: _nested(inner, value) if inner else value}
