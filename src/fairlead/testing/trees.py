"""Folders for tests, written down as a dictionary."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Union


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, and what it says."""

    target: str


Tree = Mapping[str, Union[str, bytes, Link, "Tree"]]


def write_tree(folder: Path, tree: Tree) -> Path:
    """Write files (text or bytes), links and folders, and return the folder.

    ```python
    write_tree(tmp_path / "repo", {"README.md": "# Hello", "src": {"main.py": "print()"}, "here": Link(".")})
    ```
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = folder / name
        match content:
            case Link(target):
                path.symlink_to(target)
            case str():
                path.write_text(content, encoding="utf-8")
            case bytes():
                path.write_bytes(content)
            case _:
                write_tree(path, content)
    return folder
