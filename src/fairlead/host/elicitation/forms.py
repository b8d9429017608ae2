"""Forms of elicitations: fields, and validation of answers before they are sent.

`form_schema` parses them.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, cast
from urllib.parse import urlsplit

FormValue = str | int | float | bool | list[str]
TextFormat = Literal["email", "uri", "date", "date-time"]

MAX_ANSWER_CHARACTERS = 20_000
MAX_NUMBER = 1e300

_MAX_NUMBER_CHARACTERS = 40
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_YES = frozenset({"y", "yes", "true", "on", "1"})
_NO = frozenset({"n", "no", "false", "off", "0"})


@dataclass(frozen=True, kw_only=True, slots=True)
class FormContent:
    """Answers that fit the form: `content` is what the server gets."""

    content: dict[str, FormValue]
    """The values by the name of the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormProblems:
    """Validation errors, by field name."""

    by_field: dict[str, str]
    """What is wrong, by the name of the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One choice of a field: `value` is sent, `label` is shown."""

    value: str
    """What is sent."""
    label: str
    """What is shown."""


# Fields. Each describes what it expects and parses an answer: a value, or text the user typed.


@dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    """The base of all fields. `name` is the server's own; `label` and `description` are sanitized."""

    name: str
    label: str
    description: str
    required: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TextField(_Field):
    """A field for text."""

    min_length: int = 0
    """The fewest characters."""
    max_length: int = MAX_ANSWER_CHARACTERS
    """The most characters."""
    format: TextFormat | None = None
    """The format of the text, if it has one."""
    default: str | None = None
    """The value without an answer; None for none."""

    @property
    def expects(self) -> str:
        """A description of valid answers."""
        words = "text" if self.format is None else FORMATS[self.format][0]
        most = self.max_length if self.max_length < MAX_ANSWER_CHARACTERS else None
        length = _between(self.min_length or None, most)
        return f"{words}, {length} characters long" if length else words

    def read(self, answer: object) -> str:
        """The answer as it is sent. Raises `ValueError`, which says what is expected."""
        text = answer if isinstance(answer, str) else None
        if text is not None and self.format is not None:
            text = FORMATS[self.format][1](text.strip())
        if text is None or not self.min_length <= len(text) <= self.max_length:
            raise _type_mismatch(self)
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberField(_Field):
    """A field for a number, or for an integer."""

    whole: bool = False
    """Whether it has no fraction."""
    minimum: float | None = None
    """The smallest value."""
    maximum: float | None = None
    """The largest value."""
    above: float | None = None
    """The value has to be larger than this."""
    below: float | None = None
    """The value has to be smaller than this."""
    default: int | float | None = None
    """The value without an answer; None for none."""

    @property
    def expects(self) -> str:
        """A description of valid answers."""
        limits = (
            "a whole number" if self.whole else "a number",
            _between(self.minimum, self.maximum),
            f"more than {_plain(self.above)}" if self.above is not None else "",
            f"less than {_plain(self.below)}" if self.below is not None else "",
        )
        return ", ".join(filter(None, limits))

    def read(self, answer: object) -> int | float:
        """The answer as it is sent. Raises `ValueError`, which says what is expected."""
        number = _parse_number(answer) if isinstance(answer, str) else answer
        if isinstance(number, bool) or not isinstance(number, int | float) or not self._fits(number):
            raise _type_mismatch(self)
        return int(number) if self.whole else number

    def _fits(self, number: float) -> bool:
        return (
            -MAX_NUMBER <= number <= MAX_NUMBER  # and so neither infinite nor not a number
            and (not self.whole or number == int(number))
            and (self.minimum is None or number >= self.minimum)
            and (self.maximum is None or number <= self.maximum)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class YesNoField(_Field):
    """A field for yes or no."""

    default: bool | None = None
    """The value without an answer; None for none."""

    @property
    def expects(self) -> str:
        """A description of valid answers."""
        return "yes or no"

    def read(self, answer: object) -> bool:
        """The answer as it is sent. Raises `ValueError`, which says what is expected."""
        if isinstance(answer, bool):
            return answer
        typed = answer.strip().casefold() if isinstance(answer, str) else None
        if typed not in _YES and typed not in _NO:
            raise _type_mismatch(self)
        return typed in _YES


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceField(_Field):
    """A field for one of several choices."""

    choices: tuple[Choice, ...]
    """What can be chosen."""
    default: str | None = None
    """The value without an answer; None for none."""

    @property
    def expects(self) -> str:
        """A description of valid answers."""
        return f"one of {_list_choices(self.choices)}"

    def read(self, answer: object) -> str:
        """The answer as it is sent. Raises `ValueError`, which says what is expected."""
        value = _resolve_choice(self.choices, answer)
        if value is None:
            raise _type_mismatch(self)
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoicesField(_Field):
    """A field for several choices, within limits."""

    choices: tuple[Choice, ...]
    """What can be chosen."""
    min_items: int = 0
    """How many have to be chosen."""
    max_items: int | None = None
    """How many can be chosen; None for all."""
    default: tuple[str, ...] | None = None
    """The value without an answer; None for none."""

    @property
    def expects(self) -> str:
        """A description of valid answers."""
        count = _between(self.min_items or None, self.max_items)
        return f"{count or 'any'} of {_list_choices(self.choices)}"

    def read(self, answer: object) -> list[str]:
        """The answer as it is sent. Raises `ValueError`, which says what is expected."""
        values = {_resolve_choice(self.choices, item): None for item in self._items(answer)}
        chosen = [value for value in values if value is not None]
        most = len(self.choices) if self.max_items is None else self.max_items
        if None in values or not self.min_items <= len(chosen) <= most:
            raise _type_mismatch(self)
        return chosen

    def _items(self, answer: object) -> Collection[object]:
        if isinstance(answer, list | tuple):
            return cast("Collection[object]", answer)
        if isinstance(answer, str) and _resolve_choice(self.choices, answer) is None:
            return [item for item in answer.split(",") if item.strip()]
        return [answer]  # one choice, which may have a comma in it


Field = TextField | NumberField | YesNoField | ChoiceField | ChoicesField


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The fields of a form elicitation, in the server's order."""

    fields: tuple[TextField | NumberField | YesNoField | ChoiceField | ChoicesField, ...]
    """The fields."""

    def defaults(self) -> dict[str, FormValue]:
        """The values that are sent for fields without an answer."""
        return {
            field.name: list(field.default) if isinstance(field.default, tuple) else field.default
            for field in self.fields
            if field.default is not None
        }

    def check(self, answers: Mapping[str, object]) -> FormContent | FormProblems:
        """Validate answers: values, or text the user typed.

        An answer that is absent or `None` stands for the default, a blank one says that there is none.
        """
        content: dict[str, FormValue] = {}
        defaults = self.defaults()
        known = {field.name for field in self.fields}
        problems = {name: "the form has no such field" for name in answers if name not in known}
        for field in self.fields:
            answer = answers.get(field.name)
            if answer is None:
                answer = defaults.get(field.name)
            elif isinstance(answer, str) and not answer.strip() and not isinstance(field, ChoicesField):
                answer = None
            try:
                if answer is not None:
                    content[field.name] = field.read(answer)
                elif field.required:
                    raise _type_mismatch(field)
            except ValueError as exc:
                problems[field.name] = str(exc)
        return FormProblems(by_field=problems) if problems else FormContent(content=content)


def _type_mismatch(field: Field) -> ValueError:
    return ValueError(f"must be {field.expects}")


def _between(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{_plain(least)} to {_plain(most)}" if least != most else _plain(least)
    if least is not None:
        return f"at least {_plain(least)}"
    return f"at most {_plain(most)}" if most is not None else ""


def _plain(number: float) -> str:
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else repr(number)


def _parse_number(text: str) -> int | float | None:
    text = text.strip()
    if len(text) > _MAX_NUMBER_CHARACTERS or not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def _resolve_choice(choices: tuple[Choice, ...], answer: object) -> str | None:
    """The value an answer means: the value itself, else what is shown for it, if that is one thing alone."""
    if not isinstance(answer, str):
        return None
    if any(choice.value == answer for choice in choices):
        return answer
    typed = answer.strip().casefold()
    meant = {
        choice.value for choice in choices if typed in (choice.label.casefold(), choice.value.casefold())
    }
    return meant.pop() if len(meant) == 1 else None


def _list_choices(choices: tuple[Choice, ...]) -> str:
    some = ", ".join(choice.label for choice in choices[:10])
    return some if len(choices) <= 10 else f"{some}, … ({len(choices)} in all)"


# Formats of text, each with words for it and with what makes an answer fit, or tells that it does not.


_WORD = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL = re.compile(rf"{_WORD}(?:\.{_WORD})*@{_LABEL}(?:\.{_LABEL})*")
_HEX = "%[0-9A-Fa-f]{2}"
_NAME = rf"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_HEX})"
_SEGMENT = rf"(?:[:@]|{_NAME})"
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?=.)"
    rf"(?://(?:(?::|{_NAME})*@)?(?:\[[0-9A-Fa-f:.]+\]|{_NAME}*)(?::[0-9]*)?(?:/{_SEGMENT}*)*"
    rf"|/?(?:{_SEGMENT}+(?:/{_SEGMENT}*)*)?)"
    rf"(?:\?(?:[/?]|{_SEGMENT})*)?(?:#(?:[/?]|{_SEGMENT})*)?"
)


def _email(text: str) -> str | None:
    return text if _EMAIL.fullmatch(text) else None


def _uri(text: str) -> str | None:
    try:
        urlsplit(text)
    except ValueError:
        return None
    return text if _URI.fullmatch(text) else None


def _date(text: str) -> str | None:
    try:
        date.fromisoformat(text)  # which takes weeks as well
    except ValueError:
        return None
    return text if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None


def _date_time(text: str) -> str | None:
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d(\.\d{1,9})?)([Zz]|[+-]\d\d:\d\d)", text, re.ASCII
    )
    if match is None:
        return None
    day, time, _, zone = match.groups()
    try:
        datetime.fromisoformat(f"{day}T{time[:8]}{zone.upper()}")
    except ValueError:
        return None
    return f"{day}T{time}{zone.upper()}"


FORMATS: dict[TextFormat, tuple[str, Callable[[str], str | None]]] = {
    "email": ("an email address", _email),
    "uri": ("a URI with its scheme, like https://example.com/", _uri),
    "date": ("a date like 2026-03-31", _date),
    "date-time": ("a time with its zone, like 2026-03-31T12:00:00Z", _date_time),
}
