"""Models that follow a script, behind the APIs of their providers, on a port of this machine."""

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = str | tuple[str, dict[str, Any]]
"""What the model says, or the tool it calls: a part of its name, and its arguments."""


@dataclass(frozen=True)
class Api:
    """One provider's API: how its path ends, and how a model says and calls something in it."""

    path: str
    names: Callable[[dict[str, Any]], list[str]]
    says: Callable[[str], dict[str, Any]]
    calls: Callable[[str, str, dict[str, Any]], dict[str, Any]]


def _chat(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", "content": None, **message},
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
    return {**head, "choices": [choice]}


def _response(item: dict[str, Any]) -> dict[str, Any]:
    head = {"id": "r", "object": "response", "created_at": 0, "status": "completed", "model": "m"}
    return {**head, "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def _anthropic(block: dict[str, Any], reason: str) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return {**head, "content": [block], "stop_reason": reason, "stop_sequence": None}


def _gemini(part: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


def _function(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": json.dumps(given)}


CHAT = Api(
    path="/v1/chat/completions",
    names=lambda body: [tool["function"]["name"] for tool in body["tools"]],
    says=lambda text: _chat({"content": text}, "stop"),
    calls=lambda key, name, given: _chat(
        {"tool_calls": [{"id": key, "type": "function", "function": _function(name, given)}]}, "tool_calls"
    ),
)
RESPONSES = Api(
    path="/v1/responses",
    names=lambda body: [tool["name"] for tool in body["tools"]],
    says=lambda text: _response(
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
    ),
    calls=lambda key, name, given: _response(
        {"type": "function_call", "id": f"fc_{key}", "call_id": key, **_function(name, given)}
    ),
)
ANTHROPIC = Api(
    path="/v1/messages",
    names=lambda body: [tool["name"] for tool in body["tools"]],
    says=lambda text: _anthropic({"type": "text", "text": text}, "end_turn"),
    calls=lambda key, name, given: _anthropic(
        {"type": "tool_use", "id": key, "name": name, "input": given}, "tool_use"
    ),
)
GEMINI = Api(
    path="/models/m:generateContent",
    names=lambda body: [each["name"] for tool in body["tools"] for each in tool["functionDeclarations"]],
    says=lambda text: _gemini({"text": text}),
    calls=lambda key, name, given: _gemini({"functionCall": {"id": key, "name": name, "args": given}}),
)


@dataclass
class ScriptedModel:
    """A model that takes one step of its script for each request."""

    api: Api
    script: Sequence[Step]
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The requests, in order."""
    url: str = ""

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request; None where the API has no such path, or the script is over."""
        self.bodies.append(body)
        if not path.partition("?")[0].endswith(self.api.path) or len(self.bodies) > len(self.script):
            return None
        step = self.script[len(self.bodies) - 1]
        if isinstance(step, str):
            return self.api.says(step)
        (name,) = [each for each in self.api.names(body) if step[0] in each]
        return self.api.calls(f"call_{len(self.bodies)}", name, step[1])


@contextmanager
def scripted_model(api: Api, *script: Step) -> Generator[ScriptedModel]:
    """Serve a model for the length of the block."""
    model = ScriptedModel(api, script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = model.answer(self.path, body)
            content = json.dumps(answer or {"error": {"message": f"no {self.path} now"}}).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        model.url = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield model
        finally:
            listener.shutdown()
            thread.join()
