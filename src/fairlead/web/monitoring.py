"""Health checks, without a token since they say nothing else: is it alive, can it serve?

What there is to count, in Prometheus' text format.

Where every server stands, for programs: what `fairlead status --json` prints, live.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Final, get_args

from starlette.responses import JSONResponse, PlainTextResponse, Response

from fairlead.actions.status import status_as_json
from fairlead.events import ServerState
from fairlead.gateway.cluster.cluster import Cluster
from fairlead.gateway.cluster.forwarding import Outcome
from fairlead.web.host_panel import HostPanel
from fairlead.web.page_request import Answer, PageRequest


async def alive(request: PageRequest) -> Response:
    """It answers, so it lives."""
    return PlainTextResponse("ok\n")


def readiness(panel: HostPanel) -> Answer:
    """Ready when every required server is."""

    async def answer(request: PageRequest) -> Response:
        if panel.is_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", 503)

    return answer


MEDIA_TYPE: Final = "text/plain; version=0.0.4"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]


def metrics_answer(panel: HostPanel) -> Answer:
    """All numbers."""

    async def answer(request: PageRequest) -> Response:
        return PlainTextResponse("".join(metrics(panel)), media_type=MEDIA_TYPE)

    return answer


def metrics(panel: HostPanel) -> Iterator[str]:
    """All numbers, metric by metric."""
    servers, activity = panel.status(), panel.activity
    states = Counter(status.state for status in servers)
    yield from _metric("build_info", "gauge", "What runs here.", [({"version": version("fairlead")}, 1)])
    yield from _metric(
        "servers",
        "gauge",
        "Servers by state.",
        [({"state": state}, states[state]) for state in get_args(ServerState)],
    )
    by_server = [({"server": status.server_id}, status) for status in servers]
    yield from _metric(
        "server_ready",
        "gauge",
        "Is the server connected and listed?",
        [(label, float(status.state == "ready")) for label, status in by_server],
    )
    yield from _metric(
        "server_tools",
        "gauge",
        "Tools that the server lists.",
        [(label, status.tools) for label, status in by_server if status.tools is not None],
    )
    yield from _metric(
        "server_connects_total",
        "counter",
        "Connections that were made to the server.",
        [(label, status.connects) for label, status in by_server],
    )
    yield from _metric(
        "calls_total",
        "counter",
        "Calls that ended, by outcome: ok, tool_error or the code of an error.",
        [
            ({"server": server, "outcome": outcome}, count)
            for (server, outcome), count in sorted(activity.finished.items())
        ],
    )
    yield from _metric(
        "call_seconds_total",
        "counter",
        "How long those calls took.",
        [({"server": server}, seconds) for server, seconds in sorted(activity.seconds.items())],
    )
    yield from _metric("calls_running", "gauge", "Calls under way.", [({}, len(activity.running))])
    yield from _metric("clients", "gauge", "Clients of the gateway.", [({}, len(panel.sessions()))])
    yield from _metric(
        "approvals_pending", "gauge", "Calls that wait for a person.", [({}, len(panel.pending()))]
    )

    if panel.cluster is not None:
        yield from _replica_metrics(panel.cluster)


def _replica_metrics(cluster: Cluster) -> Iterator[str]:
    living, outcomes = cluster.directory.living(), cluster.forwarder.outcomes
    draining = sum(replica.is_draining for replica in living)
    yield from _metric(
        "replicas",
        "gauge",
        "Replicas of this gateway that live, as this one knows.",
        [({"state": "serving"}, len(living) - draining), ({"state": "draining"}, draining)],
    )
    yield from _metric(
        "forwarded_requests_total",
        "counter",
        "Requests of clients that were forwarded to another replica, by what became of them.",
        [({"outcome": outcome}, outcomes[outcome]) for outcome in get_args(Outcome)],
    )
    yield from _metric(
        "forwarded_requests_open",
        "gauge",
        "Requests of clients that other replicas work on.",
        [({}, cluster.forwarder.calls)],
    )
    owners = cluster.owners
    yield from _metric(
        "owned_servers", "gauge", "Shared server processes that run here.", [({}, owners.owned)]
    )
    yield from _metric(
        "peer_requests_open",
        "gauge",
        "Requests of other replicas to servers that run here.",
        [({}, owners.calls)],
    )
    yield from _metric(
        "lease_losses_total",
        "counter",
        "Shared server processes that were ended because their lease was not renewed.",
        [({}, owners.lease_losses)],
    )


def _metric(name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP fairlead_{name} {meaning}\n# TYPE fairlead_{name} {kind}\n"
    for labels, value in samples:
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        yield f"fairlead_{name}{{{shown}}} {value}\n" if shown else f"fairlead_{name} {value}\n"


def status_answer(panel: HostPanel) -> Answer:
    """The state of all servers as JSON."""

    async def answer(request: PageRequest) -> Response:
        servers = [status_as_json(status) for status in panel.status()]
        return JSONResponse({"servers": servers, "pending_approvals": len(panel.pending())})

    return answer
