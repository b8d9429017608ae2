import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, remove_value, set_value
from fairlead.config.document.jsonc import Json, JsoncNode
from fairlead.errors import ConfigInvalid, ConfigUnreadable, ConfigUnwritable

SERVER: dict[str, Json] = {"command": "npx", "args": ["-y", "${PACKAGE}"], "env": {}}

MANY_EDITS = """
import sys
from pathlib import Path
from fairlead.config.document.edit import edit_file, set_value

path, worker = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
for number in range(20):
    server = ("servers", f"{worker}-{number}")
    edit_file(path, lambda text: set_value(text, server, {"command": "x"}), create="{}")
"""

# A busy machine makes hypothesis slow, not wrong.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text(max_size=4)
keys = st.text('ab"\\/*{,:', max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@dataclass
class Writer:
    """Writes JSON as people do: white space, numbered comments and trailing commas anywhere they may be."""

    random: Random
    newline: str
    comments: int = 0

    def write(self, value: Json) -> str:
        if isinstance(value, dict):
            members = [
                f"{self.trivia()}{json.dumps(name)}{self.trivia()}:{self.trivia()}{self.write(member)}{self.trivia()}"
                for name, member in value.items()
            ]
            return f"{{{','.join(members)}{self.end(members)}}}"
        if isinstance(value, list):
            items = [f"{self.trivia()}{self.write(item)}{self.trivia()}" for item in value]
            return f"[{','.join(items)}{self.end(items)}]"
        return json.dumps(value)

    def end(self, pieces: list[str]) -> str:
        return self.random.choice(["", "," if pieces else ""]) + self.trivia()

    def trivia(self) -> str:
        return "".join(self.piece() for _ in range(self.random.choice([0, 0, 1, 1, 2, 4])))

    def piece(self) -> str:
        kind = self.random.choice(
            ["space", "tab", "line", "line", "line comment", "block comment", "long comment"]
        )
        if "comment" in kind:
            self.comments += 1
        return {
            "space": " ",
            "tab": "\t",
            "line": f"{self.newline}  ",
            "line comment": f"//c{self.comments}{self.newline}",
            "block comment": f"/*c{self.comments}*/",
            "long comment": f"/*c{self.comments}{self.newline}*/",
        }[kind]


@st.composite
def documents(draw: st.DrawFn) -> str:
    value = draw(st.dictionaries(keys, values, max_size=4))
    writer = Writer(draw(st.randoms()), draw(st.sampled_from(["\n", "\r\n"])))
    return f"{writer.trivia()}{writer.write(value)}{writer.trivia()}"


def comments_in(text: str) -> list[str]:
    pieces = re.findall(r'"(?:\\.|[^"\\])*"|//[^\r\n]*|/\*.*?\*/', text, re.DOTALL)
    return [piece for piece in pieces if piece.startswith("/")]


def objects_in(node: JsoncNode, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], JsoncNode]]:
    """Every object that a path of names leads to."""
    if not isinstance(node.children, dict):
        return []
    below = [found for name, child in node.children.items() for found in objects_in(child, (*path, name))]
    return [(path, node), *below]


def members_of(node: JsoncNode) -> dict[str, JsoncNode]:
    assert isinstance(node.children, dict)
    return node.children


def exactly(data: object) -> str:
    return json.dumps(data)


def with_member(data: Json, path: tuple[str, ...], value: Json) -> Json:
    assert isinstance(data, dict)
    name, *rest = path
    return {**data, name: with_member(data[name], tuple(rest), value) if rest else value}


def without_member(data: Json, path: tuple[str, ...]) -> Json:
    assert isinstance(data, dict)
    name, *rest = path
    if rest:
        return {**data, name: without_member(data[name], tuple(rest))}
    return {key: value for key, value in data.items() if key != name}


@patient
@given(documents(), values, st.randoms())
def test_replacing_any_value_changes_that_value_and_not_a_byte_elsewhere(
    text: str, value: Json, random: Random
) -> None:
    document = jsonc.parse(text)
    holder_path, holder = random.choice(objects_in(document.root))
    for name, node in members_of(holder).items():
        path = (*holder_path, name)

        changed = set_value(text, path, value)

        assert exactly(jsonc.parse(changed).data) == exactly(with_member(document.data, path, value))
        assert changed.startswith(text[: node.start])
        assert changed.endswith(text[node.end :])


