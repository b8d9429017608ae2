"""Run-time type check of the arguments of public functions, by their annotations.

A wrong type raises `WrongType` before the function begins, so nothing is sent, started or stored. Without the
check, None in place of a name would travel to a server, or fail far from the caller's mistake.
"""

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Final, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, overload

from fairlead.errors import WrongType

P = ParamSpec("P")
R = TypeVar("R")

_MAX_SHOWN: Final = 60
_WORDS: Final[dict[object, str]] = {
    str: "a str",
    int: "an int",
    float: "a number",
    bool: "True or False",
    bytes: "bytes",
    NoneType: "None",
    Mapping: "a mapping",
    Sequence: "a sequence",
    Iterable: "an iterable",
    Collection: "a collection",
    Callable: "a function",
    os.PathLike: "a path",
}


@overload
def check_types(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def check_types(*, hints: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def check_types(
    function: Callable[P, R] | None = None, *, hints: Mapping[str, str] | None = None
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that it raises `WrongType` for arguments that do not match its annotations.

    Classes, unions, `Literal`, functions, and mappings and collections of these are checked; strings, type
    variables and protocols in annotations are not. An iterator is not read ahead.

    Args:
        function: A function, a coroutine function or a context manager's function, method or not.
        hints: By parameter, what to pass instead where callers often get it wrong.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @cache  # at the first call: importing the package stays cheap
        def signature() -> inspect.Signature:
            return inspect.signature(function)

        @wraps(function)
        def check_and_call(*args: P.args, **kwargs: P.kwargs) -> R:
            # A missing or unknown argument raises Python's own TypeError.
            bound = signature().bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                parameter = signature().parameters[name]
                for one in _values_to_check(parameter, value):
                    if not fits(one, parameter.annotation):
                        hint = (hints or {}).get(name)
                        raise wrong_type(function, name, parameter.annotation, one, hint=hint)
            return function(*args, **kwargs)

        return check_and_call

    return decorate if function is None else decorate(function)


def require_types(function: Callable[..., Any], **arguments: object) -> None:
    """Raise `WrongType` for the first of these arguments that does not match its annotation."""
    for name, value in arguments.items():
        if not fits(value, function.__annotations__[name]):
            raise wrong_type(function, name, function.__annotations__[name], value)


def wrong_type(
    function: Callable[..., Any], name: str, annotation: object, value: object, *, hint: str | None = None
) -> WrongType:
    """Error for an argument of a wrong type: what the function takes, and what it was given."""
    shown = "None" if value is None else f"{_article(type(value).__name__)} ({_shorten(value)})"
    return WrongType(
        f"`{function.__qualname__}` takes {_describe(annotation)} as `{name}`, not {shown}; nothing was done",
        hint=hint,
    )


def _values_to_check(parameter: inspect.Parameter, value: Any) -> Iterable[object]:  # noqa: ANN401 - any value
    """Values that one annotation covers: each of `*args`, or the one."""
    if parameter.annotation is inspect.Parameter.empty:
        return ()
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return cast("tuple[object, ...]", value)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return cast("dict[str, object]", value).values()
    return (value,)


def fits(value: object, annotation: Any) -> bool:  # noqa: ANN401 - an annotation can be anything
    """Whether a value matches an annotation, as far as that can be checked."""
    origin: Any = get_origin(annotation) or annotation
    if annotation is None:
        return value is None
    if origin in (Union, UnionType):
        return any(fits(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return any(value is choice or value == choice for choice in get_args(annotation))
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type) or origin is Any or getattr(origin, "_is_protocol", False):
        return True  # an annotation that cannot be checked
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, origin):
        return False
    return _fits_within(value, origin, get_args(annotation))


def _fits_within(value: object, origin: type, parts: tuple[Any, ...]) -> bool:
    """Whether the members of a mapping or collection match. A string is no collection of strings."""
    if isinstance(value, str | bytes):
        return origin in (str, bytes, object)
    if issubclass(origin, Mapping) and len(parts) == 2:
        items = cast("Mapping[object, object]", value).items()
        return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in items)
    is_collection = isinstance(value, Collection) and issubclass(origin, Iterable) and origin is not tuple
    if is_collection and len(parts) == 1:
        return all(fits(one, parts[0]) for one in cast("Collection[object]", value))
    return True


def _describe(annotation: Any) -> str:  # noqa: ANN401 - an annotation can be anything
    origin: Any = get_origin(annotation) or annotation
    if annotation is None:
        return "None"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_describe, get_args(annotation))))
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    words = _WORDS.get(origin) or _article(getattr(origin, "__name__", str(origin)))
    parts = [part for part in get_args(annotation) if part in (str, int)]
    if isinstance(origin, type) and issubclass(origin, Iterable) and parts and origin is not str:
        words += f" of {'s and '.join(part.__name__ for part in dict.fromkeys(parts))}s"
    return words


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _shorten(value: object) -> str:
    """A value in a few characters; of one that may hold a secret, only its size."""
    if isinstance(value, bool | int | float | type):
        return f"{value!r}"[:_MAX_SHOWN]
    if isinstance(value, str | bytes | Collection):
        return f"of length {len(cast('Collection[object]', value))}"
    return "an object"
