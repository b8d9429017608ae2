"""`fairlead docs`."""

import os

import click

from fairlead.actions.doc_sites import WHERE, allow_sites, deny_sites, meaning_of, parse_sites
from fairlead.cli.config_edits import action_context, show_edit
from fairlead.cli.options import FunctionT, json_option, load, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.edit_scope import EditTarget
from fairlead.errors import ConfigError, FairleadError
from fairlead.terminal.output import display_path, print_json, print_table, report, say, warn


@click.group("docs")
def command() -> None:
    """Set which sites the built-in documentation reader may read. By default none.

    \b
    A site is
      docs.python.org         that host
      *.readthedocs.io        every host under it, but not itself
      example.org/docs        only pages under that path
      example.org:8443        a port that is not the usual one
      localhost:8000          this machine; over http, too

    Pages are read over https only, and never from private networks, even where a public name resolves to one.
    """


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in load(ctx).config.docs.allow if name.startswith(incomplete)]
    except FairleadError:
        return []  # a shell completes nothing rather than print an error into the prompt


def _scope_option(function: FunctionT) -> FunctionT:
    return click.option(
        "--scope",
        type=click.Choice(["user", "global", "project"]),
        help="Your own file, the default and the only one: a project may not allow sites.",
    )(function)


@command.command("allow")
@click.argument("sites", metavar="SITE...", nargs=-1, required=True)
@_scope_option
@click.pass_context
def allow_command(ctx: click.Context, sites: tuple[str, ...], scope: str | None) -> None:
    """Let the reader read a site, or several.

    \b
    Examples:
      fairlead docs allow docs.python.org
      fairlead docs allow '*.readthedocs.io' developer.mozilla.org/en-US/docs
      fairlead docs allow localhost:8000
    """
    patterns = parse_sites(sites)
    target = _target(ctx, scope)
    report(sites=[pattern.text for pattern in patterns], file=str(target.path))
    allowed = allow_sites(action_context(ctx), target, patterns)
    for pattern in allowed.sites:
        if pattern in allowed.added:
            say(f"allowed `{pattern.text}` in {display_path(target.path)}: {pattern.meaning}")
        else:
            say(f"`{pattern.text}` is allowed already")
        if pattern.path:
            command = command_line("docs allow", pattern.host)
            say(f"  that is one path of it; the whole site would be `{command}`")
    show_edit(allowed.edit)
    if allowed.overridden is not None:
        say(f"but {allowed.overridden}")


@command.command("deny")
@click.argument("sites", metavar="SITE...", nargs=-1, required=True, shell_complete=_complete)
@_scope_option
@click.pass_context
def deny_command(ctx: click.Context, sites: tuple[str, ...], scope: str | None) -> None:
    """Remove a site from the allowlist. Write it as `fairlead docs list` shows it.

    \b
    Example:
      fairlead docs deny docs.python.org
    """
    target = _target(ctx, scope)
    report(sites=list(sites), file=str(target.path))
    denied = deny_sites(action_context(ctx), target, sites)
    for site in sites:
        say(f"removed `{site}` from the allowlist in {display_path(target.path)}")
    show_edit(denied.edit)
    for entry in denied.covered.values():
        say(f"but `{entry}` still covers it")


@command.command("list")
@json_option
@click.pass_context
def list_command(ctx: click.Context, *, as_json: bool) -> None:
    """Show the sites that may be read, and the file that allows each.

    \b
    Examples:
      fairlead docs list
      fairlead docs list --json
    """
    loaded = load(ctx)
    origin = loaded.origin(*WHERE)
    source = str(origin) if origin else None
    sites = {name: meaning_of(name) for name in loaded.config.docs.allow}
    if as_json:
        rows = [{"site": name, "covers": meaning} for name, meaning in sites.items()]
        print_json({"allow": rows, "source": source})
        return
    if not sites:
        say("no site may be read yet")
        say("\nhint: allow one with `fairlead docs allow docs.python.org`")
        return
    print_table(("site", "covers"), [(name, meaning or "nothing") for name, meaning in sites.items()])
    say(f"\nset by {source}")
    for name, meaning in sites.items():
        if meaning is None:
            warn(f"`{name}` is no site that can be allowed", f"run `{command_line('docs deny', name)}`")


def _target(ctx: click.Context, scope: str | None) -> EditTarget:
    if scope == "project":
        raise ConfigError(
            "a project's file may not say what may be read", hint="leave out `--scope`: it goes to your own"
        )
    explicit = ctx.find_root().obj or os.environ.get("FAIRLEAD_CONFIG_PATH")
    return target_file(ctx, scope or (None if explicit else "user"))
