"""Links and races that would bring what is not named into a sandbox, tried out with the real bubblewrap."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from fairlead.connection.process.child import Command, child_environment
from fairlead.connection.process.sandbox import SandboxRequest, paths_brought, wrap_in_sandbox
from fairlead.errors import ConnectFailed
from fairlead.testing.fixtures import Link, write_tree
from tests.conftest import Machine

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.requirement("HARD-73"),
]

KEY = "PRIVATE KEY"
PROBE = """#!/bin/sh
find "$HOME" -name id_rsa 2>/dev/null
for word in "$@"; do cat "${word#=}" 2>/dev/null; done
echo done
"""
"""Looks for the key, and prints files that are given as `=path`: a plain path would be refused before."""


@pytest.fixture
def home(machine: Machine) -> Path:
    write_tree(machine.home, {".ssh": {"id_rsa": KEY, "config": "x"}, "notes": {"diary": KEY}})
    (machine.home / ".ssh" / "id_rsa").chmod(0o600)
    return machine.home


def build(folder: Path, tree: dict[str, Any], *programs: str) -> Path:
    write_tree(folder, tree)
    for name in programs:
        (folder / name).chmod(0o755)
    return folder


def run(command: Command) -> subprocess.CompletedProcess[str]:
    env = child_environment(command.env, command.parent)
    return subprocess.run(command.argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def command_of(argv: tuple[str, ...], cwd: Path | None = None) -> Command:
    program, *paths = argv
    return Command(argv=(program, *(f"={path}" for path in paths)), cwd=cwd)


def outcome(argv: tuple[str, ...], home: Path, *, cwd: Path | None = None, **wanted: Any) -> str:
    """What a program in such a sandbox printed, or the reason why it was not started."""
    try:
        command = wrap_in_sandbox("x", command_of(argv, cwd), SandboxRequest(home=home, **wanted))
    except ConnectFailed as refused:
        return f"refused: {refused} ({refused.hint})"
    done = run(command)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["lib", "lib64", "libexec", "pyvenv.cfg"])
@pytest.mark.parametrize("target", ["../../.ssh", "{home}/.ssh", "../../.ssh/id_rsa", "../.."])
def test_a_link_beside_a_program_brings_nothing(home: Path, name: str, target: str) -> None:
    link = Link(target.format(home=home))
    tool = build(home / "clone" / "tool", {"bin": {"run": PROBE}, name: link}, "bin/run")
    said = outcome((str(tool / "bin/run"), f"{tool}/{name}/id_rsa", f"{tool}/{name}"), home)
    assert "done" in said
    assert KEY not in said
    assert "id_rsa" not in said


def test_a_virtual_environments_own_lib64_goes_on_working(home: Path) -> None:
    tree = {"bin": {"run": PROBE}, "lib": {"words": "hello"}, "lib64": Link("lib"), "pyvenv.cfg": ""}
    tool = build(home / "venv", tree, "bin/run")
    assert "hello" in outcome((str(tool / "bin/run"), str(tool / "lib64/words")), home)


@pytest.mark.parametrize(
    "tree",
    [
        {"node_modules": Link("../.ssh")},
        {"node_modules": {".bin": {"run": Link("../../../.ssh/id_rsa")}}},
        {"packages": Link("../.ssh"), "bin": Link("../.ssh")},
    ],
)
def test_packages_that_are_links_bring_nothing(home: Path, tree: dict[str, Any]) -> None:
    code = build(home / "code", tree | {"run": PROBE}, "run")
    argv = (str(code / "run"), f"{code}/node_modules/id_rsa", f"{code}/bin/id_rsa", f"{code}/packages/id_rsa")
    said = outcome(argv, home, cwd=code)
    assert KEY not in said
    said = outcome((str(code / "node_modules/.bin/run"),), home)
    assert said.startswith("refused: "), "what is not executable is no program"


@pytest.mark.parametrize("target", [".ssh", "{home}/.ssh", "/", "..", "/proc/self/root", "/proc/self/cwd"])
@pytest.mark.parametrize("where", ["cwd", "read", "write"])
def test_a_named_folder_that_is_a_link_is_refused(home: Path, where: str, target: str) -> None:
    link = home / "work"
    link.symlink_to(target.format(home=home))
    program = build(home / "tool", {"run": PROBE}, "run") / "run"
    if where == "cwd":
        said = outcome((str(program), "id_rsa"), home, cwd=link)
    else:
        named: dict[str, Any] = {where: (link,)}
        said = outcome((str(program), f"{link}/id_rsa"), home, **named)
    assert KEY not in said
    assert said.startswith("refused: ") or (where == "cwd" and "id_rsa" not in said), "home counts as its own"


@pytest.mark.parametrize("where", ["cwd", "read", "write"])
def test_a_link_in_the_middle_of_a_named_path_is_refused(home: Path, where: str) -> None:
    (home / "way").symlink_to(".")
    program = build(home / "tool", {"run": PROBE}, "run") / "run"
    path = home / "way" / ".ssh"
    named: dict[str, Any] = {"cwd": path} if where == "cwd" else {where: (path,)}
    said = outcome((str(program),), home, **named)
    assert said.startswith("refused: ")
    assert f"{home}/way is a link" in said


@pytest.mark.parametrize("path", ["/proc/self/root/home", "/proc/self/cwd", "/proc/1/root", "/proc", "/sys"])
def test_ways_through_the_process_table_are_refused(home: Path, path: str) -> None:
    for where in ("read", "write"):
        named: dict[str, Any] = {where: (Path(path),)}
        assert outcome(("true",), home, **named).startswith("refused: ")


def test_a_first_line_does_not_bring_a_file_that_is_no_program(home: Path) -> None:
    code = build(home / "code", {"run": f"#!{home}/.ssh/id_rsa\n"}, "run")
    command = wrap_in_sandbox("x", Command(argv=(str(code / "run"),)), SandboxRequest(home=home))
    assert ".ssh" not in " ".join(command.argv)


def test_what_a_server_can_write_does_not_decide_what_it_is_shown_next_time(home: Path) -> None:
    vault = build(home / "vault", {"bin": {"open": PROBE}, "lib": {"secret": KEY}}, "bin/open")
    code = build(home / "code", {"run": f"#!{vault}/bin/open\n", "bin": {"run": PROBE}}, "run", "bin/run")
    said = outcome((str(code / "run"),), home, cwd=code, write=(code,))
    assert said.startswith("refused: ")
    assert "it can write to" in said
    (code / "bin" / "run").unlink()
    (code / "bin" / "run").symlink_to(vault / "bin" / "open")
    assert outcome((str(code / "bin/run"),), home, cwd=code, write=(code,)).startswith("refused: ")
    said = outcome(
        (str(code / "bin/run"), f"{vault}/lib/secret"), home, cwd=code, write=(code,), read=(vault,)
    )
    assert KEY in said, "the user named it"


def test_a_program_reached_by_a_link_brings_itself_and_not_the_folder_it_is_in(home: Path) -> None:
    build(home / "notes", {"tool": PROBE}, "tool")
    code = build(home / "code", {"run": Link("../notes/tool")})
    said = outcome((str(code / "run"), f"{home}/notes/diary"), home)
    assert "done" in said
    assert KEY not in said


def test_links_inside_a_named_folder_lead_nowhere_outside(home: Path) -> None:
    links = {"root": Link("/"), "keys": Link("../.ssh"), "here": Link("{}")}
    code = build(home / "code", links | {"run": PROBE}, "run")
    argv = (str(code / "run"), f"{code}/root{home}/.ssh/id_rsa", f"{code}/keys/id_rsa")
    said = outcome(argv, home, cwd=code, write=(code,))
    assert "done" in said
    assert KEY not in said


def test_a_folder_inside_another_named_one_cannot_be_a_link_either(home: Path) -> None:
    code = build(home / "code", {"run": PROBE, "out": Link("../.ssh")}, "run")
    said = outcome((str(code / "run"), f"{code}/out/id_rsa"), home, read=(code,), write=(code / "out",))
    assert said.startswith("refused: ")


def test_a_folder_swapped_for_a_link_between_the_check_and_the_mount_is_noticed(home: Path) -> None:
    """The worst case by hand: swapped right after the check, and back once it is mounted."""
    build(home / "code", {"run": PROBE}, "run")
    out = build(home / "shared", {"a": "b"})
    argv = (str(home / "code" / "run"), f"{out}/id_rsa", f"{home}/.ssh/id_rsa")
    ways: list[dict[str, Any]] = [{"write": (out,)}, {"read": (out,)}]
    for named in ways:
        command = wrap_in_sandbox("x", command_of(argv), SandboxRequest(home=home, **named))
        out.rename(home / "aside")
        out.symlink_to(home / ".ssh")
        done = run(command)
        assert KEY not in done.stdout
        assert "changed while it was started" in done.stderr
        assert done.returncode == 1
        out.unlink()
        (home / "aside").rename(out)
        assert "done" in run(command).stdout, "nothing is wrong with it then"


def test_no_race_brings_a_key_in(home: Path) -> None:
    code = build(home / "code", {"run": PROBE, "lib": {"a": "b"}, "work": {"a": "b"}}, "run")
    tool = build(home / "tool", {"bin": {"run": PROBE}, "lib": {"a": "b"}}, "bin/run")
    swapped = (code / "work", tool / "lib")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for path in swapped:
                aside = path.with_name(path.name + ".aside")
                path.rename(aside)
                path.symlink_to(home / ".ssh")
                path.unlink()
                aside.rename(path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(25):
            argv = (str(tool / "bin/run"), "id_rsa", f"{tool}/lib/id_rsa", f"{code}/work/id_rsa")
            assert KEY not in outcome(argv, home, cwd=code / "work")
    finally:
        over.set()
        thread.join(30)


def test_variables_that_load_code_are_set_only_after_the_comparison(home: Path) -> None:
    out = build(home / "out", {"a": "b"})
    command = wrap_in_sandbox(
        "x",
        Command(argv=("env",), env={"LD_PRELOAD": "/none.so", "A": "1"}),
        SandboxRequest(home=home, write=(out,)),
    )
    words = command.argv[command.argv.index("--") + 1 :]
    assert "--setenv" not in command.argv
    assert words[2].index("stat") < words[2].index("LD_PRELOAD")
    assert "LD_PRELOAD=/none.so" in run(command).stdout


def test_no_descriptor_of_ours_reaches_the_program(home: Path) -> None:
    code = build(home / "code", {"run": "#!/bin/sh\nls -l /proc/self/fd\n"}, "run")
    command = wrap_in_sandbox(
        "x", Command(argv=(str(code / "run"),), cwd=code), SandboxRequest(home=home, write=(code,))
    )
    assert str(home.parent) not in run(command).stdout


def test_a_sandbox_has_its_own_processes_and_session_and_ends_with_us(home: Path) -> None:
    command = wrap_in_sandbox("x", Command(argv=("true",)), SandboxRequest(home=home))
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(command.argv)
    assert os.path.basename(command.argv[0]) == "bwrap"


# What counts as a program's own, and as the system's.


@pytest.fixture
def beside_the_system() -> Generator[Path]:
    """A folder below `/opt`, which is not the distribution's."""
    try:
        folder = Path("/opt") / f"fairlead-test-{os.urandom(6).hex()}"
        folder.mkdir()
    except OSError:
        pytest.skip("needs the right to write to /opt")
    yield folder
    shutil.rmtree(folder)


