"""Connections that a supervisor hands to a worker over a socket pair."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from fairlead.gateway.workers import handover
from fairlead.gateway.workers.handover import (
    ADOPTED,
    ENDED,
    LEAVING,
    MAX_UNTAKEN,
    TAKEN,
    HandoverReceiver,
    HandoverSender,
)

SECONDS = 20.0


class Exchange:
    """Both ends, and the connections that the worker was given."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        self.changes = 0
        self.sender = HandoverSender(here, self._note)
        self.receiver = HandoverReceiver(there)
        self.taken: list[socket.socket] = []
        self.changed = anyio.Event()

    def _note(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def take(self, connection: socket.socket) -> None:
        self.taken.append(connection)

    async def until(self, number_open: int) -> None:
        while self.sender.open != number_open:
            await self.changed.wait()


@asynccontextmanager
async def exchange(*, is_taking: bool = True) -> AsyncGenerator[Exchange]:
    both = Exchange()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(both.sender.follow)
            if is_taking:
                tasks.start_soon(both.receiver.run, both.take)
            try:
                yield both
            finally:
                tasks.cancel_scope.cancel()
    both.receiver.close()
    for connection in (*both.taken, *both.sender.close()):
        connection.close()


async def test_a_connection_is_the_workers_own_and_not_read_on_the_way() -> None:
    async with exchange() as both:
        client, accepted = socket.socketpair()
        client.send(b"hello")
        assert both.sender.send(accepted)
        await both.changed.wait()
        (taken,) = both.taken
        assert accepted.fileno() == -1  # closed here, once the worker has it
        assert taken.recv(5) == b"hello"
        assert not os.get_inheritable(taken.fileno())
        assert both.sender.open == 1
        both.receiver.tell(ENDED)
        await both.until(0)
        both.receiver.tell(ADOPTED + ADOPTED)
        await both.until(2)
        client.close()


async def test_what_a_worker_never_took_is_given_back() -> None:
    both, pairs = Exchange(), [socket.socketpair() for _ in range(3)]
    for _, accepted in pairs:
        assert both.sender.send(accepted)
    both.receiver.close()
    back = both.sender.close()
    assert back == [accepted for _, accepted in pairs]
    assert all(connection.fileno() >= 0 for connection in back)
    for connection in (*back, *(client for client, _ in pairs)):
        connection.close()


async def test_what_a_worker_took_at_its_last_moment_is_given_to_no_other() -> None:
    here, there = socket.socketpair()
    sender, pairs = HandoverSender(here, lambda: None), [socket.socketpair() for _ in range(3)]
    for _, accepted in pairs:
        assert sender.send(accepted)
    # It says so, and is killed before that was read.
    there.send(ENDED * 5000 + TAKEN + ADOPTED + TAKEN)
    there.close()
    assert sender.close() == [pairs[2][1]]
    assert [accepted.fileno() >= 0 for _, accepted in pairs] == [False, False, True]
    for connection in (pairs[2][1], *(client for client, _ in pairs)):
        connection.close()


async def test_a_worker_that_takes_nothing_is_given_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with exchange(is_taking=False) as both:
        pairs = [socket.socketpair() for _ in range(MAX_UNTAKEN)]
        for _, accepted in pairs:
            assert both.sender.is_willing
            assert both.sender.send(accepted)
        assert not both.sender.is_willing
        for client, _ in pairs:
            client.close()
    async with exchange(is_taking=False) as both:
        client, accepted = socket.socketpair()
        assert both.sender.send(accepted)
        monkeypatch.setattr(handover, "TAKING_SECONDS", 0.0)
        assert not both.sender.is_willing
        client.close()


async def test_a_worker_that_leaves_takes_what_is_on_its_way_and_no_more() -> None:
    async with exchange(is_taking=False) as both:
        client, accepted = socket.socketpair()
        assert both.sender.send(accepted)
        both.receiver.tell(LEAVING)
        await both.changed.wait()
        assert both.sender.is_leaving
        assert not both.sender.is_willing
        await both.receiver.run(both.take)  # ends, since no more will come
        assert len(both.taken) == 1
        client.close()


async def test_a_supervisor_that_is_gone_ends_the_wait_for_connections() -> None:
    here, there = socket.socketpair()
    receiver = HandoverReceiver(there)
    here.close()
    with anyio.fail_after(SECONDS):
        await receiver.run(lambda connection: pytest.fail(f"{connection}"))
        receiver.tell(ENDED)  # which no one hears
    receiver.close()
