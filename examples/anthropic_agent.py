"""An agent on Anthropic's Messages API, with the tools of all your MCP servers.

Beside Fairlead it needs the package `anthropic`:

    ANTHROPIC_API_KEY=… python anthropic_agent.py "What time is it in Berlin?"
"""

import asyncio
import os
import sys
from typing import Any

from anthropic import AsyncAnthropic

from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, Host, RunCancelled
from fairlead.adapters import anthropic_result

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
MAX_STEPS = 20


async def ask(request: ApprovalRequest) -> ApprovalAnswer:
    """Ask the user about a call that their configuration does not simply allow."""
    print(f"\n{request.server_id}.{request.tool} {request.arguments}\n{request.reason}", file=sys.stderr)
    try:
        answer = await asyncio.to_thread(input, "Allow this call? once, session, always, no, cancel: ")
    except EOFError:
        return "no"
    return answer if answer in ("once", "session", "always", "cancel") else "no"


async def run(task: str) -> str:
    """Let the model work on a task, and return its last words."""
    client = AsyncAnthropic()  # ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
    messages: list[Any] = [{"role": "user", "content": task}]
    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        for _ in range(MAX_STEPS):
            tools = await host.tools.for_anthropic()  # again in each step: servers may change their tools
            answer = await client.messages.create(
                model=MODEL, max_tokens=4096, messages=messages, tools=tools.definitions
            )
            messages.append({"role": "assistant", "content": answer.content})
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in answer.content if block.type == "text")
            # A call that fails, or that the user refuses, is a result that the model reads.
            results = [anthropic_result(await tools.call(call.name, call.input), call.id) for call in calls]
            messages.append({"role": "user", "content": results})
    return f"not done after {MAX_STEPS} steps"


if __name__ == "__main__":
    try:
        print(asyncio.run(run(" ".join(sys.argv[1:]) or "What can you do?")))
    except RunCancelled:
        sys.exit("cancelled")
