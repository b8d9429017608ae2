"""A tool in one line, as a model reads it best: `srv.tool(a: str, b?: int = 5, c: "x"|"y") — first sentence`.

All of it is a server's words, so it is rendered as data: nothing steers a terminal, nothing hides, nothing
takes a second line, and a name that could be taken for something else stands in quotes.

What a text costs a model to read: by its size, or exactly where the tokenizer is at hand.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.keywords import resolve
from fairlead.catalog.tools import ToolEntry
from fairlead.config.untyped import as_list, as_object, is_object

MOST_PARAMETERS = 20
MOST_INNER_PARAMETERS = 6
MOST_CHOICES = 8
MOST_DEPTH = 3
MOST_CHARACTERS = 1_000
"""Of all parameters together."""
MOST_NAME_CHARACTERS = 200
MOST_VALUE_CHARACTERS = 40
MOST_SENTENCE_CHARACTERS = 160

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_PLAIN_NAME = re.compile(r"[\w.$/-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s|(?<=[。！？])|\n\s*\n")  # noqa: RUF001 - full-width on purpose
_ABBREVIATION = re.compile(r"(?:\b[A-Za-z]|\b(?:etc|vs|incl|approx|no|e\.g|i\.e))\.$", re.IGNORECASE)


def signature(entry: ToolEntry, name: str | None = None) -> str:
    """The line of a tool, which goes by `server.tool` unless it is given a name."""
    schema = as_object(entry.read().get("inputSchema"))
    name = name or f"{entry.key.server_id}.{entry.key.tool}"
    return render_signature(name, schema, entry.description or entry.title or "")


def render_signature(name: str, schema: Mapping[str, Any], description: str) -> str:
    """The line of a tool that goes by this name."""
    root = dict(schema)
    parameters = _cut(_parameters(root, root, MOST_DEPTH), MOST_CHARACTERS)
    line = f"{_name(name)}({parameters})"
    sentence = first_sentence(description)
    return f"{line} — {sentence}" if sentence else line


def first_sentence(text: str) -> str:
    """The first sentence of a text on one line, cut at a word where it is too long."""
    text = text.strip()
    end = next((found.start() for found in _SENTENCE_END.finditer(text) if _ends(text, found)), len(text))
    return _cut(_clean(text[:end]), MOST_SENTENCE_CHARACTERS)


def _ends(text: str, found: re.Match[str]) -> bool:
    return not _ABBREVIATION.search(text, max(0, found.start() - 8), found.start())


def _parameters(schema: dict[str, Any], root: dict[str, Any], depth: int) -> str:
    properties = as_object(schema.get("properties"))
    required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
    # Those that must be given come first, so that a cut costs none of them if it can.
    ordered = sorted(properties, key=lambda name: name not in required)
    most = MOST_PARAMETERS if depth == MOST_DEPTH else MOST_INNER_PARAMETERS
    shown = [
        _parameter(name, properties[name], root, depth, required=name in required) for name in ordered[:most]
    ]
    return ", ".join([*shown, "…"] if len(ordered) > most else shown)


def _parameter(name: str, schema: object, root: dict[str, Any], depth: int, *, required: bool) -> str:
    kind = _type(schema, root, depth)
    # What may be left out need not be told apart from what may be null.
    text = f"{_name(name)}: {kind}" if required else f"{_name(name)}?: {kind.removesuffix('|null')}"
    default = schema.get("default") if is_object(schema) else None
    return text if default is None else f"{text} = {_value(default)}"


def _type(schema: object, root: dict[str, Any], depth: int) -> str:
    """The type in the fewest words. `any` where nothing is said, or too much to show."""
    if not is_object(schema) or depth <= 0:
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        return _type(resolve(root, reference), root, depth - 1)
    if "const" in schema:
        return _value(schema["const"])
    if choices := as_list(schema.get("enum")):
        return _union(map(_value, choices))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if options := as_list(schema.get(keyword)):
            return _union(_type(option, root, depth) for option in options[: MOST_CHOICES + 1])
    kinds = as_list(schema.get("type")) or [schema.get("type")]
    return _union(_kind(str(kind), schema, root, depth) for kind in kinds[: MOST_CHOICES + 1])


def _kind(kind: str, schema: dict[str, Any], root: dict[str, Any], depth: int) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "array":
        inner = _type(schema.get("items"), root, depth - 1)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object" or "properties" in schema:
        inner = _parameters(schema, root, depth - 1) if depth > 1 else ""
        return f"{{{inner}}}" if inner else "object"
    return "any"


def _union(types: Iterable[str]) -> str:
    different = list(dict.fromkeys(types))
    return "|".join([*different[:MOST_CHOICES], "…"] if len(different) > MOST_CHOICES else different)


def _name(name: str) -> str:
    shown = _cut(_clean(name), MOST_NAME_CHARACTERS)
    return shown if _PLAIN_NAME.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)


def _value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _cut(_clean(text), MOST_VALUE_CHARACTERS)


def _clean(text: str) -> str:
    """A text without line breaks, and without what is invisible or steers a terminal."""
    return " ".join(gate.content(text).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


BYTES_PER_TOKEN = 4.4
"""Of tool definitions as JSON, over many real catalogs; prose and code are near enough."""


def estimate(text: str | bytes) -> int:
    """About how many tokens a text is."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
    return math.ceil(size / BYTES_PER_TOKEN)


@lru_cache(maxsize=1)
def exact() -> Callable[[str], int] | None:
    """The real count, where `tiktoken` is installed and its vocabulary is at hand: nothing is fetched."""
    kept = os.environ.get("TIKTOKEN_CACHE_DIR")
    if not kept or not os.path.isdir(kept) or not os.listdir(kept):
        return None
    try:
        tiktoken: Any = import_module("tiktoken")
    except ImportError:
        return None
    encoding = tiktoken.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text, disallowed_special=()))