@patient
@given(documents(), values, st.lists(keys, max_size=2), st.randoms())
def test_adding_a_value_anywhere_adds_it_last_and_keeps_every_comment(
    text: str, value: Json, deeper: list[str], random: Random
) -> None:
    document = jsonc.parse(text)
    path, _ = random.choice(objects_in(document.root))
    nested: Json = value
    for name in reversed(deeper):
        nested = {name: nested}

    changed = set_value(text, (*path, "new", *deeper), value)

    assert exactly(jsonc.parse(changed).data) == exactly(with_member(document.data, (*path, "new"), nested))
    assert comments_in(changed) == comments_in(text)
    assert set_value(changed, (*path, "new", *deeper), value) == changed


@patient
@given(documents(), st.randoms())
def test_removing_any_value_keeps_every_comment_that_is_not_next_to_it(text: str, random: Random) -> None:
    document = jsonc.parse(text)
    holder_path, holder = random.choice(objects_in(document.root))
    members = members_of(holder)
    ends = [holder.start, *(node.end for node in members.values())]
    starts = [*(node.key for node in members.values()), holder.end]
    for index, name in enumerate(members):
        path = (*holder_path, name)

        changed = remove_value(text, path)

        assert exactly(jsonc.parse(changed).data) == exactly(without_member(document.data, path))
        before, after = comments_in(text[: ends[index]]), comments_in(text[starts[index + 1] :])
        kept = comments_in(changed)
        assert kept[: len(before)] == before
        assert kept[len(kept) - len(after) :] == after


@patient
@given(documents(), values, st.randoms())
def test_what_was_added_can_be_removed_and_nothing_is_lost(text: str, value: Json, random: Random) -> None:
    path, _ = random.choice(objects_in(jsonc.parse(text).root))

    restored = remove_value(set_value(text, (*path, "new"), value), (*path, "new"))

    assert "".join(restored.split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "path", "value", "changed"),
    [
        ("{}", ("a",), 1, '{\n  "a": 1\n}'),
        ("{ }\n", ("a", "b"), {}, '{\n  "a": {\n    "b": {}\n  }\n}\n'),
        ('{\n  "a": {}\n}', ("a", "b"), 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"a": {}}', ("a", "b"), {"c": [1]}, '{"a": {"b": {"c": [1]}}}'),
        ('{"a": { /* c */ }}', ("a", "b"), 1, '{"a": { /* c */ "b": 1}}'),
        ('{"a": 1}', ("b",), {"c": 2}, '{"a": 1, "b": {"c": 2}}'),
        ('{ "a": 1 }', ("b",), 2, '{ "a": 1, "b": 2 }'),
        ('{"a": 1,}', ("b",), 2, '{"a": 1, "b": 2,}'),
        ('{"a": 1 /* c */}', ("b",), 2, '{"a": 1 /* c */, "b": 2}'),
        ('{\n  "a": 1\n}', ("b",), 2, '{\n  "a": 1,\n  "b": 2\n}'),
        ('{\n  "a": 1,\n}', ("b",), 2, '{\n  "a": 1,\n  "b": 2,\n}'),
        ('{\n  "a": 1 // c\n}', ("b",), 2, '{\n  "a": 1, // c\n  "b": 2\n}'),
        ('{\n  "a": 1, // c\n}', ("b",), 2, '{\n  "a": 1, // c\n  "b": 2,\n}'),
        ('{\n  "a": 1\n  // end\n}', ("b",), 2, '{\n  "a": 1,\n  "b": 2\n  // end\n}'),
        ('{\n  "a": 1 }', ("b",), 2, '{\n  "a": 1,\n  "b": 2 }'),
        ("{\n  // top\n}", ("a",), 1, '{\n  // top\n\n  "a": 1\n}'),
        ("{ // top\n}", ("a",), 1, '{ // top\n  "a": 1\n}'),
        ('{\n\t"a": {\n\t}\n}', ("a", "b"), [[1]], '{\n\t"a": {\n\t\t"b": [\n\t\t\t[1]\n\t\t]\n\t}\n}'),
        (
            '{\r\n    "a": 1\r\n}\r\n',
            ("b",),
            {"c": 1},
            '{\r\n    "a": 1,\r\n    "b": {\r\n        "c": 1\r\n    }\r\n}\r\n',
        ),
        ('{\n  "a": /* c */ 1, // d\n}', ("a",), [2], '{\n  "a": /* c */ [2], // d\n}'),
        ('{"a": 1}', ("a",), {"b": "ü"}, '{"a": {"b": "ü"}}'),
        ('{\n    "a": 1\n}', ("a",), {"b": 2}, '{\n    "a": {\n        "b": 2\n    }\n}'),
        ("[1]", (), {"a": 1}, '{\n  "a": 1\n}'),
    ],
)
def test_a_value_is_set_in_the_style_of_the_file(
    text: str, path: tuple[str, ...], value: Json, changed: str
) -> None:
    assert set_value(text, path, value) == changed


