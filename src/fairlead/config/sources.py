"""Layers of a configuration, found and read: built-in servers, user, project, environment, arguments."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fairlead.config.argument_types import check_types
from fairlead.config.canonical import CanonicalDocument, canonicalize
from fairlead.config.document import jsonc
from fairlead.config.document.files import read_text
from fairlead.config.faults import ValidationFault
from fairlead.config.paths import FILE_NAME, MachinePaths, current_folder, home_folder, user_file
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigInvalid, ConfigUnreadable, Problem, Severity

LABEL = "<built in>"
SWITCH = "FAIRLEAD_BUILTINS"
"""Variable that removes them when it is `off`, for programs that want only what they configure."""


def builtin_entries(place: MachinePaths) -> dict[str, Any]:
    """Entries of the built-in servers. Any layer may overlay them: `{"repo": {"enabled": false}}`."""
    if place.env.get(SWITCH, "").lower() in ("off", "no", "false", "0"):
        return {}
    common = {"trust": "trusted", "approval": "auto"}
    return {
        "repo": {
            "builtin": "repo",
            **common,
            "enabled": is_fit_root(workspace(place), place.home),
            "description": "Search, read and list the files of this repository.",
        },
        "docs": {
            "builtin": "docs",
            **common,
            "description": "Read documentation pages of the domains you allowed.",
        },
    }


def workspace(place: MachinePaths) -> Path:
    """Workspace: the top of the git repository around the current folder, else that folder."""
    for folder in (place.cwd, *place.cwd.parents):
        if (folder / ".git").exists():
            return folder
    return place.cwd


def is_fit_root(folder: Path, home: Path) -> bool:
    """Whether a folder may be readable as a whole: not a home, and no folder that contains one."""
    folder, home = folder.resolve(), home.resolve()
    return folder != home and folder not in home.parents


LayerName = Literal["builtin", "user", "project", "file", "env", "override", "admin"]
"""`admin` is not a configuration layer: it is the origin of values of the administrator's policy."""

