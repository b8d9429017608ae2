"""`fairlead test`."""

import time
from typing import Any

import click

from fairlead.cli.options import json_option, load, read_scope_option, server_argument
from fairlead.errors import FairleadError
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import print_data, print_error, print_json, printable


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
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    loaded = load(ctx, scope)
    server = loaded.server(server_id)
    steps: list[dict[str, Any]] = []
    failure: FairleadError | None = None

    def done(step: str, started: float, detail: str) -> None:
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        steps.append({"step": step, "ms": took_ms, "detail": detail})
        if not as_json:
            print_data(f"{step:<10}{took_ms:>9.1f} ms  {printable(detail)}")

    async def main() -> int:
        nonlocal failure
        step, started = "open", time.perf_counter()
        async with Host.open(loaded, operator=operator_here()) as host:
            done(step, started, f"{server.transport}: {server.target}")
            try:
                step, started = "connect", time.perf_counter()
                async with spinning("connecting …"):
                    info = await host.describe(server_id)
                done(step, started, f"{info.name or 'a server'} speaks {info.version}")
                step, started = "list", time.perf_counter()
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
                done(step, started, found or "it offers nothing")
            except FairleadError as exc:
                failure = exc
                done(step, started, "failed")
            started = time.perf_counter()
        done("close", started, "nothing is left running")
        return exit_of(failure) if failure else Exit.OK

    status = run_async(main)
    if as_json:
        problem = {"message": str(failure), "hint": failure.hint, "code": failure.code} if failure else None
        print_json({"id": server_id, "ok": failure is None, "steps": steps, "error": problem})
    elif failure:
        print_error(failure)
    return status