def test_a_server_is_written_as_a_person_would() -> None:
    long = {"args": ["--flag-with-a-long-name"] * 5, "command": "x"}
    text = '{\n  "servers": {\n    // mine\n    "one": {"command": "x"}\n  }\n}\n'

    text = set_value(text, ("servers", "two"), SERVER)
    text = set_value(text, ("servers", "three"), long)

    assert text == (
        '{\n  "servers": {\n    // mine\n    "one": {"command": "x"},\n'
        '    "two": {\n      "command": "npx",\n      "args": ["-y", "${PACKAGE}"],\n'
        '      "env": {}\n    },\n'
        '    "three": {\n      "args": [\n'
        + ",\n".join(['        "--flag-with-a-long-name"'] * 5)
        + '\n      ],\n      "command": "x"\n    }\n  }\n}\n'
    )


def test_setting_what_is_there_already_changes_nothing() -> None:
    text = '{"a": {"b":1, "c": [true, /* yes */ 1.0]}}'

    assert set_value(text, ("a",), {"b": 1, "c": [True, 1.0]}) == text
    assert set_value(text, ("a", "b"), True) == '{"a": {"b":true, "c": [true, /* yes */ 1.0]}}'


LISTED = """{
  // all of it

  // about a
  "a": 1, // also a
  /* about
     b */
  "b": {"x": 1, /* y */ "y": 2}, "c": 3,
  // not about d

  "d": 4 // also d
  // the end
}
"""


@pytest.mark.parametrize(
    ("path", "gone", "instead"),
    [
        (("a",), '  // about a\n  "a": 1, // also a\n', ""),
        (("b",), '/* about\n     b */\n  "b": {"x": 1, /* y */ "y": 2}, ', ""),
        (("c",), ' "c": 3,', ""),
        (("d",), ',\n  // not about d\n\n  "d": 4 // also d\n', "\n  // not about d\n\n"),
        (("b", "x"), '"x": 1, ', ""),
        (("b", "y"), ', /* y */ "y": 2', ""),
    ],
)
def test_a_member_goes_with_its_comma_line_and_comments_alone(
    path: tuple[str, ...], gone: str, instead: str
) -> None:
    assert LISTED.count(gone) == 1
    assert remove_value(LISTED, path) == LISTED.replace(gone, instead)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ('{"a": 1}', "{}"),
        ('{\n  "a": 1,\n}\n', "{}\n"),
        ('{\n  // c\n\n  "a": 1\n}', "{\n  // c\n\n}"),
        ('{ // c\n  "a": 1\n}', "{ // c\n}"),
        ('{"a": 1, "b": 2}', '{"b": 2}'),
        ('{"b": 2, "a": 1,}', '{"b": 2,}'),
        ('{ "b": 2, "a": 1 }', '{ "b": 2 }'),
        ('{\n  "b": 2, // b\n  "a": 1\n}', '{\n  "b": 2 // b\n}'),
        ('{\r\n  "b": 2,\r\n  "a": 1\r\n}', '{\r\n  "b": 2\r\n}'),
        ('{\n  "a": 1\n  , "b": 2\n}', '{\n   "b": 2\n}'),
        ('{ "a": 1, // a\n  "b": 2 }', '{\n  "b": 2 }'),
        ('{"b": 2}', '{"b": 2}'),
    ],
)
def test_a_member_is_removed_from_any_place(text: str, changed: str) -> None:
    assert remove_value(text, ("a",)) == changed


def test_removing_what_is_not_there_changes_nothing() -> None:
    for path in [(), ("b",), ("a", "b"), ("a", "0")]:
        assert remove_value('{"a": [1]}', path) == '{"a": [1]}'


