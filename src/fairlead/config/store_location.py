"""Location of the durable state: a SQLite file of this machine, or a Redis that many machines share.

A Redis address and the cluster key may hold references (`${…}`). They are resolved when the store is opened,
and no error, `repr` or log has the password of an address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from pydantic import ValidationError

from fairlead.config.document.files import read_text
from fairlead.config.field_types import REDIS_SCHEMES
from fairlead.config.models import Config, StoreSettings
from fairlead.config.paths import config_folder, expand_home, state_folder, store_file
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.redaction import redact_url
from fairlead.config.secrets.references import MAX_SECRET_BYTES, resolve, resolve_all, split
from fairlead.config.state_models import BucketSettings
from fairlead.errors import ConfigUnreadable, SecretUnavailable, StoreError

KEY_VARIABLE: Final = "FAIRLEAD_CLUSTER_KEY"
KEY_FILE: Final = "cluster.key"
KEY_HINT: Final = (
    f"make one with `fairlead store key new`, and give the same to every replica: in `{KEY_FILE}` of the"
    f" configuration folder, in {KEY_VARIABLE}, or as `store.key`"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisLocation:
    """A Redis or Valkey, and the cluster key that everything in it is encrypted with."""

    template: str = field(repr=False)
    """The address, with its references."""
    key: str | None = field(default=None, repr=False)
    """The setting `store.key`, with its references."""
    env: Mapping[str, str] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return redact_url(self.template)

    def exists(self) -> bool:
        """Whether there may be state: always, since only a connection would tell."""
        return True

    def url(self) -> str:
        """The address to connect to. Raises `StoreError` where a reference has no value."""
        url = self._resolve_address()
        if password := urlsplit(url).password:
            SECRETS.learn(password, unquote(password))
        if urlsplit(url).scheme not in REDIS_SCHEMES:
            wanted = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
            raise StoreError(f"the store's address must begin with one of {wanted}")
        return url

    def cluster_keys(self) -> list[str]:
        """The cluster keys: the first encrypts, all decrypt. Raises `StoreError` where there is none."""
        text = self._resolve(self.key) if self.key is not None else self.env.get(KEY_VARIABLE, "")
        if not text.strip():
            text = self._read_key_file()
        keys = text.replace(",", " ").split()
        SECRETS.learn(*keys)
        if not keys:
            raise StoreError("there is no cluster key, and nothing is kept in Redis without", hint=KEY_HINT)
        return keys

    def _read_key_file(self) -> str:
        path = key_file(self.env)
        try:
            return read_text(path, limit=MAX_SECRET_BYTES) if path.exists() else ""
        except ConfigUnreadable as exc:
            raise StoreError(f"cluster key: {exc}", hint=exc.hint) from exc

    def _resolve_address(self) -> str:
        """The address with its references resolved; those in its login and query are taken as they are.

        A password may have any character, and one such as `/` would end the login in the middle.
        """
        try:
            pieces = split(self.template)
        except ValueError:
            return self._resolve(self.template)  # which says what is wrong with it
        texts = [piece if isinstance(piece, str) else "" for piece in pieces]
        login_end = max((index for index, text in enumerate(texts) if "@" in text), default=-1)
        query_start = next((index for index, text in enumerate(texts) if "?" in text), len(texts))
        # One reference may stand for user and password together.
        safe = "" if ":" in "".join(texts[: login_end + 1]).partition("://")[2].partition("@")[0] else ":"
        for index, piece in enumerate(pieces):
            if not isinstance(piece, str):
                value = self._resolve(str(piece))
                is_quoted = index < login_end or index > query_start
                texts[index] = quote(value, safe=safe if index < login_end else "") if is_quoted else value
        return "".join(texts)

    def _resolve(self, text: str) -> str:
        try:
            return resolve(text, env=self.env, base=config_folder(self.env))
        except SecretUnavailable as exc:
            raise StoreError(f"store: {exc}", hint=exc.hint) from exc


StoreLocation: TypeAlias = Path | RedisLocation
"""Where a store is. Its `str` can be shown; its `exists` tells whether there can be anything in it."""


def key_file(env: Mapping[str, str]) -> Path:
    """The file with the cluster key, unless the environment or the configuration has it."""
    return config_folder(env) / KEY_FILE


def store_location(env: Mapping[str, str], settings: StoreSettings | None = None) -> StoreLocation:
    """The store that the configuration names, or the default: a file under the state folder."""
    if settings is not None and settings.url is not None:
        return RedisLocation(template=settings.url, key=settings.key, env=env)
    if settings is not None and settings.path is not None:
        return expand_home(settings.path)
    return store_file(env)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketLocation:
    """The bucket for large artifacts, whose settings may have references."""

    settings: BucketSettings = field(repr=False)
    env: Mapping[str, str] = field(repr=False, compare=False)

    def resolve(self) -> BucketSettings:
        """Return the settings with all references replaced. Raises `StoreError` where one has no value."""
        given = self.settings.model_dump(exclude_none=True)
        try:
            found = resolve_all(given, env=self.env, base=config_folder(self.env), path="artifacts.s3")
            place = BucketSettings.model_validate(found)
        except SecretUnavailable as exc:
            raise StoreError(str(exc), hint=exc.hint) from exc
        except ValidationError as exc:
            where = ".".join(map(str, exc.errors()[0]["loc"]))
            raise StoreError(f"artifacts.s3.{where} cannot be used: {exc.errors()[0]['msg']}") from None
        SECRETS.learn(place.secret_key, *filter(None, (place.session_token,)))
        return place


def artifact_bucket(env: Mapping[str, str], config: Config) -> BucketLocation | None:
    """The bucket of large artifacts, if one is configured."""
    settings = config.artifacts.s3
    return BucketLocation(settings=settings, env=env) if settings is not None else None


def artifact_folder(env: Mapping[str, str], config: Config) -> Path | None:
    """The folder of artifacts; None where a Redis store has them, and the replicas share no folder."""
    if config.artifacts.folder is not None:
        return expand_home(config.artifacts.folder)
    return (
        None
        if config.store.url is not None or config.artifacts.s3 is not None
        else state_folder(env) / "artifacts"
    )
