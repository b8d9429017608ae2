"""One default for every surface, and rules that name principals and groups: the pure decision."""

import itertools
import json
from typing import Any

import pytest

from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.load import LoadedServer
from fairlead.config.principal import GroupedPrincipal, oauth_principal
from fairlead.errors import ConfigInvalid
from fairlead.policy.decision import CallPolicy
from tests.conftest import Machine

ANNOTATIONS: dict[str, dict[str, bool]] = {
    "read-only": {"readOnlyHint": True},
    "destructive": {"destructiveHint": True},
    "none": {},
    "contradictory": {"readOnlyHint": False, "destructiveHint": True},
    "adds": {"destructiveHint": False},
    "both": {"readOnlyHint": True, "destructiveHint": True},
}
DEFAULTS = {
    ("trusted", "read-only"): "allow",
    ("trusted", "destructive"): "ask",
    ("trusted", "none"): "ask",
    ("trusted", "contradictory"): "ask",
    ("trusted", "adds"): "ask",
    ("trusted", "both"): "ask",
    ("untrusted", "read-only"): "ask",
    ("untrusted", "destructive"): "ask",
    ("untrusted", "none"): "ask",
    ("untrusted", "contradictory"): "ask",
    ("untrusted", "adds"): "ask",
    ("untrusted", "both"): "ask",
}
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def configured(machine: Machine, rules: list[dict[str, Any]] | None = None, **fields: Any) -> LoadedServer:
    entry = {"command": "never-run", **fields}
    machine.write_user(json.dumps({"servers": {"x": entry}, "policy": {"rules": rules or []}}))
    return machine.load().servers["x"]


def tool(**annotations: bool) -> ToolEntry:
    name = "deploy_app"
    definition = {"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}
    return ToolEntry(key=ToolKey("x", name), definition=json.dumps(definition).encode())


CELLS = list(
    itertools.product(
        ("trusted", "untrusted"),
        ANNOTATIONS,
        (None, ["deploy_app"], ["other"]),
        (None, "allow", "ask", "deny"),
        (None, "allow", "ask", "deny"),
    )
)


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_every_cell_of_trust_review_annotation_and_rule_is_decided_as_documented(
    machine: Machine, trust: str
) -> None:
    for _, annotation, offered, answer, rule in (cell for cell in CELLS if cell[0] == trust):
        fields: dict[str, Any] = {"trust": trust}
        if offered:
            fields["allow_tools"] = offered
        if answer:
            fields["approval"] = {"tools": {"deploy_app": answer}}
        rules = [{"action": rule, "tool": "deploy_*"}] if rule else []
        decision = CallPolicy(configured(machine, rules, **fields)).decide(
            "deploy_app", entry=tool(**ANNOTATIONS[annotation])
        )
        if offered == ["other"] or (trust == "untrusted" and offered is None):
            expected = "deny"
        else:
            said = [word for word in (answer, rule) if word] or [DEFAULTS[trust, annotation]]
            expected = max(said, key=STRICTNESS.__getitem__)
        assert decision.verdict == expected, (trust, annotation, offered, answer, rule)
        assert decision.reason


def test_what_an_untrusted_server_claims_changes_nothing(machine: Machine) -> None:
    policy = CallPolicy(configured(machine, allow_tools=["*"]))
    verdicts = {policy.decide("deploy_app", entry=tool(**said)).verdict for said in ANNOTATIONS.values()}
    assert verdicts == {"ask"}


def test_a_server_of_an_earlier_release_keeps_being_asked_about(machine: Machine) -> None:
    server = configured(machine, trust="trusted")
    decision = CallPolicy(server, before_defaults=True).decide("deploy_app", entry=tool(readOnlyHint=True))
    assert decision.verdict == "ask"
    answered = configured(machine, trust="trusted", approval={"tools": {"deploy_app": "allow"}})
    assert CallPolicy(answered, before_defaults=True).decide("deploy_app").verdict == "allow"


@pytest.mark.parametrize("configured_mode", ["allow", "ask", "auto", "deny"])
def test_the_setting_of_a_gateway_counts_only_where_nothing_else_does(
    machine: Machine, configured_mode: Any
) -> None:
    plain = CallPolicy(configured(machine, allow_tools=["*"]))
    by_setting = plain.decide("deploy_app", default=configured_mode).verdict
    assert by_setting == {"auto": "ask"}.get(configured_mode, configured_mode)
    own = CallPolicy(configured(machine, allow_tools=["*"], approval="ask"))
    assert own.decide("deploy_app", default=configured_mode).verdict == "ask"
    by_rule = CallPolicy(configured(machine, [{"action": "ask"}], allow_tools=["*"]))
    assert by_rule.decide("deploy_app", default=configured_mode).verdict == "ask"


# Principals and groups.

ADA, INTERN = (
    GroupedPrincipal("ada"),
    GroupedPrincipal("oauth:https://issuer.example bo", frozenset({"interns", "data"})),
)


@pytest.mark.parametrize(
    ("named", "applies_to"),
    [
        (None, {"local", "ada", "intern"}),
        ("local", {"local"}),
        ("ada", {"ada"}),
        ("ad", set[str]()),
        ("ADA", set[str]()),
        ("group:interns", {"intern"}),
        ("group:intern*", {"intern"}),
        ("group:Interns", set[str]()),
        ("group:*", {"intern"}),
        ("interns", set[str]()),
        ("oauth:* bo", {"intern"}),
        ("oauth:*", {"intern"}),
        ("*", {"local", "ada", "intern"}),
    ],
)
@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_a_rule_applies_to_the_principals_and_groups_it_names(
    machine: Machine, named: str | None, applies_to: set[str], action: str
) -> None:
    rule = {"action": action, "tool": "deploy_*", **({"principal": named} if named else {})}
    before = {"allow": "ask", "ask": "allow", "deny": "allow"}[action]
    fallback: dict[str, bool] = {"allow": {}, "ask": {"readOnlyHint": True}, "deny": {"readOnlyHint": True}}[
        action
    ]
    policy = CallPolicy(configured(machine, [rule], trust="trusted"))
    callers = {"local": GroupedPrincipal(), "ada": ADA, "intern": INTERN}
    for name, caller in callers.items():
        verdict = policy.decide("deploy_app", entry=tool(**fallback), caller=caller).verdict
        assert verdict == (action if name in applies_to else before), name


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("Group:interns", "write `group:interns`"),
        ("groups:interns", "write `group:interns`"),
        ("group: interns", "write `group:interns`"),
        ("GROUP :interns", "write `group:interns`"),
        ("Token:ci", "write `token:ci`"),
        ("OAuth:https://issuer.example bo", "write `oauth:https://issuer.example bo`"),
        ("group:", "write the name after `group:`"),
        ("group:interns ", "spaces around it"),
        (" ada", "spaces around it"),
        ("group:in\u200bterns", "characters that do not show"),
    ],
)
def test_a_rule_that_can_mean_no_one_is_an_error_and_does_not_lapse(
    machine: Machine, named: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid, match=said) as caught:
        configured(machine, [{"action": "deny", "principal": named}])
    (problem,) = caught.value.problems
    assert problem.json_path == "policy.rules[0].principal"


