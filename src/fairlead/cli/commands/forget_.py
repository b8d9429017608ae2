"""`fairlead forget`."""

from typing import TYPE_CHECKING

import click

from fairlead.cli.config_edits import action_context
from fairlead.cli.options import FunctionT, json_option, load
from fairlead.config.validate import suggestion
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    confirm,
    is_interactive,
    plural,
    print_json,
    print_notices,
    print_table,
    printable,
    say,
)

if TYPE_CHECKING:
    from fairlead.actions.forget import ForgetPlan, Subject


@click.group("forget")
def command() -> None:
    """Delete what is kept about a server, a principal or a login. Shows what goes, and asks.

    \b
    Examples:
      fairlead forget server github
      fairlead forget principal ada --audit
      fairlead forget login https://mcp.example.com/mcp --yes
    """


def _add_common_options(function: FunctionT) -> FunctionT:
    """Add the options that all have."""
    function = json_option(function)
    return click.option("--yes", is_flag=True, help="Delete without asking.")(function)


def _audit_option(function: FunctionT) -> FunctionT:
    return click.option(
        "--audit",
        is_flag=True,
        help="Delete its audit records, too; a record of that stays.",
    )(function)


@command.command("server")
@click.argument("server_id", metavar="ID")
@_audit_option
@_add_common_options
@click.pass_context
def server_command(ctx: click.Context, server_id: str, *, audit: bool, yes: bool, as_json: bool) -> int:
    """Delete what is kept about a server: pins, approvals, consents, snapshots, artifacts, logs, its login.

    Its entry in the configuration stays; `fairlead remove` takes that out. The server may be removed already.

    \b
    Examples:
      fairlead forget server github
      fairlead forget server github --audit --yes
    """
    return _forget(ctx, "server", server_id, audit=audit, yes=yes, as_json=as_json)


@command.command("principal")
@click.argument("name")
@_audit_option
@_add_common_options
@click.pass_context
def principal_command(ctx: click.Context, name: str, *, audit: bool, yes: bool, as_json: bool) -> int:
    """Delete what is kept about a principal: approvals, artifacts, tasks, searches, logins, gateway tokens.

    NAME is a principal as `fairlead audit` shows it, or the name of a gateway token.

    \b
    Examples:
      fairlead forget principal ada
      fairlead forget principal token:ada --audit
    """
    return _forget(ctx, "principal", name, audit=audit, yes=yes, as_json=as_json)


@command.command("login")
@click.argument("name", metavar="ID|URL")
@_add_common_options
@click.pass_context
def login_command(ctx: click.Context, name: str, *, yes: bool, as_json: bool) -> int:
    """Delete all logins to a server, of every account, and end their tokens at the issuer.

    \b
    Examples:
      fairlead forget login notion
      fairlead forget login https://mcp.example.com/mcp --yes
    """
    return _forget(ctx, "login", name, audit=False, yes=yes, as_json=as_json)


def _forget(
    ctx: click.Context, subject: "Subject", name: str, *, audit: bool, yes: bool, as_json: bool
) -> int:
    from dataclasses import replace

    from fairlead.actions.forget import forget, plan_forget
    from fairlead.cli.logins import read_kept
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async

    loaded = load(ctx)
    context = action_context(ctx, loaded)
    plan = plan_forget(context, subject, name, read_kept(loaded), audit=audit)
    if not plan.counts:
        say(f"nothing is kept about {subject} `{printable(plan.name)}`")
        if subject == "server" and name not in loaded.servers and (near := suggestion(name, loaded.servers)):
            say(f"\nhint: {near}")
        _say_what_stays(plan)
        if as_json:
            print_json(_as_json(plan, forgotten=False))
        return Exit.OK
    if not as_json:
        print_table(("what", "number"), [(what, str(number)) for what, number in plan.counts.items()])
    _say_what_stays(plan)
    if not yes and not confirm(f"\nDelete this about {subject} `{printable(plan.name)}`?"):
        say(
            "nothing was deleted"
            + ("" if is_interactive() else "; pass `--yes` to delete without a terminal")
        )
        if as_json:
            print_json(_as_json(plan, forgotten=False))
        return Exit.NEEDS_A_PERSON

    async def main() -> int:
        if plan.logins:
            async with Host.open(replace(loaded, servers={})) as host:
                print_notices(await forget(context, plan, host))
        else:
            print_notices(await forget(context, plan, None))
        return Exit.OK

    run_async(main)
    if as_json:
        print_json(_as_json(plan, forgotten=True))
    say(f"forgot {subject} `{printable(plan.name)}`")
    return Exit.OK


def _say_what_stays(plan: "ForgetPlan") -> None:
    for remark in plan.remarks:
        say(f"  {printable(remark)}")
    if plan.records_left:
        say(f"  {plural(plan.records_left, 'record')} in the audit log stay; `--audit` deletes them, too")


def _as_json(plan: "ForgetPlan", *, forgotten: bool) -> dict[str, object]:
    return {
        "subject": plan.subject,
        "name": plan.name,
        "forgotten": forgotten,
        "counts": plan.counts,
        "audit_records_left": plan.records_left,
        "remarks": plan.remarks,
    }
