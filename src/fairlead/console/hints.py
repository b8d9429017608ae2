"""Hints as they can be followed at the console's prompt: its own commands in the place of the shell's."""

import re
import shlex
from typing import Final

_COMMAND: Final = re.compile(r"`fairlead ([^`\n]+)`")
_VERBS: Final[dict[str, str]] = {
    "approve": "/mcp review",  # which asks whether it may start
    "disable": "/mcp disable",
    "enable": "/mcp enable",
    "login": "/mcp login",
    "tools": "/tools",
    "call": "/call",
    "approvals": "/approve",
    "approvals answer": "/approve",
    "audit": "/audit",
    "list": "/mcp",
    "status": "/mcp",
}
"""Commands that take the same operands here, and no options."""
_ALONE: Final = frozenset({"approvals", "audit", "list", "status"})
"""Those of them that take no operands here."""
_ASKED_HERE: Final = frozenset({"--yes"})
"""Options that say what the console asks at its prompt."""


def console_hint(hint: str) -> str:
    """A hint with its commands replaced by the console's own, where it has them."""
    return _COMMAND.sub(lambda found: f"`{_translate(found[1]) or f'fairlead {found[1]}'}`", hint)


def _translate(command: str) -> str | None:
    """A command of the shell as it is typed here; None where there is nothing like it."""
    try:
        words = [word for word in shlex.split(command) if word not in _ASKED_HERE]
    except ValueError:
        return None
    if words[0] == "review":
        return None if len(words) == 1 or "--all" in words else f"/mcp {command}"
    for count in (2, 1):
        name, rest = " ".join(words[:count]), words[count:]
        verb = _VERBS.get(name)
        if verb is not None and not (rest and name in _ALONE):
            operands = rest[1:] if rest[:1] == ["--"] else rest
            if operands == rest and any(word.startswith("-") for word in rest):
                return None
            return " ".join([verb, *operands])
    return None
