"""What the tests of questions, resources and prompts share: a server that asks, and people who answer."""

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types

from fairlead.errors import CallFailed
from fairlead.events import Event
from fairlead.host.host import Host
from fairlead.host.operator import (
    UNATTENDED,
    Callbacks,
    FormAnswer,
    FormRequest,
    Operator,
    SampleRequest,
    UrlAnswer,
    UrlRequest,
)
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures import asking_stdio
from tests.host.support import SECONDS, unasked

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
BOTH_ERAS = (HANDSHAKE, MODERN)

NAME_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string", "default": "Kiel"}},
    "required": ["name"],
}


class AskingServer(ScriptedServer):
    """A real process that offers resources and prompts, and asks back; see `asking_stdio.DEFAULTS`."""

    @property
    def argv(self) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", asking_stdio.__file__, json.dumps(self.script))

    def heard(self, method: str | None = None) -> list[dict[str, Any]]:
        """What its processes were sent, in order."""
        messages: list[dict[str, Any]] = [json.loads(line) for line in self.notes("heard")]
        return [message for message in messages if method is None or message.get("method") == method]

    def declared(self) -> list[dict[str, Any]]:
        """The client's capabilities, each time it declared them."""
        said: list[dict[str, Any] | None] = []
        for message in self.heard():
            params = message.get("params", {})
            said.append(params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities"))
            said.append(params.get("capabilities"))
        return [capabilities for capabilities in said if capabilities is not None]


def form(message: str = "Who?", schema: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {"message": message, "requestedSchema": schema or NAME_FORM}
    return {"method": "elicitation/create", "params": params}


def page(url: str = "https://example.com/login?next=a", elicitation_id: str = "e1") -> dict[str, Any]:
    params = {"mode": "url", "elicitationId": elicitation_id, "message": "Log in", "url": url}
    return {"method": "elicitation/create", "params": params}


@asynccontextmanager
async def hosting(
    machine: Machine, operator: Operator = UNATTENDED, **servers: dict[str, Any]
) -> AsyncGenerator[Host]:
    """Run a host with an operator."""
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=unasked(servers), env=machine.env, cwd=machine.project, operator=operator
        ) as host:
            yield host


async def ask(host: Host, server_id: str = "x", /, **questions: dict[str, Any]) -> dict[str, Any]:
    """Have a server ask, and return what it was answered."""
    return json.loads((await host.call(server_id, "ask", {"questions": questions})).text)


ADA = FormAnswer(action="accept", content={"name": "Ada"})


class Everybody:
    """A person, a browser and a model who agree to everything, and remember it."""

    def __init__(self, answer: FormAnswer = ADA, words: str = "Hi") -> None:
        self.answer = answer
        self.words = words
        self.forms: list[FormRequest] = []
        self.urls: list[UrlRequest] = []
        self.samples: list[SampleRequest] = []
        self.opened: list[str] = []
        self.url_answer: UrlAnswer = "accept"

    def operator(self) -> Callbacks:
        return Callbacks(
            on_form=self.fill_in, on_url=self.agree, on_sample=self.sample, on_open_url=self.open
        )

    async def fill_in(self, question: FormRequest) -> FormAnswer:
        self.forms.append(question)
        return self.answer

    async def agree(self, question: UrlRequest) -> UrlAnswer:
        self.urls.append(question)
        return self.url_answer

    async def open(self, url: str) -> bool:
        self.opened.append(url)
        return True

    async def sample(self, request: SampleRequest) -> types.CreateMessageResult:
        self.samples.append(request)
        content = types.TextContent(text=self.words)
        return types.CreateMessageResult(role="assistant", content=content, model="test")


async def answer_of(host: Host, question: dict[str, Any]) -> dict[str, Any]:
    """What the server got for a question: an answer, or in either era the reason why there is none."""
    try:
        return (await ask(host, q=question))["q"]
    except CallFailed as exc:
        return {"message": str(exc)}


class Patient:
    """A person who is asked, and answers when the test says so."""

    def __init__(self, answer: FormAnswer | None = None) -> None:
        self.answer = answer or FormAnswer(action="accept", content={"name": "Ada"})
        self.questions: list[FormRequest] = []
        self.asked = anyio.Event()
        self.may_answer = anyio.Event()
        self.withdrawn = anyio.Event()

    async def __call__(self, question: FormRequest) -> FormAnswer:
        self.questions.append(question)
        self.asked.set()
        try:
            await self.may_answer.wait()
        except anyio.get_cancelled_exc_class():
            self.withdrawn.set()
            raise
        return self.answer


async def until(events: AsyncIterator[Event], wanted: Callable[[Event], bool]) -> Event:
    async for event in events:
        if wanted(event):
            return event
    raise AssertionError("the host closed before that")
