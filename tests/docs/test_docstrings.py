"""The examples in the public docstrings are run."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pydantic
import pytest

import fairlead
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


EXAMPLES = list(documented(fairlead, set()))


def test_the_main_entrances_have_examples() -> None:
    names = {name for name, _ in EXAMPLES}
    assert {"HostOpening", "EventStream", "ToolEntry", "ToolResult", "Host.call", "SyncHost", "open"} <= names


@pytest.mark.blocks_loop
@pytest.mark.usefixtures("time_server")
@pytest.mark.parametrize(("name", "block"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
async def test_an_example_in_a_docstring_runs(name: str, block: str) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block, name, "exec", flags=flags)

    class CurrentTime(pydantic.BaseModel):
        timezone: str
        hour: int

    with anyio.fail_after(SECONDS):
        async with Host.open() as host:
            result = await host.call("time.get_current_time", timezone="UTC")
            public = {each: getattr(fairlead, each) for each in fairlead.__all__ if each != "open"}
            given: dict[str, Any] = {
                "host": host,
                "result": result,
                "CurrentTime": CurrentTime,
                "fairlead": fairlead,
                "pydantic": pydantic,
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
