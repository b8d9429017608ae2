"""Types and helpers of the tests of the built-in `edit` server."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.servers.edit.tools import EditOutput
from fairlead.servers.framework.tools import Reply

Edit = Callable[..., Awaitable[Reply[EditOutput]]]


def contents(folder: Path) -> dict[str, str]:
    """The text of every file below a folder, by its path there."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}
