"""The built-in `edit` server (seed 002, first-party tools): changes are checked, atomic and can be undone.

Nothing outside of its folders is touched.
"""

import os
import stat
from pathlib import Path

import pytest

from fairlead.errors import ToolFailed
from fairlead.servers.edit import changes as changes_module
from fairlead.servers.edit.changes import Change, FileChanges
from fairlead.servers.edit.tools import edit_tools
from fairlead.servers.framework.tools import AnyTool, preview_tool
from fairlead.servers.repo.files import file_tools, version_of
from fairlead.servers.repo.folders import Confinement
from tests.servers.calling import call, texts
from tests.servers.edit.support import Edit, contents


def test_the_tools_say_that_they_change_files(confinement: Confinement) -> None:
    tools: tuple[AnyTool, ...] = edit_tools(confinement)
    names = ["writeFile", "replace", "applyPatch", "move", "delete", "undo"]
    assert [tool.name for tool in tools] == [f"edit.{name}" for name in names]
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is False
        assert tool.annotations.destructive_hint is True
        assert tool.annotations.open_world_hint is False


# ── what the user is shown before ──


async def test_a_preview_shows_the_change_and_makes_none(repo: Path, confinement: Confinement) -> None:
    (repo / "a.txt").write_text("one\ntwo\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    arguments = {"path": "a.txt", "oldText": "two", "newText": "2"}
    shown = await preview_tool(tools["edit.replace"], arguments)
    assert shown == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert (repo / "a.txt").read_text() == "one\ntwo\n"
    moved = await preview_tool(tools["edit.move"], {"source": "a.txt", "target": "b.txt"})
    assert moved == "move `a.txt` to `b.txt`"
    failing = await preview_tool(tools["edit.replace"], {**arguments, "oldText": "three"})
    assert failing == "as things are, it would fail: the old text is not in `a.txt`"
    assert await preview_tool(tools["edit.undo"], {}) is not None


async def test_what_is_made_is_what_was_shown(repo: Path, confinement: Confinement) -> None:
    (repo / "a.txt").write_text("one\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    await preview_tool(tools["edit.delete"], {"path": "a.txt"})
    (repo / "a.txt").write_text("something else\n")
    with pytest.raises(ToolFailed, match="since this change was shown"):
        await call(tools["edit.delete"], {"path": "a.txt"})
    await preview_tool(tools["edit.delete"], {"path": "a.txt"})
    await call(tools["edit.delete"], {"path": "a.txt"})
    assert not (repo / "a.txt").exists()
    undone = await preview_tool(tools["edit.undo"], {})
    assert undone is not None
    assert "+something else" in undone


async def test_what_would_have_failed_when_it_was_shown_is_not_made(
    repo: Path, confinement: Confinement
) -> None:
    (repo / "a.txt").write_text("one\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    arguments = {"path": "a.txt", "oldText": "two", "newText": "2"}
    assert "it would fail" in (await preview_tool(tools["edit.replace"], arguments) or "")
    (repo / "a.txt").write_text("two\n")
    with pytest.raises(ToolFailed, match="since this change was shown"):
        await call(tools["edit.replace"], arguments)
    assert (repo / "a.txt").read_text() == "two\n"


def patch_of(path: str, *hunks: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n" + "".join(hunks)


async def test_a_file_that_is_created_like_a_deleted_one_is_shown_as_moved(
    repo: Path, confinement: Confinement
) -> None:
    (repo / "off.yml").write_text("run\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    created = [f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+run\n" for name in ("on.yml", "too.yml")]
    patch = "".join(created) + "--- a/off.yml\n+++ /dev/null\n@@ -1 +0,0 @@\n-run\n"
    shown = await preview_tool(tools["edit.applyPatch"], {"patch": patch})
    assert shown == "move `off.yml` to `on.yml`\n--- /dev/null\n+++ b/too.yml\n@@ -0,0 +1 @@\n+run"


async def test_taking_back_a_move_is_shown_as_one(repo: Path, confinement: Confinement) -> None:
    (repo / "a.txt").write_text("one\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    await call(tools["edit.move"], {"source": "a.txt", "target": "b.txt"})
    assert await preview_tool(tools["edit.undo"], {}) == "move `b.txt` to `a.txt`"


@pytest.mark.parametrize(
    ("hunks", "shown"),
    [
        (["@@ -19999,2 +19999,3 @@\n 19998\n 19999\n+last\n"], ["@@ -19998,3 +19998,4 @@", "+last"]),
        (
            ["@@ -1,1 +1,1 @@\n-0\n+first\n", "@@ -9001,1 +9001,1 @@\n-9000\n+second\n"],
            ["@@ -1,4 +1,4 @@", "+first", "@@ -8998,7 +8998,7 @@", "+second"],
        ),
        (
            ["@@ -1,1 +1,1 @@\n-0\n+first\n", "@@ -15001,1 +15001,1 @@\n-15000\n+second\n"],
            ["@@ -1,4 +1,4 @@", "+first", "(the diff goes on: the arguments have all of it)"],
        ),
    ],
    ids=["at the end", "at two places", "far apart"],
)
async def test_every_change_of_a_large_file_is_shown_or_said_to_be_cut(
    repo: Path, confinement: Confinement, hunks: list[str], shown: list[str]
) -> None:
    (repo / "a.txt").write_text("".join(f"{number}\n" for number in range(20_000)))
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    preview = await preview_tool(tools["edit.applyPatch"], {"patch": patch_of("a.txt", *hunks)})
    lines = (preview or "").splitlines()
    assert [line for line in lines if line.startswith(("@@", "+", "(")) and line[:3] != "+++"] == shown


@pytest.mark.parametrize(
    ("before", "old", "new", "shown"),
    [
        (b"a\nb\n", "a\n", "a\r\n", ["-a", "+a\r"]),
        (b"a\r\nb\r\n", "a\r\nb", "a\nb", ["-a\r", "+a"]),
        (b"a", "a", "a\n", ["-a", "\\ No newline at end of file", "+a"]),
        (b"a\n", "a\n", "a", ["-a", "+a", "\\ No newline at end of file"]),
        (b"a\x0bb\n", "\x0b", "\x0c", ["-a\x0bb", "+a\x0cb"]),
        (b"\xe9\n", "\xe9", "\xe8", ["-\xe9", "+\xe8"]),
        ("\ufeffa\n".encode("utf-16-le"), "a", "b", ["-\ufeffa", "+\ufeffb"]),
        (b"a\r\n", "a", "b", ["-a", "+b"]),
    ],
)
async def test_a_change_of_line_ends_and_other_bytes_is_shown(
    repo: Path, confinement: Confinement, before: bytes, old: str, new: str, shown: list[str]
) -> None:
    (repo / "a.txt").write_bytes(before)
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    arguments = {"path": "a.txt", "oldText": old, "newText": new}
    preview = (await preview_tool(tools["edit.replace"], arguments) or "").split("\n")
    assert [line for line in preview[3:] if not line.startswith(" ")] == shown


async def test_an_empty_file_is_shown(confinement: Confinement) -> None:
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    shown = await preview_tool(tools["edit.writeFile"], {"path": "a.txt", "content": ""})
    assert shown == "--- /dev/null\n+++ b/a.txt"


async def test_of_two_calls_that_were_shown_the_same_change_only_one_makes_it(
    repo: Path, confinement: Confinement
) -> None:
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    for name in ("a.txt", "b.txt"):
        await call(tools["edit.writeFile"], {"path": name, "content": "one\n"})
    assert await preview_tool(tools["edit.undo"], {}) == await preview_tool(tools["edit.undo"], {})
    await call(tools["edit.undo"], {})
    with pytest.raises(ToolFailed, match="since this change was shown"):
        await call(tools["edit.undo"], {})
    assert (repo / "a.txt").exists()


async def test_what_was_shown_counts_however_many_others_were_shown_since(
    repo: Path, confinement: Confinement
) -> None:
    (repo / "a.txt").write_text("one\n")
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    await preview_tool(tools["edit.delete"], {"path": "a.txt"})
    for number in range(200):
        await preview_tool(tools["edit.writeFile"], {"path": f"{number}.txt", "content": "x"})
    (repo / "a.txt").write_text("another\n")
    with pytest.raises(ToolFailed, match="since this change was shown"):
        await call(tools["edit.delete"], {"path": "a.txt"})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("replace", {"path": "a.txt", "oldText": "one", "newText": "1"}),
        ("delete", {"path": "a.txt"}),
        ("move", {"source": "a.txt", "target": "b.txt"}),
    ],
)
async def test_a_file_that_changed_since_it_was_read_is_left_alone(
    repo: Path, edit: Edit, tool: str, arguments: dict[str, str]
) -> None:
    (repo / "a.txt").write_text("one\n")
    read = version_of(b"one\n")
    (repo / "a.txt").write_text("one\nmore\n")
    with pytest.raises(ToolFailed, match="was changed since version"):
        await edit(tool, **arguments, version=read)
    await edit(tool, **arguments, version=version_of(b"one\nmore\n"))


# ── writeFile ──


async def test_a_new_file_is_created_with_its_folders(repo: Path, edit: Edit) -> None:
    reply = await edit("writeFile", path="src/a/b.py", content="x = 1\n")
    assert (repo / "src/a/b.py").read_text() == "x = 1\n"
    assert [file.action for file in reply.output.files] == ["created"]
    assert "+x = 1" in reply.output.diff
    assert [entry.name for entry in (repo / "src/a").iterdir()] == ["b.py"], "a temporary file was left"


async def test_a_file_that_exists_is_replaced_only_with_its_version(
    repo: Path, edit: Edit, confinement: Confinement
) -> None:
    (repo / "a.txt").write_text("one\n")
    with pytest.raises(ToolFailed, match="exists already"):
        await edit("writeFile", path="a.txt", content="two\n")
    read = await call(file_tools(confinement)[0], {"path": "a.txt", "withVersion": True})
    version = read.output.version
    assert f"(version {version})" in texts(read)
    reply = await edit("writeFile", path="a.txt", content="two\n", version=version)
    assert (repo / "a.txt").read_text() == "two\n"
    assert reply.output.files[0].version == version_of(b"two\n")
    with pytest.raises(ToolFailed, match="was changed since version"):
        await edit("writeFile", path="a.txt", content="three\n", version=version)
    assert (repo / "a.txt").read_text() == "two\n"


async def test_a_partly_read_file_has_no_version(repo: Path, confinement: Confinement) -> None:
    (repo / "a.txt").write_text("one\ntwo\n")
    for rest in ({"lineRange": [1, 1]}, {"offset": 2}, {"maxBytes": 3}):
        read = await call(file_tools(confinement)[0], {"path": "a.txt", "withVersion": True, **rest})
        assert read.output.version is None


async def test_the_mode_of_a_file_stays(repo: Path, edit: Edit) -> None:
    script = repo / "run.sh"
    script.write_text("#!/bin/sh\necho one\n")
    script.chmod(0o750)
    await edit("replace", path="run.sh", oldText="one", newText="two")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    await edit("move", source="run.sh", target="bin/run.sh")
    assert stat.S_IMODE((repo / "bin/run.sh").stat().st_mode) == 0o750


# ── replace ──


async def test_text_is_replaced_once(repo: Path, edit: Edit) -> None:
    (repo / "a.py").write_text("a = 1\nb = 1\n")
    with pytest.raises(ToolFailed, match="2 times"):
        await edit("replace", path="a.py", oldText="= 1", newText="= 2")
    with pytest.raises(ToolFailed, match="not in"):
        await edit("replace", path="a.py", oldText="c = 1", newText="c = 2")
    await edit("replace", path="a.py", oldText="b = 1", newText="b = 2")
    assert (repo / "a.py").read_text() == "a = 1\nb = 2\n"
    await edit("replace", path="a.py", oldText=" = ", newText="=", replaceAll=True)
    assert (repo / "a.py").read_text() == "a=1\nb=2\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo", "1\n2", b"1\r\n2\r\n"),
        (b"\xef\xbb\xbfone\n", "one", "two", b"\xef\xbb\xbftwo\n"),
        ("one €\n".encode("utf-16"), "€", "$", "one $\n".encode("utf-16")),
        (b"\xfe\xff" + "one".encode("utf-16-be"), "one", "two", b"\xfe\xff" + "two".encode("utf-16-be")),
        (b"caf\xe9 one\n", "one", "two", b"caf\xe9 two\n"),
        (b"no end", "end", "END", b"no END"),
    ],
)
async def test_bytes_that_are_not_meant_stay(
    repo: Path, edit: Edit, before: bytes, old: str, new: str, after: bytes
) -> None:
    (repo / "a.txt").write_bytes(before)
    await edit("replace", path="a.txt", oldText=old, newText=new)
    assert (repo / "a.txt").read_bytes() == after


