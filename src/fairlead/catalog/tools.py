"""Tools as their servers define them: read just far enough to find and call them, the rest as it came.

What servers offer besides tools: resources, templates, prompts. One that is bad hides no other.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, TypeVarTuple

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import is_list, is_object

ResultT = TypeVar("ResultT")
Given = TypeVarTuple("Given")


# Of these, and of all else that there is one of for each tool, there may be tens of thousands. The garbage
# collector holds the event loop while it looks at all there is. With `gc=False` it need not look at these:
# they refer to nothing that could refer back to them.
class ToolKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The only identity of a tool. Public names are labels, and never taken apart to find a server."""

    server_id: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server_id}/{self.tool}"

    @property
    def shown_tool(self) -> str:
        """The tool's name for models and people: on one line, with nothing hidden in it. No identity."""
        return " ".join(gate.content(self.tool).split())

    @property
    def typed_tool(self) -> str:
        """The tool's name as it can be typed: characters that do not show are written `\\u200b`."""
        shown = self.shown_tool
        if shown == self.tool or self.holds_secret:
            return shown
        return "".join(letter if "!" <= letter <= "~" else _escape_letter(letter) for letter in self.tool)

    @property
    def holds_secret(self) -> bool:
        """Is a known secret in the tool's name, as it is or as public names are made of it?"""
        return gate.holds_secret(self.tool) or gate.holds_secret(slug(self.tool))


def _escape_letter(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})")


def unescape_name(typed: str) -> str:
    """A name that was typed with escapes for characters that do not show."""
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), typed)


LONGEST_NAME_READ = 256
"""How much of a name is looked at to make a public one."""
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Mn"})
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


def slug(name: str) -> str:
    """A name in the characters that every provider allows."""
    name = name[:LONGEST_NAME_READ]
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name)
        name = "".join(letter for letter in name if unicodedata.category(letter) not in HIDDEN_CATEGORIES)
    return _ILLEGAL.sub("_", name).strip("_")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEntry:
    """One tool. `definition` is the server's own, byte for byte: fields that Fairlead does not read are kept.

    Of a tool that was read from the store it has known secrets masked (see `cleaning.mask_listing`).
    """

    key: ToolKey
    definition: bytes = field(repr=False)
    title: str | None = None
    """As the server has it, as the description is: `shown_entry` has both cleaned and masked."""
    description: str | None = None
    listed_digests: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    """Digests of what the server listed, where `definition` has secrets masked: one pair for each format.

    Pins and locks compare by these, so that a masked tool is still the one that was reviewed.
    """
    _derived: dict[object, Any] = field(
        default_factory=dict[object, Any], init=False, repr=False, compare=False
    )

    def derive(self, work: Callable[["ToolEntry", *Given], ResultT], *given: *Given) -> ResultT:
        """What a pure function makes of this tool: worked out once, in whatever thread asks first."""
        # No tuple with the function in it, which would be one more thing of each tool to look at.
        key = (work.__module__, work.__qualname__, *given) if given else work
        try:
            return self._derived[key]
        except KeyError:
            made = self._derived[key] = work(self, *given)
            return made

    def read(self) -> dict[str, Any]:
        """The whole definition."""
        return msgspec.json.decode(self.definition, type=dict[str, Any])


def sanitize_entry(entry: ToolEntry) -> ToolEntry:
    """The same tool with a title and a description that may be shown. Long ones take long to clean."""
    return replace(
        entry,
        title=None if entry.title is None else gate.content(entry.title),
        description=None if entry.description is None else gate.content(entry.description),
    )


