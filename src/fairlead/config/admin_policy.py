"""The administrator's policy: a file that says which servers and calls a machine's users may have.

It goes by what a server is (its program, its command line, its URL), never by its name, and it can only
narrow. The one of the system always counts; a variable may name a second one, which adds to it. A policy that
cannot be read or is not sound allows nothing.

```jsonc
{
  "version": 1,
  "servers": {
    "allow": [{"command": "/usr/bin/*"}, {"argv": ["npx", "-y", "@acme/*", "**"]}, {"url": "https://*.acme.example"}],
    "deny": [{"command": "docker", "reason": "containers have the machine's rights"}]
  },
  "rules": [{"action": "deny", "server": {"url": "https://crm.acme.example"}, "tool": "delete_*"}],
  "sandbox": "required",
  "trust": "untrusted",
  "approval": "ask"
}
```

What a server really is, for rules that go by that and not by its name: its programs, its URL.

Patterns are globs. What grants is compared strictly and what denies broadly, so that a look-alike is never
granted, and another spelling never escapes.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, Strict, model_validator

from fairlead.config.document import jsonc
from fairlead.config.document.files import read_text
from fairlead.config.launch import find_program
from fairlead.config.merge import STRICTNESS, ValueOrigin
from fairlead.config.models import (
    ApprovalMode,
    BuiltinServer,
    Command,
    PolicyRule,
    RemoteServer,
    Server,
    StdioServer,
    StrictModel,
    Text,
)
from fairlead.config.sources import Layer
from fairlead.config.untyped import as_object
from fairlead.config.validate import model_faults
from fairlead.errors import ConfigInvalid, ConfigUnreadable, Problem

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
class ServerTarget:
    """What a server is. A remote one may have a program too, which prints its headers."""

    program: Program | None = None
    url: str | None = None
    builtin: str | None = None
    needs_sandbox: bool = False
    """It runs a program for as long as it lives, and that has the user's rights."""


def target_of(server: Server, *, cwd: Path | None, env: Mapping[str, str]) -> ServerTarget:
    """What a server with resolved references is, as it would be started in `env`."""
    match server:
        case StdioServer():
            argv = (server.command, *server.args)
            program = _program(argv, cwd or Path.cwd(), server.env.get("PATH"), env)
            return ServerTarget(program=program, needs_sandbox=server.sandbox is None)
        case RemoteServer():
            helper = server.headers_helper
            return ServerTarget(
                url=server.url, program=_program(helper, Path.cwd(), None, env) if helper else None
            )
        case BuiltinServer():
            return ServerTarget(builtin=server.builtin)
        case _:
            return ServerTarget()


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


SYSTEM_FILE: Final = Path(
    "C:/ProgramData/fairlead/policy.json" if sys.platform == "win32" else "/etc/fairlead/policy.json"
)
VARIABLE: Final = "FAIRLEAD_POLICY_PATH"

_WHOM_TO_ASK = "ask whoever administers this machine"
_UNUSABLE = "the administrator's policy must be repaired before any server can be used"


def _url_pattern(value: str) -> str:
    if not URL_PATTERN.fullmatch(value):
        raise ValueError("must look like `https://host/path`, with `*` where anything may stand")
    return value


class ServerMatcher(StrictModel):
    """Servers, by what they are. All that is given must match."""

    command: Text | None = Field(
        default=None, description="A program: a path or glob of paths, or a bare name as it is looked up."
    )
    argv: Command | None = Field(
        default=None, description="The whole command line, word by word; `**` at the end is any rest."
    )
    url: Annotated[str, AfterValidator(_url_pattern)] | None = Field(
        default=None, description="`https://host/path`, with globs in each part."
    )
    builtin: Literal["repo", "docs"] | None = None
    reason: Text | None = Field(default=None, description="Shown to whoever is refused.")

    @model_validator(mode="after")
    def _names_one_kind(self) -> "ServerMatcher":
        kinds = [self.command or self.argv, self.url, self.builtin]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("needs `command` or `argv`, or `url`, or `builtin`: no server is two of them")
        return self


