"""What a command of `shell` (seed 002) tries so that something of its own runs later, outside the sandbox."""

import os
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from fairlead.bubblewrap import SandboxView
from fairlead.errors import ToolFailed
from fairlead.servers.protected import is_protected_name
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.shell import survey
from fairlead.servers.shell.guard import FolderGuard
from fairlead.servers.shell.survey import find_protected
from tests.servers.shell.support import GIT, SECONDS, Shell, git, needs_bwrap, open_shell

pytestmark = needs_bwrap


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file outside that appears if anything of the command's runs there."""
    return tmp_path / "canary"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with all that programs act on: hooks, a link among them, nested repositories."""
    repo = tmp_path / "repo"
    (repo / "src").mkdir(parents=True)
    (repo / "src" / "main.py").write_text("print(1)\n")
    (repo / "tools").mkdir()
    (repo / "tools" / "pre-commit.sh").write_text("#!/bin/sh\nexit 0\n")
    (repo / "tools" / "pre-commit.sh").chmod(0o755)
    (repo / ".vscode").mkdir()
    (repo / ".vscode" / "settings.json").write_text("{}")
    (repo / ".envrc").write_text("# nothing\n")
    (repo / "shared.gitconfig").write_text("")
    git(repo, "init", "-q")
    git(repo, "config", "include.path", "../shared.gitconfig")
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "pre-commit").symlink_to("../../tools/pre-commit.sh")
    (repo / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\nexit 0\n")
    (repo / ".git" / "hooks" / "post-commit").chmod(0o755)
    vendored = repo / "vendor" / "library"
    vendored.mkdir(parents=True)
    git(vendored, "init", "-q")
    module = repo / "vendor" / "module"
    module.mkdir()
    git(repo, "init", "-q", "--separate-git-dir", "vendor/module.git", "vendor/module")
    (module / ".git").write_text("gitdir: ../module.git\n")
    (repo / "other-link").symlink_to("src")
    (repo / "tools" / "zed-settings").mkdir()
    (repo / "tools" / "zed-settings" / "settings.json").write_text("{}")
    (repo / ".zed").symlink_to("tools/zed-settings")
    git(repo, "add", "src", "tools")
    git(repo, "commit", "-qm", "first")
    return repo


@pytest.fixture
def shell(repo: Path, tmp_path: Path) -> Generator[Shell]:
    with open_shell(repo, home=tmp_path / "home") as shell:
        yield shell


def protected_content(repo: Path) -> dict[str, str]:
    """All that programs outside act on, as it is now."""
    content: dict[str, str] = {}
    with Confinement([repo]) as confinement:
        found = [
            "/".join(each.names)
            for each in find_protected(confinement.roots[0])
            if each.is_bare or is_protected_name(each.names[-1])
        ]
    parts = [".git/config", ".git/hooks", ".git/commondir", ".git/worktrees", ".git/modules"]
    for name in (*found, *parts, "tools/pre-commit.sh", "tools/zed-settings", "shared.gitconfig"):
        path = repo / name
        content[name] = "link" if path.is_symlink() else "folder" if path.is_dir() else ""
        files = [path] if path.is_file() else path.rglob("*") if not name.endswith(".git") else ()
        content |= {str(file.relative_to(repo)): file.read_text() for file in files if file.is_file()}
    return {name: text for name, text in content.items() if (repo / name).exists() or text}


_OF_GIT = {".git", "objects", "refs", "hooks", "info", "logs", "branches", "remotes", "worktrees", "modules"}


def run_outside(repo: Path, line: str) -> None:
    """Run a line of shell as the user would, to set a repository up."""
    subprocess.run(["sh", "-c", line], cwd=repo, env=GIT, timeout=SECONDS, check=True)


def provoke(repo: Path) -> None:
    """Do what users, their prompts and editors do in every folder: ask git, and commit."""
    for folder, inner, _ in os.walk(repo):
        inner[:] = [name for name in inner if name not in _OF_GIT]
        if not stat.S_IMODE(os.stat(folder).st_mode) & 0o100:
            continue
        git(Path(folder), "status")
    git(repo, "commit", "-qm", "later", "--allow-empty")
    git(repo, "checkout", "-q", "-b", "later")


EVIL = 'fsmonitor = "touch {canary}; false"'
EVIL_HOOK = "printf '#!/bin/sh\\ntouch {canary}\\n'"
MAKE_EVIL = (
    "mkdir -p evil && git init -q evil/x && printf '[core]\\nrepositoryformatversion = 0\\n"
    + EVIL.replace('"', '\\"')
    + "\\n' > evil/x/.git/config; "
)

ATTACKS = {
    "a new hook": EVIL_HOOK + " > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
    "an existing hook": "sed -i '2i touch {canary}' .git/hooks/post-commit; "
    "cp .git/hooks/post-commit h; sed -i '2i touch {canary}' h; cat h > .git/hooks/post-commit",
    "a hook moved away and another put there": "mv .git/hooks/post-commit x; "
    + EVIL_HOOK
    + " > .git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "the configuration": "git config core.fsmonitor 'touch {canary}'",
    "the configuration by rename": "cp .git/config c; echo '[core]' >> c; mv -f c .git/config",
    "the configuration by its lock": "cp .git/config .git/config.lock; mv -f .git/config.lock .git/config",
    "the configuration by a hard link": "ln .git/config c && printf '[core]\\n" + EVIL + "\\n' >> c",
    "the folder of hooks moved": "mv .git/hooks h; mkdir .git/hooks; "
    + EVIL_HOOK
    + " > .git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "the folder of hooks as a link": "rm -rf .git/hooks; ln -s ../src .git/hooks; "
    + EVIL_HOOK
    + " > src/post-commit; chmod +x src/post-commit",
    "`.git` renamed and copied": "cp -r .git g2; printf '[core]\\n" + EVIL + "\\n' >> g2/config; "
    "mv .git g1; mv g2 .git",
    "`.git` removed and made anew": "rm -rf .git; git init -q; git config core.fsmonitor 'touch {canary}'",
    "`.git` exchanged": "cp -r .git g2; printf '[core]\\n" + EVIL + "\\n' >> g2/config; "
    "mv --exchange .git g2 || python3 -c 'import ctypes; "
    'ctypes.CDLL(None).renameat2(-100, b".git", -100, b"g2", 2)\'',
    "another common folder": "mkdir c; cp .git/config c/; printf '[core]\\n"
    + EVIL
    + "\\n' >> c/config; cp -r .git/objects .git/refs c/; echo ../c > .git/commondir",
    "a configuration per worktree": "echo '[core]' > .git/config.worktree",
    "a worktree": "git worktree add -q wt; git -C wt config --worktree core.fsmonitor 'touch {canary}'",
    "a worktree by hand": "mkdir -p .git/worktrees/w wt; echo 'gitdir: ../.git/worktrees/w' > wt/.git; "
    "cp .git/HEAD .git/worktrees/w/; mkdir e; cp -r .git/config .git/objects .git/refs e/; printf '[core]\\n"
    + EVIL
    + "\\n' >> e/config; echo ../../../e > .git/worktrees/w/commondir",
    "a submodule": "git -c protocol.file.allow=always submodule add ./vendor/library sub",
    "the target of a hook": "sed '2i touch {canary}' tools/pre-commit.sh > h; cat h > tools/pre-commit.sh",
    "the folder of a hook's target moved": "mv tools t; mkdir tools; "
    + EVIL_HOOK
    + " > tools/pre-commit.sh; chmod +x tools/pre-commit.sh",
    "an included configuration": "printf '[core]\\n" + EVIL + "\\n' >> shared.gitconfig",
    "an included configuration replaced": "mv shared.gitconfig s; printf '[core]\\n"
    + EVIL
    + "\\n' > shared.gitconfig",
    "a repository in a sub-folder": "git init -q src && git -C src config core.fsmonitor 'touch {canary}'",
    "a repository in a new folder": "git init -q a/b && git -C a/b config core.fsmonitor 'touch {canary}'",
    "a repository elsewhere, by a file": "git init -q --separate-git-dir=real n && "
    "git -C n config core.fsmonitor 'touch {canary}'",
    "a repository behind a link": MAKE_EVIL + "mkdir l; ln -s ../evil/x/.git l/.git",
    "a bare repository": "git init -q --bare b; git -C b config core.bare false; "
    "git -C b config core.worktree ..; git -C b config core.fsmonitor 'touch {canary}'",
    "a bare repository in an existing folder": "git init -q --bare b; mv b/* src/; "
    "git -C src config core.bare false; git -C src config core.worktree /; "
    "git -C src config core.fsmonitor 'touch {canary}'",
    "a bare repository moved into place": "git init -q --bare b; git -C b config core.bare false; "
    "git -C b config core.worktree ..; git -C b config core.fsmonitor 'touch {canary}'; mv b src/b",
    "a repository in a folder that cannot be listed": "git init -q z/y && "
    "git -C z/y config core.fsmonitor 'touch {canary}' && chmod 0 z",
    "a repository in a folder that cannot be written": "git init -q z/y && "
    "git -C z/y config core.fsmonitor 'touch {canary}' && chmod 555 z z/y",
    "a nested repository's folder moved": "mv vendor v; cp -r v vendor; printf '[core]\\n"
    + EVIL
    + "\\n' >> vendor/library/.git/config",
    "a nested repository's configuration": "git -C vendor/library config core.fsmonitor 'touch {canary}'",
    "a relative pointer moved to lead elsewhere": "mkdir -p deep; cp -r vendor/module.git deep/module.git; "
    "printf '[core]\\n" + EVIL + "\\n' >> deep/module.git/config; mv vendor/module deep/module",
    "settings of an editor": "echo '{{}}' > .vscode/tasks.json; echo x >> .vscode/settings.json",
    "settings of an editor, the folder moved": "mv .vscode v; mkdir .vscode; echo x > .vscode/tasks.json",
    "settings of another editor": "mkdir .idea; echo x > .idea/workspace.xml",
    "settings of another editor, by link": "mkdir e; echo x > e/workspace.xml; ln -sfn e .idea; ln -s e .zed",
    "a protected link replaced": "rm .zed; mkdir .zed; echo x > .zed/tasks.json",
    "a protected link led elsewhere": "ln -sfn ../src .zed; echo x > src/tasks.json",
    "the target of a protected link": "echo x > tools/zed-settings/tasks.json; echo x > .zed/settings.json",
    "the target of a protected link replaced": "mv tools/zed-settings z; mkdir tools/zed-settings; "
    "echo x > tools/zed-settings/tasks.json",
    "a workspace file": "echo '{{}}' > x.code-workspace",
    "the variables of a folder": "echo 'touch {canary}' >> .envrc; rm -f .envrc; mv src/main.py .envrc",
    "the variables of another folder": "echo 'touch {canary}' > src/.envrc",
    "servers of agents": "echo '{{}}' > .mcp.json; mkdir -p .claude .cursor; echo '{{}}' > .cursor/mcp.json",
    "Fairlead's configuration": "echo '{{}}' > fairlead.json; mkdir .fairlead; "
    "echo '{{}}' > .fairlead/fairlead.json",
    "hooks by other programs": "echo x > .pre-commit-config.yaml; echo x > lefthook.yml; mkdir .husky",
    "a file without a name, linked into place": 'python3 -c \'import os; fd = os.open(".", os.O_TMPFILE | '
    'os.O_RDWR); os.write(fd, b"x"); os.link(f"/proc/self/fd/{{fd}}", "src/.envrc", '
    "follow_symlinks=True)'",
    "a pipe": "mkfifo src/.envrc; mkfifo .mcp.json; mkfifo src/.git",
    "through the links of /proc": "for r in /proc/self/root /proc/1/root /proc/self/cwd/..; do "
    "printf '#!/bin/sh\\ntouch {canary}\\n' > $r$PWD/.git/hooks/post-commit; done",
    "unmounting": "umount .git/config .git/hooks; umount -l .git; mount -o remount,rw,bind .git/hooks; "
    "git config core.fsmonitor 'touch {canary}'",
    "unmounting as root of a new namespace": "unshare -Urm sh -c 'umount .git/config; umount -l .git; "
    "mount -o remount,rw,bind .git/config; mkdir /tmp/m; mount --bind . /tmp/m; cd /tmp/m; "
    'git config core.fsmonitor "touch {canary}"\'',
    "moving the root": "cd ..; mv repo r2; cp -r r2 repo; cd repo; "
    "git config core.fsmonitor 'touch {canary}'",
    "a rewritten link": "ln -sfn evil other-link; rm .git/hooks/pre-commit; ln -s ../../src .git/hooks/x",
    "case": "mkdir .Git .VSCODE; echo x > .Git/config",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_nothing_that_runs_later_is_changed(
    repo: Path, shell: Shell, canary: Path, attack: str
) -> None:
    before = await to_thread.run_sync(protected_content, repo)
    await shell(attack.replace("{canary}", str(canary)).replace("{{", "{").replace("}}", "}"))
    after = await to_thread.run_sync(protected_content, repo)
    moved = {name for name in before if name not in after and not (repo / name).exists()}
    assert {name: text for name, text in after.items() if name not in before} == {} or moved
    assert {name: after[name] for name in before if name in after} == {
        name: text for name, text in before.items() if name in after
    }
    await to_thread.run_sync(provoke, repo)
    assert not await to_thread.run_sync(canary.exists)


# What git and editors reach over links and settings.

MAKE_HOOKS = (
    "mkdir -p scripts/hooks; printf '#!/bin/sh\\nexit 0\\n' > scripts/hooks/pre-commit; "
    "chmod +x scripts/hooks/pre-commit; "
)
HOOK_AT = EVIL_HOOK + " > {0}; chmod +x {0}"

REFERENCES = {
    "the folder of hooks is a link": (
        MAKE_HOOKS + "rm -rf .git/hooks; ln -s ../scripts/hooks .git/hooks",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "a new hook where the folder of hooks is a link": (
        MAKE_HOOKS + "rm -rf .git/hooks; ln -s ../scripts/hooks .git/hooks",
        HOOK_AT.replace("{0}", "scripts/hooks/post-commit"),
    ),
    "an included configuration names the hooks": (
        MAKE_HOOKS + "printf '[core]\\nhooksPath = scripts/hooks\\n' > shared.gitconfig",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "a setting with a comment": (
        MAKE_HOOKS + "printf '[core]\\nhooksPath = scripts/hooks # ours\\n' >> .git/config",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "a setting beside the name of its section": (
        MAKE_HOOKS + "printf '[core] hooksPath = scripts/hooks\\n' >> .git/config",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "a setting over two lines": (
        MAKE_HOOKS + "printf '[core]\\nhooksPath = \"scripts/\\\\\\nhooks\"\\n' >> .git/config",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "the configuration of the working tree": (
        MAKE_HOOKS + "git config extensions.worktreeConfig true; "
        "git config --worktree core.hooksPath scripts/hooks",
        HOOK_AT.replace("{0}", "scripts/hooks/pre-commit"),
    ),
    "hooks in the folder of git's": (
        "mkdir .git/ours; printf '#!/bin/sh\\n' > .git/ours/pre-commit; git config core.hooksPath .git/ours",
        HOOK_AT.replace("{0}", ".git/ours/pre-commit"),
    ),
    "a configuration in the folder of git's": (
        "touch .git/extra; git config --add include.path extra",
        "printf '[core]\\n" + EVIL + "\\n' >> .git/extra",
    ),
    "a hook that leads over another link": (
        "ln -s pre-commit.sh tools/hook; ln -sf ../../tools/hook .git/hooks/pre-commit",
        "rm tools/hook; " + HOOK_AT.replace("{0}", "tools/hook"),
    ),
    "a hook that leads through a folder that is a link": (
        "mv tools real; ln -s real tools",
        "rm tools; mkdir tools; " + HOOK_AT.replace("{0}", "tools/pre-commit.sh"),
    ),
    "a link in a configured folder of hooks": (
        (
            "mkdir -p scripts/hooks; ln -s ../../tools/pre-commit.sh scripts/hooks/pre-commit; "
            "git config core.hooksPath scripts/hooks"
        ),
        HOOK_AT.replace("{0}", "tools/pre-commit.sh"),
    ),
    "a link in a protected folder of hooks": (
        (
            "mkdir .githooks; ln -s ../src/check.sh .githooks/pre-commit; "
            "git config core.hooksPath .githooks; printf '#!/bin/sh\\n' > src/check.sh; chmod +x src/check.sh"
        ),
        HOOK_AT.replace("{0}", "src/check.sh"),
    ),
    "a filter in a line for a shell": (
        (
            "printf '#!/bin/sh\\ncat\\n' > tools/clean.sh; chmod +x tools/clean.sh; "
            "echo '*.txt filter=ours' > .gitattributes; echo x > a.txt; git add a.txt; "
            "git config filter.ours.clean 'sh -c \"tools/clean.sh %f\"'"
        ),
        "printf '#!/bin/sh\\ntouch {canary}\\ncat\\n' > tools/clean.sh; echo y > a.txt",
    ),
    "hooks of a nested repository": (
        (
            "mkdir -p vendor/hooks; printf '#!/bin/sh\\n' > vendor/hooks/post-checkout; "
            "chmod +x vendor/hooks/post-checkout; git -C vendor/library config core.hooksPath ../hooks; "
            "git -C vendor/library commit -q --allow-empty -m x"
        ),
        HOOK_AT.replace("{0}", "vendor/hooks/post-checkout"),
    ),
}


@pytest.mark.parametrize(("given", "attack"), REFERENCES.values(), ids=REFERENCES.keys())
async def test_what_git_reaches_over_links_and_settings_is_not_changed(
    repo: Path, shell: Shell, canary: Path, given: str, attack: str
) -> None:
    await to_thread.run_sync(run_outside, repo, given)
    await shell(attack.replace("{canary}", str(canary)))
    await to_thread.run_sync(provoke, repo)
    await to_thread.run_sync(git, repo, "add", "-A", "src", "a.txt")
    await to_thread.run_sync(git, repo / "vendor" / "library", "checkout", "-q", "-b", "later")
    assert not await to_thread.run_sync(canary.exists)


async def test_a_file_that_a_link_in_an_editors_folder_leads_to_is_read_only(
    repo: Path, shell: Shell
) -> None:
    (repo / "tasks.json").write_text("{}")
    (repo / ".vscode" / "tasks.json").symlink_to("../tasks.json")
    outcome = await shell("echo x > tasks.json; echo 2 > src/main.py")
    assert "Read-only" in outcome.output
    assert (repo / "tasks.json").read_text() == "{}"
    assert (repo / "src" / "main.py").read_text() == "2\n"


async def test_a_linked_working_tree_keeps_the_hooks_that_the_main_one_names(
    repo: Path, tmp_path: Path, canary: Path
) -> None:
    await to_thread.run_sync(run_outside, repo, MAKE_HOOKS + "git config core.hooksPath scripts/hooks")
    await to_thread.run_sync(git, repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    tree = tmp_path / "tree"
    await to_thread.run_sync(run_outside, tree, MAKE_HOOKS)
    with open_shell(tree, home=tmp_path / "home") as shell:
        await shell(HOOK_AT.replace("{0}", "scripts/hooks/pre-commit").replace("{canary}", str(canary)))
    await to_thread.run_sync(git, tree, "commit", "-qm", "later", "--allow-empty")
    assert not await to_thread.run_sync(canary.exists)


async def test_a_part_of_a_repository_keeps_the_hooks_that_its_configuration_names(
    repo: Path, tmp_path: Path, canary: Path
) -> None:
    await to_thread.run_sync(run_outside, repo, MAKE_HOOKS + "git config core.hooksPath scripts/hooks")
    with open_shell(repo / "scripts", home=tmp_path / "home") as shell:
        attack = HOOK_AT.replace("{0}", "hooks/pre-commit").replace("{canary}", str(canary))
        outcome = await shell(f"{attack}; echo ok > mine")
    assert "Read-only" in outcome.output
    assert (repo / "scripts" / "mine").read_text() == "ok\n"
    await to_thread.run_sync(git, repo, "commit", "-qm", "later", "--allow-empty")
    assert not await to_thread.run_sync(canary.exists)


async def test_what_shells_and_hooks_read_under_many_names_is_neither_made_nor_changed(
    repo: Path, shell: Shell
) -> None:
    names = [
        ".envrc.local",
        ".direnv/flake-profile-a5d5.rc",
        "mise.dev.toml",
        "x.sublime-project",
        ".huskyrc",
    ]
    for folder in (repo, repo / "src"):
        for name in names[:-1]:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("mine\n")
    outcome = await shell(
        "for f in " + " ".join(names) + "; do echo x > $f; echo x > src/$f; done; mkdir n;"
        " cp -r .direnv .envrc.local n; echo ok > src/lefthook.txt"
    )
    for folder in (repo, repo / "src"):
        assert [(folder / name).read_text() for name in names[:-1]] == ["mine\n"] * 4
        assert not (folder / names[-1]).exists()
    made = {held.path for held in outcome.held}
    assert made == {".huskyrc", "src/.huskyrc", "n/.envrc.local", "n/.direnv/flake-profile-a5d5.rc"}


async def test_hooks_that_the_users_own_configuration_names_are_not_changed(
    repo: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, included = tmp_path / "gitconfig", tmp_path / "work.gitconfig"
    own.write_text('[includeIf "gitdir:/"]\n\tpath = work.gitconfig\n[alias]\n\tcheck = !src/main.py\n')
    included.write_text("[core]\n\thooksPath = scripts/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    await to_thread.run_sync(run_outside, repo, MAKE_HOOKS)
    outcome = await shell(
        "echo x > scripts/hooks/pre-commit; echo x > scripts/hooks/new; echo 2 > src/main.py"
    )
    assert outcome.output.count("Read-only") == 2
    assert (repo / "src" / "main.py").read_text() == "2\n"


async def test_a_repository_that_was_held_is_none_any_more(repo: Path, shell: Shell) -> None:
    await shell("git init -q src/n; mkdir -p src/n/.git/HEAD.fairlead/x")
    (left,) = (repo / "src" / "n").iterdir()
    assert left.name.startswith(".git.fairlead-")
    assert not (left / "HEAD").exists()


async def test_what_fairlead_itself_runs_is_read_only_whatever_its_name(repo: Path, tmp_path: Path) -> None:
    (repo / "ext").mkdir()
    (repo / "ext" / "a.py").write_text("")
    (repo / "linked").symlink_to("ext")
    (repo / "agents.json").write_text("{}")
    protected = (repo / "linked", repo / "agents.json", repo / "later", tmp_path / "elsewhere")
    with open_shell(repo, home=tmp_path / "home", protected=protected) as shell:
        outcome = await shell(
            "echo x > ext/a.py; echo x > ext/b.py; mv ext e; echo x > agents.json; rm -f agents.json; "
            "rm linked; ln -s src linked; mkdir later; echo x > later/c.py; echo 2 > src/main.py"
        )
    assert outcome.output.count("Read-only") == 3
    assert [path.name for path in (repo / "ext").iterdir()] == ["a.py"]
    assert (repo / "ext" / "a.py").read_text() == ""
    assert (repo / "agents.json").read_text() == "{}"
    assert os.readlink(repo / "linked") == "ext"
    assert {held.path for held in outcome.held} == {"later", "linked"}
    assert (repo / "src" / "main.py").read_text() == "2\n"


async def test_no_command_runs_in_a_folder_that_fairlead_itself_runs(repo: Path, tmp_path: Path) -> None:
    words = "Fairlead itself runs what is in"
    with (
        open_shell(repo, home=tmp_path / "home", protected=[repo]) as shell,
        pytest.raises(ToolFailed, match=words),
    ):
        await shell("true")


async def test_however_much_a_command_makes_what_is_protected_is_found(
    repo: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MAX_ENTRIES", 200)
    outcome = await shell("echo x > src/.envrc; mkdir a z; touch a/$(seq -s ' a/' 300) z/$(seq -s ' z/' 300)")
    assert [held.path for held in outcome.held] == ["src/.envrc"]
    with pytest.raises(ToolFailed, match="too many to protect"):
        await shell("true")


# What a command closes, so that it cannot be listed, is still there for those who know its name. To root
# nothing is closed: here it becomes another user for a while.


@contextmanager
def ordinary_user(repo: Path) -> Generator[None]:
    """Run the block as a user whose rights count, who owns the repository."""
    if os.geteuid() != 0:
        yield
        return
    for folder in repo.parents:
        if folder.stat().st_uid == 0 and "pytest" in str(folder):
            folder.chmod(0o755)
    for path in (repo, *repo.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0, 0o111, 0o300, 0o311, 0o444, 0o644])
@pytest.mark.parametrize("closed", ["z", "z/y", "."])
def test_what_a_command_closes_is_looked_into(repo: Path, closed: str, mode: int) -> None:
    with ordinary_user(repo), Confinement([repo]) as confinement:
        guard = FolderGuard(confinement.roots[0])
        guard.prepare()
        (repo / "z" / "y" / ".git").mkdir(parents=True)
        (repo / closed).chmod(mode)
        guard.give_back()
        held = guard.settle()
        (repo / closed).chmod(0o755)
        assert [each.path for each in held] == ["z/y/.git"]
        assert not (repo / ".idea").exists()


@pytest.mark.parametrize("mode", [0, 0o311, 0o644])
def test_what_the_user_closed_is_read_only(repo: Path, mode: int) -> None:
    with ordinary_user(repo), Confinement([repo]) as confinement:
        (repo / "z" / ".git").mkdir(parents=True)
        (repo / "z").chmod(mode)
        guard = FolderGuard(confinement.roots[0])
        guard.prepare()
        seen = guard.add_to(SandboxView(home=repo, cwd=repo, network=False, shown={}))
        guard.give_back()
        held = guard.settle()
        assert (repo / "z").stat().st_mode & 0o777 == mode
        (repo / "z").chmod(0o755)
        assert seen.shown[repo / "z"] == "read"
        assert held == []
