"""Files as text: read, written, and changed with the rest kept."""

import tomllib

import pytest

from fairlead.config.dialects.dialect import Syntax
from fairlead.config.dialects.syntax import dump, load, merge_into
from fairlead.errors import ConfigInvalid, ConfigUnwritable

pytestmark = pytest.mark.requirement("NEED-25")


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("json", '{"a": {"b": [1, "x"]}}'),
        ("jsonc", '// yes\n{"a": {"b": [1, "x",]}}'),
        ("toml", '# yes\n[a]\nb = [1, "x"]\n'),
        ("yaml", "# yes\na:\n  b: [1, x]\n"),
        ("json", '\ufeff{"a": {"b": [1, "x"]}}'),
    ],
)
def test_every_syntax_is_read_into_plain_data(syntax: Syntax, text: str) -> None:
    assert load(text, syntax) == {"a": {"b": [1, "x"]}}


@pytest.mark.parametrize("syntax", ["json", "jsonc", "toml", "yaml"])
def test_a_blank_file_says_nothing(syntax: Syntax) -> None:
    assert load(" \n", syntax) == {}


def test_a_yaml_file_of_comments_says_nothing() -> None:
    assert load("# later\n", "yaml") == {}


@pytest.mark.parametrize(
    ("syntax", "text", "line"),
    [
        ("json", '{\n  "a": 1,\n  b\n}', 3),
        ("toml", "a = 1\nb = = 2\n", 2),
        ("toml", "a = 1\na = 2", 2),
        ("yaml", "a: 1\nb: [1\nc: 2\n", 3),
        ("yaml", "a: 1\na: 2\n", 2),
        ("yaml", "- a\n", 1),
        ("json", "[]", 1),
        ("yaml", "a: *unknown\n", 1),
    ],
)
def test_a_text_that_cannot_be_read_is_our_error_with_its_file_and_line(
    syntax: Syntax, text: str, line: int
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(text, syntax, "their.file")
    [problem] = caught.value.problems
    assert (problem.file, problem.line) == ("their.file", line)


@pytest.mark.parametrize(("syntax", "text"), [("toml", "a = " + "[" * 5000), ("yaml", "a: " + "[" * 1500)])
def test_endless_nesting_is_our_error_too(syntax: Syntax, text: str) -> None:
    with pytest.raises(ConfigInvalid):
        load(text, syntax)


def test_yaml_that_builds_objects_or_bombs_does_nothing() -> None:
    with pytest.raises(ConfigInvalid):
        load("a: !!python/object/apply:os.system [exit]\n", "yaml")
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert len(load(bomb, "yaml")) == 21


@pytest.mark.parametrize("syntax", ["json", "jsonc", "toml", "yaml"])
def test_a_new_file_reads_back_as_what_was_written(syntax: Syntax) -> None:
    document = {
        "servers": {"x": {"command": "ü", "args": ["a b", "#", "'\""], "env": {"A": "1"}, "on": True}}
    }
    assert load(dump(document, syntax), syntax) == document
    assert merge_into("", document, syntax) == dump(document, syntax)


def test_entries_go_into_a_file_with_comments() -> None:
    text = """// mine
{
  "theme": "dark", // keep
  "mcpServers": {
    // the old one
    "old": { "command": "old" },
    "same": { "command": "before", "env": { "A": "1" } }
  }
}
"""
    document = {"mcpServers": {"same": {"command": "after"}, "new": {"command": "new"}}}
    merged = merge_into(text, document, "jsonc")
    assert load(merged, "jsonc") == {
        "theme": "dark",
        "mcpServers": {"old": {"command": "old"}, "same": {"command": "after"}, "new": {"command": "new"}},
    }
    assert all(kept in merged for kept in ("// mine", "// keep", "// the old one"))


def test_lists_gain_what_they_lack() -> None:
    text = '{"inputs": [{"id": "a", "password": false}, {"id": "b"}], "mcp": {"excluded": ["x", "y"]}}'
    document = {"inputs": [{"id": "a", "password": True}], "mcp": {"excluded": ["y", "z"]}}
    assert load(merge_into(text, document, "json"), "json") == {
        "inputs": [{"id": "b"}, {"id": "a", "password": True}],
        "mcp": {"excluded": ["x", "y", "z"]},
    }


TOML = """# mine
model = "x" # keep

[mcp_servers.old] # the old one
command = "old"

[mcp_servers.same]
command = "before"
[mcp_servers.same.env]
A = "1"

[profiles.fast]
model = "y"
"""


def test_tables_go_into_a_toml_file_with_comments() -> None:
    document = {"mcp_servers": {"same": {"command": "after"}, "new": {"command": "n", "env": {"B": "2"}}}}
    merged = merge_into(TOML, document, "toml")
    assert tomllib.loads(merged) == {
        "model": "x",
        "mcp_servers": {
            "old": {"command": "old"},
            "same": {"command": "after"},
            "new": {"command": "n", "env": {"B": "2"}},
        },
        "profiles": {"fast": {"model": "y"}},
    }
    assert all(kept in merged for kept in ("# mine", "# keep", "# the old one"))


@pytest.mark.parametrize(
    "text",
    [
        'model = "x"\n',
        '[profiles.fast]\nmodel = "y"\n',
        'mcp_servers = { old = { command = "old" } }\n',
        '[mcp_servers]\nold = { command = "old" }\n',
        'mcp_servers.old.command = "old"\n',
        '[mcp_servers.old]\ncommand = "old"\n[other]\na = 1\n[mcp_servers.more]\ncommand = "more"\n',
        '[mcp_servers.old]\r\ncommand = "old"\r\n',
    ],
)
def test_a_table_goes_into_every_shape_of_toml_file(text: str) -> None:
    new = {"command": "n", "env": {"A": "1"}}
    before = tomllib.loads(text)
    after = tomllib.loads(merge_into(text, {"mcp_servers": {"new": new}}, "toml"))
    assert after.pop("mcp_servers") == before.pop("mcp_servers", {}) | {"new": new}
    assert after == before


def test_entries_go_into_a_yaml_file_with_comments() -> None:
    text = "# mine\nlevel: 1 # keep\nextensions:\n  old:\n    cmd: old\n"
    merged = merge_into(text, {"extensions": {"new": {"cmd": "new"}}}, "yaml")
    assert load(merged, "yaml") == {"level": 1, "extensions": {"old": {"cmd": "old"}, "new": {"cmd": "new"}}}
    assert "# mine" in merged
    assert "# keep" in merged


@pytest.mark.parametrize(("syntax", "text"), [("json", '{"mcpServers": []}'), ("toml", "mcpServers = 1\n")])
def test_a_file_with_something_else_in_the_place_of_entries_is_refused(syntax: Syntax, text: str) -> None:
    with pytest.raises(ConfigInvalid, match="mcpServers"):
        merge_into(text, {"mcpServers": {"x": {"command": "x"}}}, syntax)


def test_a_toml_file_that_cannot_be_edited_is_left_alone() -> None:
    text = (
        '[mcp_servers.same.env]\nX = "1"\n[mcp_servers.old]\ncommand = "old"\n[mcp_servers]\n[other]\nz = 1\n'
        '[mcp_servers.same]\ncommand = "same"\n[mcp_servers.old.env]\nX = "1"\n'
    )
    added = merge_into(text, {"mcp_servers": {"new": {"command": "new"}}}, "toml")
    assert tomllib.loads(added)["mcp_servers"]["new"] == {"command": "new"}
    with pytest.raises(ConfigUnwritable):
        merge_into(text, {"mcp_servers": {"same": {"command": "after"}}}, "toml")


def test_a_toml_file_our_editor_cannot_parse_still_gets_new_tables() -> None:
    text = '[mcp_servers]\n[mcp_servers.b.env]\nX = "1"\n[mcp_servers.b]\ncommand = "b"\n[other]\nz = 1\n'
    text += '[mcp_servers.b.tools.t]\nm = "1"\n'
    merged = merge_into(text, {"mcp_servers": {"new": {"command": "new"}}}, "toml")
    assert merged.startswith(text.rstrip())
    assert tomllib.loads(merged)["mcp_servers"]["new"] == {"command": "new"}


def test_a_control_character_in_yaml_is_our_error() -> None:
    with pytest.raises(ConfigInvalid):
        load("a: \x00\n", "yaml")
