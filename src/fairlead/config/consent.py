"""Consent to servers of a project file: what it is bound to, and limits on a project's references.

A project file is untrusted until the user consents. Consent is bound to

- the file as found: its path without links followed, its real path, and the identity of its folder;
- the whole entry as written, except `deny_tools` and `enabled`, which can only narrow;
- what the entry would execute (`launch.py`): program, interpreter, scripts, folder, and all code of the
  project where the command line does not name what it runs;
- the values of references that decide what is executed or contacted: those in `args`, `url`,
  `headers_helper`, `oauth`'s URLs, `roots`, `sandbox`, and in variables such as `PATH` or `NODE_OPTIONS`.
  They are bound by a keyed digest, so that the store reveals nothing about them.

References in other variables and headers are bound by their text only: tokens rotate, and asking again for
each new one would train users to say yes. They are listed when the user is prompted for consent.
"""

import hmac
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.config.extension_files import ExtensionFolder, read_extension_folder
from fairlead.config.file_digests import NOT_BOUND, BoundFile, ProjectFolders
from fairlead.config.launch import Launch, bind_variables, resolve_launch
from fairlead.config.merge import FieldPath, ServerDefinition
from fairlead.config.paths import expand_home, home_folder, state_folder
from fairlead.config.runners import EXECUTION_VARIABLES
from fairlead.config.secrets.redaction import redact_url
from fairlead.config.secrets.references import SecretReference, references, resolve, strings
from fairlead.config.untyped import as_list, as_object, value_at
from fairlead.errors import ConfigUnreadable, Problem, SecretUnavailable

NARROWING = frozenset({"deny_tools"})
"""Fields that cannot make a server do more, or reach a model. `enabled: false` is one too."""

