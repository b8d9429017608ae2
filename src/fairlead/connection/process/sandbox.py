"""The sandbox of a server process, made with bubblewrap: fewer rights than the user has.

What it sees is put together from nothing: the system's own folders, read-only; what its program needs to run;
the folder it starts in; and the paths its entry names. Home, `/tmp` and `/run` are its own and empty, so the
user's files and sockets are not there. It has no network unless the entry says so.

No link decides what is mounted, with one exception. Everything is opened component by component without
following links, but for those of the distribution (`/usr` without `/usr/local`, `/etc`, …: no sandbox may
write there) and those on the way to the home. The exception are the files that are executed: the program and
the interpreters that first lines name may be reached by links. What lies outside the program's own folder
then brings only itself, a regular executable file of root's or the user's, and where it lies in an
installation of Python or Node (`bin/python` beside `lib/python3.12`) that installation's `lib*`.

bubblewrap mounts by path, so in the sandbox, before the program starts, a shell compares what was mounted
with what was opened, by device and inode. (A descriptor per mount would do as well, but bubblewrap before
0.10 hands these on to the program, which could leave the sandbox through them.)

Of `/etc` it sees what programs need to run and nothing that only its owner may read: a sandbox of root's is
root's, too, and could read `/etc/shadow`. What else a server needs of it, `sandbox.read` names.

What stays: in the other system folders it can read what its user can. With the network it reaches
every service on this machine, too. And `npx` or `uvx` find an empty cache in an empty home: give them the
network, and a cache to keep (`write: ["~/.npm"]`, `write: ["~/.cache/uv", "~/.local/share/uv"]`).
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.bubblewrap import (
    OWN_FOLDERS,
    PROGRAM,
    Access,
    Identity,
    SandboxView,
    bwrap_arguments,
    comparison,
    find_program,
    trouble_with,
)
from fairlead.config.file_digests import shebang_words
from fairlead.connection.process.child import Command, child_environment
from fairlead.errors import ConnectFailed

_DISTRIBUTION = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"),
    *("/nix/store", "/gnu/store", "/run/current-system", "/var/lib/ca-certificates"),
)
"""Folders of the distribution's own files: links are followed there, so no sandbox may write there."""
_LOCAL = "/usr/local"
"""The exception in `/usr`: clones and hand-made installations lie there, as in `/opt`."""
_ETC = "/etc"
_SYSTEM = (*(folder for folder in _DISTRIBUTION if folder != _ETC), "/opt")
"""Folders that every sandbox shows."""
_SHOWN_OF_ETC = (
    # Names, addresses and users.
    *("hosts", "host.conf", "hostname", "nsswitch.conf", "resolv.conf", "gai.conf", "services", "protocols"),
    *("networks", "passwd", "group"),
    # Certificates, without private keys.
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust"),
    *("pki/tls/openssl.cnf", "ca-certificates", "ca-certificates.conf", "crypto-policies", "gnutls"),
    # Libraries, time and language.
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "locale.alias", "locale.conf"),
    *("mime.types", "magic", "magic.mime", "terminfo", "inputrc", "shells", "bash.bashrc", "profile"),
    # Which programs there are, and what runtimes keep there.
    *("alternatives", "static", "os-release", "lsb-release", "debian_version", "redhat-release"),
    *("alpine-release", "perl", "fonts", "chromium", "chromium.d", "xdg", "glvnd", "vulkan", "OpenCL"),
)
_SHOWN_OF_ETC_PATTERN = re.compile(r"python\d?(?:\.\d+)?|java(?:-[\w.-]+)?|ld-musl-\w+\.path|ImageMagick-\d")
_GONE = ("TMPDIR", "XDG_RUNTIME_DIR")
"""Variables of the host's that name folders which are not in the sandbox."""

_LOADER = re.compile(r"LD_\w*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_\w*")
"""Variables that can bring foreign code into any program, and so into bubblewrap itself, which is outside."""

