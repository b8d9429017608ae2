"""What a half-done rebase would run outside the sandbox is named in the result of its command."""

from pathlib import Path

import pytest

from tests.servers.calling import texts
from tests.servers.shell.support import git, needs_bwrap, open_shell

pytestmark = [pytest.mark.anyio, needs_bwrap]

NAMED = "git -c user.name=a -c user.email=a@localhost"


async def test_exec_lines_of_a_rebase_that_a_command_leaves_are_named_once(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for text in ("one", "two", "three"):
        (repo / "a.txt").write_text(text)
        git(repo, "add", ".")
        git(repo, "commit", "-qm", text)
    with open_shell(repo, home=tmp_path / "home") as shell:
        plain = await shell(f"{NAMED} rebase -q --exec true HEAD~2")
        assert (plain.exit_code, plain.pending_commands) == (0, [])
        left = await shell.reply(f"{NAMED} rebase -q --exec false --exec 'touch canary' HEAD~2")
        assert sorted(set(left.output.pending_commands)) == ["false", "touch canary"]
        assert "`git rebase --continue`, run by the user, would run outside the sandbox" in texts(left)[0]
        assert "`touch canary`" in texts(left)[0]
        again = await shell("git status")
        assert again.pending_commands == []
        # A link in place of the list has no other file quoted.
        (repo / "other").write_text("exec secret\n")
        linked = await shell("ln -sf ../../other .git/rebase-merge/git-rebase-todo")
        assert linked.pending_commands == []
