"""The tools that the conformance suite looks for in a server, written as first-party tools are."""

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from fairlead.errors import ToolFailed
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="


class Nothing(ToolModel):
    """No input."""


class Done(ToolModel):
    """No output to speak of."""

    done: bool = True


def answering(name: str, *content: ContentBlock) -> AnyTool:
    async def handler(context: ToolContext, _: Nothing) -> Reply[Done]:
        return Reply(output=Done(), content=content)

    return ToolDefinition(name=name, description="For tests.", input=Nothing, output=Done, handler=handler)


async def fail(context: ToolContext, _: Nothing) -> Done:
    raise ToolFailed("This tool intentionally returns an error for testing")


async def progress(context: ToolContext, _: Nothing) -> Done:
    for done in (0, 50, 100):
        await context.progress(done, 100)
    return Done()


def suite_server() -> McpServer:
    """A server with every tool of the suite that takes no more than a tool to write."""
    text = TextContent(text="This is a simple text response for testing.")
    image = ImageContent(data=PIXEL, mime_type="image/png")
    audio = AudioContent(data=SILENCE, mime_type="audio/wav")
    words = TextResourceContents(uri="test://embedded", mime_type="text/plain", text="words")
    blob = BlobResourceContents(uri="test://blob", mime_type="application/octet-stream", blob="aGk=")
    return McpServer(
        "suite",
        tools=[
            answering("test_simple_text", text),
            answering("test_image_content", image),
            answering("test_audio_content", audio),
            answering("test_embedded_resource", EmbeddedResource(resource=words)),
            answering("test_multiple_content_types", text, image, EmbeddedResource(resource=blob)),
            ToolDefinition(
                name="test_error_handling", description="Fails.", input=Nothing, output=Done, handler=fail
            ),
            ToolDefinition(
                name="test_tool_with_progress",
                description="Reports.",
                input=Nothing,
                output=Done,
                handler=progress,
            ),
        ],
    )
