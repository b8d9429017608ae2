"""Patches of the built-in `edit` server: hunks fit where their lines are, whatever their numbers say."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ToolFailed
from fairlead.servers.edit.patch import apply_hunks, parse_patch

NUMBERS = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"


@pytest.mark.parametrize(
    ("text", "hunk", "after"),
    [
        pytest.param(
            NUMBERS, "@@ -90,3 +90,3 @@\n five\n-six\n+6\n seven\n", "six\n:6\n", id="wrong line number"
        ),
        pytest.param(NUMBERS, "@@ -5,9 +5,1 @@\n five\n-six\n+6\n seven\n", "six\n:6\n", id="wrong counts"),
        pytest.param(NUMBERS, "@@\n five\n-six\n+6\n seven\n", "six\n:6\n", id="no numbers"),
        pytest.param(NUMBERS, "@@ -8,1 +8,2 @@\n eight\n+nine\n", "eight\n:eight\nnine\n", id="at the end"),
        pytest.param(NUMBERS, "@@ -0,0 +1 @@\n+zero\n", "one\n:zero\none\n", id="at the beginning"),
        pytest.param(
            "a\r\nb\r\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n", "a\r\n:a\r\nx\r\n", id="other line breaks"
        ),
        pytest.param(
            "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "b:c", id="no line break at the end, not mentioned"
        ),
        pytest.param(
            "a\nb",
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n",
            "b:c\n",
            id="a line break at the end is added",
        ),
        pytest.param(
            "a\nb\n",
            "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n",
            "b\n:c",
            id="a line break at the end is removed",
        ),
        pytest.param(
            "a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "b\n:c\n", id="an empty line without its space"
        ),
        pytest.param(
            "-- x\ny\n", "@@ -1,2 +1,1 @@\n--- x\n y\n", "-- x\n:", id="a removed line like a header"
        ),
    ],
)
def test_a_hunk_fits_where_its_lines_are(text: str, hunk: str, after: str) -> None:
    (patch,) = parse_patch(f"--- a/f\n+++ b/f\n{hunk}")
    old, new = after.split(":")
    assert apply_hunks(text, patch.hunks, "f") == text.replace(old, new)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "no file header"),
        ("just words", "no file header"),
        ("@@ -1 +1 @@\n-a\n+b\n", "before any file header"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n", "names no file"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n", "without lines"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 1\n", "binary"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "links"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "permissions"),
        ('--- /dev/null\n+++ "b/\\377"\n@@ -0,0 +1 @@\n+a\n', "is no text"),
    ],
)
def test_what_is_no_patch_is_said(patch: str, words: str) -> None:
    with pytest.raises(ToolFailed, match=words):
        parse_patch(patch)


LINES = st.lists(st.sampled_from(["a", "b", "c", "", " d", "-- e", "++ f"]), max_size=12)


@given(old=LINES, new=LINES, breaks=st.sampled_from(["\n", "\r\n"]))
def test_every_diff_of_difflib_applies(old: list[str], new: list[str], breaks: str) -> None:
    diff = "\n".join(difflib.unified_diff(old, new, "a/f", "b/f", lineterm=""))
    if not diff:
        return
    text, expected = ("".join(line + breaks for line in lines) for lines in (old, new))
    (patch,) = parse_patch(diff + "\n")
    result = apply_hunks(text, patch.hunks, "f")
    assert result.replace("\r\n", "\n") == expected.replace("\r\n", "\n")
