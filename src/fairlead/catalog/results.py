"""Results of tool calls, kept as bytes and parsed on demand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import decode, has_slow_numbers, may_have_string
from fairlead.catalog.sanitize.text import HiddenText
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, FairleadError, ResultInvalid, ServerError

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from fairlead.catalog.schema.validate import Check


ValueT = TypeVar("ValueT")

DELIVERY = "fairlead/delivery"
"""Key of `_meta` in a failed call's result, or of its error's data, with the delivery of the call."""


_KINDS: Final = frozenset(("audio", "image", "resource", "resource_link"))
"""Kinds of content blocks beside text."""


class _Shape(msgspec.Struct, rename="camel"):
    content: list[dict[str, Any]] = []
    structured_content: Any = None
    is_error: bool = False
    tool_result: Any = None
    """What the first draft of the protocol called the content."""

    @property
    def is_sound(self) -> bool:
        """Whether every block says what it is, and all content is where it belongs."""
        return all(map(_is_sound, self.content)) and (self.tool_result is None or bool(self.content))


def _is_sound(block: dict[str, Any]) -> bool:
    """Whether a block with a text says what it is."""
    kind: object = block.get("type")
    return kind == "text" or "text" not in block or (isinstance(kind, str) and kind in _KINDS)


_decode = msgspec.json.Decoder(_Shape).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultNotes:
    """Facts about a result that are not in it."""

    findings: tuple[HiddenText, ...] = ()
    """Hidden text that was removed from it."""
    notes: tuple[str, ...] = ()
    handles: Mapping[int, str] = field(default_factory=dict[int, str])
    """Artifacts of media that not every model takes, by the index of their block."""
    ours: frozenset[int] = frozenset()
    """Indexes of blocks that say what was left out. All others are the server's."""
    is_made_here: bool = False
    """Whether no server sent this result: it represents a failed call, and its `_meta` is ours."""
    doubt: str | None = None
    """Warning that the call may have been carried out though it failed."""


_NONE = ResultNotes()
_SHOWN_BYTES = 200
"""Bytes of a result's text that a `repr` shows."""
_SHOWN_UP_TO = 64 * 1024
"""Size up to which a result is parsed for a `repr`."""


