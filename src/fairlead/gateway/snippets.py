"""The gateway in the words of other agents: what to put into their files, or to type."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead.config.dialects import registry, texts
from fairlead.config.dialects.dialect import Dialect, Exported

AGENTS: Final = ("claude", "codex", "cursor", "vscode", "opencode", "gemini")
NAME: Final = "fairlead"
"""What the gateway is called in their files."""
TOKEN_INPUT: Final = "gateway-token"  # noqa: S105 - a name, no token
"""What editors call it that ask for the token."""
TOKEN_VARIABLE: Final = "FAIRLEAD_TOKEN"  # noqa: S105 - likewise
"""The variable with the token for all agents; an agent's own token has its name at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How an agent gets to the gateway: by URL and token, or by starting a command that does."""

    url: str | None = None
    token: str | None = None
    token_file: Path | None = None
    agent: str | None = None
    """Whose token it is, where that is one agent's alone."""
    command: tuple[str, ...] = ("fairlead", "gateway", "--stdio")

    def entry(self, authorization: str | None) -> dict[str, Any]:
        """The gateway as a server of ours would be written."""
        if self.url is None:
            program, *arguments = self.command
            return {"command": program, "args": arguments}
        headers = {"headers": {"Authorization": authorization}} if authorization else {}
        return {"url": self.url, **headers}


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The gateway in an agent's words."""

    document: dict[str, Any]
    has_token: bool = False
    """The token stands there in plain text."""
    advice: str | None = None
    """What a person has to do for it to work."""


def dialect_of(agent: str) -> Dialect:
    """The format of an agent that the gateway can be written for."""
    dialect = registry.by_name(agent)
    assert dialect.write is not None, f"{agent} is among those that are written"
    return dialect


def by_reference(agent: str, reach: Reach) -> Written:
    """The gateway with its token kept elsewhere, if the agent can look there; else in plain text."""
    if reach.url is None or reach.token is None:
        return Written(document=_write(agent, reach.entry(None)).document)
    reference, advice = _reference(agent, reach)
    exported = _write(agent, reach.entry(f"Bearer {reference}"))
    if not exported.notes:
        return Written(document=exported.document, advice=advice)
    return Written(document=_write(agent, reach.entry(f"Bearer {reach.token}")).document, has_token=True)


def plainly(agent: str, reach: Reach) -> str:
    """What to paste: with the token in it, so that it works as it is."""
    authorization = f"Bearer {reach.token}" if reach.token else None
    if agent == "claude" and reach.url:
        words = ["claude", "mcp", "add", "--transport", "http", NAME, reach.url]
        words += ["--header", f"Authorization: {authorization}"] if authorization else []
        return shlex.join(words)
    dialect = dialect_of(agent)
    return texts.dump(_write(agent, reach.entry(authorization)).document, dialect.syntax).strip()


def _reference(agent: str, reach: Reach) -> tuple[str, str]:
    """Where an agent finds the token, in our words, and what that takes."""
    command = f"fairlead gateway token show {reach.agent}" if reach.agent else "fairlead gateway token show"
    if agent == "vscode":
        advice = f"it asks for the token once: `{command}`"
        return f"${{keyring:fairlead/{TOKEN_INPUT}}}", advice
    if agent == "opencode" and reach.token_file is not None:
        return f"${{file:{reach.token_file}}}", "it reads the token from there by itself"
    # Agents have tokens of their own, and may be started from one shell: a variable for each.
    variable = f"{TOKEN_VARIABLE}_{reach.agent.upper()}" if reach.agent else TOKEN_VARIABLE
    show = f'export {variable}="$({command})"'
    return f"${{{variable}}}", f"it takes the token from its environment: {show}"


def _write(agent: str, entry: Mapping[str, Any]) -> Exported:
    write = dialect_of(agent).write
    assert write is not None
    return write({NAME: dict(entry)})