async def test_what_cannot_be_edited_is_said(repo: Path, edit: Edit) -> None:
    (repo / "image.bin").write_bytes(b"\x00\x01\x02")
    (repo / "latin.txt").write_bytes(b"caf\xe9\n")
    (repo / "folder").mkdir()
    (repo / "large.txt").write_bytes(b"x" * (changes_module.MAX_FILE_BYTES + 1))
    for arguments, words in (
        ({"path": "image.bin", "oldText": "a", "newText": "b"}, "binary"),
        ({"path": "latin.txt", "oldText": "caf", "newText": "€"}, "latin-1"),
        ({"path": "folder", "oldText": "a", "newText": "b"}, "folder"),
        ({"path": "large.txt", "oldText": "a", "newText": "b"}, "bytes"),
        ({"path": "none.txt", "oldText": "a", "newText": "b"}, "there is no"),
        ({"path": "latin.txt", "oldText": "caf", "newText": "caf"}, "nothing would change"),
    ):
        with pytest.raises(ToolFailed, match=words):
            await edit("replace", **arguments)
    assert (repo / "latin.txt").read_bytes() == b"caf\xe9\n"


# ── applyPatch ──

PATCH = """Here is the change.
diff --git a/a.py b/a.py
index 111..222 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
@@ -7,2 +7,3 @@ def f():
 seven
+seven and a half
 eight
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1,2 @@
+first
+second
diff --git a/old.py b/old.py
deleted file mode 100644
--- a/old.py
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/name.py b/named.py
similarity index 100%
rename from name.py
rename to named.py
"""
NUMBERS = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"


