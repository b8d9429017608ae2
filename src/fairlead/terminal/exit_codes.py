"""What each exit status means."""

from enum import IntEnum

from fairlead.errors import (
    NEEDS_USER,
    ConnectFailed,
    FairleadError,
    IssuerUnavailable,
    ListFailed,
    ModelUnavailable,
)


class Exit(IntEnum):
    """Exit statuses, the same for every command."""

    OK = 0
    FIXABLE = 1
    """Something the user can fix."""
    USAGE = 2
    NEEDS_A_PERSON = 3
    """A login, a consent or an approval is missing."""
    NOT_READY = 4
    """A required server is not ready."""
    TOOL_ERROR = 5
    """The tool answered with an error, or the model gave up."""
    DRIFT = 6
    """Tool definitions are not what the lockfile says."""
    UNFINISHED = 7
    """A run reached its limit of steps or tokens before the model was done."""
    OUR_FAULT = 70
    INTERRUPTED = 130


def exit_of(error: FairleadError) -> Exit:
    """The exit status an error ends a command with."""
    if isinstance(error, NEEDS_USER):
        return Exit.NEEDS_A_PERSON
    match error:
        case ConnectFailed() | IssuerUnavailable() | ListFailed() | ModelUnavailable():
            return Exit.NOT_READY
        case _:
            return Exit.FIXABLE
