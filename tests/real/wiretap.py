"""A server with its conversation written down, as it heard it and as it said it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = 'tee -a "$0" | "$2" | tee -a "$1"'


@dataclass(frozen=True, kw_only=True)
class Wiretap:
    """Two files beside a server."""

    heard_file: Path
    said_file: Path

    def around(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The same entry, with both directions copied. The program must need no arguments."""
        assert not entry["args"]
        files = [str(self.heard_file), str(self.said_file)]
        return {**entry, "command": "sh", "args": ["-c", _SCRIPT, *files, entry["command"]]}

    def heard(self, method: str | None = None) -> list[dict[str, Any]]:
        """What the server was sent so far."""
        return _messages(self.heard_file, method)

    def said(self, method: str | None = None) -> list[dict[str, Any]]:
        """What the server sent so far."""
        return _messages(self.said_file, method)


def _messages(file: Path, method: str | None) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    whole_lines = file.read_text(encoding="utf-8").rpartition("\n")[0]
    messages: list[dict[str, Any]] = [json.loads(line) for line in whole_lines.splitlines()]
    return [message for message in messages if method is None or message.get("method") == method]
