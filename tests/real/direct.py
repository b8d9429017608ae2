"""A client of a few lines: what a stdio server offers when nothing of Fairlead is in between."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.real.servers import HANDSHAKE

SECONDS = 90


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """The names of a server's tools and prompts, and the URIs of its resources."""

    tools: tuple[str, ...]
    prompts: tuple[str, ...]
    resources: tuple[str, ...]


def list_directly(entry: Mapping[str, Any], env: Mapping[str, str], cwd: str) -> Offers:
    """Start a server, list all that it offers, and end it.

    A list that the server answers with an error is empty. Definitions are not validated, so that what a
    malformed one costs behind Fairlead shows as a difference.

    Args:
        entry: The server as a configuration describes it.
        env: The environment that the server's own variables are added to.
        cwd: Where it runs.
    """
    process = subprocess.Popen(
        [entry["command"], *entry["args"]],
        env={**env, **entry["env"]},
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    watchdog = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        return _list(process)
    finally:
        watchdog.cancel()
        # Its group is there for as long as it was not waited for, whether or not it ended already.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def _list(process: subprocess.Popen[bytes]) -> Offers:
    client = {"name": "direct", "version": "1"}
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client}
    capabilities = _request(process, "initialize", hello)["capabilities"]
    _send(process, {"method": "notifications/initialized"})

    def names(kind: str, field: str) -> tuple[str, ...]:
        found: list[str] = []
        params: dict[str, Any] = {}
        while kind in capabilities:
            page = _request(process, f"{kind}/list", params)
            found += [entry[field] for entry in page.get(kind, ())]
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        return tuple(found)

    return Offers(
        tools=names("tools", "name"), prompts=names("prompts", "name"), resources=names("resources", "uri")
    )


def _request(process: subprocess.Popen[bytes], method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result, or nothing where the server answers with an error."""
    _send(process, {"id": method, "method": method, "params": params})
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith(b"{"):
            continue  # some programs greet their users on stdout
        message = json.loads(line)
        if message.get("id") == method and "method" not in message:
            return message.get("result", {})
        if "id" in message and "method" in message:
            _send(process, {"id": message["id"], "error": {"code": -32601, "message": "not supported"}})
    raise AssertionError(f"the server ended, or was too slow, before it answered {method}")


def _send(process: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
