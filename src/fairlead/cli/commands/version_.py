"""`fairlead version`."""

import platform
from importlib.metadata import version

import click

from fairlead.terminal.output import print_data, report


@click.command("version")
def command() -> None:
    """Print the version: the same as `fairlead --version`.

    \b
    Examples:
      fairlead version
      fairlead version --json
    """
    found = version("fairlead")
    report(version=found, python=platform.python_version())
    print_data(f"fairlead {found}")
