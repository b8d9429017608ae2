"""Bounded `repr`s of public values: readable in a debugger and a notebook, however large the value is.

`repr` of a text also escapes what is invisible in it, so that no `repr` moves a terminal's cursor.
"""

import reprlib
from dataclasses import fields
from typing import Any, Final

MAX_TEXT = 200
"""Characters of a text that a `repr` shows."""

MAX_ITEMS = 10
"""Members of a list or mapping that a `repr` shows."""


def _make_limits() -> reprlib.Repr:
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = limits.maxlong = MAX_TEXT
    limits.maxlist = limits.maxtuple = limits.maxdict = limits.maxset = limits.maxfrozenset = MAX_ITEMS
    limits.maxlevel = 4
    return limits


_LIMITS: Final = _make_limits()


def bound_repr(value: object) -> str:
    """The `repr` of a value, of bounded length."""
    return _LIMITS.repr(value)


def names(values: Any) -> str:  # noqa: ANN401 - any iterable of texts, with a length
    """The first of some names, and how many more there are: `a, b, … (12)`."""
    shown = ", ".join(str(value)[:MAX_TEXT] for value, _ in zip(values, range(MAX_ITEMS), strict=False))
    return shown if len(values) <= MAX_ITEMS else f"{shown}, … ({len(values)})"


def count(number: int, noun: str) -> str:
    """A number of things: `1 tool`, `2 tools`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class BoundedRepr:
    """Base of dataclasses (with `repr=False`) with large fields. Fields that are None are left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ((each.name, getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type]
        shown_fields = ", ".join(f"{name}={bound_repr(value)}" for name, value in shown if value is not None)
        return f"{type(self).__name__}({shown_fields})"
