"""The examples in the public docstrings are run."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pydantic
import pytest

import fairlead
import fairlead.adapters
import fairlead.testing
from fairlead import Host

pytestmark = pytest.mark.requirement("HARD-88")

SECONDS = 60


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def documented(module: Any, seen: set[int]) -> Iterator[tuple[str, str]]:
    """The examples in the docstrings of public classes and functions, and of their methods."""
    for name in module.__all__:
        value = getattr(module, name)
        found = [(name, value)]
        if inspect.isclass(value):
            found += [(f"{name}.{key}", each) for key, each in vars(value).items() if not key.startswith("_")]
        for path, each in found:
            each = getattr(each, "__func__", each)
            if id(each) not in seen and (text := getattr(each, "__doc__", None)):
                seen.add(id(each))
                for block in blocks_of(inspect.cleandoc(text)):
                    yield path, block


SEEN = set[int]()
EXAMPLES = [
    pytest.param(module, name, block, id=f"{module.__name__}.{name}".removeprefix("fairlead."))
    for module in (fairlead, fairlead.adapters, fairlead.testing)
    for name, block in documented(module, SEEN)
]


def test_the_main_entrances_have_examples() -> None:
    names = {each.id for each in EXAMPLES}
    assert {"HostOpening", "EventStream", "ToolEntry", "ToolResult", "Host.call", "SyncHost", "open"} <= names
    assert {"testing.ScriptedServer", "testing.write_tree"} <= names


@pytest.mark.blocks_loop
@pytest.mark.usefixtures("time_server")
@pytest.mark.parametrize(("module", "name", "block"), EXAMPLES)
async def test_an_example_in_a_docstring_runs(module: Any, name: str, block: str, tmp_path: Path) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block, name, "exec", flags=flags)

    class CurrentTime(pydantic.BaseModel):
        timezone: str
        datetime: str
        day_of_week: str
        is_dst: bool

    with anyio.fail_after(SECONDS):
        async with Host.open() as host:
            result = await host.call("time.get_current_time", timezone="UTC")
            public = {
                each: getattr(origin, each)
                for origin in (fairlead, module)
                for each in origin.__all__
                if each != "open"
            }
            given: dict[str, Any] = {
                "host": host,
                "result": result,
                "CurrentTime": CurrentTime,
                "fairlead": fairlead,
                "pydantic": pydantic,
                "tmp_path": tmp_path,
            }
            scope = public | given
            if not inspect.CO_COROUTINE & code.co_flags:
                await anyio.to_thread.run_sync(exec, code, scope)
                return
            begun: Any = eval(code, scope)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: begun)
                await host.call("time.get_current_time", timezone="UTC")
                if "host.events()" in block:
                    await host.aclose()  # which ends the events
