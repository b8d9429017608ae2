"""fastmcp's proxy, in an environment of its own: `python fastmcp_proxy.py ENTRY plain|connected`.

ENTRY is the server behind, as JSON. `connected` hands the proxy a client that is connected already, so that
it has nothing to open for a request: its best case.
"""

# pyright: basic, reportMissingImports=false

import asyncio
import json
import socket
import sys
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def serve(proxy: FastMCP[Any]) -> None:
    """Serve until it is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(listener.getsockname()[1], flush=True)
        quietly: dict[str, Any] = {"access_log": False, "log_level": "error"}
        await proxy.run_http_async(show_banner=False, sockets=[listener], uvicorn_config=quietly)


async def main(entry: dict[str, Any], kind: str) -> None:
    """Serve as a proxy of a server."""
    target: Any = entry.get("url")
    if target is None:
        target = StdioTransport(entry["command"], entry["args"], cwd=entry["cwd"])
    if kind == "plain":
        await serve(create_proxy(target))
        return
    async with Client(target) as client:
        await serve(create_proxy(client))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2]))
