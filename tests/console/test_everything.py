"""The console against the reference server that does everything: offers, questions, and a model between."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.conftest import Machine
from tests.console.tmux_support import Screen, tmux_console
from tests.loop.model_server import KEY, ModelServer, says, serving
from tests.real.servers import NPM_BIN, everything

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not NPM_BIN.is_dir(), reason="the real servers are not installed: run tests/tools/install-servers"
    ),
]

FORM = (
    ("Your full, legal name", "Ada Lovelace"),
    ("Agree to the terms and conditions", "yes"),
    ("Favorite first line of a story", ""),
    ("Your email address", "ada@example.org"),
    ("Portfolio", "https://example.org/"),
    ("Your date of birth", "1815-12-10"),
    ("Your favorite integer", "7"),
    ("Favorite number", ""),
    ("Choose your favorite friend", "Joey"),
    ("Choose your favorite instruments", ""),
    ("Choose your favorite hero", "Green Lantern"),
    ("Choose your favorite types of fish", ""),
    ("Choose your favorite type of pet", ""),
)
"""What the server asks for, and what the person says; nothing stands for the default."""
PROMOTION = "Please promote Alice to the head of the Engineering team."


@asynccontextmanager
async def console(machine: Machine, api: ModelServer) -> AsyncGenerator[Screen]:
    """The console with that server ready, and a model behind this API."""
    document = {
        "servers": {"everything": everything(machine).entry | {"sampling": {"max_tokens": 2000}}},
        "policy": {"approval": "allow"},
        "model": {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1", "api_key": "${MY_KEY}"},
    }
    machine.write_user(json.dumps(document))
    async with tmux_console(machine, env={"MY_KEY": KEY}) as screen:
        await screen.shows("1 ready")
        yield screen


async def completed(screen: Screen, begun: str, line: str) -> None:
    """Type the beginning of something, and have Tab complete it to a line that ends so."""
    await screen.type(begun)
    await screen.key("Tab")
    await screen.shows(re.compile(rf"{re.escape(line)}$", re.MULTILINE))


@pytest.mark.requirement("NEED-36")
async def test_resources_are_found_read_and_attached(machine: Machine) -> None:
    with serving(says("openai", "It says seven.")) as api:
        async with console(machine, api) as screen:
            await screen.type("/resources everything startup\n")
            await screen.shows("demo://resource/static/document/startup.md")
            await completed(screen, "/reso", "/resources")
            await completed(screen, "ev", "/resources everything")
            await completed(
                screen, "demo://resource/dynamic/te", "/resources everything demo://resource/dynamic/text/"
            )
            await screen.type("7\n")
            await screen.shows("Resource 7: This is a plaintext resource")
            await screen.type("/resources everything demo://resource/dynamic/blob/{resourceId}\n")
            await screen.shows("resourceId:")
            await screen.type("8\n")
            await screen.shows("Resource 8: This is a base64 blob")
            await screen.type("/attach everything demo://resource/dynamic/text/9\n")
            await screen.shows("your next message to the model takes along")
            await screen.type("what does @everything:demo://resource/dynamic/text/7 say?\n")
            await screen.shows("It says seven.")
    said = api.bodies[0]["messages"][-1]["content"]
    assert "Resource 9: This is a plaintext resource" in said
    assert "Resource 7: This is a plaintext resource" in said
    assert said.endswith("what does @everything:demo://resource/dynamic/text/7 say?")


@pytest.mark.requirement("NEED-36")
async def test_a_prompt_is_completed_by_its_server_and_answered_by_the_model(machine: Machine) -> None:
    with serving(says("openai", "Done, she is.")) as api:
        async with console(machine, api) as screen:
            await screen.type("/prompts team\n")
            await screen.shows("/everything:completable-prompt")
            await completed(screen, "/everything:comp", "/everything:completable-prompt")
            await completed(screen, "department=Eng", "department=Engineering")
            await screen.type(" name=")
            await screen.key("Tab")
            await screen.shows("Charlie")
            await completed(screen, "Al", "name=Alice")
            await screen.type("\n")
            await screen.shows("Done, she is.")
            assert PROMOTION in screen.text()
            await screen.type("/everything:args-prompt\n")
            await screen.shows("| Name of the city")
            await screen.type("Kiel\n")
            await screen.shows("What's weather in Kiel?")
    assert api.bodies[0]["messages"][-1] == {"role": "user", "content": PROMOTION}


async def test_a_server_asks_the_model_when_the_person_lets_it(machine: Machine) -> None:
    with serving(says("openai", "Forty-two.")) as api:
        async with console(machine, api) as screen:
            await screen.type("/call everything trigger-sampling-request prompt=why\n")
            await screen.shows("`everything` wants to ask your model, for up to 100 tokens.")
            await screen.shows("| Resource trigger-sampling-request context: why")
            await screen.type("no\n")
            await screen.shows("the user rejected it")
            assert not api.bodies
            await screen.type("/call everything trigger-sampling-request prompt=how maxTokens=50\n")
            await screen.shows("for up to 50 tokens.")
            await screen.type("once\n")
            await screen.shows('"text": "Forty-two."')
    (body,) = api.bodies
    assert body["max_tokens"] == 50
    assert body["messages"][0] == {"role": "system", "content": "You are a helpful test server."}


@pytest.mark.requirement("NEED-33")
async def test_a_form_is_filled_in(machine: Machine) -> None:
    with serving(says("openai", "-")) as api:
        async with console(machine, api) as screen:
            await screen.type("/call everything trigger-elicitation-request\n")
            await screen.shows("`everything` asks you something.")
            await screen.type("yes\n")
            for question, answer in FORM:
                await screen.shows(f"| {question}")
                await screen.type(f"{answer}\n")
            await screen.shows("Send it?")
            await screen.type("yes\n")
            await screen.shows("Raw result:")
            answered = screen.everything()
            assert "User provided the requested information" in answered
            for said in ("- Name: Ada Lovelace", "- Favorite Integer: 7", '"hero-2"'):
                assert said in answered


@pytest.mark.requirement("NEED-31")
async def test_an_image_is_a_handle_where_it_cannot_be_drawn(machine: Machine) -> None:
    with serving(says("openai", "-")) as api:
        async with console(machine, api) as screen:
            await screen.type("/call everything get-tiny-image\n")
            await screen.shows(
                re.compile(r"\[image/png, \d+ by \d+ pixels, [\d,]+ bytes; `fairlead artifacts show ")
            )
