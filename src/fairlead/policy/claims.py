"""What a server says of a tool's effects. From one that is not trusted these are words and no more."""

from collections.abc import Iterator
from functools import lru_cache

import msgspec


class _Annotations(msgspec.Struct, rename="camel"):
    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _Annotated(msgspec.Struct):
    annotations: _Annotations | None = None


_decode = msgspec.json.Decoder(_Annotated).decode


@lru_cache(maxsize=16_384)
def _annotations(definition: bytes) -> _Annotations:
    try:
        return _decode(definition).annotations or _Annotations()
    except (ValueError, RecursionError):
        return _Annotations()  # hints that cannot be read say nothing


def is_harmless(definition: bytes) -> bool:
    """Does the definition say that the tool only reads, or adds without destroying anything?"""
    said = _annotations(definition)
    return said.read_only_hint is True or said.destructive_hint is False


def is_destructive(definition: bytes) -> bool:
    """Does the definition say, in so many words, that the tool may destroy something?"""
    said = _annotations(definition)
    return said.destructive_hint is True and said.read_only_hint is not True


def claims_of(definition: bytes) -> tuple[str, ...]:
    """What the definition says of the tool's effects, in words for a person who is asked."""
    return tuple(_claims(_annotations(definition)))


def _claims(said: _Annotations) -> Iterator[str]:
    if said.read_only_hint is not None:
        yield "it only reads" if said.read_only_hint else "it changes things"
    if said.destructive_hint is not None and not said.read_only_hint:
        yield "it may destroy things" if said.destructive_hint else "it destroys nothing"
    if said.idempotent_hint is not None and not said.read_only_hint:
        again = "changes nothing more" if said.idempotent_hint else "does it again"
        yield f"calling it twice {again}"
    if said.open_world_hint is not None:
        yield "it reaches the outside world" if said.open_world_hint else "it stays in its own world"
