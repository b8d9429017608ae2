"""Resource contents, prompt results and completions: sanitized bytes, parsed on demand."""

import base64
import binascii
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from fairlead.catalog.repair.content import NOT_BASE64, REPAIRED, repair_contents, repair_prompt
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import is_object
from fairlead.errors import CallFailed, FairleadError
from fairlead.host.background import USUAL_BYTES, run_off_loop

ItemT = TypeVar("ItemT")

MAX_VALUES: Final = gate.MAX_VALUES
"""The most JSON values of an answer with resource contents or prompt messages: over a thousand of these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CombinedList(Generic[ItemT]):
    """The offers of several servers, and the errors of servers that could not be listed."""

    items: tuple[ItemT, ...]
    failures: dict[str, FairleadError]


async def require_few_values(server_id: str, raw: bytes, limit: int = MAX_VALUES) -> None:
    """Refuse an answer that has more values than the event loop can handle at once.

    Parsing, repairing and encoding an answer take their time for each value.

    Raises:
        CallFailed: It has more than `limit`.
    """
    if len(raw) > limit and await gate.run(gate.has_more_values_steps(raw, limit)):
        message = f"its answer has more than {limit:,} values"
        hint = "ask for less at a time: a part of it, or a more precise URI or argument"
        raise CallFailed(server_id, message, delivery="done", hint=hint)


class CleanAnswer:
    """An answer of a server, cleaned and masked. What was taken out is in `original`."""

    def __init__(
        self,
        server_id: str,
        raw: msgspec.Raw | bytes,
        *,
        original: bytes | None = None,
        untrusted: bool = False,
    ) -> None:
        self.server_id = self._server_id = server_id
        self.raw = bytes(raw)
        """The answer as it may be handed on."""
        self.original = self.raw if original is None else original
        """The answer as the server wrote it, hidden text and all: for programs, not for models."""
        self.untrusted = untrusted
        """It comes from a server that is not trusted: to a model it is data, never instructions."""

    @classmethod
    async def read(cls, server_id: str, raw: msgspec.Raw, *, untrusted: bool) -> Self:
        """Sanitize an answer. Raises `CallFailed` if it is too large or cannot be parsed."""
        original = bytes(raw)
        await require_few_values(server_id, original)
        try:
            cleaned = await gate.run(gate.answer_steps(original))
        except (ValueError, RecursionError) as exc:
            message = f"its answer cannot be parsed: {gate.text(str(exc))}"
            raise CallFailed(server_id, message, delivery="done") from gate.displayable_cause(exc)
        return cls(server_id, cleaned, original=original, untrusted=untrusted)

    @cached_property
    def valid(self) -> dict[str, Any]:
        """The answer, repaired to what the protocol allows. Raises `CallFailed` if that cannot be done."""
        try:
            return self._repair(self.data)
        except (ValueError, RecursionError) as exc:
            message = f"its answer is not valid: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from gate.displayable_cause(exc)

    def _repair(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    async def prepare(self) -> None:
        """Parse and repair a large answer off the event loop, so that every property is there at once."""
        with suppress(CallFailed):  # raised again where the property is used
            await run_off_loop(lambda: self.valid, len(self.raw) // USUAL_BYTES)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The whole answer, as plain data."""
        try:
            decoded: object = gate.decode(self.raw)
        except (ValueError, RecursionError) as exc:
            message = f"its answer cannot be parsed: {gate.text(str(exc))}"
            raise CallFailed(self._server_id, message, delivery="done") from gate.displayable_cause(exc)
        if not is_object(decoded):
            raise CallFailed(self._server_id, "its answer is not an object", delivery="done")
        return decoded


class ResourceContents(CleanAnswer):
    """The contents of a resource: usually one part, each with `uri`, `mimeType` and `text` or `blob`."""

    uri = ""
    """The URI that was read, which stands in where a part has none."""

    def _repair(self, data: dict[str, Any]) -> dict[str, Any]:
        return repair_contents(data, self.uri)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts, as plain data, each valid."""
        return self.valid["contents"]

    @property
    def text(self) -> str:
        """The text of all parts that are text."""
        texts = (part.get("text") for part in self.parts)
        return "\n".join(text for text in texts if isinstance(text, str))

    def content(self, *, unchanged: bool = False) -> bytes:
        """Everything in it, as a file would hold it; `unchanged` is byte for byte what the server has."""
        whole = ResourceContents(self._server_id, self.original) if unchanged else self
        notes: list[str] = whole.valid.get("_meta", {}).get(REPAIRED) or []
        if any(note.endswith(NOT_BASE64) for note in notes):
            # A client is shown such data as text; a file must not hold it in place of what it stands for.
            message = "its resource is not what it should be: the binary data is not base64"
            raise CallFailed(self._server_id, message, delivery="done")
        return b"".join(self._bytes(part) for part in _once(whole.parts))

    def _bytes(self, part: dict[str, Any]) -> bytes:
        if isinstance(text := part.get("text"), str):
            return text.encode()
        try:
            return base64.b64decode(part.get("blob", ""), validate=True)
        except (binascii.Error, TypeError, ValueError) as exc:
            message = f"its resource is not what it should be: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from gate.displayable_cause(exc)


def _once(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The parts without the binary form of one that came as text, too."""
    before: dict[str, Any] = {}
    for part in parts:
        if not ("blob" in part and "text" in before and before["uri"] == part["uri"]):
            yield part
        before = part


class PromptResult(CleanAnswer):
    """The messages of a prompt, filled in."""

    @property
    def description(self) -> str | None:
        """The server's description."""
        description = self.data.get("description")
        return description if isinstance(description, str) else None

    def _repair(self, data: dict[str, Any]) -> dict[str, Any]:
        return repair_prompt(data)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, as plain data: a role and a content block each, all valid."""
        return self.valid["messages"]


class Completion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Suggested values of an argument."""

    values: tuple[str, ...] = ()
    total: int | None = None
    has_more: bool = False
