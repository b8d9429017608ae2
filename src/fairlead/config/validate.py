"""Validation of a document against the models, with every fault in plain words."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fairlead.config.canonical import canonicalize
from fairlead.config.document import jsonc
from fairlead.config.faults import BAD_ID, SERVER_ID, Path, ValidationFault, suggestion
from fairlead.config.models import (
    AGENT_ID,
    SERVER_MODELS,
    ArtifactSettings,
    AuditSettings,
    Bundle,
    BundleServer,
    Config,
    DocsSettings,
    GatewaySettings,
    ModelSettings,
    PolicyRule,
    PolicySettings,
    SearchSettings,
    Server,
    ServerLimits,
    StoreSettings,
    ToolSettings,
    transport_of,
)
from fairlead.config.secrets.references import reference_faults
from fairlead.config.untyped import ISOLATED, as_object, is_list, is_object, value_at
from fairlead.errors import ConfigInvalid, Problem

SECTIONS: dict[str, type[BaseModel]] = {
    "policy": PolicySettings,
    "defaults": ServerLimits,
    "docs": DocsSettings,
    "tools": ToolSettings,
    "search": SearchSettings,
    "gateway": GatewaySettings,
    "store": StoreSettings,
    "audit": AuditSettings,
    "artifacts": ArtifactSettings,
    "model": ModelSettings,
}

SAFE_WITHOUT = ("docs", "tools", "audit", "artifacts")
"""Sections whose defaults are the strictest values: a bad field costs itself, and nothing gets wider."""
ALL_OR_NOTHING = ("gateway", "model")
"""Sections that are left out whole: a model without its `base_url` would be another one.

