"""Converters of all model providers by name, to check tools against several of them."""

from collections.abc import Callable
from functools import partial

from fairlead.adapters.anthropic import to_anthropic
from fairlead.adapters.definition import AdaptedTool
from fairlead.adapters.gemini import to_gemini
from fairlead.adapters.openai import to_openai
from fairlead.catalog.tools import ToolEntry

Adapter = Callable[[ToolEntry, str], AdaptedTool]
"""From a tool and its public name to a provider's definition."""

PROVIDERS: dict[str, Adapter] = {
    "openai": to_openai,
    "openai-strict": partial(to_openai, strict=True),
    "anthropic": to_anthropic,
    "gemini": to_gemini,
}
