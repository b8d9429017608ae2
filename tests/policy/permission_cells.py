"""The table of permissions for tests of every surface: trust, review, annotation and rule, one tool per cell.

Two real servers, a trusted and an untrusted one, have a tool for each combination. `Table.prepare` reviews
them with `fairlead review`, as a user would, and then has the tools whose state is `changed` be others.

| surface | who may be there | tests |
|---|---|---|
| the decision alone | no one, by definition | `policy/test_permission_table.py` |
| library, also by its meta-tools | no one, a callback, the caller's own word | `host/test_permissions.py` |
| `fairlead call`, also through a gateway | no one, `--yes`, a terminal | `cli/test_permissions.py` |
| `fairlead run` | no one, `--allow` | `cli/test_permissions.py` |
| console | no one, a terminal | `console/test_permissions.py` |
| gateway | no one, the dashboard or `fairlead approvals` | `gateway/test_permissions.py` |
| gateway, also over stdio | the client, by elicitation or not | `gateway/test_client_approvals.py` |
| dashboard | its page of tools and its answers | `web/test_permissions.py` |
"""

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.config.load import LoadedConfig
from fairlead.testing import ScriptedServer, scripted_program
from tests.conftest import Machine, Outcome

Verdict = Literal["allow", "ask", "deny", "held back"]

STATES = ("unreviewed", "byhand", "allow", "ask", "deny", "changed")
"""Not reviewed; in an `allow_tools` written by hand; what a review said; allowed, and changed since."""
ANNOTATIONS: dict[str, dict[str, bool]] = {
    "read": {"readOnlyHint": True},
    "destroy": {"destructiveHint": True},
    "adds": {"destructiveHint": False},
    "both": {"readOnlyHint": True, "destructiveHint": True},
    "plain": {},
}
RULES = ("none", "allow", "ask", "deny")
_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One tool of one server: its name says what holds of it."""

    server: Literal["t", "u"]
    state: str
    annotation: str
    rule: str

    @property
    def tool(self) -> str:
        return f"{self.state}_{self.annotation}_{self.rule}"

    @property
    def verdict(self) -> Verdict:
        """What every surface must decide, by `docs/permissions.md`."""
        return self.verdict_with(None)

    def verdict_with(self, default: str | None) -> Verdict:
        """The same where `gateway.approval` is set: it counts where nothing else speaks of the tool."""
        if self.state == "changed":
            return "held back"
        if self.state == "deny" or self.is_unlisted:
            return "deny"
        said = [word for word in (self.state, self.rule) if word in _STRICTNESS]
        if not said:
            by_annotation = "allow" if self.server == "t" and self.annotation == "read" else "ask"
            said = [by_annotation if default in (None, "auto") else str(default)]
        return max(said, key=_STRICTNESS.__getitem__)  # pyright: ignore[reportReturnType]

    @property
    def is_by_rule(self) -> bool:
        """Does a rule decide it? Of a rule and an approval mode that say the same, the rule is named."""
        is_listed = not self.is_unlisted or self.rule == "deny"  # which a review could not take back
        return self.rule == self.verdict and self.state != "deny" and is_listed

    @property
    def is_unlisted(self) -> bool:
        """Is it missing from the allowlist that its server needs?"""
        return self.server == "u" and self.state == "unreviewed"

    @property
    def is_users_to_overrule(self) -> bool:
        """Does the user's own word for one call make it: one that is asked about, or that no list has?"""
        return self.verdict == "ask" or (self.is_unlisted and self.rule != "deny")

    def definition(self, *, changed: bool) -> dict[str, Any]:
        text = "Say it to all." if changed and self.state == "changed" else "Say it again."
        annotations = ANNOTATIONS[self.annotation]
        schema = {"type": "object"}
        return {"name": self.tool, "description": text, "inputSchema": schema, "annotations": annotations}

    def require_message(self, said: str) -> None:
        """Require that a refusal says what decided, and names the one command or line that settles it."""
        assert f"{self.server}.{self.tool}" in said, said
        review = f"`fairlead review {self.server} --allow {self.tool}`"
        match self.verdict:
            case "held back":
                assert "changed since it was reviewed" in said, said
                assert f"`fairlead review {self.server}`" in said, said
            case "deny" if self.is_by_rule:
                assert re.search(r"a rule denies it: change that rule in \S+fairlead\.json:\d+", said), said
            case "deny":
                reasons = ("not listed in allow_tools", "in deny_tools", "has not been reviewed")
                assert any(reason in said for reason in reasons), said
                assert review in said, said
            case "ask" if self.is_by_rule:
                assert f"`fairlead call {self.server} {self.tool} --yes`" in said, said
                assert re.search(r"change the rule in \S+fairlead\.json:\d+", said), said
            case _:
                assert review in said, said

    def require_told(self, said: str) -> None:
        """Require that a model is told what was refused and who decides, and no command."""
        assert f"{self.server}.{self.tool}" in said, said
        assert "the user has to decide" in said, said
        assert "`fairlead " not in said, said


