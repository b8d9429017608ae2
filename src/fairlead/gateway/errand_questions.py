"""What servers ask in the course of an errand, put to the person who is here."""

import mcp_types as types
from pydantic import TypeAdapter

from fairlead.config.models import Server
from fairlead.gateway.errands import Asked, Reply
from fairlead.host.custom import CustomCapabilities
from fairlead.host.operator import Operator
from fairlead.host.peer import ServerPeer

_question = TypeAdapter[types.ElicitRequestParams](types.ElicitRequestParams)


async def answered(asked: Asked, config: Server, operator: Operator) -> Reply:
    """Ask as a host would that is connected to the server itself."""
    peer = ServerPeer(
        asked.server,
        config.model_copy(update={"elicitation": True}),  # it was not asked for by who may not
        operator,
        roots=(),
        custom=CustomCapabilities(),
        emit=lambda _event: None,
    )
    answer = await peer.elicit(_question.validate_json(bytes(asked.params)))
    said = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    is_error = isinstance(answer, types.ErrorData)
    return Reply(asked.id, error=said) if is_error else Reply(asked.id, result=said)
