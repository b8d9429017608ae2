"""The administrator's policy: a file that restricts the servers and calls of a machine's users.

It matches a server's target (program, command line, URL), never its name, and can only narrow. The system's
file always counts; a variable may name a second one, which adds to it. A policy that is unreadable or invalid
allows nothing.

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

Patterns are globs. A grant is compared strictly and a denial broadly, so that a look-alike is never granted
and another spelling never escapes.
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
from fairlead.config.field_types import Command, StrictModel, Text
from fairlead.config.launch import find_program
from fairlead.config.merge import STRICTNESS, ValueOrigin
from fairlead.config.models import (
    ApprovalMode,
    BuiltinName,
    BuiltinServer,
    ExtensionServer,
    PolicyRule,
    RemoteServer,
    Server,
    StdioServer,
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
    """A program that a server's entry runs, with its arguments."""

    argv: tuple[str, ...]
    found: str | None
    """Path that would be executed; None where there is no such program."""
    search_is_declared: bool
    """Whether the entry itself sets the search path, so that a bare name may be any program."""

    def is_called(self, pattern: str, *, grants: bool) -> bool:
        """Whether a pattern names this program.

        To grant, a path must match the very path that would be executed, without `..` in it, and a bare name
        means what the user's own search path finds: `./npx` is not `npx`. To deny, any spelling of the
        program matches, links followed or not.
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
        """Whether patterns match the whole command line, word by word."""
        first, *rest = patterns
        arguments = self.argv[1:]
        if rest[-1:] == [REST]:
            rest.pop()
            arguments = arguments[: len(rest)]
        fitting = len(arguments) == len(rest) and all(map(_fits, arguments, rest))
        return fitting and self.is_called(first, grants=grants)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTarget:
    """Target of a server: programs and URL. A remote one may have a program too, for its headers."""

    program: Program | None = None
    url: str | None = None
    builtin: str | None = None
    needs_sandbox: bool = False
    """Whether it runs a program for as long as it lives, with the user's rights."""


def target_of(server: Server, *, cwd: Path | None, env: Mapping[str, str]) -> ServerTarget:
    """Target of a server with resolved references, as it would be started in `env`."""
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
        case ExtensionServer():
            # The program that its files are for: an administrator who lists programs has not listed this.
            program = _program((sys.executable, server.extension), cwd or Path.cwd(), None, env)
            return ServerTarget(program=program, needs_sandbox=server.sandbox is None)
        case BuiltinServer():
            return ServerTarget(builtin=server.builtin)
        case _:
            return ServerTarget()


def is_url_like(url: str, pattern: str, *, grants: bool) -> bool:
    """Whether a pattern matches a URL, part by part: neither a user name nor a path can pass for the host.

    Parsed by the parser that also dials it. No port means the scheme's own, no path (or `/`) any path.
    """
    from yarl import URL  # a file without such patterns need not load it

    wanted = URL_PATTERN.fullmatch(pattern)
    assert wanted is not None, "checked when the policy was read"
    try:
        parsed = URL(url)
        hosts = {name.rstrip(".").lower() for name in (parsed.host, parsed.raw_host) if name}
        port = parsed.port
    except ValueError:
        return not grants  # it cannot be dialed, so it is never granted
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
POLICY_VARIABLE: Final = "FAIRLEAD_POLICY_PATH"

_WHOM_TO_ASK = "ask the administrator of this machine"
_UNUSABLE = "the administrator's policy must be repaired before any server can be used"


def _url_pattern(value: str) -> str:
    if not URL_PATTERN.fullmatch(value):
        raise ValueError("must look like `https://host/path`, with `*` as a wildcard")
    return value


