"""Context of an action: the user, the configuration, and how an edit takes effect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from fairlead.config.edit_scope import EditTarget, chosen_target
from fairlead.config.load import LoadedConfig
from fairlead.config.principal import LOCAL
from fairlead.config.sources import place_of
from fairlead.config.store_location import StoreLocation, store_location
from fairlead.errors import ConfigError, StoreError
from fairlead.wording import join_clauses

Surface = Literal["command line", "console", "dashboard", "control API"]
"""Where the user acted; the control API is for programs of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Notice to the user about an action that was carried out."""

    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return join_clauses(self.message, self.hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionContext:
    """Context that every action needs. Actions block: call them in a thread where an event loop runs."""

    surface: Surface
    """Where the user acted; kept in the audit record."""
    principal: str = LOCAL
    """Who acted, for the audit record."""
    env: Mapping[str, str]
    reload: Callable[[], LoadedConfig]
    """Reads the files again and has the running program, if any, take them over. Raises `ConfigError`."""
    before: LoadedConfig | None = None
    """The configuration before the action, where it was loaded."""
    tells_gateways: bool = False
    """Whether running gateways are notified of an edit, besides watching the files themselves."""

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration to act upon."""
        return self.before if self.before is not None else self.reload()

    @property
    def store(self) -> StoreLocation:
        """Location of the store."""
        return store_location(self.env, self.loaded.config.store)

    def chosen_target(self, scope: str | None) -> EditTarget | None:
        """The file of the scope that the user named; None where they named none."""
        return chosen_target(scope, self.loaded.layers, place_of(self.env, Path.cwd()))

    def record(self, kind: str, server_id: str, **details: object) -> list[Notice]:
        """Write an audit record of what the user did.

        Returns:
            A notice where it could not be written: that does not undo the action.
        """
        # Only what changes something is recorded, and reading commands do without SQLite.
        from fairlead.policy.audit import note
        from fairlead.store.opening import open_database

        described: dict[str, Any] = {"in": self.surface, **details}
        try:
            with open_database(self.store) as database:
                note(
                    database,
                    self.loaded.config.audit,
                    kind,
                    principal=self.principal,
                    server=server_id,
                    details=described,
                )
        except (ConfigError, StoreError) as exc:
            return [Notice(message=f"this is not in the audit log: {exc}", hint=exc.hint)]
        return []

    def tell_gateways(self) -> list[Notice]:
        """Have running gateways reload after an edit; a notice for each that refuses."""
        if not self.tells_gateways:
            return []
        from fairlead.gateway.registry import reload_gateways

        hint = "correct the configuration: the gateway takes it over then"
        return [Notice(message=refusal, hint=hint) for refusal in reload_gateways(self.env)]


class RunningConfiguration(Protocol):
    """The configuration of a program that runs for long."""

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration in effect."""
        ...

    async def reload(self) -> None:
        """Read the files again, and have the program take them over. Raises `ConfigError`."""
        ...


def running_context(
    surface: Surface, configuration: RunningConfiguration, env: Mapping[str, str], principal: str
) -> ActionContext:
    """The context of a program that runs an event loop, for actions in one of its worker threads."""
    from anyio import from_thread

    def reload() -> LoadedConfig:
        from_thread.run(configuration.reload)
        return configuration.loaded

    return ActionContext(
        surface=surface, env=env, before=configuration.loaded, reload=reload, principal=principal
    )
