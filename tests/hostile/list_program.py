"""A hostile MCP server over stdio whose lists are within every limit and as costly as that allows.

Run as `python -I -S list_program.py SHAPE`. Shapes are in `SHAPES`, by name: the list, and the entries of its
one page, in JSON. Standard library only, so that it starts quickly.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

Message = dict[str, Any]
Entries = Callable[[], Iterable[bytes]]

PAGE_BYTES = 7_500_000
ENTRY_BYTES = 950_000
ECHO = b'{"name":"echo","inputSchema":{"type":"object"}}'
FIELDS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def filled(begin: bytes, item: bytes, end: bytes, size: int = ENTRY_BYTES) -> bytes:
    """One entry of a size, made of many items; `%d` in an item is its number."""
    room, length = size - len(begin) - len(end), 0
    items: list[bytes] = []
    while length < room:
        items.append(item.replace(b"%d", b"%d" % len(items)))
        length += len(items[-1]) + 1
    return begin + b",".join(items) + end


def copies(entry: Callable[[int], bytes]) -> Entries:
    """As many entries as fit in a page; `entry` makes one, given its number."""

    def make() -> Iterable[bytes]:
        first = entry(0)
        return [first, *(entry(number) for number in range(1, min(PAGE_BYTES // (len(first) + 1), 9_900)))]

    return make


def tool(schema: bytes, number: int, more: bytes = b"") -> bytes:
    return b'{"name":"t%d","inputSchema":%b%b}' % (number, schema, more)


def schemas(begin: bytes, item: bytes, end: bytes, count: int = 0, size: int = ENTRY_BYTES) -> Entries:
    """Tools with large schemas; so many, or as many as fit."""

    def make() -> Iterable[bytes]:
        schema = filled(begin, item, end, size)
        return [tool(schema, number) for number in range(count or PAGE_BYTES // size)]

    return make


def fields(begin: bytes, item: bytes, end: bytes, count: int = 7) -> Entries:
    """Tools with one large field besides their schema."""

    def make() -> Iterable[bytes]:
        more = filled(begin, item, end)
        return [tool(b'{"type":"object"}', number, more) for number in range(count)]

    return make


def texts(words: bytes) -> Entries:
    text = words * (ENTRY_BYTES // len(words))
    return copies(lambda number: tool(b'{"type":"object"}', number, b',"description":"%b"' % text))


def named(name: Callable[[int], str], count: int = 9_900) -> Entries:
    return lambda: [
        json.dumps({"name": name(number), "inputSchema": {"type": "object"}}, ensure_ascii=False).encode()
        for number in range(count)
    ]


def in_bits(number: int, zero: str, one: str) -> str:
    return "".join(one if number >> bit & 1 else zero for bit in range(14))


def patterns(unit: str) -> Entries:
    """Tools whose output schemas have patterns as long as they may be, made of one unit."""

    def make() -> Iterable[bytes]:
        for number in range(10):
            inner = {
                f"p{place}": {"pattern": f"{number}{place}" + unit * (990 // len(unit))}
                for place in range(20)
            }
            more = json.dumps({"type": "object", "properties": inner}).encode()
            yield tool(b'{"type":"object"}', number, b',"outputSchema":' + more)

    return make


OBJECT = b'{"type":"object","properties":{'
SHAPES: dict[str, tuple[str, Entries]] = {
    # Schemas.
    "properties": ("tools/list", schemas(OBJECT, b'"p%d":{"type":"string"}', b"}}")),
    "one-tool": ("tools/list", schemas(OBJECT, b'"p%d":{"type":"string"}', b"}}", count=1)),
    "half-a-megabyte": (
        "tools/list",
        schemas(OBJECT, b'"p%d":{"type":"string"}', b"}}", count=1, size=480_000),
    ),
    "empty-properties": ("tools/list", schemas(OBJECT, b'"p%d":{}', b"}}", count=5)),
    "described-properties": (
        "tools/list",
        schemas(OBJECT, b'"p%d":{"type":"string","description":"the number %d of many words"}', b"}}"),
    ),
    "enum": ("tools/list", schemas(b'{"type":"object","enum":[', b'"v%d"', b"]}", count=5)),
    "numbers": ("tools/list", schemas(b'{"type":"object","enum":[', b"1", b"]}", count=1)),
    "lists": ("tools/list", schemas(b'{"type":"object","default":[', b"[]", b"]}", count=1)),
    "objects": ("tools/list", schemas(b'{"type":"object","examples":[', b"{}", b"]}", count=1)),
    "any-of": ("tools/list", schemas(b'{"type":"object","anyOf":[', b'{"type":"object"}', b"]}")),
    "required": ("tools/list", schemas(b'{"type":"object","required":[', b'"p%d"', b"]}", count=5)),
    "patterns": (
        "tools/list",
        schemas(OBJECT, b'"p%d":{"type":"string","pattern":"^(a|b)*c{1,%d}$"}', b"}}"),
    ),
    "references": (
        "tools/list",
        schemas(
            b'{"type":"object","$defs":{"d":{"type":"string"}},"properties":{',
            b'"p%d":{"$ref":"#/$defs/d"}',
            b"}}",
        ),
    ),
    "chained-references": (
        "tools/list",
        schemas(b'{"type":"object","$defs":{', b'"d%d":{"$ref":"#/$defs/d%d0"}', b"}}"),
    ),
    "depth": (
        "tools/list",
        schemas(OBJECT, b'"p%d":' + b'{"items":' * 80 + b"{}" + b"}" * 80, b"}}"),
    ),
    "defaults": ("tools/list", schemas(OBJECT, b'"p%d":{"default":"text %d"}', b"}}")),
    "large-numbers": ("tools/list", schemas(OBJECT, b'"p%d":{"maximum":1e300}', b"}}")),
    "long-numbers": ("tools/list", schemas(OBJECT, b'"p%d":{"maximum":' + b"1" * 305 + b"}", b"}}")),
    "output-schemas": ("tools/list", fields(b',"outputSchema":' + OBJECT, b'"p%d":{"type":"string"}', b"}}")),
    "many-output-schemas": (
        "tools/list",
        copies(
            lambda n: tool(
                b'{"type":"object"}',
                n,
                b',"outputSchema":{"type":"object","properties":{"a%d":{"type":"string"}}}' % n,
            )
        ),
    ),
    "wide-classes": ("tools/list", patterns("[\u0100-\uffff]")),
    "folded-classes": ("tools/list", patterns("(?i:[\u0100-\U0010ffff])")),
    # Other fields.
    "icons": ("tools/list", fields(b',"icons":[', b'{"src":"https://e.com/%d"}', b"]")),
    "meta": ("tools/list", fields(b',"_meta":{', b'"k%d":1', b"}")),
    "known-meta": ("tools/list", fields(b',"_meta":{"ui":[', b"[]", b"]}", count=1)),
    "annotations": ("tools/list", fields(b',"annotations":{', b'"k%d":true', b"}", count=5)),
    "unknown-fields": ("tools/list", fields(b',"x":[', b'{"a":1}', b"]")),
    "many-fields": ("tools/list", fields(b",", b'"x%d":1', b"", count=5)),
    "bad-titles": ("tools/list", fields(b',"title":[', b'"a"', b"]")),
    # Texts.
    "plain-text": ("tools/list", texts(b"word ")),
    "escaped-hidden-text": ("tools/list", texts(b"\\u200b")),
    "hidden-text": ("tools/list", texts("\u200b".encode())),
    "tag-text": ("tools/list", texts("\U000e0041".encode())),
    "escaped-newlines": ("tools/list", texts(b"\\n")),
    "surrogates": ("tools/list", texts(b"\\ud800")),
    "invalid-utf8": ("tools/list", texts(b"\xff")),
    "combining-text": ("tools/list", texts("a\u0301".encode())),
    "secret-like-text": ("tools/list", texts(b"sk-0123456789abcdef0123456789abcdef ")),
    # Names.
    "long-names": ("tools/list", named(lambda number: f"{number}" + "n" * 700)),
    "foreign-names": ("tools/list", named(lambda number: f"{number}" + "\u4e2d" * 200)),
    "look-alike-names": ("tools/list", named(lambda number: in_bits(number, "a", "\u0430"))),
    "few-look-alike-names": ("tools/list", named(lambda number: in_bits(number, "a", "\u0430"), count=490)),
    "names-in-any-case": ("tools/list", named(lambda number: in_bits(number, "a", "A"))),
    "hidden-names": ("tools/list", named(lambda number: in_bits(number, "\u200b", "\u200c") + "a")),
    "spaced-names": ("tools/list", named(lambda number: f"a {number}\n b")),
    # Other lists.
    "resources": (
        "resources/list",
        copies(lambda n: b'{"name":"r%d","uri":"x://y/%d","description":"%b"}' % (n, n, b"d" * 600)),
    ),
    "escaped-uris": (
        "resources/list",
        copies(lambda n: b'{"name":"r","uri":"x://%d%b"}' % (n, b"%41" * 220)),
    ),
    "large-resources": (
        "resources/list",
        copies(lambda n: filled(b'{"name":"r","uri":"x:%d","annotations":{' % n, b'"k%d":1', b"}}")),
    ),
    "templates": (
        "resources/templates/list",
        copies(lambda n: b'{"name":"t","uriTemplate":"x://%d/%b"}' % (n, b"{a}/" * 150)),
    ),
    "large-prompts": (
        "prompts/list",
        copies(
            lambda n: filled(b'{"name":"p%d","arguments":[' % n, b'{"name":"a%d","description":"d"}', b"]}")
        ),
    ),
    "many-prompts": (
        "prompts/list",
        copies(lambda n: b'{"name":"p%d","arguments":[{"name":"a"}],"description":"%b"}' % (n, b"d" * 600)),
    ),
    "malformed-prompts": (
        "prompts/list",
        copies(lambda n: b'{"name":"p%d","arguments":[1,2,3,{"name":5}],"title":[],"icons":{}}' % n),
    ),
}


def main(shape: str) -> None:
    method, entries = SHAPES[shape]
    for received in sys.stdin.buffer:
        request: Message = json.loads(received)
        if "id" not in request or "method" not in request:
            continue
        asked = request["method"]
        if asked == "initialize":
            answer = (
                b'"result":'
                + json.dumps(
                    {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                        "serverInfo": {"name": "lists", "version": "1"},
                    }
                ).encode()
            )
        elif asked in FIELDS:
            listed = [ECHO] if asked == "tools/list" else []
            listed += entries() if asked == method else []
            answer = b'"result":{"%b":[%b]}' % (FIELDS[asked].encode(), b",".join(listed))
        elif asked == "tools/call":
            answer = b'"result":{"content":[{"type":"text","text":"done"}]}'
        else:
            answer = b'"error":{"code":-32601,"message":"no such method"}'
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (request["id"], answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
