"""VS Code: `mcp.json`, with `${env:NAME}`, the editor's variables, and inputs it prompts for.

The variables are shared by the editors built on VS Code.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ExportedDocument,
    ImportedDocument,
    Location,
    application_data,
    distinct,
    project,
    user,
)
from fairlead.config.dialects.fields import (
    TRANSPORTS,
    FieldMapping,
    Format,
    MalformedField,
    disabled,
    items,
    mapping,
    note_other_keys,
    read_servers,
    report_ignored,
    section,
    server_ids,
    string,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import (
    Piece,
    ReferenceSyntax,
    editor_style,
    render_env_reference,
    variable,
)
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets.references import SecretReference, strings
from fairlead.errors import ConfigInvalid, Problem

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def resolve_predefined(place: MachinePaths, name: str) -> Piece | None:
    """Value of a predefined variable; None for an unknown one."""
    windows = place.platform == "win32"
    match name:
        case "workspaceFolder" | "workspaceRoot":
            return str(place.cwd)
        case "workspaceFolderBasename":
            return place.cwd.name
        case "userHome":
            return variable("USERPROFILE" if windows else "HOME")
        case "pathSeparator" | "/":
            return "\\" if windows else "/"
        case _:
            return None


def note_variables(servers: Mapping[str, Any], place: MachinePaths, notes: list[ConversionNote]) -> None:
    """Note which variables were replaced by their values, and which are unknown and stay text."""
    ids = server_ids(servers, [])
    for server, entry in servers.items():
        names = dict.fromkeys(name for _, text in strings(entry) for name in _VARIABLE.findall(text))
        notes.extend(
            ConversionNote(server_id=ids[server], field=f"${{{name}}}", message=message)
            for name in names
            if (message := _remark(name, place))
        )


def _remark(name: str, place: MachinePaths) -> str | None:
    if name.startswith("workspace") and resolve_predefined(place, name) is not None:
        return f"became `{resolve_predefined(place, name)}`; it does not follow the folder you open"
    if name.startswith(("env:", "input:")) or resolve_predefined(place, name) is not None:
        return None
    return "is an unknown variable; it stays as text"


_SERVICE = "fairlead"
_INPUT = re.compile(r"\$\{input:([^}]+)\}")


def _format(style: ReferenceSyntax) -> Format:
    return Format(
        title="VS Code",
        fields=(
            FieldMapping("type", "transport", word(TRANSPORTS)),
            FieldMapping("command", "command", text(style)),
            FieldMapping("args", "args", texts(style)),
            FieldMapping("cwd", "cwd", text(style)),
            FieldMapping("env", "env", table(style, numbers=True)),
            FieldMapping("url", "url", text(style)),
            FieldMapping("headers", "headers", table(style)),
            FieldMapping("oauth.clientId", "oauth.client_id", text(style)),
        ),
        reading={
            "envFile": report_ignored("has no equivalent here; put its variables into `env`"),
            "dev": report_ignored("is for developing a server in the editor; ignored"),
            "sandboxEnabled": report_ignored("is the editor's own sandbox; set `sandbox` here"),
            "oauth.enterpriseManaged": report_ignored("has no equivalent here"),
            "gallery": report_ignored("says where the editor got it; ignored"),
            "version": report_ignored("says what the editor installed; ignored"),
            "disabled": disabled,
        },
        targets={"stdio": {"type": "stdio"}, "http": {"type": "http"}, "sse": {"type": "sse"}},
    )


def read(data: dict[str, Any], place: MachinePaths) -> ImportedDocument:
    """Servers. A secret the editor prompts for becomes a keyring reference; a note says how to set it."""
    servers = section(data, "servers")
    inputs = _inputs(data)
    notes: list[ConversionNote] = []
    answers = {name: _answer(name, inputs.get(name), notes) for name in _list_input_names(servers, inputs)}
    imported = read_servers(servers, _format(editor_style(_variables(place, answers))))
    imported.notes.extend(notes)
    if "sandbox" in data:
        imported.notes.append(
            ConversionNote(
                server_id=None,
                field="sandbox",
                message="is the editor's own sandbox; set `sandbox` on a server",
            )
        )
    note_other_keys(data, ("servers", "inputs", "sandbox", "$schema"), imported.notes)
    note_variables(servers, place, imported.notes)
    return imported


def _variables(place: MachinePaths, answers: Mapping[str, Piece]) -> Callable[[str], Piece | None]:
    def value(name: str) -> Piece | None:
        kind, _, wanted = name.partition(":")
        return answers.get(wanted) if kind == "input" else resolve_predefined(place, name)

    return value


def _inputs(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    try:
        described = [mapping(item) for item in items(data.get("inputs") or [])]
        return {string(item.get("id")): item for item in described}
    except MalformedField:
        message = "must be a list of objects with an `id`"
        raise ConfigInvalid(Problem(message=message, path=("inputs",))) from None


def _list_input_names(servers: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Every input that is defined or used, once."""
    used = [name for _, value in strings(dict(servers)) for name in _INPUT.findall(value)]
    return list(dict.fromkeys([*inputs, *used]))


def _answer(name: str, described: Mapping[str, Any] | None, notes: list[ConversionNote]) -> Piece:
    described = described or {}

    def note(message: str) -> None:
        notes.append(ConversionNote(server_id=None, field=f"inputs.{name}", message=message))

    if described.get("password") is True:
        note(f"is in the keyring from now on; store it with `keyring set {_SERVICE} {name}`")
        return SecretReference(kind="keyring", name=f"{_SERVICE}/{name}")
    default = described.get("default")
    if isinstance(default, str) and default:
        note("becomes its default; nothing prompts for it here")
        return default
    shouted = re.sub(r"\W+", "_", name, flags=re.ASCII).upper()
    shouted = f"_{shouted}" if shouted[:1].isdigit() else shouted
    note(f"becomes the environment variable `{shouted}`; nothing prompts for it here")
    return SecretReference(kind="env", name=shouted)


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers, and an input for each of our secrets in the keyring, which the editor prompts for once."""
    notes: list[ConversionNote] = []
    servers = write_servers(entries, _format(editor_style(_resolve_variable, _words)), notes)
    document: dict[str, Any] = {"servers": servers}
    if inputs := _list_input_names(servers, {}):
        document["inputs"] = [
            {"type": "promptString", "id": name, "description": name, "password": True} for name in inputs
        ]
    return ExportedDocument(document=document, notes=notes)


def _words(reference: SecretReference) -> str | None:
    service, _, name = reference.name.partition("/")
    if reference.kind == "keyring" and service == _SERVICE:
        return f"${{input:{name}}}"
    return render_env_reference(reference)


def _resolve_variable(name: str) -> Piece | None:
    """Replacement of a variable by the editor; except for inputs it only matters that there is one."""
    kind, colon, wanted = name.partition(":")
    if colon and kind == "input":
        return SecretReference(kind="keyring", name=f"{_SERVICE}/{wanted}")
    return ""


def locations(place: MachinePaths) -> list[Location]:
    """Workspace file, then the user's, of the released editor and of its preview."""
    folders = (application_data(place) / edition / "User" for edition in ("Code", "Code - Insiders"))
    return distinct(project(place, ".vscode/mcp.json"), user(*(folder / "mcp.json" for folder in folders)))


VSCODE = ConfigDialect(
    name="vscode", title="VS Code", syntax="jsonc", locations=locations, read=read, write=write
)