Matchers = Annotated[tuple[ServerMatcher, ...], Strict(strict=False)]


class AdminServers(StrictModel):
    """Which servers may be used."""

    allow: Matchers | None = Field(default=None, description="If given, what matches none is refused.")
    deny: Matchers = Field(default=(), description="What is refused in any case.")


class AdminRule(StrictModel):
    """A rule about calls, as in a user's `policy`, but it cannot allow and goes by what servers are."""

    action: Literal["ask", "deny"]
    server: ServerMatcher | None = Field(default=None, description="Every server if not set.")
    tool: Text | None = Field(default=None, description="Tool name or glob; every tool if not set.")
    arguments: dict[Text, Text] = Field(
        default={}, description="Argument names and globs their values must match."
    )
    reason: Text | None = Field(default=None, description="Shown to whoever is refused or asked.")


class AdminPolicy(StrictModel):
    """Everything an administrator can say."""

    version: Literal[1] = 1
    servers: AdminServers = Field(default_factory=AdminServers.model_construct)
    rules: Annotated[tuple[AdminRule, ...], Strict(strict=False)] = ()
    sandbox: Literal["required"] | None = Field(default=None, description="Programs run in a sandbox or not.")
    trust: Literal["untrusted"] | None = Field(default=None, description="Believe no configured server.")
    approval: Literal["auto", "ask", "deny"] | None = Field(
        default=None, description="The least that is asked before a call."
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdminRuling:
    """What the administrator says about one server, and where."""

    refusals: tuple[Problem, ...] = ()
    """Why it may not be used at all."""
    rules: tuple[tuple[PolicyRule, ValueOrigin], ...] = ()
    approval: tuple[ApprovalMode, ValueOrigin] | None = None
    """The least that is asked before a call."""
    distrust: ValueOrigin | None = None
    """Who says that it is not to be trusted."""


UNRULED: Final = AdminRuling()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _PolicyFile:
    layer: Layer
    policy: AdminPolicy

    def origin(self, *path: str | int) -> ValueOrigin:
        return ValueOrigin(layer=self.layer, path=path)


class AdminPolicies:
    """The administrator's policies in effect."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._files: list[_PolicyFile] = []
        self._problems: list[Problem] = []
        for path in _paths(env):
            try:
                self._files.append(_read(path))
            except ConfigInvalid as exc:
                self._problems += exc.problems
            except ConfigUnreadable as exc:
                self._problems.append(Problem(message=str(exc), hint=exc.hint or _UNUSABLE, file=str(path)))

    @property
    def exists(self) -> bool:
        """Is there any policy, sound or not?"""
        return bool(self._files or self._problems)

    @property
    def goes_by_target(self) -> bool:
        """Does it matter what a server is, so that its references must be resolved to judge it?"""
        policies = [file.policy for file in self._files]
        return any(
            policy.servers.allow is not None
            or policy.servers.deny
            or any(rule.server for rule in policy.rules)
            for policy in policies
        )

    def judge(self, server_id: str, target: ServerTarget | None) -> AdminRuling:
        """What is said about a server. No target: it is part of the program that runs, not configured."""
        if self._problems:
            return AdminRuling(refusals=tuple(self._problems))
        floors: list[tuple[ApprovalMode, ValueOrigin]] = [
            (file.policy.approval, file.origin("approval")) for file in self._files if file.policy.approval
        ]
        configured = target is not None and target.builtin is None
        distrust = (file.origin("trust") for file in self._files if file.policy.trust and configured)
        return AdminRuling(
            refusals=tuple(self._refusals(server_id, target)) if target is not None else (),
            rules=tuple(self._rules(target)),
            approval=max(floors, key=lambda floor: STRICTNESS[floor[0]], default=None),
            distrust=next(distrust, None),
        )

    def refuse_unidentified(self, server_id: str, why: str) -> AdminRuling:
        """The ruling on a server of which nobody can tell what it is."""
        message = f"server `{server_id}` cannot be held against the administrator's policy: {why}"
        return AdminRuling(refusals=(Problem(message=message, file=self._files[0].layer.label),))

    def _refusals(self, server_id: str, target: ServerTarget) -> Iterator[Problem]:
        for file in self._files:
            for path, reason in _objections(file.policy, target):
                message = f"server `{server_id}`: the administrator's policy does not allow it: {reason}"
                yield file.origin(*path).problem(message, path, hint=_WHOM_TO_ASK)

    def _rules(self, target: ServerTarget | None) -> Iterator[tuple[PolicyRule, ValueOrigin]]:
        for file in self._files:
            for index, rule in enumerate(file.policy.rules):
                if rule.server is None or (target is not None and _matches(rule.server, target)):
                    said = PolicyRule(
                        action=rule.action, tool=rule.tool, arguments=rule.arguments, reason=rule.reason
                    )
                    yield said, file.origin("rules", index)


def _objections(policy: AdminPolicy, target: ServerTarget) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, matcher in enumerate(policy.servers.deny):
        if _matches(matcher, target):
            yield ("servers", "deny", index), matcher.reason or "it is denied"
    allow = policy.servers.allow
    if allow is not None:
        for part, words in _parts(target):
            if not any(_matches(matcher, part, grants=True) for matcher in allow):
                yield ("servers", "allow"), f"{words} is not on the list"
    if policy.sandbox is not None and target.needs_sandbox:
        yield ("sandbox",), "its program must run in a sandbox; give its entry a `sandbox`"


def _parts(target: ServerTarget) -> Iterator[tuple[ServerTarget, str]]:
    """What of a server must be allowed: each thing that it runs or talks to, by itself."""
    if target.program is not None:
        yield (
            ServerTarget(program=target.program),
            "its command" if target.url is None else "its `headers_helper`",
        )
    if target.url is not None:
        yield ServerTarget(url=target.url), "its URL"
    if target.builtin is not None:
        yield ServerTarget(builtin=target.builtin), f"the built-in `{target.builtin}`"


def _matches(matcher: ServerMatcher, target: ServerTarget, *, grants: bool = False) -> bool:
    if matcher.url is not None:
        return target.url is not None and is_url_like(target.url, matcher.url, grants=grants)
    if matcher.builtin is not None:
        return target.builtin == matcher.builtin
    return target.program is not None and _runs(matcher, target.program, grants=grants)


def _runs(matcher: ServerMatcher, program: Program, *, grants: bool) -> bool:
    named = matcher.command is None or program.is_called(matcher.command, grants=grants)
    return named and (matcher.argv is None or program.is_run_as(matcher.argv, grants=grants))


def _paths(env: Mapping[str, str]) -> Iterator[Path]:
    if _is_there(SYSTEM_FILE):
        yield SYSTEM_FILE
    if named := env.get(VARIABLE):
        yield Path(named)


def _is_there(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # whoever may not even look must not take it for missing
    return True


def _read(path: Path) -> _PolicyFile:
    if not path.is_absolute():
        message = f"{VARIABLE} must be an absolute path: what `{path}` is depends on where you are"
        raise ConfigInvalid(Problem(message=message, file=str(path)))
    document = jsonc.parse(read_text(path), file=str(path))
    data = as_object(document.data)
    layer = Layer(name="admin", label=str(path), data=data, base=path.parent, path=path, document=document)
    faults = model_faults(AdminPolicy, document.data)
    if faults:
        raise ConfigInvalid(
            *(
                ValueOrigin(layer=layer, path=fault.path).problem(
                    fault.message, fault.path, hint=fault.hint or _UNUSABLE
                )
                for fault in faults
            )
        )
    return _PolicyFile(layer=layer, policy=AdminPolicy.model_validate(data))
