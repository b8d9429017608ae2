"""What all pages have in common: the frame around them, and the small parts they are made of."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from fairlead.catalog.sanitize import gate
from fairlead.config.edit_scope import EditTarget
from fairlead.errors import FairleadError
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, document, tag
from fairlead.web.page_request import PageRequest

_DIFF: Final = {"  +": "came", "  -": "went"}
PLACES: Final = (("/", "Servers"), ("/tools", "Tools"), ("/calls", "Calls"), ("/approvals", "Approvals"))


def page(visit: PageRequest, panel: HostPanel, title: str, *content: Child) -> str:
    """A whole page, with the way to all others."""
    here = "/" + visit.path.strip("/").partition("/")[0].replace("servers", "")
    waiting = len(panel.pending(visit.decides_for))
    if visit.is_admin:
        waiting += sum(panel.held_back().values())
    places = PLACES if visit.is_admin else PLACES[-1:]
    header = tag(
        "header",
        tag("a", "fairlead", href="/", class_="brand"),
        tag("nav", live("places", [_place(*place, here, waiting) for place in places]), aria_label="Pages"),
        tag("span", id="live", class_="live", role="status"),
        form(visit, "/logout", tag("button", "Log out", class_="quiet", type="submit")),
    )
    content = (_message(panel.messages.take(visit)), *content)
    return _frame(
        title, header, tag("main", tag("h1", title), *content, id="content", tabindex="-1"), "live.js"
    )


def _message(text: str | None) -> Html | None:
    """What was just done. It is no live part of the page, so that it stays."""
    return tag("p", text, class_="done", role="status") if text else None


def bare_page(title: str, script: str | None, *content: Child) -> str:
    """A page for visitors without a login."""
    return _frame(title, None, tag("main", tag("h1", title), *content, id="content", class_="narrow"), script)


def error_page(visit: PageRequest, panel: HostPanel, error: FairleadError) -> str:
    """What went wrong, and what to do about it."""
    content = (
        tag("p", gate.error_text(error), class_="trouble", role="alert"),
        tag("p", error.hint, class_="dim") if error.hint else None,
        tag("p", tag("a", "Back", href=visit.path)),
    )
    if visit.admitted is None:
        return bare_page("That did not work", None, *content)
    return page(visit, panel, "That did not work", *content)


def _frame(title: str, header: Html | None, main: Html, script: str | None) -> str:
    return document(
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title} · fairlead"),
            tag("link", rel="stylesheet", href="/static/fairlead.css"),
            tag("link", rel="stylesheet", href="/static/forms.css"),
            tag("link", rel="icon", href="/static/fairlead.svg", type="image/svg+xml"),
            tag("script", src=f"/static/{script}", defer=True) if script else None,
        ),
        tag("body", tag("a", "Skip to the content", href="#content", class_="skip"), header, main),
    )


def _place(path: str, name: str, here: str, waiting: int) -> Html:
    badge = None
    if path == "/approvals" and waiting:
        badge = tag("span", waiting, class_="badge", aria_label=f"{waiting} waiting")
    return tag("a", name, badge, id=f"to-{name}", href=path, aria_current="page" if path == here else None)


# Parts.


def live(name: str, *children: Child) -> Html:
    """A part of a page that is updated while it is open."""
    return tag("div", *children, id=f"live-{name}", data_live=True)


def form(visit: PageRequest, action: str, /, *children: Child, **hidden: str) -> Html:
    """A form that is sent to us, with what shows that it is ours."""
    fields = {"form_token": visit.form_token, **hidden}
    inputs = [tag("input", type="hidden", name=name, value=value) for name, value in fields.items()]
    return tag("form", inputs, *children, method="post", action=action)


def button(label: str, name: str, value: str, *, key: str, kind: str = "") -> Html:
    """A button that sends its form and says which one it was. `key` tells it apart on the whole page."""
    return tag(
        "button", label, type="submit", name=name, value=value, id=f"{value}-{key}", class_=kind or None
    )


def file_choice(files: Sequence[EditTarget], *, key: str) -> Html | None:
    """A field that says which configuration file an edit goes to; None where there is one alone."""
    if len(files) < 2:
        return None
    default, *others = files
    choices = [tag("option", f"in {default.path}", value="")]
    choices += [tag("option", f"in {file.path} ({file.scope})", value=file.scope) for file in others]
    label = tag("label", "Write it", for_=f"scope-{key}")
    return tag("span", label, " ", tag("select", choices, name="scope", id=f"scope-{key}"), class_="scope")


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]]) -> Html:
    """A table. The first cell of a row is what the row is about."""
    heads = tag("tr", [tag("th", column, scope="col") for column in columns])
    body = [
        tag(
            "tr",
            tag("th", first, scope="row"),
            [tag("td", cell, data_column=column) for column, cell in zip(columns[1:], rest, strict=True)],
        )
        for first, *rest in rows
    ]
    inside = (tag("caption", caption, class_="hidden"), tag("thead", heads), tag("tbody", body))
    return tag("div", tag("table", *inside), class_="wide")


def state(name: str) -> Html:
    """The state of a server: a dot of its colour, and the word."""
    return tag(
        "span", tag("span", class_="dot", aria_hidden="true"), name.replace("_", " "), class_=f"state {name}"
    )


def code(text: str) -> Html:
    """A short text as programs write it."""
    return tag("code", text)


def block(lines: Iterable[str], label: str) -> Html:
    """Lines of text as programs write them. It can be scrolled with the keyboard."""
    return tag("pre", "\n".join(lines), tabindex="0", role="region", aria_label=label)


def diff_block(lines: Iterable[str], label: str) -> Html:
    """Lines of a diff, in its colours; signs tell as much to who does not see them."""
    shown = [tag("span", line, "\n", class_=_DIFF.get(line[:3])) for line in lines]
    return tag("pre", shown, tabindex="0", role="region", aria_label=label, class_="diff")


def as_json(value: object) -> list[str]:
    """A value, line by line."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str).split("\n")


def moment(seconds: float | None) -> Child:
    """A point in time, as this machine tells it."""
    if not seconds:
        return "-"
    then = datetime.fromtimestamp(seconds, UTC)
    return tag("time", f"{then.astimezone():%Y-%m-%d %H:%M:%S}", datetime=f"{then:%Y-%m-%dT%H:%M:%SZ}")


def server_path(server_id: str, *rest: str) -> str:
    """The address of a server's page, or one below it."""
    return "/".join(("/servers", quote(server_id, safe=""), *rest))


def server_link(server_id: str) -> Html:
    """A link to a server's page."""
    return tag("a", server_id, href=server_path(server_id), id=f"server-{server_id}")


def plural(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(text: str | None, length: int = 160) -> str:
    """The beginning of a text."""
    line = (text or "").strip().split("\n", 1)[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"
