"""A refused action says which input is at fault and which settles it; each surface words that as its own."""

import ast
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead import actions
from fairlead.actions.context import ActionContext, Surface
from fairlead.actions.entries import add_server, remove_server
from fairlead.config.edit_scope import EditTarget
from fairlead.errors import ConfigError, ConfigInvalid, Remedy, UnknownServer
from tests.conftest import Machine, Outcome
from tests.web.support import dashboard, dashboard_of

Fairlead = Callable[..., Outcome]

_COMMAND = re.compile(r"fairlead [^`]*")
_OPTION = re.compile(r"(?<!\S)`?--[a-z]")


def context_of(machine: Machine, surface: Surface = "dashboard") -> ActionContext:
    return ActionContext(surface=surface, env=machine.env, reload=machine.load)


def user_target(machine: Machine) -> EditTarget:
    return EditTarget(scope="user", path=machine.user_file)


def sentences(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are longer than a word; docstrings and regular expressions are none."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in bare:
            continue
        if " " in node.value.strip():
            yield node.value


def test_no_action_names_an_option_outside_of_a_whole_command() -> None:
    folder = Path(actions.__file__).parent
    found = {
        (path.name, text)
        for path in folder.glob("*.py")
        for text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        if _OPTION.search(_COMMAND.sub("", text)) or "command line>" in text
    }
    assert found == set()


def test_an_id_that_is_taken_is_a_fault_of_the_id_settled_by_replacing(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"command": "true"}}}))
    with pytest.raises(ConfigError) as raised:
        add_server(context_of(machine), user_target(machine), "x", {"command": "false"}, replace=False)
    assert (raised.value.field, raised.value.remedy) == ("id", Remedy(input="replace"))
    assert "--" not in str(raised.value.hint)


def test_a_server_of_another_file_is_named_with_its_scope(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"command": "true"}}}))
    machine.write_project(json.dumps({"servers": {}}))
    target = EditTarget(scope="project", path=machine.project_file)
    with pytest.raises(UnknownServer) as raised:
        remove_server(context_of(machine), "x", target)
    assert (raised.value.field, raised.value.remedy) == ("id", Remedy(input="scope", value="user"))


@pytest.mark.parametrize("surface", ["command line", "dashboard"])
def test_a_problem_is_placed_where_the_user_wrote_it(machine: Machine, surface: Surface) -> None:
    machine.write_user(json.dumps({"servers": {}}))
    context = context_of(machine, surface)
    with pytest.raises(ConfigInvalid) as raised:
        add_server(context, user_target(machine), "x", {"url": "ftp://x"}, replace=False)
    assert {problem.file for problem in raised.value.problems} == {f"<{surface}>"}


def test_the_command_line_names_its_options(machine: Machine, fairlead: Fairlead) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"command": "true"}}}))
    machine.write_project(json.dumps({"servers": {}}))
    taken = fairlead("add", "x", "--scope", "user", "--", "false")
    assert "hint: use another id, or overwrite it: add `--replace`" in taken.err
    elsewhere = fairlead("remove", "x", "--scope", "project")
    assert "hint: it is in the user file: add `--scope user`" in elsewhere.err
    shown = json.loads(fairlead("--json", "remove", "x", "--scope", "project").out)
    assert shown["error"]["hint"] == "it is in the user file: add `--scope user`"


async def test_the_dashboard_marks_the_field_and_names_no_option(machine: Machine) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = await client.send("/add", "/add", kind="stdio", scope="user", id="x", command="false")
        assert page.status == 422
        assert re.search(r'<input[^>]*name="id"[^>]*aria-invalid="true"', page.text)
        assert "use another id, or overwrite it" in html.unescape(page.text)
        assert "--replace" not in page.text


async def test_the_dashboards_list_of_imports_names_no_option(machine: Machine) -> None:
    folder = machine.home / ".cursor"
    folder.mkdir()
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "true"}}}))
    machine.write_user(json.dumps({"servers": {"x": {"command": "false"}}}))
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await client.get("/import")
        assert "left out: there already<" in page.text


def test_the_import_names_the_option_that_takes_a_server_over(machine: Machine, fairlead: Fairlead) -> None:
    folder = machine.home / ".cursor"
    folder.mkdir()
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "true"}}}))
    machine.write_user(json.dumps({"servers": {"x": {"command": "false"}}}))
    outcome = fairlead("import", "--dry-run")
    assert "there already; `--replace` takes it over" in outcome.out