Code that needs such a section calls `LoadedConfig.require_section`.
"""
STRICTEST: Mapping[str, Mapping[str, Any]] = {"search": {"memory": False}}
"""What takes the place of a bad section whose defaults are not its strictest values."""
NARROWING_DEFAULTS = ("sharing",)
"""Fields of `defaults` that keep clients apart: a mistake must not silently become the built-in value."""

FOREIGN_KEYS = {
    "mcpServers": "this looks like another agent's file; run `fairlead import FILE` to take its servers over",
    "mcp_servers": "this looks like Codex's file; run `fairlead import FILE` to take its servers over",
    "context_servers": "this looks like Zed's file; run `fairlead import FILE` to take its servers over",
    "permissions": "rules about calls are in `policy.rules`: see docs/permissions.md",
    "type": "did you mean `transport`?",
    "disabled": "did you mean `enabled`?",
    "httpUrl": "did you mean `url`?",
    "serverUrl": "did you mean `url`?",
    "environment": "did you mean `env`?",
    "envs": "did you mean `env`?",
    "timeout": "did you mean `request_timeout_ms`?",
    "enabled_tools": "we call it `allow_tools`",
    "disabled_tools": "we call it `deny_tools`",
    "bearer_token_env_var": 'write `"headers": {"Authorization": "Bearer ${NAME}"}`',
}

WANTED = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
    "missing": "is missing",
    "too_short": "must not be empty",
}

UNIONS = {
    "oauth": "must be false or an object",
    "approval": "must be `allow`, `ask`, `auto` or `deny`, or an object with `default` and `tools`",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedDocument:
    """The valid part of a document, and the faults of the rest."""

    config: Config
    faults: tuple[ValidationFault, ...]


def parse_config(data: object) -> Config:
    """Validate a configuration that is in memory already.

    ```python
    config = parse_config({"servers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}})
    print(config.servers["time"])
    ```

    Args:
        data: The document as `json.loads` returns it, in Fairlead's own format or in one of the shapes of
            `docs/seeds.md`. References to secrets stay references.

    Returns:
        The configuration as a model.

    Raises:
        ConfigInvalid: Something is wrong; it has every fault, each with its path as the document spells it.
    """
    if jsonc.is_too_deep(data):
        raise ConfigInvalid(Problem(message=jsonc.TOO_DEEP))
    document = canonicalize(data if is_object(data) else {})
    checked = check(document.data if is_object(data) else data)
    faults = [*document.faults, *document.new_faults(checked.faults)]
    if faults:
        raise ConfigInvalid(
            *(
                Problem(message=fault.message, hint=fault.hint, path=fault.path, written=fault.written)
                for fault in faults
            )
        )
    return checked.config


def check(data: object, bad_entries: Iterable[Path] = ()) -> CheckedDocument:
    """Validate a whole document. Bad entries of `servers` and `bundles` are left out of the result.

    Validation goes piece by piece, so that only the models in use are built: that is most of the time a short
    command takes.

    Args:
        data: The document.
        bad_entries: Paths of, or into, entries and sections that are known to be bad for another reason.
    """
    if not is_object(data):
        return CheckedDocument(
            config=Config(), faults=(ValidationFault(path=(), message="must be an object: `{ … }`"),)
        )
    pieces = _Pieces(data)
    faults = (*pieces.faults, *_reference_faults(data), *_bundle_faults(data))
    for path in (*(fault.path for fault in faults), *bad_entries):
        pieces.leave_out(path)
    # A grant of a bundle that does not exist grants nothing, so it may stay.
    return CheckedDocument(
        config=Config.model_construct(**pieces.sound), faults=(*faults, *_grant_faults(data))
    )


def model_faults(model: type[BaseModel], document: object) -> tuple[ValidationFault, ...]:
    """All faults of a document of another kind than a configuration."""
    if not is_object(document):
        return (ValidationFault(path=(), message="must be an object: `{ … }`"),)
    try:
        model.model_validate(document)
    except ValidationError as exc:
        faults: list[ValidationFault] = []
        for error in exc.errors(include_url=False, include_context=True):
            path = _document_path(error["loc"], document)
            if error["type"] == "extra_forbidden":
                hint = suggestion(str(path[-1]), _fields_at(model, path[:-1]))
                faults.append(ValidationFault(path=path, message="unknown key", hint=hint))
            else:
                faults.append(_plainly(error, path, document))
        return tuple(faults)
    return ()


class _Pieces:
    """A document taken apart: its valid pieces, and the faults of the rest."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.faults: list[ValidationFault] = []
        self.sound: dict[str, Any] = {}
        for key, value in document.items():
            self._check_section(key, value)

    def leave_out(self, path: Path) -> None:
        """Remove a bad entry, a bad field of a section that is safe without it, or a bad section."""
        match path:
            case ("servers" | "bundles" as section, str(entry), *_):
                as_object(self.sound.get(section)).pop(entry, None)
            case (str(section), str(field), *_) if section in SAFE_WITHOUT:
                self._leave_field_out(section, field)
            case (str(section), *_) if section in STRICTEST:
                self._make_strictest(section)
            case (str(section), *_):
                self.sound.pop(section, None)
            case _:
                self.sound.clear()

    def _make_strictest(self, section: str) -> None:
        self.sound[section] = SECTIONS[section].model_validate(STRICTEST[section])

    def _leave_field_out(self, section: str, field: str) -> None:
        kept: BaseModel | None = self.sound.get(section)
        if kept is not None and field in kept.model_fields_set:
            written = as_object(self._document.get(section))
            sound = {name: written[name] for name in kept.model_fields_set - {field}}
            self.sound[section] = SECTIONS[section].model_validate(sound)

    def _check_section(self, key: str, value: object) -> None:
        if key in SECTIONS:
            self._keep(key, self._validate_model(SECTIONS[key], (key,)))
            if key not in self.sound:
                self._isolate_section(key, as_object(value))
        elif key in ISOLATED:
            if is_object(value):
                self.sound[key] = {name: self._validate_entry(key, name) for name in value}
            else:
                self.faults.append(not_an_object(key, value))
        elif key in ("version", "$schema", "allow_literal_secrets", "extensions"):
            self._check_value(key, value)
        else:
            fault = _unknown_key((key,), self._document)
            # A misspelt policy must not silently be no policy.
            self.faults.append(replace(fault, is_isolated="`policy`" not in (fault.hint or "")))

    def _check_value(self, key: str, value: object) -> None:
        """Check a key of the top level that is no section."""
        if key == "version":
            self.sound[key] = 1
            if value != 1 or isinstance(value, bool):
                hint = "a newer file needs a newer Fairlead"
                self.faults.append(ValidationFault(path=(key,), message="must be 1", hint=hint))
        elif key == "$schema":
            self._keep("schema_", value)
        elif key == "extensions":
            self._check_extensions(value)
        elif isinstance(value, bool):
            self._keep(key, value)
        else:  # without it nothing more is allowed
            fault = ValidationFault(path=(key,), message=WANTED["bool_type"], is_isolated=True)
            self.faults.append(fault)

    def _check_extensions(self, value: object) -> None:
        """Check the folders of a document in memory. Merging turns those of files into servers."""
        if is_list(value) and all(isinstance(folder, str) and folder for folder in value):
            self.sound["extensions"] = tuple(value)
        else:
            message = "must be a list of folders"
            self.faults.append(ValidationFault(path=("extensions",), message=message, is_isolated=True))

    def _isolate_section(self, section: str, fields: dict[str, Any]) -> None:
        """Let a bad section cost no more than itself, or than its bad fields."""
        bad = {fault.path[1] for fault in self.faults if fault.path[0] == section and len(fault.path) > 1}
        self.faults = [
            replace(fault, is_isolated=_is_isolated(fault)) if fault.path[0] == section else fault
            for fault in self.faults
        ]
        if section in SAFE_WITHOUT:
            sound = {name: value for name, value in fields.items() if name not in bad}
            self.sound[section] = SECTIONS[section].model_validate(sound)
        elif section in STRICTEST:
            self._make_strictest(section)

    def _keep(self, field: str, value: object) -> None:
        if value is not None:
            self.sound[field] = value

    def _validate_entry(self, section: str, name: str) -> BaseModel | None:
        path = (section, name)
        # A program may pass keys that are no text, which no file can have.
        if not isinstance(name, str) or not SERVER_ID.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.faults.append(ValidationFault(path=path, message=BAD_ID))
        if section == "bundles":
            return self._validate_model(Bundle, path)
        entry = value_at(self._document, path)
        model = SERVER_MODELS.get(transport_of(entry) or "") if is_object(entry) else None
        if model is None:
            self.faults += _transport_faults(path, self._document)
            return None
        return self._validate_model(model, path)

    def _validate_model(self, model: type[BaseModel], path: Path) -> BaseModel | None:
        try:
            return model.model_validate(value_at(self._document, path))
        except ValidationError as exc:
            self.faults += _model_faults(exc, path, self._document)
            return None


