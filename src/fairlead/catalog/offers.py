"""What servers offer besides tools: resources, templates, prompts. One that is bad hides no other."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec


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
    decoder = msgspec.json.Decoder(kind)
    for definition in definitions:
        try:
            yield msgspec.structs.replace(decoder.decode(definition), server_id=server_id)
        except (ValueError, RecursionError):
            continue
