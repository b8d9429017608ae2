"""A server process of a replica, as others use it, where the server or the other replica is slow."""

from typing import Any

import anyio
import pytest

from fairlead.connection.process.child import ProcessLease
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.gateway.cluster import owned_server
from fairlead.gateway.cluster.owned_server import OwnedServer, PeerExchange, decode_message


async def test_a_server_that_hangs_is_waited_for_once_however_much_a_replica_that_left_had_subscribed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owned_server, "_UNSUBSCRIBE_SECONDS", 0.3)
    asked: list[str] = []

    class Hanging(WireDispatcher):
        async def call_raw(
            self, method: str, params: Any, opts: Any = None, deadline: Any = None, may_send: Any = None
        ) -> Any:
            asked.append(params["uri"])
            await anyio.sleep_forever()

        async def _send(self, call: Any, frame: bytes, opts: Any) -> None: ...

        async def post(self, frame: bytes, opts: Any = None) -> None: ...

        def _start_receiving(self) -> None: ...

        def _cancel(self, call: Any, reason: str, opts: Any) -> None: ...

    dispatcher = Hanging()
    owned = OwnedServer(server_id="a", dispatcher=dispatcher, lease=ProcessLease(0.0), max_seconds=1.0)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    session = PeerExchange(decode_message(b'{"id":1,"method":"initialize"}'), send)
    session.uris = {f"test://{number}" for number in range(20)}
    dispatcher.guests.watched.update([*session.uris, "test://0"])
    with anyio.fail_after(3):
        await owned._unsubscribe(session)  # pyright: ignore[reportPrivateUsage]
    assert len(asked) == 1
    assert +dispatcher.guests.watched == {"test://0": 1}


async def test_what_waits_for_a_slow_replica_is_bounded_in_bytes() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    exchange = PeerExchange(decode_message(b'{"id":1,"method":"tools/call"}'), send)
    for number in range(100):
        exchange.put({"n": number, "text": "x" * 1_000_000})
    await exchange.end({"id": 1})
    lines = sent[-1]["body"].splitlines()
    assert len(sent[-1]["body"]) < 10_000_000
    assert lines[-2].startswith(b'{"n":99,')  # the latest are kept
    assert lines[-1] == b'{"id":1}'
