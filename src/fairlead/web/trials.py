"""Calls of tools that visitors make from a form of the dashboard: under way, and their outcomes."""

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from fairlead.catalog.results import ToolResult
from fairlead.config.models import ApprovalMode
from fairlead.config.principal import GroupedPrincipal
from fairlead.connection.frame_log import FRAME_LOG, FrameLog
from fairlead.errors import FairleadError
from fairlead.host.host import Host

MAX_KEPT: Final = 50
"""Most calls of one principal that are kept: none makes room for a call of another principal."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of the results of all calls: a server chooses their size."""
PATIENCE_SECONDS: Final = 2.0
"""How long a form waits for the result of its call before it shows that the call is under way."""

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, eq=False)
class ToolTrial:
    """One call from a form, and its outcome."""

    id: str
    caller: GroupedPrincipal
    server_id: str
    tool: str
    arguments: Mapping[str, Any]
    typed: Mapping[str, str]
    """The inputs of the form as they were sent."""
    default_mode: ApprovalMode | None = None
    """The gateway's mode of tools that no rule and no other mode is about: it denies here as well."""
    began: float = field(default_factory=time.time)
    seconds: float | None = None
    """How long it took; None while it is under way."""
    progress: str = ""
    result: ToolResult | None = None
    error: FairleadError | None = None
    is_cancelled: bool = False
    log: FrameLog = field(default_factory=FrameLog)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class ToolTrials:
    """The latest calls from forms. Each is shown only to the principal who made it."""

    def __init__(
        self,
        host_of: Callable[[str], AbstractAsyncContextManager[Host]],
        note_change: Callable[[], None],
    ) -> None:
        """Call with the host of the principal who asks."""
        self._host_of = host_of
        self._note_change = note_change
        self._kept: OrderedDict[str, ToolTrial] = OrderedDict()

    async def begin(self, trial: ToolTrial, tasks: TaskGroup) -> None:
        """Make a call in the background, and wait a moment for its end."""
        self._kept[trial.id] = trial
        own = [each for each in self._kept.values() if each.caller.principal == trial.caller.principal]
        for oldest in own[:-MAX_KEPT]:
            del self._kept[oldest.id]
            oldest.scope.cancel()
        tasks.start_soon(self._run, trial, name=f"try {trial.server_id}/{trial.tool}")
        with anyio.move_on_after(PATIENCE_SECONDS):
            await trial.ended.wait()

    def find(self, trial_id: str, principal: str) -> ToolTrial | None:
        """A call of a principal; None where it is forgotten, or belongs to another principal."""
        trial = self._kept.get(trial_id)
        return trial if trial is not None and trial.caller.principal == principal else None

    def cancel(self, trial_id: str, principal: str) -> bool:
        """Cancel a call that is under way. False where there is none."""
        trial = self.find(trial_id, principal)
        if trial is None or trial.ended.is_set():
            return False
        trial.is_cancelled = True
        trial.scope.cancel()
        return True

    async def _run(self, trial: ToolTrial) -> None:
        FRAME_LOG.set(trial.log)
        started = time.perf_counter()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" + (f" of {total:g}" if total else "")
            trial.progress = f"{share}: {message}" if message else share
            self._note_change()

        try:
            with trial.scope:
                async with self._host_of(trial.caller.principal) as host:
                    # What a person types into a form is that person's yes, as at a terminal.
                    trial.result = await host.call(
                        trial.server_id,
                        trial.tool,
                        trial.arguments,
                        on_progress=report,
                        confirmed=True,
                        principal=trial.caller.principal,
                        groups=trial.caller.groups,
                        default_mode=trial.default_mode,
                        full_result=True,
                    )
        except FairleadError as exc:
            trial.error = exc
        except Exception as exc:
            logger.exception("a call from the dashboard failed")
            trial.error = FairleadError(f"the call failed: {type(exc).__name__}; see the gateway's log")
        finally:
            trial.seconds = time.perf_counter() - started
            self._forget_large(trial)
            trial.ended.set()
            self._note_change()

    def _forget_large(self, latest: ToolTrial) -> None:
        """Forget the oldest results where all together are too large; the latest stays."""
        ended = [each for each in self._kept.values() if each.result is not None and each is not latest]
        size = sum(_size(each) for each in (*ended, latest))
        for oldest in ended:
            if size <= MAX_KEPT_BYTES:
                break
            size -= _size(oldest)
            del self._kept[oldest.id]


def _size(trial: ToolTrial) -> int:
    if trial.result is None:
        return 0
    original = 0 if trial.result.original is trial.result.raw else trial.result.original_size
    return len(trial.result.raw) + original


def new_trial_id() -> str:
    """An id that cannot be guessed."""
    return secrets.token_urlsafe(12)
