"""Malformed and legal but rare results of tools, prompts, resources and completions: a place broken in each.

`python -m tests.servers.results_corpus` writes the corpus, `tests/data/results.jsonl`: a case a line. `mark`
says whether the text `marker`, which is in a sound part of most answers, must reach the client.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from fairlead.config.shapes import is_list, is_object

CORPUS = Path(__file__).parent.parent / "data" / "results.jsonl"

Case = dict[str, Any]
Steps = tuple[str | int, ...]

PNG = "iVBORw0KGgo="
HINTS: dict[str, Any] = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"}
MARKER = {"type": "text", "text": "marker"}
BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "words", "annotations": HINTS, "_meta": {"a": 1}},
    "image": {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": HINTS},
    "audio": {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav", "_meta": {}},
    "resource": {
        "type": "resource",
        "resource": {"uri": "x://r", "mimeType": "text/plain", "text": "words", "_meta": {}},
        "annotations": HINTS,
    },
    "blob": {"type": "resource", "resource": {"uri": "x://r", "blob": PNG}},
    "link": {
        "type": "resource_link",
        "uri": "x://r",
        "name": "N",
        "title": "T",
        "description": "D",
        "mimeType": "text/plain",
        "size": 7,
        "icons": [{"src": "https://e.x/i.png", "sizes": ["any"]}],
        "annotations": {"audience": ["assistant"], "priority": 1},
        "_meta": {},
    },
}
PARTS: dict[str, dict[str, Any]] = {
    "text": {"uri": "x://r", "mimeType": "text/plain", "text": "words", "_meta": {"a": 1}},
    "blob": {"uri": "x://r", "mimeType": "image/png", "blob": PNG, "_meta": {}},
}
BAD: tuple[Any, ...] = (None, 5, -1.5, True, "text", "", [], {}, [None], [[]], {"a": None}, ["text", 5])
REMOVE = object()


WHOLE: dict[str, dict[str, Any]] = {
    "tool": {"content": [MARKER], "structuredContent": {"a": 1}, "isError": False, "_meta": {}},
    "prompt": {"messages": [{"role": "user", "content": MARKER}], "description": "D", "_meta": {}},
    "resource": {"contents": [{"uri": "x://r", "text": "marker"}], "_meta": {}},
    "completion": {
        "completion": {"values": ["marker", "more"], "total": 2, "hasMore": False},
        "_meta": {},
    },
}


def cases() -> Iterator[Case]:
    """Every case."""
    for name, block in BLOCKS.items():
        for broken in _broken(block):
            yield _case("tool", {"content": [broken, MARKER]}, f"block {name}")
            message = {"role": "assistant", "content": broken}
            yield _case("prompt", {"messages": [message, _said(MARKER)]}, f"block {name}")
    for part in PARTS.values():
        for broken in _broken(part):
            yield _case("resource", {"contents": [broken, {"uri": "x://m", "text": "marker"}]}, "part")
    for kind, whole in WHOLE.items():
        for broken in _broken(whole):
            yield _case(kind, broken, "result")
    for kind, results in RARE.items():
        for result in results:
            yield _case(kind, result, "rare")


def _said(block: Any) -> dict[str, Any]:
    return {"role": "user", "content": block}


def _case(kind: str, result: Any, about: str) -> Case:
    return {"kind": kind, "about": about, "result": result, "mark": "marker" in json.dumps(result)}


def _broken(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield deepcopy(whole)
    for path in _paths(whole):
        for value in (*BAD, REMOVE):
            copy: Any = deepcopy(whole)
            holder = copy
            for step in path[:-1]:
                holder = holder[step]
            if value is REMOVE:
                del holder[path[-1]]
            else:
                holder[path[-1]] = deepcopy(value)
            yield copy


def _paths(value: object, at: Steps = ()) -> Iterator[Steps]:
    if at:
        yield at
    if is_object(value) and at[-1:] != ("_meta",):
        for name, item in value.items():
            yield from _paths(item, (*at, name))
    elif is_list(value):
        for index, item in enumerate(value[:1]):
            yield from _paths(item, (*at, index))


def _blocks(*blocks: Any) -> dict[str, Any]:
    return {"content": [*blocks, MARKER]}


def _messages(*messages: Any) -> dict[str, Any]:
    return {"messages": [*messages, _said(MARKER)]}


def _parts(*parts: Any) -> dict[str, Any]:
    return {"contents": [*parts, {"uri": "x://m", "text": "marker"}]}


_ODD_BLOCKS: list[Any] = [
    "words",
    7,
    [MARKER, [MARKER]],
    {"text": "no type"},
    {"type": "Text", "text": "capital"},
    {"type": "TEXT", "text": "capitals"},
    {"type": "text", "text": ["a", "b"]},
    {"type": "text", "text": {"a": 1}},
    {"type": "text", "value": "elsewhere"},
    {"type": "text", "text": "x", "annotations": None, "_meta": None},
    {"type": "text", "text": "x", "annotations": {"priority": 2}},
    {"type": "text", "text": "x", "annotations": {"priority": "high"}},
    {"type": "text", "text": "x", "annotations": {"audience": "user"}},
    {"type": "text", "text": "x", "annotations": {"audience": ["user", "model"]}},
    {"type": "text", "text": "x", "annotations": {"lastModified": "yesterday"}},
    {"type": "text", "text": "x", "annotations": {"more": 1}, "more": None},
    {"type": "json", "json": {"a": 1}},
    {"type": "html", "html": "<p>"},
    {"type": "image_url", "image_url": {"url": "https://e.x/i.png"}},
    {"type": "tool_use", "id": "1", "name": "n", "input": {}},
    {"type": "tool_result", "toolUseId": "1", "content": []},
    {"type": "image", "data": PNG},
    {"type": "image", "data": PNG, "mimeType": None},
    {"type": "image", "data": PNG, "mime_type": "image/png"},
    {"type": "image", "data": f"data:image/png;base64,{PNG}"},
    {"type": "image", "data": "iVBORw0\nKGgo=\n", "mimeType": "image/png"},
    {"type": "image", "data": "iVBORw0KGgo", "mimeType": "image/png"},
    {"type": "image", "data": "_-8", "mimeType": "image/png"},
    {"type": "image", "data": "no base64!", "mimeType": "image/png"},
    {"type": "image", "data": "A", "mimeType": "image/png"},
    {"type": "image", "data": "====", "mimeType": "image/png"},
    {"type": "image", "data": "QQ=Q", "mimeType": "image/png"},
    {"type": "image", "data": "ä", "mimeType": "image/png"},
    {"type": "image", "data": {"type": "Buffer", "data": [137, 80]}, "mimeType": "image/png"},
    {"type": "image", "url": "https://e.x/i.png", "mimeType": "image/png"},
    {"data": PNG, "mimeType": "image/png"},
    {"data": "UklGRg==", "mimeType": "audio/wav"},
    {"type": "audio", "data": "UklGRg", "mimeType": ""},
    {"type": "resource", "uri": "x://r", "text": "flat"},
    {"type": "resource", "resource": {"text": "no uri"}},
    {"type": "resource", "resource": {"uri": "x://r"}},
    {"type": "resource", "resource": {"uri": "x://r", "text": None, "blob": None}},
    {"type": "resource", "resource": {"uri": "x://r", "text": "a", "blob": PNG}},
    {"type": "resource", "resource": {"uri": "a b.txt", "text": "a"}},
    {"type": "resource", "resource": {"uri": "x://a b", "text": "a"}},
    {"type": "resource", "resource": {"uri": "x://r", "text": 5}},
    {"type": "resource", "resource": {"uri": "x://r", "blob": "no base64!"}},
    {"type": "resource", "resource": [{"uri": "x://r", "text": "a"}]},
    {"type": "embedded_resource", "resource": {"uri": "x://r", "text": "a"}},
    {"uri": "x://r", "text": "bare"},
    {"uri": "x://r", "name": "bare link"},
    {"type": "resource_link", "uri": "x://r"},
    {"type": "resource_link", "uri": "notes.txt", "name": "N"},
    {"type": "resource_link", "uri": "x://a b", "name": "N"},
    {"type": "resource_link", "name": "N"},
    {"type": "resource_link", "uri": "x://r", "name": "N", "size": "7", "icons": None},
    {"type": "resource-link", "uri": "x://r", "name": "N"},
]
ODD_META: list[dict[str, Any]] = [
    {"progressToken": None},
    {"progressToken": [1], "a": 1},
    {"io.modelcontextprotocol/related-task": None},
    {"io.modelcontextprotocol/related-task": {"taskId": 5}},
    {"io.modelcontextprotocol/serverInfo": None},
    {"io.modelcontextprotocol/serverInfo": {"name": 5}},
    {"io.modelcontextprotocol/serverInfo": "text"},
    {"": None, "a/b": [None], "fairlead/repaired": None},
]
RARE: dict[str, list[Any]] = {
    "tool": [
        *(_blocks(block) for block in _ODD_BLOCKS),
        {},
        {"content": None},
        {"content": "marker"},
        {"content": MARKER},
        {"content": {"0": MARKER}},
        {"content": [], "isError": "true"},
        {"content": [MARKER], "isError": "true"},
        {"content": [MARKER], "isError": None, "structuredContent": None, "_meta": None},
        {"content": [MARKER], "structuredContent": [1]},
        {"content": [MARKER], "structuredContent": "x"},
        {"content": [], "structuredContent": {"a": "marker"}},
        {"structuredContent": {"a": "marker"}},
        {"structuredContent": ["marker"]},
        {"toolResult": "marker"},
        {"toolResult": {"a": "marker"}},
        {"text": "x"},
        {"content": [MARKER], "resultType": 5},
        {"content": [MARKER], "nextCursor": None, "more": {"a": None}},
        {"content": [MARKER], "_meta": {"progressToken": None, "fairlead/untrusted": 5}},
        *({"content": [MARKER], "_meta": meta} for meta in ODD_META),
    ],
    "prompt": [
        *(_messages(_said(block)) for block in _ODD_BLOCKS),
        {},
        {"messages": None},
        {"messages": "marker"},
        {"messages": ["marker", MARKER]},
        {"messages": _said(MARKER)},
        {"messages": [{"role": "user", "content": [MARKER, BLOCKS["image"]]}]},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"content": MARKER}]},
        {"messages": [{"role": "system", "content": MARKER}]},
        {"messages": [{"role": "Assistant", "content": "marker"}]},
        {"messages": [{"role": "user", "text": "marker"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": MARKER, "name": None, "_meta": None}]},
        {"content": [MARKER]},
        {"content": "marker"},
        {"text": "marker"},
        {"messages": [_said(MARKER)], "description": None, "title": None, "_meta": None},
        {"messages": [_said(MARKER)], "description": 5},
        *({"messages": [_said(MARKER)], "_meta": meta} for meta in ODD_META),
    ],
    "resource": [
        _parts("words"),
        _parts(7),
        _parts(None),
        _parts({"text": "no uri"}),
        _parts({"uri": "notes.txt", "text": "a"}),
        _parts({"uri": "/etc/notes", "text": "a"}),
        _parts({"uri": "x://a b", "text": "a"}),
        _parts({"uri": "x://r", "text": "a", "blob": PNG}),
        _parts({"uri": "x://r", "text": "", "blob": None}),
        _parts({"uri": "x://r", "text": None, "blob": PNG}),
        _parts({"uri": "x://r"}),
        _parts({"uri": "x://r", "text": {"a": 1}}),
        _parts({"uri": "x://r", "blob": "iVBORw0\r\nKGgo="}),
        _parts({"uri": "x://r", "blob": "iVBORw0KGgo"}),
        _parts({"uri": "x://r", "blob": "no base64!"}),
        _parts({"uri": "x://r", "blob": [1, 2, 3]}),
        _parts({"uri": "x://r", "blob": {"type": "Buffer", "data": [1, 2]}}),
        _parts({"uri": "x://r", "blob": f"data:image/png;base64,{PNG}"}),
        _parts({"uri": "x://r", "mimeType": None, "_meta": None, "text": "a", "name": None}),
        _parts(BLOCKS["text"], BLOCKS["image"], BLOCKS["resource"], BLOCKS["blob"]),
        {},
        {"contents": None},
        {"contents": "marker"},
        {"contents": {"uri": "x://r", "text": "marker"}},
        {"content": [MARKER]},
        {"text": "marker", "uri": "x://r"},
        {"resource": {"uri": "x://r", "text": "marker"}},
        {"contents": [{"uri": "x://r", "text": "marker"}], "ttlMs": -1, "cacheScope": "none", "_meta": None},
        {"contents": [{"uri": "x://r", "text": "marker"}], "ttlMs": None, "resultType": "task"},
        *({"contents": [{"uri": "x://r", "text": "marker"}], "_meta": meta} for meta in ODD_META),
    ],
    "completion": [
        {},
        {"completion": None},
        {"completion": ["marker"]},
        {"values": ["marker"]},
        {"completion": {"values": ["marker", 5, 1.5, None, {"value": "v", "label": "l"}, ["x"]]}},
        {"completion": {"values": "marker"}},
        {"completion": {"values": ["marker"], "total": None, "hasMore": None}},
        {"completion": {"values": ["marker"], "total": "3", "hasMore": "yes"}},
        {"completion": {"values": ["marker"], "total": 1.0}},
        {"completion": {"values": ["marker"], "total": -1}},
        {"completion": {"values": ["marker", *map(str, range(150))], "total": 151}},
        {"completion": {"values": ["marker"]}, "_meta": None},
    ],
}


def read_corpus() -> list[Case]:
    """The cases as they are kept."""
    return [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Write the corpus."""
    text = "".join(f"{json.dumps(case, separators=(',', ':'))}\n" for case in cases())
    CORPUS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