_MAX_LINKS = 40
_INSTALLED = ("lib", "lib64", "libexec", "pyvenv.cfg")
_RUNTIME_LIBRARY = re.compile(r"(?:python|pypy)\d+\.\d+t?|node_modules")
"""What makes a `lib` the library of an installed runtime (or a virtual environment)."""
_PRIVATE = frozenset(
    {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".pki", ".gcloud", "gcloud"}
    | {".mozilla", ".thunderbird", ".netrc", ".vault", ".terraform.d", "keyrings"}
)
"""Folders of credentials: nothing in them is an interpreter."""
_TRAMPOLINE = re.compile(
    rb"#!/bin/sh\n'''exec' (?P<beside>\"\$\(dirname[^\n]*?\)\"/)?"
    rb"(?P<quote>['\"]?)(?P<path>[^'\"\n]+?)(?P=quote) "
)
"""How pip and uv start a script whose interpreter's path is too long for a first line, or relative."""
_TRAMPOLINE_BYTES = 4096
_NOT_WITHOUT = "it is not started without one"
_WITHOUT_ENTRY = ", or take `sandbox` out of the entry"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRequest:
    """The sandbox settings of an entry, with absolute paths."""

    home: Path
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    network: bool = False


def wrap_in_sandbox(server_id: str, command: Command, wanted: SandboxRequest) -> Command:
    """The command that starts a server in a sandbox. Raises `ConnectFailed` where it cannot have one."""
    bwrap = _find_bwrap(server_id, command.parent, wanted, "its entry wants a sandbox", _WITHOUT_ENTRY)
    program = _program(server_id, command)
    try:
        box = _Packing(server_id, wanted).pack(command, program)
        for argument in command.argv[1:]:
            _require_visible(server_id, box, argument)
    except OSError as exc:  # a folder was removed or replaced between two looks at it
        message = f"its files changed while its sandbox was made: {exc.strerror}"
        raise ConnectFailed(server_id, message, hint="try again") from exc
    loader = {name: value for name, value in command.env.items() if _LOADER.fullmatch(name)}
    variables = [word for name in _GONE if name not in command.env for word in ("--unsetenv", name)]
    try:
        start = (*comparison(box, loader), str(program), *command.argv[1:])
    except FileNotFoundError as exc:
        message = f"its sandbox needs `{exc.filename}`, which is not there"
        raise ConnectFailed(server_id, message, hint="install coreutils") from exc
    return replace(
        command,
        argv=(bwrap, *bwrap_arguments(box), *variables, "--", *start),
        env={name: value for name, value in command.env.items() if name not in loader},
        cwd=None,
    )


def pack_without_program(
    server_id: str, wanted: SandboxRequest, parent: Mapping[str, str]
) -> tuple[str, SandboxView]:
    """A sandbox for commands that are not known yet: the system, and the paths that are named.

    Args:
        server_id: The server that will run the commands.
        wanted: What they may read and write.
        parent: Our own environment.

    Returns:
        The path of bubblewrap, and what the commands will see.

    Raises:
        ConnectFailed: There can be no such sandbox.
    """
    bwrap = _find_bwrap(server_id, parent, wanted, "it runs commands only in a sandbox", "")
    try:
        return bwrap, _Packing(server_id, wanted).pack_named()
    except OSError as exc:
        message = f"its files changed while its sandbox was made: {exc.strerror}"
        raise ConnectFailed(server_id, message, hint="try again") from exc


def _find_bwrap(
    server_id: str, parent: Mapping[str, str], wanted: SandboxRequest, why: str, otherwise: str
) -> str:
    """The path of bubblewrap. Raises `ConnectFailed` where it is missing or does not work."""
    bwrap = find_program(PROGRAM, parent.get("PATH"), wanted.write)
    if bwrap is None:
        message = f"{why}, and bubblewrap (`{PROGRAM}`) is not installed"
        raise ConnectFailed(
            server_id, message, hint=f"install bubblewrap (Linux only){otherwise}; {_NOT_WITHOUT}"
        )
    if (trouble := trouble_with(bwrap, network=wanted.network)) is not None:
        hint = (
            "let users make namespaces (`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu an AppArmor "
            f"profile for `{PROGRAM}`, in a container its seccomp profile); {_NOT_WITHOUT}"
        )
        message = f"{why}, and bubblewrap does not work here: {trouble}"
        raise ConnectFailed(server_id, message, hint=hint)
    return bwrap


