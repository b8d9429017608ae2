"""What a text costs a model to read: by its size, or exactly where the tokenizer is at hand."""

import math
import os
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

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
