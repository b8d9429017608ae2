"""Form of a server's entry: parsing of the inputs, the entry they make, and the entry as it is shown.

Lists are texts with one item per line. A secret of an entry is shown as a reference or as `•••`; where that
comes back as it was shown, the entry keeps its value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from fairlead.catalog.sanitize import gate
from fairlead.config.models import BuiltinName, transport_of
from fairlead.config.secrets.masking import MASK
from fairlead.config.secrets.redaction import redact_entry
from fairlead.config.untyped import as_list, as_object, is_list, is_object
from fairlead.errors import ConfigInvalid, Problem

KINDS: Final = {
    "stdio": "A command to run",
    "http": "A URL",
    "sse": "A URL with the older SSE transport",
    "builtin": "A server that comes with Fairlead",
}
BUILTINS: Final = {name: name for name in get_args(BuiltinName)}
LOGINS: Final = {
    "auto": "log in where the server asks for it",
    "client": "with an OAuth client of my own",
    "never": "never log in",
}
TRUSTS: Final = {
    "untrusted": "untrusted: its annotations are ignored",
    "trusted": "trusted: its annotations and instructions count",
}
_OF_KIND: Final = {
    "stdio": ("command", "args", "cwd", "env", "sandbox"),
    "http": ("url", "headers", "oauth"),
    "sse": ("url", "headers", "oauth"),
    "builtin": ("builtin", "roots"),
}
FIELDS: Final = ("transport", "description", "trust", *_OF_KIND["stdio"], *_OF_KIND["http"])
"""The fields of an entry that the form has. Others stay as they are."""
_CLIENT: Final = ("client_id", "client_secret", "scope")


@dataclass(kw_only=True, slots=True)
class ServerForm:
    """The typed values, by the name of the input, and their problems."""

    typed: dict[str, str]
    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By the name of the input; "" for what concerns none of them alone."""

    def text(self, name: str) -> str:
        """The text of an input with one line."""
        return self.typed.get(name, "").strip()

    def lines(self, name: str) -> list[str]:
        """The lines of an input with one item on each; blank lines are none."""
        return [line.strip() for line in self.typed.get(name, "").splitlines() if line.strip()]

    def is_on(self, name: str) -> bool:
        """Whether a box is ticked."""
        return bool(self.typed.get(name))

    @property
    def kind(self) -> str:
        """The kind of server: its transport, or built in."""
        return self.text("kind") if self.text("kind") in KINDS else "stdio"

    def complain(self, name: str, message: str) -> None:
        """Note a problem of an input."""
        self.problems.setdefault(name, []).append(message)

    def take_problems(self, error: ConfigInvalid) -> None:
        """Assign each problem of the entry to its input."""
        for problem in error.problems:
            self.complain(_input_of(problem), _words(problem))


def form_of(entry: Mapping[str, Any], server_id: str = "") -> ServerForm:
    """The form that shows an entry, its secrets as references or masked."""
    shown = _redact(entry)
    oauth, sandbox = shown.get("oauth"), as_object(shown.get("sandbox"))
    client = as_object(oauth)
    typed = {
        "id": server_id,
        "kind": transport_of(dict(entry)) or "stdio",
        "description": str(shown.get("description") or ""),
        "trust": str(shown.get("trust") or "untrusted"),
        "command": str(shown.get("command") or ""),
        "args": _join_lines(as_list(shown.get("args"))),
        "cwd": str(shown.get("cwd") or ""),
        "env": _join_lines([f"{name}={value}" for name, value in as_object(shown.get("env")).items()]),
        "sandbox": "on" if "sandbox" in entry and entry["sandbox"] is not None else "",
        "sandbox_network": "on" if sandbox.get("network") else "",
        "sandbox_read": _join_lines(as_list(sandbox.get("read"))),
        "sandbox_write": _join_lines(as_list(sandbox.get("write"))),
        "url": str(shown.get("url") or ""),
        "headers": _join_lines(
            [f"{name}: {value}" for name, value in as_object(shown.get("headers")).items()]
        ),
        "builtin": str(shown.get("builtin") or ""),
        "roots": _join_lines(as_list(shown.get("roots"))),
        "login": "never" if oauth is False else "client" if client else "auto",
        **{f"oauth_{name}": str(client.get(name) or "") for name in _CLIENT},
    }
    return ServerForm(typed=typed)


