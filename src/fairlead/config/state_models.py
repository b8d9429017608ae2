"""Models of what is kept, and where: the store, artifacts and the audit log."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fairlead.config.field_types import BucketName, ObjectPrefix, RedisUrl, StrictModel, Text, WebUrl


class StoreSettings(StrictModel):
    """Location of the durable state."""

    path: Text | None = Field(default=None, description="The SQLite file; under the state folder if not set.")
    url: RedisUrl | None = Field(
        default=None,
        description="A Redis that all replicas share: `redis://…`, `rediss://…` or `redis+sentinel://…`.",
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


class BucketSettings(StrictModel):
    """A bucket of an S3-compatible service, for artifacts that are too large for a Redis store."""

    endpoint: WebUrl = Field(description="Address of the service: `https://s3.eu-central-1.amazonaws.com`.")
    bucket: BucketName = Field(description="Name of the bucket; it has to be there.")
    region: Text = Field(default="us-east-1", description="Its region; many services take any.")
    prefix: ObjectPrefix = Field(
        default="fairlead/artifacts/", description="What the names of objects begin with."
    )
    access_key: Text = Field(description="The id of the access key; may be a reference.")
    secret_key: Text = Field(description="The secret of the access key: use a reference.")
    session_token: Text | None = Field(
        default=None, description="The token of temporary credentials: use a reference."
    )


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
    s3: BucketSettings | None = Field(
        default=None, description="With a Redis store, a bucket for large ones; they are encrypted there."
    )

    @model_validator(mode="after")
    def _require_one_place(self) -> Self:
        if self.folder is not None and self.s3 is not None:
            raise ValueError("has both `folder` and `s3`: leave one out")
        return self


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