CELLS = [
    Cell(server=server, state=state, annotation=annotation, rule=rule)
    for server, state, annotation, rule in itertools.product(("t", "u"), STATES, ANNOTATIONS, RULES)
    if (server, state) != ("t", "byhand")  # a list would take all other tools of a trusted server away
]


def one_of_each(cells: Iterable[Cell]) -> list[Cell]:
    """One cell of each kind of refusal or permission, for what is slow."""
    found: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        found.setdefault((cell.server, cell.state, cell.verdict, cell.is_by_rule), cell)
    return list(found.values())


class Table:
    """The two servers, and the configuration that the cells are about."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._scripts = {name: machine.home / f"{name}.script.json" for name in ("t", "u")}
        self._records = {name: machine.home / f"{name}.record" for name in ("t", "u")}

    def prepare(self, fairlead: Callable[..., Outcome], **document: Any) -> None:
        """Write the configuration, review the tools, and have some of them change."""
        for name in ("t", "u"):
            self.says(name, changed=False)
        rules = [{"action": action, "tool": f"*_{action}"} for action in ("allow", "ask", "deny")]
        servers = {
            "t": self.entry("t", trust="trusted"),
            "u": self.entry("u", allow_tools=["byhand_*"]),
        }
        whole = {
            "servers": servers,
            "policy": {"rules": rules},
            "tools": {"mode": "direct"},
            **document,
            "gateway": {"mode": "direct", **document.get("gateway", {})},
        }
        self._machine.write_user(json.dumps(whole, indent=1))
        words = ("--allow", "allow_*,changed_*", "--ask", "ask_*", "--deny", "deny_*")
        reviewed = fairlead("review", "t", "u", *words)
        assert reviewed.status == 0, reviewed.err
        for name in ("t", "u"):
            self.says(name, changed=True)

    def entry(self, name: str, **fields: Any) -> dict[str, Any]:
        """An entry whose command line stays the same whatever its tools are: it says which server it is."""
        begin = f"import runpy, sys; sys.argv[1:] = [open({str(self._scripts[name])!r}).read()]"
        run = f"runpy.run_path({scripted_program.__file__!r}, run_name='__main__')"
        return {"command": sys.executable, "args": ["-I", "-S", "-c", f"{begin}; {run}"], **fields}

    def says(self, name: str, *, changed: bool) -> None:
        tools = [cell.definition(changed=changed) for cell in CELLS if cell.server == name]
        script = {"record": str(self._records[name]), "tools": tools, "any_tool": True}
        self._scripts[name].write_text(json.dumps(script))

    def load(self) -> LoadedConfig:
        return self._machine.load()

    def calls(self) -> set[tuple[str, str]]:
        """The tools that were carried out, by server."""
        return {
            (name, tool)
            for name, record in self._records.items()
            for tool in ScriptedServer(record).notes("called")
        }

    def forget_calls(self) -> None:
        """Begin to count anew."""
        for record in self._records.values():
            record.unlink(missing_ok=True)


def outcome_of(told: str) -> str:
    """What came of a call, by what a model is told of it: words of an untrusted server are marked as such."""
    return "called" if re.sub(r"</?untrusted-[^>]*>( \(Data [^)]*\))?", "", told).strip() == "{}" else told


def require_alike(
    table: Table,
    outcomes: Mapping[Cell, str],
    *,
    called: Callable[[Cell], bool],
    refused: Callable[[Cell, str], None] = Cell.require_message,
) -> None:
    """Require that exactly those cells were called, and that each other one was refused with its message."""
    expected = {(cell.server, cell.tool) for cell in outcomes if called(cell)}
    assert table.calls() == expected, table.calls() ^ expected
    for cell, said in outcomes.items():
        if called(cell):
            assert said == "called", (cell, said)
        else:
            refused(cell, said)
