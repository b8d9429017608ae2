"""`fairlead add`."""

from typing import Any, TypedDict, Unpack, get_args

import click

from fairlead.actions.entries import add_server
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import edit_scope_option, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.edit_scope import relative_to_file
from fairlead.config.models import BuiltinName
from fairlead.terminal.output import display_path, is_interactive, printable, report, say


class AddOptions(TypedDict):
    """The options of `fairlead add`, as click hands them over."""

    url: str | None
    builtin: str | None
    extension: str | None
    root: tuple[str, ...]
    command_: str | None
    arg: tuple[str, ...]
    transport: str | None
    header: tuple[str, ...]
    env: tuple[str, ...]
    cwd: str | None
    sandbox: bool
    sandbox_network: bool
    sandbox_read: tuple[str, ...]
    sandbox_write: tuple[str, ...]
    scope: str | None
    replace: bool
    enabled: bool | None
    required: bool
    later: bool
    trust: str | None
    allow: str | None
    allow_tool: tuple[str, ...]
    deny_tool: tuple[str, ...]
    description: str | None
    startup_timeout_ms: int | None
    request_timeout_ms: int | None
    oauth_authorization_url: str | None
    oauth_token_url: str | None
    oauth_registration_url: str | None
    oauth_client_id: str | None
    oauth_client_secret: str | None
    oauth_scope: str | None
    oauth_callback_port: int | None
    oauth_client_metadata_url: str | None
    oauth_grant: str | None


@click.command("add")
@click.argument("server_id", metavar="ID")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARGS...]")
@click.option("--url", help="The server's MCP endpoint.")
@click.option(
    "--builtin", type=click.Choice(get_args(BuiltinName)), help="A server that comes with Fairlead."
)
@click.option("--extension", metavar="FOLDER", help="A folder whose Python files register tools.")
@click.option("--root", multiple=True, metavar="FOLDER", help="A folder it may work in; repeat it.")
@click.option("--command", "command_", metavar="PROGRAM", help="The program, instead of the form with `--`.")
@click.option("--arg", multiple=True, metavar="ARG", help="An argument of --command; repeat it.")
@click.option(
    "--transport", type=click.Choice(["stdio", "http", "sse"]), help="Taken from the target if left out."
)
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Send a header; repeat it.")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Give the process a variable; repeat it.")
@click.option("--cwd", metavar="FOLDER", help="Where the process starts.")
@click.option("--sandbox", is_flag=True, help="Run it without your rights: no home, no network.")
@click.option("--sandbox-network", is_flag=True, help="Sandboxed, but with the network.")
@click.option("--sandbox-read", multiple=True, metavar="PATH", help="Sandboxed, but it can read this.")
@click.option("--sandbox-write", multiple=True, metavar="PATH", help="Sandboxed, but it can change this.")
@edit_scope_option
@click.option("--replace", is_flag=True, help="Overwrite the server of that id, or a built-in one.")
@click.option(
    "--enabled", type=click.BOOL, metavar="true|false", help="Add it switched on (the default) or off."
)
@click.option("--required", is_flag=True, help="Fail the host's start when it is not ready.")
@click.option("--later", is_flag=True, help="Add it without connecting to it now.")
@click.option("--trust", type=click.Choice(["trusted", "untrusted"]), help="Untrusted if left out.")
@click.option(
    "--allow",
    metavar="all|NAMES|none",
    help="Connect it, and allow all its tools, or these names and globs, separated by commas; none denies"
    " all.",
)
@click.option(
    "--allow-tool",
    multiple=True,
    metavar="TOOL",
    help="Offer a tool (or glob), and ask before calls; repeat it.",
)
@click.option(
    "--deny-tool", multiple=True, metavar="TOOL", help="A tool (or glob) it may not run; repeat it."
)
@click.option("--description", help="Description of the server.")
@click.option("--startup-timeout-ms", type=int, metavar="MS", help="Time to become ready.")
@click.option(
    "--request-timeout-ms", type=int, metavar="MS", help="Time without an answer before a call fails."
)
@click.option(
    "--oauth-authorization-url",
    metavar="URL",
    help="The authorization endpoint, if the server does not announce it.",
)
@click.option("--oauth-token-url", metavar="URL", help="The token endpoint, likewise.")
@click.option("--oauth-registration-url", metavar="URL", help="The client registration endpoint, likewise.")
@click.option("--oauth-client-id", metavar="ID", help="A client that you registered with the provider.")
@click.option("--oauth-client-secret", metavar="SECRET", help="Kept in the keyring, not in the file.")
@click.option("--oauth-scope", metavar="SCOPES", help="OAuth scopes to request, separated by spaces.")
@click.option(
    "--oauth-callback-port",
    type=int,
    metavar="PORT",
    help="Port of the redirect URI; any free one if left out.",
)
@click.option(
    "--oauth-client-metadata-url", metavar="URL", help="URL of the OAuth client ID metadata document."
)
@click.option(
    "--oauth-grant",
    type=click.Choice(["authorization_code", "client_credentials"]),
    help="Log in as a user in the browser (the default), or as the client itself.",
)
@click.pass_context
def command(
    ctx: click.Context, server_id: str, words: tuple[str, ...], **options: Unpack[AddOptions]
) -> None:
    """Add a server: a command to run, a URL, a folder of Python tools, or one that comes with Fairlead.

    It is added to the project's file; `--scope user` adds it to your own, for agents in every folder.
    Secrets given with --header, --env or --oauth-client-secret go into the keyring (or a file only you can
    read) and the config gets a reference. `--env NAME` without a value passes on your own variable. At a
    terminal the server is then connected, and you decide what its tools may do; --allow answers that
    without a terminal, too.

    \b
    Examples:
      fairlead add files -- npx -y @modelcontextprotocol/server-filesystem .
      fairlead add time --allow all -- uvx mcp-server-time
      fairlead add github --url https://api.example.com/mcp --header Authorization='Bearer …'
      fairlead add tool --env API_KEY --scope user -- uvx some-server
      fairlead add notes --sandbox-write ~/notes -- notes-server
      fairlead add tools --extension ./tools
      fairlead add library --builtin repo --root ../library --trust trusted
    """
    _require_connecting(options)
    target = target_file(ctx, options["scope"])
    entry = build_entry(words, options)
    if options["extension"] is not None:
        entry["extension"] = relative_to_file(options["extension"], target)
    added = add_server(action_context(ctx), target, server_id, entry, replace=options["replace"])
    loaded = added.edit.loaded
    say(f"added `{server_id}` to {display_path(target.path)}")
    report(server=server_id, file=str(target.path))
    for secret in added.stashed:
        say(f"  {secret.field}: the value is stored as a secret; the file has {secret.reference}")
    show_edit(added.edit)
    for forgotten in added.forgotten:
        show_forgotten(forgotten)
    server = loaded.servers.get(server_id) if loaded else None
    if loaded is None or server is None or server.config is None or not server.usable:
        return
    if "sandbox" in entry:
        from fairlead.actions.consent import program_paths

        for line in program_paths(server):
            say(f"  sandboxed, {printable(line)}")
    if options["allow"] is not None and not (options["later"] or options["enabled"] is False):
        from fairlead.cli.review import allow_named

        allow_named(ctx, loaded, server, options["allow"])
    elif is_interactive() and not options["later"] and options["allow"] is None:
        from fairlead.cli.review import take_first_look

        take_first_look(ctx, loaded, server)
    elif server.config.trust == "untrusted" and server.config.allow_tools is None:
        say(f"hint: `{command_line('review', server_id)}` shows its tools, and asks what they may do")


