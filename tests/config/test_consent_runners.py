"""Consent is bound to what programs that run other code read by themselves: settings, packages, bytecode."""

import importlib.util
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing.fixtures import Link, write_tree
from tests.config.test_consent_binding import key_of, line, plant, project, relink, rewrite
from tests.conftest import Machine

__all__ = ["project"]

MORE: dict[str, Any] = {
    "a.txt": "1",
    "b.txt": "1",
    "app.py": "1",
    "sx.py": "1",
    ".python-version": "3.11\n",
    "process": Link("/proc/self/cwd"),
    "shebang": "#!/bin/sh tools/start\n",
}


def cache(path: str, *, flags: int) -> Callable[[Path], None]:
    """Bytecode that Python uses without a look at its source (flags 1), or only if it fits (0)."""

    def change(project: Path) -> None:
        file = project / path
        file.parent.mkdir(parents=True)
        file.write_bytes(importlib.util.MAGIC_NUMBER + struct.pack("<I", flags) + b"12345678code")

    return change


def make_environment(project: Path) -> None:
    write_tree(project, {".venv": {"bin": {"python": Link("/usr/bin/env")}}})


def with_env(entry: dict[str, Any], **env: str) -> dict[str, Any]:
    return {**entry, "env": env}


TRUE: dict[str, Any] = {"command": "true"}
X = "sub/x.py"


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    ("entry", "change"),
    [
        (line("run", "server.py", command="uv"), rewrite(".python-version")),
        (line("run", "server.py", command="uv"), plant("uv.lock")),
        (line("run", "server.py", command="uv"), plant(".venv/bin/python")),
        (line("build/index.js", command="node"), plant(".tool-versions")),
        (line("-y", "@scope/server", command="npx"), plant("node_modules/@scope/server/package.json")),
        (line("-y", "server@1", command="npx"), plant("node_modules/server/package.json")),
        (line("-y", "@other/named@1", command="npx"), rewrite("node_modules/@other/named/start.js")),
        (line("-y", "@other/named@1", command="npx"), plant("node_modules/.bin/other-name")),
        (line("thing", command="bunx"), plant("node_modules/thing/package.json")),
        (line("run", "tool", command="pipx"), plant("__pypackages__/3.11/lib/bin/tool")),
        (line("dlx", "thing", command="pnpm"), plant(".pnpmfile.cjs")),
        (line("dlx", "thing", command="pnpm"), plant("pnpm-workspace.yaml")),
        (line("dlx", "thing", command="yarn"), plant(".yarnrc")),
        (with_env(line("server.py", command="python3"), PYTHONPATH=":"), plant("sitecustomize.py")),
        (with_env(TRUE, LD_LIBRARY_PATH=":/usr/lib"), plant("libc.so.6")),
        (with_env(TRUE, PATH="/usr/bin:/bin:"), plant("helper")),
        (with_env(line("Main", command="java"), CLASSPATH=":"), plant("Main.class")),
        (
            with_env(line("-y", "thing", command="npx"), PLAYWRIGHT_BROWSERS_PATH="tools"),
            rewrite("tools/start"),
        ),
        (with_env(line("-c", "true", command="zsh"), FPATH="sub"), plant("sub/true")),
        (with_env(TRUE, RUBYGEMS_GEMDEPS="a.txt"), rewrite("a.txt")),
        (with_env(TRUE, GTK_MODULES="sub/module"), plant("sub/module.so")),
        (with_env(TRUE, PERLLIB="sub"), plant("sub/strict.pm")),
        (line("-m", "sx", command="python3"), cache("__pycache__/sx.cpython-311.pyc", flags=1)),
        (line("-m", "app", command="python3"), cache("app/__pycache__/__main__.cpython-312.pyc", flags=1)),
        (line("-c", "import sx", command="python3"), cache("__pycache__/sx.cpython-311.pyc", flags=1)),
        (line("/proc/self/cwd/server.py", command="python3"), rewrite("server.py")),
        (line("/proc/thread-self/cwd/server.py", command="python3"), rewrite("server.py")),
        (line("../../../../../../../../proc/self/cwd/server.py", command="python3"), rewrite("server.py")),
        (line("/dev/fd/../cwd/server.py", command="python3"), rewrite("server.py")),
        (line("process/server.py", command="python3"), rewrite("server.py")),
        ({"command": "/proc/self/cwd/run"}, rewrite("run")),
        (
            line("--with-requirements=a.txt", "--with-requirements", "b.txt", "x", command="uvx"),
            rewrite("b.txt"),
        ),
        (
            line("run", "--with-requirements", "a.txt", "--constraints", "b.txt", "server.py", command="uv"),
            rewrite("b.txt"),
        ),
        (line("@a.txt", "@b.txt", "Main", command="java"), rewrite("b.txt")),
        (line("-F", "a.txt", "host", command="ssh"), rewrite("a.txt")),
        (line("concurrently", "cd sub && ./x.py", command="npx"), rewrite(X)),
        (line("-y", "supergateway", "--stdio", "sh -c 'cd sub; ./x.py'", command="npx"), rewrite(X)),
        (line("mcp-proxy", "--", "sh", "-c", "cd sub && ./x.py", command="uvx"), rewrite(X)),
        (line("run", "-v", ".:/app", "-w", "/app", "node", "npm", "start", command="docker"), rewrite(X)),
        (
            line("run", "-v", ".:/app", "node", "sh", "-c", "cd /app/sub; ./x.py", command="docker"),
            rewrite(X),
        ),
        ({"command": "./shebang"}, rewrite("tools/start")),
        (line("server.py", command="Rscript"), plant(".Rprofile")),
        (line("--experimental-default-config-file", "app", command="node"), plant("node.config.json")),
        (line("-M:mcp", command="clojure"), rewrite(X)),
        (line("run", "mcp", command="pixi"), rewrite(X)),
        (line("run", command="flask"), rewrite("app.py")),
        (line("run", "-w", "packages/a", "x", command="npm"), plant("packages/a/node_modules/.bin/tool")),
        (line("-m", "flask", "run", command="python3"), plant(".flaskenv")),
        (line("-um", "pytest", command="python3"), plant("conftest.py")),
    ],
)
def test_what_runners_read_by_themselves_cannot_change_after_consent(
    machine: Machine,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: dict[str, Any],
    change: Callable[[Path], None],
) -> None:
    write_tree(project, MORE)
    manifest = '{"bin": {"other-name": "start.js"}}'
    write_tree(project / "node_modules", {"@other": {"named": {"package.json": manifest, "start.js": "1"}}})
    (project / "shebang").chmod(0o755)
    monkeypatch.chdir(tmp_path)  # a host that was started elsewhere
    before = key_of(machine, entry)
    assert key_of(machine, entry) == before, "nothing changed yet"
    change(project)
    assert key_of(machine, entry) != before


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    ("entry", "change"),
    [
        pytest.param(
            line("-m", "sx", command="python3"),
            cache("__pycache__/sx.cpython-311.pyc", flags=0),
            id="bytecode that Python compares with its source",
        ),
        pytest.param(
            line("-c", "import sx", command="python3"),
            cache("__pycache__/sx.cpython-311.pyc", flags=3),
            id="bytecode that Python compares by digest",
        ),
        pytest.param(
            line("run", "server.py", command="uv"),
            make_environment,
            id="an environment that uv made",
        ),
        pytest.param(
            line("-y", "server", "--log-file", "a.txt", "--file", "b.txt", command="npx"),
            rewrite("b.txt"),
            id="data of a server",
        ),
        pytest.param(line("--log", "/dev/stderr", command="some-server"), rewrite(X), id="standard error"),
    ],
)
def test_what_runs_of_a_server_leave_behind_does_not_ask_again(
    machine: Machine,
    project: Path,
    entry: dict[str, Any],
    change: Callable[[Path], None],
) -> None:
    write_tree(project, MORE)
    before = key_of(machine, entry)
    change(project)
    assert key_of(machine, entry) == before


