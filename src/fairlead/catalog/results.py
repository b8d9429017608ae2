"""Results of tool calls, kept as bytes and parsed on demand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlead.catalog.sanitize.slices import decode, may_have_string
from fairlead.catalog.sanitize.text import HiddenText
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, FairleadError, ServerError

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from fairlead.catalog.schema.validate import Check


DELIVERY = "fairlead/delivery"
"""Key of `_meta` in a failed call's result, or of its error's data, with the delivery of the call."""


class _Shape(msgspec.Struct, rename="camel"):
    content: list[dict[str, Any]] = []
    structured_content: Any = None
    is_error: bool = False


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


_NONE = ResultNotes()


class ToolResult:
    """Result of a tool as bytes, parsed on demand.

    Args:
        server_id: The server that sent it.
        raw: The result as prepared for delivery.
        original: The result with what was cut or removed.
        untrusted: Whether an untrusted server sent it.
        remarks: Notes for the model about what was cut.
        definition: The definition of the tool as listed.
    """

    def __init__(
        self,
        server_id: str,
        raw: msgspec.Raw | bytes,
        *,
        original: bytes | memoryview | None = None,
        untrusted: bool = False,
        remarks: ResultNotes = _NONE,
        definition: bytes | None = None,
    ) -> None:
        self.server_id = server_id
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
        """Error result with this text, for a model."""
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
        remarks = ResultNotes(ours=frozenset(range(1, len(content))), is_made_here=True)
        return cls(server_id, raw, untrusted=untrusted, remarks=remarks)

    def with_note(self, note: str) -> "ToolResult":
        """Copy with a text block at its end."""
        fields = msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])
        blocks = msgspec.json.decode(fields.get("content", b"[]"), type=list[msgspec.Raw])
        blocks.append(msgspec.Raw(msgspec.json.encode({"type": "text", "text": f"[{note}]"})))
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
        )

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
            return _decode(self.raw)
        except (ValueError, RecursionError) as exc:
            if (shape := _read_apart(self.raw)) is not None:
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
    def is_error(self) -> bool:
        """Whether the tool itself reported a failure."""
        return says_error(self.raw)

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        blocks = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in blocks if isinstance(text, str))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the result. Conformance to the output schema is checked on demand."""
        misfit = self._misfit()
        return self.remarks.notes if misfit is None else (*self.remarks.notes, misfit)

    def _misfit(self) -> str | None:
        """Violation of the output schema by the structured content, if any. A failed call needs none."""
        check = output_check(self.definition) if self.definition is not None else None
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


def _read_apart(raw: bytes) -> _Shape | None:
    """Parse a result with a number beyond the range of floats; None where there is more wrong.

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
    output_schema: Any = None


@lru_cache(maxsize=1024)
def output_check(definition: bytes) -> "Check | None":
    """Compiled output schema of a tool, if it has a usable one."""
    if b"outputSchema" not in definition:
        return None
    # Not at the top: most results are never checked, and compilers take time to load.
    from fairlead.catalog.schema.normalize import MAX_BYTES, screen_output
    from fairlead.catalog.schema.validate import Check

    if len(definition) > MAX_BYTES:
        return None
    try:
        promise = msgspec.json.decode(definition, type=_Promise)
    except (ValueError, RecursionError):
        return None
    return Check(screen_output(promise.output_schema)) if is_object(promise.output_schema) else None
