"""A scripted MCP server for tests: a real process that follows a script, faults included."""

import json
import sys
from pathlib import Path
from typing import Any

import fairlead.testing.scripted_program as scripted_program


class ScriptedServer:
    """A stdio MCP server that follows a script, and the record that its processes write.

    `scripted_program.DEFAULTS` lists the fields of a script, `scripted_program.TOOLS` the tools:

    ```python
    server = ScriptedServer(tmp_path / "record", tools=["crash", "echo"])
    async with open_host(tmp_path, scripted=server.entry()) as host:
        await host.call("scripted.echo", text="hello")
    assert server.starts == 1
    assert server.calls("echo") == 1
    ```
    """

    def __init__(self, record: Path, **script: Any) -> None:  # noqa: ANN401 - any JSON value
        """Make a server; `entry` and `argv` start it.

        Args:
            record: The file that its processes write to, one JSON line for each thing that happens.
            script: Fields that differ from `scripted_program.DEFAULTS`.
        """
        self.record = record
        self.script = {"record": str(record), **script}

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that starts it."""
        return (sys.executable, "-I", "-S", scripted_program.__file__, json.dumps(self.script))

    def entry(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Return its entry in a configuration, with more fields.

        Args:
            fields: Further fields of the entry, or other values.
        """
        command, *args = self.argv
        return {"command": command, "args": args, "trust": "trusted", **fields}

    def notes(self, what: str) -> list[Any]:
        """Return what its processes recorded, in order.

        Args:
            what: The kind: `started`, `received` or `called`.
        """
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [note[what] for note in map(json.loads, lines) if what in note]

    @property
    def starts(self) -> int:
        """Number of processes that were started."""
        return len(self.notes("started"))

    def calls(self, tool: str) -> int:
        """Return how often a tool was called.

        Args:
            tool: The tool's name.
        """
        return self.notes("called").count(tool)