@pytest.mark.requirement("HARD-72")
def test_a_file_of_the_repository_around_a_submodule_is_bound(machine: Machine, project: Path) -> None:
    (project / ".git").rmdir()
    write_tree(project, {".git": "gitdir: ../.git/modules/x"})
    write_tree(project.parent, {".git": {}, "outer.py": "1"})
    for entry in (line("../outer.py", command="python3"), line("-c", "cd .. && ./outer.py")):
        before = key_of(machine, entry)
        assert key_of(machine, entry) == before
        rewrite("outer.py", f"{before}")(project.parent)
        assert key_of(machine, entry) != before


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize("name", ["package.json", "node_modules/server/package.json", "__pycache__/sx.x.pyc"])
def test_no_pipe_in_the_place_of_a_manifest_holds_the_check(
    machine: Machine, project: Path, name: str
) -> None:
    write_tree(project, {"sx.py": "1"})
    (project / name).unlink(missing_ok=True)
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(project / name)
    for entry in (line("-y", "server", command="npx"), line("-m", "sx", command="python3")):
        assert key_of(machine, entry) == key_of(machine, entry)


def test_a_link_of_the_project_to_a_process_is_no_error_when_it_changes(
    machine: Machine,
    project: Path,
) -> None:
    write_tree(project, {**MORE, "a": Link("b"), "b": Link("a")})
    before = key_of(machine, line("process/server.py", command="python3"))
    relink("process", "a")(project)
    assert key_of(machine, line("process/server.py", command="python3")) != before
