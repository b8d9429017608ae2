"""Tools for model providers and agent frameworks, and servers for other hosts.

`Host.tools` has a method for each (`for_openai()`, …); the functions here are for programs that convert
definitions, arguments and results themselves. LangChain and Pydantic AI are loaded only when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.adapters.anthropic import anthropic_result, to_anthropic
    from fairlead.adapters.definition import AdaptedTool, Caller
    from fairlead.adapters.export import Loss
    from fairlead.adapters.gemini import gemini_result, to_gemini
    from fairlead.adapters.langchain import FairleadTool, to_langchain
    from fairlead.adapters.openai import openai_arguments, openai_messages, openai_result, to_openai
    from fairlead.adapters.pydantic_ai import to_pydantic_ai
    from fairlead.catalog.schema.normalize import SchemaChange
    from fairlead.config.dialects.dialect import ConversionNote, ExportedDocument

__all__ = [
    "AdaptedTool",
    "Caller",
    "ConversionNote",
    "ExportedDocument",
    "FairleadTool",
    "Loss",
    "SchemaChange",
    "anthropic_result",
    "gemini_result",
    "openai_arguments",
    "openai_messages",
    "openai_result",
    "to_anthropic",
    "to_gemini",
    "to_langchain",
    "to_openai",
    "to_pydantic_ai",
]

_HOMES = {
    "AdaptedTool": "fairlead.adapters.definition",
    "Caller": "fairlead.adapters.definition",
    "ConversionNote": "fairlead.config.dialects.dialect",
    "ExportedDocument": "fairlead.config.dialects.dialect",
    "FairleadTool": "fairlead.adapters.langchain",
    "Loss": "fairlead.adapters.export",
    "SchemaChange": "fairlead.catalog.schema.normalize",
    "anthropic_result": "fairlead.adapters.anthropic",
    "gemini_result": "fairlead.adapters.gemini",
    "openai_arguments": "fairlead.adapters.openai",
    "openai_messages": "fairlead.adapters.openai",
    "openai_result": "fairlead.adapters.openai",
    "to_anthropic": "fairlead.adapters.anthropic",
    "to_gemini": "fairlead.adapters.gemini",
    "to_langchain": "fairlead.adapters.langchain",
    "to_openai": "fairlead.adapters.openai",
    "to_pydantic_ai": "fairlead.adapters.pydantic_ai",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
