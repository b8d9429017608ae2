"""Back up configuration and state into one file, and restore them.

Without secrets a backup has no token, key or stored secret: not the logins, not the keyring, not the keys of
the audit and of consents. Restoring replaces everything in one step or nothing, and keeps what was there.
"""

import base64
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.actions.backup_archive import BackupArchive, PartName, pack, read_archive, write_private
from fairlead.actions.context import ActionContext, Notice
from fairlead.auth.store_vault import NAMESPACE as SHARED_LOGINS
from fairlead.auth.vault import FILE_NAME as LOGINS
from fairlead.config.command_lines import command_line
from fairlead.config.consent import KEY_FILE
from fairlead.config.document import jsonc
from fairlead.config.document.files import read_text, write_atomic
from fairlead.config.paths import LOCK_NAME, config_folder, state_folder, user_file
from fairlead.config.secrets import keyring
from fairlead.config.secrets.documents import PlainSecret, plain_secrets
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import SERVICE
from fairlead.config.store_location import RedisLocation
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable, Remedy
from fairlead.gateway.registry import gateway_folder, living
from fairlead.policy.approvals import WITHDRAWN
from fairlead.policy.audit import LOG
from fairlead.policy.audit import NAMESPACE as AUDIT
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import MAX_VALUE_BYTES, NewRecord, NewValue

_AUDIT_KEY: Final = (AUDIT, "key")
"""Key of the audit's digests of arguments: a secret, which stays where it is."""
_NOT_KEPT: Final = frozenset({(AUDIT, "rotated"), (AUDIT, "limits"), ("dashboard keys", "forms")})
_NAMES_OF_NAMESPACES: Final = {
    "pins": "pins",
    "approvals": "approvals",
    "consent": "consents",
    "catalog": "snapshots",
    "artifacts": "artifacts",
    "search_memory": "search history",
}
_LEFT_OUT: Final = frozenset({"artifacts", "embeddings", WITHDRAWN})
"""Namespaces that are not in a backup: artifacts, whose files are not either, what a model works out
again, and what is about sessions that run."""


# Making one.


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeBackup:
    """A backup that was written."""

    path: Path
    contents: dict[str, int]
    """How many of what are in it."""
    has_secrets: bool
    is_encrypted: bool
    in_keyring: int = 0
    """Secrets in the system's keyring that are not in it."""
    notices: list[Notice] = field(default_factory=list[Notice])


def default_backup_file(folder: Path) -> Path:
    """The name of a new backup."""
    return folder / f"fairlead-backup-{time.strftime('%Y-%m-%d-%H%M%S')}.zip"


def make_backup(
    context: ActionContext, path: Path, *, with_secrets: bool = False, passphrase: str | None = None
) -> MadeBackup:
    """Write a backup of the configuration and the state.

    Args:
        context: Who makes it.
        path: The file, which must not exist; only this user can read it.
        with_secrets: Put logins, stored secrets and keys into it.
        passphrase: Encrypts it.

    Raises:
        ConfigError: A configuration file has secrets in plain text, and `with_secrets` is off.
        ConfigUnwritable: The file exists, or cannot be written.
    """
    files = _collect_files(context)
    if not with_secrets:
        _require_no_plain_secrets(context, files)
    parts = _collect(context, with_secrets=with_secrets) | files
    content = pack(
        parts,
        made_by=f"fairlead {version('fairlead')}",
        made_at=time.time(),
        has_secrets=with_secrets,
        passphrase=passphrase,
    )
    write_private(path, content)
    return MadeBackup(
        path=path,
        contents=_count(parts),
        has_secrets=with_secrets,
        is_encrypted=passphrase is not None,
        in_keyring=0 if with_secrets else len(_keyring_names(context)),
        notices=context.record("backup", "", secrets=with_secrets),
    )


def _config_file(context: ActionContext) -> Path:
    """The configuration file that is backed up and restored: the one in use, or the user's own."""
    named = (layer.path for layer in context.loaded.layers if layer.name == "file" and layer.path)
    return next(named, None) or user_file(context.env)


def _project_file(context: ActionContext) -> Path | None:
    layers = (layer for layer in context.loaded.layers if layer.name == "project" and layer.path)
    return next((layer.path for layer in layers if layer.path and layer.path.name == "fairlead.json"), None)


