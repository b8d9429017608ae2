"""A stdio MCP server whose tools return exactly the results of a file: `results_stdio.py FILE`.

The file is JSON: `version` is the protocol version that it speaks. `tools` has by name a tool's `definition`
(without `name` and `inputSchema`), the `result` to answer with (JSON in a string, sent as it is), and what
capability it `needs` of a client to be listed, if any. `{text:N}` and `{words:N}` in a result are so many
letters or words.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_REPEATED = re.compile(r"\{(text|words):(\d+)\}")
MODERN = "2026-07-28"


def _filled(result: str) -> str:
    return _REPEATED.sub(lambda found: ("x" if found[1] == "text" else "word ") * int(found[2]), result)


def _run(script: dict[str, Any]) -> None:
    version, tools = script["version"], script["tools"]
    info = {"name": "results", "version": "1"}
    modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if version == MODERN else {}
    answers: dict[str, Any] = {
        "tools/list": {
            **modern,
            "tools": [
                {"name": name, "inputSchema": {"type": "object"}, **tool["definition"]}
                for name, tool in tools.items()
            ],
        }
    }
    if version == MODERN:
        answers["server/discover"] = {
            **modern,
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    else:
        answers["initialize"] = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "initialize":
            able = request["params"]["capabilities"]
            listed = answers["tools/list"]["tools"]
            listed[:] = [one for one in listed if tools[one["name"]].get("needs", "x") in {*able, "x"}]
        if request["method"] == "tools/call":
            outcome = '"result":' + _filled(tools[request["params"]["name"]]["result"])
        elif request["method"] in answers:
            outcome = '"result":' + json.dumps(answers[request["method"]])
        else:
            outcome = '"error":{"code":-32601,"message":"unknown"}'
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},{outcome}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    _run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
