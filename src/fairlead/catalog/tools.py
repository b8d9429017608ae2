"""Tools, resources, templates and prompts as their servers list them.

Definitions are parsed just far enough to find and call them; the rest stays bytes. A bad one is left out
alone.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, TypeVarTuple

import msgspec

from fairlead.bounded_repr import count
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.text import reveal_hidden
from fairlead.config.untyped import is_list, is_object

_MAX_ORIGIN = 100
"""Characters of an origin: it costs tokens in every definition."""

ResultT = TypeVar("ResultT")
Given = TypeVarTuple("Given")


# There may be tens of thousands of these, and of other objects that exist once per tool. The garbage
# collector stops the event loop while it visits all objects. With `gc=False` it skips these: they refer to
# nothing that could refer back to them.
class ToolKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """Identity of a tool. Public names are labels, and never parsed to find a server."""

    server_id: str
    """The id of the server."""
    tool: str
    """The name of the tool, as its server has it."""

    def __str__(self) -> str:
        return f"{self.server_id}/{self.tool}"

    @property
    def shown_tool(self) -> str:
        """Display name of the tool: on one line, sanitized. Not an identity."""
        return " ".join(gate.content(self.tool).split())

    @property
    def revealed_tool(self) -> str:
        """Name of the tool with hidden characters spelled out, ⟨U+200B⟩: for users who decide about it."""
        return self.shown_tool if self.holds_secret else reveal_hidden(self.tool)

    @property
    def typed_tool(self) -> str:
        """Name of the tool as it can be typed: invisible characters are written `\\u200b`."""
        shown = self.shown_tool
        if shown == self.tool or self.holds_secret:
            return shown
        return "".join(letter if "!" <= letter <= "~" else _escape_letter(letter) for letter in self.tool)

    @property
    def qualified(self) -> str:
        """`server.tool`: the one spelling that is printed for users to type.

        A tool whose own name begins so is not named twice: `repo.readFile`, not `repo.repo.readFile`.
        """
        prefix, tool = f"{self.server_id}.", self.typed_tool
        return tool if tool.startswith(prefix) and tool != prefix else f"{prefix}{tool}"

    @property
    def origin(self) -> str:
        """`[server/tool]`: what a model reads before the description of a tool."""
        return f"[{f'{self.server_id}/{self.shown_tool}'[:_MAX_ORIGIN]}]"

    @property
    def holds_secret(self) -> bool:
        """Whether a known secret is in the tool's name, literally or in its slug."""
        return gate.holds_secret(self.tool) or gate.holds_secret(slug(self.tool))


def _escape_letter(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})")


def unescape_name(typed: str) -> str:
    """Decode a name typed with escapes for invisible characters."""
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), typed)


LONGEST_NAME_READ = 256
"""Characters of a name that are used for a public one."""
NOTES_META_KEY = "fairlead/notes"
"""Key in the `_meta` of a list: what a server tells its user about the list, such as what it left out."""
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Mn"})
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


def slug(name: str) -> str:
    """A name in the characters that every provider allows."""
    name = name[:LONGEST_NAME_READ]
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name)
        name = "".join(letter for letter in name if unicodedata.category(letter) not in HIDDEN_CATEGORIES)
    return _ILLEGAL.sub("_", name).strip("_")