def tool_called(name: str, tools: Iterable[ToolEntry]) -> ToolEntry | None:
    """The tool that is named: by its own name, with escapes (`typed_tool`), or as only that one is shown."""
    known = tuple(tools)
    for wanted in dict.fromkeys((name, unescape_name(name))):
        exact = next((entry for entry in known if entry.key.tool == wanted), None)
        if exact is not None:
            return exact
    shown = [entry for entry in known if entry.key.shown_tool == name]
    return shown[0] if len(shown) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedTool:
    """A tool that cannot be offered, and why. The others are not affected."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """A malformed definition: what was changed to make it valid, or why it is left out."""

    kind: Literal["tool", "resource", "template", "prompt"]
    name: str
    """What its server knows it by, or its place in the list."""
    changes: tuple[str, ...] = ()
    reason: str | None = None
    """Why it is left out; None where it was repaired."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Everything one server said it offers, at one moment."""

    tools: tuple[ToolEntry, ...] = ()
    rejected: tuple[RejectedTool, ...] = ()
    resources: tuple[bytes, ...] = field(default=(), repr=False)
    templates: tuple[bytes, ...] = field(default=(), repr=False)
    prompts: tuple[bytes, ...] = field(default=(), repr=False)
    instructions: str | None = None
    ttl_ms: int | None = None
    """How long the server says its tools stay the same."""
    notes: tuple[str, ...] = ()
    """What is odd about what it declares."""
    repairs: tuple[Repair, ...] = field(default=(), repr=False)
    """Its malformed definitions, where they were made valid (see `catalog.protocol`)."""
    is_partial: bool = False
    """Could the tools not be listed? They are as they were known before, if at all."""
    _derived: dict[object, Any] = field(
        default_factory=dict[object, Any], init=False, repr=False, compare=False
    )

    def derive(self, work: Callable[["Listing"], ResultT]) -> ResultT:
        """What a pure function makes of this listing: worked out once, in whatever thread asks first."""
        try:
            return self._derived[work]
        except KeyError:
            made = self._derived[work] = work(self)
            return made


SECRET_IN_NAME = "its name holds a secret"  # noqa: S105 - says so, and is none


class _Head(msgspec.Struct, gc=False):
    name: str
    title: str | None = None
    description: str | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_name = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_tools(
    server_id: str,
    definitions: Iterator[msgspec.Raw | bytes],
    *,
    seen: set[str] | None = None,
    first: int = 0,
) -> tuple[list[ToolEntry], list[RejectedTool]]:
    """Read tool definitions. One that cannot be read is rejected alone.

    A long list is read in slices: `seen` are the names in those before, `first` is where this one begins.
    """
    tools: list[ToolEntry] = []
    rejected: list[RejectedTool] = []
    seen = set() if seen is None else seen
    for position, definition in enumerate(definitions, first):
        try:
            head = _read_head(definition)
        except (ValueError, RecursionError) as exc:
            name = gate.content(_name_of(definition) or f"#{position + 1}")
            rejected.append(RejectedTool(name=name, reason=gate.content(str(exc))))
            continue
        if not head.name:
            rejected.append(RejectedTool(name=f"#{position + 1}", reason="it has no name"))
            continue
        key = ToolKey(server_id, head.name)
        if key.holds_secret:
            rejected.append(RejectedTool(name=f"#{position + 1}", reason=SECRET_IN_NAME))
            continue
        if head.name in seen:
            rejected.append(RejectedTool(name=head.name, reason="the server lists it twice"))
            continue
        seen.add(head.name)
        tools.append(
            ToolEntry(
                key=key,
                definition=bytes(definition),
                title=head.title,
                description=head.description,
            )
        )
    return tools, rejected


def _read_head(definition: msgspec.Raw | bytes) -> _Head:
    try:
        return _decode_head(definition)
    except (ValueError, RecursionError):
        # A title or description that is no text costs itself, and not the tool (see `catalog.protocol`).
        name = _name_of(definition)
        if name is None:
            raise
        return _Head(name=name)


def _name_of(definition: msgspec.Raw | bytes) -> str | None:
    try:
        return msgspec.json.decode(_decode_name(definition)["name"], type=str)
    except (ValueError, KeyError, RecursionError):
        return None


class ServerOffer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all of them have. The words are the server's own: data, no instructions, and not safe to print."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    server_id: str = ""
    """Who offers it. Whatever the server put here itself is overwritten."""

    @property
    def label(self) -> str:
        """How a person knows it."""
        return self.title or self.name


class ResourceOffer(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """Something to read, by its URI."""

    uri: str
    mime_type: str | None = None
    size: int | None = None


class ResourceTemplate(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """A URI with blanks (RFC 6570): fill them in to get a resource."""

    uri_template: str
    mime_type: str | None = None


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """Something a prompt wants to know."""

    name: str
    description: str | None = None
    required: bool = False


class PromptOffer(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """Words a server has ready, for a person to use."""

    arguments: tuple[PromptArgument, ...] = ()


OfferT = TypeVar("OfferT", bound=ServerOffer)


def read_offers(server_id: str, kind: type[OfferT], definitions: Iterable[bytes]) -> Iterator[OfferT]:
    """Read what a server listed. What cannot be read is left out."""
    for definition in definitions:
        try:
            read = msgspec.convert(_without_nulls(msgspec.json.decode(definition)), kind)
        except (ValueError, RecursionError):
            continue
        yield msgspec.structs.replace(read, server_id=server_id)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Say nothing where a server says null, as many do of what they have nothing to say about."""
    if is_object(value):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if is_list(value) else value
