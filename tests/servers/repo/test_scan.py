"""The search in Python, in this process where that is enough."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from fairlead.servers.repo import scan
from fairlead.servers.repo.folders import Confinement, OpenFolder
from fairlead.servers.repo.ignores import glob_filter
from fairlead.servers.repo.patterns import PatternInvalid
from fairlead.servers.repo.scan import ScanQuery, command, find_lines
from fairlead.testing import Link, write_tree

SECONDS = 30
ALL = ScanQuery(
    query="needle", is_fixed=False, is_sensitive=True, context=0, limit=1_000, narrowing=(), with_hidden=False
)


def asked(**changes: Any) -> ScanQuery:
    return ScanQuery(**{name: getattr(ALL, name) for name in ALL.__slots__} | changes)


@pytest.fixture(params=[True, False], ids=["strict", "checked"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[OpenFolder]:
    with Confinement([tmp_path], is_strict=request.param) as confinement, confinement.folder(".") as folder:
        yield folder


@pytest.fixture
def found(folder: OpenFolder) -> Callable[..., list[str]]:
    """What is printed, with `:` for the zero byte."""

    def find(**changes: Any) -> list[str]:
        lines = find_lines(folder, asked(**changes))
        return [line.decode("utf-8", "replace").rstrip("\n").replace("\0", ":") for line in lines]

    return find


Found = Callable[..., list[str]]


def test_files_come_in_the_order_of_the_bytes_of_their_names(tmp_path: Path, found: Found) -> None:
    names = ["b", "a.txt", "B", "a", "é", "a-b", "~"]
    write_tree(tmp_path, dict.fromkeys(names, "needle") | {"a+": {"z": "needle"}})
    assert found() == [f"{path}:1:needle" for path in ["B", "a", "a+/z", "a-b", "a.txt", "b", "~", "é"]]


def test_what_is_no_text_of_the_project_is_passed_over(tmp_path: Path, found: Found) -> None:
    write_tree(
        tmp_path,
        {
            "text": "needle",
            "binary": b"needle\n\0",
            "link": Link("text"),
            "outside": Link("/"),
            ".hidden": "needle",
            ".git": {"config": "needle"},
            "large": b"needle" + b" " * scan.MAX_FILE_BYTES,
            "empty": "",
        },
    )
    os.mkfifo(tmp_path / "pipe")
    assert found() == ["text:1:needle"]
    assert found(with_hidden=True) == [".hidden:1:needle", "text:1:needle"]


def test_a_file_that_turns_binary_is_searched_up_to_about_there(tmp_path: Path, found: Found) -> None:
    filler = b"filler\n" * 20_000
    write_tree(tmp_path, {"log": b"needle 1\n" + filler + b"needle 2\n\0\nneedle 3\n"})
    assert found() == ["log:1:needle 1"]


def test_other_encodings_are_read_where_they_say_so(tmp_path: Path, found: Found) -> None:
    text = "x\nneedle é\n"
    write_tree(
        tmp_path,
        {
            "a-utf16": text.encode("utf-16"),
            "b-utf16-be": b"\xfe\xff" + text.encode("utf-16-be"),
            "c-utf8-bom": b"\xef\xbb\xbfneedle",
            "d-utf32": text.encode("utf-32"),
            "e-latin": b"needle \xe9",
        },
    )
    assert found() == [
        "a-utf16:2:needle é",
        "b-utf16-be:2:needle é",
        "c-utf8-bom:1:needle",
        "e-latin:1:needle \ufffd",
    ]
    assert found(query="^needle$") == ["c-utf8-bom:1:needle"]


def test_a_folder_ignores_what_its_files_and_those_above_say(tmp_path: Path, found: Found) -> None:
    write_tree(
        tmp_path,
        {
            ".gitignore": "*.log\n/build\n!.shown\n",
            ".ignore": "secret\n",
            "a.log": "needle",
            "build": {"x": "needle"},
            "src": {
                ".gitignore": "!b.log\n",
                "a.log": "needle",
                "b.log": "needle",
                "build": {"x": "needle"},
                "secret": "needle",
            },
            ".shown": "needle",
        },
    )
    assert found() == [".shown:1:needle", "src/b.log:1:needle", "src/build/x:1:needle"]


def test_what_globs_leave_out_no_file_brings_back(tmp_path: Path, found: Found) -> None:
    write_tree(
        tmp_path, {".gitignore": "!a.log\n*.py", "a.log": "needle", "b.py": "needle", "c.txt": "needle"}
    )
    assert found(narrowing=glob_filter(["*.py", "*.txt"]).lines) == ["c.txt:1:needle"]


def test_folders_are_followed_down_to_a_depth(tmp_path: Path, found: Found) -> None:
    deep = tmp_path
    for _ in range(scan.MAX_DEPTH + 2):
        deep = deep / "d"
        deep.mkdir()
        (deep / "file").write_text("needle")
    # A file in n folders is n + 1 deep.
    assert len(found()) == scan.MAX_DEPTH - 1


def test_lines_are_numbered_and_shown_with_those_around_them(tmp_path: Path, found: Found) -> None:
    lines = ["needle", "b", "c", "needle", "needle", "f", "g", "h", "needle", "j", "k"]
    write_tree(tmp_path, {"a": "\n".join(lines)})
    assert found() == ["a:1:needle", "a:4:needle", "a:5:needle", "a:9:needle"]
    assert [line[2:] for line in found(context=1)] == [
        "1:needle", "2-b", "3-c", "4:needle", "5:needle", "6-f", "8-h", "9:needle", "10-j",
    ]  # fmt: skip
    assert len(found(context=10)) == len(lines)


def test_no_more_lines_match_than_asked_for(tmp_path: Path, found: Found) -> None:
    write_tree(tmp_path, {"a": "needle\nx\nneedle\ny\nneedle\n"})
    assert found(limit=2) == ["a:1:needle", "a:3:needle"]
    assert [line[2:] for line in found(limit=2, context=1)] == ["1:needle", "2-x", "3:needle", "4-y"]


def test_an_empty_match_is_in_every_line_and_in_no_other(tmp_path: Path, found: Found) -> None:
    write_tree(tmp_path, {"a": "x\n\ny\n", "b": "x"})
    assert found(query="q*") == ["a:1:x", "a:2:", "a:3:y", "b:1:x"]
    assert found(query="^$") == ["a:2:"]


def test_case_is_folded_as_unicode_has_it(tmp_path: Path, found: Found) -> None:
    write_tree(tmp_path, {"a": "ÉCOLE\nma\u017fk\n\u212aelvin\nMASK\nother\n", "b": "İ\nNeedle"})
    assert found(query="école", is_sensitive=False) == ["a:1:ÉCOLE"]
    assert found(query="mask", is_sensitive=False) == ["a:2:ma\u017fk", "a:4:MASK"]
    assert found(query="kelvin", is_sensitive=False) == ["a:3:\u212aelvin"]
    assert found(is_sensitive=False) == ["b:2:Needle"]


def test_several_texts_are_looked_for_at_once(tmp_path: Path, found: Found) -> None:
    write_tree(tmp_path, {"a": "one\ntwo\nthree two one\nfour\n"})
    assert found(query="one|two") == ["a:1:one", "a:2:two", "a:3:three two one"]
    assert found(query="^(one|two)$") == ["a:1:one", "a:2:two"]
    assert found(query="^ONE|FOUR", is_sensitive=False) == ["a:1:one", "a:4:four"]


def test_long_lines_are_cut(tmp_path: Path, found: Found) -> None:
    write_tree(tmp_path, {"a": "needle" + "x" * 10_000})
    assert len(found()[0]) == len("a:1:") + scan.MAX_COLUMNS


def test_what_vanishes_meanwhile_is_passed_over(tmp_path: Path, folder: OpenFolder) -> None:
    write_tree(tmp_path, {"a": "needle", "b": "needle", "c": {"d": "needle"}, "e": "needle"})
    lines = find_lines(folder, ALL)
    assert next(lines) == b"a\x001:needle\n"
    (tmp_path / "b").unlink()
    shutil.rmtree(tmp_path / "c")
    assert list(lines) == [b"e\x001:needle\n"]
    shutil.rmtree(tmp_path)
    assert list(find_lines(folder, ALL)) == []


def test_an_invalid_expression_is_refused(found: Found) -> None:
    with pytest.raises(PatternInvalid):
        found(query="(")


def run(folder: OpenFolder, search: ScanQuery, *, lifetime: int = 60) -> "subprocess.CompletedProcess[bytes]":
    argv = command(folder, search, lifetime=lifetime)
    passed_on = [] if folder.fd is None else [folder.fd]
    return subprocess.run(argv, capture_output=True, check=False, env={}, pass_fds=passed_on, timeout=SECONDS)


def test_as_a_process_it_prints_the_same(tmp_path: Path, folder: OpenFolder) -> None:
    write_tree(tmp_path, {"a": "needle", "b": {b"bad\xff".decode("utf-8", "surrogateescape"): "needle\xff"}})
    done = run(folder, ALL)
    assert done.stdout == b"a\x001:needle\nb/bad\xff\x001:needle\xc3\xbf\n"
    assert (done.returncode, done.stderr) == (0, b"")


def test_as_a_process_it_says_what_is_wrong_with_a_query(folder: OpenFolder) -> None:
    done = run(folder, asked(query="("))
    assert (done.returncode, done.stderr) == (scan.FAILED, b"error: unclosed group\n")


def test_as_a_process_it_loads_no_heavy_packages(folder: OpenFolder) -> None:
    code = "import sys; sys.path.append(sys.argv[1]); import fairlead.servers.repo.scan; print(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", code, str(Path(scan.__file__).parents[3])]
    loaded = subprocess.run(argv, capture_output=True, check=True, timeout=SECONDS).stdout.decode().split()
    assert not {"pydantic", "mcp", "mcp_types", "anyio", "asyncio", "logging"} & set(loaded)


@pytest.mark.requirement("HARD-57")
def test_a_process_that_nobody_ends_ends_itself(tmp_path: Path, folder: OpenFolder) -> None:
    write_tree(tmp_path, {"a": "a" * 50 + "!"})
    done = run(folder, asked(query="^(a+)+$"), lifetime=1)
    assert done.returncode == -signal.SIGALRM
