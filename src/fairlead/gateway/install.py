"""`fairlead gateway --install`: the gateway's entry in the configuration files of other agents.

A change is planned, shown as a diff, applied with a backup, and can be taken back.
"""

import difflib
import hashlib
import json
import os
import re
import secrets
import shlex
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.config.dialects import registry, syntax
from fairlead.config.dialects.dialect import ConfigDialect, ExportedDocument
from fairlead.config.document.edit import remove_value, set_value
from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import as_list, as_object
from fairlead.errors import ConfigError, ConfigUnwritable
from fairlead.gateway.registry import gateway_folder

AGENTS: Final = ("claude", "codex", "cursor", "vscode", "opencode", "gemini")
NAME: Final = "fairlead"
"""Name of the gateway's entry in agents' files."""
TOKEN_INPUT: Final = "gateway-token"  # noqa: S105 - a name, no token
"""Id of the input by which editors prompt for the token."""
TOKEN_VARIABLE: Final = "FAIRLEAD_TOKEN"  # noqa: S105 - likewise
"""The variable with the token for all agents; an agent's own token has its name at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayRoute:
    """An agent's route to the gateway: a URL with a token, or a command that connects to it."""

    url: str | None = None
    token: str | None = None
    token_file: Path | None = None
    agent: str | None = None
    """The agent that the token belongs to alone, if any."""
    command: tuple[str, ...] = ("fairlead", "gateway", "--stdio")
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the command that the agent itself may lack."""

    def entry(self, authorization: str | None) -> dict[str, Any]:
        """The gateway as an entry in Fairlead's own format."""
        if self.url is None:
            program, *arguments = self.command
            # What is written is in our own format first, where `${` begins a reference.
            literal = {name: value.replace("${", "$${") for name, value in self.environment.items()}
            return {"command": program, "args": arguments, **({"env": literal} if literal else {})}
        headers = {"headers": {"Authorization": authorization}} if authorization else {}
        return {"url": self.url, **headers}


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSnippet:
    """The gateway's entry in an agent's format."""

    document: dict[str, Any]
    has_token: bool = False
    """The token stands there in plain text."""
    advice: str | None = None
    """What the user has to do for it to work."""


def command_route(env: Mapping[str, str], *, config: Path | None, bundle: str | None = None) -> GatewayRoute:
    """The route to the gateway by a command: it connects to the one that runs, or starts one.

    Args:
        env: Has the variables that a program of the desktop lacks: where programs and our own files are.
        config: The one file that is used in place of the user's and the project's, if any.
        bundle: The only bundle to serve, if any.

    Raises:
        ConfigError: The configuration is in a variable, and not in a file.
    """
    from fairlead.gateway.service import kept_variables, own_command

    before = ["--config", str(config.absolute())] if config else []
    after = ["--bundle", bundle] if bundle else []
    variables = kept_variables(env)
    if "PATH" in variables:
        variables["PATH"] = os.pathsep.join(dict.fromkeys(variables["PATH"].split(os.pathsep)))
    command = (*own_command(), *before, "gateway", "--stdio", "--start", *after)
    return GatewayRoute(command=command, environment=variables)


def dialect_of(agent: str) -> ConfigDialect:
    """The format of an agent that the gateway can be written for."""
    return registry.by_name(agent)


def make_snippet(agent: str, reach: GatewayRoute) -> AgentSnippet:
    """The gateway's entry with a reference to its token, if the agent supports one; else with the token."""
    if reach.url is None or reach.token is None:
        return AgentSnippet(document=_write(agent, reach.entry(None)).document)
    reference, advice = _reference(agent, reach)
    exported = _write(agent, reach.entry(f"Bearer {reference}"))
    if not exported.notes:
        return AgentSnippet(document=exported.document, advice=advice)
    return AgentSnippet(document=_write(agent, reach.entry(f"Bearer {reach.token}")).document, has_token=True)


def render_snippet(agent: str, reach: GatewayRoute) -> str:
    """The entry to paste into an agent's file, or the command to run, with the token in it."""
    authorization = f"Bearer {reach.token}" if reach.token else None
    if agent == "claude" and reach.url:
        words = ["claude", "mcp", "add", "--transport", "http", NAME, reach.url]
        words += ["--header", f"Authorization: {authorization}"] if authorization else []
        return shlex.join(words)
    dialect = dialect_of(agent)
    return syntax.dump(_write(agent, reach.entry(authorization)).document, dialect.syntax).strip()


def _reference(agent: str, reach: GatewayRoute) -> tuple[str, str]:
    """Return the reference to the token in an agent's entry, and what the user does for it."""
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


