"""One tool: its schema, its cost, the rule that decides about it, and a form to try it."""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, Response

from fairlead.actions.explain import reason_in_short
from fairlead.catalog.sanitize import gate
from fairlead.config.command_lines import command_line
from fairlead.config.untyped import as_object, is_object
from fairlead.errors import ConfigError
from fairlead.web.forms import FormField, problem_summary, select, text_area, text_input
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    as_json,
    block,
    build,
    button,
    code,
    form,
    hint,
    live,
    page,
    plural,
    prose,
    server_link,
    server_path,
    table,
)
from fairlead.web.page_request import Answer, PageRequest, see
from fairlead.web.panel import ToolDetails
from fairlead.web.rendered_results import render_frames, render_result
from fairlead.web.schema_form import (
    ArgumentField,
    argument_fields,
    defaults_of,
    read_arguments,
    read_json,
    type_words,
    walk,
)
from fairlead.web.trials import ToolTrial, new_trial_id

ALL = "all-arguments"
"""The input that has all arguments as JSON."""


def tool_path(server_id: str, tool: str, **more: str) -> str:
    """URL of a tool's page. Names may have any character, so they are in its query."""
    return "/tool?" + urlencode({"server": server_id, "name": tool, **more})


def one(panel: HostPanel) -> Answer:
    """Page of a tool, with an empty form, or with the call that the URL names."""

    async def answer(request: PageRequest) -> Response:
        details = await panel.tool(request.query("server"), request.query("name"))
        trial = panel.trials.find(request.query("call"), request.principal) if request.query("call") else None
        return HTMLResponse(await _page(request, panel, details, trial=trial))

    return answer


def call(panel: HostPanel) -> Answer:
    """Handle the form: call the tool, show the form again with its problems, or cancel a call."""

    async def answer(request: PageRequest) -> Response:
        server_id, name = request.field("server"), request.field("name")
        if request.field("do") == "cancel":
            if not panel.trials.cancel(request.field("call"), request.principal):
                raise ConfigError("that call is not under way any more")
            return see(tool_path(server_id, name, call=request.field("call")))
        details = await panel.tool(server_id, name)
        typed = {key: values[0] for key, values in request.form.items() if key.startswith(("arg/", ALL))}
        arguments, problems = _read(details, typed, as_text=request.field("do") == "json")
        if problems:
            page_again = await _page(request, panel, details, typed=typed, problems=problems)
            return HTMLResponse(page_again, 422)
        assert request.admitted is not None, "strangers call nothing"
        trial = ToolTrial(
            id=new_trial_id(),
            caller=request.admitted.caller,
            server_id=server_id,
            tool=details.entry.key.tool,
            arguments=arguments,
            typed=typed,
        )
        await panel.try_tool(trial)
        return see(tool_path(server_id, name, call=trial.id))

    return answer


def _read(
    details: ToolDetails, typed: Mapping[str, str], *, as_text: bool
) -> tuple[dict[str, object], dict[str, list[str]]]:
    fields = argument_fields(details.schema)
    if fields is not None and not as_text:
        found = read_arguments(fields, typed)
        return found.arguments, found.problems
    try:
        value = read_json(typed.get(ALL, "").strip() or "{}")
    except ValueError as exc:
        return {}, {ALL: [str(exc)]}
    return (value, {}) if is_object(value) else ({}, {ALL: ["arguments are a JSON object: { … }"]})


async def _page(
    request: PageRequest,
    panel: HostPanel,
    details: ToolDetails,
    *,
    trial: ToolTrial | None = None,
    typed: Mapping[str, str] | None = None,
    problems: Mapping[str, Sequence[str]] | None = None,
) -> str:
    key = details.entry.key
    given = typed if typed is not None else trial.typed if trial else None
    content = await build(
        lambda: (
            tag("p", "A tool of ", server_link(key.server_id), ".", class_="dim"),
            live("outcome", _outcome(request, trial)) if trial is not None else None,
            _try(request, details, given, problems or {}),
            _about(details),
            _schema("Arguments", details.schema, "inputSchema"),
            _schema("Result", details.output_schema, "outputSchema") if details.output_schema else None,
        )
    )
    return page(request, panel, key.shown_tool, content)


# What it is.


def _about(details: ToolDetails) -> Child:
    entry, explained = details.entry, details.explanation
    facts: list[tuple[str, Child]] = [
        ("Cost", f"about {details.tokens:,} tokens of definition"),
        ("On the command line", code(command_line("call", details.entry.key.qualified))),
        ("Name for agents", code(details.agent_name) if details.agent_name else "not offered to agents"),
    ]
    if entry.title:
        facts.insert(0, ("Title", entry.title))
    if explained is not None:
        because = (explained.answer, tag("span", prose(reason_in_short(explained)), class_="note"))
        facts.append(("Agents' calls", because))
        facts.append(("Set by", explained.decided_by.place or "the default"))
    review = tag("a", "Review it", href=server_path(entry.key.server_id, "review"))
    text = tag("div", entry.description, class_="text") if entry.description else None
    shown = tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts])
    return (tag("h2", "About it"), text, shown, tag("p", review))


def _schema(title: str, schema: object, key: str) -> Child:
    fields = argument_fields(schema) or ()
    rows = [
        (
            code(".".join(field.path)),
            field.type_words,
            "yes" if field.required else "no",
            code(field.default) if field.default else "-",
            tag("div", field.description, class_="text") if field.description else "-",
        )
        for field in walk(fields)
    ]
    listed = table(title, ("Name", "Type", "Required", "Default", "What it is"), rows) if rows else None
    empty = (
        "It takes none." if key == "inputSchema" and as_object(schema) else f"It is: {type_words(schema)}."
    )
    return (
        tag("h2", title),
        listed or tag("p", empty, class_="dim"),
        tag("details", tag("summary", "JSON Schema"), block(as_json(schema), key), id=key),
    )


