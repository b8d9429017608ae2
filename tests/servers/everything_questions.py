"""What the everything-server asks back: with requests of its own, or with `input_required` in the new era."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Answers = Mapping[str, types.InputResponse]
Questions = Mapping[str, types.InputRequest]


def form(message: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> types.ElicitRequest:
    """A form to fill in."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def page(message: str, url: str, elicitation_id: str) -> types.ElicitRequest:
    """A page to visit."""
    return types.ElicitRequest(
        params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=elicitation_id)
    )


def sample(prompt: str, max_tokens: int) -> types.CreateMessageRequest:
    """Something for the client's model to say."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def needed_for(question: types.InputRequest) -> types.ClientCapabilities:
    """What a client must have declared to be asked this."""
    match question:
        case types.ElicitRequest(params=types.ElicitRequestURLParams()):
            url = types.ElicitationCapability(url=types.UrlElicitationCapability())
            return types.ClientCapabilities(elicitation=url)
        case types.ElicitRequest():
            return types.ClientCapabilities(elicitation=types.ElicitationCapability())
        case types.CreateMessageRequest():
            return types.ClientCapabilities(sampling=types.SamplingCapability())
        case types.ListRootsRequest():
            return types.ClientCapabilities(roots=types.RootsCapability())


def can_answer(context: Context, question: types.InputRequest) -> bool:
    """Whether the client has declared what it takes. One that says nothing of modes means forms."""
    declared = context.session.client_capabilities or types.ClientCapabilities()
    match question:
        case types.ElicitRequest(params=types.ElicitRequestURLParams()):
            return declared.elicitation is not None and declared.elicitation.url is not None
        case types.ElicitRequest():
            elicitation = declared.elicitation
            return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
        case types.CreateMessageRequest():
            return declared.sampling is not None
        case types.ListRootsRequest():
            return declared.roots is not None


def answer_type(question: types.InputRequest) -> type[types.InputResponse]:
    match question:
        case types.ElicitRequest():
            return types.ElicitResult
        case types.CreateMessageRequest():
            return types.CreateMessageResult
        case types.ListRootsRequest():
            return types.ListRootsResult


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Rounds of questions, and what is said in the end. A round is over when all of it is answered."""

    rounds: Sequence[Questions]
    finish: Callable[[Answers], str]
    stateful: bool = False
    """Whether a modern client is to carry the state along where one round would do without."""
    if_able: bool = False
    """Whether what the client cannot answer is left out, where it would be refused otherwise."""

    async def hold(
        self, context: Context, params: types.InputResponseRequestParams
    ) -> str | types.InputRequiredResult:
        """The last word, or the next round of questions to a modern client."""
        if is_modern(context):
            return self._next_round(context, params)
        answers: dict[str, types.InputResponse] = {}
        for questions in self.rounds:
            for key, question in self._askable(context, questions).items():
                metadata = ServerMessageMetadata(related_request_id=context.request_id)
                answers[key] = await context.session.send_request(
                    question, answer_type(question), metadata=metadata
                )
        return self.finish(answers)

    def _next_round(
        self, context: Context, params: types.InputResponseRequestParams
    ) -> str | types.InputRequiredResult:
        number = int(params.request_state or 0)
        questions = self._askable(context, self.rounds[number])
        answers = params.input_responses or {}
        if questions.keys() <= answers.keys():
            number += 1
            if number == len(self.rounds):
                return self.finish(answers)
            questions = self._askable(context, self.rounds[number])
        state = str(number) if self.stateful or len(self.rounds) > 1 else None
        return types.InputRequiredResult(input_requests=dict(questions), request_state=state)

    def _askable(self, context: Context, questions: Questions) -> Questions:
        askable = {key: question for key, question in questions.items() if can_answer(context, question)}
        if self.if_able or len(askable) == len(questions):
            return askable
        missing = [question for key, question in questions.items() if key not in askable]
        raise unable(needed_for(missing[0]))


def unable(needed: types.ClientCapabilities) -> MCPError:
    """The error for a client that has not declared what it takes."""
    data = {"requiredCapabilities": needed.model_dump(by_alias=True, exclude_none=True)}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "the client cannot be asked this", data)


def told(answers: Answers, key: str) -> str:
    """An answer to a form, as the suite wants to read it."""
    answer = answers[key]
    assert isinstance(answer, types.ElicitResult)
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


