"""Loading of the effective configuration: all layers merged and validated, with the origin of every value."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from fairlead.bounded_repr import count as count_of
from fairlead.bounded_repr import names
from fairlead.config.admin_policy import UNRULED, AdminPolicies, AdminRuling, ServerTarget, target_of
from fairlead.config.argument_types import check_types
from fairlead.config.command_lines import command_line
from fairlead.config.consent import (
    Consent,
    ConsentKey,
    consent_to,
    extension_folder,
    needs_consent,
    with_bound_values,
    working_folder,
)
from fairlead.config.extension_files import ExtensionFolder, extension_stamp
from fairlead.config.merge import LayerPart, MergedConfig, ServerDefinition, ValueOrigin, merge
from fairlead.config.models import ApprovalMode, Bundle, Config, PolicyRule, Server, transport_of
from fairlead.config.paths import current_folder, expand_home
from fairlead.config.principal import GROUP, GroupedPrincipal
from fairlead.config.problems import find_problems, find_replaced_problems, locate_fault
from fairlead.config.secrets.redaction import redact_entry, redact_url
from fairlead.config.secrets.references import has_references, resolve_all
from fairlead.config.sources import Layer, LayerName, place_of, read_layers, read_scope, workspace
from fairlead.config.untyped import as_list, as_object, is_list
from fairlead.config.validate import check, suggestion
from fairlead.errors import ConfigInvalid, Problem, SecretUnavailable, UnknownBundle, UnknownServer

Scope = Literal["effective", "project", "user"]

IDENTITY = ("command", "args", "cwd", "extension", "url", "headers_helper")
"""Fields that define a server's target, besides the search path in its `env`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoadedRule:
    """Rule about calls, with its origin."""

    rule: PolicyRule
    origin: ValueOrigin | None
    issuer: str | None = None
    """The gateway's OAuth issuer, whose subjects an allowing rule may name without their prefix."""

    def is_for(self, caller: GroupedPrincipal) -> bool:
        """Whether the rule applies to calls of this caller.

        A rule that names a group applies only to members of it, for every action: a caller without groups,
        such as the local user, is a member of none. A subject without its prefix (`ada@example.org`) narrows
        for the subjects of every issuer, and allows for those of the configured one.
        """
        name = self.rule.principal
        if name is None or caller.is_named(name):
            return True
        if self.rule.action != "allow":
            return caller.may_be_named(name)
        return caller.is_subject(name, self.issuer)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class LoadedServer:
    """One configured server: valid, or with the problems of its entry."""

    server_id: str
    """The id of the server."""
    definition: ServerDefinition
    """Its entry, layer by layer."""
    config: Server | None
    """The effective entry; None where it has errors."""
    problems: tuple[Problem, ...]
    """The problems of its entry."""
    rules: tuple[LoadedRule, ...] = ()
    """Rules of `policy` about this server."""
    approval: ApprovalMode | None = None
    """`policy.approval`, for servers without a mode of their own."""
    ruling: AdminRuling = UNRULED
    """The administrator's ruling about it."""
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Environment it was loaded in."""
    workspace: Path = field(default_factory=Path.cwd)
    """Workspace it was loaded in: the root of a built-in server that names none."""
    files_stamp: str = field(init=False, repr=False)
    """What changes when a file of an extension does; empty for other servers."""
    has_references: bool = field(init=False, repr=False)
    """Whether there is anything to resolve. Computed once: every start asks several times."""

    def __post_init__(self) -> None:
        """Look for references, and at the files of an extension."""
        object.__setattr__(self, "has_references", has_references(self.entry))
        folder = self.extension_path
        object.__setattr__(self, "files_stamp", extension_stamp(folder) if folder else "")

    def __repr__(self) -> str:
        state = "enabled" if self.enabled else "disabled"
        faults = f", {count_of(len(self.problems), 'problem')}" if self.problems else ""
        return (
            f"LoadedServer({self.server_id}: {self.transport or 'invalid'}, {self.source}, {state}{faults})"
        )

    @property
    def admin_rules(self) -> tuple[LoadedRule, ...]:
        """The administrator's rules about its tools. They ask or deny."""
        return tuple(LoadedRule(rule=rule, origin=origin) for rule, origin in self.ruling.rules)

    @property
    def admin_approval(self) -> ApprovalMode | None:
        """The administrator's minimum approval mode."""
        return self.ruling.approval[0] if self.ruling.approval else None

    @property
    def enable_hint(self) -> str:
        """Hint that enables a disabled server."""
        if self.is_built_in and self.server_id == "repo":
            # Disabled because of its folder, which `enable` does not change.
            return "run it inside a repository, or `fairlead add files --builtin repo --root FOLDER`"
        return f"run `{command_line('enable', self.server_id)}`"

    @property
    def entry(self) -> dict[str, Any]:
        """Merged entry as written, references unexpanded."""
        return as_object(self.definition.entry)

    @property
    def transport(self) -> str | None:
        """Transport, such as `stdio`; None for an invalid entry."""
        return transport_of(self.entry)

    @property
    def source(self) -> LayerName:
        """Layer with the target of this server."""
        return self.definition.source.name

    @property
    def is_built_in(self) -> bool:
        """Whether it is there without any configuration."""
        return self.source == "builtin"

    @property
    def enabled(self) -> bool:
        """Whether it is enabled. It may still be unusable."""
        return self.entry.get("enabled", True) is not False

    @property
    def usable(self) -> bool:
        """Whether it is enabled and its entry is valid."""
        return (
            self.enabled and self.config is not None and not any(p.severity == "error" for p in self.problems)
        )

    @property
    def target(self) -> str:
        """Command or URL, safe to print."""
        shown = redact_entry(self.entry)
        if "command" in shown:
            return " ".join(map(str, [shown["command"], *as_list(shown.get("args"))]))
        url = self.entry.get("url")
        if isinstance(url, str):
            return redact_url(url)
        return str(shown.get("extension") or self.entry.get("builtin", ""))

    @property
    def needs_consent(self) -> bool:
        """Whether the user must consent to it, because a project file describes it."""
        return needs_consent(self.definition)

    @property
    def consent(self) -> ConsentKey | None:
        """Consent that it needs before it may start; None where it is the user's own.

        Reads the files that would be executed, and so is not for the event loop.
        """
        if not self.needs_consent:
            return None
        return consent_to(self.definition, with_bound_values(self.definition, self.env), self.env).key

    def consent_to(self, resolved: Server, env: Mapping[str, str]) -> Consent | None:
        """Describe what the user has to consent to before the server starts.

        Args:
            resolved: Its configuration, as `resolve` returns it.
            env: Environment variables that it is started with.

        Returns:
            The consent for exactly these values, or None where it is the user's own server.
        """
        if not self.needs_consent:
            return None
        entry = resolved.model_dump(mode="json", exclude_unset=True)
        return consent_to(self.definition, entry, env)

    def resolve(self, env: Mapping[str, str]) -> Server:
        """Resolve its configuration: every reference is replaced by its secret. Never print the result.

        Args:
            env: Environment variables that references may name.

        Returns:
            The configuration with the values in place.

        Raises:
            ConfigInvalid: The entry is not valid, or the administrator's policy refuses it.
            SecretUnavailable: A variable, file or keyring entry is not there.
        """
        if self.config is None:
            raise ConfigInvalid(*self.problems)
        resolved = self._resolve_config(self.config, env) if self.has_references else self.config
        # Once more: files and variables may have changed since, and so may the administrator's policy.
        ruling = _rule_on(AdminPolicies(env), self, resolved, env)
        if ruling.refusals:
            raise ConfigInvalid(*ruling.refusals)
        return _apply_distrust(resolved, ruling)

    def _resolve_config(self, config: Server, env: Mapping[str, str]) -> Server:
        fields = {name: self._resolve_field(name, value, env) for name, value in self.entry.items()}
        checked = check({"servers": {self.server_id: config.model_dump(exclude_unset=True) | fields}})
        if checked.faults:
            located = (
                locate_fault(fault, self.definition.origin(fault.path[2:])) for fault in checked.faults
            )
            raise ConfigInvalid(*located)
        return checked.config.servers[self.server_id]

    def _resolve_field(self, name: str, value: object, env: Mapping[str, str]) -> Any:  # noqa: ANN401 - any field
        base = self.definition.origin((name,)).layer.base
        try:
            return resolve_all(value, env=env, base=base, path=name)
        except SecretUnavailable as exc:
            raise SecretUnavailable(f"server `{self.server_id}`: {exc}", hint=exc.hint) from exc

    def resolve_target(self, config: Server, env: Mapping[str, str]) -> Server:
        """Resolve only the references that say which program or URL it is.

        Args:
            config: Its configuration.
            env: Environment variables that references may name.

        Returns:
            A copy with those values in place.
        """
        fields = {
            name: self._resolve_field(name, getattr(config, name), env)
            for name in IDENTITY
            if self.entry.get(name) is not None
        }
        variables: dict[str, str] = getattr(config, "env", {})
        if "PATH" in variables:
            fields["env"] = variables | self._resolve_field("env", {"PATH": variables["PATH"]}, env)
        as_tuples = {name: tuple(value) if is_list(value) else value for name, value in fields.items()}
        return config.model_copy(update=as_tuples)

    @property
    def extension_path(self) -> Path | None:
        """The folder of an extension; None for other servers, and where a reference has to be resolved."""
        named = self.entry.get("extension")
        if not isinstance(named, str) or "${" in named:
            return None
        return self.definition.origin(("extension",)).layer.base / expand_home(named)

    @property
    def own_extension(self) -> Path | None:
        """The folder of an extension that runs without consent, references resolved; else None."""
        if "extension" not in self.entry or self.needs_consent:
            return None
        named = with_bound_values(self.definition, self.env).get("extension")
        if not isinstance(named, str) or "${" in named:
            return None
        return self.definition.origin(("extension",)).layer.base / expand_home(named)

    def extension_folder(self, resolved: Server) -> ExtensionFolder | None:
        """Read the files of an extension, for what `resolve` returned; None for other servers."""
        return extension_folder(self.definition, resolved.model_dump(mode="json", exclude_unset=True))

    def root_folders(self) -> tuple[Path, ...]:
        """Folders that its `roots` name, relative to the file of the entry."""
        base = self.definition.origin(("roots",)).layer.base
        roots = self.config.roots if self.config else ()
        return tuple((base / expand_home(root)).absolute() for root in roots)

    def builtin_roots(self) -> tuple[Path, ...]:
        """Folders of a built-in server: its `roots`, else its project's folder, else the workspace."""
        source = self.definition.source
        default = source.base if source.name in ("builtin", "project") else self.workspace
        return self.root_folders() or (default,)

    def working_folder(self, resolved: Server) -> Path | None:
        """Tell the working directory of its process.

        Args:
            resolved: Its configuration, as `resolve` returns it.

        Returns:
            `cwd`, else the folder of its project, else None: the current one.
        """
        return working_folder(self.definition, getattr(resolved, "cwd", None))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class LoadedConfig:
    """Effective configuration, the origin of each value, and the problems of the rest."""

    config: Config
    """The effective settings, without servers that have problems."""
    servers: dict[str, LoadedServer]
    """All servers by id, those with problems too."""
    problems: tuple[Problem, ...]
    """Problems that belong to no server."""
    merged: MergedConfig
    """The layers that it was made of, with the origin of each value."""
    rules: tuple[LoadedRule, ...] = ()
    """Rules of `policy`."""

    def __repr__(self) -> str:
        servers = f"servers: {names(self.servers)}" if self.servers else "no servers"
        faults = f"; {count_of(len(self.problems), 'problem')}" if self.problems else ""
        return f"LoadedConfig({servers}{faults})"

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Layers that were read, low to high."""
        return tuple(layer for layer in self.merged.layers if layer.name != "builtin")

    @property
    def own_code(self) -> tuple[Path, ...]:
        """What decides what is started without asking: its files, and the user's own folders of extensions.

        A project's entries are bound to what they say and execute; these are not.
        """
        files = [layer.path for layer in self.layers if layer.path is not None]
        folders = [server.own_extension for server in self.servers.values()]
        return (*files, *(folder for folder in folders if folder is not None))

    @property
    def names_groups(self) -> bool:
        """Whether a rule, the administrator's included, or a bundle of `gateway.oauth` names a group."""
        rules = chain(self.rules, *(server.admin_rules for server in self.servers.values()))
        oauth = self.config.gateway.oauth
        names = chain((loaded.rule.principal or "" for loaded in rules), oauth.bundles if oauth else ())
        return any(name.startswith(GROUP) for name in names)

    def origin(self, *path: str | int) -> ValueOrigin | None:
        """Tell which file and line set a value.

        Args:
            path: Keys that lead to the value, such as `"servers", "github", "url"`.

        Returns:
            The origin, or None where no file sets it.
        """
        return self.merged.origin(path)

    def require_section(self, section: str) -> None:
        """Raise `ConfigInvalid` with the problems of a section that was left out because of them."""
        if section in self.merged.data and section not in self.config.model_fields_set:
            raise ConfigInvalid(*(problem for problem in self.problems if problem.path[:1] == (section,)))

    @check_types
    def server(self, server_id: str) -> LoadedServer:
        """Look up a server.

        Args:
            server_id: Its id in the configuration.

        Returns:
            The server, which may be disabled or have problems.

        Raises:
            UnknownServer: There is none; the hint suggests the one meant.
        """
        if server_id not in self.servers:
            hint = suggestion(server_id, self.servers) or "run `fairlead list` to see the configured servers"
            raise UnknownServer(f"there is no server `{server_id}`", hint=hint)
        return self.servers[server_id]

    def bundle(self, name: str) -> Bundle:
        """Look up a bundle.

        Args:
            name: Its name in the configuration.

        Raises:
            UnknownBundle: There is none; the hint suggests the one meant.
        """
        if name not in self.config.bundles:
            known = "`fairlead bundle list` names them, `fairlead bundle add` makes one"
            raise UnknownBundle(
                f"there is no bundle `{name}`", hint=suggestion(name, self.config.bundles) or known
            )
        return self.config.bundles[name]