def _require_no_plain_secrets(context: ActionContext, parts: Mapping[PartName, bytes]) -> None:
    """Refuse files with secrets in plain text: all that is written in them leaves, in effect or not."""
    files: list[tuple[PartName, Path | None]] = [
        ("config/fairlead.json", _config_file(context)),
        ("project/fairlead.json", _project_file(context)),
    ]
    for name, path in files:
        if name not in parts or path is None:
            continue
        text = parts[name].decode("utf-8-sig")
        try:
            found = plain_secrets(text, str(path))
        except ConfigError as exc:
            raise ConfigError(
                f"`{path}` cannot be searched for secrets: {exc}",
                hint="correct it (`fairlead lint` says where), or back it up with its secrets",
                remedy=Remedy(input="with_secrets"),
            ) from exc
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            named = ", ".join(secret.place for secret in found[:3])
            raise ConfigError(
                f"`{path}` has secrets in plain text: {named}{more}",
                hint=_secrets_hint(found, path, is_project=name.startswith("project/")),
                remedy=Remedy(input="with_secrets"),
            )


def _secrets_hint(found: Sequence[PlainSecret], path: Path, *, is_project: bool) -> str:
    servers = [*dict.fromkeys(secret.server_id for secret in found)]
    if is_project or servers[0] is None:
        way = "put references such as `${NAME}` in their place"
    else:
        # By its file: a project may have an entry with the same id, which would hide this one.
        verb = command_line("stash", servers[0]).removeprefix("fairlead")
        command = f"fairlead --config {shlex.quote(str(path))}{verb}"
        way = f"run `{command}`, which moves them into the keyring"
    return f"{way}, or back them up as well"


def _collect_files(context: ActionContext) -> dict[PartName, bytes]:
    parts: dict[PartName, bytes] = {}
    files: list[tuple[PartName, Path]] = [("config/fairlead.json", _config_file(context))]
    if (project := _project_file(context)) is not None:
        files.append(("project/fairlead.json", project))
        files.append(("project/fairlead.lock", project.with_name(LOCK_NAME)))
    files.append(("gateway/tokens.json", gateway_folder(context.env) / "tokens.json"))
    for name, path in files:
        if path.exists():
            parts[name] = read_text(path, keep_mark=True).encode()
    return parts


def _collect(context: ActionContext, *, with_secrets: bool) -> dict[PartName, bytes]:
    parts = _collect_files(context)
    if context.store.exists():
        with open_database_for_reading(context.store) as database:
            values, records = database.read_all()
        parts["state.jsonl"] = _encode_state(values, records, with_secrets=with_secrets)
    if with_secrets:
        parts["secrets.json"] = msgspec.json.encode(_collect_secrets(context))
    return parts


class _StateLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One value or record of the store."""

    value: tuple[str, str, bytes] | None = None
    record: tuple[str, float, bytes] | None = None


def _encode_state(values: Iterable[NewValue], records: Iterable[NewRecord], *, with_secrets: bool) -> bytes:
    lines: list[_StateLine] = []
    for value in values:
        place = value[:2]
        is_secret = (place == _AUDIT_KEY or value[0] == SHARED_LOGINS) and not with_secrets
        if not is_secret and place not in _NOT_KEPT and value[0] not in _LEFT_OUT:
            lines.append(_StateLine(value=value))
    lines += [_StateLine(record=record) for record in records]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


_decode_line = msgspec.json.Decoder(_StateLine).decode


def _decode_state(content: bytes) -> tuple[list[NewValue], list[NewRecord]]:
    values: list[NewValue] = []
    records: list[NewRecord] = []
    try:
        for line in filter(None, content.split(b"\n")):
            read = _decode_line(line)
            if read.value is not None and len(read.value[2]) <= MAX_VALUE_BYTES:
                values.append(read.value)
            elif read.record is not None:
                records.append(read.record)
            else:
                raise msgspec.ValidationError("a line says nothing, or has a value that is too large")
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        hint = "nothing was changed; use another backup"
        raise ConfigUnreadable(f"the state in the backup cannot be read: {exc}", hint=hint) from exc
    if len({value[:2] for value in values}) != len(values):
        raise ConfigUnreadable("the state in the backup names a value twice", hint="use another backup")
    return values, records


class _Secrets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    logins: str | None = None
    consent_key: str | None = None
    """In base64."""
    stored: dict[str, str] = {}
    """Secrets in files, by the name of the file."""
    gateway_tokens: dict[str, str] = {}
    keyring: dict[str, str] = {}


def _collect_secrets(context: ActionContext) -> _Secrets:
    state, stored = state_folder(context.env), config_folder(context.env) / "secrets"
    key = state / KEY_FILE
    tokens = [path for path in gateway_folder(context.env).iterdir() if _is_token_file(path.name)]
    return _Secrets(
        logins=read_text(state / LOGINS) if (state / LOGINS).exists() else None,
        consent_key=base64.b64encode(key.read_bytes()).decode() if key.exists() else None,
        stored={path.name: read_text(path) for path in _plain_files(stored)},
        gateway_tokens={path.name: read_text(path) for path in tokens},
        keyring={
            name: secret
            for name in _keyring_names(context)
            if (secret := keyring.get(SERVICE, name)) is not None
        },
    )


def _is_token_file(name: str) -> bool:
    plain = name.replace("-", "").isalnum() and name.isascii()
    return plain and (name in ("token", "decide-token") or name.startswith("token-"))


def _is_file_name(name: str) -> bool:
    """Whether a name is that of a file in a folder, and nothing else."""
    plain = name.isascii() and all(letter.isalnum() or letter in "._-" for letter in name)
    return plain and 0 < len(name) <= 255 and not name.startswith(".")


def _plain_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and _is_file_name(path.name))


def _keyring_names(context: ActionContext) -> list[str]:
    """The names of Fairlead's secrets in the keyring that configuration and logins refer to."""
    prefix = f"{SERVICE}/"
    names = {
        reference.name.removeprefix(prefix)
        for server in context.loaded.servers.values()
        for _, text in strings(server.entry)
        for reference in references(text)
        if reference.kind == "keyring" and reference.name.startswith(prefix)
    }
    file = state_folder(context.env) / LOGINS
    if file.exists():
        names |= _keyring_names_of_logins(read_text(file))
    return sorted(names)


