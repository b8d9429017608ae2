"""Health checks, without a token since they reveal nothing else, and metrics for Prometheus.

What there is to count, in Prometheus' text format.

State of every server, for programs: what `fairlead status --json` prints, live.
"""

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, get_args

import msgspec
from starlette.responses import JSONResponse, PlainTextResponse, Response

from fairlead.actions.replicas import replicas_as_json
from fairlead.actions.status import status_as_json
from fairlead.events import ServerState
from fairlead.gateway.cluster.cluster import Cluster
from fairlead.gateway.cluster.forwarding import Outcome
from fairlead.gateway.workers.member import PoolMember
from fairlead.web.host_panel import HostPanel
from fairlead.web.page_request import Answer, PageRequest


async def alive(request: PageRequest) -> Response:
    """Liveness check: the process answers."""
    return PlainTextResponse("ok\n")


def readiness(panel: HostPanel) -> Answer:
    """Readiness check: every required server is ready."""

    async def answer(request: PageRequest) -> Response:
        if panel.is_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", 503)

    return answer


MEDIA_TYPE: Final = "text/plain; version=0.0.4"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]


class Metric(msgspec.Struct, frozen=True, array_like=True):
    """One metric with its samples."""

    name: str
    kind: str
    meaning: str
    samples: list[Sample]


def metrics_answer(panel: HostPanel, peers: PoolMember | None = None) -> Answer:
    """Metrics for Prometheus; those of other workers (`peers`) have a label of their own."""

    async def describe(_: str) -> str:
        assert peers is not None
        return _encode(_OwnNumbers(peers.number, process_metrics(panel))).decode()

    if peers is not None:
        peers.answer(_METRICS, describe)

    async def answer(request: PageRequest) -> Response:
        whole, own = gateway_metrics(panel), process_metrics(panel)
        if peers is not None:
            numbers = [_OwnNumbers(peers.number, own)]
            numbers += [_decode(said) for said in await peers.ask_peers(_METRICS) if said]
            own = _by_worker(numbers)
        return PlainTextResponse("".join(map(_write_metric, (*whole, *own))), media_type=MEDIA_TYPE)

    return answer


_METRICS: Final = "metrics"
"""The question for the numbers of a worker."""


class _OwnNumbers(msgspec.Struct, frozen=True, array_like=True):
    """The numbers of one worker."""

    worker: int
    metrics: list[Metric]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_OwnNumbers).decode


def _by_worker(numbers: list[_OwnNumbers]) -> list[Metric]:
    """One list of metrics, with the worker of each sample as a label: counters begin with their process."""
    joined: dict[str, Metric] = {}
    for each in sorted(numbers, key=lambda one: one.worker):
        for metric in each.metrics:
            samples = [({**labels, "worker": str(each.worker)}, value) for labels, value in metric.samples]
            before = joined.get(metric.name)
            joined[metric.name] = msgspec.structs.replace(
                metric, samples=[*(before.samples if before is not None else ()), *samples]
            )
    return list(joined.values())


def gateway_metrics(panel: HostPanel) -> list[Metric]:
    """Metrics of the gateway as a whole."""
    servers = panel.status()
    states = Counter(status.state for status in servers)
    by_server = [({"server": status.server_id}, status) for status in servers]
    return [
        Metric("build_info", "gauge", "What runs here.", [({"version": version("fairlead")}, 1)]),
        Metric(
            "servers",
            "gauge",
            "Servers by state.",
            [({"state": state}, states[state]) for state in get_args(ServerState)],
        ),
        Metric(
            "server_ready",
            "gauge",
            "Is the server connected and listed?",
            [(label, float(status.state == "ready")) for label, status in by_server],
        ),
        Metric(
            "server_tools",
            "gauge",
            "Tools that the server lists.",
            [(label, status.tools) for label, status in by_server if status.tools is not None],
        ),
        Metric(
            "server_connects_total",
            "counter",
            "Connections that were made to the server.",
            [(label, status.connects) for label, status in by_server],
        ),
        Metric("clients", "gauge", "Clients of the gateway.", [({}, len(panel.sessions()))]),
        Metric("approvals_pending", "gauge", "Calls that wait for approval.", [({}, len(panel.pending()))]),
    ]


def replica_metrics(cluster: Cluster) -> list[Metric]:
    """Metrics of one of several processes that act as one gateway."""
    living, outcomes = cluster.directory.living(), cluster.forwarder.outcomes
    draining = sum(replica.is_draining for replica in living)
    owners = cluster.owners
    return [
        Metric(
            "replicas",
            "gauge",
            "Replicas of this gateway that live, as this one knows.",
            [({"state": "serving"}, len(living) - draining), ({"state": "draining"}, draining)],
        ),
        Metric(
            "forwarded_requests_total",
            "counter",
            "Requests of clients that were forwarded to another replica, by what became of them.",
            [({"outcome": outcome}, outcomes[outcome]) for outcome in get_args(Outcome)],
        ),
        Metric(
            "forwarded_requests_open",
            "gauge",
            "Requests of clients that other replicas work on.",
            [({}, cluster.forwarder.calls)],
        ),
        Metric("owned_servers", "gauge", "Shared server processes that run here.", [({}, owners.owned)]),
        Metric(
            "peer_requests_open",
            "gauge",
            "Requests of other replicas to servers that run here.",
            [({}, owners.calls)],
        ),
        Metric(
            "lease_losses_total",
            "counter",
            "Shared server processes that were ended because their lease was not renewed.",
            [({}, owners.lease_losses)],
        ),
    ]


def process_metrics(panel: HostPanel) -> list[Metric]:
    """Metrics of this process."""
    activity = panel.activity
    return [
        *(replica_metrics(panel.cluster) if panel.cluster is not None else ()),
        Metric(
            "calls_total",
            "counter",
            "Calls that ended, by outcome: ok, tool_error or the code of an error.",
            [
                ({"server": server, "outcome": outcome}, count)
                for (server, outcome), count in sorted(activity.finished.items())
            ],
        ),
        Metric(
            "call_seconds_total",
            "counter",
            "How long those calls took.",
            [({"server": server}, seconds) for server, seconds in sorted(activity.seconds.items())],
        ),
        Metric("calls_running", "gauge", "Calls under way.", [({}, len(activity.running))]),
    ]


def _write_metric(metric: Metric) -> str:
    lines = [f"# HELP fairlead_{metric.name} {metric.meaning}\n# TYPE fairlead_{metric.name} {metric.kind}\n"]
    for labels, value in metric.samples:
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        lines.append(
            f"fairlead_{metric.name}{{{shown}}} {value}\n" if shown else f"fairlead_{metric.name} {value}\n"
        )
    return "".join(lines)


def status_answer(panel: HostPanel) -> Answer:
    """The state of all servers as JSON, and the processes of the gateway where there are several."""

    async def answer(request: PageRequest) -> Response:
        servers = [status_as_json(status) for status in panel.status()]
        return JSONResponse(
            {
                "servers": servers,
                "pending_approvals": len(panel.pending()),
                "replicas": replicas_as_json(panel.replicas()),
            }
        )

    return answer