def mounted(argv: tuple[str, ...], home: Path, **wanted: Any) -> str:
    return " ".join(wrap_in_sandbox("x", Command(argv=argv), SandboxRequest(home=home, **wanted)).argv)


@pytest.mark.parametrize("executable", [False, True])
@pytest.mark.parametrize("name", ["python", "python3", "node", "server2"])
def test_a_link_beside_a_program_that_is_not_executed_brings_nothing(
    home: Path, name: str, executable: bool
) -> None:
    if executable:
        (home / ".ssh" / "id_rsa").chmod(0o700)
    tree = {"bin": {"run": PROBE, name: Link("../../.ssh/id_rsa")}, "pyvenv.cfg": f"home = {home}/.ssh\n"}
    repo = build(home / "repo", tree, "bin/run")
    said = outcome((str(repo / "bin/run"), f"{repo}/bin/{name}", f"{home}/.ssh/id_rsa"), home)
    assert "done" in said
    assert KEY not in said


@pytest.mark.parametrize("name", ["lib", "lib64", "libexec", "pyvenv.cfg", "node_modules"])
def test_a_clone_below_opt_is_not_the_systems(home: Path, beside_the_system: Path, name: str) -> None:
    tree = {"bin": {"run": PROBE}, name: Link(f"{home}/.ssh")}
    repo = build(beside_the_system, tree, "bin/run")
    said = outcome((str(repo / "bin/run"), f"{repo}/{name}/id_rsa", f"{home}/.ssh/id_rsa"), home)
    assert "done" in said
    assert KEY not in said


