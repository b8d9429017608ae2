"""Signature of a tool, one line for models: `srv.tool(a: str, b?: int = 5, c: "x"|"y") — first sentence`.

All of it is untrusted text, rendered as data: no control or hidden characters, no second line, and an
ambiguous name in quotes. Also counts tokens of a text: estimated by its size, or exactly where the tokenizer
is installed.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
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
"""Longest text of all parameters together."""
FEWEST_CHARACTERS = 40
"""Of parameters, and of a sentence, that a signature has however short it is to be."""
MOST_NAME_CHARACTERS = 200
MOST_VALUE_CHARACTERS = 40
MOST_SENTENCE_CHARACTERS = 160

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_PLAIN_NAME = re.compile(r"[\w.$/-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s|(?<=[。！？])|\n\s*\n")  # noqa: RUF001 - full-width on purpose
_ABBREVIATION = re.compile(r"(?:\b[A-Za-z]|\b(?:etc|vs|incl|approx|no|e\.g|i\.e))\.$", re.IGNORECASE)


def signature(
    entry: ToolEntry, name: str | None = None, *, required_only: bool = False, most_tokens: int | None = None
) -> str:
    """Signature of a tool, under `server.tool` or a given name; with `required_only`, … for the rest.

    With `most_tokens` it is cut to about that many: to names of parameters, and … for the rest.
    """
    schema = as_object(entry.read().get("inputSchema"))
    name = name or entry.key.qualified
    text = entry.description or entry.title or ""
    return render_signature(name, schema, text, required_only=required_only, most_tokens=most_tokens)


def render_signature(
    name: str,
    schema: Mapping[str, Any],
    description: str,
    *,
    required_only: bool = False,
    most_tokens: int | None = None,
) -> str:
    """Signature of a tool with this name, schema and description."""
    root = dict(schema)
    parameters = _parameters(root, root, MOST_DEPTH, required_only=required_only)
    parameters = _cut(parameters, MOST_CHARACTERS)
    sentence = first_sentence(description)
    line = _join(name, parameters, sentence)
    if most_tokens is not None and estimate(line) > most_tokens:
        room = int(most_tokens * BYTES_PER_TOKEN * len(line) / len(line.encode()))
        sentence = _cut(sentence, max(room // 3, FEWEST_CHARACTERS))
        rest = room - len(_join(name, "", sentence))
        names = _parameter_names(root, max(rest, FEWEST_CHARACTERS), required_only=required_only)
        line = _join(name, names, sentence)
    return line


def _join(name: str, parameters: str, sentence: str) -> str:
    line = f"{_name(name)}({parameters})"
    return f"{line} — {sentence}" if sentence else line


def _parameter_names(schema: dict[str, Any], most: int, *, required_only: bool) -> str:
    """Names of parameters alone, as many as fit."""
    properties = as_object(schema.get("properties"))
    required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
    wanted = [_name(name) for name in sorted(properties, key=lambda name: name not in required)]
    shown = wanted[: len(required & properties.keys())] if required_only else wanted
    while shown and len(", ".join(shown)) > most:
        shown.pop()
    return ", ".join([*shown, "…"] if len(shown) < len(wanted) else shown)


def first_sentence(text: str) -> str:
    """First sentence of a text on one line, cut at a word where it is too long."""
    text = text.strip()
    end = next((found.start() for found in _SENTENCE_END.finditer(text) if _ends(text, found)), len(text))
    return _cut(_clean(text[:end]), MOST_SENTENCE_CHARACTERS)


def _ends(text: str, found: re.Match[str]) -> bool:
    return not _ABBREVIATION.search(text, max(0, found.start() - 8), found.start())


def _parameters(
    schema: dict[str, Any], root: dict[str, Any], depth: int, *, required_only: bool = False
) -> str:
    properties = as_object(schema.get("properties"))
    required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
    # Required parameters come first, so that a cut costs none of them if it can.
    ordered = sorted(properties, key=lambda name: name not in required)
    most = MOST_PARAMETERS if depth == MOST_DEPTH else MOST_INNER_PARAMETERS
    if required_only:
        most = min(most, len(required & properties.keys()))
    shown = [
        _parameter(
            name, properties[name], root, depth, required=name in required, required_only=required_only
        )
        for name in ordered[:most]
    ]
    return ", ".join([*shown, "…"] if len(ordered) > most else shown)


def _parameter(
    name: str, schema: object, root: dict[str, Any], depth: int, *, required: bool, required_only: bool
) -> str:
    kind = _type(schema, root, depth, required_only=required_only)
    # Optional and nullable are not distinguished.
    text = f"{_name(name)}: {kind}" if required else f"{_name(name)}?: {kind.removesuffix('|null')}"
    default = schema.get("default") if is_object(schema) else None
    return text if default is None else f"{text} = {_value(default)}"


def _type(schema: object, root: dict[str, Any], depth: int, *, required_only: bool) -> str:
    """Shortest name of a type; `any` where it is not given, or too complex."""
    if not is_object(schema) or depth <= 0:
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        return _type(resolve(root, reference), root, depth - 1, required_only=required_only)
    if "const" in schema:
        return _value(schema["const"])
    if choices := as_list(schema.get("enum")):
        return _union(map(_value, choices))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if options := as_list(schema.get(keyword)):
            return _union(
                _type(option, root, depth, required_only=required_only)
                for option in options[: MOST_CHOICES + 1]
            )
    kinds = as_list(schema.get("type")) or [schema.get("type")]
    return _union(
        _kind(str(kind), schema, root, depth, required_only=required_only)
        for kind in kinds[: MOST_CHOICES + 1]
    )


def _kind(kind: str, schema: dict[str, Any], root: dict[str, Any], depth: int, *, required_only: bool) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "array":
        inner = _type(schema.get("items"), root, depth - 1, required_only=required_only)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object" or "properties" in schema:
        inner = _parameters(schema, root, depth - 1, required_only=required_only) if depth > 1 else ""
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
    """Text without line breaks, hidden and control characters."""
    return " ".join(gate.content(text).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


VOCABULARY = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""The file of o200k's vocabulary in a cache of `tiktoken`: the SHA-1 of its URL."""
VOCABULARY_DIGEST = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
BYTES_PER_TOKEN = 4.4
"""Bytes per token of tool definitions as JSON, over many real catalogs; close enough for prose and code."""


def estimate(text: str | bytes) -> int:
    """Approximate number of tokens of a text."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
    return math.ceil(size / BYTES_PER_TOKEN)


@lru_cache(maxsize=1)
def exact() -> Callable[[str], int] | None:
    """Exact token counter, where `tiktoken` is installed with its vocabulary: nothing is downloaded."""
    kept = os.environ.get("TIKTOKEN_CACHE_DIR")
    try:
        vocabulary = Path(kept, VOCABULARY).read_bytes() if kept else b""
    except OSError:
        return None
    # Another vocabulary, or a broken one: `tiktoken` would replace it from the network.
    if hashlib.sha256(vocabulary).hexdigest() != VOCABULARY_DIGEST:
        return None
    try:
        tiktoken: Any = import_module("tiktoken")
    except ImportError:
        return None
    encoding = tiktoken.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text, disallowed_special=()))
