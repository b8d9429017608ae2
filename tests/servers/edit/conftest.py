"""A repository to edit, and the tools of the built-in `edit` server for it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from fairlead.servers.edit.tools import EditOutput, edit_tools
from fairlead.servers.framework.tools import Reply
from fairlead.servers.repo.folders import Confinement
from tests.servers.calling import call
from tests.servers.edit.support import Edit


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    return repo


@pytest.fixture(params=[True, False], ids=["strict", "checked"])
def confinement(repo: Path, request: pytest.FixtureRequest) -> Generator[Confinement]:
    with Confinement([repo], is_strict=request.param) as confinement:
        yield confinement


@pytest.fixture
def edit(confinement: Confinement) -> Edit:
    tools = {tool.name.removeprefix("edit."): tool for tool in edit_tools(confinement)}

    async def edit(name: str, **arguments: Any) -> Reply[EditOutput]:
        return await call(tools[name], arguments)

    return edit
