"""Base of the configuration's models: frozen and strict, with a `repr` that shows no secret."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1)]


class StrictModel(BaseModel):
    """Frozen, no coercion, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What a `repr` shows: the fields that were set, bounded, with literal secrets masked."""
        # Not at the top: only a `repr` needs it.
        from fairlead.config.secrets.redaction import glimpse, redact_entry

        given = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        return ((name, glimpse(value, name)) for name, value in redact_entry(given).items())
