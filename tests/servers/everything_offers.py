"""The resources, prompts and completions of the everything-server."""

import json
import re

import mcp_types as types
from mcp.shared.exceptions import MCPError

from tests.servers.everything_questions import NAME, Context, Conversation, told

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

TEMPLATE = "test://template/{id}/data"
WORDS = ("paris", "park", "party", "hello", "world")

RESOURCES = [
    types.Resource(
        uri="test://static-text", name="static-text", description="A static text.", mime_type="text/plain"
    ),
    types.Resource(
        uri="test://static-binary", name="static-binary", description="A pixel.", mime_type="image/png"
    ),
    types.Resource(
        uri="test://watched-resource", name="watched", description="May change.", mime_type="text/plain"
    ),
]

TEMPLATES = [
    types.ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="Data by id.", mime_type="application/json"
    )
]

PROMPTS = [
    types.Prompt(name="test_simple_prompt", description="Takes nothing."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="Takes two words.",
        arguments=[
            types.PromptArgument(name="arg1", description="First test argument", required=True),
            types.PromptArgument(name="arg2", description="Second test argument", required=True),
        ],
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="Holds a resource.",
        arguments=[types.PromptArgument(name="resourceUri", description="What to embed", required=True)],
    ),
    types.Prompt(name="test_prompt_with_image", description="Holds an image."),
    types.Prompt(name="test_input_required_result_prompt", description="Asks first."),
]

EXTRA_PROMPT = types.Prompt(name="test_extra_prompt", description="Comes and goes.")


def read(uri: str) -> types.ReadResourceResult:
    """The contents of a resource."""
    match uri:
        case "test://static-text":
            text = "This is the content of the static text resource."
            contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        case "test://static-binary":
            contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
        case "test://watched-resource":
            contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="Watched.")
        case _:
            found = re.fullmatch(r"test://template/([^/]+)/data", uri)
            if found is None:
                raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
            data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
            contents = types.TextResourceContents(
                uri=uri, mime_type="application/json", text=json.dumps(data)
            )
    return types.ReadResourceResult(contents=[contents])


def from_user(*contents: types.ContentBlock | str) -> types.GetPromptResult:
    blocks = [types.TextContent(text=item) if isinstance(item, str) else item for item in contents]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=item) for item in blocks])


async def get_prompt(
    context: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    """The messages of a prompt, or what must be known first."""
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return from_user("This is a simple prompt for testing.")
        case "test_prompt_with_arguments":
            return from_user(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")
        case "test_prompt_with_embedded_resource":
            resource = types.TextResourceContents(
                uri=arguments["resourceUri"],
                mime_type="text/plain",
                text="Embedded resource content for testing.",
            )
            embedded = types.EmbeddedResource(resource=resource)
            return from_user(embedded, "Please process the embedded resource above.")
        case "test_prompt_with_image":
            image = types.ImageContent(data=PIXEL, mime_type="image/png")
            return from_user(image, "Please analyze the image above.")
        case "test_input_required_result_prompt":
            conversation = Conversation(
                rounds=[{"user_name": NAME}], finish=lambda answers: f"I am {told(answers, 'user_name')}"
            )
            outcome = await conversation.hold(context, params)
            return from_user(outcome) if isinstance(outcome, str) else outcome
        case "test_extra_prompt":
            return from_user("Here for now.")
        case _:
            raise MCPError(types.INVALID_PARAMS, f"no prompt is called {params.name!r}")


async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """The words that begin like that."""
    values = [word for word in WORDS if word.startswith(params.argument.value)]
    completion = types.Completion(values=values, total=len(values), has_more=False)
    return types.CompleteResult(completion=completion)
