"""What servers offer, at a real terminal: completion that holds nobody up, and images that are drawn."""

import base64
import json
import os
import re
import signal
from typing import Any

import pytest

from tests.cli.pty_support import at_terminal
from tests.conftest import Machine
from tests.console.test_images import png
from tests.console.tmux_support import tmux_console
from tests.host.asking import AskingServer

GREET = {"name": "greet", "arguments": [{"name": "who", "required": True}]}


def configure(machine: Machine, **script: Any) -> AskingServer:
    server = AskingServer(machine.home / "record", **script)
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    return server


@pytest.mark.requirement("NEED-6")
async def test_a_server_that_hangs_on_a_suggestion_does_not_hold_up_whoever_types(machine: Machine) -> None:
    server = configure(machine, prompts=[GREET])
    async with tmux_console(machine) as screen:
        await screen.shows("1 ready")
        (pid,) = server.notes("started")
        os.kill(pid, signal.SIGSTOP)
        try:
            await screen.type("/x:greet who=a")
            await screen.key("Tab")
            await screen.type("da and more")
            await screen.shows("/x:greet who=ada and more")
            await screen.key("C-u")
            await screen.type("/mcp\n")
            await screen.shows(re.compile(r"x +stdio"))
        finally:
            os.kill(pid, signal.SIGCONT)
        await screen.type("/x:greet who=a")
        await screen.key("Tab")
        await screen.shows("/x:greet who=alpha")


def test_an_image_is_drawn_by_a_terminal_that_can(machine: Machine) -> None:
    content = png(640, 480, bytes(5000))
    image = {"type": "image", "data": base64.b64encode(content).decode(), "mimeType": "image/png"}
    configure(machine, prompts=[{"name": "logo"}], messages=[{"role": "user", "content": image}])
    # Nobody answers for this terminal, least of all where its cursor is.
    env = {**machine.env, "TERM": "xterm-kitty", "PROMPT_TOOLKIT_NO_CPR": "1"}
    with at_terminal("console", env=env, cwd=machine.project) as person:
        person.types("/prompts", end="\r")
        person.sees("/x:logo")
        person.types("/x:logo", end="\r")
        person.sees("\x1b_Ga=T,f=100,q=2,c=")
        person.sees("image/png, 640 by 480 pixels")
        frames = re.findall(r"\x1b_G[^;]*;([^\x1b]*)\x1b\\", person.seen)
        assert base64.b64decode("".join(frames)) == content
        person.types("/quit", end="\r")
        assert person.waits() == 0
