"""`fairlead lock`."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from fairlead.actions.lock import (
    LockCheck,
    LockPlan,
    check_servers,
    describe_servers,
    plan_check,
    plan_lock,
    write_lock,
)
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedConfig
from fairlead.config.paths import LOCK_NAME
from fairlead.policy.lockfile import Drift
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    display_path,
    plural,
    print_data,
    print_json,
    print_notices,
    printable,
    say,
)

if TYPE_CHECKING:
    from fairlead.host.host import Host

FoundT = TypeVar("FoundT")


@click.command("lock")
@click.option(
    "--check", is_flag=True, help="Write nothing; say what differs, and exit with 6 if anything does."
)
@click.option(
    "--file", "file", type=click.Path(path_type=Path), metavar="FILE", help=f"Another file than {LOCK_NAME}."
)
@click.option("--only", "only", multiple=True, metavar="ID", help="Only this server; repeat it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: Path | None, only: tuple[str, ...], *, check: bool, as_json: bool
) -> int:
    """Write what servers offer to fairlead.lock, next to the project's file, or check servers against it.

    With a lock, a tool that is not what the lock says is not offered. Nothing is allowed by it. The servers
    that the project's file describes are connected for it; without one, those that your own file describes.

    \b
    Examples:
      fairlead lock
      fairlead lock --check
      fairlead lock --only github
    """
    loaded = load(ctx)
    if check:
        plan = plan_check(loaded, file=file, only=only)
        return _report(_with_servers(loaded, plan, check_servers), plan.path, as_json=as_json)
    plan = plan_lock(loaded, file=file, only=only)
    now = _with_servers(loaded, plan, lambda host, plan: describe_servers(host, plan.servers))
    notices = write_lock(action_context(ctx, loaded), plan, now)
    tools = sum(len(server.tools) for server in now.values())
    say(f"locked {plural(tools, 'tool')} of {plural(len(now), 'server')} in {display_path(plan.path)}")
    print_notices(notices)
    if as_json:
        print_json({"file": str(plan.path), "servers": {name: len(of.tools) for name, of in now.items()}})
    return Exit.OK


def _with_servers(
    loaded: LoadedConfig, plan: LockPlan, work: "Callable[[Host, LockPlan], Awaitable[FoundT]]"
) -> FoundT:
    """Do something with a host whose servers are about to be connected, and show that they are."""
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    found: list[FoundT] = []
    names = ", ".join(server.server_id for server in plan.servers)

    async def main() -> int:
        async with Host.open(loaded, operator=operator_here()) as host, spinning(f"connecting {names} …"):
            found.append(await work(host, plan))
        return Exit.OK

    run_async(main)
    return found[0]


def _report(checked: LockCheck, path: Path, *, as_json: bool) -> int:
    found = checked.drifts
    if checked.is_older:
        say(f"{display_path(path)} is of an older release: `fairlead lock` adds icons and `_meta`")
    if as_json:
        print_json({"file": str(path), "drift": [asdict(drift) for drift in found]})
    else:
        for drift in found:
            print_data(printable(_line(drift)))
        differing = f"{plural(len(found), 'difference')} from {display_path(path)}"
        say(differing if found else f"as {display_path(path)} says")
    return Exit.DRIFT if found else Exit.OK


def _line(drift: Drift) -> str:
    subject = drift.server_id if drift.tool is None else f"{drift.server_id}.{drift.tool}"
    if drift.before is not None or drift.now is not None:
        return f"{subject}: {drift.fields[0]} was {_short(drift.before)}, is {_short(drift.now)}"
    fields = f" ({', '.join(drift.fields)})" if drift.fields else ""
    return f"{subject}: {drift.what}{fields}"


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return f"{value[:12]}…" if len(value) == 64 else value
