"""What the built-in `edit` server leaves alone (seed 002): what others would run, all outside its folders."""

import os
from pathlib import Path

import pytest

from fairlead.errors import ToolFailed
from fairlead.servers.edit.tools import edit_tools
from fairlead.servers.protected import is_protected
from fairlead.servers.repo.files import version_of
from fairlead.servers.repo.folders import Confinement
from tests.servers.calling import call
from tests.servers.edit.support import Edit

PROTECTED = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".GIT/config",
    "sub/.git/hooks/post-checkout",
    ".envrc",
    "sub/.ENVRC",
    "fairlead.json",
    "fairlead.lock",
    ".fairlead/fairlead.json",
    ".vscode/tasks.json",
    ".idea/runConfigurations/x.xml",
    ".cursor/mcp.json",
    ".claude/settings.json",
    ".mcp.json",
    ".zed/tasks.json",
    ".vscode./tasks.json",
    ".husky/pre-commit",
    ".githooks/pre-commit",
    ".pre-commit-config.yaml",
    "my.code-workspace",
    "folder/HEAD",
]


@pytest.mark.parametrize("path", PROTECTED)
async def test_what_others_would_run_is_protected(repo: Path, edit: Edit, path: str) -> None:
    for name, arguments in (
        ("writeFile", {"path": path, "content": "x"}),
        ("applyPatch", {"patch": f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"}),
    ):
        with pytest.raises(ToolFailed, match="protected"):
            await edit(name, **arguments)
    (repo / "mine.txt").write_text("x")
    with pytest.raises(ToolFailed, match="protected"):
        await edit("move", source="mine.txt", target=path)
    assert not (repo / path).exists()


@pytest.mark.parametrize(
    "name",
    [
        "lefthook-local.yml",
        ".lefthook.toml",
        "simple-git-hooks.json",
        ".devcontainer.json",
        ".vimrc",
        "mise.toml",
        ".mise",
        ".helix",
        ".vim",
        ".qwen",
        ".kilocode",
        ".trae",
        ".factory",
        ".junie",
        ".crush.json",
        ".envrc.local",
        ".direnv/flake-profile-a5d5b61aa8a61b7d9d765e1daf971a9a578f1cfa.rc",
        ".rvmrc",
        "mise.production.local.toml",
        "my.sublime-project",
        ".externalToolBuilders",
        ".huskyrc.json",
        "husky.config.js",
        ".lintstagedrc",
        "lint-staged.config.mjs",
        ".pre-commit-config.yml",
        "prek.toml",
    ],
)
def test_other_names_of_files_that_name_commands_are_protected(name: str) -> None:
    assert is_protected(["below", *name.split("/")])


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("[core]\n\thooksPath = scripts/hooks\n", "scripts/hooks/pre-commit"),
        ("[core]\n\thooksPath = link\n", "scripts/hooks/pre-commit"),
        ("[include]\n\tpath = ../shared.gitconfig\n", "shared.gitconfig"),
        ('[filter "x"]\n\tclean = ./tools/clean.sh %f\n', "tools/clean.sh"),
    ],
)
async def test_what_the_configuration_of_a_repository_names_is_protected(
    repo: Path, setting: str, path: str
) -> None:
    below = repo / "below"
    below.mkdir()
    (repo / ".git").mkdir()
    (repo / ".git" / "config").write_text(setting + '[branch "x"]\n\tremote = .\n')
    (repo / "link").symlink_to("scripts/hooks")
    with Confinement([repo]) as confinement:
        write = edit_tools(confinement)[0]
        with pytest.raises(ToolFailed, match="git would run"):
            await call(write, {"path": path, "content": "touch canary"})
        await call(write, {"path": "tools/other.sh", "content": "exit"})
    (repo / ".git" / "config").write_text("[core]\n\thooksPath = below/hooks\n")
    with Confinement([below]) as part:
        write = edit_tools(part)[0]
        with pytest.raises(ToolFailed, match="git would run"):
            await call(write, {"path": "hooks/pre-commit", "content": "touch canary"})
        await call(write, {"path": "mine.txt", "content": "x"})


async def test_a_folder_with_the_shape_of_a_repository_is_protected(repo: Path, edit: Edit) -> None:
    (repo / "vendor" / "objects").mkdir(parents=True)
    await edit("writeFile", path="vendor/config", content="[core]\n")
    (repo / "vendor" / "HEAD").write_text("ref: refs/heads/main\n")
    for name, arguments in (
        ("replace", {"path": "vendor/config", "oldText": "core", "newText": "core] fsmonitor = x ["}),
        ("writeFile", {"path": "vendor/hooks/post-commit", "content": "x"}),
        ("delete", {"path": "vendor/config"}),
    ):
        with pytest.raises(ToolFailed, match="protected"):
            await edit(name, **arguments)


def test_ordinary_files_are_not_protected() -> None:
    mine = ("Makefile", "conftest.py", "package.json", ".npmrc", ".yarnrc.yml", ".cargo/config.toml", ".env")
    for path in ("src/main.py", ".gitignore", ".github/workflows/ci.yml", "git/config", "vscode/x", *mine):
        assert not is_protected(path.split("/"))


@pytest.mark.parametrize("path", ["../out.txt", "/etc/x", "a/../../out.txt", "link/out.txt", "file-link"])
async def test_nothing_outside_is_written(repo: Path, edit: Edit, path: str) -> None:
    outside = repo.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (repo / "link").symlink_to(outside)
    (repo / "file-link").symlink_to(outside / "secret.txt")
    for name, arguments in (
        ("writeFile", {"path": path, "content": "x"}),
        ("writeFile", {"path": path, "content": "x", "version": version_of(b"secret")}),
        ("replace", {"path": path, "oldText": "secret", "newText": "x"}),
        ("delete", {"path": path}),
        ("applyPatch", {"patch": f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n"}),
    ):
        with pytest.raises(ToolFailed):
            await edit(name, **arguments)
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"
    assert not (repo.parent / "out.txt").exists()


async def test_a_hard_link_elsewhere_keeps_its_content(repo: Path, edit: Edit) -> None:
    outside = repo.parent / "outside.txt"
    outside.write_text("one")
    os.link(outside, repo / "a.txt")
    await edit("replace", path="a.txt", oldText="one", newText="two")
    assert (repo / "a.txt").read_text() == "two"
    assert outside.read_text() == "one"