def said(answers: Answers, key: str) -> str:
    """What the client's model said."""
    answer = answers[key]
    assert isinstance(answer, types.CreateMessageResult)
    return answer.content.text if isinstance(answer.content, types.TextContent) else answer.content.type


NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
COLOR = form("What is your favorite color?", {"color": {"type": "string"}}, ["color"])
CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
DEFAULTS = form(
    "Please review and update the form fields with defaults",
    {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    },
)
TITLED = [
    {"const": "value1", "title": "First Option"},
    {"const": "value2", "title": "Second Option"},
    {"const": "value3", "title": "Third Option"},
]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = form(
    "Please select options from the enum fields",
    {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
)

CONVERSATIONS = {
    "test_elicitation_sep1034_defaults": Conversation(
        rounds=[{"form": DEFAULTS}], finish=lambda answers: f"Elicitation completed: {told(answers, 'form')}"
    ),
    "test_elicitation_sep1330_enums": Conversation(
        rounds=[{"form": ENUMS}], finish=lambda answers: f"Elicitation completed: {told(answers, 'form')}"
    ),
    "test_elicitation_url": Conversation(
        rounds=[{"page": page("Please visit this page", "https://example.com/confirm", "page-1")}],
        finish=lambda answers: f"Page visited: {told(answers, 'page')}",
    ),
    "test_streaming_elicitation": Conversation(
        rounds=[{"user_name": NAME}], finish=lambda answers: f"Streamed: {told(answers, 'user_name')}"
    ),
    "test_input_required_result_elicitation": Conversation(
        rounds=[{"user_name": NAME}], finish=lambda answers: f"Hello: {told(answers, 'user_name')}"
    ),
    "test_input_required_result_sampling": Conversation(
        rounds=[{"capital_question": sample("What is the capital of France?", 100)}],
        finish=lambda answers: said(answers, "capital_question"),
    ),
    "test_input_required_result_list_roots": Conversation(
        rounds=[{"client_roots": types.ListRootsRequest()}],
        finish=lambda answers: answers["client_roots"].model_dump_json(by_alias=True, exclude_none=True),
    ),
    "test_input_required_result_request_state": Conversation(
        rounds=[{"confirm": CONFIRM}],
        stateful=True,
        finish=lambda answers: f"state-ok: {told(answers, 'confirm')}",
    ),
    "test_input_required_result_tampered_state": Conversation(
        rounds=[{"confirm": CONFIRM}],
        stateful=True,
        finish=lambda answers: f"state-ok: {told(answers, 'confirm')}",
    ),
    "test_input_required_result_multiple_inputs": Conversation(
        rounds=[
            {
                "user_name": NAME,
                "greeting": sample("Generate a greeting", 50),
                "client_roots": types.ListRootsRequest(),
            }
        ],
        stateful=True,
        finish=lambda answers: f"{said(answers, 'greeting')}: {told(answers, 'user_name')}",
    ),
    "test_input_required_result_multi_round": Conversation(
        rounds=[{"step1": NAME}, {"step2": COLOR}],
        finish=lambda answers: f"All rounds are over: {told(answers, 'step2')}",
    ),
    "test_input_required_result_capabilities": Conversation(
        rounds=[{"user_name": NAME, "greeting": sample("Generate a greeting", 50)}],
        if_able=True,
        finish=lambda answers: f"Answered: {', '.join(sorted(answers))}",
    ),
}
"""What is asked by the tools that take no arguments, by their names."""


def conversation_about(tool: str, arguments: Mapping[str, Any]) -> Conversation | None:
    """What a tool asks, if it is one that asks."""
    match tool:
        case "test_elicitation":
            text = {"type": "string", "description": "User's response"}
            email = {"type": "string", "description": "User's email address"}
            fields = {"username": text, "email": email}
            return Conversation(
                rounds=[{"user": form(arguments["message"], fields, ["username", "email"])}],
                finish=lambda answers: f"User response: {told(answers, 'user')}",
            )
        case "test_sampling":
            return Conversation(
                rounds=[{"completion": sample(arguments["prompt"], 100)}],
                finish=lambda answers: f"LLM response: {said(answers, 'completion')}",
            )
        case _:
            return CONVERSATIONS.get(tool)
