"""An agent with Pydantic AI, with the tools of all your MCP servers.

Beside Fairlead with its extra `pydantic-ai` it needs the package `pydantic-ai-slim[openai]`:

    OPENAI_API_KEY=… python pydantic_ai_agent.py "What time is it in Berlin?"
"""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, Host, RunCancelled

MODEL = os.environ.get("MODEL", "gpt-5-mini")
MAX_FAILURES = 5


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
    model = OpenAIChatModel(MODEL)  # OPENAI_API_KEY, OPENAI_BASE_URL; any other model will do
    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        # A call that fails, or that the user refuses, is told to the model, which may try something else.
        agent = Agent(model, tools=await host.tools.for_pydantic_ai(), retries=MAX_FAILURES)
        return (await agent.run(task)).output


if __name__ == "__main__":
    try:
        print(asyncio.run(run(" ".join(sys.argv[1:]) or "What can you do?")))
    except RunCancelled:
        sys.exit("cancelled")