async def test_a_patch_of_several_files(repo: Path, edit: Edit) -> None:
    (repo / "a.py").write_text(NUMBERS)
    (repo / "old.py").write_text("gone\n")
    (repo / "name.py").write_text("named\n")
    reply = await edit("applyPatch", patch=PATCH)
    assert (repo / "a.py").read_text() == (
        "one\nTWO\nthree\nfour\nfive\nsix\nseven\nseven and a half\neight\n"
    )
    assert (repo / "new.py").read_text() == "first\nsecond\n"
    assert not (repo / "old.py").exists()
    assert not (repo / "name.py").exists()
    assert (repo / "named.py").read_text() == "named\n"
    actions = {file.path: file.action for file in reply.output.files}
    assert actions == {"a.py": "changed", "new.py": "created", "old.py": "deleted", "named.py": "moved"}
    await edit("undo")
    assert sorted(os.listdir(repo)) == ["a.py", "name.py", "old.py"]
    assert (repo / "a.py").read_text() == NUMBERS


GIT_PATCH = r"""diff --git "a/\303\251.txt" "b/\303\251.txt"
--- "a/\303\251.txt"
+++ "b/\303\251.txt"
@@ -1 +1,2 @@
 one
+two
diff --git "a/\303\251.txt" "b/a \"copy\".txt"
similarity index 60%
copy from "\303\251.txt"
copy to "a \"copy\".txt"
--- "a/\303\251.txt"
+++ "b/a \"copy\".txt"
@@ -1 +1 @@
-one
+copied
diff --git a/x b/y b/x b/y
new file mode 100644
index 0000000..e69de29
diff --git a/same b/same copy
similarity index 100%
copy from same
copy to same copy
diff --git a/run.sh b/run.sh
new file mode 100755
--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+exit
"""


