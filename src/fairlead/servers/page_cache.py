"""Pages that were read, on disk: not asked for again while they are fresh, nor sent again if unchanged.

A cache can only help. Whatever is wrong with it, the page is fetched.
"""

import contextlib
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

logger = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024
MAX_FRESH_SECONDS = 3600.0
"""How long a page may go unchecked, whatever its server says."""
PAGING_SECONDS = 600.0
"""How long somebody reading a page part by part gets the parts of the same page."""

_FORMAT = "1"
"""Part of every name, so that what another version wrote is not found."""
_MAX_AGE = re.compile(r"max-age\s*=\s*\"?([0-9]{1,10})")
_SUFFIX = ".json"
_TEMPORARY = ".tmp"
_STALE_SECONDS = 3600.0


class CachedPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was read at a URL, and how to ask whether it is still so."""

    url: str
    status: int
    content_type: str
    title: str | None
    text: str
    whole: bool
    note: str | None
    etag: str | None = None
    last_modified: str | None = None
    checked_at: float
    fresh_seconds: float

    def is_fresh(self, now: float, *, paging: bool = False) -> bool:
        """Tell whether it need not be asked about. A clock that was set back makes nothing fresh."""
        age = now - self.checked_at
        return 0 <= age < max(self.fresh_seconds, PAGING_SECONDS if paging else 0.0)

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that ask for it only if it has changed."""
        headers = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in headers.items() if value}


def fresh_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long a response may go unchecked by what it says; None: it is not to be kept."""
    said = headers.get("Cache-Control", "").lower()
    if "no-store" in said or headers.get("Vary", "").strip() == "*":
        return None
    limit = _MAX_AGE.search(said)
    if limit is None or "no-cache" in said:
        return 0.0
    age = headers.get("Age", "").strip()
    spent = int(age) if age.isdecimal() and len(age) < 10 else 0
    return float(min(max(int(limit[1]) - spent, 0), MAX_FRESH_SECONDS))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CachedPage).decode


class PageCache:
    """Pages in a folder that is its owner's alone, no more than `max_bytes` of them: the oldest go first.

    Its methods touch the disk: call them in a thread. Several processes may share a folder.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, url: str) -> CachedPage | None:
        """Return what is kept for a URL."""
        try:
            page = _decode(self._read(self._file(url)))
        except (OSError, msgspec.MsgspecError):
            return None
        return page if page.url == url else None

    def put(self, page: CachedPage) -> None:
        """Keep a page in place of what was kept for its URL."""
        try:
            content = _encode(page)
            if len(content) > self._max_bytes // 4:
                return
            self._secure_folder()
            self._replace(self._file(page.url), content)
            self._trim()
        except (OSError, UnicodeEncodeError) as exc:
            logger.debug("a page could not be kept", extra={"reason": str(exc)})

    def renew(self, page: CachedPage, fresh: float) -> CachedPage:
        """Keep a page that was found unchanged."""
        renewed = msgspec.structs.replace(page, checked_at=time.time(), fresh_seconds=fresh)
        self.put(renewed)
        return renewed

    def _file(self, url: str) -> Path:
        name = hashlib.sha256(f"{_FORMAT} {url}".encode()).hexdigest()
        return self._folder / f"{name}{_SUFFIX}"

    def _read(self, file: Path) -> bytes:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as opened:
            return opened.read(self._max_bytes)

    def _secure_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform == "win32":
            return
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError("the folder is a link, or somebody else's")
        if stat.S_IMODE(status.st_mode) & 0o077:
            self._folder.chmod(0o700)

    def _replace(self, file: Path, content: bytes) -> None:
        # It can be fetched again, so nobody waits for the disk; and what came out torn is not decoded.
        descriptor, name = tempfile.mkstemp(_TEMPORARY, dir=self._folder)
        try:
            with open(descriptor, "wb") as opened:
                opened.write(content)
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _trim(self) -> None:
        """Remove what killed writers left, and the oldest pages if there are too many."""
        kept: list[tuple[float, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    age = time.time() - status.st_mtime
                    if entry.name.endswith(_SUFFIX):
                        kept.append((status.st_mtime, status.st_size, entry.path))
                    elif entry.name.endswith(_TEMPORARY) and age > _STALE_SECONDS:
                        os.unlink(entry.path)
        excess = sum(size for _, size, _ in kept) - self._max_bytes
        for _, size, path in sorted(kept):
            if excess <= 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            excess -= size