def _model_faults(exc: ValidationError, prefix: Path, document: dict[str, Any]) -> Iterator[ValidationFault]:
    """Faults that a model found at `prefix`, each place once: a union reports once per branch."""
    seen: set[tuple[Path, bool]] = set()
    for error in exc.errors(include_url=False, include_context=True):
        fault = _in_our_words(error, prefix, document)
        place = (fault.path, error["loc"][-1:] == ("[key]",)) if fault else None
        if fault and place and place not in seen:
            seen.add(place)
            yield fault


def not_an_object(section: str, value: object) -> ValidationFault:
    """Fault of a collection of entries that is not an object."""
    hint = f'write `"{section}": {{"ID": {{…}}, …}}`: each entry has its id as its key'
    return ValidationFault(
        path=(section,), message="must be an object", hint=hint if is_list(value) else None, is_isolated=True
    )


def _is_isolated(fault: ValidationFault) -> bool:
    """Whether a fault costs no more than its section or field."""
    match fault.path:
        case ("defaults", *rest):
            return not any(name in rest or f"`{name}`" in (fault.hint or "") for name in NARROWING_DEFAULTS)
        case (section, *_):
            return section in (*SAFE_WITHOUT, *ALL_OR_NOTHING, *STRICTEST)
        case _:
            return False


def _in_our_words(error: ErrorDetails, prefix: Path, document: dict[str, Any]) -> ValidationFault | None:
    path = _document_path((*prefix, *error["loc"]), document)
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, document)
    if path[-1:] in (("approval",), ("oauth",)):
        objects = is_object(value_at(document, path))  # then the branch for objects reports the fault
        return None if objects else ValidationFault(path=path, message=UNIONS[str(path[-1])])
    return _plainly(error, path, document)