def _write(agent: str, entry: Mapping[str, Any]) -> ExportedDocument:
    return dialect_of(agent).require_writer()({NAME: dict(entry)})


MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Some agents keep their whole history in the same file."""

_SECTIONS = {"codex": "mcp_servers", "vscode": "servers", "opencode": "mcp"}
_USUAL_SECTION = "mcpServers"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """A planned change of an agent's file. Nothing is written yet."""

    title: str
    """Name of the agent, for display."""
    path: Path
    before: str | None
    """None where there is no file yet."""
    after: str | None
    """None where the file is deleted: it was made for the gateway alone."""
    has_token: bool = False
    """The token would stand there in plain text."""
    advice: str | None = None
    had_entry: bool = False
    """The file has an entry of the gateway already, so that it is not what an uninstallation restores."""

    @property
    def is_none(self) -> bool:
        """Whether the file needs no change."""
        return (self.after or "") == (self.before or "")

    @property
    def digest(self) -> str:
        """Identifies the change, so that what is applied is what was shown."""
        return _digest(json.dumps([str(self.path), self.before, self.after]))

    def diff(self) -> str:
        """Return the change as a diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(),
            (self.after or "").splitlines(),
            str(self.path),
            str(self.path),
            n=2,
            lineterm="",
        )
        return "\n".join(lines)


def find_installed_entry(agent: str, place: MachinePaths) -> dict[str, Any] | None:
    """The gateway's entry in an agent's file, in our own format; None where there is none.

    Raises:
        ConfigError: The file cannot be read.
    """
    dialect = dialect_of(agent)
    path = file_of(dialect, place)
    present = syntax.load(_text(path) or "", dialect.syntax, str(path))
    if NAME not in as_object(present.get(_section(agent))):
        return None
    return dict(dialect.read(present, place).servers.get(NAME, {}))


def plan_install(agent: str, place: MachinePaths, reach: GatewayRoute) -> FileChange:
    """Add the gateway to the agent's own file, and keep the rest of it."""
    dialect = dialect_of(agent)
    path = file_of(dialect, place)
    before = _text(path)
    written = make_snippet(agent, reach)
    after = syntax.merge_into(before or "", written.document, dialect.syntax, str(path))
    return FileChange(
        title=dialect.title,
        path=path,
        before=before,
        after=after,
        has_token=written.has_token,
        advice=written.advice,
        had_entry=NAME
        in as_object(syntax.load(before or "", dialect.syntax, str(path)).get(_section(agent))),
    )


def plan_uninstall(agent: str, place: MachinePaths) -> FileChange:
    """Take the gateway, and nothing else, out of the agent's file.

    A file that is as the installation left it gets its former bytes back; in one that was edited since, the
    entry is removed.
    """
    dialect = dialect_of(agent)
    path = file_of(dialect, place)
    before = _text(path)
    installed = _Installations(place.env).get(path)
    if installed is not None and before is not None and _digest(before) == installed["digest"]:
        backup = installed["backup"]
        former = _text(Path(backup)) if backup else None
        if former is not None or not backup:  # else the backup is gone, and the entry is taken out
            return FileChange(title=dialect.title, path=path, before=before, after=former)
    present = syntax.load(before or "", dialect.syntax, str(path))
    section = _section(agent)
    mark, after = syntax.split_mark(before or "")
    if NAME in as_object(present.get(section)):
        _require_ours(dialect, present, place, path)
        after = _without(after, dialect, (section, NAME), present)
    if agent == "vscode":
        after = _without_input(after, present)
    return FileChange(title=dialect.title, path=path, before=before, after=mark + after)


def _section(agent: str) -> str:
    """The key of an agent's file that its servers are under."""
    return _SECTIONS.get(agent, _USUAL_SECTION)


def apply(change: FileChange, env: Mapping[str, str]) -> Path | None:
    """Write the change, unless the file changed since it was shown. Returns where the old file is kept."""
    with hold_lock(change.path):
        if _text(change.path) != change.before:
            hint = "run it again to see what would change now"
            raise ConfigUnwritable(f"`{change.path}` was changed in the meantime; it is as it was", hint=hint)
        backup = None if change.before is None else _back_up(change.path, change.before, env)
        if change.after is None:
            # Where a link was there before the file, the link stays.
            Path(os.path.realpath(change.path)).unlink()
        else:
            write_atomic(change.path, change.after, mode=0o600 if change.before is None else None)
        _Installations(env).record(change, backup)
    return backup


