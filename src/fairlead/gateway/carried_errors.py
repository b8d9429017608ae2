"""Errors of one process that another raises again: the command line, or the supervisor of workers."""

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, Final, cast, get_args

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError, ConfigInvalid, Delivery, FairleadError
from fairlead.wording import without_server


class CommandFailed(msgspec.Struct, frozen=True, tag="failed"):
    """An error of a command, to be raised again by the caller."""

    code: str
    message: str
    details: dict[str, str | int | bool | None]


def encode_error(error: FairleadError) -> CommandFailed:
    """Encode an error for the command that meets it: code, text without secrets, and plain details."""
    # All that is wrong in a configuration is in its text; the problems are for those who have the files.
    kind = ConfigError if isinstance(error, ConfigInvalid) else type(error)
    details = {name: getattr(error, name, None) for name in _detail_names(kind)}
    plain = {name: value for name, value in details.items() if isinstance(value, _PLAIN)}
    plain["delivery"] = error.delivery
    return CommandFailed(code=kind.code, message=gate.error_text(error), details=plain)


def decode_error(failed: CommandFailed) -> FairleadError:
    """Decode an error that a gateway met, to be raised here.

    A code or a set of details that this version does not know, from a gateway of another version, becomes a
    plain `FairleadError` with the same text.
    """
    kind = next((kind for kind in _error_types(FairleadError) if kind.code == failed.code), FairleadError)
    names = _detail_names(kind)
    required = {name for name, parameter in names.items() if parameter.default is Parameter.empty}
    if not required <= failed.details.keys():
        kind, names = FairleadError, _detail_names(FairleadError)
    details: dict[str, Any] = {name: value for name, value in failed.details.items() if name in names}
    # The constructors of server errors name the server themselves.
    server_id = str(details.get("server_id"))
    message = without_server(failed.message, server_id) if "server_id" in names else failed.message
    error = kind(message=message, **details)
    delivery = failed.details.get("delivery")
    # A gateway of an earlier version does not say it of every error.
    if delivery in get_args(Delivery) and delivery != error.delivery:
        error.delivery = cast("Delivery", delivery)
    return error


_PLAIN: Final = (str, int, bool, type(None))


def _detail_names(kind: type[FairleadError]) -> dict[str, Parameter]:
    """Return what an error is made of besides its message: its attributes have the same names."""
    return {name: each for name, each in signature(kind).parameters.items() if name != "message"}


def _error_types(kind: type[FairleadError]) -> Iterator[type[FairleadError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _error_types(narrower)
