"""Replicas or workers of the gateway: address, state and load of each."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.actions.replicas import ReplicaCondition, ReplicaState, describe_seconds
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import code, live, outcome, page, plural, server_path, table
from fairlead.web.page_request import Answer, PageRequest

MOST_SERVERS: Final = 12
"""How many servers are named in a row. The rest is counted."""
_FATES: Final[dict[ReplicaCondition, str]] = {"ready": "ok", "not heard from": "failed"}
_MEANING: Final[dict[ReplicaCondition, str]] = {
    "not ready": "a required server is not ready",
    "draining": "it finishes its requests, and takes no new sessions",
    "not heard from": "its announcement ran out while the store does not answer",
    "other version": "its replica protocol is incompatible, so the two do not forward to each other",
}


def show(panel: HostPanel) -> Answer:
    """Page of all replicas, the oldest first."""

    async def answer(request: PageRequest) -> Response:
        replicas = panel.replicas()
        content = live("replicas", _all(panel, replicas) if replicas else _alone())
        return HTMLResponse(page(request, panel, "Replicas", content))

    return answer


def _alone() -> Html:
    return tag(
        "div",
        tag("h2", "This gateway is one process."),
        tag("p", "Several processes can act as one gateway, and are listed here then:"),
        tag(
            "ul",
            tag("li", "on one machine, one for each core: ", code("fairlead gateway --workers auto")),
            tag("li", "on several machines, with one Redis: ", code("fairlead gateway --store redis://…")),
        ),
        class_="card",
    )


def _all(panel: HostPanel, replicas: Sequence[ReplicaState]) -> Child:
    return (
        _figures(replicas),
        _warn_of_versions(replicas),
        _table(replicas, set(panel.server_ids())),
        tag(
            "p",
            "“Runs” names the shared servers whose one process a replica has; calls of the others go there.",
            class_="dim",
        ),
    )


def _figures(replicas: Sequence[ReplicaState]) -> Html:
    ready = sum(each.condition == "ready" for each in replicas)
    figures = (
        (f"{ready} of {len(replicas)}", "ready"),
        (f"{sum(each.requests for each in replicas):,}", "requests under way"),
        (f"{sum(each.requests_in_minute for each in replicas):,}", "requests in a minute"),
        (f"{sum(each.sessions for each in replicas):,}", "sessions"),
        (f"{sum(each.connections for each in replicas):,}", "connections"),
    )
    return tag(
        "ul", [tag("li", tag("b", number), tag("span", what)) for number, what in figures], class_="figures"
    )


def _warn_of_versions(replicas: Sequence[ReplicaState]) -> Html | None:
    versions = sorted({each.version for each in replicas})
    if len(versions) < 2:
        return None
    words = f"They run different versions: {', '.join(versions)}. Update all of them."
    return tag("p", words, class_="card attention")


def _table(replicas: Sequence[ReplicaState], known: set[str]) -> Html:
    columns = ("Replica", "State", "Version", "Up", "Requests", "Clients", "Machine", "Runs", "Last seen")
    rows = [
        (
            _name(each),
            _state(each),
            code(each.version),
            _lines(describe_seconds(each.uptime_seconds)),
            _lines(f"{each.requests:,} now", f"{each.requests_in_minute:,} in a minute"),
            _lines(plural(each.sessions, "session"), plural(each.connections, "connection")),
            _lines(f"{each.cpu_percent:.1f} % of a core", each.memory),
            _servers(each, known),
            _lines(f"{describe_seconds(each.seen_seconds)} ago"),
        )
        for each in replicas
    ]
    return table("Replicas", columns, rows)


def _lines(*lines: str) -> list[Child]:
    return [tag("div", line, class_="line") for line in lines]


def _name(replica: ReplicaState) -> Child:
    mark = tag("span", "answers this page", class_="tag good") if replica.is_asked else None
    where = tag("div", code(replica.address), class_="dim")
    return (replica.name, " ", mark, where, tag("div", f"process {replica.pid}", class_="dim meaning"))


def _state(replica: ReplicaState) -> Child:
    said = outcome(replica.condition, _FATES.get(replica.condition, "refused"))
    meaning = _MEANING.get(replica.condition)
    return (said, tag("div", meaning, class_="dim meaning")) if meaning else said


def _servers(replica: ReplicaState, known: set[str]) -> Child:
    """The servers that it runs; those that are configured here, too, are links."""
    if not replica.servers:
        return "-"
    shown = replica.servers[:MOST_SERVERS]
    parts: list[Child] = []
    for index, name in enumerate(shown):
        parts += [", " if index else None, tag("a", name, href=server_path(name)) if name in known else name]
    if len(replica.servers) > len(shown):
        parts.append(f" and {len(replica.servers) - len(shown):,} more")
    return tag("span", parts)
