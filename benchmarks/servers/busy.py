"""A server that computes before it serves. Standard library only: `python -I -S busy.py SECONDS`.

It uses that much of a processor, as importing a large package does, however long it has to wait for it.
"""

import json
import sys
import time

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
INFO = {"name": "busy", "version": "1"}
RESULTS: dict[str, object] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": [TOOL]},
}


def main() -> None:
    """Compute, then answer until stdin ends."""
    while time.process_time() < float(sys.argv[1]):
        sum(range(1000))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] in RESULTS:
            answer["result"] = RESULTS[request["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