@pytest.mark.parametrize("named", ["grouper:x", "group", "user:ada", "auth0|ada", "a b", "oauth:* bo"])
def test_names_that_only_look_like_a_prefix_are_names(machine: Machine, named: str) -> None:
    assert configured(machine, [{"action": "deny", "principal": named}]).rules


@pytest.mark.parametrize(
    ("field", "pattern", "said"),
    [
        ("server", "notes.delete", "a tool is named in `tool`"),
        ("server", "notes/delete", "a tool is named in `tool`"),
        ("server", " notes", "matches no server"),
        ("server", "not[es", "matches no server"),
        ("server", "no\u200btes", "matches no server"),
        ("tool", "delete ", "spaces around it"),
        ("tool", "del\u200bete", "write `?`"),
    ],
)
def test_a_rule_about_a_server_or_tool_that_cannot_exist_is_an_error(
    machine: Machine, field: str, pattern: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid, match=said) as caught:
        configured(machine, [{"action": "deny", field: pattern}])
    (problem,) = caught.value.problems
    assert problem.json_path == f"policy.rules[0].{field}"


@pytest.mark.parametrize("field", ["server", "tool"])
@pytest.mark.parametrize("pattern", ["*", "[w-z]", "[!9]*", "?"])
def test_globs_of_a_rule_are_no_error(machine: Machine, field: str, pattern: str) -> None:
    assert configured(machine, [{"action": "deny", field: pattern}]).rules


ISSUER, OTHER = "https://issuer.example", "https://other.example"


def subject(name: str, issuer: str = ISSUER) -> GroupedPrincipal:
    return GroupedPrincipal(oauth_principal(issuer, name))


