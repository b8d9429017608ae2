"""bubblewrap: what a process in a sandbox sees and may do, as a value and as words of a command line.

Who puts a sandbox together decides what is in it: `connection.process.sandbox` for servers, `servers.shell`
for commands of a model.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

Access = Literal["read", "write"]
Identity = tuple[int, int]
"""Device and inode."""

PROGRAM = "bwrap"
OWN_FOLDERS = {
    "/tmp": "--tmpfs",  # noqa: S108
    "/var/tmp": "--tmpfs",  # noqa: S108
    "/run": "--tmpfs",
    "/dev": "--dev",
    "/proc": "--proc",
}
"""Folders that each sandbox has for itself, and how bubblewrap makes them."""

_RIGHTS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_PROBE_SECONDS = 10.0
_SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxView:
    """The file system of a sandbox. Paths are real ones; `links` are symbolic links to them."""

    home: Path
    cwd: Path
    network: bool
    shown: Mapping[Path, Access]
    links: Mapping[Path, str] = field(default_factory=dict[Path, str])
    identities: Mapping[Path, Identity] = field(default_factory=dict[Path, Identity])
    """Device and inode of each mounted path, checked again in the sandbox against replacement."""
    brought: tuple[Path, ...] = ()
    """The part of `shown` that only the program needs: the entry does not name it."""
    covered: Mapping[Path, Literal["folder", "file"]] = field(
        default_factory=dict[Path, Literal["folder", "file"]]
    )
    """Paths that are there and not shown: in their place is an empty folder or file, not to be written."""

    def sees(self, path: Path) -> bool:
        """Whether the sandbox shows the user's own file at this real path, and not a private one."""
        own = {self.home, *map(Path, OWN_FOLDERS)}
        nearest = next((p for p in (path, *path.parents) if p in self.shown or p in own), None)
        return nearest in self.shown


def bwrap_arguments(box: SandboxView) -> list[str]:
    """Arguments of bubblewrap for a sandbox with this view."""
    mounts: dict[Path, list[str]] = {Path(path): [option, path] for path, option in OWN_FOLDERS.items()}
    if box.home != Path("/"):
        mounts[box.home] = ["--tmpfs", str(box.home)]
    for path, access in box.shown.items():
        mounts[path] = ["--bind" if access == "write" else "--ro-bind", str(path), str(path)]
    for path, kind in box.covered.items():
        empty_folder = ["--tmpfs", str(path), "--remount-ro", str(path)]
        mounts[path] = empty_folder if kind == "folder" else ["--ro-bind", os.devnull, str(path)]
    for link, target in box.links.items():
        mounts[link] = ["--symlink", target, str(link)]
    network = ["--share-net"] if box.network else []
    # A folder comes before what is in it, or it would lie over that.
    in_order = sorted(mounts, key=lambda path: len(path.parts))
    words = [word for path in in_order for word in mounts[path]]
    return [*_RIGHTS, *network, *words, "--remount-ro", "/", "--chdir", str(box.cwd)]


def comparison(box: SandboxView, loader: Mapping[str, str], *, say: str = "") -> tuple[str, ...]:
    """The words before a program that compare what was mounted with what was looked at, in the sandbox.

    bubblewrap mounts by path, and what is at a path may have been replaced meanwhile.

    Args:
        box: What was looked at.
        loader: Variables that load code. They are set after that: such code might come from what must not be
            there.
        say: What to write to stdout once all is as it should be, right before the program.

    Returns:
        The words; none where there is nothing to compare, to set or to say.

    Raises:
        FileNotFoundError: `sh` or `stat` is not there; `filename` says which.
    """
    paths = sorted(box.identities)
    if not paths and not loader and not say:
        return ()
    shell, look = _system_program("sh"), _system_program("stat")
    words = shlex.quote("fairlead: what its sandbox shows changed while it was started; start it again")
    # The paths are words of their own: in the script, they would soon make it longer than a word may be.
    compare = f"""n=$1 expected=$2; shift 2; i=1 all=
while [ $i -le $n ]; do all="$all \\"\\${{$i}}\\""; i=$((i + 1)); done
eval "found=\\$({look} -c %d:%i -- $all)"
[ "$found" = "$expected" ] || {{ echo {words} >&2; exit 1; }}
shift $n"""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in loader.items()]
    said = [f"printf %s {shlex.quote(say)}"] if say else []
    script = "\n".join([*([compare] if paths else ["shift 2"]), *exports, *said, 'exec "$@"'])
    expected = "\n".join("{}:{}".format(*box.identities[path]) for path in paths)
    return (shell, "-c", script, "sh", str(len(paths)), expected, *map(str, paths))


def find_program(name: str, path: str | None, outside: Iterable[Path]) -> str | None:
    """Find a program on a search path, but not in folders whose contents are not ours to trust.

    A `bwrap` or `rg` in a repository may have been put there by a command in the sandbox, or have come with a
    clone: with an activated environment such a folder comes first on PATH, and what is found there would run
    outside of every sandbox.

    Args:
        name: The name of the program.
        path: The search path; the system's where there is none. Relative folders in it are passed over.
        outside: The folders that neither the program nor what it is a link to may be in.
    """
    kept_out: list[str] = []
    for folder in outside:
        with suppress(OSError):  # what cannot be looked at is refused where the sandbox is made
            kept_out.append(os.path.realpath(folder))
    for folder in (path or os.defpath).split(os.pathsep):
        found = shutil.which(name, path=folder) if os.path.isabs(folder) else None
        if found is None:
            continue
        places = (os.path.realpath(os.path.dirname(found)), os.path.realpath(found))
        if not any(Path(place).is_relative_to(root) for place in places for root in kept_out if root != "/"):
            return found
    return None


def _system_program(name: str) -> str:
    found = shutil.which(name, path=_SYSTEM_PATH)
    if found is None:
        raise FileNotFoundError(None, "no such program", name)
    return found


def trouble_with(bwrap: str, *, network: bool) -> str | None:
    """Why bubblewrap cannot make a sandbox on this system; None where it can. Checked once per process."""
    try:
        _try_out(bwrap, network=network)
    except subprocess.CalledProcessError as exc:
        stderr: bytes = exc.stderr
        return stderr.decode(errors="replace").strip()[-500:] or f"it exited with code {exc.returncode}"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return None


@cache
def _try_out(bwrap: str, *, network: bool) -> None:
    everything = SandboxView(home=Path("/"), cwd=Path("/"), network=network, shown={Path("/"): "read"})
    subprocess.run(
        [bwrap, *bwrap_arguments(everything), "--", "true"],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_PROBE_SECONDS,
    )
