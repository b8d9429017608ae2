"""Results of all sizes and shapes in other people's clients, which check them against the listed schemas."""

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Machine
from tests.gateway.exam_support import running_gateway
from tests.gateway.test_clients import (
    FASTMCP,
    INSPECTOR,
    INSTALLED,
    MARKED_ERAS,
    SCRIPTS,
    SDKS,
    VERSIONS,
    run,
)
from tests.gateway.test_results import BROKEN, LIMIT, OBJECT, SIZES, TEXT, entry, tool
from tests.gateway.test_results import HANDSHAKE as OLDER
from tests.gateway.test_results import MODERN as NEWER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.requirement("HARD-87"),
    pytest.mark.skipif(
        not all(path.exists() for path in INSTALLED),
        reason="no clients or no servers: run tests/tools/install and tests/tools/install-servers",
    ),
]

TOOL_IS_ERROR = 5
TASKS = Path(__file__).parent.parent / "fixtures" / "tasks_server.py"
ANY_VALUE = {"type": ["array", "number", "null", "boolean"]}
SIZED = {
    "small": (1_000, 1_000),
    "structured_large": (10, 61_000),
    "both_large": (61_000, 61_000),
    "text_cut": (300_000, 300_000),
    "below_limit": (10, LIMIT - 20),
    "above_limit": (10, LIMIT + 1),
    "both_huge": (2_500_000, LIMIT + 1),
}
SHAPES = {
    **{name: tool(SIZES["both"].format(text // 5, size), OBJECT) for name, (text, size) in SIZED.items()},
    **{f"broken_{name}": broken for name, broken in BROKEN.items()},
    "free_array": tool(f'{{{TEXT},"structuredContent":[1,2]}}'),
    "named": tool(f'{{{TEXT},"structuredContent":{{"resultType":"x"}}}}'),
    "price": tool(
        f'{{{TEXT},"structuredContent":{{"a":1.15}}}}',
        {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.01}}},
    ),
    "dated": tool(
        f'{{{TEXT},"structuredContent":{{"a":"2026-01-02"}}}}',
        {
            "type": "object",
            "properties": {"a": {"type": "string", "format": "date", "formatMinimum": "2020-01-01"}},
        },
    ),
    "pair": tool(
        f'{{{TEXT},"structuredContent":{{"a":["x",1]}}}}',
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}}
            },
        },
    ),
    "inherited": tool(
        f'{{{TEXT},"structuredContent":{{"a":1}}}}',
        {
            "type": "object",
            "dependentRequired": {"toString": ["b"]},
            "dependentSchemas": {"constructor": {"required": ["b"]}},
        },
    ),
}
MODERN_SHAPES = {
    "array": tool(f'{{{TEXT},"structuredContent":[1,2]}}', ANY_VALUE),
    "zero": tool(f'{{{TEXT},"structuredContent":0}}', ANY_VALUE),
    "absent": tool(f'{{{TEXT},"structuredContent":null}}', ANY_VALUE),
}


class Served:
    """A gateway with servers of both families, whose tools return the shapes."""

    def __init__(self, url: str, token: str, modern: bool) -> None:
        self.url = url
        self.token = token
        names = [f"{server}_{name}" for server in ("older", "newer") for name in SHAPES]
        names += [f"anything_{name}" for name in MODERN_SHAPES] if modern else []
        self.calls: list[dict[str, Any]] = [{"name": name, "arguments": {}} for name in names]
        self.calls.append({"name": "work_long", "arguments": {"text": "done"}})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    yield from _serve(tmp_path_factory, modern=False)