def test_what_a_server_writes_below_opt_does_not_open_its_next_sandbox(
    home: Path, beside_the_system: Path
) -> None:
    place = build(beside_the_system, {"bin": {"run": PROBE}, "d": {"cache": {}}}, "bin/run")
    (place / "lib64").symlink_to(home / ".ssh")
    (place / "d" / "cache").rmdir()
    (place / "d" / "cache").symlink_to(home / ".ssh")
    argv = (str(place / "bin/run"), f"{place}/lib64/id_rsa", f"{home}/.ssh/id_rsa")
    said = outcome(argv, home, write=(place,))
    assert "done" in said
    assert KEY not in said
    for where in ("read", "write"):
        named: dict[str, Any] = {where: (place / "d" / "cache",)}
        assert outcome(("true",), home, **named).startswith("refused: ")
        named = {where: (place / "d" / "cache" / "config",)}
        assert outcome(("true",), home, **named).startswith("refused: ")


@pytest.mark.parametrize("path", ["/usr", "/usr/share", "/etc", "/bin", "/lib", "/etc/alternatives"])
def test_no_sandbox_may_write_where_links_are_followed(home: Path, path: str) -> None:
    assert outcome(("true",), home, write=(Path(path),)).startswith("refused: ")


def test_the_distributions_own_links_are_followed(home: Path) -> None:
    links = [path for path in Path("/usr/lib").iterdir() if path.is_symlink() and path.is_dir()]
    inside = [path for path in links if path.resolve().is_relative_to("/usr/lib")]
    for link in inside[:3]:
        assert "refused" not in outcome(("true",), home, read=(link,))


