"""`fairlead restore`."""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead.cli.commands.backup_ import PASSPHRASE_VARIABLE
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    confirm,
    display_path,
    is_interactive,
    print_json,
    print_notices,
    print_table,
    printable,
    say,
    warn,
)

if TYPE_CHECKING:
    from fairlead.actions.backup import RestorePlan
    from fairlead.actions.context import ActionContext


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--project", is_flag=True, help="Write the project's files, too, into the current folder.")
@click.option("--dry-run", is_flag=True, help="Show what would be replaced, change nothing.")
@click.option("--yes", is_flag=True, help="Restore without asking.")
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path, *, project: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Replace configuration and state by those in a backup. Shows what goes, and asks.

    The whole file is checked first. All of it is restored or nothing, and what was there is kept as a backup
    of its own. What a backup allows is allowed afterwards: restore only what you wrote yourself. A gateway
    has to be stopped before.

    \b
    Examples:
      fairlead restore fairlead-backup-2026-11-16-120000.zip --dry-run
      fairlead restore ~/backups/fairlead.zip
    """
    from fairlead.actions.backup import restore_backup

    loaded = load(ctx)
    context = action_context(ctx, loaded)
    plan = _read(context, file, project=project)
    names = [*dict.fromkeys((*plan.before, *plan.after))]
    numbers = {name: (plan.before.get(name, 0), plan.after.get(name, 0)) for name in names}
    made_at = datetime.fromtimestamp(plan.archive.manifest.made_at).astimezone()
    shown = {
        "made_at": made_at.isoformat(),
        "made_by": plan.archive.manifest.made_by,
        "secrets": plan.archive.manifest.has_secrets,
        "files": [str(path) for path, _, _ in plan.files],
        "before": plan.before,
        "after": plan.after,
        "left_out": plan.left_out,
    }
    if not as_json:
        made_by = printable(plan.archive.manifest.made_by)
        say(f"backup of {made_at:%Y-%m-%d %H:%M}, made by {made_by}")
        rows = [(name, str(before), str(after)) for name, (before, after) in numbers.items()]
        print_table(("what", "now", "in the backup"), rows)
        for path, _, _ in plan.files:
            say(f"  {'replaces' if path.exists() else 'writes'} {display_path(path)}")
    for words in plan.left_out:
        say(f"  leaves out {words}: `--project` writes it into the current folder")
    if dry_run:
        if as_json:
            print_json({"restored": False, **shown})
        return Exit.OK
    if plan.after.get("consents") or plan.after.get("approvals"):
        warn("what the backup allows takes effect: servers that may start, calls that need no approval")
    if not yes and not confirm("\nReplace what is there?"):
        say(
            "nothing was changed"
            + ("" if is_interactive() else "; pass `--yes` to restore without a terminal")
        )
        if as_json:
            print_json({"restored": False, **shown})
        return Exit.NEEDS_A_PERSON
    restored = restore_backup(context, plan)
    if as_json:
        print_json({"restored": True, "previous": str(restored.previous), **shown})
    say(f"restored {display_path(file.absolute())}; what was there is in {display_path(restored.previous)}")
    print_notices(restored.notices)
    return Exit.OK


def _read(context: "ActionContext", file: Path, *, project: bool) -> "RestorePlan":
    from fairlead.actions.backup import plan_restore
    from fairlead.actions.backup_archive import PassphraseNeeded

    passphrase = os.environ.get(PASSPHRASE_VARIABLE) or None
    try:
        return plan_restore(context, file, passphrase=passphrase, project=project)
    except PassphraseNeeded:
        if passphrase is not None or not is_interactive():
            raise
    typed: str = click.prompt("Passphrase of the backup", hide_input=True, err=True)
    return plan_restore(context, file, passphrase=typed, project=project)
