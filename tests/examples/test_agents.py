"""The programs in `examples/`, each run as it is, with a scripted model behind its provider's real client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.examples.scripted_model import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    RESPONSES,
    Api,
    ScriptedModel,
    scripted_model,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENTS = {
    "openai_agent": RESPONSES,
    "anthropic_agent": ANTHROPIC,
    "gemini_agent": GEMINI,
    "langchain_agent": CHAT,
    "pydantic_ai_agent": CHAT,
    "plain_agent": CHAT,
}


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*AGENTS}


def run_agent(
    machine: Machine, name: str, model: ScriptedModel, answers: str
) -> "subprocess.CompletedProcess[str]":
    env = machine.env | {
        "MODEL": "m",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{model.url}/v1",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": model.url,
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": model.url,
    }
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "Echo", "it."],
        env=env,
        cwd=machine.project,
        input=answers,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def server(machine: Machine, tmp_path: Path) -> ScriptedServer:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "pid", "fail"])
    approval = {"default": "allow", "tools": {"pid": "ask"}}
    machine.write_user(json.dumps({"servers": {"x": server.entry(approval=approval)}}))
    return server


@pytest.mark.slow
@pytest.mark.parametrize(("name", "api"), AGENTS.items())
def test_an_agent_calls_tools_asks_the_user_and_goes_on_after_a_no(
    machine: Machine, server: ScriptedServer, name: str, api: Api
) -> None:
    with scripted_model(api, ("echo", {"word": "blue"}), ("pid", {}), ("fail", {}), "It is done.") as model:
        done = run_agent(machine, name, model, "no\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("It is done.\n")
    first, second, third, last = (json.dumps(body) for body in model.bodies)
    assert "Echo it." in first
    assert "blue" in second  # the result of the first call
    assert "denied" in third
    assert "it failed" in last
    assert (server.calls("echo"), server.calls("pid"), server.calls("fail")) == (1, 0, 1)
    assert "x.pid" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "api"), AGENTS.items())
def test_the_user_can_end_the_whole_run(
    machine: Machine, server: ScriptedServer, name: str, api: Api
) -> None:
    with scripted_model(api, ("pid", {}), "never said") as model:
        done = run_agent(machine, name, model, "cancel\n")
    assert done.returncode == 1, done.stderr
    assert done.stderr.endswith("cancelled\n")
    assert len(model.bodies) == 1
    assert server.calls("pid") == 0
