"""Commands in a linked working tree reach its repository, and change nothing there that git executes."""

from pathlib import Path

import pytest

from tests.servers.shell.support import git, needs_bwrap, open_shell

pytestmark = [pytest.mark.anyio, needs_bwrap]

COMMIT = "git -c user.name=a -c user.email=a@localhost commit -qam changed"


@pytest.fixture
def main(tmp_path: Path) -> Path:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    (main / "a.txt").write_text("one\n")
    git(main, "add", ".")
    git(main, "commit", "-qm", "first")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "work")
    return main


async def test_git_works_in_a_linked_working_tree(main: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    before = {path.name for path in (main / ".git/worktrees/tree").iterdir()}
    with open_shell(tree, home=tmp_path / "home") as shell:
        ran = await shell(f"echo two > a.txt && git status --short && {COMMIT} && git log --oneline")
        assert ran.exit_code == 0, ran.output
        assert ran.output.startswith(" M a.txt")
        assert not ran.held
        ran = await shell("git checkout -q -b other && echo three > a.txt && git stash -q && git stash list")
        assert ran.exit_code == 0, ran.output
    assert git(tree, "status", "--short") == ""
    assert "changed" in git(main, "log", "--oneline", "work")
    after = {path.name for path in (main / ".git/worktrees/tree").iterdir()}
    assert after - before <= {"COMMIT_EDITMSG", "ORIG_HEAD"}
    assert "fsck" not in git(main, "fsck")


@pytest.mark.parametrize(
    "attack",
    [
        "git config core.fsmonitor 'touch {canary}'",
        "echo '[core]' > {main}/.git/config",
        "printf '#!/bin/sh\\ntouch {canary}\\n' > {main}/.git/hooks/post-checkout",
        "mv {main}/.git/hooks {main}/.git/old",
        "echo /tmp > {main}/.git/worktrees/tree/commondir",
        "rm {main}/.git/worktrees/tree/commondir",
        "echo x > {main}/.git/worktrees/tree/gitdir",
        "echo '[core]' > {main}/.git/worktrees/tree/config.worktree",
        "mkdir -p {main}/.git/worktrees/tree/modules/x",
        "mkdir {main}/.git/worktrees/tree/hooks/x",
        "mkdir {main}/.git/worktrees/new",
        "echo ref: refs/heads/work > {main}/.git/HEAD",
        "echo changed > {main}/a.txt",
        "echo 'gitdir: /tmp' > .git",
    ],
)
async def test_what_git_executes_cannot_be_changed_from_a_linked_tree(
    main: Path, tmp_path: Path, attack: str
) -> None:
    tree, canary = tmp_path / "tree", tmp_path / "canary"

    def guarded() -> dict[str, bytes]:
        files = [main / "a.txt", *(main / ".git").rglob("*"), tree / ".git"]
        data = {"objects", "logs", "refs", "index"}
        return {
            str(path): path.read_bytes() if path.is_file() else b""
            for path in files
            if data.isdisjoint(path.parts) and path != main / ".git/worktrees/tree/HEAD"
        }

    before = guarded()
    with open_shell(tree, home=tmp_path / "home") as shell:
        await shell(attack.format(main=main, canary=canary))
    assert guarded() == before
    git(tree, "status")
    git(tree, "checkout", "-q", "-b", "later")
    assert not canary.exists()


async def test_a_git_file_that_the_repository_does_not_answer_opens_no_folder(
    main: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    own = main / ".git/worktrees/tree"
    (foreign / ".git").write_text(f"gitdir: {own}\n")
    with open_shell(foreign, home=tmp_path / "home") as shell:
        ran = await shell(f"ls {main}; git log")
    assert ran.exit_code != 0
    assert "HEAD" not in ran.output
    # A made-up repository whose `commondir` leads elsewhere.
    made = tmp_path / "made" / "worktrees" / "foreign"
    made.mkdir(parents=True)
    (made / "HEAD").write_text("ref: refs/heads/main\n")
    (made / "gitdir").write_text(f"{foreign}/.git\n")
    (made / "commondir").write_text(f"{main}/.git\n")
    (foreign / ".git").write_text(f"gitdir: {made}\n")
    with open_shell(foreign, home=tmp_path / "home") as shell:
        ran = await shell(f"ls {main}/.git; git log")
    assert ran.exit_code != 0
    assert "objects" not in ran.output
