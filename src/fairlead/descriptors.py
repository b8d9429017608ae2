"""Descriptors of this process that a program it starts must not get.

asyncio's own loops close all descriptors in the child. uvloop does not: it relies on the close-on-exec flag,
which an application that embeds Fairlead may have taken off a descriptor of its own.
"""

import os
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

_FOLDER: Final = "/proc/self/fd"
_STANDARD: Final = 2

_OpenFile = tuple[int, int, int]
"""A descriptor, and the device and inode of its file: the number may stand for another file later."""

_lock = threading.Lock()
_kept_back: Counter[_OpenFile] = Counter()
"""Descriptors that are inheritable otherwise, by how many blocks keep them back."""


@contextmanager
def keep_descriptors_back() -> Generator[None]:
    """Let a program that is started in the block inherit only what it is given by name.

    Blocks may overlap: a descriptor is inheritable again when the last one has ended.
    """
    with _lock:
        kept = {*_inheritable(), *_kept_back}
        for file in kept:
            _kept_back[file] += 1
            _set_inheritable(file, inheritable=False)
    try:
        yield
    finally:
        with _lock:
            for file in kept:
                _kept_back[file] -= 1
                if not _kept_back[file]:
                    del _kept_back[file]
                    _set_inheritable(file, inheritable=True)


def _inheritable() -> Generator[_OpenFile]:
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return  # another system than Linux, where only asyncio's own loops start programs safely
    for descriptor in map(int, names):
        with suppress(OSError):  # the one that read the folder is closed by now
            if descriptor > _STANDARD and os.get_inheritable(descriptor):
                yield _identify(descriptor)


def _identify(descriptor: int) -> _OpenFile:
    status = os.fstat(descriptor)
    return descriptor, status.st_dev, status.st_ino


def _set_inheritable(file: _OpenFile, *, inheritable: bool) -> None:
    with suppress(OSError):  # its owner has closed it
        if _identify(file[0]) == file:
            os.set_inheritable(file[0], inheritable)
