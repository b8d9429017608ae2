"""`fairlead docs`."""

import os
import re
from collections.abc import Iterable

import click

from fairlead.actions.config_edits import precedence
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import FunctionT, json_option, load, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.document.edit import append_name, edit_file, names_at, remove_name
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget
from fairlead.config.load import LoadedConfig
from fairlead.errors import ConfigError, FairleadError
from fairlead.servers.docs.allowlist import AllowList, Pattern, parse_pattern, parse_url
from fairlead.terminal.output import display_path, print_json, print_notices, print_table, report, say, warn

WHERE = ("docs", "allow")


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
    patterns = [parse_pattern(_without_scheme(site)) for site in sites]
    target = _target(ctx, scope)
    report(sites=[pattern.text for pattern in patterns], file=str(target.path))
    added: list[Pattern] = []

    def change(text: str) -> str:
        for pattern in patterns:
            if _entry_for(pattern, names_at(text, WHERE)) is None:
                text = append_name(text, WHERE, pattern.text)
                added.append(pattern)
        return text

    edit_file(target.path, change, create=EMPTY_FILE)
    if added:
        names = [pattern.text for pattern in added]
        print_notices(action_context(ctx).record("allow site", "docs", sites=names))
    for pattern in patterns:
        if pattern in added:
            say(f"allowed `{pattern.text}` in {display_path(target.path)}: {pattern.meaning}")
        else:
            say(f"`{pattern.text}` is allowed already")
        if pattern.path:
            command = command_line("docs allow", pattern.host)
            say(f"  that is one path of it; the whole site would be `{command}`")
    loaded = _reload_config(ctx)
    if loaded and any(_entry_for(pattern, loaded.config.docs.allow) is None for pattern in patterns):
        say(f"but {precedence(loaded.origin(*WHERE))}")


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

    def change(text: str) -> str:
        for site in sites:
            names = names_at(text, WHERE)
            name = site if site in names else _entry_for(parse_pattern(_without_scheme(site)), names)
            if name is None:
                raise ConfigError(
                    f"`{site}` is not in the list of {target.path}",
                    hint="run `fairlead docs list` to see what is",
                )
            text = remove_name(text, WHERE, name)
        return text

    edit_file(target.path, change, create=EMPTY_FILE)
    print_notices(action_context(ctx).record("deny site", "docs", sites=list(sites)))
    for site in sites:
        say(f"removed `{site}` from the allowlist in {display_path(target.path)}")
    loaded = _reload_config(ctx)
    for site in sites:
        wider = _find_covering_entry(site, loaded.config.docs.allow if loaded else ())
        if wider:
            say(f"but `{wider}` still covers it")


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
    sites = {name: _describe_entry(name) for name in loaded.config.docs.allow}
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


def _without_scheme(site: str) -> str:
    """A site as it is written in the list, where https goes without saying; of a page's URL, what matters."""
    if not site.lower().startswith("https://"):
        return site
    return re.split(r"[?#]", site[len("https://") :])[0].rstrip("/")


def _target(ctx: click.Context, scope: str | None) -> EditTarget:
    if scope == "project":
        raise ConfigError(
            "a project's file may not say what may be read", hint="leave out `--scope`: it goes to your own"
        )
    explicit = ctx.find_root().obj or os.environ.get("FAIRLEAD_CONFIG_PATH")
    return target_file(ctx, scope or (None if explicit else "user"))


def _reload_config(ctx: click.Context) -> LoadedConfig | None:
    """The configuration in effect after a change."""
    try:
        return load(ctx)
    except ConfigError as exc:
        warn(f"the file was written, but the configuration does not load: {exc}", exc.hint)
        return None


def _parse_entry(name: str) -> Pattern | None:
    """An entry written by hand, if it makes sense."""
    try:
        return parse_pattern(name)
    except ConfigError:
        return None


def _entry_for(pattern: Pattern, names: Iterable[str]) -> str | None:
    """The entry that means the same site, in any spelling."""
    return next((name for name in names if _parse_entry(name) == pattern), None)


def _find_covering_entry(site: str, names: Iterable[str]) -> str | None:
    """The entry that still covers a site, if one does."""
    pattern = _parse_entry(_without_scheme(site))
    if pattern is None or pattern.under:
        return None
    left = AllowList(name for name in names if _parse_entry(name))
    covering = left.find_entry(parse_url(f"{max(pattern.schemes)}://{pattern.place}/"))
    return covering.text if covering else None


def _describe_entry(name: str) -> str | None:
    pattern = _parse_entry(name)
    return pattern.meaning if pattern else None
