"""What servers offer besides tools: resources, templates, prompts. One that is bad hides no other."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from fairlead.config.shapes import is_list, is_object


class Offer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all of them have. The words are the server's own: data, no instructions, and not safe to print."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    server_id: str = ""
    """Who offers it. Whatever the server put here itself is overwritten."""

    @property
    def label(self) -> str:
        """How a person knows it."""
        return self.title or self.name


class Resource(Offer, frozen=True, kw_only=True, rename="camel"):
    """Something to read, by its URI."""

    uri: str
    mime_type: str | None = None
    size: int | None = None


class ResourceTemplate(Offer, frozen=True, kw_only=True, rename="camel"):
    """A URI with blanks (RFC 6570): fill them in to get a resource."""

    uri_template: str
    mime_type: str | None = None


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """Something a prompt wants to know."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(Offer, frozen=True, kw_only=True, rename="camel"):
    """Words a server has ready, for a person to use."""

    arguments: tuple[PromptArgument, ...] = ()


OfferT = TypeVar("OfferT", bound=Offer)


def read_offers(server_id: str, kind: type[OfferT], definitions: Iterable[bytes]) -> Iterator[OfferT]:
    """Read what a server listed. What cannot be read is left out."""
    for definition in definitions:
        try:
            read = msgspec.convert(_without_nulls(msgspec.json.decode(definition)), kind)
        except (ValueError, RecursionError):
            continue
        yield msgspec.structs.replace(read, server_id=server_id)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Say nothing where a server says null, as many do of what they have nothing to say about."""
    if is_object(value):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if is_list(value) else value
