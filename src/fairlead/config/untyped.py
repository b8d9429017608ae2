"""Access to unvalidated JSON data. A value of an unexpected type counts as empty."""

from typing import Any, Final, TypeGuard, cast

ISOLATED: Final = ("servers", "bundles")
"""Sections in which one bad entry costs only that entry."""


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a JSON object, and so has strings as keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a JSON list."""
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []


def has_path(value: object, path: tuple[str | int, ...]) -> bool:
    """Whether there is a value at `path`; null is one."""
    if not path:
        return True
    parent = value_at(value, path[:-1])
    if is_list(parent):
        return isinstance(path[-1], int) and 0 <= path[-1] < len(parent)
    return is_object(parent) and path[-1] in parent


def value_at(value: object, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - any JSON value
    """Value at `path`, or None."""
    for step in path:
        if isinstance(value, dict):
            value = cast("dict[str | int, object]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[object]", value)):
            value = cast("list[object]", value)[step]
        else:
            return None
    return value
