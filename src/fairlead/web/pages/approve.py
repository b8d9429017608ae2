"""May a project's server run? Shows exactly what would, and records the user's consent to that."""

from collections.abc import Iterable, Iterator

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.actions.consent import ConsentQuestion
from fairlead.config.untyped import is_list, is_object
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import exact, form, page, prose, server_link, server_path, spell_out
from fairlead.web.page_request import Answer, PageRequest, confirm


def question(panel: HostPanel) -> Answer:
    """Page with the question, or that there is none."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        asked = await panel.edits.consent(server_id, request.principal)
        if asked is None:
            content = tag(
                "div",
                tag("p", server_link(server_id), " needs no approval: nothing of it waits for you."),
                class_="card",
            )
            return HTMLResponse(page(request, panel, f"Approve {server_id}", content))
        # In a thread, because a project may write entries of any length.
        shown = await to_thread.run_sync(lambda: tag("div", _content(request, asked)))
        return HTMLResponse(page(request, panel, f"May {server_id} run?", shown))

    return answer


def approve(panel: HostPanel) -> Answer:
    """Handle the form: record the consent, if what would run is still what was shown."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        said = await panel.edits.approve(server_id, request.field("digest"), principal=request.principal)
        return confirm(request, server_path(server_id), said)

    return answer


def _content(request: PageRequest, asked: ConsentQuestion) -> Child:
    # No live part: what is shown has to stay what the button approves.
    hides = any(spell_out(text) != text for text in _texts(asked))
    return (
        tag("p", "It comes from a project's file: nothing of it runs before you approve exactly this."),
        tag("h2", "What it would run"),
        tag("p", "Warning: there are hidden characters, which are spelled out below.", class_="trouble")
        if hides
        else None,
        None if asked.words else tag("p", "It ", exact(asked.start)),
        tag("dl", _pairs(_entry(asked))),
        tag("p", prose(asked.caution), class_="warn") if asked.caution else None,
        _rights(asked),
        tag("p", prose(asked.tools)) if asked.tools else None,
        tag("h2", "What your approval is bound to"),
        tag("dl", _pairs((fact.label, exact(fact.text)) for fact in asked.key.facts)),
        _buttons(request, asked),
    )


def _texts(asked: ConsentQuestion) -> Iterator[str]:
    """All texts that the project chose."""
    yield from (asked.start, *asked.words, *asked.shared, *(fact.text for fact in asked.key.facts))
    for _, value in asked.fields:
        yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    if is_object(value):
        for name, inner in value.items():
            yield name
            yield from _strings(inner)
    elif is_list(value):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)


def _entry(asked: ConsentQuestion) -> Iterator[tuple[str, Child]]:
    """What starts, word by word, and the rest of the entry."""
    for number, word in enumerate(asked.words):
        yield f"argument {number}" if number else "program", exact(word)
    for name, value in asked.fields:
        yield name, _value(value)
    yield "entry", exact(asked.origin)


def _value(value: object) -> Child:
    """A field of the entry: variables and headers line by line, lists one by one."""
    if is_object(value):
        pairs = value.items()
        return tag("ul", [tag("li", exact(name), " = ", _value(inner)) for name, inner in pairs])
    if is_list(value):
        return tag("ul", [tag("li", _value(inner)) for inner in value])
    return exact(str(value))


def _rights(asked: ConsentQuestion) -> Child:
    if asked.rights is None:
        return None
    shared = tag("ul", [tag("li", exact(line)) for line in asked.shared]) if asked.shared else None
    return (tag("p", asked.rights, class_=None if asked.is_sandboxed else "warn"), shared)


def _buttons(request: PageRequest, asked: ConsentQuestion) -> Html:
    path = server_path(asked.server_id, "approve")
    label = f"Approve exactly this, and start {asked.server_id}"
    yes = tag("button", label, type="submit", class_="main", id="approve-server")
    no = tag("a", "Not now", href=server_path(asked.server_id), class_="button", id="not-now")
    return tag("div", form(request, path, yes, " ", no, digest=asked.key.digest), class_="actions")


def _pairs(facts: Iterable[tuple[str, Child]]) -> list[Child]:
    return [(tag("dt", label[:1].upper() + label[1:]), tag("dd", value)) for label, value in facts]
