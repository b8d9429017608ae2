"""Elicitations in the course of a control command, answered by the user at the terminal.

A module of its own, since it loads the models of the protocol, which most commands do not need.
"""

import mcp_types as types
from pydantic import TypeAdapter

from fairlead.config.models import Server
from fairlead.gateway.control.protocol import ElicitationAsked, ElicitationReply
from fairlead.host.operator import Operator
from fairlead.host.server_peer import CustomCapabilities, ServerPeer

_params = TypeAdapter[types.ElicitRequestParams](types.ElicitRequestParams)


async def answer_elicitation(asked: ElicitationAsked, config: Server, operator: Operator) -> ElicitationReply:
    """Have the user answer an elicitation that a gateway passed on, as a host of their own would."""
    peer = ServerPeer(
        asked.server,
        config.model_copy(update={"elicitation": True}),  # the gateway has checked whether it may ask
        operator,
        roots=(),
        custom=CustomCapabilities(),
        emit=lambda _event: None,
    )
    answer = await peer.elicit(_params.validate_json(bytes(asked.params)))
    said = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    is_error = isinstance(answer, types.ErrorData)
    return ElicitationReply(asked.id, error=said) if is_error else ElicitationReply(asked.id, result=said)