def _require_connecting(options: AddOptions) -> None:
    """Refuse `--allow` together with an option that leaves the tools of the server unknown."""
    if options["allow"] not in (None, "none") and (options["later"] or options["enabled"] is False):
        other = "--later" if options["later"] else "--enabled false"
        raise click.UsageError(f"--allow connects the server to see its tools, and {other} does not")


def build_entry(words: tuple[str, ...], options: AddOptions) -> dict[str, Any]:
    """Turn the command line into an entry, with only what was said."""
    program, arguments = _program(words, options)
    oauth = {
        name.removeprefix("oauth_"): value
        for name, value in options.items()
        if name.startswith("oauth_") and value is not None
    }
    entry: dict[str, Any] = {
        "transport": options["transport"],
        "command": program,
        "args": arguments,
        "cwd": options["cwd"],
        "env": dict(_variable(pair) for pair in options["env"]),
        "sandbox": _sandbox(options),
        "url": options["url"],
        "builtin": options["builtin"],
        "extension": options["extension"],
        "roots": list(options["root"]),
        "headers": dict(_header(pair) for pair in options["header"]),
        "oauth": oauth,
        "enabled": options["enabled"],
        "required": options["required"] or None,
        "trust": options["trust"],
        "allow_tools": list(options["allow_tool"]),
        "deny_tools": list(options["deny_tool"]),
        "description": options["description"],
        "startup_timeout_ms": options["startup_timeout_ms"],
        "request_timeout_ms": options["request_timeout_ms"],
    }
    return {name: value for name, value in entry.items() if value is not None and value not in ([], {})}


def _program(words: tuple[str, ...], options: AddOptions) -> tuple[str | None, list[str]]:
    given = {
        "a command after `--`": words,
        "--command": options["command_"],
        "--url": options["url"],
        "--builtin": options["builtin"],
        "--extension": options["extension"],
    }
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        wanted = (
            "give a command (`fairlead add ID -- COMMAND ARGS…`), `--url URL`, `--builtin NAME` or"
            " `--extension FOLDER`"
        )
        raise click.UsageError(f"{' and '.join(named)} exclude each other; {wanted}" if named else wanted)
    if words:
        if options["arg"]:
            raise click.UsageError(
                "--arg goes with --command; with `--` write the arguments after the command"
            )
        return words[0], list(words[1:])
    return options["command_"], list(options["arg"])


def _sandbox(options: AddOptions) -> dict[str, Any] | None:
    """The sandbox options as an entry. Saying what a sandbox may do switches it on."""
    more: dict[str, Any] = {
        "network": options["sandbox_network"],
        "read": list(options["sandbox_read"]),
        "write": list(options["sandbox_write"]),
    }
    given = {name: value for name, value in more.items() if value}
    return {"kind": "bwrap", **given} if options["sandbox"] or given else None


def _variable(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not name:
        raise click.BadParameter(f"`{pair}` is not NAME=VALUE", param_hint="--env")
    return name, value if equals else f"${{{name}}}"


def _header(pair: str) -> tuple[str, str]:
    equals, colon = pair.find("="), pair.find(":")
    at = min((place for place in (equals, colon) if place > 0), default=-1)
    if at < 0:
        raise click.BadParameter("write NAME=VALUE", param_hint="--header")
    return pair[:at].strip(), pair[at + 1 :].strip()
