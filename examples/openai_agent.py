"""An agent on OpenAI's Responses API, with the tools of all your MCP servers.

Beside Fairlead it needs the package `openai`:

    OPENAI_API_KEY=… python openai_agent.py "What time is it in Berlin?"
"""

import asyncio
import os
import sys
from typing import Any

from openai import AsyncOpenAI

from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, Host, RunCancelled, ToolResult
from fairlead.adapters import openai_arguments, openai_result

MODEL = os.environ.get("MODEL", "gpt-5-mini")
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
    client = AsyncOpenAI()  # OPENAI_API_KEY, OPENAI_BASE_URL
    conversation: list[Any] = [{"role": "user", "content": task}]
    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        for _ in range(MAX_STEPS):
            tools = await host.tools.for_openai()  # again in each step: servers may change their tools
            response = await client.responses.create(model=MODEL, input=conversation, tools=tools.definitions)
            conversation += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            for call in calls:
                try:
                    # A call that fails, or that the user refuses, is a result that the model reads.
                    result = await tools.call(call.name, openai_arguments(call.arguments))
                except ValueError as exc:
                    result = ToolResult.from_error_text(f"the arguments are not valid JSON: {exc}")
                conversation.append(openai_result(result, call.call_id))
    return f"not done after {MAX_STEPS} steps"


if __name__ == "__main__":
    try:
        print(asyncio.run(run(" ".join(sys.argv[1:]) or "What can you do?")))
    except RunCancelled:
        sys.exit("cancelled")
