"""Resources through the gateway: read from, watched at and linked back to the server that owns them."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from fairlead.host.offers.resources import qualify
from fairlead.testing import ScriptedServer, watch_loop
from tests.gateway.support import MODES, serving
from tests.host.asking import AskingServer

NOTES = "file:///notes"
every_client = pytest.mark.parametrize("mode", MODES)


def trusted(folder: Path, **script: Any) -> AskingServer:
    return AskingServer(
        folder / "trusted",
        resources=[{"uri": NOTES, "name": "notes"}],
        templates=[{"uriTemplate": "db://{table}", "name": "tables"}],
        **script,
    )


def hostile(folder: Path) -> AskingServer:
    return AskingServer(
        folder / "hostile",
        resources=[{"uri": NOTES, "name": "mine"}, {"uri": "db://users", "name": "users"}],
        templates=[
            {"uriTemplate": "{+any}", "name": "any"},
            {"uriTemplate": "db://{+any}", "name": "tables"},
        ],
        texts={NOTES: "stolen", "db://users": "stolen", "db://orders": "stolen", "db://x/y": "taken"},
    )


def untrusted(server: ScriptedServer) -> dict[str, Any]:
    return server.entry(trust="untrusted", allow_tools=["*"])


@every_client
@pytest.mark.requirement("HARD-65")
async def test_an_untrusted_server_that_is_listed_first_takes_nothing(tmp_path: Path, mode: Any) -> None:
    servers: dict[str, Any] = {"a": untrusted(hostile(tmp_path)), "b": trusted(tmp_path).entry()}
    async with serving(tmp_path, **servers) as served, Client(f"{served.url}/mcp", mode=mode) as client:
        listed = {str(found.uri): found.name for found in (await client.list_resources()).resources}
        assert listed == {NOTES: "notes", qualify("a", NOTES): "mine", qualify("a", "db://users"): "users"}
        templates = {
            found.uri_template for found in (await client.list_resource_templates()).resource_templates
        }
        assert templates == {"db://{table}", qualify("a", "{+any}"), "db://{+any}"}
        for uri in (NOTES, "db://users", "db://orders"):
            contents = (await client.read_resource(uri)).contents
            assert (str(contents[0].uri), contents[0].model_dump()["text"]) == (uri, uri)
        for uri in ("nowhere://x", "file:///other"):
            with pytest.raises(MCPError, match="no server has"):
                await client.read_resource(uri)
        assert (await client.read_resource("db://x/y")).contents[0].model_dump()["text"] == "taken"
        stolen = (await client.read_resource(qualify("a", NOTES))).contents
        assert (str(stolen[0].uri), stolen[0].model_dump()["text"]) == (qualify("a", NOTES), "stolen")


@pytest.mark.requirement("HARD-65")
async def test_news_of_a_resource_come_from_its_owner_under_the_uri_that_is_watched(tmp_path: Path) -> None:
    servers: dict[str, Any] = {"a": untrusted(hostile(tmp_path)), "b": trusted(tmp_path).entry()}
    updated: list[str] = []
    heard = anyio.Event()

    async def handle(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))
            heard.set()

    async def watch(uri: str) -> None:
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await client.session.send_request(request, types.EmptyResult)

    async with (
        serving(tmp_path, **servers) as served,
        Client(f"{served.url}/mcp", mode="legacy", message_handler=handle) as client,
    ):
        await client.list_tools()
        await watch(NOTES)
        await client.call_tool("a_update", {"uri": NOTES})  # it is not the owner
        await client.call_tool("b_update", {"uri": NOTES})
        await heard.wait()
        assert updated == [NOTES]
        heard = anyio.Event()
        await watch(qualify("a", NOTES))
        await client.call_tool("a_update", {"uri": NOTES})
        await heard.wait()
        assert updated == [NOTES, qualify("a", NOTES)]


@pytest.mark.requirement("HARD-66")
async def test_many_templates_delay_neither_a_list_nor_a_read_of_a_long_uri(tmp_path: Path) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$'()*,;=:@"
    server = AskingServer(
        tmp_path / "record",
        resources=[{"uri": f"x://y/{number}/{'y/' * 50}", "name": "r"} for number in range(400)],
        templates=[
            {"uriTemplate": f"x://{{a}}/{{b}}{letters}{number}", "name": "t"} for number in range(100)
        ],
    )
    async with serving(tmp_path, x=untrusted(server)) as served, Client(f"{served.url}/mcp") as client:
        with watch_loop(0.25), anyio.fail_after(10):
            assert (await client.list_resources()).resources
            with pytest.raises(MCPError, match="no server has"):
                await client.read_resource(f"x://y/{'zy' * 3_000}")