def test_a_first_line_brings_the_interpreter_and_nothing_beside_it(home: Path) -> None:
    tree = {"bin": {"tool": PROBE, "other": KEY}, "lib": {"secret": KEY}, "token": KEY}
    vault = build(home / "vault", tree, "bin/tool")
    code = build(home / "code", {"run": f"#!{vault}/bin/tool\n"}, "run")
    words = mounted((str(code / "run"),), home)
    assert f"{vault}/bin/tool {vault}/bin/tool" in words
    for name in ("bin", "lib", "bin/other"):
        assert f" {vault}/{name} " not in words
    link = build(home / "linked", {"bin": {"run": Link("../../vault/bin/tool")}})
    argv = (str(link / "bin/run"), f"{vault}/lib/secret", f"{vault}/bin/other", f"{vault}/token")
    said = outcome(argv, home)
    assert "done" in said
    assert KEY not in said


def test_libraries_in_the_home_itself_are_nobodys_installation(home: Path) -> None:
    tree: dict[str, Any] = {"bin": {"tool": PROBE}, "lib": {"python3.12": {}, "secret": KEY}, "code": {}}
    build(home, tree, "bin/tool")
    (home / "code" / "run").symlink_to("../bin/tool")
    for program in ("bin/tool", "code/run"):
        assert KEY not in outcome((str(home / program), f"{home}/lib/secret"), home)


