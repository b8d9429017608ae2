"""`fairlead login`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from fairlead.cli.options import load, server_argument
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.errors import AuthRequired, FairleadError, LoginFailed
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import confirm, plural, print_notices, printable, say

if TYPE_CHECKING:
    from fairlead.actions.logins import CompletedLogin
    from fairlead.auth.tokens import LoginTarget
    from fairlead.host.host import Host


class LoginOptions(TypedDict):
    """The options of `fairlead login`, as click hands them over."""

    account: str | None
    scope: tuple[str, ...]
    client_id: str | None
    client_secret: str | None
    callback_port: int | None
    no_browser: bool
    yes: bool
    force: bool


@click.command("login")
@server_argument
@click.option("--account", metavar="NAME", help="Log in another account; entries with that `account` use it.")
@click.option(
    "--scope", multiple=True, metavar="SCOPE", help="Request this OAuth scope, this time only; repeat it."
)
@click.option("--client-id", metavar="ID", help="Log in as this OAuth client, and remember it if that works.")
@click.option(
    "--client-secret", metavar="SECRET", help="The client's secret; goes to the keyring, not to the file."
)
@click.option(
    "--callback-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of the redirect URI that the client is registered with.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and read the one it ends up at.")
@click.option("--yes", is_flag=True, help="Open the login page without asking.")
@click.option("--force", is_flag=True, help="Log in again, though there is a login that works.")
@click.pass_context
def command(ctx: click.Context, server_id: str, **options: Unpack[LoginOptions]) -> int:
    """Log in to a server. It is kept and renews by itself, for all agents and after every restart.

    You see where the login page is and confirm before it opens in your browser. Where the browser is on
    another machine, as over SSH, paste the address that it ends up at; `--no-browser` wants just that. A
    server whose entry has an `oauth.grant` for machines is logged in to without a page.

    Some providers know only clients that you registered with them: create one in their developer settings and
    give it as `--client-id`. It is written into the server's entry once the login worked.

    \b
    Examples:
      fairlead login notion
      fairlead login notion --no-browser
      fairlead login notion --account work
      fairlead login github --client-id Iv1.0123456789abcdef --scope repo --scope read:org
    """
    from fairlead.actions.logins import client_place, require_ready
    from fairlead.cli.logins import remember_client
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async

    for name in ("client_secret", "callback_port"):
        if options[name] and not options["client_id"]:
            raise click.UsageError(f"`--{name.replace('_', '-')}` goes with `--client-id`", ctx)
    loaded = load(ctx)
    server = loaded.server(server_id)
    require_ready(loaded, server)
    names = ("client_id", "client_secret", "callback_port")
    client: dict[str, Any] = {name: value for name in names if (value := options[name])}
    place = client_place(server) if client else None

    async def main() -> int:
        # Without servers, so that none starts: a required one may be the very one that wants the login.
        async with Host.open(replace(loaded, servers={})) as host:
            own = await host.logins.target(server)
            target = await host.logins.target(server, account=options["account"])
            is_own = target.account == own.account
            if not (options["force"] or client or options["scope"]) and await _is_enough(
                host, server, target, is_own=is_own
            ):
                return Exit.OK
            completed = await _log_in(ctx, host, _with_client(target, client), options)
            _show_login(server_id, completed)
            if place is not None:
                remember_client(ctx, place, client)
            if not is_own:
                say(f'hint: an entry with `"account": "{printable(target.account)}"` uses this login')
            elif server.usable:
                await _require_working(host, server)
        return Exit.OK

    return run_async(main)


async def _is_enough(host: "Host", server: LoadedServer, target: "LoginTarget", *, is_own: bool) -> bool:
    """Tell whether there is a login that will do. A person may still want another."""
    login = await host.logins.broker.current(target.principal, target.account, target.resource)
    if login is None:
        return False
    if is_own and server.usable:
        failure = await _failure(host, server)
        if isinstance(failure, AuthRequired | LoginFailed):
            return False
        if failure is not None:
            raise failure
    account = f" as `{printable(login.account)}`" if login.account else ""
    say(f"you are logged in to `{server.server_id}`{account} already")
    if confirm("Log in again?"):
        return False
    say(f"hint: `{command_line('whoami', server.server_id)}` shows the login, `--force` logs in again")
    return True


def _with_client(target: "LoginTarget", client: dict[str, str]) -> "LoginTarget":
    return replace(target, oauth=target.oauth.model_copy(update=client))


async def _log_in(
    ctx: click.Context, host: "Host", target: "LoginTarget", options: LoginOptions
) -> "CompletedLogin":
    from fairlead.cli.config_edits import action_context
    from fairlead.cli.logins import LoginPage

    scopes = " ".join(options["scope"]) or None
    page = LoginPage(action_context(ctx, load(ctx)), host, target, scopes=scopes)
    completed = await page.log_in(by_paste=options["no_browser"], yes=options["yes"])
    print_notices(completed.notices)
    if completed.unkept is not None:
        raise completed.unkept  # for this command, storing it is all there is to do
    return completed


def _show_login(server_id: str, completed: "CompletedLogin") -> None:
    from fairlead.cli.logins import format_expiry

    login = completed.login
    account = f" as `{printable(login.account)}`" if login.account else ""
    say(f"logged in to `{server_id}`{account}")
    say(f"  issuer: {printable(login.issuer)}")
    if completed.scopes:
        say(f"  may: {printable(' '.join(completed.scopes))}")
    say(f"  expires: {format_expiry(login, renews=completed.renews)}")


async def _require_working(host: "Host", server: LoadedServer) -> None:
    failure = await _failure(host, server)
    if failure is not None:
        raise failure
    listing = host.listing(server.server_id)
    many = len(listing.tools) if listing else 0
    say(f"`{server.server_id}` is ready: {plural(many, 'tool')}")


async def _failure(host: "Host", server: LoadedServer) -> FairleadError | None:
    """Connect once, with the login that is kept. Returns what goes wrong."""
    from fairlead.terminal.host_run import spinning

    async with spinning(f"connecting {server.server_id} …"):
        await host.add(server)
        return (await host.connect(server.server_id)).get(server.server_id)
