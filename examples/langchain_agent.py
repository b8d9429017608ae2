"""An agent with LangChain, with the tools of all your MCP servers.

Beside Fairlead with its extra `langchain` it needs the package `langchain-openai`:

    OPENAI_API_KEY=… python langchain_agent.py "What time is it in Berlin?"
"""

import asyncio
import os
import sys

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, Host, RunCancelled

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
    model = ChatOpenAI(model=MODEL)  # OPENAI_API_KEY, OPENAI_BASE_URL; any chat model with tools will do
    messages: list[BaseMessage] = [HumanMessage(task)]
    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        for _ in range(MAX_STEPS):
            tools = {tool.name: tool for tool in await host.tools.for_langchain()}
            answer = await model.bind_tools([*tools.values()]).ainvoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                return answer.text
            for call in answer.tool_calls:
                if call["name"] not in tools:
                    messages.append(
                        ToolMessage("there is no such tool", tool_call_id=call["id"], status="error")
                    )
                    continue
                # A call that fails, or that the user refuses, is a message that the model reads.
                messages.append(await tools[call["name"]].ainvoke(call))
    return f"not done after {MAX_STEPS} steps"


if __name__ == "__main__":
    try:
        print(asyncio.run(run(" ".join(sys.argv[1:]) or "What can you do?")))
    except RunCancelled:
        sys.exit("cancelled")
