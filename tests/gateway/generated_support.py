"""A server that lists and answers what was generated, as bytes, and what a gateway's clients get of it."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp_types.methods import validate_server_result
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.net.listen import bind, listening, url_of
from tests.fixtures.generated_messages import LISTS, RESULTS, EntryKind, Generated, encode
from tests.gateway.support import MODERN, Raw

GREETING: dict[str, Any] = {
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    "serverInfo": {"name": "generated", "version": "1"},
}
OBJECT = {"type": "object"}
GIVING: Mapping[str, list[dict[str, Any]]] = {
    "tools/list": [
        {"name": "give", "inputSchema": OBJECT},
        {"name": "give_typed", "inputSchema": OBJECT, "outputSchema": OBJECT},
    ],
    "resources/list": [],
    "resources/templates/list": [{"name": "give", "uriTemplate": "case://{case}"}],
    "prompts/list": [{"name": "give", "arguments": [{"name": "case"}]}],
}
"""What a server lists that is asked for results."""
DONE = {"content": [{"type": "text", "text": "done"}]}


class GeneratedServer:
    """A server over HTTP of one protocol version. What it lists and answers can be changed at any time."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.url = ""
        self.lists: dict[str, list[Any]] = dict(GIVING)
        self.answers: dict[str, list[Any]] = {}

    def list_all(self, made: Sequence[Generated]) -> None:
        """List these entries from now on."""
        for kind, (method, _, _) in LISTS.items():
            self.lists[method] = [each.value for each in made if each.kind == kind]

    def answer_with(self, made: Sequence[Generated]) -> None:
        """Answer with these results from now on."""
        self.answers = {
            kind: [each.value for each in made if each.kind == kind]
            for kind in ("tool", "prompt", "resource")
        }

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["GeneratedServer"]:
        """Run it on a socket."""
        app = Starlette(routes=[Route("/mcp", self._serve, methods=["GET", "POST", "DELETE"])])
        with bind("127.0.0.1", 0) as listener:
            async with listening(app, listener):
                self.url = f"{url_of(listener)}/mcp"
                yield self

    async def _serve(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = json.loads(await request.body())
        if "id" not in message:
            return Response(status_code=202)
        said = self._result(message["method"], message.get("params") or {})
        ended = b'"error":{"code":-32601,"message":"no"}' if said is None else b'"result":' + said
        body = b'{"jsonrpc":"2.0","id":%b,%b}' % (encode(message["id"]), ended)
        return Response(body, media_type="application/json")

    def _result(self, method: str, params: dict[str, Any]) -> bytes | None:
        field = next((field for each, field, _ in LISTS.values() if each == method), None)
        if field is not None:
            return self._complete({field: self.lists[method]})
        match method:
            case "server/discover" if self.version == MODERN:
                return self._complete({**GREETING, "supportedVersions": [MODERN]})
            case "initialize" if self.version != MODERN:
                return encode({**GREETING, "protocolVersion": self.version})
            case "tools/call":
                return self._case("tool", params["arguments"].get("case"))
            case "prompts/get":
                return self._case("prompt", as_object(params.get("arguments")).get("case"))
            case "resources/read":
                return self._case("resource", params["uri"].rpartition("/")[2])
            case _:
                return None

    def _case(self, kind: str, number: Any) -> bytes:
        if number is None or not self.answers:
            return self._complete(DONE)
        value = self.answers[kind][int(number)]
        return self._complete(value) if is_object(value) else encode(value)

    def _complete(self, result: dict[str, Any]) -> bytes:
        if self.version != MODERN:
            return encode(result)
        return encode({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A server whose results are asked for, and how a client of each protocol version asks."""

    server: GeneratedServer
    clients: Mapping[str, Any]


def numbered(made: Sequence[Generated]) -> Iterator[tuple[str, int, Generated]]:
    """Results by kind, with the numbers by which they are asked for."""
    for kind in RESULTS:
        of_kind = [each for each in made if each.kind == kind]
        yield from ((kind, number, each) for number, each in enumerate(of_kind))


def requests(kind: str, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests that are answered with a result."""
    match kind:
        case "tool":
            for name in ("c_give", "c_give_typed"):
                yield "tools/call", {"name": name, "arguments": {"case": number}}
        case "prompt":
            yield "prompts/get", {"name": "c_give", "arguments": {"case": str(number)}}
        case _:
            yield "resources/read", {"uri": f"case://{number}"}


def with_plain_uris(value: Any) -> Any:
    """A result with the URIs that its resources have at their server."""
    if is_object(value):
        return {name: with_plain_uris(item) for name, item in value.items()}
    if is_list(value):
        return [with_plain_uris(item) for item in value]
    return value.removeprefix("fairlead://server/c/") if isinstance(value, str) else value


Said = list[tuple[str, str, Any]]
"""Results that clients got: the protocol version, the method and the result."""


async def begun(client: Raw, version: str, said: Said) -> Callable[..., Awaitable[Any]]:
    """The way in which a client of a protocol version makes requests. Results are added to `said`."""
    if version != MODERN:
        await client.begin(version=version)

    async def request(method: str, **params: Any) -> Any:
        ask = client.modern if version == MODERN else client.older
        answer = await ask(method, 7, **params)
        if "result" in answer:
            said.append((version, method, answer["result"]))
        return answer

    return request


Lists = dict[EntryKind, list[Any]]


async def list_all(request: Callable[..., Awaitable[Any]], version: str) -> Lists:
    """Every list as a client gets it. Each must be valid by the SDK's types, and no field null."""
    found: Lists = {}
    for kind, (method, field, _) in LISTS.items():
        answer = await request(method)
        assert "result" in answer, (version, method, answer)
        validate_server_result(method, version, answer["result"])
        require_strict(answer)
        found[kind] = answer["result"][field]
        assert all(None not in each.values() for each in found[kind]), (version, found[kind])
    return found


def require_strict(answer: Any) -> None:
    """Raise where an answer holds a character or a number that a strict parser of JSON refuses."""
    written_again(answer).encode()


def written_again(answer: Any) -> str:
    """An answer as JSON. Numbers beyond the range of floats, which are JSON, were read as infinite."""
    text = re.sub(
        r"(?<=[:,\[ ])(-?)Infinity(?=[,\]}])", r"\g<1>1e999", json.dumps(answer, ensure_ascii=False)
    )
    json.loads(text, parse_constant=_refuse)
    return text


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def identities(made: Sequence[Generated]) -> dict[EntryKind, list[tuple[Generated, str | None, str]]]:
    """Entries by kind: each with its identity, if it has one, and its position as repairs name it."""
    found: dict[EntryKind, list[tuple[Generated, str | None, str]]] = defaultdict(list)
    for each in made:
        kind: EntryKind = each.kind  # pyright: ignore[reportAssignmentType]
        name = each.value.get(LISTS[kind][2]) if is_object(each.value) else None
        identity = name if isinstance(name, str) and name else None
        found[kind].append((each, identity, f"#{len(found[kind]) + 1}"))
    return found


def plain(value: Any) -> Any:
    """A value without the characters that are never shown to a client."""
    if isinstance(value, str):
        value = re.sub(r"\x1b\[[0-9;]*m|\ufffd", "", value)
        return "".join(letter for letter in value if letter.isprintable() or letter == " ").strip()
    if is_object(value):
        return {plain(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if is_list(value) else value