_SHOWN_BYTES = 120
"""Bytes of a description that a `repr` shows."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ToolEntry:
    """One listed tool. In a listing `definition` is the server's own, byte for byte, with all its fields.

    `Host.tools_of` gives tools whose definitions are sanitized, with secrets masked.

    ```python
    for entry in await host.tools_of("time"):
        print(entry.name, entry.input_schema["properties"])
        if entry.name == "get_current_time":
            result = await host.call(entry.server_id, entry.name, {"timezone": "Europe/Berlin"})
    ```

    In a tool that was read from the store known secrets are masked (see `sanitize.definitions.mask_listing`).
    """

    key: ToolKey
    """Which tool it is."""
    definition: bytes = field(repr=False)
    """The definition as JSON."""
    title: str | None = None
    """As listed, like the description; `sanitize.definitions.clean_tool` makes all of it safe to show."""
    description: str | None = None
    """As listed."""
    listed_digests: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    """Digests of the listed definition, where `definition` has secrets masked: one pair for each format.

    Pins and locks compare these, so that a masked tool is still the one that was reviewed.
    """
    _derived: dict[object, Any] = field(
        default_factory=dict[object, Any], init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        """Its own name at the server, as `Host.call` takes it. A model sees it under a public name."""
        return self.key.tool

    @property
    def server_id(self) -> str:
        """Server that lists it."""
        return self.key.server_id

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of its arguments, as listed."""
        schema = self.read().get("inputSchema")
        return schema if is_object(schema) else {}

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of its structured content, as listed; None where it has none."""
        schema = self.read().get("outputSchema")
        return schema if is_object(schema) else None

    def __repr__(self) -> str:
        text = self.title or self.description
        shown = f": {gate.content(text, _SHOWN_BYTES)!r}" if text else ""
        return f"ToolEntry({self.server_id}.{gate.content(self.key.shown_tool, _SHOWN_BYTES)}{shown})"

    def derive(self, work: Callable[["ToolEntry", *Given], ResultT], *given: *Given) -> ResultT:
        """Result of a pure function of this tool, computed once, in the first thread that needs it.

        Args:
            work: The function, not a closure: its name is the key.
            given: Its further arguments, hashable ones.
        """
        # No tuple with the function in it, which would be one more object per tool to collect.
        key = (work.__module__, work.__qualname__, *given) if given else work
        try:
            return self._derived[key]
        except KeyError:
            made = self._derived[key] = work(self, *given)
            return made

    def read(self) -> dict[str, Any]:
        """Parse the whole definition."""
        return msgspec.json.decode(self.definition, type=dict[str, Any])


def find_tool(name: str, tools: Iterable[ToolEntry]) -> ToolEntry | None:
    """Tool of a name: its own, with escapes (`typed_tool`), or a unique display name."""
    known = tuple(tools)
    for wanted in dict.fromkeys((name, unescape_name(name))):
        exact = next((entry for entry in known if entry.key.tool == wanted), None)
        if exact is not None:
            return exact
    shown = [entry for entry in known if entry.key.shown_tool == name]
    return shown[0] if len(shown) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedTool:
    """A tool that cannot be offered, and why. Others are not affected."""

    name: str
    """Its name, safe to show; its position in the list (`#3`) where that cannot be read or shown."""
    reason: str

    @property
    def is_unnamed(self) -> bool:
        """Whether its name is not known, so that it may be any that its server does not list."""
        return self.name.startswith("#")


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """A malformed definition: the changes that made it valid, or why it is left out."""

    kind: Literal["tool", "resource", "template", "prompt"]
    name: str
    """Its identity on the server, or its position in the list."""
    changes: tuple[str, ...] = ()
    reason: str | None = None
    """Why it is left out; None where it was repaired."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Listing:
    """Everything one server lists at one moment."""

    tools: tuple[ToolEntry, ...] = ()
    """Its tools."""
    rejected: tuple[RejectedTool, ...] = ()
    """Tools whose definitions cannot be used, with the reasons."""
    resources: tuple[bytes, ...] = field(default=(), repr=False)
    """Its resources, each as JSON."""
    templates: tuple[bytes, ...] = field(default=(), repr=False)
    """Its resource templates, each as JSON."""
    prompts: tuple[bytes, ...] = field(default=(), repr=False)
    """Its prompts, each as JSON."""
    instructions: str | None = None
    """What it says about its use."""
    ttl_ms: int | None = None
    """Time for which the server declares its tools unchanged."""
    notes: tuple[str, ...] = ()
    """Remarks about its declarations."""
    repairs: tuple[Repair, ...] = field(default=(), repr=False)
    """Its malformed definitions, repaired or left out (see `catalog.repair`)."""
    is_partial: bool = False
    """Whether listing the tools failed. Then they are those known before, if any."""
    _derived: dict[object, Any] = field(
        default_factory=dict[object, Any], init=False, repr=False, compare=False
    )

    def __repr__(self) -> str:
        kinds = (("tool", self.tools), ("resource", self.resources), ("template", self.templates))
        rest = (("prompt", self.prompts), ("rejected tool", self.rejected))
        counts = [count(len(listed), noun) for noun, listed in (*kinds, *rest) if listed or noun == "tool"]
        return f"Listing({', '.join(counts)}{', partial' if self.is_partial else ''})"

    def derive(self, work: Callable[["Listing"], ResultT]) -> ResultT:
        """Result of a pure function of this listing, computed once, in the first thread that needs it.

        Args:
            work: The function, which is the key.
        """
        try:
            return self._derived[work]
        except KeyError:
            made = self._derived[work] = work(self)
            return made


LISTED_TWICE = "the server lists it twice"
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
    """Parse tool definitions. An invalid one is rejected alone.

    Args:
        server_id: The server that lists them.
        definitions: The definitions as JSON.
        seen: Of a long list that is parsed in slices: the names in the slices before.
        first: The position of the slice.

    Returns:
        The tools, and the rejected definitions with their reasons.
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
            rejected.append(RejectedTool(name=head.name, reason=LISTED_TWICE))
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
        # A title or description that is not a text costs only itself (see `catalog.repair`).
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
    """Fields of every offer besides tools. Its texts are untrusted, and not safe to print."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    server_id: str = ""
    """Server that offers it. What the server put here itself is overwritten."""

    @property
    def label(self) -> str:
        """Display label."""
        return self.title or self.name


class ResourceOffer(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """A resource, by its URI."""

    uri: str
    mime_type: str | None = None
    size: int | None = None


class ResourceTemplate(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """A URI template (RFC 6570) of resources."""

    uri_template: str
    mime_type: str | None = None


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class PromptOffer(ServerOffer, frozen=True, kw_only=True, rename="camel"):
    """A prompt template, for users."""

    arguments: tuple[PromptArgument, ...] = ()


OfferT = TypeVar("OfferT", bound=ServerOffer)


def read_offers(server_id: str, kind: type[OfferT], definitions: Iterable[bytes]) -> Iterator[OfferT]:
    """Parse listed offers. Invalid ones are left out."""
    for definition in definitions:
        try:
            read = msgspec.convert(_without_nulls(msgspec.json.decode(definition)), kind)
        except (ValueError, RecursionError):
            continue
        yield msgspec.structs.replace(read, server_id=server_id)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Drop nulls, which many servers send for absent fields."""
    if is_object(value):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if is_list(value) else value
