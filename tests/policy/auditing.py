"""A host's worth of auditing, for tests that kill it. Run as a program with the store's path."""

import itertools
import sys
import time
from pathlib import Path

import anyio

from fairlead.config.models import AuditSettings
from fairlead.config.principal import LOCAL
from fairlead.policy.audit import AuditLog
from fairlead.store.async_store import AsyncStore


def command(path: Path) -> list[str]:
    """The command line that makes calls until it is killed."""
    return [sys.executable, "-m", "tests.policy.auditing", str(path)]


async def call_forever(path: Path) -> None:
    """Make calls, say when each was sent, and let every second one never end."""
    async with AsyncStore.open(path) as store:
        audit = await AuditLog.open(store, AuditSettings())
        for number in itertools.count():
            call = audit.begin_call(
                principal=LOCAL, server="s", tool=f"tool_{number}", arguments={"number": number}
            )
            call.record_decision("allow", "listed in allow_tools")
            call.record_sent()
            if number % 2:
                call.record_result("ok", "done", size=number)
            print(time.monotonic(), flush=True)  # noqa: T201 - this is how it tells its parent
            await anyio.sleep(0.001)


if __name__ == "__main__":
    anyio.run(call_forever, Path(sys.argv[1]))
