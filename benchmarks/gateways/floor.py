"""What no ASGI application can go below: it reads a request and answers with what was written beforehand."""

import anyio
import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send

from fairlead.net.listen import bind

_RESULT = b'{"content":[{"type":"text","text":"xxxxx"}],"resultType":"complete"}'
_TOOLS = b'{"tools":[{"name":"tool_0","inputSchema":{"type":"object"}}],"resultType":"complete"}'


class _Request(msgspec.Struct):
    method: str
    id: int = 0


_decode = msgspec.json.Decoder(_Request).decode


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request."""
    if scope["type"] != "http":
        return
    request = _decode((await receive())["body"])
    result = _RESULT if request.method == "tools/call" else _TOOLS
    body = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.id, result)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def main() -> None:
    """Serve until it is ended."""
    with bind("127.0.0.1", 0) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
