"""What is in a folder, and in the folders below it, in an order that stays the same."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from typing import ClassVar, Literal

from pydantic import ConfigDict

from fairlead.errors import ToolFailed
from fairlead.servers.confine import Confinement
from fairlead.servers.definition import ToolModel
from fairlead.servers.names import escaped, is_private
from fairlead.servers.opened import OpenFolder, in_words

EntryType = Literal["file", "dir", "link", "other"]

_Found = tuple[str, EntryType, int | None]
_TYPES: dict[int, EntryType] = {S_IFREG: "file", S_IFDIR: "dir", S_IFLNK: "link"}
_NAMES_LOOKED_AT = 200_000
_NAMES_AT_A_TIME = 1000


# No model, and not frozen: there can be thousands of these, and either takes several times as long to make.
@dataclass(slots=True)
class Entry:
    """One entry of a folder."""

    __pydantic_config__: ClassVar[ConfigDict] = ToolModel.model_config

    name: str
    r"""Its name, or its path from the listed folder. What cannot be shown is written like `\xff`."""
    type: EntryType
    size_bytes: int | None = None
    """The size of a file."""


def list_folder(
    confinement: Confinement, names: Sequence[str], *, max_entries: int, depth: int
) -> tuple[list[Entry], bool]:
    """The entries of a folder, `depth` levels of them, and whether there are more than these.

    Each folder is followed by what is in it. Where not all fit, upper levels are there before lower ones, and
    of one folder the first names, among as many as are looked at.
    """
    entries: list[Entry] = []
    is_cut = False
    waiting: deque[tuple[str, ...]] = deque([()])
    while waiting:
        below = waiting.popleft()
        try:
            found, is_more = _list_one(confinement, names, below, max_entries - len(entries))
        except ToolFailed:
            if not below:
                raise
            is_cut = True  # it cannot be opened; the rest of the tree is worth having all the same
            continue
        prefix = "".join(f"{escaped(name)}/" for name in below)
        entries += [Entry(prefix + escaped(name), kind, size) for name, kind, size in found]
        if is_more:
            is_cut = True
            break
        if len(below) + 1 < depth:
            waiting.extend(
                (*below, name) for name, kind, _ in found if kind == "dir" and not is_private(name)
            )
    if depth > 1:
        entries.sort(key=lambda entry: entry.name.split("/"))
    return entries, is_cut


def _list_one(
    confinement: Confinement, above: Sequence[str], below: tuple[str, ...], room: int
) -> tuple[list[_Found], bool]:
    """What is first in one folder, as much as there is room for, and whether there is more."""
    if not above and not below and len(confinement.roots) > 1:
        roots = sorted(root.name for root in confinement.roots)
        return [(name, "dir", None) for name in roots[:room]], len(roots) > room
    with confinement.folder_at((*above, *below)) as folder, in_words(folder.shown):
        names, is_more = _first_names(folder, room)
        return [_look(folder, name) for name in names], is_more


def _first_names(folder: OpenFolder, count: int) -> tuple[list[str], bool]:
    """The first names in a folder, and whether there are more. Few more than wanted are held at a time."""
    first: list[str] = []
    with folder.scan() as entries:
        # Names alone: to hold all the entries, each with its status, would take half as long again.
        names = (entry.name for entry in islice(entries, _NAMES_LOOKED_AT))
        while more := list(islice(names, max(count, _NAMES_AT_A_TIME))):
            first = sorted(first + more)[: count + 1]
        return first[:count], len(first) > count or next(entries, None) is not None


def _look(folder: OpenFolder, name: str) -> _Found:
    try:
        status = folder.status(name)
    except OSError:  # it was removed since the folder was read
        return name, "other", None
    kind = _TYPES.get(S_IFMT(status.st_mode), "other")
    return name, kind, status.st_size if kind == "file" else None