def program_server(
    server_id: str, folder: Path, rules: Iterable[LoadedRule] = (), *, call_seconds: float | None = None
) -> LoadedServer:
    """Server that the program itself brings and runs in its own process: trusted.

    Args:
        server_id: Its id.
        folder: The base of relative paths.
        rules: The rules of `policy`.
        call_seconds: How long its calls may take; the limits of every server if not given.
    """
    entry: dict[str, Any] = {"transport": "in_process", "trust": "trusted", "approval": "allow"}
    if call_seconds is not None:
        most = round(call_seconds * 1000)
        entry |= {"request_timeout_ms": most, "max_request_ms": most}
    layer = Layer(name="override", label="<this program>", data={"servers": {server_id: entry}}, base=folder)
    part = LayerPart(layer=layer, prefix=("servers", server_id), entry=entry)
    definition = ServerDefinition(server_id=server_id, defaults=(), parts=(part,), replaced=(), entry=entry)
    config = Server.model_validate({name: value for name, value in entry.items() if name != "transport"})
    server = LoadedServer(
        server_id=server_id,
        definition=definition,
        config=config,
        problems=(),
        rules=_rules_about(server_id, rules),
    )
    return _apply_admin_policy(server, AdminPolicies(os.environ), os.environ)


@check_types
def load_config(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    *,
    scope: Literal["effective", "project", "user"] = "effective",
) -> LoadedConfig:
    """Load the effective configuration, or only one scope's file.

    ```python
    loaded = load_config()
    print(loaded.server("time").transport, loaded.origin("servers", "time", "command"))
    for problem in loaded.problems:
        print(problem, problem.hint)
    ```

    A bad server, bundle or section, or a bad field of most sections, is left out and reported in `problems`.

    Args:
        path: A file to read in place of the project's file.
        overrides: Values that count more than those of any file, in the same shape.
        env: Environment variables; those of this process by default.
        cwd: The folder in which the search for a project begins; the current one by default.
        scope: `effective` merges all files; `user` or `project` reads the file of that scope alone.

    Returns:
        The configuration, the origin of each value, and the problems of what was left out.

    Raises:
        ConfigUnreadable: A file cannot be read.
        ConfigInvalid: A file cannot be parsed, or has a bad `policy`, `store` or `version`: half a policy is
            not a policy.
    """
    env = os.environ if env is None else env
    folder = current_folder() if cwd is None else Path(cwd).absolute()
    place = place_of(env, folder)
    if scope == "effective":
        file = None if path is None else folder / expand_home(path)
        layers = read_layers(place, file, overrides)
    else:
        layers = read_scope(scope, place)
    return _assemble(layers, env, workspace(place))


