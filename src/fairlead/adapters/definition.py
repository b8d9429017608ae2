"""A tool converted for a model provider: its definition, the changes, and the original argument names."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.keywords import below
from fairlead.catalog.schema.normalize import SchemaChange, ScreenedSchema, screen_definition
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.untyped import is_list, is_object

Caller = Callable[[ToolKey, dict[str, Any]], Awaitable[ToolResult]]
"""Makes a call, such as `lambda key, arguments: host.call(key.server_id, key.tool, arguments)`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptedTool:
    """One tool for one provider. `definition` is None where the tool cannot be used; `refused` says why."""

    key: ToolKey
    """Which tool it is."""
    name: str
    """Its name for the provider."""
    definition: dict[str, Any] | None = field(repr=False)
    """The definition in the provider's form."""
    changes: tuple[SchemaChange, ...] = ()
    """What was changed in its schema for the provider."""
    refused: str | None = None
    """Why the provider would refuse it."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Renamed arguments: the provider's name for each, and the server's."""

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Translate the arguments of a model's call.

        Args:
            given: The arguments under the provider's names.

        Returns:
            The arguments under the server's names.
        """
        if not self.renamed:
            return {**given}
        return {self.renamed.get(name, name): self._restore_names(value) for name, value in given.items()}

    def _restore_names(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if is_object(value):
            return self.arguments(value)
        return [self._restore_names(item) for item in value] if is_list(value) else value


class DefinitionChanges:
    """Collector of the changes to a definition."""

    def __init__(self, screened: ScreenedSchema) -> None:
        self.made = [*screened.changes]

    def note(self, where: str, what: str) -> None:
        """Report a change at that path of the schema."""
        self.made.append(SchemaChange(where=where, what=what))

    def leave(self, schema: dict[str, Any], keywords: Iterable[str], where: str) -> None:
        """Report these keywords, where present, as left out of the provider's schema."""
        for keyword in keywords:
            if keyword in schema:
                self.note(below(where, keyword), "is left for the server to check")


Rewrite = Callable[[dict[str, Any], DefinitionChanges], tuple[dict[str, Any], Mapping[str, str]]]
"""From a screened schema to a tool's definition without its name, and the renamed arguments."""


def adapt(entry: ToolEntry, name: str, rewrite: Rewrite) -> AdaptedTool:
    """Convert a tool by `rewrite`, or return the reason why it cannot be used."""
    screened = screen_definition(entry.definition)
    if screened.rejected is not None:
        return AdaptedTool(key=entry.key, name=name, definition=None, refused=screened.rejected)
    changes = DefinitionChanges(screened)
    definition, renamed = rewrite(screened.schema, changes)
    return AdaptedTool(
        key=entry.key,
        name=name,
        definition=definition,
        changes=tuple(changes.made),
        renamed=renamed,
    )


def description_of(entry: ToolEntry, hint: str | None = None) -> str:
    """Description of a tool for a model: its origin, then the server's own text."""
    text = gate.content(entry.description or "").strip() or gate.content(entry.title or "")
    return " ".join(part for part in (entry.key.origin, text, hint) if part)
