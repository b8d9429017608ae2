"""Add, edit and remove a server, with the checks of the command line."""

from dataclasses import replace
from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.config.edit_scope import EditTarget
from fairlead.errors import ConfigError, ConfigInvalid
from fairlead.web.config_panel import FileEntry
from fairlead.web.forms import FormField, checkbox, problem_summary, radios, select, text_area, text_input
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import code, form, page, server_link, server_path
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.server_form import BUILTINS, KINDS, LOGINS, TRUSTS, ServerForm, entry_of, form_of
from fairlead.wording import join_clauses

LABELS: Final = {
    "id": "Id",
    "command": "Command",
    "args": "Arguments",
    "cwd": "Working folder",
    "env": "Environment",
    "sandbox": "Sandbox",
    "sandbox_read": "It can read",
    "sandbox_write": "It can write",
    "builtin": "Which one",
    "roots": "Folders",
    "url": "URL",
    "headers": "Headers",
    "login": "Login",
    "oauth_client_id": "Client id",
    "oauth_client_secret": "Client secret",
    "oauth_scope": "Scopes",
    "description": "Description",
    "trust": "Trust",
}
SCOPES: Final = {"user": "yours, for every project", "project": "this project's", "file": "the given file"}
_SECRETS: Final = (
    "What looks like a secret goes to the keyring; the file gets a reference. `${NAME}` refers to a variable"
    " of yours."
)
_HINTS: Final = {
    "id": "Letters, digits, `_` and `-`; agents see it in the names of its tools.",
    "command": "The program, such as `npx` or `uvx`. It is run directly, never by a shell.",
    "args": "One per line, as they are: no quotes.",
    "env": f"NAME=VALUE, one per line; a NAME alone passes your own variable on. {_SECRETS}",
    "cwd": "Relative to the folder of the file; left out, that folder.",
    "sandbox_read": "Paths, one per line, besides the system and its own program.",
    "sandbox_write": "Paths, one per line; a cache too, such as `~/.npm` for npx.",
    "builtin": "It runs inside of Fairlead: nothing is installed.",
    "roots": "Paths it may work in, one per line; left out, the folder that Fairlead runs in.",
    "url": "Its MCP endpoint.",
    "headers": f"Name: value, one per line. {_SECRETS}",
    "oauth_client_secret": "Goes to the keyring, and is not shown again.",
    "oauth_scope": "Separated by spaces; left out, what the server asks for.",
    "description": "What it is for; helps to find its tools.",
}


def add(panel: HostPanel) -> Answer:
    """Page with the empty form."""

    async def answer(request: PageRequest) -> Response:
        typed = {"kind": request.query("kind") or "stdio", "id": request.query("id"), "trust": "untrusted"}
        return await _add_page(request, panel, ServerForm(typed=typed))

    return answer


def take_added(panel: HostPanel) -> Answer:
    """Handle the form: add the server, or show the form again with its problems."""

    async def answer(request: PageRequest) -> Response:
        typed = _read_form(request)
        entry = {name: value for name, value in entry_of(typed).items() if value is not None}
        server_id = typed.text("id")
        if not server_id:
            typed.complain("id", "give it a name: letters, digits, `_` and `-`")
        if not typed.problems:
            try:
                said = await panel.edits.add(
                    server_id, entry, request.field("scope"), principal=request.principal
                )
            except ConfigInvalid as exc:
                typed.take_problems(exc)
            except ConfigError as exc:
                typed.complain("id" if exc.field == "id" else "", join_clauses(str(exc), exc.hint))
            else:
                return confirm(
                    request, server_path(server_id), f"{said} It is being connected; look at its tools next."
                )
        return await _add_page(request, panel, typed, status=422)

    return answer


def edit(panel: HostPanel) -> Answer:
    """Page with the form of an existing entry."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        found = _require_editable(
            server_id, await panel.edits.entry(server_id, request.query("scope"), request.principal)
        )
        return await _edit_page(request, panel, form_of(found.entry, server_id), found)

    return answer


def take_edited(panel: HostPanel) -> Answer:
    """Handle the form: save the entry, or show the form again with its problems."""

    async def answer(request: PageRequest) -> Response:
        server_id, scope = request.step("server"), request.field("scope")
        found = _require_editable(server_id, await panel.edits.entry(server_id, scope, request.principal))
        typed = _read_form(request)
        typed.typed["id"] = server_id
        wanted = entry_of(typed, found.entry)
        changes = {name: value for name, value in wanted.items() if value != found.entry.get(name)}
        if not typed.problems:
            try:
                said = await panel.edits.edit(server_id, changes, scope, principal=request.principal)
            except ConfigInvalid as exc:
                typed.take_problems(exc)
            else:
                return confirm(request, server_path(server_id), said)
        return await _edit_page(request, panel, typed, found, status=422)

    return answer


def confirm_removal(panel: HostPanel) -> Answer:
    """Page that shows what would be removed, for confirmation."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        found = await panel.edits.entries(server_id, request.principal)
        if not found:
            raise ConfigError(
                f"`{server_id}` is in no file that Fairlead edits",
                hint="a built-in server is disabled rather than removed",
            )
        content = [
            tag(
                "div",
                tag("p", "Remove ", code(server_id), " from ", code(str(each.target.path)), "?"),
                tag("p", "Its entry and the secrets stored for it are deleted. What runs of it is ended."),
                form(
                    request,
                    server_path(server_id, "remove"),
                    tag("button", f"Remove {server_id}", type="submit", class_="danger"),
                    " ",
                    tag("a", "Keep it", href=server_path(server_id), class_="button"),
                    scope=each.target.scope,
                ),
                class_="card",
            )
            for each in found
        ]
        return HTMLResponse(page(request, panel, f"Remove {server_id}?", content))

    return answer


