"""An agent without any other library and without asyncio, with the tools of all your MCP servers.

It speaks the Chat Completions API, as Ollama, vLLM, llama.cpp and most providers do. Set OPENAI_BASE_URL and
OPENAI_API_KEY for another than the Ollama of this machine:

    MODEL=llama3.2 python plain_agent.py "What time is it in Berlin?"
"""

import json
import os
import sys
import urllib.request
from typing import Any

import fairlead
from fairlead import ApprovalAnswer, ApprovalRequest, Callbacks, RunCancelled, ToolResult
from fairlead.adapters import openai_arguments, openai_messages

BASE_URL = os.environ.get("OPENAI_BASE_URL", "http://localhost:11434/v1")
MODEL = os.environ.get("MODEL", "llama3.2")
MAX_STEPS = 20


def ask(request: ApprovalRequest) -> ApprovalAnswer:
    """Ask the user about a call that their configuration does not simply allow."""
    print(f"\n{request.server_id}.{request.tool} {request.arguments}\n{request.reason}", file=sys.stderr)
    try:
        answer = input("Allow this call? once, session, always, no, cancel: ")
    except EOFError:
        return "no"
    return answer if answer in ("once", "session", "always", "cancel") else "no"


def complete(messages: list[Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Send a conversation to the model, and return its next message."""
    body = {"model": MODEL, "messages": messages, "tools": tools}
    key = os.environ.get("OPENAI_API_KEY", "none")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{BASE_URL}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["choices"][0]["message"]


def run(task: str) -> str:
    """Let the model work on a task, and return its last words."""
    messages: list[Any] = [{"role": "user", "content": task}]
    with fairlead.open(operator=Callbacks(on_approve=ask)) as host:
        for _ in range(MAX_STEPS):
            tools = host.tools.for_openai(api="chat")  # again in each step: servers may change their tools
            message = complete(messages, tools.definitions)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                function = call["function"]
                try:
                    # A call that fails, or that the user refuses, is a result that the model reads.
                    result = tools.call(function["name"], openai_arguments(function["arguments"]))
                except ValueError as exc:
                    result = ToolResult.from_error_text(f"the arguments are not valid JSON: {exc}")
                messages += openai_messages(result, call["id"])
    return f"not done after {MAX_STEPS} steps"


if __name__ == "__main__":
    try:
        print(run(" ".join(sys.argv[1:]) or "What can you do?"))
    except RunCancelled:
        sys.exit("cancelled")
