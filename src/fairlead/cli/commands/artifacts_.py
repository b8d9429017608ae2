"""`fairlead artifacts`."""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairlead.actions.artifacts import clean_artifacts, list_artifacts, read_artifact
from fairlead.catalog.sanitize import gate
from fairlead.cli.options import json_option, load
from fairlead.store.artifacts import SCHEME, Artifact
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_table, printable, printable_lines, say


@click.group("artifacts", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Show artifacts: the stored rest of results that were too large.

    \b
    Examples:
      fairlead artifacts
      fairlead artifacts show artifact://2c26b46b… --output page.html
      fairlead artifacts clean --all
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show_list, as_json=as_json)


@command.command("list")
@json_option
@click.pass_context
def show_list(ctx: click.Context, *, as_json: bool) -> int:
    """Show the artifacts, newest first.

    \b
    Examples:
      fairlead artifacts list
      fairlead artifacts list --json
    """
    import anyio

    found = anyio.run(list_artifacts, load(ctx), os.environ)
    if as_json:
        print_json({"artifacts": [_as_json(artifact) for artifact in found]})
    elif found:
        print_table(("handle", "type", "bytes", "from", "age"), [_row(artifact) for artifact in found])
    else:
        say("nothing is kept")
    return Exit.OK


@command.command("show")
@click.argument("handle")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write it to a file.")
@json_option
@click.pass_context
def show_one(ctx: click.Context, handle: str, output: str | None, *, as_json: bool) -> int:
    """Show an artifact: its text at a terminal, its bytes in a pipe. The start of a handle will do.

    \b
    Examples:
      fairlead artifacts show artifact://2c26b46b
      fairlead artifacts show 2c26b46b -o page.html
    """
    import anyio

    artifact, content = anyio.run(read_artifact, load(ctx), os.environ, handle)
    if output is not None:
        _write(content, output)
    if as_json:
        print_json({**_as_json(artifact), **_content_as_json(artifact, content, output)})
    elif output is not None:
        return Exit.OK
    elif not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    elif artifact.is_text:
        print_data(printable_lines(gate.finish(gate.file_steps(content))))
    else:
        say(f"{printable(artifact.media_type)}, {artifact.size:,} bytes, not text; -o FILE saves it")
    return Exit.OK


def _content_as_json(artifact: Artifact, content: bytes, output: str | None) -> dict[str, Any]:
    if output is not None:
        return {"file": output}
    if artifact.is_text:
        return {"text": gate.finish(gate.file_steps(content))}
    from base64 import b64encode

    return {"base64": b64encode(content).decode()}


@command.command("clean")
@click.option("--all", "everything", is_flag=True, help="Remove all of them.")
@json_option
@click.pass_context
def remove(ctx: click.Context, *, everything: bool, as_json: bool) -> int:
    """Remove artifacts over the limits of age and size, as happens whenever one is stored.

    \b
    Examples:
      fairlead artifacts clean
      fairlead artifacts clean --all
    """
    import anyio

    removed = anyio.run(partial(clean_artifacts, load(ctx), os.environ, everything=everything))
    if as_json:
        print_json({"removed": removed})
    else:
        say(f"removed {removed}")
    return Exit.OK


def _write(content: bytes, output: str) -> None:
    try:
        with click.open_file(output, "wb") as file:
            file.write(content)
    except OSError as exc:
        raise click.FileError(output, hint=exc.strerror) from exc
    if output != "-":
        say(f"wrote {len(content):,} bytes to {Path(output)}")


def _row(artifact: Artifact) -> tuple[str, ...]:
    age = max(0.0, time.time() - artifact.created)
    unit, seconds = next(
        ((name, size) for name, size in (("d", 86_400), ("h", 3600), ("min", 60)) if age >= size), ("s", 1)
    )
    source = f"{artifact.server_id}.{artifact.tool}"
    shown = f"{SCHEME}{artifact.sha256[:12]}…"
    return shown, artifact.media_type, f"{artifact.size:,}", source, f"{age / seconds:.0f} {unit}"


def _as_json(artifact: Artifact) -> dict[str, Any]:
    return {
        "handle": artifact.handle,
        "mediaType": artifact.media_type,
        "bytes": artifact.size,
        "server": artifact.server_id,
        "tool": artifact.tool,
        "untrusted": artifact.untrusted,
        "created": artifact.created,
    }
