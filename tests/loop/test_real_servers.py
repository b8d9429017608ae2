"""A task of three steps over real servers, by other people."""

from typing import Any

import anyio
import pytest

from fairlead.loop.events import ToolCalled, ToolReturned
from fairlead.loop.provider import Provider
from tests.conftest import Machine
from tests.loop.model_server import Reply, results_in, says, serving, tool_names
from tests.loop.support import PROVIDERS, ending, of_kind, played
from tests.real.servers import NPM_BIN, everything, filesystem, open_host

pytestmark = pytest.mark.skipif(
    not NPM_BIN.is_dir(), reason="the real servers are not installed: run tests/tools/install-servers"
)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_model_works_with_two_real_servers(machine: Machine, provider: Provider) -> None:
    summed, written = machine.project / "sum.txt", [""]
    servers = {server.server_id: server.entry for server in (everything(machine), filesystem(machine))}

    def calls(body: dict[str, Any], call_id: str, tool: str, **arguments: Any) -> Reply:
        name = next(name for name in tool_names(provider, body) if tool in name)
        return says(provider, calls=[(call_id, name, arguments)])

    def first(body: dict[str, Any]) -> Reply:
        return calls(body, "c1", "get-sum", a=17, b=25)

    def second(body: dict[str, Any]) -> Reply:
        text = results_in(provider, body)["c1"]
        assert "42" in text
        return calls(body, "c2", "write_file", path=str(summed), content=text)

    def third(body: dict[str, Any]) -> Reply:
        written.append(results_in(provider, body)["c2"])
        return says(provider, "The sum is in the file.")

    with anyio.fail_after(60), serving(first, second, third) as api:
        async with open_host(machine, servers) as host:
            await host.connect_all()
            events = await played(host.tools, api.model(provider), "add 17 and 25 and keep the sum")
    assert "42" in summed.read_text(encoding="utf-8")
    assert "Success" in written[-1]
    assert ending(events).outcome == "finished"
    assert [event.tool for event in of_kind(events, ToolCalled)] == [
        "everything/get-sum",
        "filesystem/write_file",
    ]
    assert not any(event.result.is_error for event in of_kind(events, ToolReturned))
