"""Answers to calls that wait at another replica, over a store that is slow."""

import time
from pathlib import Path

import anyio
import msgspec
import pytest

from fairlead.errors import ReplicaFailed
from fairlead.gateway import pending_approvals
from fairlead.gateway.pending_approvals import NAMESPACE, PendingApprovals
from fairlead.host.operator import ApprovalRequest
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import StoredValue
from tests.gateway.support import until


async def test_an_answer_is_not_taken_because_the_store_was_slow_to_say_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_approvals, "TAKE_SECONDS", 0.1)
    async with AsyncStore.open(tmp_path / "store.db") as store, anyio.create_task_group() as tasks:
        approvals = PendingApprovals(60.0)
        approvals.store = store
        tasks.start_soon(approvals.follow, store)
        # A call of a replica that was killed.
        request = ApprovalRequest(server_id="a", tool="delete", arguments={}, reason="it deletes")
        waiting = {"request": request, "created": time.time()}
        await store.put(NAMESPACE, "1" * 16, msgspec.json.encode(waiting), expect=None, expires_in=60)
        await until(lambda: len(approvals.pending()) == 1)

        get, calls = store.get, 0

        async def get_slowly(namespace: str, key: str) -> StoredValue | None:
            nonlocal calls
            calls += 1
            if calls == 2:  # the first look whether it was taken
                await anyio.sleep(5)
            return await get(namespace, key)

        monkeypatch.setattr(store, "get", get_slowly)
        with pytest.raises(ReplicaFailed, match="did not take the answer"):
            await approvals.answer("1" * 16, "once")
        monkeypatch.undo()
        found = await store.get(NAMESPACE, "1" * 16)
        assert found is not None
        assert "answer" not in msgspec.json.decode(found.value)
        tasks.cancel_scope.cancel()
