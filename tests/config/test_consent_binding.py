"""Consent is bound to the file as found and to what would run: one changed byte of either asks again."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.consent import ConsentKey
from fairlead.config.file_digests import digest_folder
from fairlead.config.load import LoadedServer, load_config
from fairlead.testing.fixtures import Link, write_tree
from tests.conftest import Machine

TREE: dict[str, Any] = {
    ".git": {},
    "server.py": "print(1)\n",
    "run": "#!/bin/sh\nexec ./tools/start\n",
    "tools": {"start": "#!/bin/sh\n", "interpreter": "#!/bin/sh\n"},
    "odd": "#!tools/interpreter\n",
    "build": {"index.js": "1", "hook.js": "1"},
    "pkg": {"package.json": '{"bin": {"x": "cli.js"}}', "cli.js": "1"},
    "app": {"__main__.py": "1"},
    "package.json": '{"scripts": {"mcp": "node build/index.js"}}',
    ".npmrc": "registry=https://registry.example\n",
    "node_modules": {".bin": {"mcp-thing": Link("../mcp-thing/cli.js")}, "mcp-thing": {"cli.js": "1"}},
    "pyproject.toml": "[project]\n",
    "venv": {"bin": {"python": Link("/usr/bin/env")}, "pyvenv.cfg": "home = /usr/bin\n"},
    "Makefile": "mcp:\n\ttrue\n",
    "data.db": "rows",
    "lib.so": "elf",
    "link.py": Link("server.py"),
    "sub": {"x.py": "1"},
    "folder": Link("sub"),
}
EXECUTABLE = ("run", "odd", "tools/start", "tools/interpreter", "node_modules/mcp-thing/cli.js")


@pytest.fixture
def project(machine: Machine) -> Path:
    write_tree(machine.project, TREE)
    for name in EXECUTABLE:
        (machine.project / name).chmod(0o755)
    return machine.project


def server_of(machine: Machine, entry: dict[str, Any]) -> LoadedServer:
    machine.write_project(json.dumps({"servers": {"x": entry}}))
    return machine.load().servers["x"]


def key_of(machine: Machine, entry: dict[str, Any]) -> ConsentKey:
    key = server_of(machine, entry).consent
    assert key is not None
    return key


def rewrite(path: str, text: str = "evil\n") -> Callable[[Path], None]:
    def change(project: Path) -> None:
        (project / path).write_text(text)

    return change


def relink(path: str, target: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        (project / path).unlink()
        (project / path).symlink_to(target)

    return change


def plant(path: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("#!/bin/sh\nevil\n")
        (project / path).chmod(0o755)

    return change


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    ("entry", "change"),
    [
        pytest.param({"command": "./run"}, rewrite("run"), id="the program"),
        pytest.param({"command": "tools/../run"}, rewrite("run"), id="the program by dots"),
        pytest.param({"command": "./odd"}, rewrite("tools/interpreter"), id="the interpreter in the project"),
        pytest.param({"command": "python3", "args": ["./server.py"]}, rewrite("server.py"), id="a script"),
        pytest.param({"command": "python3", "args": ["link.py"]}, rewrite("server.py"), id="a linked script"),
        pytest.param(
            {"command": "python3", "args": ["link.py"]},
            relink("link.py", "build/index.js"),
            id="its link",
        ),
        pytest.param(
            {"command": "python3", "args": ["-X", "dev", "server.py"]},
            rewrite("server.py"),
            id="options",
        ),
        pytest.param({"command": "sh", "args": ["run"]}, rewrite("run"), id="a shell's script"),
        pytest.param(
            {"command": "sh", "args": ["-c", "cd . && exec python3 ./server.py"]},
            rewrite("server.py"),
            id="a shell's line",
        ),
        pytest.param(
            {"command": "env", "args": ["A=1", "python3", "server.py"]}, rewrite("server.py"), id="env"
        ),
        pytest.param({"command": "node", "args": ["build/index.js"]}, rewrite("build/index.js"), id="node"),
        pytest.param(
            {"command": "node", "args": ["--require=./build/hook.js", "build/index.js"]},
            rewrite("build/hook.js"),
            id="an option's value",
        ),
        pytest.param(
            {"command": "node", "args": ["-r", "./build/hook.js", "x"]}, rewrite("build/hook.js"), id="a hook"
        ),
        pytest.param({"command": "npx", "args": ["./pkg"]}, rewrite("pkg/cli.js"), id="npx and a folder"),
        pytest.param({"command": "npx", "args": ["-y", "mcp-thing@1.2"]}, rewrite(".npmrc"), id="npmrc"),
        pytest.param(
            {"command": "npx", "args": ["mcp-thing"]},
            rewrite("node_modules/mcp-thing/cli.js"),
            id="an installed package",
        ),
        pytest.param({"command": "npm", "args": ["run", "mcp"]}, rewrite("package.json"), id="npm run"),
        pytest.param({"command": "uv", "args": ["run", "server.py"]}, rewrite("server.py"), id="uv run"),
        pytest.param({"command": "uv", "args": ["run", "thing"]}, rewrite("pyproject.toml"), id="manifest"),
        pytest.param({"command": "python3", "args": ["-m", "server"]}, rewrite("server.py"), id="a module"),
        pytest.param({"command": "python3", "args": ["app"]}, rewrite("app/__main__.py"), id="package"),
        pytest.param({"command": "make", "args": ["mcp"]}, rewrite("Makefile"), id="make"),
        pytest.param({"command": "python3", "args": ["data.db"]}, rewrite("data.db"), id="as data"),
        pytest.param(
            {"command": "true", "env": {"LD_PRELOAD": "./lib.so"}}, rewrite("lib.so"), id="a loaded library"
        ),
        pytest.param(
            {"command": "true", "env": {"NODE_OPTIONS": "--require ./build/hook.js"}},
            rewrite("build/hook.js"),
            id="node's options",
        ),
        pytest.param(
            {"command": "node", "args": ["build/index"]}, rewrite("build/index.js"), id="without its suffix"
        ),
        pytest.param(
            {"command": "ruby", "args": ["-r./hook", "x"]},
            plant("hook.rb"),
            id="a library without its suffix",
        ),
        pytest.param(
            {"command": "true", "env": {"NODE_OPTIONS": "--require=./build/hook"}},
            rewrite("build/hook.js"),
            id="node's options without a suffix",
        ),
        pytest.param(
            {"command": "true", "env": {"BASH_ENV": "$PWD/run"}},
            rewrite("run"),
            id="a shell's start, expanded",
        ),
        pytest.param(
            {"command": "true", "env": {"ENV": "$(echo ./run)"}},
            rewrite("run"),
            id="a shell's start, executed",
        ),
        pytest.param(
            {"command": "true", "env": {"OPENSSL_CONF": "./data.db"}},
            rewrite("data.db"),
            id="what a library loads",
        ),
        pytest.param(
            {"command": "true", "env": {"CHROME_PATH": "./run"}}, rewrite("run"), id="a program in a variable"
        ),
        pytest.param(
            {"command": "true", "env": {"PLUGINS": "a,build/hook.js"}},
            rewrite("build/hook.js"),
            id="a script in a variable",
        ),
        pytest.param(
            {"command": "venv/bin/python"},
            relink("venv/bin/python", "/bin/sh"),
            id="a venv's link",
        ),
        pytest.param({"command": "venv/bin/python"}, rewrite("venv/pyvenv.cfg"), id="a venv's home"),
        pytest.param({"command": "true", "cwd": "folder"}, relink("folder", "build"), id="the folder"),
        pytest.param(
            {"command": "python3", "args": ["x.py"], "cwd": "sub"},
            rewrite("sub/x.py"),
            id="from there",
        ),
        pytest.param(
            {"command": "true", "env": {"PATH": "bin:/usr/bin:/bin"}},
            plant("bin/true"),
            id="relative path",
        ),
        pytest.param(
            {"command": "true", "env": {"PATH": ":/usr/bin:/bin"}},
            plant("true"),
            id="empty path",
        ),
        pytest.param({"command": "nonesuch-tool"}, plant("nonesuch-tool"), id="nothing of the kind"),
    ],
)
def test_what_would_run_cannot_change_after_consent(
    machine: Machine, project: Path, entry: dict[str, Any], change: Callable[[Path], None]
) -> None:
    if "nonesuch-tool" in entry.values():
        machine.env["PATH"] = f".:{machine.env['PATH']}"
    before = key_of(machine, entry)
    assert key_of(machine, entry) == before, "nothing changed yet"
    change(project)
    assert key_of(machine, entry) != before


def line(*args: str, command: str = "bash") -> dict[str, Any]:
    return {"command": command, "args": list(args)}


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    ("entry", "changed"),
    [
        (line("-S", "bash ./run", command="env"), "run"),
        (line("-Sbash ./run", command="env"), "run"),
        (line("--split-string=bash ./run", command="env"), "run"),
        (line("-C", "sub", "python3", "x.py", command="env"), "sub/x.py"),
        (line("--chdir=sub", "python3", "x.py", command="env"), "sub/x.py"),
        (line("-Csub", "python3", "x.py", command="env"), "sub/x.py"),
        (line("PYTHONPATH=sub", "python3", "-m", "x", command="env"), "sub/x.py"),
        (line("-c", "cd sub && python3 x.py"), "sub/x.py"),
        (line("-c", "cd sub\npython3 x.py"), "sub/x.py"),
        (line("-ec", "cd sub && . ./notes.txt"), "sub/notes.txt"),
        (line("-c", "exec $PWD/run"), "run"),
        (line("-c", "~+/run"), "run"),
        (line("-c", "./ru*"), "run"),
        (line("-c", "./ru?"), "run"),
        (line("-c", "./{run,}"), "run"),
        (line("-c", "r\\un"), "run"),
        (line("-c", ". ./a.txt; . ./b.txt"), "b.txt"),
        (line("-c", "source sub/notes.txt"), "sub/notes.txt"),
        (line("-c", "`echo ./run`"), "run"),
        (line("-c", "eval 'python3 sub/'x.py"), "sub/x.py"),
        (line("-c", "PYTHONPATH=sub python3 -m x"), "sub/x.py"),
        (line("-c", "exec env -C sub python3 x.py"), "sub/x.py"),
        (line("-x", "-c", "make -C tools"), "tools/Makefile"),
        (line("-o", "errexit", "-c", "cd sub && ./notes.txt"), "sub/notes.txt"),
        (line("-msx", command="python3"), "sx.py"),
        (line("-um", "sx", command="python3"), "sx.py"),
        (line("-Imsx", command="python3"), "sx.py"),
        (line("-X", "dev", "-msx", command="python3"), "sx.py"),
        (line("-c", "import sx", command="python3"), "sx.py"),
        (line("-cimport sx", command="python3"), "sx.py"),
        (line("-e", "require('./build')", command="node"), "build/index.js"),
        (line("-pe", "do './sx.py'", command="perl"), "sx.py"),
        (line("-I", "sub", "-e", "do 'x.py'", command="perl"), "sub/x.py"),
        (line("-I", "sub", "-e", "do './sx.py'", command="perl"), "sx.py"),
        (line("-mstrict", "-e", "do './sx'.'.py'", command="perl"), "sx.py"),
        (line("-m", "-c", "cd sub && ./x.py"), "sub/x.py"),
        (
            line("--experimental-loader", "./build/hook.js", "-e", "import('./sx'+'.py')", command="node"),
            "sx.py",
        ),
        ({**line("-m", "x", command="python3"), "env": {"PYTHONPATH": "sub"}}, "sub/x.py"),
        ({**line("server.py", command="python3"), "env": {"PYTHONPATH": "/x:sub"}}, "sub/x.py"),
        ({"command": "true", "env": {"PATH": "tools:/usr/bin:/bin"}}, "tools/start"),
        (line("-C", "tools", command="make"), "tools/Makefile"),
        (line("-Ctools", command="make"), "tools/Makefile"),
        (line("--directory=tools", command="make"), "tools/Makefile"),
        (line("mcp", command="make"), "tools/start"),
        (line("x", command="git"), ".git/config"),
        (line("hook", "run", "x", command="git"), ".git/hooks/x"),
        (line("/tmp/lock", "python3", "app", command="flock"), "app/__main__.py"),
        (line("/tmp/lock", "-c", "cd sub && ./x.py", command="flock"), "sub/x.py"),
        (line("/tmp/lock", "python3", "data.db", command="flock"), "data.db"),
        (line("-c", "3", "python3", "app", command="ionice"), "app/__main__.py"),
        (line("-c", "3", "nice", "bash", "-c", "cd sub; ./x.py", command="ionice"), "sub/x.py"),
        (line("5", "sh", "a.txt", command="timeout"), "a.txt"),
        (line(".", "-name", "run", "-exec", "bash", "{}", ";", command="find"), "run"),
        (line("run", "mcp", command="npm"), "build/index.js"),
        (line("exec", "-c", "cd sub && ./x.py", command="npm"), "sub/x.py"),
        (line("-y", "-p", "other", "-c", "cd sub && ./x.py", command="npx"), "sub/x.py"),
        (line("--call=cd sub && ./x.py", command="npx"), "sub/x.py"),
        (line("--python", "3.12", "--from", "./pkg", "tool", command="uvx"), "pkg/cli.js"),
        (line("run", "thing", command="uv"), "sub/x.py"),
        (line("run", "--directory", "sub", "x.py", command="uv"), "sub/x.py"),
        (line("run", "bash", "-c", "cd sub && ./x.py", command="uv"), "sub/x.py"),
        (line("compose", "up", command="docker"), "sub/x.py"),
        (line("--project", "sub", command="some-runner-of-projects"), "sub/x.py"),
        (line("-m", "uvicorn", "sx:app", command="python3"), "sx.py"),
        (line("sub.x:app", command="uvicorn"), "sub/x.py"),
        (line("fastmcp", "run", "sx", command="uvx"), "sx.py"),
        (line("--app", "sx", "run", command="flask"), "sx.py"),
        ({"command": "true", "env": {"FLASK_APP": "sx"}}, "sx.py"),
        ({"command": "true", "env": {"PYTHONBREAKPOINT": "sub.x.stop"}}, "sub/x.py"),
        (line("-lhook", command="lua"), "hook.lua"),
        (line("Main", command="java"), "Main.class"),
        (line("tsx", "./app", command="npx"), "app/index.ts"),
        (line("run", "-v", "./sub:/app", "image", "python3", "/app/x.py", command="docker"), "sub/x.py"),
        (line("run", "-v", "./sub:/app:ro", "image", "python3", "x.py", command="docker"), "sub/x.py"),
        (line("run", "--volume=./sub:/app/", "image", "/app/x.py", command="docker"), "sub/x.py"),
        (
            line("run", "--mount", "type=bind,src=./sub,dst=/app", "image", "/app/x.py", command="podman"),
            "sub/x.py",
        ),
        (line("--line", "cd sub; ./x.py", command="some-runner-of-lines"), "sub/x.py"),
    ],
)
def test_no_spelling_of_a_command_line_hides_the_code_it_runs(
    machine: Machine, project: Path, entry: dict[str, Any], changed: str
) -> None:
    more: dict[str, Any] = {
        ".git": {"config": "[alias]\n", "hooks": {"x": "1"}, "index": "1"},
        "a.txt": ":",
        "b.txt": ":",
        "sx.py": "1",
    }
    write_tree(project, more)
    write_tree(project / "sub", {"notes.txt": "1"})
    write_tree(project / "tools", {"Makefile": "all:\n"})
    before = key_of(machine, entry)
    assert key_of(machine, entry) == before, "nothing changed yet"
    rewrite(changed)(project)
    assert key_of(machine, entry) != before


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    "entry",
    [
        line("-y", "@modelcontextprotocol/server-filesystem", ".", command="npx"),
        line("-y", "server", "--root", "sub", "--filter", "*.py", '{"a": 1}', command="npx"),
        line("mcp-server-git", "--repository", ".", command="uvx"),
        line("run", "-i", "--rm", "-v", ".:/data", "image", command="docker"),
        line("server.py", "--data", "sub", "hello world", "-c", "x y", command="python3"),
        line("-u", "server.py", "--data", "sub", command="python3"),
        line("build/index.js", "--port", "1", command="node"),
        line("run", "hello world", command="sh"),
        line("-c", "exec npx -y server", command="sh"),
        line("https://example.com/?a=b&c=d", command="some-server"),
        {"command": "./run"},
    ],
)
def test_work_on_a_project_does_not_ask_again_where_the_code_is_named(
    machine: Machine, project: Path, entry: dict[str, Any]
) -> None:
    before = key_of(machine, entry)
    rewrite("sub/x.py")(project)
    rewrite("tools/start")(project)
    assert key_of(machine, entry) == before


@pytest.mark.requirement("HARD-72")
def test_too_much_code_to_bind_is_told(machine: Machine, project: Path) -> None:
    entry = line("-c", "cd sub && ./x.py")
    write_tree(project / "node_modules" / "big", {f"{number}.js": "" for number in range(2_001)})
    told = [fact.text for fact in key_of(machine, entry).facts]
    assert any(text.startswith(f"{project}/node_modules (its code is NOT bound") for text in told)
    assert any(text.startswith(f"{project} (its code bound") for text in told), "the rest is bound"
    before = key_of(machine, entry)
    rewrite("sub/x.py")(project)
    assert key_of(machine, entry) != before
    write_tree(project / "many", {f"{number}.js": "" for number in range(2_001)})
    told = [fact.text for fact in key_of(machine, entry).facts]
    assert any(text.startswith(f"{project} (its code is NOT bound") for text in told)


@pytest.mark.requirement("HARD-72")
def test_a_hard_link_is_bound_by_what_is_in_it(machine: Machine, project: Path) -> None:
    os.link(project / "server.py", project / "hard.py")
    before = key_of(machine, {"command": "python3", "args": ["hard.py"]})
    (project / "server.py").write_text("evil")
    assert key_of(machine, {"command": "python3", "args": ["hard.py"]}) != before


@pytest.mark.requirement("HARD-72")
def test_data_that_a_program_works_on_may_change(machine: Machine, project: Path) -> None:
    variables = {"MEMORY_FILE": "./memory.json", "DB": "data.db", "FOLDER": "./sub"}
    entry = {"command": "true", "args": ["--db", "data.db", "notes.md"], "env": variables}
    rewrite("memory.json", "{}")(project)
    before = key_of(machine, entry)
    for name in ("data.db", "notes.md", "memory.json", "sub/x.py"):
        rewrite(name)(project)
    assert key_of(machine, entry) == before


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize(
    ("code", "asks"),
    [
        ("import sys; sys.argv[1:] = [open('x').read()]", False),
        ("cd sub && ./x.py", False),
        ('x --with={"a":1,"b":[2]}', False),
        (". ./fairlead.lock", True),
        (". ./fairl*", True),
        (". ./f[a]irlead.loc[k]", True),
        (". ./fairlead.{lock,txt}", True),
    ],
)
def test_what_fairlead_writes_itself_asks_again_only_where_it_is_run(
    machine: Machine, project: Path, code: str, *, asks: bool
) -> None:
    entry = line("-c", code)
    before = key_of(machine, entry)
    (project / "fairlead.lock").write_text("{}")
    assert (key_of(machine, entry) != before) == asks


@pytest.mark.requirement("HARD-72")
def test_a_fifo_or_a_device_in_the_project_does_not_hold_the_check(machine: Machine, project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "zero.py").symlink_to("/dev/zero")
    key = key_of(machine, {"command": "python3", "args": ["pipe.py", "zero.py"]})
    assert any("pipe.py" in fact.text for fact in key.facts)


@pytest.mark.requirement("HARD-72")
@pytest.mark.parametrize("name", ["fairlead.json", ".fairlead/fairlead.json", "codex-toolloop.mcp.json"])
def test_a_link_to_an_approved_file_is_not_approved(machine: Machine, project: Path, name: str) -> None:
    entry: dict[str, Any] = {"command": "./run"}
    text = json.dumps({"servers": {"x": entry}})
    if name == "codex-toolloop.mcp.json":
        text = json.dumps({"servers": {"x": {"transport": {"type": "stdio", **entry}}}})
    approved_file = project / name
    approved_file.parent.mkdir(exist_ok=True)
    approved_file.write_text(text)
    approved = machine.load().servers["x"].consent
    clone = write_tree(machine.home / "clone", {"run": "#!/bin/sh\nevil\n", ".git": {}})
    (clone / "run").chmod(0o755)
    if name.startswith(".fairlead"):
        (clone / ".fairlead").symlink_to(project / ".fairlead")
    else:
        (clone / name).symlink_to(approved_file)
    foreign = load_config(env=machine.env, cwd=clone).servers["x"].consent
    assert approved is not None
    assert foreign is not None
    assert foreign.file == str(clone / name)
    assert foreign != approved
    assert (foreign.file, foreign.digest) != (approved.file, approved.digest)


@pytest.mark.requirement("HARD-72")
def test_another_folder_in_the_place_of_an_approved_one_asks_again(machine: Machine, project: Path) -> None:
    before = key_of(machine, {"command": "true"})
    text = machine.project_file.read_text()
    project.rename(project.with_name("moved"))
    project.mkdir()
    machine.project_file.write_text(text)
    assert machine.load().servers["x"].consent != before


@pytest.mark.requirement("HARD-72")
def test_an_entry_of_a_parent_folder_covers_the_whole_repository(machine: Machine, project: Path) -> None:
    (project / "deep").mkdir()
    (project / "deep" / "fairlead.json").write_text(json.dumps({"servers": {"x": {"command": "../run"}}}))
    before = load_config(env=machine.env, cwd=project / "deep").servers["x"].consent
    rewrite("run")(project)
    assert load_config(env=machine.env, cwd=project / "deep").servers["x"].consent != before


@pytest.mark.requirement("HARD-72")
def test_a_program_that_prints_headers_is_bound_too(machine: Machine, project: Path) -> None:
    entry = {"url": "https://example.com/mcp", "headers_helper": ["./run", "server.py"]}
    before = key_of(machine, entry)
    rewrite("server.py")(project)
    changed = key_of(machine, entry)
    assert changed != before
    rewrite("run")(project)
    assert key_of(machine, entry) != changed


@pytest.mark.requirement("HARD-72")
def test_who_is_asked_is_shown_what_really_runs_and_what_is_not_covered(
    machine: Machine, project: Path
) -> None:
    key = key_of(machine, {"command": "venv/bin/python", "args": ["server.py"], "cwd": "folder/.."})
    told = "\n".join(f"{fact.label}: {fact.text}" for fact in key.facts)
    assert f"{project}/venv/bin/python, really {os.path.realpath('/usr/bin/env')}" in told
    assert f"{project}/server.py (content bound" in told
    assert f"starts in: {project}" in told
    assert "not covered by your consent: what the program imports" in told


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "python3", "args": ["-m", "outer.inner.srv"]},
        {"command": "python3", "args": ["-mouter.inner.srv"]},
        {"command": "python3", "args": ["-u", "-Bm", "outer.inner.srv", "--port", "1"]},
        {"command": "uv", "args": ["run", "python", "-m", "outer.inner.srv"]},
        {"command": "env", "args": ["A=1", "python3", "-m", "outer.inner.srv"]},
    ],
    ids=lambda entry: " ".join([entry["command"], *entry["args"]]),
)
@pytest.mark.parametrize("package", ["outer", "outer/inner"])
def test_the_packages_on_the_way_to_a_module_are_bound(
    machine: Machine, project: Path, entry: dict[str, Any], package: str
) -> None:
    write_tree(project, {"outer": {"__init__.py": "", "inner": {"__init__.py": "", "srv.py": "1"}}})
    approved = key_of(machine, entry)
    (project / package / "__init__.py").write_text("evil\n")
    changed = key_of(machine, entry)
    assert changed != approved
    (project / package / "__init__.py").unlink()
    without = key_of(machine, entry)
    assert without not in (approved, changed)


@pytest.mark.parametrize("command", ["./build", "./folder", ".", "./pipe", "./nowhere"])
def test_what_is_no_program_costs_its_server_alone(machine: Machine, project: Path, command: str) -> None:
    os.mkfifo(project / "pipe")
    (project / "nowhere").symlink_to("nowhere")
    assert key_of(machine, {"command": command})


def test_a_file_that_is_deleted_while_its_folder_is_read_is_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [each for each in os.scandir(project) if each.name in ("link.py", "server.py", "odd")]
    for name in ("link.py", "odd"):
        (project / name).unlink()

    def listed(_folder: str) -> list["os.DirEntry[str]"]:
        return found

    monkeypatch.setattr("fairlead.config.file_digests._walk", listed)
    digest = digest_folder(str(project))
    found = [each for each in found if each.name == "server.py"]
    assert digest == digest_folder(str(project))