def test_a_value_cannot_be_set_inside_something_that_is_no_object() -> None:
    with pytest.raises(
        ConfigUnwritable, match=r"cannot set `a\.b\.c`: in line 2 there is no object"
    ) as caught:
        set_value('{\n"a": [1]}', ("a", "b", "c"), 1)
    assert caught.value.hint
    with pytest.raises(ConfigUnwritable, match="in line 1 there is no object"):
        set_value("3", ("a",), 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "NaN"),
        ([float("inf")], "Infinity"),
        (2**64, "64 bits"),
        ("\ud800", "half of a character"),
        (json.loads("[" * 64 + "]" * 64), "64 levels"),
    ],
)
def test_a_value_that_could_not_be_read_again_is_not_written(value: object, reason: str) -> None:
    with pytest.raises(ConfigUnwritable, match=reason):
        set_value("{}", ("a",), value)


def test_a_text_that_cannot_be_read_is_not_edited() -> None:
    with pytest.raises(ConfigInvalid):
        set_value('{"a": 1, "a": 2}', ("a",), 3)
    with pytest.raises(ConfigInvalid):
        remove_value('{"a": 1', ("a",))


def test_a_file_is_edited_and_told_so(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_bytes(b'{\r\n  "a": 1 // c\r\n}')

    assert edit_file(path, lambda text: set_value(text, ("b",), 2))
    assert path.read_bytes() == b'{\r\n  "a": 1, // c\r\n  "b": 2\r\n}'


def test_a_file_that_does_not_change_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text('{"a": 1}')
    before = path.stat()

    assert not edit_file(path, lambda text: set_value(text, ("a",), 1), create="{}")
    assert not edit_file(path, lambda text: remove_value(text, ("b",)))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("blank", [None, "", "\n"])
def test_a_missing_or_blank_file_starts_from_the_given_text(tmp_path: Path, blank: str | None) -> None:
    path = tmp_path / "fairlead.json"
    if blank is not None:
        path.write_text(blank)

    assert edit_file(path, lambda text: text, create='{"new": true}\n')
    assert path.read_text() == '{"new": true}\n'


def test_a_missing_file_is_not_made_without_a_text_to_start_from(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"

    with pytest.raises(ConfigUnreadable, match="does not exist"):
        edit_file(path, lambda text: text)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_file_that_is_not_there_yet_is_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "fairlead.json", tmp_path / "dotfiles" / "fairlead.json"
    path.symlink_to(target)

    assert edit_file(path, lambda text: set_value(text, ("a",), 1), create="{}")
    assert path.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1}


def test_a_broken_file_stays_as_it_is_and_the_place_is_told(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text('{\n  "a": 1\n  "b": 2\n}')

    with pytest.raises(ConfigInvalid) as caught:
        edit_file(path, lambda _: "{}")
    assert caught.value.problems[0].where == f"{path}:2:9"
    assert path.read_text() == '{\n  "a": 1\n  "b": 2\n}'


def test_a_change_that_breaks_the_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text("{}")

    with pytest.raises(ConfigUnwritable, match=r"would break .* expected a value"):
        edit_file(path, lambda _: '{"a": }')
    with pytest.raises(ZeroDivisionError):
        edit_file(path, lambda text: text * (1 // 0))
    assert path.read_text() == "{}"
    assert [entry.name for entry in tmp_path.iterdir()] == ["fairlead.json"]


@pytest.mark.requirement("HARD-7")
def test_ten_processes_that_edit_one_file_twenty_times_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config" / "fairlead.json"
    editors = [
        subprocess.Popen([sys.executable, "-c", MANY_EDITS, path, f"worker-{number}"], stdin=subprocess.PIPE)
        for number in range(10)
    ]
    try:
        for editor in editors:
            assert editor.stdin
            editor.stdin.write(b"go\n")
            editor.stdin.close()
        assert [editor.wait(timeout=120) for editor in editors] == [0] * 10
    finally:
        for editor in editors:
            editor.kill()
            editor.wait()

    servers = json.loads(path.read_text())["servers"]
    assert set(servers) == {f"worker-{number}-{turn}" for number in range(10) for turn in range(20)}
    assert [entry.name for entry in path.parent.iterdir()] == ["fairlead.json"]
