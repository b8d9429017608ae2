"""`fairlead test`."""

import time
from typing import TYPE_CHECKING, Any

import click

from fairlead.cli.options import json_option, load, read_scope_option, server_argument
from fairlead.errors import FairleadError
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import print_data, print_error, print_json, printable, say

if TYPE_CHECKING:
    from fairlead.host.host import Host


@click.command("test")
@server_argument
@read_scope_option
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str, *, as_json: bool) -> int:
    """Connect to a server, negotiate, list what it offers, and say how each step went.

    \b
    Examples:
      fairlead test github
      fairlead test github --json
    """
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async
    from fairlead.terminal.prompts import operator_here

    loaded = load(ctx, scope)
    server = loaded.server(server_id)
    report = _Report(is_shown=not as_json)

    async def main() -> int:
        report.begin("open")
        async with Host.open(loaded, operator=operator_here()) as host:
            report.end(f"{server.transport or 'no transport'}: {server.target or '-'}")
            try:
                await _try(host, server_id, report)
            except FairleadError as exc:
                report.failure = exc
                report.end("failed")
            report.begin("close")
        report.end("nothing is left running")
        return exit_of(report.failure) if report.failure else Exit.OK

    status = run_async(main)
    if as_json:
        print_json({"id": server_id, **report.as_json()})
        return status
    for note in report.notes:
        say(f"note: {printable(note)}")
    if report.failure:
        print_error(report.failure)
    return status


class _Report:
    """Report of the steps. A step is shown when it is over."""

    def __init__(self, *, is_shown: bool) -> None:
        self.notes: list[str] = []
        self.failure: FairleadError | None = None
        self._is_shown = is_shown
        self._steps: list[dict[str, Any]] = []
        self._step = ""
        self._began = 0.0

    def begin(self, step: str) -> None:
        self._step, self._began = step, time.perf_counter()

    def end(self, detail: str) -> None:
        took_ms = round((time.perf_counter() - self._began) * 1000, 1)
        self._steps.append({"step": self._step, "ms": took_ms, "detail": detail})
        if self._is_shown:
            print_data(f"{self._step:<10}{took_ms:>9.1f} ms  {printable(detail)}")

    def as_json(self) -> dict[str, Any]:
        failure = self.failure
        problem = {"message": str(failure), "hint": failure.hint, "code": failure.code} if failure else None
        return {"ok": failure is None, "steps": self._steps, "notes": self.notes, "error": problem}


async def _try(host: "Host", server_id: str, report: _Report) -> None:
    from fairlead.terminal.host_run import spinning

    report.begin("connect")
    async with spinning("connecting …", host.bus):
        info = await host.describe(server_id)
    report.end(f"{info.name or 'a server'} speaks {info.version}")
    report.begin("list")
    async with spinning("listing …"):
        listing = await host.list_now(server_id)
    counts = {
        "tools": listing.tools,
        "resources": listing.resources,
        "templates": listing.templates,
        "prompts": listing.prompts,
        "rejected": listing.rejected,
    }
    found = ", ".join(f"{len(items)} {name}" for name, items in counts.items() if items)
    report.end(found or "it offers nothing")
    report.notes.extend(note for each in host.status() if each.server_id == server_id for note in each.notes)
