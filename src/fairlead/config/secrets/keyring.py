"""System keyring, called in a thread with a timeout: it may prompt the user, hang, or be missing."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from fairlead.errors import SecretUnavailable

SECONDS: Final = 30.0

ValueT = TypeVar("ValueT")


def get(service: str, user: str) -> str | None:
    """Password of a service and a user, or None."""

    def ask() -> str | None:
        import keyring

        return keyring.get_password(service, user)

    return _within_reason(ask)


def is_available() -> bool:
    """Whether there is a keyring that stores passwords."""

    def look() -> bool:
        import keyring

        return keyring.get_keyring().priority >= 1  # lower ones refuse or forget everything

    try:
        return _within_reason(look)
    except SecretUnavailable:
        return False


def put(service: str, user: str, password: str) -> bool:
    """Store a password. False where this machine has no usable keyring."""

    def keep() -> bool:
        import keyring

        if keyring.get_keyring().priority < 1:  # such backends refuse or forget everything
            return False
        keyring.set_password(service, user, password)
        return keyring.get_password(service, user) == password

    try:
        return _within_reason(keep)
    except SecretUnavailable:
        return False


def delete(service: str, user: str) -> None:
    """Remove a password, if there is one."""

    def remove() -> None:
        import keyring
        from keyring.errors import PasswordDeleteError

        with suppress(PasswordDeleteError):  # raised for one that does not exist
            keyring.delete_password(service, user)

    _within_reason(remove)


def _within_reason(ask: Callable[[], ValueT]) -> ValueT:
    answers: list[ValueT] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as exc:  # noqa: BLE001 - backends raise any exception of their platform
            failures.append(exc)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if answers:
        return answers[0]
    if failures:
        raise SecretUnavailable(f"the keyring cannot be used ({type(failures[0]).__name__})")
    raise SecretUnavailable(f"the keyring did not answer within {SECONDS:g} s")
