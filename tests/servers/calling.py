"""Calling a tool as a server does, without one."""

from typing import Any, cast

import anyio
from mcp_types import TextContent

from fairlead.servers.framework.tools import AnyTool, Reply


class Caller:
    """Nobody who would want to know how far the work is."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        raise AssertionError("these tools are quick")


async def call(tool: AnyTool, arguments: dict[str, Any]) -> Reply[Any]:
    with anyio.fail_after(30):
        return cast("Reply[Any]", await tool.handler(Caller(), tool.input.model_validate(arguments)))


def texts(reply: Reply[Any]) -> list[str]:
    return [block.text for block in reply.content if isinstance(block, TextContent)]
