"""Export of servers to another agent's format: never with more permissions than here, never with a secret.

Restrictions of a server (lists of tools, reviews, rules, approval, a sandbox) are written as far as the other
format supports them. Where it does not, the server is left out and a note names the loss; the user may accept
that loss and export it all the same. A project's server without consent is never exported.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fairlead.config.command_lines import command_line
from fairlead.config.consent import consent_to, reference_problems, with_bound_values, working_folder
from fairlead.config.dialects.codex import CODEX
from fairlead.config.dialects.dialect import ConfigDialect, ConversionNote, ExportedDocument
from fairlead.config.dialects.fields import is_pattern
from fairlead.config.load import LoadedServer
from fairlead.config.merge import STRICTNESS
from fairlead.config.models import ApprovalMode
from fairlead.config.paths import expand_home
from fairlead.config.secrets.redaction import literal_secrets
from fairlead.config.untyped import as_object
from fairlead.policy.decision import BundleFilter, CallPolicy
from fairlead.policy.quarantine import ScreenedListing

Loss = Literal["tools", "rules", "approval", "sandbox", "folder"]
LOSSES: tuple[Loss, ...] = get_args(Loss)

_PLAIN = "left out: a secret in plain text would go with it; move it to `env` or a reference first"
_MEANS: Mapping[Loss, str] = {
    "tools": "its allowed tools",
    "rules": "your policy rules about its calls",
    "approval": "approval before calls",
    "sandbox": "its sandbox: it would run with all your rights",
    "folder": "its folder: it would run files of these names from wherever the agent is started",
}
_FIELDS: Mapping[str, Loss] = {
    "allow_tools": "tools",
    "deny_tools": "tools",
    "approval": "approval",
    "sandbox": "sandbox",
}
_LATER = "\N{NULL}"
"""The name of no tool: what is true of it is true of tools that nothing is said about."""
_OURS = frozenset({"description", "trust"})
"""Fields that no other agent has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolLists:
    """Tools of a server that may be called elsewhere, by exact names."""

    allowed: tuple[str, ...] | None
    """None where all are allowed except the denied."""
    denied: tuple[str, ...] = ()

    def may(self, name: str) -> bool:
        """Whether a tool may be called."""
        return name not in self.denied if self.allowed is None else name in self.allowed


def export_servers(
    dialect: ConfigDialect,
    servers: Iterable[LoadedServer],
    *,
    known: Mapping[str, ScreenedListing] | None = None,
    approved: Collection[str] = (),
    lose: Collection[Loss] = (),
    filters: Mapping[str, BundleFilter] | None = None,
) -> ExportedDocument:
    """Write servers in another agent's format.

    Args:
        dialect: The format.
        servers: The servers to write; built-in ones are left out.
        known: The listing of each server, without tools that wait for a review. Without it patterns allow
            nothing.
        approved: Ids of the project's servers that the user consented to.
        lose: Losses that the user accepted where the format does not support a restriction.
        filters: What a bundle allows of a server.

    Returns:
        The document, and a note for everything that is not in it.

    Raises:
        ConfigError: The format can only be read.
    """
    write = dialect.require_writer()
    notes: list[ConversionNote] = []
    entries: dict[str, dict[str, Any]] = {}
    for server in servers:
        if not server.is_built_in and _may_leave(server, approved, notes):
            lists = tool_lists(
                server, (known or {}).get(server.server_id), notes, (filters or {}).get(server.server_id)
            )
            entry = _portable(dialect, server, lists, lose, notes)
            if entry is not None:
                entries[server.server_id] = entry
    exported = write(entries)
    return ExportedDocument(document=exported.document, notes=[*notes, *_worth_telling(exported.notes)])