# Trying it.


def _try(
    request: PageRequest,
    details: ToolDetails,
    typed: Mapping[str, str] | None,
    problems: Mapping[str, Sequence[str]],
) -> Child:
    fields = argument_fields(details.schema)
    given = dict(typed) if typed is not None else defaults_of(fields or ())
    key = details.entry.key
    hidden = {"server": key.server_id, "name": key.tool}
    whole = FormField(
        label="All arguments as JSON",
        name=ALL,
        value=given.get(ALL, "{}"),
        problems=problems.get(ALL, ()),
    )
    send_json = button(
        "Call it with this JSON", "do", "json", key="tool", kind="" if fields is not None else "main"
    )
    as_text = (text_area(whole, rows=4), tag("div", send_json, class_="actions"))
    labels = {field.name: ".".join(field.path) for field in walk(fields or ())}
    named = {labels.get(name, "Arguments"): texts for name, texts in problems.items()}
    if fields is None:
        inputs: Child = as_text
        extra: Child = None
    else:
        numbers = {field.name: f"a{number}" for number, field in enumerate(walk(fields))}
        inputs = (
            [_input(field, given, problems, numbers) for field in fields]
            or tag("p", "It takes no arguments.", class_="dim"),
            tag("div", button("Call it", "do", "form", key="tool", kind="main"), class_="actions"),
        )
        is_open = ALL in problems or given.get(ALL, "{}").strip() not in ("", "{}")
        json_form = form(request, "/tool", as_text, **hidden)
        extra = tag("details", tag("summary", "As JSON instead"), json_form, open=is_open, id="as-json")
    form_inputs = form(request, "/tool", inputs, **hidden)
    note = (
        "The call is made now, as yours. What is denied stays denied; where approval is needed, this is it."
    )
    return (
        tag("h2", "Try it"),
        tag("p", note, class_="dim"),
        problem_summary(named, {}),
        tag("div", form_inputs, extra, class_="form"),
    )


def _input(
    field: ArgumentField,
    typed: Mapping[str, str],
    problems: Mapping[str, Sequence[str]],
    numbers: Mapping[str, str],
) -> Html:
    if field.kind == "object":
        mark = tag("span", " (required)", class_="req") if field.required else None
        described = tag("p", field.description, class_="hint") if field.description else None
        inner = [_input(each, typed, problems, numbers) for each in field.fields]
        return tag("fieldset", tag("legend", field.label, mark), described, inner)
    words = {"lines": "one per line", "json": "as JSON"}.get(field.kind)
    kind = f"{field.type_words}, {words}" if words else field.type_words
    control = FormField(
        label=field.label,
        name=field.name,
        value=typed.get(field.name, ""),
        hint=(tag("span", kind, class_="kind"), f". {field.description}" if field.description else None),
        problems=problems.get(field.name, ()),
        # A browser would refuse a blank line for a text that is required; we do so for all else.
        required=field.required,
        key=numbers[field.name],
    )
    match field.kind:
        case "choice":
            options = {"": "(not given)"} | {choice: _choice(choice) for choice in field.choices}
            return select(control, options)
        case "boolean":
            return select(control, {"": "(not given)", "true": "true", "false": "false"})
        case "number" | "integer":
            return text_input(control, inputmode="decimal")
        case "text":
            return text_area(control, rows=1)
        case _:
            return text_area(control, rows=3)


def _choice(encoded: str) -> str:
    value: object = json.loads(encoded)
    return value if isinstance(value, str) else encoded


# How it went.


def _outcome(request: PageRequest, trial: ToolTrial) -> Html:
    return tag(
        "section",
        tag("h2", "Result"),
        _state(request, trial),
        tag(
            "div",
            tag("div", _result(trial), class_="result"),
            tag(
                "details",
                tag("summary", f"JSON-RPC frames ({len(trial.log.frames)})"),
                render_frames(trial.log.frames) if trial.ended.is_set() else None,
                id="frames",
            ),
            class_="beside",
        ),
        id="result",
    )


def _state(request: PageRequest, trial: ToolTrial) -> Child:
    if trial.seconds is None:
        again = tool_path(trial.server_id, trial.tool, call=trial.id)
        hidden = {"server": trial.server_id, "name": trial.tool, "call": trial.id}
        cancel = form(
            request, "/tool", button("Cancel", "do", "cancel", key=trial.id, kind="danger"), **hidden
        )
        return (
            tag("p", "Under way … ", trial.progress, " ", tag("a", "Look again", href=again), role="status"),
            tag("div", cancel, class_="actions"),
        )
    took = f"{trial.seconds * 1000:,.0f} ms"
    if trial.result is None:
        word = "cancelled" if trial.is_cancelled else "failed"
        return tag("p", f"The call {word} after {took}.", class_="trouble", role="status")
    size = plural(trial.result.original_size, "byte")
    if trial.result.is_error:
        return tag("p", f"The tool returned an error after {took}.", class_="trouble", role="status")
    return tag("p", f"It answered in {took} with {size}.", class_="good", role="status")


def _result(trial: ToolTrial) -> Child:
    if trial.result is not None:
        return render_result(trial.result)
    if trial.error is None:
        return None
    error = trial.error
    return (
        tag("p", gate.error_text(error), class_="trouble text"),
        tag("p", error.delivery_notice) if error.delivery_notice else None,
        hint(error.hint),
    )
