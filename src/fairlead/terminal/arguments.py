"""A tool's arguments as people type them: NAME=VALUE, NAME:=JSON, or one JSON object."""

import json
from typing import Any, cast

import click


def read_document(text: str) -> dict[str, Any]:
    """All arguments at once, as JSON. Raises ValueError, with what is wrong for a person to read."""
    require_text(text)
    try:
        value: object = _loads(text)
    except ValueError as exc:
        raise ValueError(f"not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return cast("dict[str, Any]", value)


def read_argument(pair: str, schema: Any) -> tuple[str, Any]:  # noqa: ANN401 - a server's schema may be anything
    """Read NAME=VALUE as the tool's schema wants it, NAME:=JSON as it is. Raises ValueError, as above."""
    require_text(pair)
    name, equals, value = pair.partition("=")
    if not equals or not name.rstrip(":"):
        raise ValueError(f"`{pair}` is not NAME=VALUE")
    explicit = name.endswith(":")
    name = name.removesuffix(":")
    try:
        wanted = schema["properties"][name]["type"]
    except (KeyError, TypeError):
        wanted = None
    if not explicit and wanted in (None, "string"):
        return name, value
    try:
        return name, _loads(value)
    except ValueError:
        if explicit:
            raise ValueError(f"`{name}` is not JSON") from None
        return name, value  # the server says better what it wanted


def require_text(text: str) -> str:
    """Return the text. Raises ValueError, as above, where the bytes of the command line are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid UTF-8: is the terminal set to another encoding?") from None
    return text


def check_text(context: click.Context, parameter: click.Parameter, value: Any) -> Any:  # noqa: ANN401 - one text or several
    """Refuse a parameter that is not UTF-8, as a callback of `click`."""
    try:
        for text in (value,) if isinstance(value, str) else value or ():
            require_text(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc), context, parameter) from None
    return value


def _loads(text: str) -> object:
    """Return the value of JSON text. Raises ValueError also for half of a surrogate pair and deep nesting."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(
            "a \\u escape is half of a surrogate pair: write both halves, or the character"
        ) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