def _keyring_names_of_logins(text: str) -> set[str]:
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return set()
    entries = map(as_object, as_object(document.get("servers")).values())
    places = (as_object(entry.get("keyring")) for entry in entries)
    return {
        f"{place['name']}/{number}"
        for place in places
        if isinstance(place.get("name"), str) and isinstance(place.get("parts"), int)
        for number in range(min(place["parts"], 1000))
    }


def _count(parts: Mapping[Any, bytes]) -> dict[str, int]:
    """Number of things in the parts of a backup, by kind."""
    found: dict[str, int] = {}
    for name, key in (("config/fairlead.json", "servers"), ("project/fairlead.json", "project servers")):
        if name in parts:
            document = as_object(jsonc.loads(_decode_text(parts[name], name), file=name))
            found[key] = len(as_object(document.get("servers")))
    if "state.jsonl" in parts:
        values, records = _decode_state(parts["state.jsonl"])
        found |= _count_state(values, records)
    if "gateway/tokens.json" in parts:
        found["gateway tokens"] = parts["gateway/tokens.json"].count(b'"digest"')
    return found


def _decode_text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        hint = "nothing was changed; use another backup"
        raise ConfigUnreadable(f"`{name}` in the backup is no text", hint=hint) from exc


def _count_state(values: Sequence[NewValue], records: Sequence[NewRecord]) -> dict[str, int]:
    numbers = Counter(_NAMES_OF_NAMESPACES.get(value[0], "other values") for value in values)
    logged = sum(record[0] == LOG for record in records)
    return {**dict(sorted(numbers.items())), "audit records": logged}


# Restoring one.


@dataclass(frozen=True, kw_only=True, slots=True)
class RestorePlan:
    """Plan of a restore."""

    archive: BackupArchive
    files: list[tuple[Path, bytes, int | None]]
    """Files to write, each with its mode; None keeps the one it has."""
    values: list[NewValue]
    records: list[NewRecord]
    secrets: _Secrets | None
    before: dict[str, int]
    """How many of what there are now."""
    after: dict[str, int]
    """How many there would be."""
    left_out: list[str]
    """Parts that are not restored, and why."""


def plan_restore(
    context: ActionContext, path: Path, *, passphrase: str | None = None, project: bool = False
) -> RestorePlan:
    """Read and check a backup, and plan its restore. Changes nothing.

    Args:
        context: Who restores it.
        path: The file.
        passphrase: Decrypts it.
        project: Write the project's file and lockfile, too, into the current folder.

    Raises:
        ConfigUnreadable: It is no backup, damaged, too large, or of a newer release.
        ConfigError: A gateway runs, or replicas share the store.
    """
    _require_no_gateway(context.env)
    _require_own_store(context)
    archive = read_archive(path, passphrase)
    parts = archive.parts
    after = _count(parts)  # which reads every part, and so finds what cannot be read
    values, records = _decode_state(parts.get("state.jsonl", b""))
    files: list[tuple[Path, bytes, int | None]] = []
    left_out: list[str] = []
    if "config/fairlead.json" in parts:
        files.append((_config_file(context), parts["config/fairlead.json"], None))
    for name in ("project/fairlead.json", "project/fairlead.lock"):
        if name in parts and project:
            files.append((Path.cwd() / Path(name).name, parts[name], None))
        elif name in parts:
            left_out.append(f"{Path(name).name} of a project")
    if "gateway/tokens.json" in parts:
        files.append((gateway_folder(context.env) / "tokens.json", parts["gateway/tokens.json"], 0o600))
    secrets = _read_secrets(parts["secrets.json"]) if "secrets.json" in parts else None
    if secrets is not None:
        files += _secret_files(context.env, secrets)
    return RestorePlan(
        archive=archive,
        files=files,
        values=values,
        records=records,
        secrets=secrets,
        before=_count(_collect(context, with_secrets=False)),
        after=after,
        left_out=left_out,
    )


