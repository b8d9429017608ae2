"""Where layers come from, and what happens to files nobody can use."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import discover_config_path
from fairlead.config.document import jsonc
from fairlead.config.load import load_config
from fairlead.config.sources import find_project_file, place_of
from fairlead.errors import ConfigError, ConfigInvalid, ConfigUnreadable, FairleadError
from tests.conftest import Machine, write

ONE = json.dumps({"servers": {"a": {"command": "x"}}})
TOOLLOOP = json.dumps(
    {"servers": {"t": {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}}}}
)
CODELIA = json.dumps(
    {"version": 1, "mcp": {"servers": {"c": {"transport": "stdio", "command": "echo ${HOME}"}}}}
)


def test_the_nearest_project_file_wins(machine: Machine) -> None:
    deep = machine.project / "a" / "b"
    deep.mkdir(parents=True)
    machine.write_project(ONE)
    assert discover_config_path(deep, machine.env) == machine.project_file
    nearer = write(machine.project / "a" / ".fairlead" / "fairlead.json", ONE)
    assert discover_config_path(deep, machine.env) == nearer
    nearest = write(deep / "fairlead.json", ONE)
    assert discover_config_path(deep, machine.env) == nearest


def test_a_folder_of_that_name_is_no_project_file(machine: Machine) -> None:
    machine.project_file.mkdir()
    assert find_project_file(place_of(machine.env, machine.project)) is None


def test_nothing_to_find_is_fine(machine: Machine) -> None:
    assert discover_config_path(machine.project, machine.env) is None
    assert machine.load().servers == {}


def test_the_documents_own_names_are_read_where_no_fairlead_file_is(machine: Machine) -> None:
    write(machine.project / ".codex-toolloop" / "mcp.json", TOOLLOOP)
    assert set(machine.load().servers) == {"t"}
    write(machine.project / "codex-toolloop.mcp.json", TOOLLOOP.replace('"t"', '"u"'))
    assert set(machine.load().servers) == {"u"}
    machine.write_project(ONE)
    assert set(machine.load().servers) == {"a"}


def test_a_toolloop_file_knows_the_line_of_its_fields(machine: Machine) -> None:
    path = write(
        machine.project / "codex-toolloop.mcp.json",
        '{"servers": {\n"t": {"trust": "trusted",\n"transport": {"type": "stdio",\n"command": "x"}}}}',
    )
    server = machine.load().servers["t"]
    assert str(server.definition.origin(("command",))) == f"{path}:4"
    assert str(server.definition.origin(("trust",))) == f"{path}:2"


def test_the_codelia_file_is_read_in_the_current_folder_only_and_its_text_stays_literal(
    machine: Machine,
) -> None:
    write(machine.project / ".codelia" / "config.json", CODELIA)
    server = machine.load().servers["c"]
    assert server.source == "project"
    assert getattr(server.resolve(machine.env), "command", None) == "echo ${HOME}"
    below = machine.project / "sub"
    below.mkdir()
    assert load_config(env=machine.env, cwd=below).servers == {}


def test_codelia_config_path_moves_the_user_layer_only(machine: Machine) -> None:
    machine.env["CODELIA_CONFIG_PATH"] = str(write(machine.home / "codelia.json", CODELIA))
    machine.write_project(ONE)
    loaded = machine.load()
    assert {server_id: server.source for server_id, server in loaded.servers.items()} == {
        "c": "user",
        "a": "project",
    }
    machine.write_user(json.dumps({"servers": {"mine": {"command": "x"}}}))
    assert set(machine.load().servers) == {"mine", "a"}  # a Fairlead file comes first


def test_toolloop_config_path_names_a_file(machine: Machine) -> None:
    machine.env["CODEX_TOOLLOOP_MCP_CONFIG_PATH"] = str(write(machine.home / "t.json", TOOLLOOP))
    machine.write_project(ONE)
    assert set(machine.load().servers) == {"t"}


@pytest.mark.requirement("HARD-1")
def test_a_dotenv_file_in_a_project_moves_nothing(machine: Machine) -> None:
    write(machine.project / ".env", "XDG_CONFIG_HOME=/evil\nFAIRLEAD_CONFIG_PATH=/evil.json\nHOME=/evil\n")
    machine.write_user(ONE)
    loaded = machine.load()
    assert [layer.label for layer in loaded.layers] == [str(machine.user_file)]


def test_a_relative_xdg_folder_is_ignored(machine: Machine) -> None:
    machine.write_user(ONE)
    machine.env["XDG_CONFIG_HOME"] = "relative"
    assert set(machine.load().servers) == {"a"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not json", "json"),
        (b"", "empty"),
        (b"[1]", "the top level must be an object"),
        (b'\xef\xbb\xbf{"servers": {}}', "byte order mark"),
        (b"\xff\xfe{\x00}\x00", "byte order mark"),
        (b"\x7fELF\x00\x01\x02", "not a text file"),
        (b'{"servers": {"a": "\xff"}}', "UTF-8"),
        (b'{"servers": {"a": NaN}}', "NaN"),
        (b'{"servers": {"a": 1' + b"0" * 400 + b"}}", "64 bits"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "nest"),
        (b'{"servers": {}, "servers": {}}', "this key is already in line 1"),
        (b'{"x": "' + b"a" * (5 * 1024 * 1024) + b'"}', "large"),
    ],
    ids=[
        "text",
        "empty",
        "list",
        "bom",
        "utf16",
        "binary",
        "latin1",
        "nan",
        "huge int",
        "deep",
        "twice",
        "5 MB",
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_do(
    machine: Machine, content: bytes, words: str
) -> None:
    machine.user_file.parent.mkdir(parents=True)
    machine.user_file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        machine.load()
    assert str(machine.user_file) in str(caught.value)
    assert words.lower() in str(caught.value).lower() + str(caught.value.hint).lower()
    assert machine.user_file.read_bytes() == content


def test_a_directory_in_place_of_the_file_is_named(machine: Machine) -> None:
    machine.user_file.mkdir(parents=True)
    with pytest.raises(ConfigUnreadable, match=r"folder|directory"):
        machine.load()


def test_a_symlink_loop_is_named(machine: Machine) -> None:
    machine.project_file.symlink_to(machine.project_file)
    with pytest.raises(ConfigUnreadable, match=r"fairlead\.json"):
        machine.load()


def test_a_dangling_symlink_is_named(machine: Machine) -> None:
    machine.project_file.symlink_to(machine.project / "gone.json")
    with pytest.raises(ConfigUnreadable, match=r"fairlead\.json"):
        machine.load()


def test_an_unreadable_home_is_named(machine: Machine) -> None:
    machine.write_user(ONE)
    with _locked_out(machine.user_file.parent), pytest.raises(ConfigUnreadable, match="permission") as caught:
        machine.load()
    assert str(machine.user_file.parent) in f"{caught.value} {caught.value.hint}"


def test_an_unreadable_file_is_named(machine: Machine) -> None:
    machine.write_user(ONE)
    with _locked_out(machine.user_file), pytest.raises(ConfigUnreadable, match="may not read it"):
        machine.load()


@contextmanager
def _locked_out(path: Path) -> Generator[None]:
    """Take away all rights to a path, root's too: root becomes nobody for a while."""
    for folder in path.parents:
        if folder.stat().st_uid == os.geteuid() and "pytest" in str(folder):
            folder.chmod(0o755)
    path.chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        path.chmod(0o755)