@pytest.mark.parametrize("issuer", [None, ISSUER, OTHER, ISSUER[:-1], f"{ISSUER}/", f"{ISSUER} x"])
@pytest.mark.parametrize(
    ("named", "caller", "narrows", "allows"),
    [
        ("ada@example.org", subject("ada@example.org"), True, True),
        ("ada@example.org", subject("ada@example.org", OTHER), True, False),
        ("ada@example.org", subject("ada@example.org", f"{ISSUER}/"), True, False),
        ("ada@example.org", subject("ada@example.org", f"{ISSUER} x"), True, False),
        ("ada@example.org", subject("Ada@example.org"), False, False),
        ("ada@example.org", subject("x ada@example.org"), False, False),
        ("ada@example.org", subject("ada@example.org x"), False, False),
        ("ada*", subject("ada@example.org"), True, True),
        ("ada*", subject("ada@example.org", OTHER), True, False),
        ("ada[1]", subject("ada[1]"), True, True),
        ("local", subject("local"), True, False),
        ("loc*", subject("local"), True, False),
        ("loc*", subject("locke"), True, True),
        ("group:admins", subject("group:admins"), False, False),
        ("group:*", subject("group:admins"), False, False),
        ("token:ci", subject("token:ci"), True, False),
        (f"oauth:{ISSUER} bo", subject(f"oauth:{ISSUER} bo"), True, False),
        (f"oauth:{OTHER} bo", subject(f"oauth:{OTHER} bo"), True, False),
        ("ci", GroupedPrincipal("token:ci"), True, False),
        ("c?", GroupedPrincipal("token:ci"), True, False),
        ("local", GroupedPrincipal("token:local"), True, False),
        ("ci", GroupedPrincipal("token:cid"), False, False),
    ],
)
def test_a_bare_name_narrows_for_every_reading_and_allows_only_subjects_of_the_configured_issuer(
    machine: Machine, issuer: str | None, named: str, caller: GroupedPrincipal, narrows: bool, allows: bool
) -> None:
    oauth = {"gateway": {"oauth": {"issuer": issuer, "audience": "a"}}} if issuer else {}
    entry = {"command": "never-run", "trust": "trusted"}
    for action in ("allow", "ask", "deny"):
        rules = [{"action": action, "principal": named}]
        machine.write_user(json.dumps({"servers": {"x": entry}, "policy": {"rules": rules}, **oauth}))
        try:
            policy = CallPolicy(machine.load().servers["x"])
        except ConfigInvalid:
            return  # an issuer with a space
        annotations = {} if action == "allow" else {"readOnlyHint": True}
        verdict = policy.decide("deploy_app", entry=tool(**annotations), caller=caller).verdict
        default = "ask" if action == "allow" else "allow"
        if action != "allow":
            assert verdict == (action if narrows else default), action
        elif issuer == ISSUER:
            assert verdict == ("allow" if allows else default)
        else:
            of_issuer = issuer is not None and caller.principal.startswith(f"oauth:{issuer} ")
            assert verdict == default or of_issuer, "a subject of another issuer is another person"


def test_a_principal_that_is_called_like_a_group_is_no_member_of_it(machine: Machine) -> None:
    rule = {"action": "allow", "principal": "group:admins"}
    policy = CallPolicy(configured(machine, [rule], allow_tools=["*"]))
    for caller in (
        GroupedPrincipal("admins"),
        GroupedPrincipal("group:admins"),
        GroupedPrincipal("x", frozenset({"group:admins"})),
    ):
        assert policy.decide("deploy_app", caller=caller).verdict == "ask"
    assert policy.decide("deploy_app", caller=GroupedPrincipal("x", frozenset({"admins"}))).verdict == "allow"


def test_rules_on_arguments_can_name_groups(machine: Machine) -> None:
    rule = {"action": "deny", "principal": "group:interns", "tool": "deploy_*", "arguments": {"to": "prod"}}
    policy = CallPolicy(configured(machine, [rule], trust="trusted", approval="allow"))
    assert policy.argument_patterns("deploy_app", caller=INTERN) == ({"to": "prod"},)
    assert policy.argument_patterns("deploy_app", caller=ADA) == ()


def test_a_project_cannot_allow_anything_to_a_principal(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"command": "never-run", "allow_tools": ["*"]}}}))
    rules = [
        {"action": "allow", "principal": "local"},
        {"action": "deny", "principal": "local", "tool": "deploy_*"},
    ]
    machine.write_project(json.dumps({"policy": {"rules": rules}}))
    server = machine.load().servers["x"]
    assert CallPolicy(server).decide("deploy_app").verdict == "deny"
    assert CallPolicy(server).decide("other").verdict == "ask"