def _plainly(error: ErrorDetails, path: Path, document: dict[str, Any]) -> ValidationFault:
    """Pydantic's error about a value, in plain words."""
    kind = error["type"]
    if kind == "literal_error":
        expected = str(error.get("ctx", {}).get("expected", "")).replace("'", "`")
        given = value_at(document, path)
        known = expected.replace("`", "").replace(" or ", ", ").split(", ")
        hint = suggestion(given, known) if isinstance(given, str) else None
        return ValidationFault(path=path, message=f"must be {expected}", hint=hint)
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = error.get("ctx", {})
        limit = f"at least {bound['ge']}" if "ge" in bound else f"at most {bound['le']}"
        return ValidationFault(path=path, message=f"must be {limit}")
    message = WANTED.get(kind) or error["msg"].removeprefix("Value error, ")
    hint = _hint_for_url(value_at(document, path)) if path[-1:] == ("url",) else None
    return ValidationFault(path=path, message=message, hint=hint)


def _hint_for_url(given: object) -> str:
    if isinstance(given, str) and given.lower().startswith(("ws://", "wss://")):
        return "MCP has no transport over WebSocket: write the server's URL over HTTP, if it has one"
    return "write it whole, such as `https://example.com/mcp`"


def _document_path(loc: tuple[int | str, ...], document: object) -> Path:
    """Drop the steps pydantic adds for union branches and keys: keep what is really in the document."""
    path: list[str | int] = []
    place: object = document
    for position, step in enumerate(loc):
        last = position == len(loc) - 1
        if is_object(place):
            if step in place:
                place = place[str(step)]
            elif not last or step == "[key]" or str(step).startswith("literal["):
                continue
            else:
                place = None  # a missing field: it belongs in the path though it is not in the document
        elif is_list(place) and isinstance(step, int):
            place = place[step]
        else:
            continue
        path.append(step)
    return tuple(path)


def _transport_faults(path: Path, document: dict[str, Any]) -> Iterator[ValidationFault]:
    """Faults of an entry whose transport is unknown."""
    entry = value_at(document, path)
    if not is_object(entry):
        yield ValidationFault(path=path, message="must be an object")
        return
    known = list(dict.fromkeys(name for model in SERVER_MODELS.values() for name in model.model_fields))
    for key in entry:
        if key not in known:
            yield ValidationFault(path=(*path, key), message="unknown key", hint=_key_hint(key, known))
    yield from _value_faults(path, document)
    if "transport" in entry:
        yield _transport_fault(path, entry)
        return
    yield ValidationFault(
        path=path,
        message="has no target: needs `command` (stdio), `url` (http or sse), `builtin` or `extension`",
        hint=f"an entry without one only overlays a `{path[-1]}` defined in a lower layer; there is none",
    )


def _value_faults(path: Path, document: dict[str, Any]) -> Iterator[ValidationFault]:
    """Faults in the values of an entry without a transport, by the model its target suggests."""
    entry = as_object(value_at(document, path))
    guessed = transport_of({key: value for key, value in entry.items() if key != "transport"})
    model = SERVER_MODELS.get(guessed or "", Server)
    values = {key: value for key, value in entry.items() if key in model.model_fields and key != "transport"}
    try:
        model.model_validate(values)
    except ValidationError as exc:
        yield from _model_faults(exc, path, document)


def _transport_fault(path: Path, entry: dict[str, Any]) -> ValidationFault:
    given = entry["transport"]
    hint = "`http` is Streamable HTTP" if isinstance(given, str) and "http" in given.lower() else None
    if hint is None and isinstance(given, str):
        hint = suggestion(given, SERVER_MODELS)
    return ValidationFault(
        path=(*path, "transport"),
        message="must be `stdio`, `http`, `sse`, `builtin` or `extension`",
        hint=hint,
    )


