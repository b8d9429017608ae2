"""`fairlead schema`."""

import click

from fairlead.cli.options import json_option
from fairlead.config.json_schema import SCHEMA_FILE
from fairlead.terminal.output import print_data


@click.command("schema")
@json_option
def command(*, as_json: bool) -> None:
    """Print the JSON Schema of fairlead.json, for editors.

    \b
    Example:
      fairlead schema > fairlead.schema.json     # then put "$schema": "./fairlead.schema.json" into the file
    """
    print_data(SCHEMA_FILE.read_text(encoding="utf-8").rstrip("\n"))