def _assemble(layers: list[Layer], env: Mapping[str, str], workspace: Path) -> LoadedConfig:
    merged = merge(layers)
    found = find_problems(merged, env)
    found.faults += find_replaced_problems(layers, found, env)
    if found.is_fatal:
        raise ConfigInvalid(*found.all)
    checked, faults, entries = found.checked, found.faults, found.entries
    by_server: dict[str, list[Problem]] = {}
    for problem in faults:
        if _is_of_server(problem):
            by_server.setdefault(str(problem.path[1]), []).append(problem)
    # What is ignored of an entry stands at its server as well.
    ignored = {
        problem
        for problem in merged.problems
        if problem.severity == "warning" and _is_of_server(problem) and problem.path[1] in merged.definitions
    }
    for problem in dict.fromkeys(merged.problems):
        if problem in ignored:
            by_server.setdefault(str(problem.path[1]), []).append(problem)
    oauth = checked.config.gateway.oauth
    rules = tuple(
        LoadedRule(rule=rule, origin=origin, issuer=oauth.issuer if oauth else None)
        for rule, origin in zip(checked.config.policy.rules, merged.rule_origins(), strict=True)
    )
    described = (
        LoadedServer(
            server_id=server_id,
            definition=definition,
            config=checked.config.servers.get(server_id),
            problems=(*by_server.get(server_id, ()), *entries[server_id]),
            rules=_rules_about(server_id, rules),
            approval=checked.config.policy.approval,
            env=env,
            workspace=workspace,
        )
        for server_id, definition in merged.definitions.items()
    )
    administration = AdminPolicies(env)
    servers = {server.server_id: _apply_admin_policy(server, administration, env) for server in described}
    elsewhere = [problem for problem in faults if not _is_of_server(problem)]
    # A problem of the administrator's policy concerns every server, and is reported once.
    own = dict.fromkeys(problem for server in servers.values() for problem in server.problems)
    return LoadedConfig(
        config=checked.config,
        servers=servers,
        problems=(*(each for each in merged.problems if each not in ignored), *elsewhere, *own),
        merged=merged,
        rules=rules,
    )


