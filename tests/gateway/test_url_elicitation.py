"""Pages that a server has a person open: who is told that all is done there."""

from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
from mcp import Client

from fairlead.gateway.operator import MAX_PAGES, UrlElicitations
from fairlead.gateway.request_context import RequestContext
from fairlead.host.elicitation.urls import ShownUrl, show_url
from fairlead.host.operator import UrlRequest
from tests.gateway.support import HANDSHAKE, serving
from tests.host.asking import AskingServer, page


class Visitor:
    """A client whose person opens every page, and hears what becomes of it."""

    def __init__(self, url: str) -> None:
        self.given: list[str | None] = []
        self.completed: list[str] = []
        self.told = anyio.Event()
        self.client = Client(
            url, mode="legacy", elicitation_callback=self._elicit, message_handler=self._handle
        )

    async def _elicit(self, context: Any, params: Any) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        self.given.append(params.elicitation_id)
        return types.ElicitResult(action="accept")

    async def _handle(self, message: Any) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            self.completed.append(message.params.elicitation_id)
            self.told.set()


async def test_only_who_was_given_a_page_hears_that_all_is_done_there(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with serving(tmp_path, a=server.entry()) as served:
        first, second = Visitor(f"{served.url}/mcp"), Visitor(f"{served.url}/mcp")
        async with first.client, second.client:
            for visitor in (first, second):  # each with a process of its own, which calls the page the same
                await visitor.client.call_tool("a_ask", {"questions": {"q": page(elicitation_id="e1")}})
            await first.client.call_tool("a_complete", {"elicitationId": "unknown"})
            await first.client.call_tool("a_complete", {"elicitationId": "e1"})
            with anyio.fail_after(20):
                await first.told.wait()
            await first.client.call_tool("a_complete", {"elicitationId": "e1"})
            await second.client.call_tool("a_echo", {})
            assert second.completed == []
            await second.client.call_tool("a_complete", {"elicitationId": "e1"})
            with anyio.fail_after(20):
                await second.told.wait()
    assert first.completed == first.given
    assert second.completed == second.given
    assert first.given != second.given


async def test_a_page_that_must_be_visited_first_is_told_of_as_well(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with serving(tmp_path, a=server.entry()) as served:
        visitor = Visitor(f"{served.url}/mcp")
        wanted = {"pages": [page(elicitation_id="e1")["params"]], "done": True}
        async with visitor.client as client:
            called = await client.call_tool("a_pages", wanted)
            assert "carried out" in str(called.content)
    assert len(visitor.given) == 1


def test_pages_are_not_remembered_without_end() -> None:
    pages, turn, url = UrlElicitations(), cast("RequestContext", object()), show_url("https://example.com")
    assert isinstance(url, ShownUrl)
    names = [
        pages.register(turn, UrlRequest(server_id="a", message="", url=url, elicitation_id=f"e{number}"))
        for number in range(MAX_PAGES + 1)
    ]
    assert pages.take_completed("a", "e0") == []
    assert pages.take_completed("b", "e1") == []
    assert pages.take_completed("a", "e1") == [(turn, names[1])]
    assert pages.take_completed("a", "e1") == []
    pages.register(turn, UrlRequest(server_id="a", message="", url=url))  # which nobody will hear of
