"""Arguments that are no JSON are refused as such, before anything is sent."""

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fairlead.adapters.openai import openai_arguments
from fairlead.errors import ArgumentsInvalid
from fairlead.host.host import Host
from fairlead.terminal.arguments import read_argument, read_document
from tests.conftest import Machine
from tests.gateway.test_tools import scripted
from tests.host.support import hosting

pytestmark = pytest.mark.requirement("HARD-87")


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["x"] = value
    return value


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(20_000):
        value = {"a": value}
    return value


def cyclic_list() -> dict[str, Any]:
    value: list[Any] = []
    value.append(value)
    return {"x": value}


ODD: dict[str, Callable[[], Any]] = {
    "half of a surrogate pair": lambda: {"x": "\ud83d"},
    "surrogate of a byte": lambda: {"x": "caf\udce9"},
    "surrogate as a key": lambda: {"\udce9": 1},
    "surrogate within": lambda: {"x": [{"y": "\udfff"}]},
    "NaN": lambda: {"x": float("nan")},
    "infinity": lambda: {"x": float("inf")},
    "negative infinity within": lambda: {"x": [{"y": -float("inf")}]},
    "NaN in a tuple": lambda: {"x": (1.0, float("nan"))},
    "NaN beside null": lambda: {"x": None, "y": float("nan")},
    "object": lambda: {"x": object()},
    "path": lambda: {"x": Path("a")},
    "type": lambda: {"x": int},
    "function": lambda: {"x": print},
    "complex": lambda: {"x": 1j},
    "generator": lambda: {"x": (number for number in range(3))},
    "key None": lambda: {"x": {None: 1}},
    "key a tuple": lambda: {"x": {(1, 2): 1}},
    "cyclic": cyclic,
    "cyclic list": cyclic_list,
    "deep": deep,
    "list": lambda: [1],
    "text": lambda: "abc",
    "pairs": lambda: (("a", 1),),
    "number": lambda: 5,
    "true": lambda: True,
}
SOUND: list[Any] = [None, {}, {"x": "😀"}, {"x": "\0"}, {"x": [None, 1e308]}, MappingProxyType({"a": 1})]


@pytest.mark.parametrize("approval", ["allow", "ask"])
async def test_arguments_that_are_no_json_are_refused_unsent(
    machine: Machine, tmp_path: Path, approval: str
) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with hosting(machine, a={**server.entry(), "approval": approval}) as host:
        for _ in range(2):  # the second call of a tool goes by what is known from the first
            for arguments in SOUND:
                await host.call("a", "echo", arguments, confirmed=True)
        begun = server.calls("echo")
        for name, make in ODD.items():
            for call in (host.call, host.tasks.begin):
                with pytest.raises(ArgumentsInvalid) as refused:
                    await call("a", "echo", make(), confirmed=True)
                assert refused.value.delivery == "not_sent", name
                assert refused.value.hint, name
        assert server.calls("echo") == begun


async def test_timeouts_that_are_none_are_refused(machine: Machine, tmp_path: Path) -> None:
    async with hosting(machine, a=scripted(tmp_path, "a", tools=["echo"]).entry()) as host:
        for timeout in ("5", -1, float("nan"), float("inf"), True, [1]):
            with pytest.raises(ArgumentsInvalid, match="request_timeout_ms"):
                await _call(host, timeout)
        for timeout in (60_000, 60_000.0, None):
            await _call(host, timeout)


async def _call(host: Host, milliseconds: Any) -> None:
    await host.call("a", "echo", {}, request_timeout_ms=milliseconds)


@pytest.mark.parametrize(
    "text",
    ['{"x":"\\ud83d"}', '{"\\udc00":1}', '{"x":"caf\udce9"}', '{"x":NaN}', '{"x":' * 20_000 + "1"],
)
def test_the_command_line_says_what_is_wrong_with_arguments(text: str) -> None:
    with pytest.raises(ValueError, match=r"UTF-8|surrogate|JSON|nested"):
        read_document(text)
    with pytest.raises(ValueError, match=r"UTF-8|surrogate|JSON|nested"):
        read_argument(f"x:={text}", {})


def test_a_value_that_is_not_utf_8_is_refused_on_the_command_line() -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        read_argument("x=\udce9", {})
    assert read_argument("x=é", {}) == ("x", "é")
    assert read_document(json.dumps({"x": "😀"})) == {"x": "😀"}


def test_deep_arguments_of_a_function_call_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested"):
        openai_arguments('{"x":' + "[" * 100_000 + "]" * 100_000 + "}")