def _require_no_gateway(env: Mapping[str, str]) -> None:
    running = living(env)
    if running:
        raise ConfigError(
            f"a gateway runs at {running[0].url} (process {running[0].pid}), and would keep the old state",
            hint="stop it first, and start it again after the restore",
        )


def _read_secrets(content: bytes) -> _Secrets:
    try:
        secrets = msgspec.json.decode(content, type=_Secrets)
        key = base64.b64decode(secrets.consent_key or "", validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        raise ConfigUnreadable(f"the secrets in the backup cannot be read: {exc}") from exc
    odd = [name for name in secrets.stored if not _is_file_name(name)]
    odd += [name for name in secrets.gateway_tokens if not _is_token_file(name)]
    if odd or len(key) > 1024:
        raise ConfigUnreadable(
            "the secrets in the backup have a name that no backup has", hint="nothing was changed"
        )
    return secrets


def _secret_files(env: Mapping[str, str], secrets: _Secrets) -> list[tuple[Path, bytes, int | None]]:
    state, stored, gateway = state_folder(env), config_folder(env) / "secrets", gateway_folder(env)
    files: list[tuple[Path, bytes, int | None]] = []
    if secrets.logins is not None:
        files.append((state / LOGINS, secrets.logins.encode(), 0o600))
    if secrets.consent_key is not None:
        files.append((state / KEY_FILE, base64.b64decode(secrets.consent_key), 0o600))
    files += [(stored / name, text.encode(), 0o600) for name, text in secrets.stored.items()]
    files += [(gateway / name, text.encode(), 0o600) for name, text in secrets.gateway_tokens.items()]
    return files


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """Outcome of a restore."""

    previous: Path
    """A backup of what was there before."""
    files: list[Path]
    notices: list[Notice] = field(default_factory=list[Notice])


def restore_backup(context: ActionContext, plan: RestorePlan) -> Restored:
    """Replace configuration and state by a backup, all of it or nothing, and keep the former ones.

    Raises:
        ConfigError: A gateway runs.
        ConfigUnwritable: A file cannot be written; everything is as it was.
        StoreError: The store cannot be written; everything is as it was.
    """
    _require_no_gateway(context.env)
    _require_own_store(context)
    previous = state_folder(context.env) / "backups" / f"before-restore-{time.time_ns()}.zip"
    kept = pack(
        _collect(context, with_secrets=plan.secrets is not None),
        made_by=f"fairlead {version('fairlead')}",
        made_at=time.time(),
        has_secrets=plan.secrets is not None,
        passphrase=None,
    )
    write_private(previous, kept)
    store = context.store
    with (
        open_database(store) as database,
        database.replacing_all(plan.values, plan.records, keep=[_AUDIT_KEY]),
    ):
        # Inside the transaction: if a file cannot be written, those before it are put back, and the store
        # is as it was.
        _replace_files(plan.files)
    notices = [
        *_restore_keyring(plan.secrets),
        *context.record("restore", "", made_at=plan.archive.manifest.made_at, previous=str(previous)),
    ]
    return Restored(previous=previous, files=[path for path, _, _ in plan.files], notices=notices)


def _require_own_store(context: ActionContext) -> None:
    """Refuse to replace what other machines use: their gateways cannot be seen from here."""
    if isinstance(context.store, RedisLocation):
        raise ConfigError(
            f"the store {context.store} is shared, and is not replaced by a backup of one machine",
            hint="restore a backup of Redis itself, with the cluster key of that time",
        )


def _replace_files(files: Iterable[tuple[Path, bytes, int | None]]) -> None:
    with ExitStack() as undo:
        for path, content, mode in files:
            before = path.read_bytes() if path.exists() else None
            _write(path, content, mode)
            undo.callback(_put_back, path, before, mode)
        undo.pop_all()


def _put_back(path: Path, before: bytes | None, mode: int | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, before, mode)


def _write(path: Path, content: bytes, mode: int | None) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if mode is None:
            write_atomic(path, content.decode())
            return
        temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
        try:
            write_private(temporary, content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigUnwritable(f"cannot write `{path}`: {exc}", hint="nothing was changed") from exc


def _restore_keyring(secrets: _Secrets | None) -> list[Notice]:
    failed = [
        name
        for name, secret in (secrets.keyring if secrets else {}).items()
        if not keyring.put(SERVICE, name, secret)
    ]
    if not failed:
        return []
    return [
        Notice(
            message=f"{len(failed)} secrets of the keyring were not restored: there is no keyring here",
            hint="log in again, and give the servers their secrets again",
        )
    ]
