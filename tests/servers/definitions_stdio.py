"""A stdio server that lists the corpus of definitions, and answers every call."""

import json
import sys
from typing import Any

from tests.servers.definitions_corpus import read_corpus

LISTS = {
    "tools/list": ("tools", "tool"),
    "resources/list": ("resources", "resource"),
    "resources/templates/list": ("resourceTemplates", "template"),
    "prompts/list": ("prompts", "prompt"),
}
TEXT = {"type": "text", "text": "done"}
GREETING: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    "serverInfo": {"name": "definitions", "version": "1"},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that there is not."""
    if method in LISTS:
        name, kind = LISTS[method]
        return {name: [case["definition"] for case in read_corpus() if case["kind"] == kind]}
    match method:
        case "initialize":
            return GREETING
        case "tools/call":
            return {"content": [TEXT], "structuredContent": {"x": "y", "text": "y"}}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": TEXT}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "done"}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
