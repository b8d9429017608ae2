"""Run a server's process in bubblewrap, where it has less than the user's rights.

What it sees is put together from nothing: the system's own folders, read-only; what its program needs to run;
the folder it starts in; and the paths its entry names. Home, `/tmp` and `/run` are its own and empty, so the
user's files and sockets are not there. It has no network unless the entry says so.

What stays: in `/etc` and the other system folders it can read what any user can. With the network it reaches
whatever listens on this machine, too. And `npx` or `uvx` find an empty cache in an empty home: give them the
network, and a cache to keep (`write: ["~/.npm"]`, `write: ["~/.cache/uv", "~/.local/share/uv"]`).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from fairlead.connection.environment import child_environment
from fairlead.connection.process import Command
from fairlead.errors import ConnectFailed

Access = Literal["read", "write"]

PROGRAM = "bwrap"

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/gnu/store", "/run/current-system", "/var/lib/ca-certificates"),
)
_OWN = {"/tmp": "--tmpfs", "/var/tmp": "--tmpfs", "/run": "--tmpfs", "/dev": "--dev", "/proc": "--proc"}  # noqa: S108
_RESOLVER = Path("/etc/resolv.conf")
_RIGHTS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")

_GONE = ("TMPDIR", "XDG_RUNTIME_DIR")
"""Variables of the host's that name folders which are not in the sandbox."""

_LOADER = re.compile(r"LD_\w*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_\w*")
"""Variables that can bring foreign code into any program, and so into bubblewrap itself, which is outside."""

_PROBE_SECONDS = 10.0
_SHEBANG_BYTES = 256
_NOT_WITHOUT = "it is not started without one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What an entry asks of its sandbox, with whole paths."""

    home: Path
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    network: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """What a process in a sandbox sees. Paths are real ones; `links` are the other ways to reach them."""

    home: Path
    cwd: Path
    network: bool
    shown: Mapping[Path, Access]
    links: Mapping[Path, str] = field(default_factory=dict[Path, str])

    def sees(self, path: Path) -> bool:
        """Is what the user has at this real path there, and not something private in its place?"""
        own = {self.home, *map(Path, _OWN)}
        nearest = next((p for p in (path, *path.parents) if p in self.shown or p in own), None)
        return nearest in self.shown


def sandboxed(server_id: str, command: Command, wanted: Wanted) -> Command:
    """The command that starts a server in a sandbox. Raises `ConnectFailed` where it cannot have one."""
    bwrap = shutil.which(PROGRAM, path=command.parent.get("PATH"))
    if bwrap is None:
        message = f"its entry wants a sandbox, and bubblewrap (`{PROGRAM}`) is not installed"
        hint = f"install bubblewrap (Linux only), or take `sandbox` out of the entry; {_NOT_WITHOUT}"
        raise ConnectFailed(server_id, message, hint=hint)
    if (trouble := trouble_with(bwrap, network=wanted.network)) is not None:
        hint = (
            "let users make namespaces (`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu an AppArmor "
            f"profile for `{PROGRAM}`, in a container its seccomp profile); {_NOT_WITHOUT}"
        )
        message = f"its entry wants a sandbox, and bubblewrap does not work here: {trouble}"
        raise ConnectFailed(server_id, message, hint=hint)
    program = _program(server_id, command)
    box = _box(server_id, command, program, wanted)
    for argument in command.argv[1:]:
        _require_visible(server_id, box, argument)
    loader = {name: value for name, value in command.env.items() if _LOADER.fullmatch(name)}
    variables = [word for name in _GONE if name not in command.env for word in ("--unsetenv", name)]
    variables += [word for pair in loader.items() for word in ("--setenv", *pair)]
    return replace(
        command,
        argv=(bwrap, *bwrap_arguments(box), *variables, "--", str(program), *command.argv[1:]),
        env={name: value for name, value in command.env.items() if name not in loader},
        cwd=None,
    )


def bwrap_arguments(box: Box) -> list[str]:
    """How to tell bubblewrap what a process shall see and may do."""
    mounts: dict[Path, list[str]] = {Path(path): [option, path] for path, option in _OWN.items()}
    if box.home != Path("/"):
        mounts[box.home] = ["--tmpfs", str(box.home)]
    for path, access in box.shown.items():
        mounts[path] = ["--bind" if access == "write" else "--ro-bind", str(path), str(path)]
    for link, target in box.links.items():
        mounts[link] = ["--symlink", target, str(link)]
    network = ["--share-net"] if box.network else []
    # A folder comes before what is in it, or it would lie over that.
    in_order = sorted(mounts, key=lambda path: len(path.parts))
    words = [word for path in in_order for word in mounts[path]]
    return [*_RIGHTS, *network, *words, "--remount-ro", "/", "--chdir", str(box.cwd)]


def trouble_with(bwrap: str, *, network: bool) -> str | None:
    """Why bubblewrap cannot make a sandbox on this system; None where it can, which is asked only once."""
    try:
        _try_out(bwrap, network=network)
    except subprocess.CalledProcessError as exc:
        said: bytes = exc.stderr
        return said.decode(errors="replace").strip()[-500:] or f"it exited with code {exc.returncode}"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return None


@cache
def _try_out(bwrap: str, *, network: bool) -> None:
    everything = Box(home=Path("/"), cwd=Path("/"), network=network, shown={Path("/"): "read"})
    subprocess.run(
        [bwrap, *bwrap_arguments(everything), "--", "true"],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_PROBE_SECONDS,
    )


