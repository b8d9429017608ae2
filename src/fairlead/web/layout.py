"""Layout of all pages: the frame with the navigation, and the parts that pages are made of."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from anyio import to_thread

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.text import reveal_hidden
from fairlead.config.edit_scope import EditTarget
from fairlead.errors import FairleadError
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import THEME, Child, Html, document, join, tag
from fairlead.web.page_request import PageRequest

_DIFF: Final = {"  +": "came", "  -": "went"}


@dataclass(frozen=True, slots=True)
class Place:
    """Entry of the navigation: its path, its name, and the lines of its icon."""

    path: str
    name: str
    icon: str


PLACES: Final = (
    Place("/", "Overview", "M4 13h6V4H4zM14 20h6V11h-6zM4 20h6v-3H4zM14 7h6V4h-6z"),
    Place("/servers", "Servers", "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01"),
    Place("/tools", "Tools", "M14.5 6a4 4 0 0 0-5 5L4 16.5 7.5 20l5.5-5.5a4 4 0 0 0 5-5L15.5 12 12 8.5z"),
    Place("/reviews", "Reviews", "M5 4h14v16H5zM8 9h8M8 13h5M14 17l2 2 4-5"),
    Place("/calls", "Calls", "M3 12h4l3-8 4 16 3-8h4"),
    Place("/approvals", "Approvals", "M12 3l8 3v6c0 5-3 8-8 9-5-1-8-4-8-9V6zM8.5 12l2.5 2.5 4.5-5"),
    Place("/agents", "Agents", "M5 8h14v10H5zM12 8V4M9 12h.01M15 12h.01M9.5 15h5M2 12v3M22 12v3"),
    Place("/tokens", "Tokens", "M15 9a4 4 0 1 0-3.5 4L13 14h2v2h2v2h3v-3l-5.5-5.5"),
    Place("/replicas", "Replicas", "M3 4h8v7H3zM13 4h8v7h-8zM8 14h8v7H8zM7 11v3h4M17 11v3h-4"),
    Place("/logs", "Logs", "M4 6h16M4 10h11M4 14h16M4 18h8"),
    Place("/audit", "Audit", "M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h7"),
)
_THEMES: Final = (("auto", "Auto"), ("light", "Light"), ("dark", "Dark"))


def page(request: PageRequest, panel: HostPanel, title: str, *content: Child) -> str:
    """A whole page with the navigation."""
    waiting = count_waiting(request, panel)
    places = [place for place in PLACES if _is_of_use(place, request, panel)]
    here = "/" + request.path.strip("/").partition("/")[0]
    header = tag(
        "header",
        tag("a", "fairlead", href="/" if request.is_admin else "/approvals", class_="brand"),
        tag(
            "nav",
            live("places", tag("ul", [_place(place, here, waiting) for place in places])),
            aria_label="Pages",
        ),
        tag(
            "div",
            tag("span", id="live", class_="live", role="status"),
            _themes(request),
            form(request, "/logout", tag("button", "Log out", class_="quiet", type="submit")),
            class_="tools",
        ),
        class_="frame",
    )
    message = _message(request.take_message())
    main = tag("main", tag("h1", title), message, *content, id="content", tabindex="-1")
    shown = f"({waiting}) {title}" if waiting else title
    return _frame(shown, header, main, "live.js")


def _is_of_use(place: Place, request: PageRequest, panel: HostPanel) -> bool:
    if not request.is_admin:
        return place.path == "/approvals"
    # One process alone has no others to tell of.
    return place.path != "/replicas" or panel.directory is not None


def count_waiting(request: PageRequest, panel: HostPanel) -> int:
    """Number of approvals and reviews that wait for this visitor."""
    waiting = len(panel.pending(request.decides_for))
    return waiting + sum(panel.held_back().values()) if request.is_admin else waiting


def _message(text: str | None) -> Html | None:
    """Confirmation of an action. It is no live part of the page, so that it stays."""
    return tag("p", prose(text), class_="said", role="status", id="said") if text else None


def bare_page(title: str, script: str | None, *content: Child) -> str:
    """A page for visitors without a login."""
    brand = tag("p", "fairlead", class_="brand")
    return _frame(
        title, None, tag("main", brand, tag("h1", title), *content, id="content", class_="narrow"), script
    )


def error_page(request: PageRequest, panel: HostPanel, error: FairleadError) -> str:
    """Page for an error, with its hint."""
    return _failure(
        request,
        panel,
        "That did not work",
        tag("p", gate.error_text(error), class_="trouble text", role="alert"),
        hint(error.hint),
        tag("p", tag("a", "Back", href=request.path, class_="button")),
    )


def missing_page(request: PageRequest, panel: HostPanel) -> str:
    """Page for an unknown address."""
    return _failure(
        request,
        panel,
        "There is no such page",
        tag("p", "Nothing has the address ", code(request.path), ". It may have been removed or renamed."),
        tag("p", tag("a", "Go to the start page", href="/", class_="button main")),
    )


def _failure(request: PageRequest, panel: HostPanel, title: str, *content: Child) -> str:
    if request.admitted is None:
        return bare_page(title, None, *content)
    return page(request, panel, title, tag("div", *content, class_="card"))


def _frame(title: str, header: Html | None, main: Html, script: str | None) -> str:
    theme = THEME.get()
    return document(
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content=theme or "light dark"),
            tag("title", f"{title} · fairlead"),
            tag("link", rel="stylesheet", href="/static/fairlead.css"),
            tag("link", rel="stylesheet", href="/static/forms.css"),
            tag("link", rel="icon", href="/static/fairlead.svg", type="image/svg+xml"),
            tag("script", src=f"/static/{script}", defer=True) if script else None,
        ),
        tag("body", tag("a", "Skip to the content", href="#content", class_="skip"), header, main),
        data_theme=theme or None,
    )


def _place(place: Place, here: str, waiting: int) -> Html:
    badge = None
    if place.path == "/approvals" and waiting:
        words = tag("span", " waiting", class_="hidden")
        badge = tag("span", waiting, words, class_="badge", data_waiting=waiting)
    link = tag(
        "a",
        _icon(place.icon),
        tag("span", place.name),
        badge,
        id=f"to-{place.name}",
        href=place.path,
        aria_current="page" if place.path == here else None,
    )
    return tag("li", link)


def _icon(lines: str) -> Html:
    path = tag("path", d=lines, fill="none", stroke="currentColor", stroke_width="1.7")
    return tag("svg", path, viewBox="0 0 24 24", class_="icon", aria_hidden="true", focusable="false")


def _themes(request: PageRequest) -> Html:
    """The choice between the themes: it is kept in this browser."""
    chosen = request.theme or "auto"
    buttons = [
        tag(
            "button",
            label,
            type="submit",
            name="theme",
            value=theme,
            id=f"theme-{theme}",
            aria_pressed="true" if theme == chosen else "false",
        )
        for theme, label in _THEMES
    ]
    group = tag("div", buttons, role="group", aria_label="Theme", class_="switch")
    return form(request, "/theme", group, back=request.address)


# Parts.


async def build(make: Callable[[], Child]) -> Html:
    """A part of a page whose size servers choose, made in a thread so that the event loop serves others.

    `make` looks at values alone: what changes while it runs is read before.
    """
    return await to_thread.run_sync(lambda: join(make()))


def live(name: str, *children: Child) -> Html:
    """A part of a page that is updated while it is open."""
    return tag("div", *children, id=f"live-{name}", data_live=True)


def form(request: PageRequest, action: str, /, *children: Child, **hidden: str) -> Html:
    """A form that is sent to the dashboard, with its CSRF token."""
    fields = {"form_token": request.form_token, **hidden}
    inputs = [tag("input", type="hidden", name=name, value=value) for name, value in fields.items()]
    return tag("form", inputs, *children, method="post", action=action)


def button(label: str, name: str, value: str, *, key: str, kind: str = "") -> Html:
    """Submit button that sends which one it was. `key` tells it apart on the whole page."""
    return tag(
        "button", label, type="submit", name=name, value=value, id=f"{value}-{key}", class_=kind or None
    )


def file_choice(files: Sequence[EditTarget], *, key: str) -> Html | None:
    """Choice of the configuration file for an edit; None where there is only one."""
    if len(files) < 2:
        return None
    default, *others = files
    choices = [tag("option", f"in {default.path}", value="")]
    choices += [tag("option", f"in {file.path} ({file.scope})", value=file.scope) for file in others]
    label = tag("label", "Write it", for_=f"scope-{key}")
    return tag("span", label, " ", tag("select", choices, name="scope", id=f"scope-{key}"), class_="scope")


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]]) -> Html:
    """A table. The first cell of a row is its header.

    Roles are spelled out, because narrow screens show each row as a block, and a browser forgets them then.
    """
    heads = tag("tr", [tag("th", column, scope="col", role="columnheader") for column in columns], role="row")
    body = [
        tag(
            "tr",
            tag("th", first, scope="row", role="rowheader", data_column=columns[0]),
            [
                tag("td", _cell(cell), role="cell", data_column=column)
                for column, cell in zip(columns[1:], rest, strict=True)
            ],
            role="row",
        )
        for first, *rest in rows
    ]
    inside = (
        tag("caption", caption, class_="hidden"),
        tag("thead", heads, role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
    )
    return tag("div", tag("table", *inside, role="table"), class_="wide")


def _cell(content: Child) -> Child:
    """Several parts as one: a narrow screen shows the name of the column next to it."""
    if content is None or isinstance(content, str | int | Html):
        return content
    parts = tag("div", content)
    return None if parts.markup == "<div></div>" else parts


def state(name: str) -> Html:
    """State of a server: a dot of its color, and the word."""
    return tag(
        "span", tag("span", class_="dot", aria_hidden="true"), name.replace("_", " "), class_=f"state {name}"
    )


def outcome(word: str, fate: str) -> Html:
    """Outcome of a call, as a colored word."""
    kinds = {"ok": "good", "failed": "trouble", "refused": "warn"}
    return tag(
        "span", tag("span", class_="dot", aria_hidden="true"), word or fate, class_=f"outcome {kinds[fate]}"
    )


def page_start(request: PageRequest) -> int:
    """Index of the first item to show of a long list, from the query of the URL."""
    given = request.query("start")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 0


def page_links(
    what: str, path: str, start: int, count: int, size: int, query: Mapping[str, str] | None = None
) -> Html | None:
    """Pagination of a long list; None where one page shows all of it.

    Args:
        what: What the list is of.
        path: The address of the list.
        start: The place of the first item shown.
        count: How many items there are.
        size: How many a page shows.
        query: What else the address says.
    """
    if count <= size:
        return None

    def link(label: str, to: int) -> Html:
        return tag("a", label, href=f"{path}?{urlencode({**(query or {}), 'start': to})}")

    last = min(start + size, count)
    return tag(
        "nav",
        link("Previous", max(0, start - size)) if start else None,
        tag("span", f" {start + 1:,} to {last:,} of {count:,} "),
        link("Next", last) if last < count else None,
        aria_label=f"Pages of {what}",
        class_="pages",
    )


def choice(label: str, name: str, chosen: str, *options: tuple[str, str]) -> Html:
    """Drop-down with a label for each value."""
    inside = [tag("option", shown, value=value, selected=value == chosen) for value, shown in options]
    return tag(
        "span", tag("label", label, for_=name), tag("select", inside, id=name, name=name), class_="filter"
    )


def field(
    label: str, name: str, value: str, *, placeholder: str | None = None, kind: str | None = None
) -> Html:
    """Input for a short text."""
    text = tag(
        "input", type=kind, id=name, name=name, value=value, placeholder=placeholder, autocomplete="off"
    )
    return tag("span", tag("label", label, for_=name), text, class_="filter")


def prose(text: str) -> list[Child]:
    """A sentence, with the parts in backticks as code."""
    # Secrets are masked before a text is taken apart: afterwards a part of one might not be known as such.
    parts = gate.mask_secrets(text).split("`")
    if len(parts) % 2 == 0:
        return [text]  # a backtick without its partner is one
    return [code(part) if index % 2 else part for index, part in enumerate(parts)]


def hint(text: str | None) -> Html | None:
    """The hint of an error, if it has one."""
    return tag("p", "Hint: ", prose(text)) if text else None


def code_path(path: object) -> Html:
    """Path of a file as code, which wraps between folders."""
    folders = gate.mask_secrets(str(path)).split("/")
    return tag("code", [(tag("wbr"), "/", part) if index else part for index, part in enumerate(folders)])


def code(text: str) -> Html:
    """A short text as code."""
    return tag("code", text)


def spell_out(text: str) -> str:
    """A text with every character named that shows as nothing or as a space, line breaks among them."""
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(each if each.isprintable() else f"⟨U+{ord(each):04X}⟩" for each in text)
    return reveal_hidden(shown)  # fillers and selectors, which count as printable


def exact(text: str) -> Html:
    """A text as code that shows each of its characters: spaces as they are, hidden ones by their number."""
    # Secrets are masked before anything is put between their characters.
    return tag("code", spell_out(gate.mask_secrets(text)) or '""', class_="exact")


def block(lines: Iterable[str], label: str) -> Html:
    """Lines of text as a code block that can be scrolled with the keyboard."""
    return tag("pre", "\n".join(lines), tabindex="0", role="region", aria_label=label)


def diff_block(lines: Iterable[str], label: str) -> Html:
    """Lines of a diff in colors; the signs say the same without them."""
    shown = [tag("span", line, "\n", class_=_DIFF.get(line[:3])) for line in lines]
    return tag("pre", shown, tabindex="0", role="region", aria_label=label, class_="diff")


def as_json(value: object) -> list[str]:
    """A value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str).split("\n")


def moment(seconds: float | None) -> Child:
    """A point in time in this machine's time zone."""
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


def approve_link(server_id: str) -> Html:
    """A link to the page that asks whether a project's server may run."""
    label = f"Approve {server_id}"
    path, key = server_path(server_id, "approve"), f"approve-{server_id}"
    return tag("a", "Approve", href=path, class_="button main", id=key, aria_label=label)


def plural(count: int, noun: str) -> str:
    """A number with its noun: `1 tool`, `2 tools`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(text: str | None, length: int = 160) -> str:
    """The beginning of a text, on one line."""
    line = (text or "").strip().split("\n", 1)[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"