class ToolResult:
    """Result of a tool as bytes, parsed on demand.

    Args:
        server_id: The server that sent it.
        raw: The result as prepared for delivery.
        original: The result with what was cut or removed.
        untrusted: Whether an untrusted server sent it.
        remarks: Notes for the model about what was cut.
        definition: The definition of the tool as listed.

    ```python
    result = await host.call("time", "get_current_time", {"timezone": "Europe/Berlin"})
    if result.is_error:
        print("the tool failed:", result.text)
    else:
        print(result.text, result.structured, result.as_type(CurrentTime))
    ```
    """

    def __init__(  # noqa: PLR0913 - everything that is known of a result
        self,
        server_id: str,
        raw: msgspec.Raw | bytes,
        *,
        original: bytes | memoryview | None = None,
        untrusted: bool = False,
        remarks: ResultNotes = _NONE,
        definition: bytes | None = None,
        tool: str | None = None,
    ) -> None:
        self.server_id = server_id
        self.tool = tool
        """Tool that returned it, by its own name at the server; None where no server's tool did."""
        self.raw = raw if type(raw) is bytes else bytes(raw)
        """Result as prepared for delivery."""
        self._original = original
        self.untrusted = untrusted
        """Whether an untrusted server sent it: for a model it is data, never instructions."""
        self.remarks = remarks
        self.definition = definition
        """Definition of the tool as listed, where it is known."""

    @classmethod
    def from_error_text(cls, text: str) -> "ToolResult":
        """Error result with this text, for a model.

        Args:
            text: What failed, and what to do about it.
        """
        content = {"content": [{"type": "text", "text": text}], "isError": True}
        return cls("", msgspec.json.encode(content))

    @classmethod
    def from_error(cls, error: FairleadError, *, untrusted: bool = False) -> "ToolResult":
        """Result for a failed call: what happened, the delivery, and the hint.

        `_meta["fairlead/delivery"]` has the delivery for programs.

        Args:
            error: What went wrong.
            untrusted: Whether its message may quote an untrusted server. Our hint is a block of its own then.
        """
        ours = [error.delivery_notice, f"hint: {error.hint}" if error.hint else None]
        advice = "\n\n".join(part for part in ours if part)
        texts = [str(error), advice] if untrusted else ["\n\n".join(filter(None, (str(error), advice)))]
        content = [{"type": "text", "text": text} for text in texts if text]
        raw = msgspec.json.encode({"content": content, "isError": True, "_meta": {DELIVERY: error.delivery}})
        server_id = error.server_id if isinstance(error, ServerError) else ""
        doubt = error.delivery_notice if error.delivery == "unknown" else None
        remarks = ResultNotes(ours=frozenset(range(1, len(content))), is_made_here=True, doubt=doubt)
        return cls(server_id, raw, untrusted=untrusted, remarks=remarks)

    def with_note(self, note: str) -> "ToolResult":
        """Copy with a text block at its end.

        Args:
            note: The text, which stands in brackets.
        """
        fields = msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])
        blocks: list[Any]
        try:
            blocks = msgspec.json.decode(fields.get("content", b"[]"), type=list[msgspec.Raw])
        except ValueError:
            blocks = [*self.content]
        blocks.append({"type": "text", "text": f"[{note}]"})
        remarks = replace(
            self.remarks,
            notes=(*self.remarks.notes, note),
            ours=self.remarks.ours | {len(blocks) - 1},
        )
        return ToolResult(
            self.server_id,
            msgspec.json.encode({**fields, "content": blocks}),
            original=self.raw if self._original is None else self._original,
            untrusted=self.untrusted,
            remarks=remarks,
            definition=self.definition,
            tool=self.tool,
        )

    @property
    def images(self) -> dict[int, tuple[str, str]]:
        """The images in it: media type and base64 by the index of their block."""
        if b"image" not in self.raw.lower():  # as in nearly all; media types are written in any case
            return {}
        found = ((place, _image_in(block)) for place, block in enumerate(self.content))
        return {place: image for place, image in found if image is not None}

    def without_images(self, handles: Mapping[int, str] | None = None) -> "ToolResult":
        """Copy with a note in place of each image, for a model that takes none; the same where there is none.

        Args:
            handles: Artifacts of the images, by the index of their block; those in `remarks` are known.
        """
        images = self.images
        if not images:
            return self
        known = {**self.remarks.handles, **(handles or {})}
        notes = {place: _note_of_image(*image, known.get(place)) for place, image in images.items()}
        fields = msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])
        blocks = msgspec.json.decode(fields["content"], type=list[msgspec.Raw])
        for place, note in notes.items():
            blocks[place] = msgspec.Raw(msgspec.json.encode({"type": "text", "text": f"[{note}]"}))
        remarks = replace(
            self.remarks,
            notes=(*self.remarks.notes, *notes.values()),
            ours=self.remarks.ours | notes.keys(),
        )
        return ToolResult(
            self.server_id,
            msgspec.json.encode({**fields, "content": blocks}),
            original=self.raw if self._original is None else self._original,
            untrusted=self.untrusted,
            remarks=remarks,
            definition=self.definition,
            tool=self.tool,
        )

    def __repr__(self) -> str:
        subject = f"{self.server_id}.{self.tool}" if self.tool else self.server_id or "fairlead"
        subject = gate.content(subject, _SHOWN_BYTES)
        if len(self.raw) > _SHOWN_UP_TO:
            return f"ToolResult({subject}{' failed' if self.is_error else ''}: {len(self.raw):,} bytes)"
        try:
            shown = repr(gate.content(self.text, _SHOWN_BYTES)) if self.text else self._describe_blocks()
        except CallFailed:
            shown = "not a valid result"
        return f"ToolResult({subject}{' failed' if self.is_error else ''}: {shown})"

    def _describe_blocks(self) -> str:
        kinds = sorted({gate.content(str(block.get("type")), _SHOWN_BYTES) for block in self.content[:100]})
        return f"{len(self.content)} blocks of {', '.join(kinds[:5])}" if kinds else "empty"

    @property
    def original(self) -> bytes:
        """Result as the server sent it, hidden text included: for programs, not for models."""
        if self._original is None:
            return self.raw
        if not isinstance(self._original, bytes):
            self._original = bytes(self._original)  # of a result too large to be parsed
        return self._original

    @property
    def original_size(self) -> int:
        """Size of the server's result in bytes."""
        return len(self.raw if self._original is None else self._original)

    @cached_property
    def _shape(self) -> _Shape:
        try:
            shape = _read_apart(self.raw) if has_slow_numbers(self.raw) else None
            shape = _decode(self.raw) if shape is None else shape
            return shape if shape.is_sound else _repair(self.raw) or shape
        except (ValueError, RecursionError) as exc:
            if (shape := _read_apart(self.raw) or _repair(self.raw)) is not None:
                return shape
            message = f"its answer is not a valid tool result: {exc}"
            raise CallFailed(self.server_id, message, delivery="done") from exc

    @property
    def content(self) -> list[dict[str, Any]]:
        """Content blocks as plain data."""
        return self._shape.content

    @property
    def structured(self) -> Any:  # noqa: ANN401 - any JSON value, from 2026-07-28 on
        """Structured content, if there is any within the budget. Up to 2025-11-25 it is an object."""
        return self._shape.structured_content

    @property
    def doubt(self) -> str | None:
        """Warning before a failed call is repeated, where its server may have carried it out."""
        return self.remarks.doubt

    @property
    def is_error(self) -> bool:
        """Whether the tool itself reported a failure."""
        return says_error(self.raw)

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        blocks = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in blocks if isinstance(text, str))

    @overload
    def as_type(self, kind: type[ValueT]) -> ValueT: ...
    @overload
    def as_type(self, kind: Any) -> Any: ...  # noqa: ANN401 - a union, `Annotated` and the like
    def as_type(self, kind: Any) -> Any:
        """The result as a value of a type: its structured content, or its text as JSON where it has none.

        ```python
        class CurrentTime(pydantic.BaseModel):
            timezone: str

        now = result.as_type(CurrentTime)
        same = result.as_type(dict[str, object])
        ```

        Structured content `{"result": value}` counts as the value itself where only that fits: protocol
        versions up to 2025-11-25 take no other lists and plain values.

        Args:
            kind: A pydantic model, a dataclass, a TypedDict, or a type such as `str` or `list[int]`. For
                `str` the text need not be JSON.

        Raises:
            ResultInvalid: The result does not fit, or the tool failed (`is_error`).
            WrongType: Values cannot be checked against `kind`.
        """
        # Not at the top: pydantic takes time to load.
        from fairlead.catalog.typed_results import convert, describe_type

        if self.is_error:
            failure = f"tool `{self.tool}` failed" if self.tool else "the tool failed"
            message = (
                f"{failure}: {gate.content(self.text, _SHOWN_BYTES)}; {describe_type(kind)} was expected"
            )
            raise ResultInvalid(self.server_id, message, tool=self.tool)
        structured = self._read_structured_json()
        if structured is None and kind is str:
            return self._servers_text()
        came = self._servers_text().encode(errors="replace") if structured is None else structured
        is_cut = self._original is not None and self.remarks.notes
        hint = "pass `full_result=True` to `call`: the result was cut to its budget" if is_cut else None
        return convert(self.server_id, self.tool, came, kind, hint=hint)

    def _read_structured_json(self) -> bytes | None:
        """Structured content as it came: numbers beyond the range of floats included."""
        if self.structured is None:
            return None
        return bytes(msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])["structuredContent"])

    def _servers_text(self) -> str:
        """All text blocks that the server sent, joined: without our notes."""
        blocks = [block for index, block in enumerate(self.content) if index not in self.remarks.ours]
        texts = (block.get("text") for block in blocks if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the result. Conformance to the output schema is checked on demand."""
        misfit = self._misfit()
        return self.remarks.notes if misfit is None else (*self.remarks.notes, misfit)

    def _misfit(self) -> str | None:
        """Violation of the output schema by the structured content, if any. A failed call needs none."""
        check = output_check(read_output_schema(self.definition)) if self.definition is not None else None
        if check is None or self.is_error or self.structured is None:
            return None
        verdict = check.verdict(self.structured)
        if verdict.outcome != "invalid":
            return None
        return f"its structured content does not match its output schema: {'; '.join(verdict.problems)}"

    def to_sdk(self) -> "CallToolResult":
        """Result as the SDK's model."""
        from mcp_types import CallToolResult

        return CallToolResult.model_validate_json(self.raw, by_name=False)


_IMAGE_TYPE = re.compile(r"image/[a-z0-9.+-]{1,40}")


def _image_in(block: Mapping[str, Any]) -> tuple[str, str] | None:
    match block:
        case {"type": "image", "data": str(data)}:
            return str(block.get("mimeType")).lower(), data
        case {"type": "resource", "resource": {"blob": str(data), "mimeType": str(kind)}}:
            return (kind.lower(), data) if kind.lower().startswith("image/") else None
        case _:
            return None


def _note_of_image(media_type: str, data: str, handle: str | None) -> str:
    # Ours, so that it stands outside of what is marked as untrusted: nothing that a server chose is quoted.
    kind = media_type if _IMAGE_TYPE.fullmatch(media_type) else "an image"
    where = f"Stored as {handle}." if handle else "It is not stored."
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"{kind}, {size:,} bytes, is left out: the model takes no images. {where}"


def _read_apart(raw: bytes) -> _Shape | None:
    """Parse a result with numbers beyond the range of floats, or near it; None where there is more wrong.

    `1e999` is valid JSON, and is infinity here, as with Python's own parser.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        content, structured = (
            decode(bytes(fields.get(name, b"null"))) for name in ("content", "structuredContent")
        )
        return msgspec.convert({"content": content or [], "structuredContent": structured}, _Shape)
    except (ValueError, RecursionError):
        return None


def _repair(raw: bytes) -> _Shape | None:
    """Parse a result whose content is not what the protocol says, as clients of the gateway get it.

    None where it is no result at all.
    """
    # Not at the top: nearly no result needs it.
    from fairlead.catalog.repair.content import repair_blocks

    try:
        fields: object = decode(raw)
    except (ValueError, RecursionError):
        return None
    if not is_object(fields):
        return None
    content: object = fields.get("content", fields.get("toolResult"))
    blocks, _ = repair_blocks(content) if content is not None else ([], [])
    return _Shape(content=blocks, structured_content=fields.get("structuredContent"))


class _ResultOutcome(msgspec.Struct, rename="camel"):
    is_error: msgspec.Raw = msgspec.Raw()


_decode_outcome = msgspec.json.Decoder(_ResultOutcome).decode
_LARGE_BYTES = 1024 * 1024
TRUE: Final = frozenset((b"true", b'"true"', b'"True"', b"1"))
"""Spellings of a tool's failure: the protocol's, and those of careless servers."""
_ERROR_FIRST = re.compile(rb'\s*\{\s*"isError"\s*:\s*(?:true\b|"[tT]rue"|1\s*[,}])')
_OUTCOME_LAST = re.compile(
    rb'"isError"\s*:\s*(true|false|"\w*"|\d)\s*(?:,\s*"resultType"\s*:\s*"\w*"\s*)?\}\s*\Z'
)
"""The last member of the outermost object, since the document ends there; except one that servers add."""
_LONG_BYTES = 4096


def says_error(raw: bytes | memoryview) -> bool:
    """Whether a result reports that the tool failed. Of a large one, only its two ends are scanned."""
    size = len(raw)
    if size <= _LONG_BYTES and isinstance(raw, bytes) and raw.rfind(b'"isError"') < 0 and raw.find(b"\\") < 0:
        return False  # nearly every result
    if size > _LONG_BYTES and (last := _OUTCOME_LAST.search(raw, len(raw) - 512)) is not None:
        return last[1] in TRUE
    if size > _LARGE_BYTES:
        return _ERROR_FIRST.match(raw) is not None
    raw = bytes(raw)
    if not may_have_string(raw, b'"isError"'):
        return False
    try:
        return bytes(_decode_outcome(raw).is_error) in TRUE
    except (ValueError, RecursionError):
        return False


class _Promise(msgspec.Struct, rename="camel"):
    output_schema: msgspec.Raw = msgspec.Raw()


def read_output_schema(definition: bytes) -> bytes:
    """Output schema in a tool's definition, empty if there is none."""
    try:
        return bytes(msgspec.json.decode(definition, type=_Promise).output_schema)
    except (ValueError, RecursionError):
        return b""


@lru_cache(maxsize=1024)
def output_check(schema: bytes) -> "Check | None":
    """Compiled output schema, if it can be used. What does not pass is refused by some client as well."""
    if not schema:
        return None
    # Not at the top: most results are never checked, and compilers take time to load.
    from fairlead.catalog.schema.normalize import MAX_BYTES, screen_output_assertions
    from fairlead.catalog.schema.validate import Check

    if len(schema) > MAX_BYTES:
        return None
    try:
        value: object = msgspec.json.decode(schema)
    except (ValueError, RecursionError):
        return None
    return Check(screen_output_assertions(value), is_lenient=False) if is_object(value) else None
