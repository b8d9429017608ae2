"""Conversion of a tool's result to a Python type: `ToolResult.as_type`.

Types are checked by pydantic, in the mode for JSON: a date may be a text, a tuple a list. Where pydantic does
not take `typing.TypedDict` (before Python 3.12) msgspec does.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, get_args

import msgspec
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from fairlead.bounded_repr import bound_repr
from fairlead.catalog.sanitize import gate
from fairlead.errors import ResultInvalid, WrongType

_MAX_PROBLEMS = 3
_SHOWN_BYTES = 200
_WRAPPED = "result"
"""Name of the only member of structured content that stands for a list or a plain value."""

_Read = Callable[[bytes], Any]


def convert(server_id: str, tool: str | None, came: bytes, kind: Any, *, hint: str | None) -> Any:  # noqa: ANN401 - the type decides
    """Convert JSON that a tool returned.

    Args:
        server_id: The server.
        tool: The tool, where it is known.
        came: Its structured content, or its text.
        kind: The type.
        hint: What to do about a value that does not fit.

    Raises:
        ResultInvalid: It does not fit the type.
        WrongType: `kind` is not a type that values can be checked against.
    """
    read = _reader(kind)
    try:
        return read(came)
    except ValueError as exc:  # as both libraries' errors are
        fault: ValueError = exc
    if (value := _unwrap(came)) is not None:
        try:
            return read(value)
        except ValueError as exc:
            fault = exc
    problems = "; ".join(_problems(fault))
    came_as = gate.content(came[: gate.head_length(_SHOWN_BYTES) + 1].decode(errors="replace"), _SHOWN_BYTES)
    subject = f"tool `{tool}` returned" if tool else "the tool returned"
    message = f"{subject} something else than {describe_type(kind)}: {problems}; it returned {came_as}"
    raise ResultInvalid(server_id, message, tool=tool, hint=hint) from None


def describe_type(kind: object) -> str:
    """A type in a few words, for messages."""
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return f"`{name[:_SHOWN_BYTES]}`"


def _reader(kind: Any) -> _Read:  # noqa: ANN401 - any type that a caller names
    if isinstance(kind, str):  # pydantic would look the name up here
        raise _not_a_type(kind, TypeError("it is a text"))
    try:
        return _make_reader(kind)
    except TypeError:  # it cannot be hashed
        return _make_reader.__wrapped__(kind)


@lru_cache(maxsize=256)
def _make_reader(kind: Any) -> _Read:  # noqa: ANN401 - any type that a caller names
    try:
        return TypeAdapter(kind).validate_json
    except PydanticUserError as exc:
        if exc.code == "typed-dict-version":
            return msgspec.json.Decoder(kind, strict=False).decode
        raise _not_a_type(kind, exc) from None


def _not_a_type(kind: object, error: Exception) -> WrongType:
    return WrongType(
        f"`ToolResult.as_type` cannot check values against {bound_repr(kind)}: {str(error).splitlines()[0]}",
        hint="pass a pydantic model, a dataclass, a TypedDict, or a type such as `str` or `list[int]`",
    )


def _unwrap(came: bytes) -> bytes | None:
    """The value in `{"result": value}`; None where it is something else."""
    try:
        fields = msgspec.json.decode(came, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return None
    return bytes(fields[_WRAPPED]) if fields.keys() == {_WRAPPED} else None


def _problems(error: Exception) -> Iterator[str]:
    if not isinstance(error, ValidationError):
        yield gate.text(str(error), _SHOWN_BYTES)
        return
    found = error.errors(include_url=False, include_context=False, include_input=False)
    for problem in found[:_MAX_PROBLEMS]:
        where = ".".join(map(str, problem["loc"]))
        yield gate.text(f"{where}: {problem['msg']}" if where else problem["msg"], _SHOWN_BYTES)
    if len(found) > _MAX_PROBLEMS:
        yield f"and {len(found) - _MAX_PROBLEMS} more"
