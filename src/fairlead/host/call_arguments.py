"""The arguments of a call as JSON: checked, and fixed before anything decides about them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from fairlead.errors import ArgumentsInvalid


def fix_arguments(arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], msgspec.Raw]:
    """A copy of the arguments to show and the same to send: the caller cannot change them meanwhile."""
    encoded = encode_arguments(arguments)
    return msgspec.json.decode(encoded, type=dict[str, Any]), encoded


def encode_arguments(arguments: object) -> msgspec.Raw:
    """Return the JSON of a call's arguments.

    Raises:
        ArgumentsInvalid: They are no mapping, or hold what is no JSON: half of a surrogate pair, NaN, cycles,
            objects of other types. NaN would be sent as null, a value that the caller did not give.
    """
    if not isinstance(arguments, Mapping):
        raise ArgumentsInvalid(
            f"the arguments of a call are a mapping, not {type(arguments).__name__}; it was not called",
            hint='give them by name, as in {"path": "README.md"}',
        )
    given = cast("Mapping[str, Any]", arguments)
    try:
        encoded = msgspec.json.encode(given if isinstance(given, dict) else {**given})
        # msgspec writes NaN and infinity as null, so that most arguments need not be walked through.
        is_finite = b"null" not in encoded or _is_finite(given)
        msgspec.json.decode(encoded)  # what cannot be read again could not be shown or checked
    except RecursionError as exc:
        raise ArgumentsInvalid(
            "the arguments are nested too deeply, or contain themselves; it was not called",
            hint="give plain values: text, numbers, true and false, null, lists and objects",
        ) from exc
    except UnicodeEncodeError as exc:
        raise ArgumentsInvalid(
            "the arguments have text that is no valid Unicode (half of a surrogate pair); it was not called",
            hint="was a text cut inside an emoji, or read as something other than UTF-8?",
        ) from exc
    except (TypeError, ValueError, OverflowError) as exc:
        raise ArgumentsInvalid(
            f"the arguments cannot be written as JSON: {exc}; it was not called",
            hint="give plain values: text, numbers, true and false, null, lists and objects",
        ) from exc
    if not is_finite:
        raise ArgumentsInvalid(
            "the arguments have a number that is NaN or infinite, which is not JSON; it was not called",
            hint="give a finite number, or null",
        )
    return msgspec.Raw(encoded)


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_finite, cast("Mapping[object, object]", value).values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_finite, cast("Iterable[object]", value)))
    return True
