"""Edits by the dashboard: servers, tokens, bundles, and the gateway's entry in agents' files."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from fairlead.actions.agents import (
    AgentChange,
    AgentInstallation,
    AgentTest,
    cache_notice,
    change_agent,
    list_agents,
    plan_agent,
    try_agent,
)
from fairlead.actions.bundles import BundleDraft, make_bundle, remove_bundle
from fairlead.actions.config_edits import EditOutcome, add_choices, existing_servers
from fairlead.actions.consent import ConsentQuestion, approve_shown, open_question
from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.entries import add_server, edit_server, remove_server
from fairlead.actions.imports import ImportPlan, find_sources, import_servers, natural_target, plan_import
from fairlead.actions.tokens import MadeToken, make_token, named_tokens, revoke_token
from fairlead.config.edit_scope import EditTarget
from fairlead.config.principal import LOCAL
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret
from fairlead.config.sources import place_of
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigError, UnknownServer
from fairlead.gateway.access.tokens import NamedToken
from fairlead.gateway.install import FileChange, command_route
from fairlead.gateway.service import own_command
from fairlead.web.panel import with_notices

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """The entry of a server in one file."""

    target: EditTarget
    entry: Mapping[str, Any]

    @property
    def has_target(self) -> bool:
        """Whether it defines the server, rather than overlay the definition in another file."""
        return any(name in self.entry for name in ("command", "url", "builtin"))


class ConfigPanel:
    """Edits of configuration files by the visitors of the dashboard, each in a worker thread."""

    def __init__(
        self,
        actions: Callable[[str], ActionContext],
        connect: Callable[[str], None],
        note_change: Callable[[], None],
    ) -> None:
        """Edit with the context of actions of a principal.

        Args:
            actions: Makes the context for a principal, which the audit log names.
            connect: Connects a server in the background.
            note_change: Tells open pages to look again.
        """
        self._actions = actions
        self._connect = connect
        self._note_change = note_change

    async def files(self, principal: str) -> Sequence[EditTarget]:
        """The files that a new entry can go to, the usual one first."""
        return await to_thread.run_sync(add_choices, self._actions(principal))

    async def entries(self, server_id: str, principal: str) -> Sequence[FileEntry]:
        """The entries of a server in the files that Fairlead edits; the one that decides comes first."""

        def read() -> list[FileEntry]:
            found = [(target, existing_servers(target)) for target in add_choices(self._actions(principal))]
            return [
                FileEntry(target=target, entry=as_object(servers[server_id]))
                for target, servers in sorted(found, key=lambda each: each[0].scope != "project")
                if server_id in servers
            ]

        return await to_thread.run_sync(read)

    async def entry(self, server_id: str, scope: str, principal: str) -> FileEntry:
        """The entry of a server in the file of a scope, or in the one that decides.

        Raises:
            UnknownServer: There is none.
        """
        for each in await self.entries(server_id, principal):
            if scope in ("", each.target.scope):
                return each
        raise UnknownServer(
            f"no file that Fairlead edits has an entry of `{server_id}`",
            hint="it is built in, or in another agent's file: import it to edit it here",
        )

    async def add(self, server_id: str, entry: dict[str, Any], scope: str, *, principal: str) -> str:
        """Add a server, connect it in the background, and say what was done.

        Raises:
            ConfigInvalid: Loading would refuse the entry. Nothing was written.
            ConfigError: There is a server of that id already, or no such scope.
        """
        target = self._target(await self.files(principal), scope)
        add = partial(add_server, self._actions(principal), target, server_id, entry, replace=False)
        added = await self._run(add)
        notices = _require_effect(added.edit)
        self._connect(server_id)
        said = f"Added `{server_id}` to {target.path}. {_about_stashed(added.stashed)}".strip()
        return with_notices(said, notices)

    async def edit(self, server_id: str, changes: Mapping[str, Any], scope: str, *, principal: str) -> str:
        """Change fields of an entry, and say what was done. Raises as `add` does, and as `entry` does."""
        target = (await self.entry(server_id, scope, principal)).target
        edited = await self._run(partial(edit_server, self._actions(principal), server_id, target, changes))
        notices = _require_effect(edited.edit)
        if not edited.is_written:
            return with_notices(f"`{server_id}` in {target.path} is as it was.", notices)
        said = (_about_stashed(edited.stashed), _about_forgotten(edited.forgotten))
        return with_notices(
            " ".join((f"Saved `{server_id}` in {target.path}.", *filter(None, said))), notices
        )

    async def remove(self, server_id: str, scope: str, *, principal: str) -> str:
        """Remove an entry, and say what was done. Raises as `entry` does."""
        target = (await self.entry(server_id, scope, principal)).target
        removed = await self._run(partial(remove_server, self._actions(principal), server_id, target))
        notices = _require_effect(removed.edit)
        said = [f"Removed `{server_id}` from {target.path}.", _about_forgotten(removed.forgotten)]
        if removed.remaining is not None:
            layer = removed.remaining.definition.source
            said.append(f"It is still defined in {layer.path or layer.label}, which is in effect now.")
        return with_notices(" ".join(filter(None, said)), notices)

    # Servers of a project's file.

    async def consent(self, server_id: str, principal: str) -> ConsentQuestion | None:
        """What the user is asked before a project's server runs; None where it needs no approval.

        Raises:
            UnknownServer: There is no such server.
            ConfigInvalid: There are mistakes in its entry, so that there is no telling what would run.
        """
        return await to_thread.run_sync(open_question, self._actions(principal), server_id)

    async def approve(self, server_id: str, digest: str, *, principal: str) -> str:
        """Record the user's consent, connect the server in the background, and say what was done.

        Args:
            server_id: The server.
            digest: That of what the user was shown.
            principal: Who consents.

        Raises as `consent` does, and:
            ConfigError: What would run is no longer what was shown. Nothing was recorded.
        """
        notices = await self._run(partial(approve_shown, self._actions(principal), server_id, digest))
        if notices is None:
            return f"`{server_id}` needed no approval any more."
        self._connect(server_id)
        return with_notices(
            f"Approved `{server_id}`. It is being connected; look at its tools next.", _log(notices)
        )

    # Other agents' files.

    async def plan_import(self, principal: str, *, replace: bool) -> ImportPlan:
        """Plan the import of servers from other agents' files. Writes nothing."""

        def plan() -> ImportPlan:
            context = self._actions(principal)
            place = place_of(context.env, Path.cwd())
            target_of = partial(natural_target, context.loaded, place)
            return plan_import(find_sources(None, None, place), place, target_of, replace=replace)

        return await to_thread.run_sync(plan)

    async def import_servers(
        self, digests: Collection[str], native: Collection[str], *, principal: str, replace: bool
    ) -> list[str]:
        """Take over servers that were shown, connect them, and say what was done, for each file.

        Args:
            digests: The candidates that were chosen, by their digests.
            native: Those of them that shall be reached by URL rather than through `mcp-remote`.
            principal: Who chose them.
            replace: May servers of the same id be replaced?

        Raises:
            ConfigError: One of them is no longer as it was shown. Nothing was written.
        """
        plan = await self.plan_import(principal, replace=replace)
        found = {each.digest: each for each in plan.candidates if each.action != "skip"}
        if not digests or not found.keys() >= set(digests):
            if not digests:
                raise ConfigError("no server was ticked", hint="tick the servers to take over")
            raise ConfigError("the files of the agents changed meanwhile", hint="look at the list again")
        wanted = [(found[digest].native if digest in native else None) or found[digest] for digest in digests]
        context = self._actions(principal)
        written = await self._run(lambda: [*import_servers(context, plan, wanted, replace=replace)])
        said: list[str] = []
        for file in written:
            notices = _require_effect(file.added.edit)
            names = ", ".join(f"`{server_id}`" for server_id in file.server_ids)
            secrets = _about_stashed([secret for _, secret in file.stashed])
            said.append(with_notices(f"Added {names} to {file.target.path}. {secrets}".strip(), notices))
            for server_id in file.server_ids:
                self._connect(server_id)
        return said

    # The gateway in other agents' files.

    async def agents(self, principal: str) -> list[AgentInstallation]:
        """The agents that the gateway can be written for, and the state of their files."""
        return await to_thread.run_sync(list_agents, self._actions(principal))

    async def plan_agent(self, agent: str, kind: AgentChange, *, principal: str) -> FileChange:
        """Plan a change of an agent's file. Raises as `actions.agents.plan_agent` does."""
        context = self._actions(principal)
        layers = context.loaded.layers
        config = next((layer.path for layer in layers if layer.name == "file" and layer.path), None)
        route = command_route(context.env, config=config) if kind == "install" else None
        return await to_thread.run_sync(plan_agent, context, agent, route)

    async def change_agent(
        self, agent: str, kind: AgentChange, digest: str, *, principal: str
    ) -> tuple[FileChange, Sequence[Notice]]:
        """Write a change of an agent's file that was shown. Returns what the user should know besides.

        Raises:
            ConfigError: The file, and so the change, is no longer what was shown. Nothing was written.
        """
        change = await self.plan_agent(agent, kind, principal=principal)
        if change.digest != digest:
            raise ConfigError(f"`{change.path}` changed meanwhile", hint="look at what would change now")
        write = partial(change_agent, self._actions(principal), agent, change, kind)
        notices = _log((await self._run(write)).notices)
        return change, [*notices, *self.notices_of(kind)]

    @staticmethod
    def notices_of(kind: AgentChange) -> Sequence[Notice]:
        """What the user should know before an agent's file is changed."""
        notice = cache_notice(own_command(), "do this again") if kind == "install" else None
        return [notice] if notice is not None else []

    async def try_agent(self, agent: str, *, principal: str) -> AgentTest:
        """Connect as an agent would. Raises as `actions.agents.try_agent` does."""
        return await try_agent(self._actions(principal), agent)

    # Tokens.

    async def tokens(self) -> Sequence[NamedToken]:
        """The named tokens: principals, scopes and bundles, never the tokens themselves."""
        context = self._actions(LOCAL)
        return await to_thread.run_sync(lambda: named_tokens(context.env, context.store).read())

    async def make_token(
        self, name: str, *, bundles: Sequence[str], scopes: Sequence[str], principal: str | None, by: str
    ) -> MadeToken:
        """Make a token for the visitor `by`. Raises as `actions.tokens.make_token` does."""
        context = self._actions(by)
        make = partial(make_token, context, name, bundles=bundles, scopes=scopes, principal=principal)
        made = await self._run(make)
        _log(made.notices)
        return made

    async def revoke_token(self, name: str, *, principal: str) -> Sequence[Notice]:
        """Revoke a token. Returns what the user should know. Raises `ConfigError` where there is none."""
        return _log(await self._run(partial(revoke_token, self._actions(principal), name)))

    # Bundles.

    async def make_bundle(
        self, name: str, draft: BundleDraft, scope: str, *, principal: str, replace: bool
    ) -> str:
        """Make a bundle, and say what was done. Raises as `actions.bundles.make_bundle` does."""
        target = self._target(await self.files(principal), scope)
        make = partial(make_bundle, self._actions(principal), target, name, draft, replace=replace)
        edit = await self._run(make)
        return with_notices(f"Saved the bundle `{name}` in {target.path}.", _require_effect(edit))

    async def remove_bundle(self, name: str, *, principal: str) -> str:
        """Remove a bundle from the file that defines it, and say what was done.

        Raises as `actions.bundles.remove_bundle` does.
        """
        removed = await self._run(partial(remove_bundle, self._actions(principal), name))
        notices = _require_effect(removed.edit)
        said = [f"Removed the bundle `{name}` from {removed.target.path}."]
        said += [f"The token `{token}` was for it alone, and opens nothing now." for token in removed.tokens]
        return with_notices(" ".join(said), notices)

    async def _run(self, action: Callable[[], ResultT]) -> ResultT:
        try:
            return await to_thread.run_sync(action)
        finally:
            self._note_change()

    def _target(self, files: Sequence[EditTarget], scope: str) -> EditTarget:
        found = next((file for file in files if file.scope == scope or not scope), None)
        if found is None:
            raise ConfigError(f"no file of the scope `{scope}` can be written")
        return found


def _require_effect(edit: EditOutcome) -> Sequence[Notice]:
    """What the user should know of an edit. Raises where the configuration does not load after it."""
    notices = _log(edit.notices)
    edit.require_loaded()
    return notices


def _log(notices: Sequence[Notice]) -> Sequence[Notice]:
    for notice in notices:
        logger.warning("after an action in the dashboard", extra={"notice": notice.message})
    return notices


def _about_stashed(stashed: Sequence[StoredSecret]) -> str:
    if not stashed:
        return ""
    fields = ", ".join(sorted({secret.field for secret in stashed}))
    return f"Stored as a secret, with a reference in the file: {fields}."


def _about_forgotten(forgotten: ForgottenSecrets | None) -> str:
    deleted = len(forgotten.deleted) if forgotten else 0
    return f"Deleted {deleted} stored secret{'' if deleted == 1 else 's'} of it." if deleted else ""
