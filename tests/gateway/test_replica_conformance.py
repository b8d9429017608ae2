"""The conformance suite's verdict on gateways that act as one: three replicas, and three workers.

Before the replicas is a balancer that sends each request to the next one, so that nearly every request of a
session comes to a replica that does not have it.
"""

import itertools
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import pytest

from fairlead.config.store_location import KEY_VARIABLE
from tests.conformance.suite import TOOLS
from tests.gateway.balancer import Balancer
from tests.gateway.exam_support import REVISIONS, Upstream, everything_entry, examine
from tests.gateway.gateway_process import GatewayProcess
from tests.redis_server import KEY, free_port, redis_server

SECONDS = 300
COUNT = 3

Kind = Literal["replicas", "workers"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.blocks_loop,  # it waits for the processes it starts
    pytest.mark.skipif(
        not (TOOLS / ".installed").exists(), reason="no conformance suite: run tests/tools/install"
    ),
]


def write_machine(home: Path, document: dict[str, Any]) -> dict[str, str]:
    """The environment of a machine with a configuration."""
    file = home / ".config" / "fairlead" / "fairlead.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(document))
    env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"], KEY_VARIABLE: KEY}
    return env | {"FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file"}


@asynccontextmanager
async def running(process: GatewayProcess) -> AsyncGenerator[GatewayProcess]:
    """Run a gateway beside this loop's other work."""
    try:
        await anyio.to_thread.run_sync(process.start)
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.close)


@asynccontextmanager
async def everything_behind(folder: Path, kind: Kind, upstream: Upstream) -> AsyncGenerator[str]:
    """The URL of three gateway processes with nothing but an everything-server, which want no token."""
    port = free_port()
    async with everything_entry(upstream) as entry, AsyncExitStack() as stack:
        document: dict[str, Any] = {
            "servers": {"everything": {**entry, "sampling": {"max_tokens": 100_000}}},
            "bundles": {"exam": {"servers": {"everything": {}}, "names": "plain", "mode": "direct"}},
            "policy": {"approval": "allow"},
            "gateway": {"names": [f"127.0.0.1:{port}"], "startup_wait_ms": 60_000},
        }
        if kind == "workers":
            process = GatewayProcess(
                write_machine(folder / "home", document),
                "--auth",
                "none",
                "--i-know",
                "--workers",
                str(COUNT),
            )
            await stack.enter_async_context(running(process))
            yield f"{process.url}/mcp/exam"
            return
        (folder / "redis").mkdir()
        redis = stack.enter_context(redis_server(folder / "redis", "--appendfsync", "everysec"))
        ports: list[int] = []
        for number in range(COUNT):
            env = write_machine(folder / f"home-{number}", document)
            process = GatewayProcess(env, "--auth", "none", "--i-know", "--store", redis.url)
            await stack.enter_async_context(running(process))
            ports.append(process.port)
        balancer = Balancer(ports, port)
        await stack.enter_async_context(balancer.serving())
        yield f"{balancer.url}/mcp/exam"
        # Each of them had its share, or the exam was of fewer.
        assert min(backend.requests for backend in balancer.backends) > 20


@pytest.mark.parametrize(
    ("kind", "upstream", "revision"),
    [
        ("replicas", "stdio", "2025-11-25"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                *itertools.product(["replicas", "workers"], ["stdio", "http"], REVISIONS),
                ("replicas", "older stdio", "2025-11-25"),
                ("workers", "older stdio", "2025-11-25"),
            )
            if each != ("replicas", "stdio", "2025-11-25")
        ),
    ],
)
async def test_gateways_that_act_as_one_pass_as_the_server_behind_them_does(
    kind: Kind, upstream: Upstream, revision: str, tmp_path: Path
) -> None:
    with anyio.fail_after(SECONDS):
        async with everything_behind(tmp_path, kind, upstream) as url:
            assert await examine(url, revision, tmp_path / "results") == {}
