"""A scripted MCP server for tests: a real process that follows a script, faults included."""

import json
import sys
from pathlib import Path
from typing import Any

from fairlead.testing import scripted_program


class ScriptedServer:
    """A stdio server that follows a script, and what its processes noted in `record`.

    `scripted_program.DEFAULTS` lists what a script may say, `scripted_program.TOOLS` what its tools do:

    ```python
    server = ScriptedServer(tmp_path / "record", tools=["crash", "echo"], broken_starts=2)
    async with open_host(tmp_path, flaky=server.entry()) as host:
        ...
    assert server.starts == 3
    ```
    """

    def __init__(self, record: Path, **script: Any) -> None:  # noqa: ANN401 - whatever JSON can say
        self.record = record
        self.script = {"record": str(record), **script}

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that starts it."""
        return (sys.executable, "-I", "-S", scripted_program.__file__, json.dumps(self.script))

    def entry(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """Its entry in a configuration."""
        command, *args = self.argv
        return {"command": command, "args": args, "trust": "trusted", **fields}

    def notes(self, what: str) -> list[Any]:
        """What its processes noted of one kind (`started`, `received`, `called`), in order."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [note[what] for note in map(json.loads, lines) if what in note]

    @property
    def starts(self) -> int:
        """How many processes were started."""
        return len(self.notes("started"))

    def calls(self, tool: str) -> int:
        """How often a tool was carried out."""
        return self.notes("called").count(tool)