def paths_brought(server_id: str, command: Command, wanted: SandboxRequest) -> tuple[Path, ...]:
    """Paths that a program's sandbox shows though its entry does not name them, for the user to see.

    Raises `ConnectFailed` where it could not be started.
    """
    return _Packing(server_id, wanted).pack(command, _program(server_id, command)).brought


# What has to be in the box.


class _LinkMet(Exception):
    """A link that is not followed lies on the way."""

    def __init__(self, link: Path, target: str, *, is_last: bool) -> None:
        super().__init__(str(link))
        self.link = link
        self.target = target
        self.is_last = is_last


class _Packing:
    """Builds the file system of a sandbox."""

    def __init__(self, server_id: str, wanted: SandboxRequest) -> None:
        self._server_id = server_id
        self._wanted = wanted
        self._home = Path(os.path.realpath(wanted.home))
        self._home_links = dict(_links(wanted.home))
        self._links = dict(self._home_links)
        self._shown: dict[Path, Access] = {}
        self._identities: dict[Path, Identity] = {}

    def pack_named(self) -> SandboxView:
        """The file system with the system's own folders and the named paths, and no program."""
        self._show_system_and_named()
        return self._view(self._home, ())

    def _show_system_and_named(self) -> None:
        for folder in (*_SYSTEM, *_list_etc_binds()):
            if not os.path.exists(folder):
                continue
            real = Path(os.path.realpath(folder))
            self._links.update(_links(Path(folder)))
            if not self._sees(real):
                self._shown[real] = "read"
        for path in self._wanted.read:
            self._show_named("read", path)
        for path in self._wanted.write:
            self._show_named("write", path)

    def pack(self, command: Command, program: Path) -> SandboxView:
        """The file system for a command."""
        self._show_system_and_named()
        cwd = self._working_folder(command)
        if cwd != self._home:
            self._show_plain(cwd)
        named = set(self._shown)
        self._show_program(program, child_environment(command.env, command.parent).get("PATH"))
        return self._view(cwd, tuple(sorted(self._shown.keys() - named)))

    def _view(self, cwd: Path, brought: tuple[Path, ...]) -> SandboxView:
        outside = {
            link: target
            for link, target in self._links.items()
            if not any(parent in self._shown for parent in link.parents)
        }
        return SandboxView(
            home=self._home,
            cwd=cwd,
            network=self._wanted.network,
            shown=self._shown,
            links=outside,
            identities=self._identities,
            brought=brought,
        )

    def _sees(self, real: Path) -> bool:
        return SandboxView(home=self._home, cwd=self._home, network=False, shown=self._shown).sees(real)

    def _show_named(self, access: Access, path: Path) -> None:
        """Show a path that the entry names, once it is known to be there, no link, and not everything."""
        named = f"`sandbox.{access}` names {path}"
        if not os.path.exists(path):
            message = f"{named}, which is not there"
            raise ConnectFailed(self._server_id, message, hint="make it, or leave it out")
        if self._home.is_relative_to(os.path.realpath(path)):
            message = f"{named}, and that would open the whole home"
            raise ConnectFailed(self._server_id, message, hint="name the folders it needs")
        real, identity = self._open_or_fail(path, named)
        if real.parts[1:2] in (("proc",), ("sys",)) or (access == "write" and _holds_distribution(real)):
            message = f"{named}, which is of the system's own and not to be shared"
            raise ConnectFailed(self._server_id, message, hint="name the folders it needs")
        self._links.update(_links(path))
        self._shown[real] = access
        self._identities[real] = identity

    def _working_folder(self, command: Command) -> Path:
        """The working folder: that of the entry, or the sandbox's own empty home."""
        if command.cwd is None:
            return self._home  # where the user happens to be is nothing that the entry names
        if not os.path.isdir(command.cwd):
            message = f"there is no folder {command.cwd}"
            raise ConnectFailed(self._server_id, message, hint="check `cwd`")
        if self._home.is_relative_to(os.path.realpath(command.cwd)):
            return self._home
        real, _ = self._open_or_fail(command.cwd.absolute(), f"its `cwd` is {command.cwd}")
        self._links.update(_links(command.cwd))
        return real

    def _open_or_fail(self, path: Path, what: str) -> tuple[Path, Identity]:
        try:
            real, status = self._open(path)
        except _LinkMet as met:
            message = f"{what}, and {met.link} is a link, which could lead elsewhere at the next start"
            hint = f"if it is to lead to {os.path.realpath(path)}, name that; else remove the link"
            raise ConnectFailed(self._server_id, message, hint=hint) from None
        except OSError as exc:
            message = f"{what}, which cannot be opened: {exc.strerror}"
            raise ConnectFailed(self._server_id, message, hint="check its permissions") from exc
        return real, (status.st_dev, status.st_ino)

    def _show_plain(self, path: Path) -> None:
        """Show something to be read if it is there. A link is shown as a link, with nothing behind it."""
        try:
            real, status = self._open(path)
        except _LinkMet as met:
            if met.is_last:
                self._links[met.link] = met.target
            return
        except OSError:
            return
        # A program that lies in the home does not bring all of it.
        if not self._home.is_relative_to(real):
            self._show_opened(real, status)

    def _show_opened(self, real: Path, status: os.stat_result) -> None:
        if not self._sees(real):
            self._shown[real] = "read"
            self._identities[real] = (status.st_dev, status.st_ino)

    def _show_program(self, program: Path, search: str | None) -> None:
        """Show what a program needs to run: its folder, libraries beside that, packages, interpreters."""
        self._show_plain(program.parent)
        self._show_plain(program)
        if program.parent.name == "bin":
            self._show_libraries(program.parent.parent)
        if "node_modules" in program.parts:
            self._show_plain(Path(*program.parts[: program.parts.index("node_modules") + 1]))
        pending, seen = [program], set[Path]()
        while pending and len(seen) < _MAX_LINKS:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            real = Path(os.path.realpath(path))
            self._require_not_planted(real, [link for link, _ in _links(path)])
            self._links.update(_links(path))
            self._show_executable(path, real)
            for interpreter in _interpreters(real, search):
                self._require_not_planted(Path(os.path.realpath(interpreter)), [real])
                pending.append(interpreter)

    def _show_executable(self, path: Path, real: Path) -> None:
        """Show a file that is executed, wherever it lies, and the library of the installation it is in."""
        if not self._sees(real):
            self._show_opened(real, self._executable(path, real))
        # In a virtual environment `bin/python` is a link: its library is there, and that of the target, too.
        for each in dict.fromkeys((path, real)):
            if each.parent.name == "bin" and self._is_installation(each.parent.parent):
                self._show_libraries(each.parent.parent)

    def _executable(self, path: Path, real: Path) -> os.stat_result:
        """The file behind the links to a program: it must be an executable, and no file of secrets."""
        try:
            _, status = self._open(real)
        except (_LinkMet, OSError) as exc:
            message = f"{path} leads to {real}, which cannot be opened"
            raise ConnectFailed(self._server_id, message, hint="start it again") from exc
        is_program = stat.S_ISREG(status.st_mode) and status.st_mode & 0o111
        is_private = not _PRIVATE.isdisjoint(real.parts)
        if not is_program or is_private or status.st_uid not in (0, os.geteuid()):
            message = f"{path} leads to {real}, which is no program that a sandbox shows unasked"
            hint = f"name {real} in `sandbox.read` if it is to be seen"
            raise ConnectFailed(self._server_id, message, hint=hint)
        return status

    def _is_installation(self, prefix: Path) -> bool:
        """Whether this is an installation of Python or Node, or a virtual environment; links do not count."""
        try:
            library, _ = self._open(prefix / "lib")
            with os.scandir(library) as entries:
                return any(
                    _RUNTIME_LIBRARY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                    for entry in entries
                )
        except (_LinkMet, OSError):
            return False

    def _show_libraries(self, prefix: Path) -> None:
        if self._home.is_relative_to(os.path.realpath(prefix)):
            return  # `~/lib` may be anything
        for name in _INSTALLED:
            self._show_plain(prefix / name)

    def _require_not_planted(self, real: Path, deciding: Sequence[Path]) -> None:
        """Refuse to show a program because something says so that the server itself can write.

        Else it could put a link or a first line there which names a file of the user's for its next start.
        """
        if self._sees(real):
            return
        writable = [path for path, access in self._shown.items() if access == "write"]
        for place in deciding:
            if any(Path(os.path.realpath(place.parent)).is_relative_to(folder) for folder in writable):
                message = f"{place} has it run {real}, and it can write to {place} itself"
                hint = f"name {real.parent} in `sandbox.read`, or do not let it write to {place.parent}"
                raise ConnectFailed(self._server_id, message, hint=hint)

    def _open(self, path: Path) -> tuple[Path, os.stat_result]:
        """Go to a path without following links, but for the distribution's. Raises `_LinkMet` or `OSError`.

        Returns where it really is, and what is there.
        """
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        here, rest, followed = Path("/"), list(path.absolute().parts[1:]), 0
        place = os.open("/", flags)
        of_root = True  # every folder on the way is root's, and no other's to write
        try:
            while rest:
                step = rest.pop(0)
                found = os.open(step, flags, dir_fd=place)
                status = os.fstat(found)
                of_root = of_root and status.st_uid == 0
                if not stat.S_ISLNK(status.st_mode):
                    of_root = of_root and not status.st_mode & 0o022
                    os.close(place)
                    place, here = found, here.parent if step == ".." else here / step
                    continue
                target = os.readlink("", dir_fd=found)
                os.close(found)
                followed += 1
                if followed > _MAX_LINKS or not self._is_trusted(here / step, of_root=of_root):
                    raise _LinkMet(here / step, target, is_last=not rest)
                parts = Path(target).parts
                if target.startswith("/"):
                    os.close(place)
                    place, here, parts, of_root = os.open("/", flags), Path("/"), parts[1:], True
                rest = [*parts, *rest]
            status = os.fstat(place)
        finally:
            os.close(place)
        return here, status

    def _is_trusted(self, link: Path, *, of_root: bool) -> bool:
        """Whether neither a repository nor a server in a sandbox can have made a link.

        Its owner does not say that: a clone below `/opt` is root's, and where the user is root everything is.
        """
        if link in self._home_links or link.parent == Path("/"):
            return True
        return of_root and _is_distribution(link)