# What has to be in the box.


def _box(server_id: str, command: Command, program: Path, wanted: Wanted) -> Box:
    home = Path(os.path.realpath(wanted.home))
    shown: dict[Path, Access] = {}
    links = dict(_links(wanted.home))

    def show(path: Path, access: Access | None = None) -> None:
        """Show something, as named or, where nothing says how, to be read if it is not seen yet."""
        real = Path(os.path.realpath(path))
        links.update(_links(path))
        if access or not Box(home=home, cwd=home, network=False, shown=shown).sees(real):
            shown[real] = access or "read"

    for folder in filter(os.path.exists, _SYSTEM):
        show(Path(folder))
    for path in wanted.read:
        show(_named(server_id, "read", path, home), "read")
    for path in wanted.write:
        show(_named(server_id, "write", path, home), "write")
    cwd = _working_folder(server_id, command, home)
    search = child_environment(command.env, command.parent).get("PATH")
    for path in (cwd, *_needed(program, search), *([_RESOLVER] if wanted.network else [])):
        # A program that lies in the home does not bring all of it.
        if os.path.exists(path) and not home.is_relative_to(os.path.realpath(path)):
            show(path)
    outside = {link: target for link, target in links.items() if not _is_inside(link, shown)}
    return Box(home=home, cwd=cwd, network=wanted.network, shown=shown, links=outside)


def _is_inside(link: Path, shown: Mapping[Path, Access]) -> bool:
    return any(parent in shown for parent in link.parents)


def _named(server_id: str, field_name: str, path: Path, home: Path) -> Path:
    """A path the entry names, once it is known to be there and not to be everything."""
    if not os.path.exists(path):
        message = f"`sandbox.{field_name}` names {path}, which is not there"
        raise ConnectFailed(server_id, message, hint="make it, or leave it out")
    if home.is_relative_to(os.path.realpath(path)):
        message = f"`sandbox.{field_name}` names {path}, and that would open the whole home"
        raise ConnectFailed(server_id, message, hint="name the folders it needs")
    return path


def _working_folder(server_id: str, command: Command, home: Path) -> Path:
    """Where the process starts: where its entry says, or in its own empty home."""
    if command.cwd is None:
        return home  # where the user happens to be is nothing that the entry names
    if not os.path.isdir(command.cwd):
        raise ConnectFailed(server_id, f"there is no folder {command.cwd}", hint="check `cwd`")
    real = Path(os.path.realpath(command.cwd))
    return home if home.is_relative_to(real) else real


def _program(server_id: str, command: Command) -> Path:
    """The program that would run, found as without a sandbox, and not followed through links."""
    name = command.argv[0]
    folder = command.cwd or Path.cwd()
    search = child_environment(command.env, command.parent).get("PATH")
    found = shutil.which(str(folder / name) if "/" in name else name, path=search)
    if found is None:
        hint = "check `command` and `cwd`; is it installed?"
        raise ConnectFailed(server_id, f"there is no program {name}", hint=hint)
    return (folder / found).absolute()


def _require_visible(server_id: str, box: Box, argument: str) -> None:
    """Say at once what the server would only say in its own words: that something is not there."""
    if not argument.startswith("/") or "\0" in argument or not os.path.exists(argument):
        return
    real = Path(os.path.realpath(argument))
    there = box.sees(real) or real in (Path("/"), box.home, *map(Path, _OWN))
    if not there and real.parts[1] not in ("dev", "proc"):
        message = f"its arguments name {argument}, which is not in its sandbox"
        raise ConnectFailed(server_id, message, hint="name it in `sandbox.read` or `sandbox.write`")


def _needed(program: Path, search: str | None) -> Iterator[Path]:
    """What a program needs to run: its folder, the libraries beside that, its packages, its interpreter."""
    pending, seen = [program], set[Path]()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        yield from (path.parent, path)
        if path.parent.name == "bin":
            installation = path.parent.parent
            yield from (installation / name for name in ("lib", "lib64", "libexec", "pyvenv.cfg"))
            if os.path.exists(installation / "pyvenv.cfg"):
                pending.append(path.parent / "python")
        if "node_modules" in path.parts:
            yield Path(*path.parts[: path.parts.index("node_modules") + 1])
        pending.append(Path(os.path.realpath(path)))
        pending.extend(_interpreter(path, search))


def _interpreter(script: Path, search: str | None) -> Iterator[Path]:
    """Who runs a script, by its first line."""
    try:
        with script.open("rb") as file:
            first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if len(words) > 1 and words[0].endswith("/env"):
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(names[0], path=search) if names else None
        if found is not None:
            yield Path(found).absolute()
    elif words and words[0].startswith("/"):
        yield Path(words[0])


def _links(path: Path) -> Iterator[tuple[Path, str]]:
    """Every symbolic link on the way to something that is there."""
    here, rest = Path("/"), list(path.absolute().parts[1:])
    while rest:
        step = rest.pop(0)
        if step == "..":
            here = here.parent
            continue
        here /= step
        if os.path.islink(here):
            target = os.readlink(here)
            yield here, target
            parts = list(Path(target).parts)
            absolute = target.startswith("/")
            here, rest = (Path("/"), parts[1:] + rest) if absolute else (here.parent, parts + rest)
