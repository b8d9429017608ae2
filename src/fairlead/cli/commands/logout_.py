"""`fairlead logout`."""

from typing import TYPE_CHECKING

import click

from fairlead.cli.options import load
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import printable, report, say, warn

if TYPE_CHECKING:
    from fairlead.auth.token_endpoint import Revocation


@click.command("logout")
@click.argument("server_id", metavar="[ID|URL]", required=False)
@click.option("--account", metavar="NAME", help="This account, where the server's entry does not name it.")
@click.option("--all", "every", is_flag=True, help="All accounts of the server; without one, all logins.")
@click.pass_context
def command(ctx: click.Context, server_id: str | None, account: str | None, *, every: bool) -> int:
    """Forget a login, in all processes at once. The next use of the server asks for a new one.

    The tokens are ended at their issuer where it offers that, and removed from this machine in any case.
    A server that is configured no more is named by its URL, as `fairlead auth list` shows it.

    \b
    Examples:
      fairlead logout notion
      fairlead logout notion --account work
      fairlead logout https://mcp.example.com/mcp --all
      fairlead logout --all
    """
    from dataclasses import replace

    from fairlead.actions.logins import find_logins, log_out
    from fairlead.cli.config_edits import action_context
    from fairlead.cli.logins import read_kept
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async

    if every and account is not None:
        raise click.UsageError("`--all` and `--account` do not go together", ctx)
    if server_id is None and not every:
        raise click.UsageError("say which server, or `--all`", ctx)
    loaded = load(ctx)
    gone = find_logins(loaded, read_kept(loaded), server_id, account=account, every=every)
    if not gone:
        say(f"there is no login to `{printable(server_id)}`" if server_id else "there are no logins")
        return Exit.OK

    logins = [{"resource": each.login.resource, "account": each.login.account} for each in gone]
    report(logged_out=logins)

    async def main() -> int:
        async with Host.open(replace(loaded, servers={})) as host:
            for each in gone:
                revocation = await log_out(action_context(ctx, loaded), host, each.login)
                account = f" as `{printable(each.login.account)}`" if each.login.account else ""
                say(f"logged out of {printable(server_id or each.login.resource)}{account}")
                _say_what_became_of_tokens(revocation)
        return Exit.OK

    return run_async(main)


def _say_what_became_of_tokens(revocation: "Revocation") -> None:
    match revocation.outcome:
        case "revoked":
            say("  its issuer has ended the tokens")
        case "not_offered":
            say("  its issuer has no way to end tokens: they run out by themselves, or end on its website")
        case "failed":
            warn(f"the tokens were removed here, but not ended at their issuer: {revocation.reason}")
        case "nothing_to_revoke":
            return