class _Installations:
    """The content of agents' files before the gateway was added to them, by path."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._file = gateway_folder(env) / "backups" / "installed.json"

    def _read(self) -> dict[str, Any]:
        try:
            return as_object(msgspec.json.decode(self._file.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError):
            return {}  # then an entry is removed from its file, rather than the file restored

    def get(self, path: Path) -> dict[str, Any] | None:
        found = as_object(self._read().get(str(path)))
        return found if {"digest", "backup"} <= found.keys() else None

    def record(self, change: FileChange, backup: Path | None) -> None:
        """Store a file's content, unless it was stored by an earlier installation.

        A file with an entry of the gateway that was edited since it was installed is not stored: the content
        without the entry is in no backup. An uninstallation takes the entry out then.
        """
        with hold_lock(self._file):  # that of the agent's file lets installations for other agents go on
            known = self._read()
            earlier = as_object(known.pop(str(change.path), None))
            is_earlier = change.before is not None and earlier.get("digest") == _digest(change.before)
            if change.after is not None and NAME in change.after and (is_earlier or not change.had_entry):
                kept = earlier.get("backup") if is_earlier else str(backup) if backup else None
                known[str(change.path)] = {"digest": _digest(change.after), "backup": kept}
            write_atomic(self._file, msgspec.json.encode(known).decode(), mode=0o600)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(dialect: ConfigDialect, place: MachinePaths) -> Path:
    """The user's own file of an agent: the first there is, else the one that would be."""
    own = [location.path for location in dialect.locations(place) if location.scope == "user"]
    return next((path for path in own if path.exists()), own[0])


def _text(path: Path) -> str | None:
    return read_text(path, limit=MAX_FILE_BYTES, keep_mark=True) if path.exists() else None


def _back_up(path: Path, text: str, env: Mapping[str, str]) -> Path:
    """Keep a copy that only this user can read: there may be secrets in it."""
    # Agents' files share names, and two changes may fall into one second: no backup overwrites another.
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}-{path.name}"
    backup = gateway_folder(env) / "backups" / name
    write_atomic(backup, text, mode=0o600)
    return backup


def _require_ours(dialect: ConfigDialect, present: dict[str, Any], place: MachinePaths, path: Path) -> None:
    entry = dialect.read(present, place).servers.get(NAME, {})
    is_command = "gateway" in as_list(entry.get("args"))
    is_url = "/mcp" in str(entry.get("url"))
    if not is_command and not is_url:
        raise ConfigError(
            f"`{NAME}` in {path} is not what was installed, so it stays", hint="remove it by hand"
        )


def _without(text: str, dialect: ConfigDialect, path: tuple[str, str], present: dict[str, Any]) -> str:
    if dialect.syntax != "toml":
        return remove_value(text, path)
    import tomlkit

    section, name = path
    wanted = {**present, section: {key: value for key, value in present[section].items() if key != name}}
    with_comments = _without_table(text, path)
    if with_comments is not None and _says(with_comments, section, wanted):
        return with_comments
    document: Any = tomlkit.parse(text)
    del document[section][name]
    changed = tomlkit.dumps(document)
    if not _says(changed, section, wanted):
        hint = f"remove `[{section}.{name}]` by hand"
        raise ConfigUnwritable("this file's tables are in an order that cannot be edited", hint=hint)
    return changed


def _says(text: str, section: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a TOML text has these values. A section may be gone with its last entry."""
    try:
        return {section: {}, **tomllib.loads(text)} == wanted
    except tomllib.TOMLDecodeError:
        return False


def _without_table(text: str, path: tuple[str, str]) -> str | None:
    """The text without the lines of a TOML table, but with the comments below it; None where there are none.

    Such comments are about what comes next, or were added at the end. A TOML editor counts them to the table.
    """
    section, name = (rf"[\"']?{re.escape(word)}[\"']?" for word in path)
    ours = re.compile(rf"\s*\[\s*{section}\s*\.\s*{name}\s*[.\]]")
    kept: list[str] = []
    below: list[str] = []
    has_comments = is_ours = False
    for line in text.splitlines(keepends=True):
        begins = line.lstrip()[:1]
        if begins == "[":
            is_ours = ours.match(line) is not None
            if not is_ours:
                kept += below
                has_comments = has_comments or bool(below)
            below = []
        if not is_ours:
            kept.append(line)
        elif begins in ("", "#") and (below or begins):
            below.append(line)
        else:
            below = []
    return "".join([*kept, *below]) if has_comments or below else None


def _without_input(text: str, present: dict[str, Any]) -> str:
    """Remove the input for the token as well, if nothing else in the file refers to it."""
    inputs = as_list(present.get("inputs"))
    rest = [item for item in inputs if as_object(item).get("id") != TOKEN_INPUT]
    if len(rest) == len(inputs) or f"${{input:{TOKEN_INPUT}}}" in text:
        return text
    return set_value(text, ("inputs",), rest) if rest else remove_value(text, ("inputs",))
