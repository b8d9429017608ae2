"""An agent on the Gemini API, with the tools of all your MCP servers.

Beside Fairlead it needs the package `google-genai`:

    GEMINI_API_KEY=… python gemini_agent.py "What time is it in Berlin?"
"""

import asyncio
import os
import sys

from google import genai
from google.genai import types

from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, Host, RunCancelled
from fairlead.adapters import gemini_result

MODEL = os.environ.get("MODEL", "gemini-2.5-flash")
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
    client = genai.Client()  # GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL
    contents = [types.Content(role="user", parts=[types.Part(text=task)])]
    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        for _ in range(MAX_STEPS):
            tools = await host.tools.for_gemini()  # again in each step: servers may change their tools
            declarations = [types.FunctionDeclaration.model_validate(each) for each in tools.definitions]
            config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declarations)])
            answer = await client.aio.models.generate_content(model=MODEL, contents=contents, config=config)
            if not answer.function_calls:
                return answer.text or ""
            contents.append(answer.candidates[0].content)
            parts = []
            for call in answer.function_calls:
                # A call that fails, or that the user refuses, is a result that the model reads.
                result = await tools.call(call.name, call.args)
                part = gemini_result(result, call.name, call.id, media=False)
                parts.append(types.Part.model_validate(part))
            contents.append(types.Content(role="user", parts=parts))
    return f"not done after {MAX_STEPS} steps"


if __name__ == "__main__":
    try:
        print(asyncio.run(run(" ".join(sys.argv[1:]) or "What can you do?")))
    except RunCancelled:
        sys.exit("cancelled")
