"""Malformed and legal but rare definitions: the shapes of the protocol, broken in one place each.

`python -m tests.servers.definitions_corpus` writes the corpus, `tests/data/definitions.jsonl`: a case a line.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from fairlead.config.shapes import is_list, is_object

CORPUS = Path(__file__).parent.parent / "data" / "definitions.jsonl"

Case = dict[str, Any]
Path_ = tuple[str | int, ...]

OUTPUT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
FULL: dict[str, dict[str, Any]] = {
    "tool": {
        "name": "",
        "title": "T",
        "description": "D",
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": [],
        },
        "outputSchema": OUTPUT,
        "annotations": {"title": "A", "readOnlyHint": True, "destructiveHint": False, "openWorldHint": True},
        "execution": {"taskSupport": "optional"},
        "icons": [{"src": "https://e.x/i.png", "mimeType": "image/png", "sizes": ["9x9"], "theme": "dark"}],
        "_meta": {"ui": {"a": 1}},
    },
    "resource": {
        "uri": "",
        "name": "N",
        "title": "T",
        "description": "D",
        "mimeType": "text/plain",
        "size": 7,
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"},
        "icons": [{"src": "https://e.x/i.png", "sizes": ["any"]}],
        "_meta": {"ui": {"a": 1}},
    },
    "template": {
        "uriTemplate": "",
        "name": "N",
        "title": "T",
        "description": "D",
        "mimeType": "text/plain",
        "annotations": {"audience": ["assistant"], "priority": 1},
        "icons": [{"src": "https://e.x/i.png"}],
        "_meta": {"ui": {"a": 1}},
    },
    "prompt": {
        "name": "",
        "title": "T",
        "description": "D",
        "arguments": [{"name": "a", "title": "T", "description": "D", "required": False}],
        "icons": [{"src": "https://e.x/i.png"}],
        "_meta": {"ui": {"a": 1}},
    },
}
IDENTITY = {"tool": "name", "resource": "uri", "template": "uriTemplate", "prompt": "name"}
NEEDED = {"tool": ("name", "inputSchema"), "resource": ("uri", "name"), "template": ("uriTemplate", "name")}
BAD: tuple[Any, ...] = (None, 5, -1.5, True, "text", [], {}, [None], [[]], {"a": None}, ["text", 5])

REMOVE = object()


def cases() -> Iterator[Case]:
    """Every case: its kind, the definition, and whether a client must get to see it."""
    for kind, full in FULL.items():
        for number, (definition, path, value) in enumerate([*_broken(kind, full), *_rare(kind)], 1):
            identity = IDENTITY[kind]
            is_kept = path != (identity,)
            if is_kept:
                definition[identity] = _identity(kind, number)
            elif value in (None, REMOVE) or not isinstance(value, str) or not value:
                definition.pop(identity, None) if value is REMOVE else definition.update({identity: value})
            else:
                is_kept = True
                definition[identity] = _identity(kind, number)
            if kind == "tool" and path == ("inputSchema", "type") and value == "text":
                is_kept = False  # a tool whose arguments would be a text
            if kind == "tool" and path == ("inputSchema", "type") and value == ["text", 5]:
                is_kept = True
            yield {"kind": kind, "kept": is_kept, "definition": definition}


def _identity(kind: str, number: int) -> str:
    return {"tool": "t{}", "prompt": "p{}", "resource": "x://r/{}", "template": "x{}://{{a}}"}[kind].format(
        *([number] * 2)
    )


def _broken(kind: str, full: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Path_, Any]]:
    yield deepcopy(full), (), REMOVE
    for path in _paths(full):
        for value in (*BAD, REMOVE):
            definition = {name: deepcopy(full[name]) for name in {*NEEDED.get(kind, ("name",)), str(path[0])}}
            _put(definition, path, deepcopy(value) if value is not REMOVE else REMOVE)
            yield definition, path, value


def _paths(value: object, at: Path_ = ()) -> Iterator[Path_]:
    if at:
        yield at
    if is_object(value):
        for name, item in value.items():
            if at[:1] != ("_meta",):
                yield from _paths(item, (*at, name))
    elif is_list(value):
        for index, item in enumerate(value[:1]):
            yield from _paths(item, (*at, index))


def _put(definition: Any, path: Path_, value: object) -> None:
    *steps, last = path
    for step in steps:
        definition = definition[step]
    if value is REMOVE:
        del definition[last]
    else:
        definition[last] = value


def _rare(kind: str) -> Iterator[tuple[dict[str, Any], Path_, Any]]:
    """Legal in some version or draft, and more than some client can read."""
    base = {name: deepcopy(FULL[kind][name]) for name in NEEDED.get(kind, ("name",))}
    for more in RARE[kind]:
        yield {**deepcopy(base), **deepcopy(more)}, (), REMOVE


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _input(**schema: Any) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", **schema}}


def _output(**schema: Any) -> dict[str, Any]:
    return {"outputSchema": {"type": "object", "properties": {"x": {"type": "string"}}, **schema}}


RARE: dict[str, list[dict[str, Any]]] = {
    "tool": [
        {"inputSchema": {"properties": {"a": {"type": "string"}}}},
        {"inputSchema": {"type": ["object", "null"]}},
        {"inputSchema": {"type": "OBJECT"}},
        {"inputSchema": {"anyOf": [{"type": "object"}, {"type": "object", "required": []}]}},
        _input(properties={"a": True, "b": False}),
        _input(properties={"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "string"}}}),
        _input(properties={"a": {"$ref": "#/definitions/a"}}, definitions={"a": {"type": "string"}}),
        _input(properties={"a": {"type": "string", "default": "x"}}, required=["a"]),
        _input(
            properties={"n": {"type": "integer", "default": 3}}, required=["n"], additionalProperties=False
        ),
        _input(additionalProperties=False),
        _input(additionalProperties={"type": "string"}),
        _input(patternProperties={"^a": {}}),
        _input(properties={"a": {"nullable": True}}),
        _input(properties={"a": {"enum": []}}),
        _input(properties={"a": {"type": "strng"}}),
        _input(properties={"a": {"pattern": "(?P<x>a)"}}),
        _input(properties={"a": {"minimum": 3, "exclusiveMinimum": True}}),
        _input(properties={"a": {"items": [{"type": "string"}]}}),
        _input(properties={"a": {"default": _deep(50)}}),
        _input(properties={"__proto__": {"type": "string"}, "constructor": {}}),
        _input(properties={"a b": {}, "": {}, "ü": {}}),
        _input(**{"$id": "https://e.x/in", "$comment": "c", "x-more": {"a": 1}}),
        _input(**{"$schema": "https://json-schema.org/draft/2020-12/schema"}),
        {"description": "", "title": ""},
        {"description": "ü\u2028\u0000 \U0001f600"},
        {"annotations": {}},
        {"annotations": {"readOnlyHint": True, "more": 1}},
        {"icons": []},
        {"icons": [{"src": "data:image/png;base64,AA==", "sizes": "48x48 96x96"}]},
        {"icons": [{"src": "https://e.x/i", "theme": "blue"}, {"src": "javascript:x"}, 5]},
        {"execution": {}},
        {"execution": {"taskSupport": "required"}},
        {"new_field": {"a": 1}, "inputExamples": [{}]},
        {"_meta": {}},
        {"_meta": {"a/b": 1, "ui": None}},
        _output(**{"$id": "https://e.x/same"}),
        _output(**{"$id": "https://e.x/same"}, description="another"),
        _output(**{"$schema": "https://json-schema.org/draft/2020-12/schema"}),
        _output(**{"$schema": "http://json-schema.org/draft-04/schema#"}, id="https://e.x/4"),
        *(
            _output(**{"$schema": draft})
            for draft in (
                "http://json-schema.org/draft-04/schema#",
                "http://json-schema.org/draft-06/schema#",
                "http://json-schema.org/schema#",
                "https://json-schema.org/draft-07/schema#",
                "https://json-schema.org/draft/2019-09/schema",
                "http://json-schema.org/draft-07/schema",
            )
        ),
        _output(properties={"x": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string"}}),
        _output(**{"$schema": "https://e.x/nobody-knows"}),
        _output(**{"$ref": "#/nothing"}),
        _output(**{"$ref": "https://e.x/remote"}),
        _output(
            properties={"x": {"$ref": "#/$defs/List<int>"}}, **{"$defs": {"List<int>": {"type": "string"}}}
        ),
        _output(properties={"x": {"$ref": "#/$defs/a~1b"}}, **{"$defs": {"a/b": {"type": "string"}}}),
        _output(properties={"x": {"$ref": "#/$defs/a%20b"}}, **{"$defs": {"a b": {"type": "string"}}}),
        _output(properties={"x": {"$ref": "#/$defs/a b"}}, **{"$defs": {"a b": {"type": "string"}}}),
        _output(properties={"x": {"$ref": "#a"}}, **{"$defs": {"a": {"$anchor": "a", "type": "string"}}}),
        _output(properties={"x": {"$ref": "#/definitions/a"}}, definitions={"a": {"type": "string"}}),
        _output(properties={"x": {"$dynamicRef": "#a"}}, **{"$defs": {"a": {"$dynamicAnchor": "a"}}}),
        _output(properties={"self": {"$ref": "#"}, "y": {"$ref": "#/properties/self"}}),
        _output(properties={"x": {"nullable": True}}),
        _output(properties={"x": {"type": "string", "nullable": True}}),
        _output(properties={"x": {"enum": []}}),
        _output(properties={"x": {"type": "str"}}),
        _output(properties={"x": {"type": "strng"}}),
        _output(properties={"x": {"pattern": "(?P<a>.*)"}}),
        _output(properties={"x": {"pattern": "^[\\w\\-.]+$"}}),
        _output(properties={"x": {"pattern": "\\-?y"}}),
        _output(properties={"x": {"pattern": "["}}),
        _output(properties={"x": {"not": {"pattern": "\\_"}}}),
        _output(properties={"x": {"format": "no-such-format"}}),
        _output(properties={"x": {"minimum": 3, "exclusiveMinimum": True}}),
        _output(properties={"x": {"minLength": "1"}}),
        _output(properties={"x": True, "y": False}),
        _output(properties={"x": {"$async": True}}),
        _output(patternProperties={"[": {}}),
        _output(patternProperties={"^y": {"type": "string"}}),
        _output(dependencies={"y": ["x"]}),
        _output(dependentRequired={"y": ["x"]}),
        _output(properties={"x": {}, "text": {}}, unevaluatedProperties=False),
        _output(allOf=[None]),
        _output(anyOf=[]),
        _output(additionalProperties=None),
        _output(title=5, description=None),
        _output(properties={"x": {"items": [{"type": "string"}], "additionalItems": False}}),
        _output(properties={"x": {"prefixItems": [{}], "items": False}}),
        _output(properties={"x": {"default": _deep(50)}}),
        {"outputSchema": {"properties": {"x": {"type": "string"}}}},
    ],
    "resource": [
        {"size": 3.0},
        {"size": 3.5},
        {"size": -1},
        {"size": 2**60},
        {"size": "7"},
        {"annotations": {"audience": ["user", "model"]}},
        {"annotations": {"audience": "user"}},
        {"annotations": {"priority": 2}},
        {"annotations": {"lastModified": "2026-01-02"}},
        {"annotations": {"lastModified": "2026-13-40T00:00:00Z"}},
        {"annotations": {"lastModified": "2026-01-02T03:04:05+02:00"}},
        {"annotations": {"lastModified": "2026-01-02 03:04:05Z"}},
        {"annotations": {"lastModified": "2026-02-30T03:04:05Z"}},
        {"name": "", "title": "T"},
        {"mimeType": ""},
        {"description": "x" * 5000},
        {"text": "inline", "blob": 5},
    ],
    "template": [
        {"annotations": {"audience": []}},
        {"annotations": {"lastModified": "now"}},
        {"name": ""},
        {"size": 4},
    ],
    "prompt": [
        {"arguments": [{"name": "a", "required": "true"}]},
        {"arguments": [{"name": "a", "required": 1}]},
        {"arguments": [{"name": "a"}, {"name": "a"}]},
        {"arguments": [{"name": "ä b"}]},
        {"arguments": ["a", "b"]},
        {"arguments": {"a": {"type": "string"}}},
        {"arguments": [{"name": "a", "schema": {"type": "string"}, "_meta": 1}]},
        {"description": ""},
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
