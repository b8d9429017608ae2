"""The system's keyring. It may ask a person, or hang, or not be there: so in a thread, and not for ever."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from fairlead.errors import SecretUnavailable

SECONDS: Final = 30.0

ValueT = TypeVar("ValueT")


def get(service: str, user: str) -> str | None:
    """The password kept under a service and a user, or None."""

    def ask() -> str | None:
        import keyring

        return keyring.get_password(service, user)

    return _within_reason(ask)


def is_available() -> bool:
    """Is there a keyring that keeps what it is given?"""

    def look() -> bool:
        import keyring

        return keyring.get_keyring().priority >= 1  # below are the backends that refuse or forget everything

    try:
        return _within_reason(look)
    except SecretUnavailable:
        return False


def put(service: str, user: str, password: str) -> bool:
    """Keep a password. False where this machine has no keyring that would."""

    def keep() -> bool:
        import keyring

        if keyring.get_keyring().priority < 1:  # the backends that refuse or forget everything
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

        with suppress(PasswordDeleteError):  # what backends say of one that is not there
            keyring.delete_password(service, user)

    _within_reason(remove)


def _within_reason(ask: Callable[[], ValueT]) -> ValueT:
    answers: list[ValueT] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as exc:  # noqa: BLE001 - backends raise whatever their platform raises
            failures.append(exc)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if answers:
        return answers[0]
    if failures:
        raise SecretUnavailable(f"the keyring cannot be used ({type(failures[0]).__name__})")
    raise SecretUnavailable(f"the keyring did not answer within {SECONDS:g} s")
