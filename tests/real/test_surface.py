"""The server that does everything, for all that is not tools, over stdio and over HTTP."""

import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest

from fairlead.errors import CallRejected
from fairlead.events import ElicitationComplete, Event, ServerLogged
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
from tests.conftest import Machine
from tests.host.support import unasked
from tests.real.remote import RemoteServer
from tests.real.servers import EVERYTHING_TOOLS, everything

pytestmark = pytest.mark.slow

TEXT = "demo://resource/dynamic/text/{resourceId}"


class Person:
    """Answers everything, and remembers what it was."""

    def __init__(self) -> None:
        self.forms: list[FormRequest] = []
        self.urls: list[UrlRequest] = []
        self.samples: list[SampleRequest] = []
        self.opened: list[str] = []

    def operator(self) -> Callbacks:
        return Callbacks(
            on_form=self.fill_in, on_url=self.agree, on_sample=self.sample, on_open_url=self.open
        )

    async def fill_in(self, question: FormRequest) -> FormAnswer:
        self.forms.append(question)
        return FormAnswer(action="accept", content={"name": "Ada Lovelace", "integer": 7})

    async def agree(self, question: UrlRequest) -> UrlAnswer:
        self.urls.append(question)
        return "accept"

    async def open(self, url: str) -> bool:
        self.opened.append(url)
        return True

    async def sample(self, request: SampleRequest) -> types.CreateMessageResult:
        self.samples.append(request)
        content = types.TextContent(text="a word of the model")
        return types.CreateMessageResult(role="assistant", content=content, model="test")


@pytest.fixture(params=["stdio", "streamableHttp"])
async def entry(request: pytest.FixtureRequest, machine: Machine) -> AsyncGenerator[dict[str, Any]]:
    """The server, over each transport in turn."""
    if request.param == "stdio":
        yield everything(machine).entry
        return
    remote = RemoteServer(mode="streamableHttp", machine=machine)
    async with remote.running():
        yield {"url": remote.url, "trust": "trusted"}


@asynccontextmanager
async def hosting(
    machine: Machine, entry: dict[str, Any], operator: Operator = UNATTENDED
) -> AsyncGenerator[Host]:
    with anyio.fail_after(60):
        async with Host.open(
            overrides=unasked({"e": entry}), env=machine.env, cwd=machine.project, operator=operator
        ) as host:
            assert await host.connect("e") == {}
            yield host


async def next_log(events: AsyncIterator[Event]) -> ServerLogged:
    async for event in events:
        if isinstance(event, ServerLogged):
            return event
    raise AssertionError("the host closed before the server logged anything")


@pytest.mark.requirement("NEED-36")
async def test_resources_are_listed_filled_in_completed_and_read(
    machine: Machine, entry: dict[str, Any]
) -> None:
    async with hosting(machine, entry) as host:
        listed = (await host.resources.list("e")).items
        document = next(item for item in listed if item.uri.endswith("architecture.md"))
        assert document.mime_type == "text/markdown"
        assert "# Everything Server" in (await host.resources.read("e", document.uri)).text

        templates = {item.uri_template: item for item in (await host.resources.templates("e")).items}
        assert TEXT in templates
        assert (await host.resources.complete("e", TEXT, "resourceId", "12")).values == ("12",)
        text = await host.resources.read("e", host.resources.expand(TEXT, {"resourceId": "12"}))
        assert text.text.startswith("Resource 12: This is a plaintext resource")
        blob = await host.resources.read("e", "demo://resource/dynamic/blob/3")
        assert blob.content().startswith(b"Resource 3: This is a base64 blob")
        with pytest.raises(CallRejected):
            await host.resources.read("e", "demo://resource/dynamic/text/none")


@pytest.mark.requirement("NEED-36")
async def test_prompts_are_listed_completed_and_filled_in(machine: Machine, entry: dict[str, Any]) -> None:
    async with hosting(machine, entry) as host:
        prompts = {item.name: item for item in (await host.prompts.list("e")).items}
        wanted = {argument.name: argument.required for argument in prompts["args-prompt"].arguments}
        assert wanted == {"city": True, "state": False}
        filled = await host.prompts.get("e", "args-prompt", {"city": "Kiel"})
        assert filled.messages[0]["content"]["text"] == "What's weather in Kiel?"

        complete = host.prompts.complete
        assert (await complete("e", "completable-prompt", "department", "S")).values == ("Sales", "Support")
        people = await complete("e", "completable-prompt", "name", others={"department": "Sales"})
        assert people.values == ("David", "Eve", "Frank")

        arguments = {"resourceType": "Text", "resourceId": "5"}
        (_, embedded) = (await host.prompts.get("e", "resource-prompt", arguments)).messages
        assert embedded["content"]["resource"]["uri"] == "demo://resource/dynamic/text/5"


