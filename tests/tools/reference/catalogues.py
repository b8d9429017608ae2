"""The pages of events, metrics, exit statuses and errors."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast, get_args

import fairlead
from fairlead import errors
from fairlead.events import Event
from fairlead.terminal import exit_codes
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import option_of
from fairlead.web.monitoring import Metric, gateway_metrics, process_metrics, replica_metrics
from tests.tools.reference.markdown import code, table
from tests.tools.reference.python_api import class_fields, prose
from tests.tools.reference.sources import docstring_of, find, module_tree

if TYPE_CHECKING:
    from fairlead.gateway.cluster.cluster import Cluster
    from fairlead.web.host_panel import HostPanel

_SOURCES = Path(fairlead.__file__).parent
_DELIVERED = (errors.CallFailed, errors.CallTimedOut, errors.CallRejected, errors.ConnectionLost)
"""Errors of which each says how far its call got."""
_LONGEST = 300
"""Messages that are longer say more than a table can show."""


_EVENTS = """# Events, field by field

What `host.events()` yields, as the classes say it. [Events of a host](../events.md) explains when each one
comes, and in which order.
"""
_METRICS = """# Metrics

`GET /metrics` of a gateway, in Prometheus' text format. It wants a token with the scope `status`; `/healthz`
(it answers) and `/readyz` (every required server is ready) want none.

"""
_REPLICA_METRICS = """
Gateways that share a store, and those with several workers, also tell the following. With workers, these
numbers and those of calls have the label `worker` as well.

"""
_EXIT_CODES = """# Exit statuses

The same for every command. Which error ends with which is on the page of [errors](errors.md).

"""
_ERRORS = """# Errors

Every error has a message, a stable `code`, and a `hint` where something can be done. `--json` prints the same
(see [the command line](../command-line.md)). For what to do about those that users meet most, see
[troubleshooting](../troubleshooting.md).

```text
"""
_MESSAGES = """
The exit status is that of a command that ends with the error; `delivery` says how far the failed call got.

## Messages and hints

Messages as the source has them; `…` stands for what varies.
"""


def events_page() -> str:
    """Every event with its fields."""
    parts = [_EVENTS]
    for kind in get_args(Event):
        found = find("fairlead", kind.__name__)
        assert isinstance(found.node, ast.ClassDef)
        parts.append(f"\n## {found.name}\n\n{prose(found.documentation)}\n")
        rows = [(code(name), code(type_), meaning) for name, type_, _, meaning in class_fields(found.node)]
        parts.append(table(("field", "type", "meaning"), rows))
    return "".join(parts)


def metrics_page() -> str:
    """Every metric of `/metrics`, from what a replica with one server would answer."""
    server = SimpleNamespace(server_id="time", state="ready", tools=2, connects=1)
    activity = SimpleNamespace(finished={("time", "ok"): 3}, seconds={"time": 0.5}, running=())
    panel = SimpleNamespace(
        status=lambda: [server], activity=activity, sessions=tuple, pending=tuple, cluster=None
    )
    cluster = SimpleNamespace(
        directory=SimpleNamespace(living=tuple),
        forwarder=SimpleNamespace(outcomes=Counter[str](), calls=0),
        owners=SimpleNamespace(owned=0, calls=0, lease_losses=0),
    )
    shown = cast("HostPanel", panel)
    of_all = [*gateway_metrics(shown), *process_metrics(shown)]
    return (
        _METRICS + _metrics(of_all) + _REPLICA_METRICS + _metrics(replica_metrics(cast("Cluster", cluster)))
    )


def _metrics(found: list[Metric]) -> str:
    return table(("metric", "type", "labels", "meaning"), map(_row_of, found))


def _row_of(metric: Metric) -> tuple[str, ...]:
    labels = metric.samples[0][0]
    return code(f"fairlead_{metric.name}"), metric.kind, ", ".join(map(code, labels)), metric.meaning


def exit_codes_page() -> str:
    """Every exit status, and the errors that end with it."""
    body = next(
        node.body
        for node in module_tree(exit_codes.__name__).body
        if isinstance(node, ast.ClassDef) and node.name == "Exit"
    )
    meanings = {
        ast.unparse(node.targets[0]): docstring_of(body, index)
        for index, node in enumerate(body)
        if isinstance(node, ast.Assign)
    }
    rows = [(str(int(each)), meanings[each.name]) for each in Exit]
    return _EXIT_CODES + table(("status", "meaning"), rows)


def errors_page() -> str:
    """The tree of errors, and what each says with its hint."""
    tree = ast.get_docstring(module_tree(errors.__name__)) or ""
    parts = [
        _ERRORS,
        tree.partition("\n\n")[2].rstrip(),
        "\n```\n\n## Codes\n\n",
    ]
    classes = list(_tree(errors.FairleadError))
    rows = [
        (
            code(each.code),
            code(each.__name__),
            str(int(exit_of(each.__new__(each)))),
            "varies" if each in _DELIVERED else code(each.delivery),
            (each.__doc__ or "").split("\n\n")[0],
        )
        for each in classes
    ]
    parts.append(table(("code", "class", "exit status", "delivery", "meaning"), rows))
    parts.append(_MESSAGES)
    said = _said({each.__name__ for each in classes})
    for each in classes:
        if found := said.get(each.__name__):
            parts.append(f"\n### {each.__name__}\n\n")
            parts.append(table(("message", "hint"), sorted(found)))
    return "".join(parts)


def _tree(kind: type[errors.FairleadError]) -> Iterator[type[errors.FairleadError]]:
    """An error and those below it that are public, in the order of the source."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from _tree(each)


def _said(names: set[str]) -> dict[str, set[tuple[str, str]]]:
    """Messages with hints, by the class of error, where the source has both as texts."""
    said: dict[str, set[tuple[str, str]]] = {}
    for path in _SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or (name := ast.unparse(node.func)) not in names:
                continue
            given = {word.arg: word.value for word in node.keywords}
            hint = _text(given["hint"]) if "hint" in given else None
            messages = [text for each in node.args if (text := _text(each))]
            if hint and messages and len(messages[-1]) <= _LONGEST:
                hint += _option(given.get("remedy"))
                said.setdefault(name, set()).add((_literal(messages[-1]), _literal(hint)))
    return said


def _option(remedy: ast.expr | None) -> str:
    """What the command line adds to a hint for the input that settles the error."""
    if not isinstance(remedy, ast.Call):
        return ""
    given = {word.arg: _text(word.value) or "…" for word in remedy.keywords}
    return f": add {option_of(errors.Remedy(input=given['input'], value=given.get('value')))}"


def _text(node: ast.expr) -> str | None:
    """A text with `…` where values are filled in; None where it is made elsewhere."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            parts = [_text(each) if isinstance(each, ast.Constant) else "…" for each in values]
            text = re.sub("(?:…)+", "…", "".join(part or "" for part in parts))
            return text if re.search(r"[a-z]{3}", text) else None
        case _:
            return None


def _literal(text: str) -> str:
    """Text in which only backticks mean anything to Markdown."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("$", "\\$")