def _may_leave(server: LoadedServer, approved: Collection[str], notes: list[ConversionNote]) -> bool:
    """Whether a server may be exported at all."""
    reason = None
    if server.config is None:
        reason = "its entry is not valid"
    elif server.transport == "extension":
        reason = "only Fairlead runs a folder of Python files"
    elif server.ruling.refusals:
        reason = f"the administrator's policy refuses it ({server.ruling.refusals[0].message})"
    elif any(True for _ in reference_problems(server.definition)):
        reason = "its project file uses a reference for what is executed"
    elif server.needs_consent and server.server_id not in approved:
        reason = (
            "it comes from a project file, and you have not approved it; "
            f"run `{command_line('approve', server.server_id)}`"
        )
    if reason is not None:
        notes.append(ConversionNote(server_id=server.server_id, field="", message=f"left out: {reason}"))
    return reason is None


def _portable(
    dialect: ConfigDialect,
    server: LoadedServer,
    lists: ToolLists | None,
    lose: Collection[Loss],
    notes: list[ConversionNote],
) -> dict[str, Any] | None:
    """Entry of a server for another agent; None where the format does not support its restrictions."""
    entry = _without_plain_secrets(server, notes)
    if entry is None:
        return None
    entry = {name: value for name, value in entry.items() if name not in _OURS}
    lost: set[Loss] = {"rules"} if _has_lost_rules(server) else set()
    entry.pop("allow_tools", None)
    entry.pop("deny_tools", None)
    if lists is None:
        lost.add("tools")
    else:
        entry |= _lists_as_written(lists)
    if (approval := _effective_approval(server, entry.pop("approval", None), lists)) is not None:
        entry["approval"] = approval
    if server.needs_consent and (folder := working_folder(server.definition, entry.get("cwd"))):
        entry = _with_folder(entry, folder)
        if _noted_fields(dialect, server.server_id, entry) & {"cwd"}:
            del entry["cwd"]
            lost |= {"folder"} if _runs_projects_files(server) else set()
    lost |= _find_losses(dialect, server.server_id, entry)
    # An empty list means all tools to some formats, and a name with a star is a pattern to others.
    is_unsupported = lists is not None and (lists.allowed == () or any(map(is_pattern, lists.denied)))
    if is_unsupported and not (dialect.name == "codex" and lists is not None and not lists.denied):
        lost.add("tools")
    missing: list[Loss] = [loss for loss in LOSSES if loss in lost and loss not in lose]
    for loss in missing:
        message = (
            f"left out: {dialect.title} does not support {_MEANS[loss]}; "
            f"`--lose {loss}` exports it without that, `--gateway` keeps everything"
        )
        notes.append(ConversionNote(server_id=server.server_id, field=loss, message=message))
    notes += [
        ConversionNote(server_id=server.server_id, field=loss, message=f"lost: {_MEANS[loss]}")
        for loss in LOSSES
        if loss in lost and loss in lose
    ]
    return None if missing else entry


def _find_losses(dialect: ConfigDialect, server_id: str, entry: dict[str, Any]) -> set[Loss]:
    """Restrictions of an entry that a format does not support, by its writer's notes."""
    return {_FIELDS[field] for field in _noted_fields(dialect, server_id, entry) if field in _FIELDS}


def _noted_fields(dialect: ConfigDialect, server_id: str, entry: dict[str, Any]) -> set[str]:
    """Fields of an entry that a format does not have as they are."""
    written = dialect.require_writer()({server_id: entry})
    return {note.field.partition(".")[0] for note in written.notes if note.server_id == server_id}


