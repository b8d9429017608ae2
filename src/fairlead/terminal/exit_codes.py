"""Exit statuses of all commands, and the one for each error."""

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
    """Done."""
    FIXABLE = 1
    """Something the user can fix: the configuration, a name, a file."""
    USAGE = 2
    """The command line is wrong."""
    NEEDS_A_PERSON = 3
    """A login, a consent, an approval or an answer is missing."""
    NOT_READY = 4
    """A required server, or the model, is not ready."""
    TOOL_ERROR = 5
    """The tool answered with an error, or the model gave up."""
    DRIFT = 6
    """Tool definitions are not what the lockfile says."""
    UNFINISHED = 7
    """A run reached its limit of steps or tokens before the model was done."""
    OUR_FAULT = 70
    """A bug in Fairlead."""
    INTERRUPTED = 130
    """Interrupted."""


def exit_of(error: FairleadError) -> Exit:
    """The exit status an error ends a command with."""
    if isinstance(error, NEEDS_USER):
        return Exit.NEEDS_A_PERSON
    match error:
        case ConnectFailed() | IssuerUnavailable() | ListFailed() | ModelUnavailable():
            return Exit.NOT_READY
        case _:
            return Exit.FIXABLE
