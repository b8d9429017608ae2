"""Landlock: start a process that may read below a few folders, and do nothing else with files.

The kernel enforces it on every open, after all links are followed, so no swap of a folder for a link while
the process runs leads anywhere else. A restriction holds for one thread and for what that thread starts. So
each process is started by a thread of its own, which is restricted first and then ends: nothing runs between
fork and exec, and the rest of this process is as free as before.
"""

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights to files that there are, by the version of the interface that brought them."""
_NETWORK_VERSION, _ALL_NETWORK = 4, 3
_SCOPE_VERSION, _ALL_SCOPES = 6, 3

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadAccess:
    """Files and folders that a process may read, as open descriptors, so that no name can be exchanged."""

    folders: Sequence[int]
    """With all that is beneath them."""
    files: Sequence[int]
    programs: Sequence[int]
    """What may be executed as well: the program, its loader and libraries."""


@cache
def landlock_version() -> int:
    """The version of the kernel's interface; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def start_confined(start: Callable[[], T], reach: ReadAccess) -> T:
    """Call `start` in a thread that can reach no more than this, as will the process it starts.

    Raises `OSError` where the kernel cannot confine, and what `start` raises.
    """
    call = _LandlockCall(start, reach)
    thread = threading.Thread(target=call.run, name="confined-start", daemon=True)
    thread.start()
    thread.join()
    return call.result()


class _LandlockCall(Generic[T]):
    def __init__(self, start: Callable[[], T], reach: ReadAccess) -> None:
        self._start = start
        self._reach = reach
        self._outcome: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            _restrict(self._reach)
            self._outcome.append(self._start())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._outcome[0]


def _restrict(reach: ReadAccess) -> None:
    """Restrict this thread."""
    version = landlock_version()
    if not version:
        raise OSError("the kernel has no Landlock")
    rights = max(rights for since, rights in _RIGHTS.items() if since <= version)
    network = _ALL_NETWORK if version >= _NETWORK_VERSION else 0
    scopes = _ALL_SCOPES if version >= _SCOPE_VERSION else 0
    # Older kernels know a shorter structure, and take a longer one only if the rest of it is zero.
    ruleset = _call_kernel(_CREATE_RULESET, struct.pack("=QQQ", rights, network, scopes), 24, 0)
    try:
        for descriptors, granted in (
            (reach.folders, _READ_FILE | _READ_DIR),
            (reach.files, _READ_FILE),
            (reach.programs, _READ_FILE | _EXECUTE),
        ):
            for descriptor in descriptors:
                rule = struct.pack("=Qi", granted, descriptor)
                _call_kernel(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        # The kernel wants this first: a set-user-id program could leave the restriction behind.
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "privileges cannot be given up")
        _call_kernel(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    converted = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *converted)
    return result


def _call_kernel(number: int, *arguments: object) -> int:
    result = _syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock cannot be used")
    return result
