"""A wrong type passed to a public function is refused in a sentence, and nothing is sent."""

import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import Callbacks, Host, McpServer, ToolDefinition, ToolModel, discover_config_path, load_config
from fairlead.errors import FairleadError, WrongType
from fairlead.host.extensions import ExtensionMessages
from fairlead.host.model.toolset import Toolset
from fairlead.host.offers.prompts import Prompts
from fairlead.host.offers.resources import Resources
from fairlead.host.offers.tasks import Tasks
from fairlead.host.records import Artifacts
from tests.conftest import Machine
from tests.gateway.test_tools import scripted
from tests.host.support import hosting, unasked

pytestmark = pytest.mark.requirement("HARD-88")

SENTENCE = re.compile(r"`[\w.]+` takes .* as `[\w.]+`, not .*; nothing was done")
NO_TEXTS: list[Any] = [None, 5, b"a", ["a"], {}, object(), True, ("a", "b"), {"a"}]


def calls_of(host: Any, wrong: Any) -> dict[str, Callable[[], Any]]:
    """Every public function with a wrong type in one place."""
    tools: Any = host.tools
    return {
        "call, server": lambda: host.call(wrong, "echo"),
        "call, tool": lambda: host.call("a", wrong),
        "call, principal": lambda: host.call("a", "echo", {}, principal=wrong),
        "propose, server": lambda: host.propose(wrong, "echo", None, "local"),
        "propose, tool": lambda: host.propose("a", wrong, None, "local"),
        "connect": lambda: host.connect("a", wrong),
        "retry": lambda: host.retry(wrong),
        "require": lambda: host.require([wrong]),
        "close": lambda: host.close(wrong),
        "remove": lambda: host.remove(wrong),
        "add": lambda: host.add(wrong),
        "reload": lambda: host.reload(wrong),
        "configured": lambda: host.configured(wrong),
        "listing": lambda: host.listing(wrong),
        "tools_of": lambda: host.tools_of(wrong),
        "list_now": lambda: host.list_now(wrong),
        "offers": lambda: host.offers(wrong),
        "describe": lambda: host.describe(wrong),
        "skills": lambda: host.skills(wrong),
        "allow, server": lambda: host.allow(wrong, "echo"),
        "allow, tool": lambda: host.allow("a", wrong),
        "allow_for_session": lambda: host.allow_for_session("a", wrong),
        "toolset, principal": lambda: host.toolset(principal=wrong),
        "tools.call": lambda: tools.call(wrong),
        "tools.get": lambda: tools.get(wrong),
        "tools.search, server": lambda: tools.search("echo", server=wrong) if wrong is not None else None,
        "tools.for_openai": lambda: tools.for_openai(api=wrong),
        "resources.read, server": lambda: host.resources.read(wrong, "file:///a"),
        "resources.read, uri": lambda: host.resources.read("a", wrong),
        "resources.complete": lambda: host.resources.complete("a", wrong, "x"),
        "resources.watch": lambda: host.resources.watch("a", wrong),
        "prompts.get, server": lambda: host.prompts.get(wrong, "p"),
        "prompts.get, name": lambda: host.prompts.get("a", wrong),
        "prompts.get, an argument": lambda: host.prompts.get("a", "p", {"x": wrong}),
        "prompts.complete": lambda: host.prompts.complete("a", "p", wrong),
        "prompts.complete, value": lambda: host.prompts.complete("a", "p", "x", wrong),
        "tasks.begin": lambda: host.tasks.begin("a", wrong),
        "tasks.get": lambda: host.tasks.get("a", wrong),
        "tasks.result": lambda: host.tasks.result(wrong, "id"),
        "tasks.cancel": lambda: host.tasks.cancel("a", wrong),
        "tasks.list": lambda: host.tasks.list(wrong),
        "tasks.known": lambda: host.tasks.known(wrong),
        "custom.declares": lambda: host.custom.declares("a", wrong),
        "custom.request": lambda: host.custom.request("a", "x", wrong),
        "custom.notify": lambda: host.custom.notify(wrong, "x", "m"),
        "artifacts.read": lambda: host.artifacts.read(wrong),
        "artifacts.whole": lambda: host.artifacts.whole(wrong),
    }