def _is_of_server(problem: Problem) -> bool:
    return problem.path[:1] == ("servers",) and len(problem.path) > 1


def _apply_admin_policy(
    server: LoadedServer, administration: AdminPolicies, env: Mapping[str, str]
) -> LoadedServer:
    """Server with the administrator's ruling applied."""
    if not administration.exists:
        return server
    config = server.config
    try:
        identified = (
            server.resolve_target(config, env) if config and administration.goes_by_target else config
        )
        ruling = _rule_on(administration, server, identified, env)
    except SecretUnavailable as exc:
        ruling = administration.refuse_unidentified(server.server_id, str(exc))
    return replace(
        server,
        config=_apply_distrust(config, ruling) if config else None,
        problems=(*server.problems, *ruling.refusals),
        ruling=ruling,
    )


def _rule_on(
    administration: AdminPolicies, server: LoadedServer, config: Server | None, env: Mapping[str, str]
) -> AdminRuling:
    target: ServerTarget | None = None  # not needed for part of the program, or an unusable entry
    if administration.exists and config is not None and server.transport != "in_process":
        target = target_of(config, cwd=server.working_folder(config), env=env)
    return administration.judge(server.server_id, target)


def _apply_distrust(config: Server, ruling: AdminRuling) -> Server:
    return config.model_copy(update={"trust": "untrusted"}) if ruling.distrust else config


def _rules_about(server_id: str, rules: Iterable[LoadedRule]) -> tuple[LoadedRule, ...]:
    return tuple(
        loaded for loaded in rules if loaded.rule.server is None or fnmatchcase(server_id, loaded.rule.server)
    )
