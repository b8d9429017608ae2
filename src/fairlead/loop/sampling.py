"""A model's answer for a server that asks for one: a single step, without tools and without our history."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
from mcp_types import CreateMessageResult, SamplingMessageContentBlock, TextContent

from fairlead.errors import ModelFailed
from fairlead.host.operator import SampleRequest
from fairlead.loop.api import Api
from fairlead.loop.dialect import ChatModel, Message, Turn
from fairlead.loop.events import RunEvent
from fairlead.loop.run import DIALECTS
from fairlead.net.client import open_client

SYSTEM: Final = "Answer what you are asked. You have no tools."
"""What a model is told where the server has nothing to tell it."""


async def sampled(model: ChatModel, request: SampleRequest) -> CreateMessageResult:
    """Have a model answer a server. Raises `ModelFailed` where it does not, or the question is not text."""
    params = request.params
    messages: list[Message] = [
        {"role": message.role, "content": words_in(message.content_as_list)} for message in params.messages
    ]
    most = min(request.max_tokens, model.max_output_tokens or request.max_tokens)
    bounded = replace(model, max_output_tokens=most)
    dialect = DIALECTS[model.provider]
    body = msgspec.json.encode(dialect.request(bounded, params.system_prompt or SYSTEM, messages, []))
    async with open_client() as http:
        turn = await Api(http, bounded, dialect, _unheard).turn(body)
    return _result(model, turn)


def words_in(blocks: Sequence[SamplingMessageContentBlock]) -> str:
    """What is said in a message that is all words."""
    if not all(isinstance(block, TextContent) for block in blocks):
        raise ModelFailed("a server asks the model about something that is not text")
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


def _result(model: ChatModel, turn: Turn) -> CreateMessageResult:
    if turn.stop == "refused":
        raise ModelFailed(f"the model `{model.name}` refused to answer")
    return CreateMessageResult(
        role="assistant",
        content=TextContent(text=turn.text),
        model=model.name,
        stop_reason="maxTokens" if turn.stop == "length" else "endTurn",
    )


async def _unheard(event: RunEvent) -> None:
    """Nobody reads along: the answer is for the server, which gets it whole."""
