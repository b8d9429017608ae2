"""Location of the durable state: a SQLite file of this machine, or a Redis that many machines share.

A Redis address and the cluster key may hold references (`${…}`). They are resolved when the store is opened,
and no error, `repr` or log has the password of an address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from fairlead.config.document.files import read_text
from fairlead.config.models import Config, StoreSettings
from fairlead.config.paths import config_folder, state_folder, store_file
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.redaction import redact_url
from fairlead.config.secrets.references import MAX_SECRET_BYTES, resolve
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
        """Whether there may be state: a Redis has to be asked, a missing file need not be."""
        return True

    def url(self) -> str:
        """The address to connect to. Raises `StoreError` where a reference has no value."""
        url = self._resolve(self.template)
        if password := urlsplit(url).password:
            SECRETS.learn(password)
        if urlsplit(url).scheme not in ("redis", "rediss"):
            raise StoreError("the store's address must begin with redis:// or rediss://")
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
        return Path(settings.path).expanduser()
    return store_file(env)


def artifact_folder(env: Mapping[str, str], config: Config) -> Path | None:
    """The folder of artifacts; None where a Redis store has them, and the replicas share no folder."""
    if config.artifacts.folder is not None:
        return Path(config.artifacts.folder).expanduser()
    return None if config.store.url is not None else state_folder(env) / "artifacts"