class ServerMatcher(StrictModel):
    """Servers matched by target. Every given field must match."""

    command: Text | None = Field(
        default=None, description="A program: a path or glob of paths, or a bare name as it is looked up."
    )
    argv: Command | None = Field(
        default=None, description="The whole command line, word by word; `**` at the end is any rest."
    )
    url: Annotated[str, AfterValidator(_url_pattern)] | None = Field(
        default=None, description="`https://host/path`, with globs in each part."
    )
    builtin: BuiltinName | None = None
    reason: Text | None = Field(default=None, description="Shown with the refusal.")

    @model_validator(mode="after")
    def _names_one_kind(self) -> "ServerMatcher":
        kinds = [self.command or self.argv, self.url, self.builtin]
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("needs `command` or `argv`, or `url`, or `builtin`: no server is two of them")
        return self


Matchers = Annotated[tuple[ServerMatcher, ...], Strict(strict=False)]


class AdminServers(StrictModel):
    """Allowlist and denylist of servers."""

    allow: Matchers | None = Field(default=None, description="If given, any other server is refused.")
    deny: Matchers = Field(default=(), description="Servers that are always refused.")


class AdminRule(StrictModel):
    """Rule about calls, as in a user's `policy`, but it cannot allow and matches servers by target."""

    action: Literal["ask", "deny"]
    server: ServerMatcher | None = Field(default=None, description="Every server if not set.")
    tool: Text | None = Field(default=None, description="Tool name or glob; every tool if not set.")
    arguments: dict[Text, Text] = Field(
        default={}, description="Argument names and globs their values must match."
    )
    reason: Text | None = Field(default=None, description="Shown with a refusal or an approval request.")


class AdminPolicy(StrictModel):
    """Document of an administrator's policy."""

    version: Literal[1] = 1
    servers: AdminServers = Field(default_factory=AdminServers.model_construct)
    rules: Annotated[tuple[AdminRule, ...], Strict(strict=False)] = ()
    sandbox: Literal["required"] | None = Field(default=None, description="Run programs only in a sandbox.")
    trust: Literal["untrusted"] | None = Field(default=None, description="Treat every server as untrusted.")
    approval: Literal["auto", "ask", "deny"] | None = Field(
        default=None, description="The minimum approval mode of calls."
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdminRuling:
    """The administrator's ruling about one server, and its origin."""

    refusals: tuple[Problem, ...] = ()
    """Why it may not be used at all."""
    rules: tuple[tuple[PolicyRule, ValueOrigin], ...] = ()
    approval: tuple[ApprovalMode, ValueOrigin] | None = None
    """Minimum approval mode of its calls."""
    distrust: ValueOrigin | None = None
    """Origin of the ruling that it is untrusted."""


UNRULED: Final = AdminRuling()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _PolicyFile:
    layer: Layer
    policy: AdminPolicy

    def origin(self, *path: str | int) -> ValueOrigin:
        return ValueOrigin(layer=self.layer, path=path)


class AdminPolicies:
    """All administrator's policies in effect."""

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
        """Whether there is any policy, valid or not."""
        return bool(self._files or self._problems)

    @property
    def goes_by_target(self) -> bool:
        """Whether the target of servers matters, so that their references must be resolved to judge them."""
        policies = [file.policy for file in self._files]
        return any(
            policy.servers.allow is not None
            or policy.servers.deny
            or any(rule.server for rule in policy.rules)
            for policy in policies
        )

    def judge(self, server_id: str, target: ServerTarget | None) -> AdminRuling:
        """Ruling about a server. Without a target it is part of the running program, not configured."""
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
        """Ruling about a server whose target is unknown."""
        message = f"server `{server_id}` cannot be checked against the administrator's policy: {why}"
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
                    written = PolicyRule(
                        action=rule.action, tool=rule.tool, arguments=rule.arguments, reason=rule.reason
                    )
                    yield written, file.origin("rules", index)


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
    """Parts of a server that must each be allowed: every program it runs and URL it contacts."""
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
    if named := env.get(POLICY_VARIABLE):
        yield Path(named)


def _is_there(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # without permission to look it must not count as missing
    return True


def _read(path: Path) -> _PolicyFile:
    if not path.is_absolute():
        message = f"{POLICY_VARIABLE} must be an absolute path: `{path}` depends on the current folder"
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