@pytest.mark.parametrize("folder", [".ssh", ".gnupg", ".aws", ".config/gcloud", ".local/share/keyrings"])
@pytest.mark.parametrize("how", ["link", "first line"])
def test_nothing_among_credentials_is_a_program(home: Path, folder: str, how: str) -> None:
    tool = build(home / folder, {"tool": PROBE}, "tool") / "tool"
    tree = {"run": Link(str(tool)) if how == "link" else f"#!{tool}\n"}
    code = build(home / "code", tree, *(["run"] if how == "first line" else []))
    said = outcome((str(code / "run"),), home)
    assert said.startswith("refused: ")
    assert str(tool) in said


def test_an_installation_reached_by_a_link_or_a_first_line_brings_its_library(home: Path) -> None:
    library = {"python3.12": {"words": "of the library"}, "lib64": Link("../../../.ssh")}
    tree = {"bin": {"python3.12": PROBE}, "lib": library, "share": {"x": KEY}, "lib64": Link("../../.ssh")}
    python = build(home / "pythons" / "3.12", tree, "bin/python3.12")
    venv = {
        "bin": {"python": Link("../../pythons/3.12/bin/python3.12")},
        "lib": {"python3.12": {"site": "of the packages"}},
        "pyvenv.cfg": "",
    }
    build(home / "venv", venv)
    code = build(home / "code", {"run": f"#!{home}/venv/bin/python\n"}, "run")
    wanted = [f"{python}/lib/python3.12/words", f"{home}/venv/lib/python3.12/site"]
    unwanted = [f"{python}/lib/lib64/id_rsa", f"{python}/lib64/id_rsa", f"{python}/share/x"]
    said = outcome((str(code / "run"), *wanted, *unwanted), home)
    assert "of the library" in said
    assert "of the packages" in said
    assert KEY not in said


@pytest.mark.parametrize(
    "line", ["'{venv}/bin/python'", '"{venv}/bin/python"', '"$(dirname -- "$(realpath -- "$0")")"/\'python\'']
)
def test_a_script_with_a_long_interpreter_path_finds_it(home: Path, line: str) -> None:
    venv = home / "venv"
    start = f"#!/bin/sh\n'''exec' {line.format(venv=venv)} \"$0\" \"$@\"\n' '''\n"
    python: dict[str, Any] = {"bin": {"python3": PROBE}, "lib": {"python3.12": {}}}
    build(home / "pythons", python, "bin/python3")
    tree = {"bin": {"run": start, "python": Link("../../pythons/bin/python3")}, "pyvenv.cfg": ""}
    build(venv, tree, "bin/run")
    assert "done" in outcome((str(venv / "bin/run"),), home)


def test_what_a_program_brings_can_be_told_beforehand(home: Path) -> None:
    vault = build(home / "vault", {"tool": PROBE}, "tool")
    code = build(home / "code", {"run": f"#!{vault}/tool\n"}, "run")
    command = Command(argv=(str(code / "run"),), cwd=code)
    assert paths_brought("x", command, SandboxRequest(home=home)) == (vault / "tool",)
    assert paths_brought("x", Command(argv=("true",)), SandboxRequest(home=home)) == ()


@pytest.mark.parametrize("argv", [("npx", "--version"), ("node", "-e", "0"), ("uvx", "--version")])
def test_package_runners_start_in_a_sandbox(home: Path, argv: tuple[str, ...]) -> None:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    done = run(wrap_in_sandbox("x", Command(argv=argv, parent=dict(os.environ)), SandboxRequest(home=home)))
    assert done.returncode == 0, done.stderr


def test_the_python_of_a_virtual_environment_starts_in_a_sandbox(home: Path) -> None:
    command = Command(argv=(sys.executable, "-c", "import anyio, ssl; print('imported')"))
    assert "imported" in run(wrap_in_sandbox("x", command, SandboxRequest(home=home))).stdout