KEY_FILE = "consent.key"
_FORMAT = 2
_KEY_BYTES = 32
_UNTOLD = frozenset({"deny_tools", "description", "enabled"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One line that the user is shown before they consent."""

    label: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentKey:
    """One exact entry of one project file, with what it would execute now."""

    file: str
    server_id: str
    digest: str
    earlier: str = field(default="", compare=False)
    """Key of an earlier release that compared less: never accepted, but used to explain the refusal."""
    facts: tuple[Fact, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Consent:
    """Key that needs consent, and the launch it permits: resolved once, so that both agree."""

    key: ConsentKey
    launch: Launch | None
    """The server's process, or the program that prints its headers."""
    extension: ExtensionFolder | None = None
    """The files of an extension, as they were read."""


def needs_consent(definition: ServerDefinition) -> bool:
    """Whether a project file does more than narrow this server."""
    return any(part.layer.name == "project" and _widens(part.entry) for part in definition.parts)


def consent_to(definition: ServerDefinition, entry: Mapping[str, Any], env: Mapping[str, str]) -> Consent:
    """Consent that this server needs before it may start.

    Args:
        definition: The server as the files describe it.
        entry: The same with the references resolved that `is_bound` names; other fields may be.
        env: The environment of the host.
    """
    layer = next(p.layer for p in definition.parts if p.layer.name == "project" and _widens(p.entry))
    path = layer.path or Path(layer.label)
    file, folder = str(path.absolute()), os.path.realpath(layer.base)
    launch = _launch(definition, entry, env, layer.base)
    extension = extension_folder(definition, entry)
    files = launch.files if launch else _files_of_variables(definition, entry, env, layer.base)
    values = dict(_digest_bound_values(definition, entry, env))
    written = as_object(definition.entry)
    binding: dict[str, object] = {
        "format": _FORMAT,
        "entry": {name: value for name, value in written.items() if name not in {*NARROWING, "enabled"}},
        "file": os.path.realpath(file),
        "folder": [folder, _inode(folder)],
        "cwd": str(launch.cwd) if launch and launch.starts_in_cwd else None,
        "runs": [_identity_fields(bound) for bound in (*((launch.program,) if launch else ()), *files)],
        "values": values,
    }
    if extension is not None:
        binding["extension"] = [extension.real, extension.digests]
    key = ConsentKey(
        file=file,
        server_id=definition.server_id,
        digest=_digest(binding),
        earlier=f"{os.path.realpath(file)}\0{definition.server_id}\0{entry_digest(written)}",
        facts=tuple(_facts(definition, file, launch, files, extension, values)),
    )
    return Consent(key=key, launch=launch, extension=extension)


def extension_folder(definition: ServerDefinition, entry: Mapping[str, Any]) -> ExtensionFolder | None:
    """Read the files of an extension; None for any other server.

    Args:
        definition: The server as the files describe it.
        entry: The same with references resolved.
    """
    named = entry.get("extension")
    if not isinstance(named, str):
        return None
    origin = definition.origin(("extension",)).layer
    return read_extension_folder(
        (origin.base / expand_home(named)).absolute(), follow_links=origin.name != "project"
    )


def entry_digest(entry: dict[str, Any]) -> str:
    """Digest of an entry as written, except fields that do not change what a server is."""
    return _digest({name: value for name, value in entry.items() if name not in _UNTOLD})


def _digest(value: object) -> str:
    import hashlib  # loads a crypto library, which commands that only read do not need

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _widens(entry: object) -> bool:
    return any(
        value is not False if key == "enabled" else key not in NARROWING
        for key, value in as_object(entry).items()
    )


def _inode(folder: str) -> int | None:
    # Not the device: its number may change with each boot.
    try:
        return os.stat(folder).st_ino
    except OSError:
        return None


def _identity_fields(bound: BoundFile) -> list[str | None]:
    return [bound.path, bound.real, bound.content]


# Execution.


def _launch(
    definition: ServerDefinition, entry: Mapping[str, Any], env: Mapping[str, str], base: Path
) -> Launch | None:
    argv, folder, variables = _command(definition, entry)
    if not argv:
        return None
    search = variables.get("PATH", env.get("PATH", os.defpath))
    project = _project_folders(folder, env, base)
    return resolve_launch(argv, cwd=folder, variables=variables, search=search, project=project)


def _project_folders(folder: Path | None, env: Mapping[str, str], base: Path) -> ProjectFolders:
    home = home_folder(env)
    # A folder that contains the home contains everything, and is no project.
    starts_inside = folder is not None and not home.absolute().is_relative_to(os.path.realpath(folder))
    return ProjectFolders(base, home, *([folder] if folder and starts_inside else []))


def _files_of_variables(
    definition: ServerDefinition, entry: Mapping[str, Any], env: Mapping[str, str], base: Path
) -> tuple[BoundFile, ...]:
    """Files that variables load into the process of an extension, whose program is Fairlead's own."""
    if "extension" not in entry:
        return ()
    folder = working_folder(definition, entry.get("cwd"))
    return bind_variables(_variables(entry), cwd=folder, project=_project_folders(folder, env, base))


def _variables(entry: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in as_object(entry.get("env")).items()}


def _command(
    definition: ServerDefinition, entry: Mapping[str, Any]
) -> tuple[list[str], Path | None, dict[str, str]]:
    if "command" in entry:
        argv = [str(word) for word in (entry["command"], *as_list(entry.get("args")))]
        return argv, working_folder(definition, entry.get("cwd")), _variables(entry)
    helper = [str(word) for word in as_list(entry.get("headers_helper"))]
    return helper, helper_folder(definition), {}


def working_folder(definition: ServerDefinition, named: object) -> Path | None:
    """Working directory of a process: `cwd`, else the project's folder, else ours (None)."""
    if isinstance(named, str):
        return definition.origin(("cwd",)).layer.base / expand_home(named)
    return definition.source.base if definition.source.name == "project" else None


def helper_folder(definition: ServerDefinition) -> Path | None:
    """Working directory of a headers helper: the project's folder, or ours for the user's own (None)."""
    layer = definition.origin(("headers_helper",)).layer
    return layer.base if layer.name == "project" else None


# References.


def is_bound(path: FieldPath) -> bool:
    """Whether the value of a reference in this field decides what is executed, opened or contacted."""
    match path:
        case (
            "args" | "command" | "cwd" | "extension" | "url" | "headers_helper" | "roots" | "sandbox",
            *_,
        ):
            return True
        case ("oauth", *_, str(name)):
            return name.endswith("_url")
        case ("env", str(name)):
            return EXECUTION_VARIABLES.fullmatch(name) is not None
        case ("headers", str(name)):
            return name.lower() == "host"
        case _:
            return False


def with_bound_values(definition: ServerDefinition, env: Mapping[str, str]) -> dict[str, Any]:
    """Entry with only those references resolved. A reference without a value stays as written."""
    entry: dict[str, Any] = json.loads(json.dumps(definition.entry))
    for path, text in list(strings(entry)):
        if is_bound(path) and "${" in text:
            try:
                value = resolve(text, env=env, base=definition.origin(path[:1]).layer.base)
            except SecretUnavailable:
                continue
            holder = value_at(entry, path[:-1])
            holder[path[-1]] = value
    return entry


def _digest_bound_values(
    definition: ServerDefinition, entry: Mapping[str, Any], env: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for path, text in strings(definition.entry):
        if is_bound(path) and references(text):
            name = ".".join(map(str, path))
            value = value_at(dict(entry), path)
            identified = f"{definition.server_id}\0{name}\0{value}"
            yield name, hmac.digest(_key(env), identified.encode(errors="surrogateescape"), "sha256").hex()


def _key(env: Mapping[str, str]) -> bytes:
    """Key for digests of values: created once, and readable by this user only."""
    path = state_folder(env) / KEY_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            temporary = path.with_name(f"{KEY_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(_KEY_BYTES))
            try:
                os.link(temporary, path)  # another process may be first, and then its key is used
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            key = file.read(_KEY_BYTES + 1)
    except OSError as exc:
        hint = f"check the permissions of {path.parent}"
        raise ConfigUnreadable(f"cannot use {path}: {exc.strerror}", hint=hint) from exc
    if len(key) != _KEY_BYTES:
        raise ConfigUnreadable(
            f"{path} is damaged", hint=f"remove {path}; projects will ask for consent again"
        )
    return key


def reference_problems(definition: ServerDefinition) -> Iterator[Problem]:
    """References that a project file may not have in fields that decide what is executed.

    After consent, the variable or file behind such a reference could name another program.
    """
    for path, text in strings(definition.entry):
        found = references(text)
        origin = definition.origin(path)
        if not found or origin.layer.name != "project":
            continue
        name = path[0]
        file = next((each for each in found if each.kind == "file"), None)
        if name in ("command", "cwd", "extension") or path == ("headers_helper", 0):
            thing = "folder" if name in ("cwd", "extension") else "program"
            message = f"a project file may not use {found[0]} here: it could name another {thing} later"
            hint = (
                "write the value itself, or put the entry into your own file (`fairlead add --scope user …`)"
            )
        elif name in ("args", "headers_helper") and file is not None:
            message = f"a project file may not use {file} in arguments: its content could change later"
            hint = "write the value itself, pass it in `env`, or put the entry into your own file"
        else:
            continue
        yield origin.problem(message, ("servers", definition.server_id, *path), hint=hint)


# Facts shown to the user.


def _facts(
    definition: ServerDefinition,
    file: str,
    launch: Launch | None,
    files: Sequence[BoundFile],
    extension: ExtensionFolder | None,
    values: Mapping[str, str],
) -> Iterator[Fact]:
    real = os.path.realpath(file)
    yield Fact(label="file", text=file if real == file else f"{file}, which is really {real}")
    if launch is not None:
        yield Fact(label="program", text=_describe_bound_file(launch.program))
    for bound in files:
        yield Fact(label="with", text=_describe_bound_file(bound))
    if launch is not None:
        yield Fact(label="starts in", text=str(launch.cwd))
        text = "what the program imports, loads or downloads once it runs"
        yield Fact(label="not covered by your consent", text=text)
    if extension is not None:
        yield from _extension_facts(extension)
    yield from _reference_facts(definition, values)


def _extension_facts(extension: ExtensionFolder) -> Iterator[Fact]:
    place = (
        extension.path if extension.real == extension.path else f"{extension.path}, really {extension.real}"
    )
    yield Fact(label="folder", text=place)
    if extension.failure is not None:
        yield Fact(label="cannot start", text=extension.failure)
    for each in extension.files:
        yield Fact(label="runs", text=f"{each.name} (content bound: {each.digest[:12]})")
    for name, reason in extension.unusable:
        yield Fact(label="leaves out", text=f"{name}: {reason}")
    text = "installed packages that the files import, and what they read or download once they run"
    yield Fact(label="not covered by your consent", text=text)


def _describe_bound_file(bound: BoundFile) -> str:
    if bound.real is None:
        return f"{bound.path}, which is not there now"
    place = bound.path if bound.real == bound.path else f"{bound.path}, really {bound.real}"
    if bound.content is None:
        return f"{place} (outside the project: bound by its path, not its content)"
    if bound.content == NOT_BOUND:
        return (
            f"{place} (its code is NOT bound, as there is too much: changed code runs without asking again)"
        )
    what = "its code" if os.path.isdir(bound.real) else "content"
    return f"{place} ({what} bound: {bound.content[:12]})"


def _reference_facts(definition: ServerDefinition, values: Mapping[str, str]) -> Iterator[Fact]:
    url = as_object(definition.entry).get("url")
    receiver = redact_url(url) if isinstance(url, str) else "the program"
    for path, text in strings(definition.entry):
        for reference in references(text):
            name = ".".join(map(str, path))
            bound = "; another value asks again" if name in values else ""
            yield Fact(label=f"reference in {name}", text=f"{_source(reference)} goes to {receiver}{bound}")


def _source(reference: SecretReference) -> str:
    match reference.kind:
        case "file":
            return f"the content of your file {reference.name}"
        case "keyring":
            return f"the secret {reference.name} of your keyring"
        case _:
            default = "" if reference.default is None else f" (or `{_shorten_digests(reference.default)}`)"
            return f"your variable {reference.name}{default}"


def _shorten_digests(text: str) -> str:
    return re.sub(r"(?<=^.{4}).{8,}$", "…", text)
