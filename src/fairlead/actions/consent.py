"""What a project's server would run and may do: shown to the user before they consent, on every surface."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.actions.config_edits import approve_server
from fairlead.actions.context import ActionContext, Notice
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.config.load import LoadedServer
from fairlead.config.models import CHILD_TRANSPORTS, ApprovalSettings
from fairlead.config.secrets.redaction import redact_entry
from fairlead.config.untyped import as_list, is_object
from fairlead.errors import ConfigError, ConfigInvalid, ConnectFailed

_MODES = {
    "allow": "may call them without asking",
    "ask": "calls need approval",
    "auto": "may call those that a trusted server annotates as read-only without asking",
    "deny": "no one may call them",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentQuestion:
    """May this server run? All that the user has to see before they answer, as raw text.

    Surfaces spell out hidden characters as they show it. Known secrets are masked.
    """

    server_id: str
    key: ConsentKey
    """What the answer is bound to."""
    origin: str
    """The place of its entry."""
    start: str
    """What starts it, or what it connects to: the beginning of a sentence about the server."""
    words: tuple[str, ...] = ()
    """The program and its arguments."""
    caution: str | None = None
    """What the program does by its nature."""
    fields: tuple[tuple[str, Any], ...] = ()
    """The other fields of the entry."""
    rights: str | None = None
    """What its process may do on this machine."""
    is_sandboxed: bool = False
    shared: tuple[str, ...] = ()
    """What a sandbox lets it see and change."""
    tools: str | None = None
    """What the entry says about its tools."""


def consent_question(server: LoadedServer, key: ConsentKey) -> ConsentQuestion:
    """Describe an entry before consent: the whole command, its rights, and what consent is bound to.

    Args:
        server: The server, whose entry is sound.
        key: Its consent, as it was read for this question.
    """
    entry = redact_entry(server.entry)
    sandbox = entry.get("sandbox")
    has_process = server.transport in CHILD_TRANSPORTS
    says_rights = any(name in entry for name in ("trust", "allow_tools", "approval"))
    return ConsentQuestion(
        server_id=server.server_id,
        key=key,
        origin=str(server.definition.origin(())),
        start=_start_of(server),
        words=_words_of(server, entry),
        caution=_caution_of(server),
        fields=tuple(
            (name, value)
            for name, value in entry.items()
            if name not in ("command", "args", "url", "extension")
        ),
        rights=_rights_of(sandbox) if has_process else None,
        is_sandboxed=is_object(sandbox),
        shared=tuple(_shared_with(server, sandbox)) if has_process and is_object(sandbox) else (),
        tools=_tool_rights(server) if says_rights else None,
    )


def open_question(context: ActionContext, server_id: str) -> ConsentQuestion | None:
    """What the user is asked before a project's server runs; None where it needs no approval.

    Raises:
        UnknownServer: There is no such server.
        ConfigInvalid: There are mistakes in its entry, so that there is no telling what would run.
    """
    from fairlead.policy.consent import has_consent  # only a project's servers need the store

    server = context.loaded.server(server_id)
    if not server.needs_consent:
        return None
    if server.config is None:
        raise ConfigInvalid(*server.problems)
    key = server.consent
    if key is None or has_consent(context.store, key):
        return None
    return consent_question(server, key)


def approve_shown(context: ActionContext, server_id: str, digest: str) -> list[Notice] | None:
    """Record the user's consent to what they were shown earlier, and have it take effect.

    Args:
        context: Who consents.
        server_id: The server.
        digest: That of the consent which was shown.

    Returns:
        What the user should know; None where it needs no approval any more.

    Raises:
        ConfigError: What would run is no longer what was shown. Nothing was recorded.
    """
    asked = open_question(context, server_id)
    if asked is None:
        return None
    if asked.key.digest != digest:
        raise ConfigError(
            f"what `{server_id}` would run changed while you looked at it", hint="look at it again"
        )
    notices = approve_server(context, server_id, asked.key)
    try:
        context.reload()  # which also tells the other processes of a gateway
    except ConfigError as exc:
        notices.append(Notice(message=f"the configuration does not load: {exc}", hint=exc.hint))
    return notices


def _start_of(server: LoadedServer) -> str:
    match server.transport:
        case "stdio":
            return "runs this program, with these arguments:"
        case "extension":
            return f"runs the Python files of the folder {server.target}"
        case "builtin":
            return f"is the server `{server.target}` that comes with Fairlead"
        case _:
            return f"talks to {server.target}"


def _words_of(server: LoadedServer, entry: Mapping[str, Any]) -> tuple[str, ...]:
    if server.transport != "stdio":
        return ()
    return tuple(map(str, (entry.get("command"), *as_list(entry.get("args")))))


def _caution_of(server: LoadedServer) -> str | None:
    if server.transport == "builtin" and server.target == "shell":
        return "It runs commands that agents choose, in a sandbox that can change these folders."
    return None


def _rights_of(sandbox: object) -> str:
    if not is_object(sandbox):
        return "It is not sandboxed: it has your rights, and can read and change everything that you can."
    network = "can use the network" if sandbox.get("network") is True else "has no network"
    return f"It is sandboxed: it {network}, and of your files it sees its program, the folder it starts in"


def _shared_with(server: LoadedServer, sandbox: Mapping[str, Any]) -> Iterator[str]:
    for access in ("read", "write"):
        for path in as_list(sandbox.get(access)):
            yield f"and may {access} {path}"
    yield from program_paths(server)


def program_paths(server: LoadedServer) -> Iterator[str]:
    """The paths that a program brings into a server's sandbox, which the entry does not name, in words."""
    from fairlead.connection.transport.factory import paths_brought_by  # only sandboxes need it

    try:
        for path in paths_brought_by(server, os.environ):
            yield f"and, for its program, may read {path}"
    except ConnectFailed as exc:
        yield f"and it could not start now: {exc}"


def _tool_rights(server: LoadedServer) -> str:
    """Permissions of tools before a review, if the entry is approved."""
    config = server.config
    assert config is not None, "only what is sound can be approved"
    command = command_line("review", server.server_id)
    return f"It says what its tools may do: {_tools_in_words(server)}. `{command}` changes that."


def _tools_in_words(server: LoadedServer) -> str:
    config = server.config
    assert config is not None, "only what is sound can be approved"
    is_trusted = config.trust == "trusted"
    if config.allow_tools is None and not is_trusted:
        return "agents get none of them before a review"
    which = "all of them" if config.allow_tools is None else "those in allow_tools"
    if isinstance(config.approval, ApprovalSettings):
        return f"agents get {which}, and may call them as `approval` says"
    mode = config.approval or server.approval or ("auto" if is_trusted else "ask")
    return f"agents get {which}, and {_MODES[mode]}"