async def refuse(call: Callable[[], Any]) -> WrongType:
    async def make() -> None:
        made = call()
        if inspect.isawaitable(made):
            await made

    with pytest.raises(WrongType) as refused:
        await make()
    return refused.value


async def test_wrong_types_are_refused_in_a_sentence_by_every_public_function(
    machine: Machine, tmp_path: Path
) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        await host.list_now("a")
        before = server.notes("received")
        for wrong in NO_TEXTS:
            for name, call in calls_of(host, wrong).items():
                if name == "tools.search, server" and wrong is None:
                    continue
                error = await refuse(call)
                assert isinstance(error, TypeError), name
                assert error.delivery == "not_sent", name
                assert re.fullmatch(r"`[\w.]+` takes .* as `[\w.]+`, not .*; nothing was done", str(error)), (
                    name
                )
        assert server.notes("received") == before
        assert not (await host.call("a", "echo")).is_error


FALSY: list[Any] = [0, "", [], (), False, set(), 0.0]


@pytest.mark.parametrize("falsy", FALSY)
async def test_falsy_arguments_are_not_taken_for_none(machine: Machine, tmp_path: Path, falsy: Any) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        await host.call("a", "echo")
        begun = server.calls("echo")
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: host.call("a", "echo", falsy),
            lambda: host.tasks.begin("a", "echo", falsy),
            lambda: host.tools.call("a.echo", falsy),
            lambda: host.prompts.get("a", "p", falsy),
            lambda: host.custom.request("a", "x", "m", falsy),
        ]
        for call in calls:
            with pytest.raises(FairleadError, match=r"mapping|object"):
                await call()
        assert server.calls("echo") == begun


