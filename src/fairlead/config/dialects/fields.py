"""Conversion of server entries between formats, driven by a table of fields per format."""

import math
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fairlead.config.dialects.dialect import ConversionNote, Entry, ImportedDocument
from fairlead.config.dialects.references import LITERAL, NotExpressible, ReferenceSyntax
from fairlead.config.faults import BAD_ID, SERVER_ID
from fairlead.config.untyped import is_list, is_object
from fairlead.errors import ConfigInvalid, Problem

LONGEST_MS = 86_400_000

_GLOB = re.compile(r"[*?\[]")
_NEEDS_A_SHELL = re.compile(r"[^\w\s./:@,+-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class FieldContext:
    """A field of one server under conversion, which collects notes about it."""

    server_id: str | None
    field: str
    notes: list[ConversionNote]

    def note(self, message: str) -> None:
        """Report something about this field."""
        self.notes.append(ConversionNote(server_id=self.server_id, field=self.field, message=message))

    def inside(self, name: str) -> "FieldContext":
        """Context of a field inside this field."""
        return FieldContext(self.server_id, f"{self.field}.{name}" if self.field else name, self.notes)


class MalformedField(Exception):
    """A value of the wrong type. The whole entry is left out: half of it would be a guess."""

    def __init__(self, message: str, spot: FieldContext | None = None) -> None:
        super().__init__(message)
        self.spot = spot


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Reader and writer of a value in a format. None means the field is not set."""

    read: Callable[[object, FieldContext], Any]
    write: Callable[[object, FieldContext], Any]


def text(style: ReferenceSyntax) -> ValueKind:
    """A string, with references in that syntax."""
    return ValueKind(
        read=lambda value, _: style.read(string(value)),
        write=lambda value, _: style.write(string(value)),
    )


def texts(style: ReferenceSyntax) -> ValueKind:
    """A list of strings."""
    return ValueKind(
        read=lambda value, _: [style.read(item) for item in strings(value)],
        write=lambda value, _: [style.write(item) for item in strings(value)],
    )


def table(style: ReferenceSyntax, *, numbers: bool = False) -> ValueKind:
    """Strings (and numbers, where a format takes them) by name. A bad one is left out alone."""
    textual = _number_as_text if numbers else string
    return ValueKind(
        read=lambda value, spot: _each(value, spot, lambda item: style.read(textual(item))),
        write=lambda value, spot: _each(value, spot, lambda item: style.write(string(item))),
    )


def _each(value: object, spot: FieldContext, convert: Callable[[object], str]) -> dict[str, str] | None:
    items = {name: item for name, item in mapping(value).items() if item is not None}
    kept: dict[str, str] = {}
    for name, item in items.items():
        try:
            kept[name] = convert(item)
        except NotExpressible as exc:
            spot.inside(name).note(f"{exc}; left out")
    return kept or (None if items else {})


def word(meanings: Mapping[str, str]) -> ValueKind:
    """One of a few words, theirs to ours. Where two of theirs mean the same, the first is written."""
    back = {ours: theirs for theirs, ours in reversed(list(meanings.items()))}
    return ValueKind(
        read=lambda value, _: _equivalent(meanings, value),
        write=lambda value, _: _equivalent(back, value),
    )


def _equivalent(meanings: Mapping[str, str], value: object) -> str:
    meaning = meanings.get(string(value))
    if meaning is None:
        raise MalformedField(f"is `{value}`, which has no equivalent")
    return meaning


def duration(unit_ms: int) -> ValueKind:
    """A time, counted in `unit_ms` there and in milliseconds here."""

    def read(value: object, spot: FieldContext) -> int | None:
        milliseconds = round(_number(value) * unit_ms)
        if milliseconds < 1:
            spot.note(f"is {value}: not a valid time")
            return None
        if milliseconds > LONGEST_MS:
            spot.note(f"is longer than a day; set to {LONGEST_MS} ms")
        return min(milliseconds, LONGEST_MS)

    def write(value: object, _: FieldContext) -> int | float:
        amount = _number(value) / unit_ms
        return int(amount) if amount.is_integer() else amount

    return ValueKind(read=read, write=write)


def scopes(style: ReferenceSyntax) -> ValueKind:
    """OAuth scopes: a list there, separated by spaces here."""
    return ValueKind(
        read=lambda value, _: " ".join(style.read(item) for item in strings(value)) or None,
        write=lambda value, _: style.write(string(value)).split(),
    )


def _flag(value: object, _: FieldContext) -> bool:
    if not isinstance(value, bool):
        raise MalformedField("must be true or false")
    return value


def _read_negated_flag(value: object, spot: FieldContext) -> bool:
    return not _flag(value, spot)


def _port(value: object, _: FieldContext) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise MalformedField("must be a port number")
    return value


def _tool_names(value: object, spot: FieldContext) -> list[str] | None:
    """Exact names only: a pattern in one format is a plain name in the other, so its meaning would change."""
    names = strings(value)
    for name in filter(is_pattern, names):
        spot.note(f"has `{name}`, a pattern in one format and a plain name in the other; left out")
    return [name for name in names if not is_pattern(name)] or None


def _argv(value: object, _: FieldContext) -> list[str] | None:
    """A shell's command line as argv: its words if plain, else all of it for a shell."""
    line = string(value).strip()
    if not line:
        return None
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise MalformedField(f"is not a command: {exc}") from None
    plain = "=" not in words[0] and (shlex.join(words) == line or not _NEEDS_A_SHELL.search(line))
    return [LITERAL.read(item) for item in (words if plain else ["sh", "-c", line])]


def _command_line(value: object, _: FieldContext) -> str:
    argv = [LITERAL.write(item) for item in strings(value)]
    if "=" in argv[0]:
        raise NotExpressible("begins with what a shell there would take for a variable")
    return shlex.join(argv)


FLAG = ValueKind(read=_flag, write=_flag)
NEGATED = ValueKind(read=_read_negated_flag, write=_read_negated_flag)
PORT = ValueKind(read=_port, write=_port)
MILLISECONDS = duration(1)
SECONDS = duration(1000)
TOOL_NAMES = ValueKind(read=_tool_names, write=_tool_names)
COMMAND_LINE = ValueKind(read=_argv, write=_command_line)


def is_pattern(name: str) -> bool:
    """Whether this would be a pattern where tool names may be one."""
    return _GLOB.search(name) is not None


def mapping(value: object) -> dict[str, Any]:
    """The value, if it is an object with strings for keys."""
    if not is_object(value) or not all(isinstance(key, str) for key in cast("dict[object, Any]", value)):
        raise MalformedField("must be an object")
    return value


def items(value: object) -> list[Any]:
    """The value, if it is a list."""
    if not is_list(value):
        raise MalformedField("must be a list")
    return value


def strings(value: object) -> list[str]:
    """The value, if it is a list of strings."""
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise MalformedField("must be a list of strings")
    return value


def string(value: object) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise MalformedField("must be a string")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise MalformedField("must be a number")
    return float(value)


def _number_as_text(value: object) -> str:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else string(value)


_LENGTH = 64


def server_ids(names: Iterable[str], notes: list[ConversionNote]) -> dict[str, str]:
    """Id for each name: itself where it is valid, else something readable and unique, with a note."""
    names = list(names)
    ids = {name: name for name in names if SERVER_ID.fullmatch(name)}
    taken = set(ids)
    for name in names:
        if name not in ids:
            ids[name] = _unique(_readable(name), taken)
            taken.add(ids[name])
            notes.append(
                ConversionNote(
                    server_id=ids[name], field="id", message=f"was `{name}`, which cannot be an id here"
                )
            )
    return ids


def valid_ids(entries: Mapping[str, Any], notes: list[ConversionNote]) -> dict[str, Any]:
    """Entries with a valid id. Each other one is noted and left out: nothing runs under another id."""
    for name in entries:
        if not SERVER_ID.fullmatch(name):
            message = f"`{name}` is left out: {BAD_ID}"
            notes.append(ConversionNote(server_id=None, field="id", message=message))
    return {name: entry for name, entry in entries.items() if SERVER_ID.fullmatch(name)}


def _readable(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", plain).strip("-")[:_LENGTH] or "server"


def _unique(wish: str, taken: set[str]) -> str:
    candidate, count = wish, 1
    while candidate in taken:
        count += 1
        suffix = f"-{count}"
        candidate = wish[: _LENGTH - len(suffix)] + suffix
    return candidate


Reader = Callable[[object, FieldContext], Entry]
"""From the value of one of their fields to the fields of ours."""
Writer = Callable[[object, FieldContext], dict[str, Any]]
"""From the value of one of our fields to the fields of theirs."""

TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
"""Names of transports in most formats."""

_LOCAL = ("command", "args", "cwd", "env")
_REMOTE = ("url", "headers", "headers_helper", "oauth", "auth_provider_id")
_ESSENTIAL = frozenset({"command", "args", "url"})
_DEFAULT_CAP_MS = 600_000
_LEFT_OUT = "this server is left out"
_NO_TARGET = "is missing, and so is `url`"


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """One of their fields that maps to one of ours. A dot leads into a nested object."""

    theirs: str
    ours: str
    kind: ValueKind

    def read(self, value: object, spot: FieldContext) -> Entry:
        """Our field, from their value."""
        return _nest_value(self.ours, self.kind.read(value, spot))

    def write(self, value: object, spot: FieldContext) -> dict[str, Any]:
        """Their field, from our value."""
        return _nest_value(self.theirs, self.kind.write(value, spot))


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A format's description of a server. `reading` and `writing` are for fields not mapped one to one."""

    title: str
    fields: Sequence[FieldMapping] = ()
    reading: Mapping[str, Reader] = field(default_factory=dict[str, Reader])
    writing: Mapping[str, Writer] = field(default_factory=dict[str, Writer])
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Its transports, and the fields that select them."""
    overlays: bool = False
    """Whether it accepts an entry without a target, which changes one defined elsewhere."""

    def readers(self) -> dict[str, Reader]:
        """Readers of all their fields."""
        return {item.theirs: item.read for item in self.fields} | dict(self.reading)

    def writers(self) -> dict[str, Writer]:
        """Writers of all our fields that the format supports."""
        return {item.ours: item.write for item in reversed(self.fields)} | dict(self.writing)


disabled: Reader = FieldMapping("disabled", "enabled", NEGATED).read
"""Not a field of every format, but so common in files that its meaning is clear."""


def report_ignored(message: str) -> Reader:
    """Reader of a field that has no effect here, and is reported."""

    def read(_: object, spot: FieldContext) -> Entry:
        spot.note(message)
        return {}

    return read


def read_redundant(_: object, __: FieldContext) -> Entry:
    """Read a redundant field."""
    return {}


def report_if_equal(value: object, message: str) -> Reader:
    """Reader that reports a field with this value, and ignores it otherwise."""
    report = report_ignored(message)
    return lambda found, spot: report(found, spot) if found == value else {}


def read_allowlist(value: object, spot: FieldContext) -> Entry:
    """Read an allowlist. An empty one denies all tools: ours are never empty."""
    if names := TOOL_NAMES.read(value, spot):
        return {"allow_tools": names}
    spot.note("allows no tool at all; all are denied")
    return {"deny_tools": ["*"]}


def read_approved_tools(value: object, spot: FieldContext) -> Entry:
    """Read a list of tools that need no approval."""
    names = TOOL_NAMES.read(value, spot)
    return {"approval": {"tools": dict.fromkeys(names, "allow")}} if names else {}


def section(data: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """Object at that path, empty if there is none. Any other value makes the document invalid."""
    found = dict(data)
    for count, step in enumerate(path, start=1):
        try:
            found = {} if found.get(step) is None else mapping(found[step])
        except MalformedField as exc:
            raise ConfigInvalid(Problem(message=str(exc), path=path[:count])) from None
    return found


def read_servers(
    servers: Mapping[str, Any], form: Format | Callable[[object], Format], *, renames: bool = True
) -> ImportedDocument:
    """Convert all servers to our format. An unreadable one is noted and left out alone.

    The format is a function of the entry where the meaning of one field depends on another. Where it has the
    same ids as ours, `renames` is false: an invalid id is a mistake there too, and its server is left out.
    """
    imported = ImportedDocument()
    sound = servers if renames else valid_ids(servers, imported.notes)
    ids = server_ids(sound, imported.notes)
    for name, raw in sound.items():
        its_form = form if isinstance(form, Format) else form(raw)
        entry = _read(raw, its_form, FieldContext(ids[name], "", imported.notes))
        if entry is not None:
            imported.servers[ids[name]] = entry
    return imported


def note_other_keys(data: Mapping[str, Any], known: Sequence[str], notes: list[ConversionNote]) -> None:
    """Note unknown keys of a document that is about MCP servers alone."""
    notes.extend(
        ConversionNote(server_id=None, field=key, message="is not known here; ignored")
        for key in data
        if key not in known
    )


def _read(raw: object, form: Format, spot: FieldContext) -> Entry | None:
    try:
        return _normalize_entry(read_fields(raw, form.readers(), spot), form, spot)
    except MalformedField as exc:
        (exc.spot or spot).note(f"{exc}; {_LEFT_OUT}")
        return None


def read_fields(raw: object, readers: Mapping[str, Reader], spot: FieldContext) -> Entry:
    """Fields that readers make of an object. Raises `MalformedField`, with its context, if invalid."""
    return _fields(mapping(raw), readers, spot)


def _fields(
    raw: Mapping[str, Any], readers: Mapping[str, Reader], spot: FieldContext, prefix: str = ""
) -> Entry:
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


def _field(reader: Reader, value: object, spot: FieldContext, *, essential: bool) -> Entry:
    try:
        return reader(value, spot)
    except MalformedField as exc:
        raise MalformedField(str(exc), exc.spot or spot) from None
    except NotExpressible as exc:
        if essential:
            raise MalformedField(str(exc), spot) from None
        spot.note(f"{exc}; ignored")
        return {}


def _normalize_entry(entry: Entry, form: Format, spot: FieldContext) -> Entry:
    """Entry with one target, only the fields of its transport, and no redundant ones."""
    transport = entry.pop("transport", None) or (
        "stdio" if "command" in entry else "http" if "url" in entry else None
    )
    target, other = ("command", _REMOTE) if transport == "stdio" else ("url", _LOCAL)
    if transport is not None and target not in entry:
        raise MalformedField("is missing", spot.inside(target))
    if transport is None and not form.overlays:
        raise MalformedField(_NO_TARGET, spot.inside("command"))
    for name in other if transport is not None else ():
        if entry.pop(name, None):
            spot.inside(name).note("has no effect on this kind of server; ignored")
    if transport == "sse":
        entry["transport"] = "sse"
    approval = entry.get("approval")
    if is_object(approval) and set(approval) == {"default"}:
        entry["approval"] = approval["default"]
    if entry.get("request_timeout_ms", 0) > _DEFAULT_CAP_MS:
        spot.inside("request_timeout_ms").note(f"is over {_DEFAULT_CAP_MS} ms; raise `max_request_ms` too")
    return entry


def write_servers(entries: Mapping[str, Entry], form: Format, notes: list[ConversionNote]) -> dict[str, Any]:
    """Convert all servers to the format. Unsupported settings are noted."""
    writers = form.writers()
    written = {
        name: _write(entry, form, writers, FieldContext(name, "", notes)) for name, entry in entries.items()
    }
    return {name: theirs for name, theirs in written.items() if theirs is not None}


def _write(
    entry: Entry, form: Format, writers: Mapping[str, Writer], spot: FieldContext
) -> dict[str, Any] | None:
    fields = {name: value for name, value in _flat(entry) if value is not None}
    transport = fields.pop("transport", None) or _infer_transport(fields)
    if transport is None:
        spot.inside("command").note(f"{_NO_TARGET}; {_LEFT_OUT}")
        return None
    if transport not in form.targets:
        spot.inside("transport").note(f"is `{transport}`, not supported by {form.title}; {_LEFT_OUT}")
        return None
    if "enabled" not in writers and not fields.pop("enabled", True):
        spot.inside("enabled").note(f"is false, not supported by {form.title}; {_LEFT_OUT}")
        return None
    theirs: dict[str, Any] = {}
    merge(theirs, form.targets[transport])
    for name, value in fields.items():
        here, writer = spot.inside(name), writers.get(name)
        if writer is None:
            here.note(f"not supported by {form.title}")
            continue
        try:
            merge(theirs, writer(value, here))
        except (NotExpressible, MalformedField) as exc:
            if name in _ESSENTIAL:
                here.note(f"{exc}; {_LEFT_OUT}")
                return None
            here.note(f"{exc}; left out")
    return theirs


def _infer_transport(fields: Mapping[str, Any]) -> str | None:
    targets = {"command": "stdio", "url": "http", "builtin": "builtin"}
    return next((transport for name, transport in targets.items() if name in fields), None)


def _flat(entry: Entry) -> Iterator[tuple[str, Any]]:
    """Every field with its value; of `oauth`, each of its own, as formats support some of them."""
    for name, value in entry.items():
        if name == "oauth" and is_object(value):
            yield from ((f"oauth.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Merge fields into an entry: objects and lists grow, anything else is replaced."""
    for name, value in part.items():
        present = into.get(name)
        if is_object(present) and is_object(value):
            merge(present, value)
        elif is_list(present) and is_list(value):
            into[name] = [*present, *(item for item in value if item not in present)]
        else:
            into[name] = dict(value) if is_object(value) else value


def _nest_value(path: str, value: object) -> dict[str, Any]:
    """Value at a dotted path; empty if there is none."""
    if value is None:
        return {}
    outer, _, inner = path.partition(".")
    return {outer: _nest_value(inner, value) if inner else value}