def entry_of(form: ServerForm, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry that a form makes; what cannot be parsed is noted in `form.problems`.

    Args:
        form: What was typed.
        before: The entry that is edited: what is shown masked has its value from there.

    Returns:
        A value for each of `FIELDS`; None for one that the entry does not have.
    """
    known = _Known(form, before or {})
    entry: dict[str, Any] = dict.fromkeys(FIELDS)
    entry["description"] = form.text("description") or None
    trust = form.text("trust") or "untrusted"
    entry["trust"] = trust if trust != "untrusted" or "trust" in (before or {}) else None
    if form.kind == "builtin":
        entry |= _builtin(form, known)
    elif known.before.get("builtin") is not None:
        entry["builtin"] = None  # it becomes something else
    if form.kind == "stdio":
        entry |= _program(form, known)
        if (before or {}).get("transport") == "stdio":
            entry["transport"] = "stdio"
    elif form.kind != "builtin":
        entry |= _remote(form, known)
        is_said = form.kind == "sse" or "transport" in (before or {})
        entry["transport"] = form.kind if is_said else None
    return entry


def _builtin(form: ServerForm, known: "_Known") -> dict[str, Any]:
    if form.text("builtin") not in BUILTINS:
        form.complain("builtin", "choose one of them")
    kept = {"transport": "builtin"} if known.before.get("transport") == "builtin" else {}
    # The sandbox of `shell` has inputs nowhere, and stays.
    sandbox = known.before.get("sandbox") if form.text("builtin") == "shell" else None
    builtin, roots = form.text("builtin") or None, form.lines("roots") or None
    return {"builtin": builtin, "roots": roots, "sandbox": sandbox, **kept}


def _program(form: ServerForm, known: "_Known") -> dict[str, Any]:
    # Not stripped: a blank at the end of an argument may be meant.
    arguments = [line for line in form.typed.get("args", "").splitlines() if line]
    if not form.text("command"):
        form.complain("command", "say which program to run")
    return {
        "command": form.text("command") or None,
        "args": [known.value(("args",), "args", line) for line in arguments] or None,
        "cwd": form.text("cwd") or None,
        "env": dict(_variables(form, known)) or None,
        "sandbox": _sandbox(form, as_object(known.before.get("sandbox"))),
    }


def _sandbox(form: ServerForm, before: dict[str, Any]) -> dict[str, Any] | None:
    more = {
        "network": form.is_on("sandbox_network"),
        "read": form.lines("sandbox_read"),
        "write": form.lines("sandbox_write"),
    }
    said = {name: value for name, value in more.items() if value}
    kept = {name: value for name, value in before.items() if name not in more}
    return {"kind": "bwrap", **kept, **said} if form.is_on("sandbox") or said else None


def _remote(form: ServerForm, known: "_Known") -> dict[str, Any]:
    if not form.text("url"):
        form.complain("url", "say where it is, as https://…")
    return {
        "url": known.value(("url",), "url", form.text("url")) or None,
        "headers": dict(_headers(form, known)) or None,
        "oauth": _oauth(form, known),
    }


def _oauth(form: ServerForm, known: "_Known") -> dict[str, Any] | bool | None:
    login, before = form.text("login"), known.before.get("oauth")
    if login == "never":
        return False
    if login != "client":
        return None
    kept = {name: value for name, value in as_object(before).items() if name not in _CLIENT}
    for name in _CLIENT:
        if text := form.text(f"oauth_{name}"):
            kept[name] = known.value(("oauth", name), f"oauth_{name}", text)
    if not kept:
        form.complain("login", "give the id of the client, or let the server say how to log in")
    return kept or None


def _variables(form: ServerForm, known: "_Known") -> Iterator[tuple[str, str]]:
    for line in form.lines("env"):
        name, equals, value = line.partition("=")
        if not name.strip():
            form.complain("env", f"`{line}` is not NAME=VALUE")
        # A name alone passes the user's own variable on, as with `fairlead add --env NAME`.
        yield name, known.value(("env", name), "env", value) if equals else f"${{{name}}}"


def _headers(form: ServerForm, known: "_Known") -> Iterator[tuple[str, str]]:
    for line in form.lines("headers"):
        equals, colon = line.find("="), line.find(":")
        at = min((place for place in (equals, colon) if place > 0), default=-1)
        if at < 0:
            form.complain("headers", "write each header as `Name: value`")
            continue
        name = line[:at].strip()
        yield name, known.value(("headers", name), "headers", line[at + 1 :].strip())


class _Known:
    """The entry that is edited, and its values by how they are shown."""

    def __init__(self, form: ServerForm, before: Mapping[str, Any]) -> None:
        self._form = form
        self.before = before
        shown = _redact(before)
        self._values: dict[tuple[str, ...], dict[str, str]] = {}
        for path, value, display in _pairs(before, shown):
            self._values.setdefault(path, {})[display] = value

    def value(self, path: tuple[str, ...], name: str, text: str) -> str:
        """The value of a text: that of the entry, where the text is how the entry is shown."""
        kept = self._values.get(path, {}).get(text)
        if kept is not None:
            return kept
        if MASK in text:
            self._form.complain(name, "a secret that was hidden here is needed again: type it anew")
        return text


def _pairs(entry: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Each text of an entry that may hold a secret, with its place and how it is shown."""
    for group in ("env", "headers", "oauth"):
        displayed = as_object(shown.get(group))
        for name, value in as_object(entry.get(group)).items():
            if isinstance(value, str):
                yield (group, name), value, str(displayed.get(name)).strip()
    for value, display in zip(as_list(entry.get("args")), as_list(shown.get("args")), strict=True):
        yield ("args",), str(value), str(display)
    if isinstance(entry.get("url"), str):
        yield ("url",), entry["url"], str(shown.get("url"))


def _redact(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as pages show it: secrets in plain text, and all that is known to be one, masked."""
    return as_object(_mask(redact_entry(dict(entry))))


def _mask(value: object) -> object:
    if isinstance(value, str):
        return gate.mask_secrets(value)
    if is_object(value):
        return {name: _mask(each) for name, each in value.items()}
    return [_mask(each) for each in value] if is_list(value) else value


def _join_lines(items: Sequence[object]) -> str:
    return "\n".join(map(str, items))


_INPUTS: Final = frozenset(
    ("description", "trust", "command", "args", "cwd", "env", "url", "headers", "sandbox", "builtin", "roots")
)


def _input_of(problem: Problem) -> str:
    """The input that a problem of an entry belongs to."""
    path = problem.path[2:]
    if len(problem.path) == 2:
        return "id"
    if path[:1] == ("sandbox",) and path[1:2] and path[1] in ("read", "write"):
        return f"sandbox_{path[1]}"
    if path[:1] == ("oauth",):
        return f"oauth_{path[1]}" if path[1:2] and path[1] in _CLIENT else "login"
    return str(path[0]) if path and path[0] in _INPUTS else ""


def _words(problem: Problem) -> str:
    inside = ".".join(map(str, problem.path[3:]))
    text = f"{inside}: {problem.message}" if inside else problem.message
    return f"{text} ({problem.hint})" if problem.hint else text