def _with_folder(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Entry of a project's server that starts its own program, and not that of another repository."""
    if "command" not in entry:
        return entry
    command, folder = str(entry["command"]), folder.absolute()
    if "/" in command:
        command = os.path.normpath(folder / expand_home(command))
    return {**entry, "command": command, "cwd": os.path.normpath(folder)}


def _runs_projects_files(server: LoadedServer) -> bool:
    """Whether consent to it is bound to files of its project."""
    entry = with_bound_values(server.definition, server.env)
    launch = consent_to(server.definition, entry, server.env).launch
    # Outside the project only real paths are bound: the interpreter of `npx`, say.
    return launch is not None and any(file.content is not None for file in (launch.program, *launch.files))


def _worth_telling(notes: Iterable[ConversionNote]) -> list[ConversionNote]:
    return [note for note in notes if note.field.partition(".")[0] not in _FIELDS]


def _has_lost_rules(server: LoadedServer) -> bool:
    """Whether rules ask, or deny by arguments. No format supports that; other denials are in the lists."""
    rules = (loaded.rule for loaded in (*server.rules, *server.admin_rules))
    return any(rule.action == "ask" or (rule.action == "deny" and rule.arguments) for rule in rules)


def _asks(server: LoadedServer) -> bool:
    """Whether the user or the administrator requires approval for calls to all servers."""
    return "ask" in (server.approval, server.admin_approval)


def _effective_approval(server: LoadedServer, approval: object, lists: ToolLists | None) -> object:
    """The approval of an entry as its calls have it here.

    It is as strict as the administrator's, has no mode for a tool that may not be called, and no denials:
    the lists have those.
    """
    if approval is None:
        return "ask" if _asks(server) else None
    modes = as_object(approval) or {"default": approval}
    least = server.admin_approval
    default = _stricter(modes.get("default"), least)
    tools = {
        name: mode
        for name, own_mode in as_object(modes.get("tools")).items()
        if lists is None or is_pattern(name) or lists.may(name)
        if (mode := _stricter(own_mode, least)) != "deny" or lists is None
    }
    if default == "deny" and lists is not None:
        default = None
    if not tools:
        return default
    return {"tools": tools} if default is None else {"default": default, "tools": tools}


def _stricter(mode: object, least: ApprovalMode | None) -> object:
    return max(mode, least, key=lambda each: STRICTNESS.get(str(each), -1))


def _lists_as_written(lists: ToolLists) -> dict[str, Any]:
    if lists.allowed is not None:
        return {"allow_tools": list(lists.allowed)} if lists.allowed else {}
    return {"deny_tools": list(lists.denied)} if lists.denied else {}


def tool_lists(
    server: LoadedServer,
    known: ScreenedListing | None,
    notes: list[ConversionNote],
    bundle_filter: BundleFilter | None = None,
) -> ToolLists | None:
    """Tools that may be called elsewhere: never more than here. None where names cannot express that."""
    assert server.config is not None
    config, policy = server.config, CallPolicy(server)
    quarantined: Mapping[str, str] = known.quarantined if known else dict[str, str]()
    offered = [entry.key.tool for entry in known.listing.tools] if known else []
    rejected = [each.name for each in known.listing.rejected if not each.is_unnamed] if known else []

    def may(name: str) -> bool:
        # As calls are decided here: of pins, of schemas that are rejected, and of the policy.
        if known is not None and (
            name in quarantined or (name != _LATER and known.refusal(name) is not None)
        ):
            return False
        return policy.decide(name, bundle_filter).verdict != "deny"

    # A tool that the server gets later is called elsewhere, unless none but the allowed ones are.
    is_open = (bundle_filter is None or bundle_filter.allow_tools is None) and may(_LATER)
    if config.trust == "trusted" and config.allow_tools is None and is_open:
        denied_names = [*config.deny_tools, *(bundle_filter.deny_tools if bundle_filter else ())]
        patterns = [name for name in denied_names if is_pattern(name)]
        denies = patterns or _denies_by_policy(server)
        if denies and known is None:
            message = "denies by pattern, and its tools are not known yet; connect it once (`fairlead tools`)"
            notes.append(ConversionNote(server_id=server.server_id, field="deny_tools", message=message))
            return None
        plain = [name for name in denied_names if name not in patterns]
        denied = [*plain, *(name for name in (*offered, *rejected, *quarantined) if not may(name))]
        return ToolLists(allowed=None, denied=tuple(dict.fromkeys(denied)))
    listed = [*(config.allow_tools or ()), *((bundle_filter.allow_tools or ()) if bundle_filter else ())]
    listed += as_object(server.entry.get("approval")).get("tools", {})
    named = [name for name in listed if not is_pattern(name)]
    if known is None and len(named) < len(listed):
        message = "has patterns, which allow nothing elsewhere until the server's tools are known"
        notes.append(ConversionNote(server_id=server.server_id, field="allow_tools", message=message))
    candidates = dict.fromkeys([*named, *offered])
    return ToolLists(allowed=tuple(name for name in candidates if may(name) and not is_pattern(name)))


def _denies_by_policy(server: LoadedServer) -> bool:
    """Whether anything besides the lists denies tools."""
    assert server.config is not None
    approval = server.config.approval
    modes = {server.approval, server.admin_approval}
    if isinstance(approval, str):
        modes.add(approval)
    elif approval is not None:
        modes |= {approval.default, *approval.tools.values()}
    rules = (loaded.rule for loaded in (*server.rules, *server.admin_rules))
    return "deny" in modes or any(rule.action == "deny" and not rule.arguments for rule in rules)


def _without_plain_secrets(server: LoadedServer, notes: list[ConversionNote]) -> dict[str, Any] | None:
    """Entry with a variable for each secret in plain text; None where that is impossible."""
    entry = {**server.entry}
    for path in literal_secrets(server.entry):
        field = ".".join(map(str, path))
        if path[0] not in ("env", "headers", "oauth"):
            notes.append(ConversionNote(server_id=server.server_id, field=field, message=_PLAIN))
            return None
        group, name = str(path[0]), str(path[1])
        variable = name if group == "env" else f"{server.server_id}_{name}".upper().replace("-", "_")
        entry[group] = {**as_object(entry[group]), name: f"${{{variable}}}"}
        message = f"a secret in plain text here; exported as `${{{variable}}}`, so set that variable"
        notes.append(ConversionNote(server_id=server.server_id, field=field, message=message))
    return entry


def export_to_codex(
    servers: Iterable[LoadedServer],
    *,
    known: Mapping[str, ScreenedListing] | None = None,
    approved: Collection[str] = (),
    lose: Collection[Loss] = (),
    filters: Mapping[str, BundleFilter] | None = None,
) -> ExportedDocument:
    """Servers as `mcp_servers` tables, with the tools that may be called there and secrets as references.

    Codex knows exact names of tools only. A server with restrictions that it does not support (a sandbox,
    rules about arguments) is left out unless `lose` names them. Built-in servers run in this process, and are
    left out too. A note names each.

    Args:
        servers: The servers.
        known: The listing of each server, without tools that wait for a review. Without it patterns allow
            nothing.
        approved: Ids of the project's servers that the user consented to: Codex starts them without asking.
        lose: The restrictions to leave out rather than the server.
        filters: What a bundle allows of each server; a server that is not in it is in no bundle.

    Returns:
        The document, and notes on what was left out or changed.
    """
    chosen, listings = [*servers], known or {}
    narrowed = {
        server.server_id: narrow
        for server in chosen
        if (narrow := (filters or {}).get(server.server_id)) is not None and server.config is not None
    }
    portable = [server for server in chosen if server.transport != "builtin"]
    exported = export_servers(CODEX, portable, known=known, approved=approved, lose=lose, filters=narrowed)
    written: dict[str, Any] = exported.document["mcp_servers"]
    for server in portable:
        table = written.get(server.server_id)
        if table is None:
            continue
        lists = tool_lists(server, listings.get(server.server_id), [], narrowed.get(server.server_id))
        if lists is not None and lists.allowed == ():
            table["enabled_tools"] = []  # Codex takes an empty list literally
    exported.notes.extend(_built_in_note(server) for server in chosen if _is_inside(server))
    return exported


def _is_inside(server: LoadedServer) -> bool:
    return server.transport == "builtin" and server.enabled


def _built_in_note(server: LoadedServer) -> ConversionNote:
    """Note on a server that runs in this process. The gateway and `fairlead serve` offer it to others."""
    message = "left out: it runs inside Fairlead; `fairlead export --to codex --gateway` takes it along"
    return ConversionNote(server_id=server.server_id, field="", message=message)
