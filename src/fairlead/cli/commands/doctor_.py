"""`fairlead doctor`."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict

import click

from fairlead.actions.doctor import Finding, Status, diagnose, diagnose_servers
from fairlead.cli.options import json_option, load
from fairlead.errors import ConfigError
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, printable, say

_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "note": ("note", "yellow"),
    "problem": ("!!", "red"),
}


@click.command("doctor")
@click.option("--offline", is_flag=True, help="Contact no server.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, offline: bool, as_json: bool) -> int:
    """Diagnose this machine, your configuration and your servers, and say how to fix what is wrong.

    Checks the installation, the programs that servers need, keyring, certificates, proxies, configuration,
    state, gateways and left-over processes, then connects to every enabled server. Changes no setting.

    Exits with 1 if there is a problem.

    \b
    Examples:
      fairlead doctor
      fairlead doctor --offline --json
    """
    found: list[Finding] = []

    def report(finding: Finding) -> None:
        found.append(finding)
        if not as_json:
            _print(finding, new_area=len(found) == 1 or found[-2].area != finding.area)

    for finding in diagnose(os.environ, lambda: load(ctx)):
        report(finding)
    if not offline:
        _report_servers(ctx, report)
    problems = sum(finding.status == "problem" for finding in found)
    if as_json:
        print_json({"ok": not problems, "findings": [asdict(finding) for finding in found]})
    else:
        _summarize(found)
    return Exit.FIXABLE if problems else Exit.OK


def _report_servers(ctx: click.Context, report: Callable[[Finding], None]) -> None:
    from fairlead.terminal.host_run import run_async, spinning

    try:
        loaded = load(ctx)
    except ConfigError:
        return  # said already, and without a configuration there are no servers

    async def main() -> int:
        async with spinning("connecting to servers …"):
            await diagnose_servers(loaded, report)
        return Exit.OK

    run_async(main)


def _print(finding: Finding, *, new_area: bool) -> None:
    if new_area:
        print_data(click.style(finding.area.capitalize(), bold=True))
    mark, color = _MARKS[finding.status]
    first, *rest = finding.message.split("\n")
    print_data(f"  {click.style(f'{mark:<4}', fg=color)} {printable(finding.subject)}: {printable(first)}")
    for line in rest:
        print_data(f"         {printable(line)}")
    if finding.fix and finding.status != "ok":
        print_data(f"       {click.style('fix:', fg='cyan')} {printable(finding.fix)}")


def _summarize(found: Sequence[Finding]) -> None:
    problems = sum(finding.status == "problem" for finding in found)
    notes = sum(finding.status == "note" for finding in found)
    count = "no problem found" if not problems else "1 problem" if problems == 1 else f"{problems} problems"
    say(f"\n{count}, {len(found)} checks" + (f", {notes} to note" if notes else ""))
