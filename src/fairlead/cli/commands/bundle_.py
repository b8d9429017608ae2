"""`fairlead bundle`."""

import click

from fairlead.cli.config_edits import action_context, show_edit
from fairlead.cli.options import edit_scope_option, entry_scope_option, json_option, load, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.models import Bundle
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import display_path, print_json, print_table, report, say, warn


@click.group("bundle")
def command() -> None:
    """Make and remove bundles: selections of servers and tools, each with an endpoint of its own.

    The gateway serves a bundle at `/mcp/NAME`, and a token can be limited to bundles.

    \b
    Examples:
      fairlead bundle add design figma notion.search
      fairlead gateway token add anna --bundle design
    """


@command.command("add")
@click.argument("bundle", metavar="NAME")
@click.argument("selection", nargs=-1, required=True, metavar="SERVER[.TOOL]...")
@click.option("--without", multiple=True, metavar="SERVER.TOOL", help="Leave this tool out; repeat it.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "meta", "auto"]),
    help="How tools are offered: directly, behind meta-tools, or as fits.",
)
@click.option("--description", metavar="TEXT", help="Description of the bundle.")
@click.option("--replace", is_flag=True, help="Overwrite a bundle of the same name.")
@edit_scope_option
@click.pass_context
def add_bundle(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    bundle: str,
    selection: tuple[str, ...],
    without: tuple[str, ...],
    mode: str | None,
    description: str | None,
    scope: str | None,
    *,
    replace: bool,
) -> int:
    """Make a bundle of servers, and of single tools of servers. A running gateway serves it at once.

    SERVER takes all tools of a server, SERVER.TOOL one, or those that a glob matches.

    \b
    Examples:
      fairlead bundle add design figma notion
      fairlead bundle add reading 'github.get_*' github.search_issues
      fairlead bundle add most github --without github.delete_repository
    """
    from fairlead.actions.bundles import BundleDraft, make_bundle

    target = target_file(ctx, scope)
    draft = BundleDraft(selection=selection, without=without, mode=mode, description=description)
    edit = make_bundle(action_context(ctx, load(ctx)), target, bundle, draft, replace=replace)
    report(bundle=bundle, file=str(target.path), path=f"/mcp/{bundle}")
    say(f"added the bundle `{bundle}` to {display_path(target.path)}; the gateway serves it at /mcp/{bundle}")
    show_edit(edit)
    token = f"fairlead gateway token add NAME --bundle {bundle}"
    say(f"hint: `{token}` makes a token for this bundle alone")
    return Exit.OK


@command.command("list")
@json_option
@click.pass_context
def list_bundles(ctx: click.Context, *, as_json: bool) -> int:
    """Show the bundles, with what is in them.

    \b
    Examples:
      fairlead bundle list
      fairlead bundle list --json
    """
    loaded = load(ctx)
    bundles = loaded.config.bundles
    if as_json:
        shown = {
            name: bundle.model_dump(mode="json", exclude_unset=True, exclude_none=True)
            for name, bundle in bundles.items()
        }
        print_json({"bundles": shown})
    elif bundles:
        rows = [
            (name, f"/mcp/{name}", ", ".join(_members(bundle)), bundle.mode, bundle.description or "-")
            for name, bundle in bundles.items()
        ]
        print_table(("name", "path", "servers and tools", "mode", "what it is for"), rows)
    else:
        say("no bundles; `fairlead bundle add NAME SERVER` makes one")
    return Exit.OK


def _members(bundle: Bundle) -> list[str]:
    """The selection as it is typed."""
    found: list[str] = []
    for server_id, taken in bundle.servers.items():
        found += [f"{server_id}.{tool}" for tool in taken.allow_tools or ()] or [server_id]
        found += [f"without {server_id}.{tool}" for tool in taken.deny_tools]
    return found


@command.command("remove")
@click.argument("bundle", metavar="NAME")
@entry_scope_option
@click.pass_context
def remove_bundle_command(ctx: click.Context, bundle: str, scope: str | None) -> int:
    """Remove a bundle from the file that defines it. A running gateway serves it no longer.

    \b
    Example:
      fairlead bundle remove design
    """
    from fairlead.actions.bundles import remove_bundle

    removed = remove_bundle(action_context(ctx, load(ctx)), bundle, scope=scope)
    report(bundle=bundle, file=str(removed.target.path), tokens=removed.tokens)
    say(f"removed the bundle `{bundle}` from {display_path(removed.target.path)}")
    show_edit(removed.edit)
    for token in removed.tokens:
        warn(
            f"the token `{token}` is for this bundle alone, and opens nothing now",
            f"revoke it: `{command_line('gateway token remove', token)}`",
        )
    return Exit.OK
