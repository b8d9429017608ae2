"""What a server really is, for rules that go by that and not by its name: its programs, its URL.

Patterns are globs. What grants is compared strictly and what denies broadly, so that a look-alike is never
granted, and another spelling never escapes.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fairlead.config.launch import find_program
from fairlead.config.models import BuiltinServer, RemoteServer, Server, StdioServer

URL_PATTERN = re.compile(
    r"(?P<scheme>[A-Za-z*]+)://(?P<host>\[[0-9A-Fa-f:*]+\]|[^/:@?#\[\]\\\s]+)(?::(?P<port>\d+|\*))?(?P<path>/\S*)?"
)
REST = "**"
"""As the last pattern of an argv: any further arguments, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program that a server's entry has run, with its arguments."""

    argv: tuple[str, ...]
    found: str | None
    """The path that would be executed; None where there is no such program."""
    search_is_declared: bool
    """The entry itself says where programs are looked for, so a bare name may be anybody's."""

    def is_called(self, pattern: str, *, grants: bool) -> bool:
        """Does a pattern name this program?

        To grant, a path must fit the very path that would be executed, without `..` in it, and a bare name
        stands for what the user's own search path finds under that name: `./npx` is not `npx`. To deny, any
        way to spell the program will do, links followed or not.
        """
        written, is_path = self.argv[0], _is_path(pattern)
        if grants and is_path:
            return (
                self.found is not None and ".." not in Path(self.found).parts and _fits(self.found, pattern)
            )
        if grants:
            known = self.found is not None and not self.search_is_declared and not _is_path(written)
            return known and _fits(written, pattern)
        spellings = {written}
        if self.found is not None:
            spellings |= {self.found, os.path.normpath(self.found), os.path.realpath(self.found)}
        return any(_fits(name if is_path else os.path.basename(name), pattern) for name in spellings)

    def is_run_as(self, patterns: Sequence[str], *, grants: bool) -> bool:
        """Do patterns fit the whole command line, word by word?"""
        first, *rest = patterns
        arguments = self.argv[1:]
        if rest[-1:] == [REST]:
            rest.pop()
            arguments = arguments[: len(rest)]
        fitting = len(arguments) == len(rest) and all(map(_fits, arguments, rest))
        return fitting and self.is_called(first, grants=grants)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a server is. A remote one may have a program too, which prints its headers."""

    program: Program | None = None
    url: str | None = None
    builtin: str | None = None
    needs_sandbox: bool = False
    """It runs a program for as long as it lives, and that has the user's rights."""


def target_of(server: Server, *, cwd: Path | None, env: Mapping[str, str]) -> Target:
    """What a server with resolved references is, as it would be started in `env`."""
    match server:
        case StdioServer():
            argv = (server.command, *server.args)
            program = _program(argv, cwd or Path.cwd(), server.env.get("PATH"), env)
            return Target(program=program, needs_sandbox=server.sandbox is None)
        case RemoteServer():
            helper = server.headers_helper
            return Target(url=server.url, program=_program(helper, Path.cwd(), None, env) if helper else None)
        case BuiltinServer():
            return Target(builtin=server.builtin)
        case _:
            return Target()


def is_url_like(url: str, pattern: str, *, grants: bool) -> bool:
    """Does a pattern fit a URL, part by part? Neither a user name nor a path can stand in for the host.

    It is read by the parser that also dials it. No port means the scheme's own, no path (or `/`) any path.
    """
    from yarl import URL  # a file without such patterns need not load it

    wanted = URL_PATTERN.fullmatch(pattern)
    assert wanted is not None, "checked when the policy was read"
    try:
        parsed = URL(url)
        hosts = {name.rstrip(".").lower() for name in (parsed.host, parsed.raw_host) if name}
        port = parsed.port
    except ValueError:
        return not grants  # nobody can dial it, and nobody shall say that it is fine
    by_default = {"http": 80, "https": 443}.get(parsed.scheme)
    wanted_port = wanted["port"] or str(by_default)
    path = wanted["path"] or "/"
    return (
        _fits(parsed.scheme, wanted["scheme"].lower())
        and any(_fits(host, wanted["host"].strip("[]").lower()) for host in hosts)
        and wanted_port in ("*", str(port))
        and (path == "/" or _has_path(parsed.raw_path, parsed.path, path, grants=grants))
    )


def _has_path(raw: str, decoded: str, pattern: str, *, grants: bool) -> bool:
    if grants:
        return _fits(raw, pattern) and ".." not in decoded.split("/")
    return _fits(raw, pattern) or _fits(decoded, pattern)


def _program(argv: tuple[str, ...], folder: Path, declared: str | None, env: Mapping[str, str]) -> Program:
    search = env.get("PATH", os.defpath) if declared is None else declared
    found = find_program(argv[0], folder, search)
    return Program(argv=argv, found=found, search_is_declared=declared is not None)


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name


def _fits(text: str, pattern: str) -> bool:
    return text == pattern or fnmatchcase(text, pattern)
