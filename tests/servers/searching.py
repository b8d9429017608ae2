"""Searching as a model does, with either engine."""

from pathlib import Path
from typing import Any

from fairlead.servers.framework.tools import AnyTool
from fairlead.servers.repo.ripgrep import SearchOutput
from tests.servers.calling import call

PROGRAMS = {"ripgrep": "rg", "python": None}
"""The engines, and the program that has each one used."""


async def found(tool: AnyTool, **arguments: Any) -> SearchOutput:
    return (await call(tool, arguments)).output


def places(output: SearchOutput) -> list[tuple[str, int]]:
    return [(match.file_path, match.line_number) for match in output.matches]


def paths(output: SearchOutput) -> list[str]:
    return [match.file_path for match in output.matches]


def program(folder: Path, script: str, *, name: str = "rg") -> str:
    """A program that does what a shell script says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)
