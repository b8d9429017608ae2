"""The archive of a backup: a ZIP file with a manifest, read as something that an attacker may have written.

Names in it are never used as paths: each is one of a few known parts, whose place on this machine is known.
Sizes are bounded before and while something is unpacked, every part has to match its digest in the
manifest, and nothing else may be in it. With a passphrase the whole file is encrypted (scrypt, AES-256-GCM).
"""

import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable

FORMAT: Final = 1
MAGIC: Final = b"fairlead-backup-encrypted\n1\n"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12

PartName = Literal[
    "config/fairlead.json",
    "project/fairlead.json",
    "project/fairlead.lock",
    "state.jsonl",
    "gateway/tokens.json",
    "secrets.json",
]

_SMALL: Final = 16 * 1024 * 1024
MOST_BYTES: Final[Mapping[str, int]] = {
    "config/fairlead.json": _SMALL,
    "project/fairlead.json": _SMALL,
    "project/fairlead.lock": _SMALL,
    "state.jsonl": 1024 * 1024 * 1024,
    "gateway/tokens.json": _SMALL,
    "secrets.json": _SMALL,
}
"""The parts that there can be, and the size of the largest that is read."""
_MANIFEST: Final = "manifest.json"
_MOST_FILE_BYTES: Final = 1024 * 1024 * 1024


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sha256: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Manifest of an archive: its format, origin and time, and a digest of each part."""

    format: int
    made_by: str
    made_at: float
    has_secrets: bool
    parts: dict[str, _Part]


class _Version(msgspec.Struct, frozen=True):
    format: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupArchive:
    """The parts of a backup, checked."""

    manifest: Manifest
    parts: Mapping[str, bytes]
    is_encrypted: bool = False


class PassphraseNeeded(ConfigError):
    """The archive is encrypted, and the passphrase is missing or wrong."""

    code = "passphrase_needed"


def pack(
    parts: Mapping[PartName, bytes],
    *,
    made_by: str,
    made_at: float,
    has_secrets: bool,
    passphrase: str | None,
) -> bytes:
    """Encode an archive, encrypted where there is a passphrase."""
    for name, content in parts.items():
        if len(content) > MOST_BYTES[name]:
            raise ConfigError(
                f"`{name}` would have {len(content):,} bytes; the limit is {MOST_BYTES[name]:,}",
                hint="shorten the audit log with `audit.keep_records`",
            )
    manifest = Manifest(
        format=FORMAT,
        made_by=made_by,
        made_at=made_at,
        has_secrets=has_secrets,
        parts={
            name: _Part(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
            for name, content in parts.items()
        },
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        for name, content in parts.items():
            archive.writestr(name, content)
    plain = packed.getvalue()
    return plain if passphrase is None else _encrypt(plain, passphrase)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only this user can read. Raises `ConfigUnwritable`, also where there is one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as exc:
        hint = "name another file: a backup never overwrites one"
        raise ConfigUnwritable(f"there is a file `{path}` already", hint=hint) from exc
    except OSError as exc:
        raise ConfigUnwritable(f"cannot write `{path}`: {exc.strerror}", hint="name another place") from exc


def read_archive(path: Path, passphrase: str | None = None) -> BackupArchive:
    """Read and check an archive.

    Raises:
        ConfigUnreadable: It is no backup, damaged, too large, or of a newer release.
        PassphraseNeeded: It is encrypted, and the passphrase is missing or wrong.
    """
    content = _read_file(path)
    is_encrypted = content.startswith(MAGIC)
    if is_encrypted:
        content = _decrypt(content, passphrase, path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _unpack(archive, path, is_encrypted=is_encrypted)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError) as exc:
        raise _archive_error(path, f"it is no backup, or damaged ({exc})") from exc


def _read_file(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _archive_error(path, "it is no file")
            if status.st_size > _MOST_FILE_BYTES:
                raise _archive_error(path, f"it has {status.st_size:,} bytes, which is too much")
            return file.read(_MOST_FILE_BYTES)
    except OSError as exc:
        hint = "name the file that `fairlead backup` wrote"
        raise ConfigUnreadable(f"cannot read `{path}`: {exc.strerror}", hint=hint) from exc


def _unpack(archive: zipfile.ZipFile, path: Path, *, is_encrypted: bool) -> BackupArchive:
    members = archive.infolist()
    names = [member.filename for member in members]
    if _MANIFEST not in names or len(set(names)) != len(names):
        raise _archive_error(path, "it is no backup: it has no manifest, or names something twice")
    found = {member.filename: member for member in members}
    manifest = _read_manifest(_read_member(archive, found.pop(_MANIFEST), _SMALL, path), path)
    if unknown := sorted(found.keys() - MOST_BYTES.keys()):
        raise _archive_error(path, f"it has a part that no backup has: {unknown[0]!r}")
    if found.keys() != manifest.parts.keys():
        raise _archive_error(path, "its parts are not those in its manifest")
    parts: dict[str, bytes] = {}
    for name, member in found.items():
        entry = manifest.parts[name]
        if member.file_size != entry.size or entry.size > MOST_BYTES[name]:
            raise _archive_error(path, f"`{name}` has not the size in the manifest, or is too large")
        content = _read_member(archive, member, entry.size, path)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise _archive_error(
                path, f"`{name}` is not what the manifest says: it was changed or is damaged"
            )
        parts[name] = content
    return BackupArchive(manifest=manifest, parts=parts, is_encrypted=is_encrypted)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int, path: Path) -> bytes:
    if member.is_dir() or stat.S_ISLNK(member.external_attr >> 16) or member.flag_bits & 1:
        raise _archive_error(path, f"{member.filename!r} is no plain file")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _archive_error(path, f"{member.filename!r} is packed in a way that no backup is")
    with archive.open(member) as file:
        content = file.read(limit + 1)  # what it says about its size may be a lie
    if len(content) > limit:
        raise _archive_error(path, f"{member.filename!r} is larger than it says, or than {limit:,} bytes")
    return content


def _read_manifest(content: bytes, path: Path) -> Manifest:
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version > FORMAT:
            raise ConfigUnreadable(f"`{path}` was written by a newer Fairlead", hint="update Fairlead")
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _archive_error(path, f"its manifest cannot be read ({exc})") from exc


def _archive_error(path: Path, reason: str) -> ConfigUnreadable:
    return ConfigUnreadable(
        f"`{path}` is not restored: {reason}", hint="nothing was changed; use another backup"
    )


def _encrypt(plain: bytes, passphrase: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    head = MAGIC + salt + nonce
    return head + AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, head)


def _decrypt(content: bytes, passphrase: str | None, path: Path) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if passphrase is None:
        raise PassphraseNeeded(
            f"`{path}` is encrypted",
            hint="run it at a terminal, or put the passphrase into FAIRLEAD_BACKUP_PASSPHRASE",
        )
    end = len(MAGIC) + _SALT_BYTES + _NONCE_BYTES
    head, salt = content[:end], content[len(MAGIC) : len(MAGIC) + _SALT_BYTES]
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(head[-_NONCE_BYTES:], content[end:], head)
    except (InvalidTag, ValueError) as exc:
        raise PassphraseNeeded(f"the passphrase does not open `{path}`, or it is damaged") from exc


def _key(passphrase: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        passphrase.encode(), salt=salt, n=2**16, r=8, p=1, maxmem=128 * 1024 * 1024, dklen=32
    )
