"""`fairlead logout`."""

import click

from fairlead.cli.exits import Exit
from fairlead.cli.options import load
from fairlead.cli.output import printable, say
from fairlead.config.load import LoadedConfig


@click.command("logout")
@click.argument("server_id", metavar="[ID|URL]", required=False)
@click.option("--account", metavar="NAME", help="This account, where the server's entry does not name it.")
@click.option("--all", "every", is_flag=True, help="All accounts of the server; without one, all logins.")
@click.pass_context
def command(ctx: click.Context, server_id: str | None, account: str | None, *, every: bool) -> int:
    """Forget a login, in all processes at once. The next use of the server asks for a new one.

    The tokens are removed from this machine. They are not revoked at their issuer, where they run out by
    themselves; its website can end them sooner. A server that is configured no more is named by its URL, as
    `fairlead auth list` shows it.

    \b
    Examples:
      fairlead logout notion
      fairlead logout notion --account work
      fairlead logout https://mcp.example.com/mcp --all
      fairlead logout --all
    """
    from dataclasses import replace

    from fairlead.cli.logins import KeptLogin, logins_to, read_kept
    from fairlead.cli.running import run_with_host
    from fairlead.config.principal import LOCAL
    from fairlead.host.host import Host

    if every and account is not None:
        raise click.UsageError("`--all` and `--account` do not go together", ctx)
    if server_id is None and not every:
        raise click.UsageError("say which server, or `--all`", ctx)
    loaded = load(ctx)
    kept = read_kept()
    gone: list[KeptLogin]
    if server_id is None:
        gone = [each for each in kept if each.login.principal == LOCAL]
    else:
        resource, own_account = _named(loaded, server_id)
        wanted = None if every else own_account if account is None else account
        gone = logins_to(resource, kept, wanted)
    if not gone:
        say(f"there is no login to `{printable(server_id)}`" if server_id else "there are no logins")
        return Exit.OK

    async def main() -> int:
        async with Host.open(replace(loaded, servers={})) as host:
            for each in gone:
                await host.logins.log_out(each.login)
                account = f" as `{printable(each.login.account)}`" if each.login.account else ""
                say(f"logged out of {printable(server_id or each.login.resource)}{account}")
        return Exit.OK

    return run_with_host(main)


def _named(loaded: LoadedConfig, name: str) -> tuple[str, str]:
    """The server that is meant, as logins know it, and the account that its entry has there."""
    from fairlead.auth.target import canonical
    from fairlead.cli.logins import remote_config, resource_of

    if "://" in name:
        return canonical(name), ""
    server = loaded.server(name)
    return resource_of(server), remote_config(server).account or ""