def _unknown_key(path: Path, document: dict[str, Any]) -> ValidationFault:
    key = str(path[-1])
    model = _model_at(path[:-1], document)
    known = [field.alias or name for name, field in model.model_fields.items()] if model else []
    if path[0] == "servers" and len(path) == 3:
        homes = [name for name, other in SERVER_MODELS.items() if key in other.model_fields]
        if homes:
            own = transport_of(value_at(document, path[:-1]))
            message = f"is for {' and '.join(homes)} servers, and this one is {own}"
            return ValidationFault(path=path, message=message)
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
    if snake in known:
        return ValidationFault(path=path, message="unknown key", hint=f"did you mean `{snake}`?")
    return ValidationFault(path=path, message="unknown key", hint=_key_hint(key, known))


def _key_hint(key: str, known: Iterable[str]) -> str | None:
    """Hint for an unknown key: what it is called here, or the key that is close to it."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
    # Keys that share letters only by chance differ in length: `registrations` means no `version`.
    alike = [name for name in known if abs(len(name) - len(key)) <= max(2, max(len(name), len(key)) // 3)]
    return FOREIGN_KEYS.get(key) or FOREIGN_KEYS.get(snake) or suggestion(key, alike)


def _model_at(path: Path, document: dict[str, Any]) -> type[BaseModel] | None:
    match path:
        case ():
            return Config
        case ("servers", _):
            return SERVER_MODELS.get(transport_of(value_at(document, path)) or "")
        case ("servers", _, field):
            entry_model = _model_at(path[:-1], document)
            return _find_nested_model(entry_model, str(field)) if entry_model else None
        case ("bundles", _):
            return Bundle
        case ("bundles", _, "servers", _):
            return BundleServer
        case ("policy",):
            return PolicySettings
        case ("policy", "rules", _):
            return PolicyRule
        case (section,):
            return _find_nested_model(Config, str(section))
        case _:
            return None


def _find_nested_model(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """Model inside a field's annotation, looking through unions such as `False | OAuth | None`."""
    return _model_in(model.model_fields[field].annotation) if field in model.model_fields else None


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - an annotation can be anything
    inner: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if not inner:
        return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return next((model for model in map(_model_in, inner) if model is not None), None)


def _fields_at(model: type[BaseModel] | None, path: Path) -> list[str]:
    """Keys that a model has at a path. Items of a list are of one kind, so an index changes nothing."""
    for step in path:
        model = _find_nested_model(model, step) if model and isinstance(step, str) else model
    return list(model.model_fields) if model else []


def _reference_faults(document: dict[str, Any]) -> Iterator[ValidationFault]:
    for path, message, hint in reference_faults(document):
        fault = ValidationFault(path=path, message=message, hint=hint)
        yield replace(fault, is_isolated=_is_isolated(fault))


def _bundle_faults(document: dict[str, Any]) -> Iterator[ValidationFault]:
    known = as_object(document.get("servers"))
    # The gateway's agent is a server without an entry.
    agent = {AGENT_ID} if value_at(document, ("gateway", "agent")) is not None else set[str]()
    for name, bundle in as_object(document.get("bundles")).items():
        for member in as_object(as_object(bundle).get("servers")):
            if member not in known and member not in agent:
                yield ValidationFault(
                    path=("bundles", name, "servers", member),
                    message=f"there is no server `{member}`",
                    hint=suggestion(member, known),
                )


def _grant_faults(document: dict[str, Any]) -> Iterator[ValidationFault]:
    """Faults of missing bundles that `gateway.oauth.bundles` grants: such a grant opens nothing."""
    known = as_object(document.get("bundles"))
    path: Path = ("gateway", "oauth", "bundles")
    for claim, granted in as_object(value_at(document, path)).items():
        named = enumerate(granted) if is_list(granted) else [(None, granted)]
        for index, bundle in named:
            if isinstance(bundle, str) and bundle and bundle not in known:
                yield ValidationFault(
                    path=(*path, claim) if index is None else (*path, claim, index),
                    message=f"there is no bundle `{bundle}`",
                    hint=suggestion(bundle, known) or "`bundles` at the top level defines them",
                    is_isolated=True,
                )
