"""Models of what is kept, and where: the store, artifacts and the audit log."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fairlead.config.field_types import RedisUrl, StrictModel, Text


class StoreSettings(StrictModel):
    """Location of the durable state."""

    path: Text | None = Field(default=None, description="The SQLite file; under the state folder if not set.")
    url: RedisUrl | None = Field(
        default=None, description="A Redis that all replicas share: `redis://…` or `rediss://…`."
    )
    key: Text | None = Field(
        default=None, description="The cluster key that encrypts what is in Redis: use a reference."
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_url(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_one_place(self) -> Self:
        if self.path is not None and self.url is not None:
            raise ValueError("has both `path` and `url`: leave one out")
        if self.key is not None and self.url is None:
            raise ValueError("has a `key` without a `url`: only what is in Redis is encrypted")
        return self


class ArtifactSettings(StrictModel):
    """Parts of results over their budget, stored on disk to be read on demand."""

    max_bytes: Annotated[int, Field(ge=0)] = Field(
        default=256 * 1024 * 1024, description="Most bytes of all; the oldest go first. 0 stores none."
    )
    max_age_days: Annotated[int, Field(ge=1, le=3650)] = Field(default=7, description="Days one is stored.")
    folder: Text | None = Field(
        default=None,
        description="Where they are; with a Redis store, a folder that all replicas share, for large ones.",
    )


class AuditSettings(StrictModel):
    """The audit log of all calls: `fairlead audit` shows it."""

    enabled: bool = Field(default=True, description="Whether anything is recorded.")
    values: bool = Field(
        default=False, description="Record arguments with secrets masked; else only their shape."
    )
    keep_days: Annotated[int, Field(ge=1, le=36_500)] = Field(
        default=90, description="Days that a record is kept. Older ones are deleted within the hour."
    )
    keep_records: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        default=100_000, description="Most records that are kept. Of more, the oldest are deleted."
    )
