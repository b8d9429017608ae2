"""Routes of the pages with forms: change servers and tokens, review and try tools."""

from typing import Protocol

from starlette.routing import Route

from fairlead.web.host_panel import HostPanel
from fairlead.web.page_request import Answer
from fairlead.web.pages import agents, approve, bundles, imports, review, reviews, server_edit, tokens, tool


class RouteFactory(Protocol):
    """Makes the route of a page for people who are logged in."""

    def __call__(
        self,
        path: str,
        get: Answer | None = None,
        post: Answer | None = None,
        *,
        has_arguments: bool = False,
    ) -> Route:
        """The route, with the answers to reading it and to its forms, which may have arguments of a tool."""
        ...


def working_pages(panel: HostPanel, route: RouteFactory) -> list[Route]:
    """Routes of these pages."""
    return [
        route("/add", server_edit.add(panel), server_edit.take_added(panel)),
        route("/agents", agents.show(panel), agents.act(panel)),
        route("/import", imports.show(panel), imports.take(panel)),
        route("/reviews", reviews.show(panel), reviews.decide(panel)),
        route("/tokens", tokens.show(panel), tokens.act(panel)),
        route("/tokens/bundles", bundles.show(panel), bundles.act(panel)),
        route("/tool", tool.one(panel), tool.call(panel), has_arguments=True),
        route("/servers/{server}/approve", approve.question(panel), approve.approve(panel)),
        route("/servers/{server}/edit", server_edit.edit(panel), server_edit.take_edited(panel)),
        route("/servers/{server}/remove", server_edit.confirm_removal(panel), server_edit.remove(panel)),
        route("/servers/{server}/review", review.review(panel), review.decide(panel)),
    ]
