"""Images in results: stored for models that take none, and the small table of models that do not."""

from base64 import b64decode
from fnmatch import fnmatchcase
from typing import Final

import anyio.to_thread

from fairlead.catalog.results import ToolResult
from fairlead.host.records import Artifacts
from fairlead.policy.results import ResultSource, media_type

_AT_ONCE: Final = 256 * 1024
"""Characters of base64 that are decoded on the event loop."""

_SEEING: Final = ("vision", "-vl", "vl-", "omni", "multimodal", "llava")
"""Parts of names of models that take images, though others of their family do not."""
_TEXT_ONLY: Final = (
    *("gpt-3.5*", "gpt-4", "gpt-4-0*", "gpt-4-32k*", "o1-mini*", "o1-preview*", "o3-mini*", "gpt-oss*"),
    *("claude-2*", "claude-instant*"),
    *("deepseek*", "mistral", "mistral-7b*", "mistral-nemo*", "mixtral*", "codestral*", "command-r*"),
    *("llama2*", "llama-2*", "llama3", "llama3.1*", "llama3.3*", "llama-3-*", "llama-3.1*", "llama-3.3*"),
    *("codellama*", "starcoder*", "qwen2", "qwen2.5", "qwen2.5-*", "qwen3", "qwen3-*", "qwq*"),
    *("phi3*", "phi-3*", "phi4*", "phi-4*", "kimi-k2", "kimi-k2-*", "glm-4.5", "glm-4.5-*", "glm-4.6*"),
)


def takes_images(model: str) -> bool:
    """Whether a model takes images, by its name. One that is not known does.

    Args:
        model: Its name in an API, such as `llama3.1:8b` or `meta-llama/Llama-3.3-70B-Instruct`.
    """
    name = model.lower().rpartition("/")[2].partition(":")[0]
    if any(part in name for part in _SEEING):
        return True
    return not any(fnmatchcase(name, pattern) for pattern in _TEXT_ONLY)


async def strip_images(result: ToolResult, artifacts: Artifacts, principal: str) -> ToolResult:
    """Replace each image by a note with the handle of the artifact that has it; the same where none is.

    Args:
        result: What a tool returned.
        artifacts: Where images are stored.
        principal: Who may read them.
    """
    source = ResultSource(
        server_id=result.server_id, tool=result.tool or "", trusted=not result.untrusted, limit=None
    )
    handles: dict[int, str] = {}
    for place, (kind, data) in result.images.items():
        if place in result.remarks.handles:
            continue
        try:
            content = (
                b64decode(data) if len(data) <= _AT_ONCE else await anyio.to_thread.run_sync(b64decode, data)
            )
        except ValueError:
            continue  # which is no image to anyone
        handle = await artifacts.keep(content, media_type(kind), source, principal=principal)
        if handle is not None:
            handles[place] = handle
    return result.without_images(handles)
