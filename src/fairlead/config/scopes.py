"""Which file an edit goes to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fairlead.config.paths import FILE_NAME, Place, user_file
from fairlead.config.sources import find_project_file
from fairlead.errors import ConfigError

EditScope = Literal["project", "user", "file"]

EMPTY_FILE = '{\n  "version": 1,\n  "servers": {}\n}\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class EditTarget:
    """A file that edits go to, and what people call it."""

    scope: EditScope
    path: Path


def edit_target(
    scope: Literal["project", "user"], place: Place, explicit: Path | None = None, *, take_over: bool = False
) -> EditTarget:
    """Name the file of a scope. A file given by path stands in for both scopes, as it does for reading.

    A project in a foreign format is not edited. To take it over is to begin a file of ours beside it, which
    is read in its place from then on.
    """
    if explicit is not None:
        return EditTarget(scope="file", path=explicit)
    if scope == "user":
        return EditTarget(scope="user", path=user_file(place.env))
    found = find_project_file(place)
    if found is None:
        return EditTarget(scope="project", path=place.cwd / FILE_NAME)
    if found.dialect is not None and take_over:
        return EditTarget(scope="project", path=found.folder / FILE_NAME)
    if found.dialect is not None:
        raise ConfigError(
            f"this project's servers are in {found.path}, which Fairlead reads but does not edit",
            hint=f"run `fairlead import {found.path}` to take them over into a {FILE_NAME} beside it",
        )
    return EditTarget(scope="project", path=found.path)
