"""The README's login, model and console: each typed as it is printed there, with servers on the loopback."""

import json
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from tests.auth.authorization_server import authorization_server
from tests.cli.login.support import BROWSER
from tests.conftest import Machine
from tests.docs.test_readme import blocks, commands
from tests.loop.model_server import Reply, results_in, says, serving, tool_names

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.cli.pty_support import SECONDS, at_terminal
from tests.console.tmux_support import tmux_console

SERVER = """
import json, sys
name, offers = sys.argv[1], json.loads(sys.argv[2])
results = {
    "initialize": lambda p: {
        "protocolVersion": "2025-11-25",
        "capabilities": {key: {} for key in offers},
        "serverInfo": {"name": name, "version": "1"},
    },
    "ping": lambda p: {},
    "tools/list": lambda p: {"tools": offers.get("tools", [])},
    "tools/call": lambda p: {"content": [{"type": "text", "text": json.dumps(p["arguments"])}]},
    "prompts/list": lambda p: {"prompts": offers.get("prompts", [])},
    "prompts/get": lambda p: {"messages": [{"role": "user", "content": {
        "type": "text", "text": "What is the weather in " + p["arguments"]["city"] + "?"}}]},
    "completion/complete": lambda p: {"completion": {"values": ["Oslo"]}},
    "resources/list": lambda p: {"resources": offers.get("resources", [])},
    "resources/templates/list": lambda p: {"resourceTemplates": []},
    "resources/read": lambda p: {"contents": [{"uri": p["uri"], "text": "Buy milk."}]},
}
print(f"{name} is listening", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = results.get(message["method"])
    told = {"error": {"code": -32601, "message": "no"}}
    if answer:
        told = {"result": answer(message.get("params") or {})}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}), flush=True)
"""
"""A small server: its name and what it offers are its arguments."""


def entry(machine: Machine, name: str, **offers: Any) -> dict[str, Any]:
    program = machine.home / "server.py"
    program.write_text(SERVER)
    return {
        "command": sys.executable,
        "args": [str(program), name, json.dumps(offers)],
        "trust": "trusted",
    }


def block_with(mark: str) -> str:
    (text,) = [block for block in blocks("console") if mark in block]
    return text