async def test_a_model_reads_what_is_wrong_with_its_call(machine: Machine, tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        await host.list_now("a")
        for tools in (await host.tools.for_openai(), await host.tools.for_anthropic()):
            name: Any = tools.tools[0].name
            for wrong in (*NO_TEXTS, *FALSY):
                call: Any = tools.call
                assert (await call(wrong)).is_error or wrong == ""
                if wrong is not None and wrong != {}:
                    assert (await call(name, wrong)).is_error


@pytest.mark.parametrize(
    "options",
    [
        {"on_progress": "print"},
        {"max_structured_bytes": "5"},
        {"max_structured_bytes": True},
        {"groups": ["team"]},
        {"groups": "team"},
        {"bundle_filter": "bundle"},
        {"default_mode": "yes"},
        {"default_mode": True},
    ],
)
async def test_wrong_options_of_a_call_are_refused_unsent(
    machine: Machine, tmp_path: Path, options: Any
) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        await host.call("a", "echo")
        with pytest.raises(WrongType):
            await host.call("a", "echo", {}, **options)
        assert server.calls("echo") == 1


@pytest.mark.parametrize(
    "given",
    [
        {"config": {"servers": {}}},
        {"config": "fairlead.json"},
        {"path": 5},
        {"overrides": []},
        {"overrides": '{"servers": {}}'},
        {"overrides": {1: {}}},
        {"env": {"A": 1}},
        {"env": ["A=1"]},
        {"cwd": 7},
        {"servers": ["greeter"]},
        {"servers": {"greeter": {"command": "x"}}},
        {"servers": {"greeter": "x"}},
        {"operator": None},
        {"operator": print},
        {"operator": Callbacks},
        {"capabilities": {"x": {}}},
        {"auth_providers": []},
        {"auth_providers": {"corp": "token"}},
        {"auth_providers": {"corp": print}},
        {"auth_providers": {"corp": None}},
        {"subscriber": print},
    ],
)
async def test_a_host_is_not_opened_with_wrong_types(machine: Machine, given: Any) -> None:
    with pytest.raises(WrongType, match=r"`Host\.open` takes") as refused:
        async with Host.open(**{"env": machine.env, "cwd": machine.project} | given):
            pass
    assert "config" not in given or "overrides" in (refused.value.hint or "")


def test_configurations_are_not_loaded_from_wrong_types(machine: Machine) -> None:
    load: Any = load_config
    discover: Any = discover_config_path
    for given in ({"path": 1}, {"overrides": 1}, {"env": 1}, {"cwd": 1}, {"scope": "x"}, {"path": b"x"}):
        with pytest.raises(WrongType, match="`load_config` takes"):
            load(**{"env": machine.env} | given)
    for given in ({"cwd": 1}, {"env": "x"}):
        with pytest.raises(WrongType, match="`discover_config_path` takes"):
            discover(**given)
    assert discover_config_path(str(machine.project), machine.env) is None
    loaded: Any = load_config(env=machine.env, cwd=machine.project)
    for wrong in NO_TEXTS:
        with pytest.raises(WrongType):
            loaded.server(wrong)


class Nothing(ToolModel):
    pass


async def do_nothing(_context: object, _given: Nothing) -> Nothing:
    return Nothing()


@pytest.mark.parametrize(
    "given",
    [
        {"name": None},
        {"name": ""},
        {"name": 5},
        {"description": None},
        {"title": 5},
        {"input": dict},
        {"input": Nothing()},
        {"output": None},
        {"handler": None},
        {"handler": "do"},
    ],
)
def test_a_tool_that_could_not_be_called_is_not_registered(given: Any) -> None:
    sound: Any = {
        "name": "x",
        "description": "",
        "input": Nothing,
        "output": Nothing,
        "handler": do_nothing,
    }
    server: Any = McpServer("mine")
    server.register(ToolDefinition(**sound))
    with pytest.raises(WrongType, match="cannot be registered"):
        server.register(ToolDefinition(**sound | {"name": "y"} | given))
    for wrong in (None, "x", do_nothing, sound):
        with pytest.raises(WrongType):
            server.register(wrong)
    for wrong in (None, "", 5):
        with pytest.raises(WrongType):
            McpServer(wrong)  # pyright: ignore[reportArgumentType]
    assert len(server.tools) == 1


@pytest.mark.parametrize("answer", [None, False, True, "yes", "", 1, "Once", ["once"]])
async def test_only_the_answers_there_are_permit_a_call(
    machine: Machine, tmp_path: Path, answer: Any
) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])

    async def approve(_question: object) -> Any:
        return answer

    given = unasked({"a": {**server.entry(), "approval": "ask"}})
    async with Host.open(
        overrides=given, env=machine.env, cwd=machine.project, operator=Callbacks(on_approve=approve)
    ) as host:
        with pytest.raises(WrongType, match="was not called"):
            await host.call("a", "echo")
    assert server.calls("echo") == 0


async def test_callbacks_are_async_functions(machine: Machine, tmp_path: Path) -> None:
    for wrong in ("x", 5, object()):
        with pytest.raises(WrongType, match="on_approve"):
            Callbacks(on_approve=wrong)  # pyright: ignore[reportArgumentType]
    server = scripted(tmp_path, "a", tools=["echo"])
    operator: Any = Callbacks(on_approve=lambda _question: "once")  # pyright: ignore[reportArgumentType]
    given = unasked({"a": {**server.entry(), "approval": "ask"}})
    async with Host.open(overrides=given, env=machine.env, cwd=machine.project, operator=operator) as host:
        with pytest.raises(WrongType, match="cannot be awaited") as refused:
            await host.call("a", "echo")
    assert "async def" in (refused.value.hint or "")
    assert server.calls("echo") == 0


def test_every_public_function_that_takes_a_servers_id_checks_it() -> None:
    inline = {"Host.call", "Host.is_untrusted", "Host.is_trusted", "Host.propose", "Host.login_hint"}
    inline |= {"Host.statuses_besides", "Tasks.begin"}
    for kind in (Host, Toolset, Resources, Prompts, Tasks, ExtensionMessages, Artifacts):
        for name, function in inspect.getmembers(kind, callable):
            if name.startswith("_") or f"{kind.__name__}.{name}" in inline:
                continue
            taken = inspect.signature(function).parameters
            if {"server_id", "server_ids", "uri", "handle"} & {*taken}:
                assert hasattr(function, "__wrapped__"), f"{kind.__name__}.{name} is not checked"
    assert set(fairlead.__all__) == set(dir(fairlead))