def test_bad_json_in_a_variable_names_the_variable(machine: Machine) -> None:
    machine.env["FAIRLEAD_CONFIG_JSON"] = "{nope"
    with pytest.raises(ConfigInvalid, match=r"\$FAIRLEAD_CONFIG_JSON"):
        machine.load()


VALID = (
    b'{"servers": {"a": {"command": "x", "args": ["1", "${A:-b}"], "env": {"K": "v"}}}, "bundles": {}} // end'
)


@given(st.data())
def test_no_mutation_of_bytes_raises_anything_but_our_errors(data: st.DataObject) -> None:
    content = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    text = bytes(content).decode(errors="replace")
    try:
        load_config(overrides={}, env={"FAIRLEAD_CONFIG_JSON": text, "HOME": "/nonexistent"}, cwd="/")
    except FairleadError as exc:
        assert str(exc)  # noqa: PT017 - any of our errors will do, as long as it says something


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["servers", "bundles", "policy", "defaults", "docs", "x"]), json_values)
)
def test_no_document_of_any_shape_raises_anything_but_our_errors(document: dict[str, object]) -> None:
    try:
        loaded = load_config(overrides=document, env={"HOME": "/nonexistent"}, cwd="/")
    except FairleadError as exc:
        assert str(exc)  # noqa: PT017
    else:
        for server in loaded.servers.values():
            assert isinstance(server.target, str)


def test_a_document_keeps_its_positions(machine: Machine) -> None:
    document = jsonc.parse('{\n  // why\n  "a": {"b": 1}\n}')
    assert document.position(("a", "b"), key=True) == (3, 9)
