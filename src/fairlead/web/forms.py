"""Inputs of forms: label, value, problems and hint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.web.html import Attribute, Child, Html, tag
from fairlead.web.layout import prose

MAX_ROWS: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """A labelled input of a form. Its element has the id `f-NAME`, or `f-KEY`."""

    label: Child
    name: str
    value: str = ""
    hint: Child = None
    problems: Sequence[str] = ()
    required: bool = False
    key: str = ""
    """Stands in its id for a name that is no plain word."""

    @property
    def id(self) -> str:
        """The id of the control."""
        return f"f-{self.key or self.name}"

    def control(self, element: str, /, *children: Child, **attributes: Attribute) -> Html:
        """The control with label, problems and hint around it."""
        problems = [
            tag("p", problem, class_="trouble", id=f"{self.id}-problem-{index}")
            for index, problem in enumerate(self.problems)
        ]
        described = [f"{self.id}-problem-{index}" for index in range(len(problems))]
        described += [f"{self.id}-hint"] if self.hint else []
        control = tag(
            element,
            *children,
            name=self.name,
            id=self.id,
            required=self.required,
            aria_invalid="true" if problems else None,
            aria_describedby=" ".join(described) or None,
            **attributes,
        )
        mark = tag("span", " (required)", class_="req") if self.required else None
        return tag(
            "div",
            tag("label", self.label, mark, for_=self.id),
            problems,
            control,
            tag("p", _render_hint(self.hint), class_="hint", id=f"{self.id}-hint") if self.hint else None,
            class_="field bad" if problems else "field",
        )


def _render_hint(hint: Child) -> Child:
    return prose(hint) if isinstance(hint, str) else hint


def text_input(field: FormField, **attributes: Attribute) -> Html:
    """Input for one line of text."""
    kept: dict[str, Attribute] = {"type": "text", "autocomplete": "off", "spellcheck": "false", **attributes}
    return field.control("input", value=field.value, **kept)


def text_area(field: FormField, rows: int = 3) -> Html:
    """Input for several lines of text."""
    shown = max(rows, min(field.value.count("\n") + 1, MAX_ROWS))
    # The line break that follows the tag is not part of the text.
    return field.control("textarea", "\n", field.value, rows=shown, spellcheck="false", autocomplete="off")


def select(field: FormField, options: Mapping[str, str]) -> Html:
    """Drop-down for one choice."""
    shown = [tag("option", text, value=key, selected=key == field.value) for key, text in options.items()]
    return field.control("select", shown)


def checkbox(label: Child, name: str, *, value: str = "on", checked: bool = False, key: str = "") -> Html:
    """Checkbox. `key` tells apart those of one name."""
    element_id = f"f-{key or name}"
    box = tag("input", type="checkbox", name=name, id=element_id, value=value, checked=checked)
    return tag("div", box, tag("label", label, for_=element_id), class_="tick")


def radios(legend: str, name: str, value: str, options: Mapping[str, str]) -> Html:
    """Radio buttons for one choice."""
    return tag(
        "fieldset",
        tag("legend", legend),
        [
            tag(
                "div",
                tag("input", type="radio", name=name, id=f"f-{name}-{key}", value=key, checked=key == value),
                tag("label", text, for_=f"f-{name}-{key}"),
                class_="tick",
            )
            for key, text in options.items()
        ],
        class_="choice",
    )


def problem_summary(problems: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> Html | None:
    """List of all problems for the top of a form, with links to the inputs."""
    if not problems:
        return None
    items = [
        tag("li", tag("a", f"{labels[name]}: {text}", href=f"#f-{name}") if name in labels else text)
        for name, texts in problems.items()
        for text in texts
    ]
    title = tag("h2", "Nothing was saved yet")
    return tag("div", title, tag("ul", items), class_="problems", role="alert", tabindex="-1")
