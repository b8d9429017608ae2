"""A server that takes its time to start. Standard library only: `python -I -S slow.py sleep|burn SECONDS`.

`burn` uses that much of a processor, as importing a large package does, however long it has to wait for it.
"""

import json
import sys
import time

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
INFO = {"name": "slow", "version": "1"}
RESULTS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": []},
}


def main() -> None:
    how, seconds = sys.argv[1], float(sys.argv[2])
    if how == "sleep":
        time.sleep(seconds)
    while how == "burn" and time.process_time() < seconds:
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