def remove(panel: HostPanel) -> Answer:
    """Handle the form: remove the entry."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        said = await panel.edits.remove(server_id, request.field("scope"), principal=request.principal)
        return confirm(request, "/", said)

    return answer


def _read_form(request: PageRequest) -> ServerForm:
    return ServerForm(
        typed={name: values[0] for name, values in request.form.items() if name != "form_token"}
    )


def _require_editable(server_id: str, found: FileEntry) -> FileEntry:
    if not found.has_target:
        raise ConfigError(
            f"the entry of `{server_id}` in {found.target.path} has neither `command` nor `url`",
            hint="it changes what is defined elsewhere; edit it there",
        )
    return found


async def _add_page(request: PageRequest, panel: HostPanel, typed: ServerForm, status: int = 200) -> Response:
    files = await panel.edits.files(request.principal)
    scope = request.field("scope") or files[0].scope
    where = radios("Which file", "scope", scope, {file.scope: _file_label(file) for file in files})
    identity = text_input(replace(_field(typed, "id"), required=True), maxlength=64)
    fields = form(
        request,
        "/add",
        identity,
        _entry_inputs(typed),
        where,
        tag("div", tag("button", "Add the server", type="submit", class_="main"), class_="actions"),
    )
    lead = tag(
        "p",
        "Or ",
        tag("a", "import", href="/import"),
        " what another agent has. After this the server is connected, and you say what its tools may do.",
        class_="dim",
    )
    content = (lead, problem_summary(typed.problems, LABELS), tag("div", fields, class_="form"))
    return HTMLResponse(page(request, panel, "Add a server", *content), status)


async def _edit_page(
    request: PageRequest, panel: HostPanel, typed: ServerForm, found: FileEntry, status: int = 200
) -> Response:
    server_id = request.step("server")
    others = [
        each.target
        for each in await panel.edits.entries(server_id, request.principal)
        if each.target != found.target
    ]
    fields = form(
        request,
        server_path(server_id, "edit"),
        _entry_inputs(typed),
        tag(
            "div",
            tag("button", "Save", type="submit", class_="main"),
            " ",
            tag("a", "Cancel", href=server_path(server_id), class_="button"),
            class_="actions",
        ),
        scope=found.target.scope,
    )
    content = (
        tag(
            "p",
            "Back to ",
            server_link(server_id),
            ". Saved in ",
            code(str(found.target.path)),
            ".",
            class_="dim",
        ),
        [_other_file(server_id, target) for target in others],
        problem_summary(typed.problems, LABELS),
        tag("div", fields, class_="form"),
    )
    return HTMLResponse(page(request, panel, f"Edit {server_id}", *content), status)


def _other_file(server_id: str, target: EditTarget) -> Html:
    path = f"{server_path(server_id, 'edit')}?scope={target.scope}"
    return tag("p", "It is defined in ", tag("a", str(target.path), href=path), ", too.", class_="dim")


def _file_label(file: EditTarget) -> str:
    return f"{file.path} ({SCOPES[file.scope]}{'' if file.path.exists() else ', a new file'})"


def _entry_inputs(typed: ServerForm) -> Child:
    return (
        radios("What it is", "kind", typed.kind, KINDS),
        tag("div", _program_inputs(typed), class_="of-stdio"),
        tag("div", _remote_inputs(typed), class_="of-remote"),
        tag(
            "div",
            select(_field(typed, "builtin"), BUILTINS),
            text_area(_field(typed, "roots")),
            class_="of-builtin",
        ),
        text_input(_field(typed, "description")),
        select(_field(typed, "trust"), TRUSTS),
    )


def _field(typed: ServerForm, name: str) -> FormField:
    return FormField(
        label=LABELS[name],
        name=name,
        value=typed.typed.get(name, ""),
        hint=_HINTS.get(name),
        problems=typed.problems.get(name, ()),
    )


def _program_inputs(typed: ServerForm) -> Child:
    is_open = typed.is_on("sandbox") or any(name.startswith("sandbox") for name in typed.problems)
    rights = "Run it without your rights: no home, no network"
    sandbox = tag(
        "details",
        tag("summary", "Sandbox"),
        checkbox(rights, "sandbox", checked=typed.is_on("sandbox")),
        checkbox("It can use the network", "sandbox_network", checked=typed.is_on("sandbox_network")),
        text_area(_field(typed, "sandbox_read")),
        text_area(_field(typed, "sandbox_write")),
        open=is_open,
        id="sandbox",
    )
    return (
        text_input(_field(typed, "command")),
        text_area(_field(typed, "args")),
        text_area(_field(typed, "env")),
        text_input(_field(typed, "cwd")),
        sandbox,
    )


def _remote_inputs(typed: ServerForm) -> Child:
    client = [text_input(_field(typed, f"oauth_{name}")) for name in ("client_id", "client_secret", "scope")]
    return (
        text_input(_field(typed, "url")),
        text_area(_field(typed, "headers")),
        select(_field(typed, "login"), LOGINS),
        tag("div", client, class_="of-client"),
    )
