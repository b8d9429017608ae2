"""The server that the examples are run with answers as the real one does, but for the time."""

import json
from typing import Any

import pytest

from fairlead import Host
from tests.conftest import Machine
from tests.real.servers import PYTHON_BIN


async def seen() -> Any:
    """What the server called `time` offers and answers, without what varies or is only described."""
    async with Host.open() as host:
        tools = {
            tool.name: (list(tool.input_schema["properties"]), tool.input_schema["required"])
            for tool in await host.tools_of("time")
        }
        result = await host.call("time.get_current_time", timezone="Asia/Tokyo")
        answer: dict[str, Any] = json.loads(result.text)
        assert result.structured == answer
        assert result.text == json.dumps(answer, indent=2)
        shape = {key: type(value).__name__ for key, value in answer.items()}
        return tools, shape, answer["datetime"][-6:]


@pytest.mark.usefixtures("time_server")
async def test_the_example_server_answers_as_the_real_one(machine: Machine) -> None:
    program = PYTHON_BIN / "mcp-server-time"
    if not program.exists():
        pytest.skip("mcp-server-time is not installed: run tests/tools/install-servers")
    imitated = await seen()
    entry = {"command": str(program), "args": ["--local-timezone", "UTC"], "trust": "trusted"}
    machine.write_user(
        json.dumps({"servers": {"time": {**entry, "allow_tools": ["*"], "approval": "allow"}}})
    )
    assert await seen() == imitated