def _list_etc_binds() -> Iterator[str]:
    """The files of `/etc` in every sandbox: those that programs need and any user may read."""
    try:
        matching = [name for name in os.listdir(_ETC) if _SHOWN_OF_ETC_PATTERN.fullmatch(name)]
    except OSError:
        return
    for name in (*_SHOWN_OF_ETC, *sorted(matching)):
        path = os.path.join(_ETC, name)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # it is not there, or leads nowhere
        needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if mode & needed == needed and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            yield path


def _is_distribution(path: Path) -> bool:
    return not path.is_relative_to(_LOCAL) and any(path.is_relative_to(folder) for folder in _DISTRIBUTION)


def _holds_distribution(real: Path) -> bool:
    """Whether a writable path contains, or is inside, a folder of the distribution."""
    folders = [Path(os.path.realpath(folder)) for folder in _DISTRIBUTION if os.path.exists(folder)]
    return _is_distribution(real) or any(folder.is_relative_to(real) for folder in folders)


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


def _require_visible(server_id: str, box: SandboxView, argument: str) -> None:
    """Say at once what the server would only say in its own words: that something is not there."""
    if not argument.startswith("/") or "\0" in argument or not os.path.exists(argument):
        return
    real = Path(os.path.realpath(argument))
    there = box.sees(real) or real in (Path("/"), box.home, *map(Path, OWN_FOLDERS))
    if not there and real.parts[1] not in ("dev", "proc"):
        message = f"its arguments name {argument}, which is not in its sandbox"
        raise ConnectFailed(server_id, message, hint="name it in `sandbox.read` or `sandbox.write`")


def _interpreters(script: Path, search: str | None) -> Iterator[Path]:
    """The programs that run a script, by its first line. What cannot be executed is none."""
    words = shebang_words(script)
    if len(words) > 1 and words[0].endswith("/env"):
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(names[0], path=search) if names else None
    else:
        found = shutil.which(words[0]) if words and words[0].startswith("/") else None
    if found is not None:
        yield Path(found).absolute()
    if words == ["/bin/sh"]:
        with open(script, "rb") as file:
            start = _TRAMPOLINE.match(file.read(_TRAMPOLINE_BYTES))
        if start is not None:
            named = os.fsdecode(start["path"])
            path = script.parent / named if start["beside"] else Path(named)
            if path.is_absolute() and shutil.which(str(path)):
                yield path


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
