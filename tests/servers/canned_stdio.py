"""A stdio MCP server that gives to each method the answer it was told: one JSON argument, by method.

Where that is too long for an argument, `@` and the name of a file that holds it; `stderr` is written at the
start. An answer is a result, or `{"error": …}`. Standard library alone, so that each byte it sends is the
test's.
"""

import json
import sys
from typing import Any


def _run(answers: dict[str, Any]) -> None:
    sys.stderr.write(answers.get("stderr", ""))
    sys.stderr.flush()
    unknown = {"error": {"code": -32601, "message": "unknown"}}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        answer = answers.get(request["method"], unknown)
        outcome = answer if "error" in answer else {"result": answer}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1].startswith("@"):
        with open(sys.argv[1][1:], encoding="utf-8") as file:
            _run(json.load(file))
    else:
        _run(json.loads(sys.argv[1]))
