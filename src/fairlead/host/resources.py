"""The resources of a host's servers: listed together, read one by one, watched for changes."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fairlead.catalog.offers import Resource, ResourceTemplate
from fairlead.config.argument_types import check_types
from fairlead.events import Event, ResourceUpdated
from fairlead.host.completions import complete
from fairlead.host.contents import Completion, Gathered, ResourceContents
from fairlead.host.offers import gather
from fairlead.host.uri_templates import Value, read_template

if TYPE_CHECKING:
    from fairlead.host.host import Host


class Resources:
    """The resources of all servers: `host.resources`."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    @check_types
    async def list(self, server_id: str | None = None) -> Gathered[Resource]:
        """What one server has to read, or all: what is known at once, and who was never asked is asked."""
        return await gather(self._host, Resource, server_id)

    @check_types
    async def templates(self, server_id: str | None = None) -> Gathered[ResourceTemplate]:
        """URIs with blanks to fill in; `expand` does."""
        return await gather(self._host, ResourceTemplate, server_id)

    @check_types
    async def read(self, server_id: str, uri: str) -> ResourceContents:
        """Read a resource."""
        connection = await self._host.reach(server_id)
        raw = await connection.request("resources/read", {"uri": uri}, safe_to_repeat=True)
        contents = await ResourceContents.read(server_id, raw, untrusted=self._host.is_untrusted(server_id))
        contents.uri = uri
        await contents.prepare()
        return contents

    @staticmethod
    def expand(template: str, values: Mapping[str, Value]) -> str:
        """The URI that a template becomes with these values. Raises `ValueError` for what is no template."""
        return read_template(template).expand(values)

    @check_types
    async def complete(
        self,
        server_id: str,
        template: str,
        argument: str,
        value: str = "",
        *,
        others: Mapping[str, str] | None = None,
    ) -> Completion:
        """What a blank of a template could be; `others` are the blanks that are filled in already."""
        reference = {"type": "ref/resource", "uri": template}
        return await complete(self._host, server_id, reference, argument, value, others)

    @check_types
    @asynccontextmanager
    async def watch(self, server_id: str, *uris: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Be told of changes: `async with host.resources.watch("files", uri) as changed: async for uri in …`.

        The wish outlives a connection that is lost; what changed meanwhile is for you to look at.
        """
        connection = await self._host.reach(server_id)
        async with self._host.events() as events, connection.watching(uris):
            yield _Changes(events, server_id, uris)


class _Changes:
    """The URIs of resources as they change. One who stops waiting may wait again."""

    def __init__(self, events: AsyncIterator[Event], server_id: str, uris: tuple[str, ...]) -> None:
        self._events = events
        self._server_id = server_id
        self._uris = uris

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await anext(self._events)
            if isinstance(event, ResourceUpdated) and self._is_wanted(event):
                return event.uri

    def _is_wanted(self, event: ResourceUpdated) -> bool:
        return event.server_id == self._server_id and any(_is_within(event.uri, uri) for uri in self._uris)


def _is_within(uri: str, watched: str) -> bool:
    """Is this what is watched, or a part of it? Servers may tell of either."""
    return uri == watched or (uri.startswith(watched) and (watched[-1:] == "/" or uri[len(watched)] in "/?#"))
