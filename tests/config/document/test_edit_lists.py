import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairlead.config.document import jsonc
from fairlead.config.document.edit import append_name, names_at, remove_name

PATH = ("docs", "allow")
COMMENTED = """{
  // where to read
  "docs": {
    "allow": [
      "a.org", // the first
      /* the second */ "b.org",
      // about the third
      "c.org" // the third
    ] // that is all
  }
}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"docs": {"allow": []}}', '{"docs": {"allow": ["x"]}}'),
        ('{"docs": {"allow": ["a"]}}', '{"docs": {"allow": ["a", "x"]}}'),
        ('{"docs": {"allow": ["a",]}}', '{"docs": {"allow": ["a", "x",]}}'),
        ('{"docs": {"allow": ["a" /* b */]}}', '{"docs": {"allow": ["a", "x" /* b */]}}'),
        ('{"docs": {"allow": [\n\t"a", // b\n]}}', '{"docs": {"allow": [\n\t"a", // b\n\t"x",\n]}}'),
        ('{"docs": {"allow": [\r\n "a" // b\r\n]}}', '{"docs": {"allow": [\r\n "a", // b\r\n "x"\r\n]}}'),
    ],
)
def test_a_name_is_added_in_the_style_of_the_others(before: str, after: str) -> None:
    assert append_name(before, PATH, "x") == after


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a", '{"docs": {"allow": ["a"]}}', '{"docs": {"allow": []}}'),
        ("a", '{"docs": {"allow": ["a", "b"]}}', '{"docs": {"allow": ["b"]}}'),
        ("b", '{"docs": {"allow": ["a", "b"]}}', '{"docs": {"allow": ["a"]}}'),
        ("b", '{"docs": {"allow": ["a", "b",]}}', '{"docs": {"allow": ["a", ]}}'),
        ("b", '{"docs": {"allow": [\n "a", // A\n "b" // B\n]}}', '{"docs": {"allow": [\n "a" // A\n]}}'),
        ("a", '{"docs": {"allow": [\n "a", // A\n "b" // B\n]}}', '{"docs": {"allow": [\n "b" // B\n]}}'),
        ("x", '{"docs": {"allow": ["a"]}}', '{"docs": {"allow": ["a"]}}'),
        ("x", "{}", "{}"),
    ],
)
def test_a_name_is_removed_with_its_line_and_comma(name: str, before: str, after: str) -> None:
    assert remove_name(before, PATH, name) == after


def test_comments_in_the_list_stay_where_they_are() -> None:
    added = append_name(COMMENTED, PATH, "d.org")
    assert added == COMMENTED.replace('"c.org" // the third', '"c.org", // the third\n      "d.org"')
    assert remove_name(added, PATH, "d.org") == COMMENTED
    removed = remove_name(COMMENTED, PATH, "b.org")
    assert names_at(removed, PATH) == ["a.org", "c.org"]
    assert "// the first" in removed
    assert "// about the third" in removed
    assert "// that is all" in removed


def test_what_is_no_list_of_names_has_none() -> None:
    assert names_at('{"docs": {"allow": "a"}}', PATH) == []
    assert names_at('{"docs": {"allow": ["a", 1]}}', PATH) == ["a"]


GAPS = some.sampled_from(["", " ", "\n", "\n  ", " // c\n", "/* c */", "\r\n\t", " // c\n // d\n  "])


@given(some.lists(some.sampled_from("abcd"), unique=True), some.data())
def test_any_layout_survives_any_change(names: list[str], data: some.DataObject) -> None:
    def gap() -> str:
        return data.draw(GAPS)

    items = ",".join(f'{gap()}"{name}"{gap()}' for name in names)
    trailing = "," if names and data.draw(some.booleans()) else ""
    text = f'{{"docs": {{"allow": [{items}{trailing}{gap()}]}}}}'
    name = data.draw(some.sampled_from("abcdx"))
    removed = [other for other in names if other != name]
    assert jsonc.loads(append_name(text, PATH, "new")) == {"docs": {"allow": [*names, "new"]}}
    assert jsonc.loads(remove_name(text, PATH, name)) == {"docs": {"allow": removed}}
    assert json.dumps(names_at(text, PATH)) == json.dumps(names)
