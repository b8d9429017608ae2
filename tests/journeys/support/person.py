"""A person at a machine of their own: types commands, reads what they print, follows hints, edits the file.

Commands and seconds are counted; the end of the test run shows them.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.testing import scripted_program
from tests.cli.pty_support import Person as Typist
from tests.cli.pty_support import at_terminal

SECONDS = 120
_COMMAND = re.compile(r"`(fairlead [^`]+)`")
_HINT = re.compile(r"^\s*hint: (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def hint(self) -> str:
        """The first hint in it."""
        found = _HINT.search(self.err) or _HINT.search(self.out)
        assert found, f"there is no hint in: {self.out}{self.err}"
        return found[1]

    def json(self) -> Any:
        """Its data."""
        return json.loads(self.out)


@dataclass
class Journey:
    """One journey: the machine, and the count of commands."""

    name: str
    home: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    commands: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def project(self) -> Path:
        """The folder that the person works in; there is no configuration in it."""
        return self.home / "website"

    def __post_init__(self) -> None:
        """Set up a machine with nothing on it but this Python."""
        self.project.mkdir(parents=True, exist_ok=True)
        measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
        self.env = {
            **measured,
            "HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "FAIRLEAD_BUILTINS": "off",
            "FAIRLEAD_VAULT": "file",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "LANG": "C.UTF-8",
            **self.env,
        }

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self.began

    @property
    def file(self) -> Path:
        """The user's configuration."""
        return self.home / ".config" / "fairlead" / "fairlead.json"

    @property
    def programs(self) -> Path:
        """A folder on the PATH, for programs that the person has installed."""
        return self.home / "bin"

    def install(self, name: str, **script: Any) -> Path:
        """Install a program that is a server which follows a script, whatever its arguments."""
        record = json.dumps({"record": str(self.home / f".{name}.record"), "any_tool": True, **script})
        command = [sys.executable, "-I", "-S", scripted_program.__file__, record]
        return self.install_program(name, f"#!/bin/sh\nexec {shlex.join(command)}\n")

    def install_program(self, name: str, text: str) -> Path:
        """Install a program by its text."""
        self.programs.mkdir(exist_ok=True)
        program = self.programs / name
        program.write_text(text)
        program.chmod(0o755)
        return program

    def run(self, *arguments: str) -> Printed:
        """Run `fairlead` in a pipe."""
        self.commands += 1
        done = subprocess.run(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=self.home,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert "bug in Fairlead" not in done.stderr, done.stderr
        return Printed(status=done.returncode, out=done.stdout, err=done.stderr)

    def type(self, *arguments: str) -> AbstractContextManager[Typist]:
        """Run `fairlead` at a terminal."""
        self.commands += 1
        return at_terminal(*arguments, env=self.env, cwd=self.home)

    def follow(self, hint: str) -> list[Printed]:
        """Run each `fairlead` command that a hint names, exactly as it is printed."""
        printed = [self.run(*shlex.split(command)[1:]) for command in _COMMAND.findall(hint)]
        for each in printed:
            assert each.status != 2, f"a hint's command is no command: {each.err}"
        return printed

    def write(self, text: str) -> None:
        """Write the configuration file, as it is."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)

    def configure(self, **servers: dict[str, Any]) -> None:
        """Write a configuration of these servers, which the user trusts."""
        entries = {name: {"trust": "trusted", **entry} for name, entry in servers.items()}
        self.write(json.dumps({"servers": entries}, indent=2))

    def edit(self, server_id: str, **fields: Any) -> None:
        """Edit a server's entry; None takes a field out."""
        document = json.loads(self.file.read_text())
        entry: dict[str, Any] = document["servers"][server_id]
        entry.update(fields)
        document["servers"][server_id] = {name: value for name, value in entry.items() if value is not None}
        self.write(json.dumps(document, indent=2))

    def last_error(self, server_id: str) -> dict[str, Any]:
        """What `fairlead status` keeps of a server's last error: the record that the dashboard shows too."""
        (row,) = self.run("status", server_id, "--json").json()["servers"]
        return row