@pytest.mark.requirement("NEED-36")
async def test_a_resource_is_watched(machine: Machine, entry: dict[str, Any]) -> None:
    uri = "demo://resource/dynamic/text/1"
    async with hosting(machine, entry) as host, host.resources.watch("e", uri) as changed:
        await host.call("e", "toggle-subscriber-updates")
        assert await anext(changed) == uri
        await host.call("e", "toggle-subscriber-updates")


@pytest.mark.requirement("NEED-33", "HARD-48")
async def test_the_server_offers_only_tools_for_what_the_host_can_do(
    machine: Machine, entry: dict[str, Any]
) -> None:
    async with hosting(machine, entry) as host:
        assert {tool.key.tool for tool in await host.tools_of("e")} == EVERYTHING_TOOLS
    untrusted = entry | {"trust": "untrusted", "allow_tools": ["*"]}
    by_page = {"trigger-elicitation-request", "trigger-url-elicitation"}  # it asks for no mode in particular
    shutil.rmtree(machine.home / ".local")  # or what it offers now would be held against what it did then
    async with hosting(machine, untrusted, Person().operator()) as host:
        assert {tool.key.tool for tool in (await host.list_now("e")).tools} == EVERYTHING_TOOLS | by_page
        refused = await host.call("e", "trigger-elicitation-request")
        assert refused.is_error
        assert "not supported here" in refused.text
    full: dict[str, Any] = entry | {"sampling": {}, "roots": ["."]}
    async with hosting(machine, full, Person().operator()) as host:
        more = by_page | {"trigger-sampling-request", "get-roots-list"}
        assert {tool.key.tool for tool in (await host.list_now("e")).tools} >= EVERYTHING_TOOLS | more
        roots = await host.call("e", "get-roots-list")
        assert machine.project.as_uri() in roots.text


@pytest.mark.requirement("HARD-48")
async def test_the_server_asks_by_form_by_page_and_the_model(machine: Machine, entry: dict[str, Any]) -> None:
    person = Person()
    async with hosting(machine, entry | {"sampling": {}}, person.operator()) as host:
        answered = await host.call("e", "trigger-elicitation-request")
        content = json.loads(answered.text.partition("Raw result: ")[2])["content"]
        assert content["name"] == "Ada Lovelace"
        assert content["integer"] == 7
        assert content["firstLine"] == "It was a dark and stormy night."
        assert content["untitledMultipleSelectEnum"] == ["Guitar"]
        assert "email" not in content
        (form,) = person.forms
        assert len(form.form.fields) == 13

        arguments = {"url": "https://example.com/pay?x=1", "message": "Pay"}
        paid = await host.call("e", "trigger-url-elicitation", arguments)
        assert "User completed the URL elicitation flow" in paid.text
        assert person.opened == ["https://example.com/pay?x=1"]

        sampled = await host.call("e", "trigger-sampling-request", {"prompt": "Say something"})
        assert "a word of the model" in sampled.text
        assert person.samples[0].max_tokens == 100


async def test_a_page_that_has_to_be_visited_first_is_shown(machine: Machine, entry: dict[str, Any]) -> None:
    person = Person()
    arguments = {"url": "https://example.com/", "errorPath": True}
    async with hosting(machine, entry | {"max_request_ms": 2000}, person.operator()) as host:
        # This server never says that it is done there, so the call fails and can be repeated by hand.
        with pytest.raises(CallRejected, match="call again when it is"):
            await host.call("e", "trigger-url-elicitation", arguments)
        assert person.opened == ["https://modelcontextprotocol.io/"]
        repeated = await host.call("e", "trigger-url-elicitation", arguments)
        assert "User completed the URL elicitation flow" in repeated.text


async def test_the_server_logs_at_the_level_of_its_entry(machine: Machine, entry: dict[str, Any]) -> None:
    uri = "demo://resource/dynamic/text/1"
    async with (
        hosting(machine, entry | {"log_level": "info"}) as host,
        host.events() as events,
        host.resources.watch("e", uri),
    ):
        logged = await next_log(events)
    assert (logged.level, uri in logged.message) == ("info", True)


async def test_giving_up_a_call_withdraws_what_the_server_asked(
    machine: Machine, entry: dict[str, Any]
) -> None:
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def wait(question: FormRequest) -> FormAnswer:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return FormAnswer(action="cancel")

    async with hosting(machine, entry, Callbacks(on_form=wait)) as host, host.events() as events:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.call, "e", "trigger-elicitation-request")
            await asked.wait()
            tasks.cancel_scope.cancel()
        await withdrawn.wait()
        async for event in events:
            if isinstance(event, ElicitationComplete):
                assert event.outcome == "withdrawn"
                break
        assert "echo" in (await host.call("e", "echo", {"message": "echo"})).text