@pytest.fixture(scope="module")
def served_modern(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    yield from _serve(tmp_path_factory, modern=True)


def _serve(tmp_path_factory: pytest.TempPathFactory, *, modern: bool) -> Generator[Served]:
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    machine = Machine(
        home, project, {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    )
    (home / "any").mkdir()
    tasks = ["-I", "-S", str(TASKS), str(home / "tasks.json"), OLDER]
    anything = {"anything": entry(home / "any", NEWER, MODERN_SHAPES)} if modern else {}
    document = {
        "servers": {
            **anything,
            "older": entry(home, OLDER, SHAPES),
            "newer": entry(home, NEWER, SHAPES),
            "work": {"command": sys.executable, "args": tasks, "trust": "trusted"},
        },
        "gateway": {"mode": "direct"},
        "policy": {"approval": "allow"},
    }
    machine.write_user(json.dumps(document))
    with running_gateway(machine) as gateway:
        yield Served(gateway.url, gateway.token, modern)


def check(name: str, era: str, result: dict[str, Any]) -> None:
    """That the client took it is said by its being here: each of them raises what it would not take."""
    text = "".join(block.get("text", "") for block in result["content"])
    shape = name.partition("_")[2]
    is_error = bool(result.get("isError"))
    structured = result.get("structuredContent")
    if shape in ("above_limit", "both_huge"):
        assert is_error
        assert "artifact://" in text
    elif shape in SIZED:
        assert not is_error
        assert structured is not None
        assert len(structured["result"]) == SIZED[shape][1]
    elif shape.startswith("broken_"):
        assert is_error
        assert "hello" in text
    elif shape == "named":
        assert structured == {"resultType": "x"}
    elif name == "work_long":
        assert text == "done"
    elif shape == "absent":
        assert "hello" in text  # fields that are null do not come through every way
    else:
        assert not is_error
        assert "hello" in text
        is_older = VERSIONS[era] == OLDER
        if shape in ("array", "free_array"):
            assert (structured == [1, 2]) or (is_older and "[1,2]" in text)


def check_all(served: Served, era: str, said: dict[str, Any]) -> None:
    assert said["version"] == VERSIONS[era]
    for call, result in zip(served.calls, said["results"], strict=True):
        check(call["name"], era, result)


def arguments(served: Served, era: str) -> list[str]:
    return [served.url, served.token, era, json.dumps(served.calls)]


@pytest.mark.parametrize("era", MARKED_ERAS)
def test_the_python_sdk_takes_every_result(served: Served, era: str, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPTS / "python_sdk.py", *arguments(served, era)]
    check_all(served, era, run(command, cwd=tmp_path))


@pytest.mark.parametrize("era", MARKED_ERAS)
def test_fastmcp_takes_every_result(served: Served, era: str, tmp_path: Path) -> None:
    command = [FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *arguments(served, era)]
    check_all(served, era, run(command, cwd=tmp_path))


@pytest.mark.parametrize(
    ("script", "era"),
    [("typescript_1.mjs", "legacy"), ("typescript_2.mjs", "legacy"), ("typescript_2.mjs", "modern")],
)
def test_the_typescript_sdks_take_every_result(served: Served, script: str, era: str) -> None:
    command = ["node", "--input-type=module", "-", *arguments(served, era)]
    source = (SCRIPTS / script).read_text(encoding="utf-8")
    check_all(served, era, run(command, cwd=SDKS, script=source))


def test_clients_of_the_modern_protocol_take_structured_content_of_any_type(
    served_modern: Served, tmp_path: Path
) -> None:
    given = arguments(served_modern, "modern")
    commands = [
        [sys.executable, SCRIPTS / "python_sdk.py", *given],
        [FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *given],
    ]
    for command in commands:
        check_all(served_modern, "modern", run(command, cwd=tmp_path))
    source = (SCRIPTS / "typescript_2.mjs").read_text(encoding="utf-8")
    said = run(["node", "--input-type=module", "-", *given], cwd=SDKS, script=source)
    check_all(served_modern, "modern", said)


@pytest.mark.parametrize(
    ("era", "name"),
    [("legacy", "older_both_large"), ("modern", "newer_above_limit"), ("legacy", "older_broken_missing")],
)
def test_the_inspector_takes_results(served: Served, era: str, name: str, tmp_path: Path) -> None:
    header = ("--header", f"Authorization: Bearer {served.token}")
    command = [INSPECTOR, "--cli", served.url, *header, "--protocol-era", era, "--method", "tools/call"]
    # It prints the result, and says of one that is an error in its exit status that it is.
    status = 0 if name.endswith("_large") else TOOL_IS_ERROR
    options = ("--tool-name", name, "--format", "json", "-q")
    said = run([*command, *options], cwd=tmp_path, status=status)
    check(name, era, said.get("result", said))
