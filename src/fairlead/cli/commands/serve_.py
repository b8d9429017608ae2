"""`fairlead serve`."""

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from fairlead.cli.options import json_option, load
from fairlead.config.admin_policy import AdminPolicies, ServerTarget
from fairlead.config.paths import state_folder
from fairlead.config.sources import place_of, workspace
from fairlead.errors import ConfigError, ConfigInvalid, ToolFailed
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import display_path, print_data, print_json, say, warn

NAMES = ("repo", "docs")


@click.command("serve")
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[repo] [docs]")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="What `repo` may read; repeat it. This repository, or the current folder, if left out.",
)
@click.option("--stdio", is_flag=True, help="Serve stdin and stdout, for agents that start the server.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; any free one if left out.")
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    default="token",
    show_default=True,
    help="Who may call: clients with the token, or every client that can reach the port.",
)
@click.option("--i-know", is_flag=True, help="Confirm unauthenticated access; goes with `--auth none`.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    names: tuple[str, ...],
    roots: tuple[Path, ...],
    *,
    stdio: bool,
    host: str,
    port: int,
    auth: str,
    i_know: bool,
    as_json: bool,
) -> int:
    """Offer the built-in servers to any MCP client: search, read and list a repository, fetch documentation.

    Prints the URL and the token, and serves until Ctrl-C. `/mcp` has the tools of all, `/mcp/repo` and
    `/mcp/docs` those of one. The token stays the same from run to run.

    \b
    Examples:
      fairlead serve
      fairlead serve repo --root ~/src/project --port 8765
      fairlead serve docs --stdio
    """
    if auth == "none" and not i_know:
        raise click.UsageError("`--auth none` lets every program and web page here call; add `--i-know`")
    from fairlead.servers.builtin import BuiltinAccess, open_builtin_server
    from fairlead.servers.framework.http import own_token, serving_http
    from fairlead.terminal.host_run import run_async, stoppable

    chosen = choose_servers(names)
    state = state_folder(os.environ)
    here = workspace(place_of(os.environ, Path.cwd()))
    reach = BuiltinAccess(
        roots=tuple(root.absolute() for root in roots) or (here,), allow=_Allowed(ctx), cache=state / "cache"
    )

    async def over_stdio() -> int:
        with open_builtin_server(chosen, reach) as server:
            await server.serve_stdio()
        return Exit.OK

    async def over_http() -> int:
        token = own_token(state / "serve-token") if auth == "token" else None
        with stoppable() as wait_for_stop, open_builtin_server(chosen, reach) as server, ExitStack() as stack:
            parts = {
                f"/mcp/{name}": stack.enter_context(open_builtin_server([name], reach)) for name in chosen
            }
            paths = {path: part.sdk_server() for path, part in ({"/mcp": server} | parts).items()}
            async with serving_http(paths, token=token, host=host, port=port) as endpoint:
                served = ServedServer(
                    url=f"{endpoint.url}/mcp", token=token, tools=[tool.name for tool in server.tools]
                )
                print_json(asdict(served)) if as_json else _introduce(served, reach.roots)
                await wait_for_stop()
        return Exit.OK

    try:
        return run_async(over_stdio if stdio else over_http)
    except ToolFailed as exc:
        raise ConfigError(str(exc), hint=exc.hint or "say what to read with `--root FOLDER`") from exc


def choose_servers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The servers to serve: the named ones, or all that the administrator's policy allows."""
    administration = AdminPolicies(os.environ)
    rulings = {name: administration.judge(name, ServerTarget(builtin=name)) for name in NAMES}
    permitted = tuple(name for name in NAMES if not rulings[name].refusals)
    wanted = tuple(name for name in NAMES if name in names) or permitted or NAMES
    refusals = [problem for name in wanted for problem in rulings[name].refusals]
    if refusals:
        raise ConfigInvalid(*dict.fromkeys(refusals))
    return wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedServer:
    """Connection data of a served server, for clients."""

    url: str
    token: str | None
    tools: list[str]


def _introduce(served: ServedServer, roots: tuple[Path, ...]) -> None:
    """Tell a person where it is and how an agent gets there. The two lines of data go to stdout."""
    print_data(f"url    {served.url}")
    print_data(f"token  {served.token or '(none: every client that can reach the port may call)'}")
    say(f"\ntools  {', '.join(served.tools)}")
    say(f"reads  {', '.join(display_path(root) for root in roots)}")
    header = f' --header "Authorization: Bearer {served.token}"' if served.token else ""
    say(f"\nFor Claude Code: claude mcp add --transport http fairlead {served.url}{header}")
    say("For others: `fairlead serve --stdio` is the command of a local server. Ctrl-C stops it.")


class _Allowed:
    """The current allowlist of documentation: `fairlead docs allow` takes effect at once."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx
        self._last = load(ctx).config.docs.allow

    def __call__(self) -> tuple[str, ...]:
        try:
            self._last = load(self._ctx).config.docs.allow
        except ConfigError as exc:
            warn(f"the configuration does not load, so what was allowed before still is: {exc}", exc.hint)
        return self._last