async def test_a_patch_of_git_with_quoted_names_copies_and_a_program(repo: Path, edit: Edit) -> None:
    (repo / "é.txt").write_text("one\n")
    (repo / "same").write_text("same\n")
    await edit("applyPatch", patch=GIT_PATCH)
    assert contents(repo) == {
        "é.txt": "one\ntwo\n",
        'a "copy".txt': "copied\n",
        "x b/y": "",
        "same": "same\n",
        "same copy": "same\n",
        "run.sh": "exit\n",
    }
    assert (repo / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (repo / "é.txt").stat().st_mode & stat.S_IXUSR


async def test_a_patch_that_does_not_fit_changes_nothing(repo: Path, edit: Edit) -> None:
    (repo / "a.py").write_text("one\ntwo\n")
    (repo / "b.py").write_text("other\n")
    patch = (
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"
        "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-expected\n+new\n"
    )
    with pytest.raises(ToolFailed, match=r"hunk 1 of 1 does not fit `b.py`: there is no line `expected`"):
        await edit("applyPatch", patch=patch)
    assert (repo / "a.py").read_text() == "one\ntwo\n"


# ── move, delete, undo ──


async def test_move_does_not_replace(repo: Path, edit: Edit) -> None:
    (repo / "a.txt").write_text("a")
    (repo / "b.txt").write_text("b")
    with pytest.raises(ToolFailed, match="exists already"):
        await edit("move", source="a.txt", target="b.txt")
    reply = await edit("move", source="a.txt", target="sub/c.txt")
    assert (repo / "sub/c.txt").read_text() == "a"
    assert not (repo / "a.txt").exists()
    assert reply.output.files[0].moved_from == "a.txt"
    assert reply.output.diff == ""


async def test_undo_goes_back_step_by_step(repo: Path, edit: Edit) -> None:
    with pytest.raises(ToolFailed, match="no change to undo"):
        await edit("undo")
    await edit("writeFile", path="a.txt", content="one\n")
    await edit("replace", path="a.txt", oldText="one", newText="two")
    await edit("delete", path="a.txt")
    assert not (repo / "a.txt").exists()
    await edit("undo")
    assert (repo / "a.txt").read_text() == "two\n"
    await edit("undo")
    assert (repo / "a.txt").read_text() == "one\n"
    await edit("undo")
    assert not (repo / "a.txt").exists()
    with pytest.raises(ToolFailed, match="no change to undo"):
        await edit("undo")


async def test_undo_loses_no_other_change(repo: Path, edit: Edit) -> None:
    await edit("writeFile", path="a.txt", content="one\n")
    (repo / "a.txt").write_text("mine\n")
    with pytest.raises(ToolFailed, match="was changed since"):
        await edit("undo")
    assert (repo / "a.txt").read_text() == "mine\n"


async def test_a_file_that_the_user_changed_is_named_and_left_and_earlier_edits_are_undone(
    repo: Path, confinement: Confinement
) -> None:
    tools = {tool.name: tool for tool in edit_tools(confinement)}
    for name in ("a", "b", "c"):
        await call(tools["edit.writeFile"], {"path": name, "content": f"{name} of the model\n"})
    (repo / "b").write_text("b of the user\n")
    (repo / "c").unlink()
    shown = await preview_tool(tools["edit.undo"], {})
    assert shown is not None
    assert "`c`, `b` were changed since by others, and left as they are" in shown
    assert "-a of the model" in shown
    assert "b of the model" not in shown
    undone = await call(tools["edit.undo"], {})
    assert undone.output.changed_since == ["c", "b"]
    assert [file.path for file in undone.output.files] == ["a"]
    assert contents(repo) == {"b": "b of the user\n"}
    with pytest.raises(ToolFailed, match="`c`, `b` were changed since"):
        await call(tools["edit.undo"], {})
    # Once the file holds again what was written, its edit can be undone.
    (repo / "b").write_text("b of the model\n")
    undone = await call(tools["edit.undo"], {})
    assert undone.output.changed_since == ["c"]
    assert contents(repo) == {}


async def test_a_step_of_several_files_is_undone_whole_or_not(repo: Path, edit: Edit) -> None:
    await edit("writeFile", path="first", content="1\n")
    new = "--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{0}\n"
    await edit("applyPatch", patch=new.format("x") + new.format("y"))
    (repo / "y").write_text("the user's\n")
    undone = await edit("undo")
    assert [file.path for file in undone.output.files] == ["first"]
    assert contents(repo) == {"x": "x\n", "y": "the user's\n"}


def test_a_file_that_changed_meanwhile_is_not_overwritten(repo: Path, confinement: Confinement) -> None:
    files = FileChanges(confinement)
    (repo / "a.txt").write_text("one")
    (repo / "b.txt").write_text("one")
    found = [files.read(name) for name in ("a.txt", "b.txt")]
    (repo / "b.txt").write_text("mine")
    changes = [Change(names=f.names, shown=f.shown, before=f.data, after=b"two", mode=f.mode) for f in found]
    with pytest.raises(ToolFailed, match=r"`b\.txt` was changed since it was read"):
        files.apply(changes)
    assert (repo / "a.txt").read_text() == "one"
    assert (repo / "b.txt").read_text() == "mine"


def test_a_failure_half_way_takes_the_first_half_back(repo: Path, confinement: Confinement) -> None:
    files = FileChanges(confinement)
    first = Change(names=("a.txt",), shown="a.txt", before=None, after=b"one")
    long_name = "x" * 300
    second = Change(names=(long_name,), shown="x", before=None, after=b"two")
    with pytest.raises(ToolFailed):
        files.apply([first, second])
    assert list(repo.iterdir()) == []


def test_memory_of_undo_is_bounded(
    repo: Path, confinement: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "MAX_UNDO_BYTES", 25)
    files = FileChanges(confinement)
    for number in range(5):
        name = f"{number}.txt"
        files.apply([Change(names=(name,), shown=name, before=None, after=b"x" * 10)])
    files.undo()
    files.undo()
    with pytest.raises(ToolFailed, match="no change to undo"):
        files.undo()
    assert sorted(entry.name for entry in repo.iterdir()) == ["0.txt", "1.txt", "2.txt"]


async def test_several_roots(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Confinement([tmp_path / "one", tmp_path / "two"]) as confinement:
        tools = {tool.name: tool for tool in edit_tools(confinement)}
        await call(tools["edit.writeFile"], {"path": "two/deep/a.txt", "content": "a"})
        await call(tools["edit.move"], {"source": "two/deep/a.txt", "target": "one/b.txt"})
        for path in ("three/a.txt", "a.txt", "one"):
            with pytest.raises(ToolFailed):
                await call(tools["edit.writeFile"], {"path": path, "content": "a"})
    assert (tmp_path / "one/b.txt").read_text() == "a"
    assert not (tmp_path / "two/deep/a.txt").exists()
