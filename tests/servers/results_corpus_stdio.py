"""A stdio server that answers with the corpus of results: whichever case a request names, of its kind."""

import json
import sys
from typing import Any

from tests.servers.results_corpus import read_corpus

CASES = {
    kind: [case["result"] for case in read_corpus() if case["kind"] == kind]
    for kind in ("tool", "prompt", "resource", "completion")
}
ANSWERS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
        "serverInfo": {"name": "results", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "give", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "give", "arguments": [{"name": "case"}]}]},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": [{"name": "give", "uriTemplate": "case://{case}"}]},
    "ping": {},
}


def answer(method: str, params: dict[str, Any]) -> Any:
    """The result of a request; None for a method that there is not."""
    match method:
        case "tools/call":
            return CASES["tool"][params["arguments"]["case"]]
        case "prompts/get":
            return CASES["prompt"][int(params["arguments"]["case"])]
        case "resources/read":
            return CASES["resource"][int(params["uri"].removeprefix("case://"))]
        case "completion/complete":
            return CASES["completion"][int(params["argument"]["value"])]
        case _:
            return ANSWERS.get(method)


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