PROJECT_FILES = (FILE_NAME, f".fairlead/{FILE_NAME}")
FOREIGN_PROJECT_FILES = {"codex-toolloop.mcp.json": "toolloop", ".codex-toolloop/mcp.json": "toolloop"}
FOREIGN_CURRENT_FILES = {".codelia/config.json": "codelia"}
"""Read in the current folder only, as its specification requires."""
CODELIA_KEYS = ("version", "mcp")
"""Keys that count in a file of that name: the rest is that program's own, and not in our words."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layer:
    """One source of configuration, read."""

    name: LayerName
    label: str
    """Label for users: a path, or the name of a variable."""
    data: dict[str, Any]
    base: Path
    """Base folder of relative paths in this layer."""
    path: Path | None = None
    document: jsonc.JsoncDocument | None = None
    dialect: str | None = None
    """Name of the other agent's format that the document is in."""
    shape: CanonicalDocument | None = None
    """What the document was before `data` was made of it."""
    warnings: tuple[Problem, ...] = field(default=())
    faults: tuple[Problem, ...] = field(default=())
    """Repeated keys, and what the shape of the document does not have: each costs its entry, its field of a
    section, or its section."""
    fatal: tuple[Problem, ...] = field(default=())
    """Problems that make the whole document unusable, reported together with all others."""
    replaced: "tuple[ReplacedPart, ...]" = field(default=())
    """Parts of the file that repeated keys replaced: their own problems are reported too."""

    @property
    def is_foreign(self) -> bool:
        """Whether it is another program's file, which is read and not edited.

        Under the name of Fairlead's own files a document is the user's to edit, whatever its shape.
        """
        return self.dialect is not None and self.path is not None and self.path.name != FILE_NAME

    @property
    def has_references(self) -> bool:
        """Whether `${…}` refers to a secret in its entries."""
        return self.dialect != "codelia"

    def original_path(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """Path in this layer's document of the value that is at `path` in Fairlead's own format."""
        return self.shape.original_path(path) if self.shape is not None else path

    def position(self, path: tuple[str | int, ...]) -> jsonc.Position | None:
        """Position of the value at `path` in this layer's file."""
        return (
            self.document.position(self.original_path(path), key=True) if self.document is not None else None
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReplacedPart:
    """Part of a layer's file that a repeated key replaced."""

    layer: Layer
    """The layer as it would be if this part counted."""
    span: jsonc.TextSpan

    def has(self, problem: Problem) -> bool:
        """Whether a problem is in this part of the file."""
        document = self.layer.document
        if document is None or problem.file != self.layer.label or problem.line is None:
            return False
        return document.contains(self.span, jsonc.Position(problem.line, problem.column or 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFile:
    """The nearest project configuration."""

    path: Path
    dialect: str | None

    @property
    def folder(self) -> Path:
        """Project folder: base of relative paths in its file."""
        parent = self.path.parent
        return parent.parent if parent.name in (".fairlead", ".codex-toolloop", ".codelia") else parent


@check_types
def discover_config_path(
    cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> Path | None:
    """Find the file that describes this project: the explicit one, or the nearest, walking up.

    Args:
        cwd: The folder to begin in; the current one by default.
        env: Environment variables; those of this process by default.

    Returns:
        The path, or None where no file was found.
    """
    env = os.environ if env is None else env
    if explicit := _explicit_path(env):
        return explicit[0]
    found = find_project_file(place_of(env, current_folder() if cwd is None else Path(cwd).absolute()))
    return found.path if found else None


def place_of(env: Mapping[str, str], cwd: Path) -> MachinePaths:
    """Environment values that finding files depends on."""
    return MachinePaths(home=home_folder(env), cwd=cwd, env=env, platform=sys.platform)


def find_project_file(place: MachinePaths) -> ProjectFile | None:
    """Walk up from the current folder: the nearest folder wins, and there a Fairlead file before others."""
    own_file = user_file(place.env)
    for folder in (place.cwd, *place.cwd.parents):
        current = FOREIGN_CURRENT_FILES if folder == place.cwd else {}
        candidates: dict[str, str | None] = dict.fromkeys(PROJECT_FILES) | FOREIGN_PROJECT_FILES | current
        for name, dialect in candidates.items():
            path = folder / name
            # An empty folder takes the name while the built-in `shell` runs a command, so that none makes it.
            is_taken = path.is_dir()
            if path != own_file and not is_taken and _is_there(path, unreadable_is_error=False):
                return ProjectFile(path=path, dialect=dialect)
    return None


def read_layers(
    place: MachinePaths, path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> list[Layer]:
    """Read every layer that exists, low to high. `path` replaces the files that would be discovered."""
    explicit = (path, None) if path is not None else _explicit_path(place.env)
    if explicit:
        files = [_file_layer("file", place.cwd / explicit[0], explicit[1])]
    else:
        files = [*read_scope("user", place), *read_scope("project", place)]
    layers = [_builtin_layer(place), *files, *_environment_layers(place)]
    if overrides is not None:
        if jsonc.is_too_deep(dict(overrides)):
            raise ConfigInvalid(Problem(message=jsonc.TOO_DEEP, file="<overrides>"))
        layer = Layer(name="override", label="<overrides>", data={}, base=place.cwd)
        layers.append(_shape_layer(layer, dict(overrides), None))
    return layers


def read_scope(scope: Literal["user", "project"], place: MachinePaths) -> list[Layer]:
    """Read one scope's file, if there is one."""
    if scope == "project":
        found = find_project_file(place)
        return [_file_layer("project", found.path, found.dialect, found.folder)] if found else []
    own = user_file(place.env)
    if _is_there(own):
        return [_file_layer("user", own, None)]
    if named := place.env.get("CODELIA_CONFIG_PATH"):
        return [_file_layer("user", place.cwd / named, "codelia")]
    return []


def _parse_layer(text: str, label: str) -> jsonc.JsoncDocument:
    """Parse a document; its top level must be an object. What is wrong with single values is collected."""
    document = jsonc.parse(text, file=label, collects=True)
    _require_object(document.data, label)
    return document


def _own_path(path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Path in Fairlead's own format: other formats have their servers below `mcp`."""
    return path[1:] if path[:1] == ("mcp",) else path


def _is_fatal(path: tuple[str | int, ...]) -> bool:
    """Whether a repeated key costs the whole document.

    A restriction could be lost with one of the two: a policy, an entry's denials, the separation of clients.
    """
    match path:
        case () | ("policy" | "store" | "version", *_) | ("servers",):
            return True
        case ("defaults", *rest):
            return not rest or rest[0] == "sharing"
        case _:
            return False


def _builtin_layer(place: MachinePaths) -> Layer:
    entries = builtin_entries(place)
    base = workspace(place)
    return Layer(name="builtin", label=LABEL, data={"servers": entries}, base=base)


def _file_layer(name: LayerName, path: Path, dialect: str | None, base: Path | None = None) -> Layer:
    layer = Layer(
        name=name,
        label=str(path),
        data={},
        base=base or path.absolute().parent,
        path=path,
        document=_parse_layer(read_text(path), str(path)),
    )
    return _read_layer(layer, dialect)


def _environment_layers(place: MachinePaths) -> list[Layer]:
    layers: list[Layer] = []
    for variable, dialect in (("CODEX_TOOLLOOP_MCP_CONFIG_JSON", "toolloop"), ("FAIRLEAD_CONFIG_JSON", None)):
        if text := place.env.get(variable, "").strip():
            label = f"${variable}"
            layer = Layer(
                name="env", label=label, data={}, base=place.cwd, document=_parse_layer(text, label)
            )
            layers.append(_read_layer(layer, dialect))
    return layers


def _read_layer(layer: Layer, dialect: str | None) -> Layer:
    """Layer with its document's data, and with what is wrong in its text."""
    document = layer.document
    if document is None:
        return layer
    repeated = [
        replace(problem, path=_own_path(problem.path), written=problem.path)
        for problem in document.duplicates
        if dialect != "codelia" or problem.path[0] in CODELIA_KEYS
    ]
    layer = replace(
        layer,
        faults=tuple(problem for problem in repeated if not _is_fatal(problem.path)),
        fatal=(*(problem for problem in repeated if _is_fatal(problem.path)), *document.bad_values),
    )
    replaced = tuple(
        ReplacedPart(
            layer=_shape_layer(replace(layer, document=reading), as_object(reading.data), dialect), span=span
        )
        for span, reading in document.readings(layer.label)
    )
    return _shape_layer(replace(layer, replaced=replaced), as_object(document.data), dialect)


def _shape_layer(layer: Layer, data: dict[str, Any], dialect: str | None) -> Layer:
    """Layer with its data in Fairlead's own format, whichever of the known shapes the document has."""
    if dialect == "codelia":
        data = {name: value for name, value in data.items() if name in CODELIA_KEYS}
    shape = canonicalize(data)
    layer = replace(layer, data=shape.data, shape=shape, dialect=dialect or shape.shape)
    return replace(
        layer,
        warnings=tuple(_problem(layer, fault, "warning") for fault in shape.warnings),
        faults=(*layer.faults, *(_problem(layer, fault, "error") for fault in shape.faults)),
    )


def _problem(layer: Layer, fault: ValidationFault, severity: Severity) -> Problem:
    """Problem of the shape of a layer's document."""
    at = layer.document.position(fault.written or (), key=True) if layer.document is not None else None
    return Problem(
        message=fault.message,
        hint=fault.hint,
        severity=severity,
        file=layer.label,
        path=fault.path,
        written=fault.written,
        line=at.line if at else None,
        column=at.column if at else None,
    )


def _explicit_path(env: Mapping[str, str]) -> tuple[Path, str | None] | None:
    if named := env.get("FAIRLEAD_CONFIG_PATH"):
        return Path(named), None
    if named := env.get("CODEX_TOOLLOOP_MCP_CONFIG_PATH"):
        return Path(named), "toolloop"
    return None


def _is_there(path: Path, *, unreadable_is_error: bool = True) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path.is_symlink()  # a dangling link exists, and reading it reports the error
    except PermissionError as exc:
        if unreadable_is_error:
            message = f"cannot look for {path}: permission denied"
            raise ConfigUnreadable(message, hint=f"check the permissions of {path.parent}") from exc
        return False
    except OSError:
        return True  # such as a symlink loop: it exists, and reading it reports the error
    return True


def _require_object(data: object, label: str) -> None:
    if not isinstance(data, dict):
        message = "the top level must be an object: `{ … }`"
        raise ConfigInvalid(Problem(message=message, file=label, line=1, column=1))
