"""Do a call's arguments match a rule? In doubt, one that narrows matches and one that allows does not.

A rule names arguments, with dots into objects (`options.path`), and a glob for each. `*` also matches `/`. A
value that can be read as a path is compared as it is written and as it resolves, so that `/etc/../etc/x` or
`//etc/x` is below `/etc/**`, and `/home/me/../../etc/x` is not below `/home/me/**`.
"""

import posixpath
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec

from fairlead.config.shapes import as_object, is_list, is_object


def matches(patterns: Mapping[str, str], arguments: Mapping[str, object], *, narrows: bool) -> bool:
    """Does every named argument match its glob? One that is not given does not.

    For a rule that narrows, one of several values or readings is enough; for one that allows, all must match.
    """
    return all(
        _value_matches(_value(arguments, name), glob, narrows=narrows) for name, glob in patterns.items()
    )


_ABSENT = object()


def _value(arguments: Mapping[str, object], name: str) -> object:
    if name in arguments:
        return arguments[name]
    value: object = arguments
    for step in name.split("."):
        value = as_object(value).get(step, _ABSENT)
    return value


def _value_matches(value: object, glob: str, *, narrows: bool) -> bool:
    if value is _ABSENT:
        return False
    enough = any if narrows else all
    readings = [reading for text in _texts(value) for reading in _readings(text)]
    return bool(readings) and enough(fnmatchcase(reading, glob) for reading in readings)


def _texts(value: object) -> Iterator[str]:
    """Every text in a value; numbers and the like as JSON writes them."""
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_list(value):
        for item in value.values() if is_object(value) else value:
            yield from _texts(item)
    else:
        yield msgspec.json.encode(value).decode()


def _readings(text: str) -> Iterator[str]:
    yield text
    plain = text.replace("\\", "/")
    resolved = posixpath.normpath(plain) if plain else plain
    resolved = "/" + resolved.lstrip("/") if resolved.startswith("//") else resolved
    if resolved != text:
        yield resolved
