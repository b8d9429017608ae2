"""The verbs, one per file, each with its `VERB`. They are loaded after the first line is drawn."""

from importlib import import_module
from typing import Final

from fairlead.console.session import Verb

NAMES: Final = (
    "help",
    "mcp",
    "tools",
    "call",
    "resources",
    "attach",
    "prompts",
    "clear",
    "approve",
    "cost",
    "audit",
    "quit",
)
"""In the order of `/help`."""

_FILES: Final = {"attach": "resources"}
"""Where a verb is not in the file of its name: it is `VERB_<NAME>` there."""


def load_verbs() -> dict[str, Verb]:
    """Every verb, by name."""
    return {name: _verb(name) for name in NAMES}


def _verb(name: str) -> Verb:
    module = import_module(f"fairlead.console.verbs.{_FILES.get(name, name)}")
    verb: Verb = getattr(module, f"VERB_{name.upper()}" if name in _FILES else "VERB")
    return verb
