"""Reading of extension folders (seed 004, tools from directories): what is read, left out, and bound."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.extension_files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    ExtensionFolder,
    extension_stamp,
    read_extension_folder,
)
from fairlead.config.validate import parse_config
from tests.conftest import Machine


def folder_with(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def names(folder: ExtensionFolder) -> list[str]:
    return [file.name for file in folder.files]


def test_only_python_files_directly_in_the_folder_are_read(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, b="2", a="1", _help="3")
    (folder / ".hidden.py").write_text("")
    (folder / "notes.txt").write_text("")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"\0")
    (folder / "a.pyc").write_bytes(b"\0")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    read = read_extension_folder(folder, follow_links=False)
    assert names(read) == ["_help.py", "a.py", "b.py"]
    assert read.unusable == ()
    assert read.failure is None


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
def test_what_is_no_plain_file_is_named_and_never_opened(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, good="1")
    os.mkfifo(folder / "pipe.py")
    (folder / "null.py").symlink_to("/dev/null")
    (folder / "secret.py").symlink_to("/etc/passwd")
    (folder / "dangling.py").symlink_to("nowhere")
    (folder / "folder.py").mkdir()
    (folder / "large.py").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (folder / "two\nlines.py").write_text("")
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.py")).write_text("")
    except OSError:  # some file systems have no such names
        odd: dict[str, str] = {}
    else:
        odd = {"\\xff\\xfe.py": "its name is not plain text"}
    project = dict(read_extension_folder(folder, follow_links=False).unusable)
    assert project == {
        "pipe.py": "it is not a regular file",
        "null.py": "it is a link, which a project's folder may not have",
        "secret.py": "it is a link, which a project's folder may not have",
        "dangling.py": "it is a link, which a project's folder may not have",
        "folder.py": "it is not a regular file",
        "large.py": "it is larger than 1 MiB",
        "two\nlines.py": "its name is not plain text",
        **odd,
    }
    own = read_extension_folder(folder, follow_links=True)
    assert names(own) == ["good.py", "secret.py"]
    assert dict(own.unusable)["null.py"] == "it is not a regular file"
    assert "No such file" in dict(own.unusable)["dangling.py"]


def test_ten_thousand_files_are_refused_without_being_read(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    for number in range(10_000):
        os.close(os.open(folder / f"x{number}.py", os.O_CREAT | os.O_WRONLY))
    read = read_extension_folder(folder, follow_links=True)
    assert read.files == ()
    assert read.failure is not None
    assert f"more than {MAX_FILES} Python files" in read.failure
    assert extension_stamp(folder) == ""


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    read = read_extension_folder(tmp_path / "none", follow_links=True)
    assert read.failure is not None
    assert "No such file" in read.failure


def test_the_archive_is_bound_to_names_and_bytes(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, a="1")
    first = read_extension_folder(folder, follow_links=True)
    assert read_extension_folder(folder, follow_links=True).archive_digest == first.archive_digest
    (folder / "a.py").write_text("2")
    assert read_extension_folder(folder, follow_links=True).archive_digest != first.archive_digest
    (folder / "a.py").rename(folder / "b.py")
    (folder / "b.py").write_text("1")
    assert read_extension_folder(folder, follow_links=True).digests != first.digests


# The configuration.


def test_each_folder_of_extensions_is_a_server_named_like_it(machine: Machine) -> None:
    document = {
        "extensions": ["./tools", "~/more tools/", "/nothing/here/x"],
        "servers": {"tools": {"approval": "allow"}},
    }
    machine.write_user(json.dumps(document))
    loaded = machine.load()
    absent = "is no folder that is there"
    renamed = "is the server `more-tools`: an id has only letters, digits, `_` and `-`"
    assert {(each.path, each.message, each.severity) for each in loaded.problems} == {
        (("extensions", 0), absent, "warning"),
        (("extensions", 1), absent, "warning"),
        (("extensions", 1), renamed, "warning"),
        (("extensions", 2), absent, "warning"),
    }
    folder_with(machine.user_file.parent, a="1")
    assert ("extensions", 0) not in {each.path for each in machine.load().problems}
    assert list(loaded.servers) == ["tools", "more-tools", "x"]
    server = loaded.servers["tools"]
    assert server.entry == {"extension": "./tools", "approval": "allow"}
    assert server.transport == "extension"
    assert server.extension_path == machine.user_file.parent / "tools"
    assert not server.needs_consent


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"extensions": "./tools"}, "must be a list of folders"),
    ({"extensions": [7]}, "must be the path of a folder, as a text that is not empty"),
    ({"extensions": [""]}, "must be the path of a folder, as a text that is not empty"),
    ({"extensions": ["a/tools", "b/tools"]}, "there is a server `tools` already"),
    ({"extensions": ["tools"], "servers": {"tools": {"command": "x"}}}, "there is a server `tools` already"),
]


@pytest.mark.parametrize(("document", "said"), WRONG)
def test_a_bad_folder_costs_only_itself_and_says_where_it_is(
    machine: Machine, document: dict[str, Any], said: str
) -> None:
    machine.write_user(json.dumps({**document, "bundles": {}}))
    machine.write_project('{"extensions": ["./own"]}')
    loaded = machine.load()
    (problem,) = [each for each in loaded.problems if each.severity == "error"]
    assert problem.message == said
    assert problem.line == 1
    assert problem.file == str(machine.user_file)
    assert loaded.servers["own"].usable


def test_the_strict_parser_takes_both_forms() -> None:
    config = parse_config({"extensions": ["./tools"], "servers": {"x": {"extension": "./x"}}})
    assert config.extensions == ("./tools",)


def consent(machine: Machine) -> str:
    key = machine.load().servers["tools"].consent
    assert key is not None
    return key.digest


def test_a_projects_folder_needs_consent_that_every_change_asks_for_again(machine: Machine) -> None:
    folder = folder_with(machine.project, a="1", _help="2")
    machine.write_project('{"extensions": ["./tools"]}')
    seen = {consent(machine)}

    def changed() -> bool:
        before = len(seen)
        seen.add(consent(machine))
        return len(seen) > before

    assert not changed()
    (folder / "notes.txt").write_text("data")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"evil")
    assert not changed(), "nothing else is run"
    (folder / "a.py").write_text("changed")
    assert changed()
    (folder / "b.py").write_text("new")
    assert changed()
    (folder / "_help.py").write_text("imported")
    assert changed()
    (folder / "b.py").unlink()
    (folder / "a.py").write_text("1")
    assert changed(), "what was approved with other files was another whole"


def test_a_library_of_the_project_that_a_variable_loads_is_bound_by_its_content(machine: Machine) -> None:
    folder_with(machine.project, a="1")
    library = machine.project / "lib" / "extra.so"
    library.parent.mkdir()
    library.write_bytes(b"approved")
    variables = {"LD_PRELOAD": str(library), "NAME": "value"}
    machine.write_project(json.dumps({"servers": {"tools": {"extension": "./tools", "env": variables}}}))
    approved = consent(machine)
    assert approved == consent(machine)
    library.write_bytes(b"changed")
    assert consent(machine) != approved


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_folder_that_is_a_link_is_bound_to_what_it_leads_to(machine: Machine, tmp_path: Path) -> None:
    one, two = folder_with(tmp_path / "home", a="1"), tmp_path / "two"
    two.mkdir()
    (two / "a.py").write_text("1")
    (machine.project / "tools").symlink_to(one)
    machine.write_project('{"extensions": ["./tools"]}')
    key = machine.load().servers["tools"].consent
    assert key is not None
    assert f"really {one}" in str(key.facts)
    (machine.project / "tools").unlink()
    (machine.project / "tools").symlink_to(two)
    assert consent(machine) != key.digest, "the same bytes at another place are asked about, too"


def test_a_project_cannot_name_a_folder_by_reference(machine: Machine) -> None:
    machine.write_project('{"servers": {"tools": {"extension": "${WHERE:-x}"}}}')
    assert "could name another folder later" in str(machine.load().servers["tools"].problems)


def test_a_missing_folder_of_a_project_fails_no_command(machine: Machine) -> None:
    machine.write_project('{"extensions": ["./tools"]}')
    key = machine.load().servers["tools"].consent
    assert key is not None
    assert "cannot start" in [fact.label for fact in key.facts]


def test_an_administrators_list_of_programs_and_sandboxes_counts_for_extensions(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.json"
    monkeypatch.setitem(machine.env, "FAIRLEAD_POLICY_PATH", str(policy))
    machine.write_user('{"servers": {"tools": {"extension": "./tools"}}}')
    for document, allowed in (
        ({"servers": {"allow": [{"command": "true"}]}}, False),
        ({"sandbox": "required"}, False),
        ({}, True),
    ):
        policy.write_text(json.dumps({"version": 1, **document}))
        assert machine.load().servers["tools"].usable is allowed, document
    policy.write_text(json.dumps({"sandbox": "required"}))
    machine.write_user('{"servers": {"tools": {"extension": "./tools", "sandbox": {}}}}')
    assert machine.load().servers["tools"].usable