@pytest.mark.requirement("NEED-14")
def test_the_login_goes_as_the_readme_shows(machine: Machine) -> None:
    ((_, *login),) = commands(block_with("fairlead login"))
    program = machine.home / "browser.py"
    program.write_text(BROWSER)
    env = {
        **machine.env,
        "FAIRLEAD_VAULT": "file",
        "BROWSER": f"{sys.executable} {program} ada %s",
        "TERM": "dumb",
    }
    with authorization_server(scope="mcp:read") as server:
        machine.write_user(json.dumps({"servers": {login[1]: {"url": server.mcp_url, "trust": "trusted"}}}))
        asked = [sys.executable, "-m", "fairlead", "call", f"{login[1]}.whoami", "--yes"]
        without_terminal = subprocess.run(
            asked,
            cwd=machine.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert without_terminal.returncode == 3
        assert f"run `{shlex.join(['fairlead', *login])}`" in without_terminal.stderr
        with at_terminal(*login, cwd=machine.project, env=env) as person:
            person.sees("Open it?")
            person.types("yes")
            person.sees(f"logged in to `{login[1]}`")
            assert person.waits() == 0
        for _ in range(2):  # in every process
            with at_terminal("call", f"{login[1]}.whoami", cwd=machine.project, env=env) as person:
                assert person.waits() == 0
                assert "ada mcp:read" in person.seen
        for command, shown in (
            ("whoami", "logged in"),
            ("auth list", login[1]),
            (f"logout {login[1]}", login[1]),
        ):
            with at_terminal(*shlex.split(command), cwd=machine.project, env=env) as person:
                assert person.waits() == 0, person.seen
                assert shown in person.seen


def test_the_model_goes_as_the_readme_shows(machine: Machine) -> None:
    text = block_with("fairlead run")
    subprocess.run(["git", "init", "-q", "."], cwd=machine.project, env=machine.env, check=True)
    (machine.project / "plan.md").write_text("The deadline is on Friday.\n")
    (machine.project / "other.md").write_text("Nothing here.\n")
    env = {key: value for key, value in machine.env.items() if key != "FAIRLEAD_BUILTINS"}
    export, run = (line.removeprefix("$ ") for line in text.splitlines())
    (address,) = re.findall(r"http://localhost:11434", export)

    def called(body: dict[str, Any]) -> Reply:
        (name,) = [name for name in tool_names("openai", body) if "ripgrep" in name]
        return says("openai", calls=[("c1", name, {"query": "deadline"})])

    with serving(called, says("openai", "Only plan.md does.")) as api:
        fairlead = shlex.split(run)[0]
        script = "\n".join(
            (
                f'{fairlead}() {{ {shlex.quote(sys.executable)} -m fairlead "$@"; }}',
                export.replace(address, api.url),
                run,
            )
        )
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=machine.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Only plan.md does.\n"
    assert "ripgrep  " in done.stderr
    assert api.bodies[0]["model"] == "llama3.2"
    assert api.bodies[0]["messages"][-1]["content"] == "Which files mention a deadline?"
    result = results_in("openai", api.bodies[1])["c1"]
    assert "plan.md" in result
    assert "other.md" not in result


@pytest.mark.slow
async def test_the_console_goes_as_the_readme_shows(machine: Machine) -> None:
    command, *typed = block_with("fairlead console").splitlines()
    assert command == "$ fairlead console"
    lines = [re.sub(r"\s{2,}#.*$", "", line.removeprefix("> ")) for line in typed]
    states, tools, call, prompt, question = lines
    text = {"type": "string"}
    zone = {"type": "object", "properties": {"timezone": text}, "required": ["timezone"]}
    replies = (
        says("openai", "Take a coat."),
        says("openai", calls=[("c1", "time.get_current_time", {"timezone": "Europe/Oslo"})]),
        says("openai", "It says to buy milk."),
    )
    with serving(*replies) as api:
        servers = {
            "time": entry(machine, "time", tools=[{"name": "get_current_time", "inputSchema": zone}]),
            "github": entry(
                machine,
                "github",
                tools=[
                    {
                        "name": "create_issue",
                        "description": "Open a new issue.",
                        "inputSchema": {"type": "object", "properties": {"title": text}},
                    }
                ],
            ),
            "everything": entry(
                machine,
                "everything",
                prompts=[{"name": "args-prompt", "arguments": [{"name": "city", "required": True}]}],
                completions={},
            ),
            "notes": entry(machine, "notes", resources=[{"uri": "memo://today", "name": "today"}]),
        }
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1"}
        machine.write_user(json.dumps({"servers": servers, "model": model}))
        async with tmux_console(machine) as screen:
            await screen.shows("4 ready")
            await screen.type(f"{states}\n")
            await screen.shows(re.compile(r"github +stdio +user +yes +ready +1"))
            await screen.type(f"{states} github\n")
            await screen.shows("github is listening")
            await screen.type(f"{tools}\n")
            await screen.shows("Open a new issue.")
            await screen.type(f"{call}\n")
            await screen.shows(re.compile(r'"timezone": ?"Europe/Berlin"'))
            begun = prompt.removesuffix("slo")
            await screen.type(begun)
            await screen.key("Tab")
            await screen.shows(re.compile(rf"^> {re.escape(prompt)}$", re.MULTILINE))
            await screen.type("\n")
            await screen.shows("Take a coat.")
            await screen.type(f"{question}\n")
            await screen.shows("An agent wants to call `get_current_time` of `time`.")
            await screen.type("once\n")
            await screen.shows("It says to buy milk.")
            await screen.key("C-d")
            assert await screen.ends() == 0
    assert api.bodies[0]["messages"][-1]["content"] == "What is the weather in Oslo?"
    asked = str(api.bodies[1]["messages"][-1]["content"])
    assert "Buy milk." in asked
    assert question in asked
    assert "Europe/Oslo" in results_in("openai", api.bodies[2])["c1"]
