"""The prompts of a host's servers: words a person can have put to a model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairlead.catalog.offers import Prompt
from fairlead.config.argument_types import check_types
from fairlead.host.completions import complete
from fairlead.host.contents import Completion, Gathered, PromptResult
from fairlead.host.offers import gather

if TYPE_CHECKING:
    from fairlead.host.host import Host


class Prompts:
    """The prompts of all servers: `host.prompts`."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    @check_types
    async def list(self, server_id: str | None = None) -> Gathered[Prompt]:
        """What one server has ready, or all: what is known at once, and who was never asked is asked."""
        return await gather(self._host, Prompt, server_id)

    @check_types
    async def get(
        self, server_id: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> PromptResult:
        """Get a prompt, filled in."""
        connection = await self._host.reach(server_id)
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = await connection.request("prompts/get", params, safe_to_repeat=True)
        result = await PromptResult.read(server_id, raw, untrusted=self._host.is_untrusted(server_id))
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
        """What an argument of a prompt could be; `others` are those that are given already."""
        reference = {"type": "ref/prompt", "name": name}
        return await complete(self._host, server_id, reference, argument, value, others)
