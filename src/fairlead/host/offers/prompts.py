"""Prompts of servers: list them, get one filled in, complete its arguments."""

from collections.abc import Mapping

from fairlead.catalog.tools import PromptOffer
from fairlead.config.argument_types import check_types
from fairlead.host.offers.contents import CombinedList, Completion, PromptResult
from fairlead.host.offers.offer_requests import OfferRequests


class Prompts:
    """The prompts of all servers: `host.prompts`."""

    def __init__(self, requests: OfferRequests) -> None:
        self._requests = requests

    @check_types
    async def list(self, server_id: str | None = None) -> CombinedList[PromptOffer]:
        """The prompts of one server, or of all. Servers that were never listed are connected.

        Args:
            server_id: The server; all enabled servers if not given.

        Returns:
            The prompts, and the servers that could not be listed.
        """
        return await self._requests.gather(PromptOffer, server_id)

    @check_types
    async def get(
        self, server_id: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> PromptResult:
        """Get a prompt with its arguments filled in.

        Args:
            server_id: The server.
            name: The prompt.
            arguments: Its arguments, by name.

        Raises:
            CallFailed: No result came.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        result = await self._requests.fetch(PromptResult, server_id, "prompts/get", params)
        await result.prepare()
        return result

    @check_types
    async def complete(
        self,
        server_id: str,
        name: str,
        argument: str,
        value: str = "",
        *,
        others: Mapping[str, str] | None = None,
    ) -> Completion:
        """Complete an argument of a prompt.

        Args:
            server_id: The server.
            name: The prompt.
            argument: The argument to complete.
            value: What was typed so far.
            others: The arguments that have values already.

        Raises:
            CallFailed: No completion came, or it cannot be read.
        """
        reference = {"type": "ref/prompt", "name": name}
        return await self._requests.complete(server_id, reference, argument, value, others)
