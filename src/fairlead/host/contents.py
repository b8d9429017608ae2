"""What reading a resource or getting a prompt brought: the bytes as they came, read when somebody asks."""

import base64
import binascii
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.errors import CallFailed, FairleadError

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered(Generic[ItemT]):
    """What all servers offer together, and what went wrong with those that did not say."""

    items: tuple[ItemT, ...]
    failures: dict[str, FairleadError]


class Answered:
    """An answer of a server, as it came."""

    def __init__(self, server_id: str, raw: msgspec.Raw) -> None:
        self._server_id = server_id
        self.raw = bytes(raw)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The whole answer, as plain data."""
        try:
            return msgspec.json.decode(self.raw, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as exc:
            message = f"what it answered cannot be read: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from exc

    def _objects(self, field: str) -> list[dict[str, Any]]:
        try:
            return msgspec.convert(self.data.get(field, []), list[dict[str, Any]])
        except msgspec.ValidationError as exc:
            message = f"what it answered is not what was asked for: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from exc


class ResourceContents(Answered):
    """What is in a resource: one part as a rule, each with `uri`, `mimeType` and `text` or `blob`."""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts, as plain data."""
        return self._objects("contents")

    @property
    def text(self) -> str:
        """The text of all parts that are text."""
        texts = (part.get("text") for part in self.parts)
        return "\n".join(text for text in texts if isinstance(text, str))

    def content(self) -> bytes:
        """Everything in it, as a file would hold it."""
        return b"".join(self._bytes(part) for part in self.parts)

    def _bytes(self, part: dict[str, Any]) -> bytes:
        if isinstance(text := part.get("text"), str):
            return text.encode()
        try:
            return base64.b64decode(part.get("blob", ""), validate=True)
        except (binascii.Error, TypeError, ValueError) as exc:
            message = f"its resource is not what it should be: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from exc


class PromptResult(Answered):
    """The messages of a prompt, filled in."""

    @property
    def description(self) -> str | None:
        """What the server says it is for."""
        description = self.data.get("description")
        return description if isinstance(description, str) else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, as plain data: a role and content each."""
        return self._objects("messages")


class Completion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an argument could be."""

    values: tuple[str, ...] = ()
    total: int | None = None
    has_more: bool = False
