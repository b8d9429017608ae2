"""`fairlead docs`, as a person would use it."""

import json
from collections.abc import Callable

import pytest
from click.shell_completion import ShellComplete

from fairlead.cli.main import cli
from tests.cli.test_startup import HEAVY, modules_after
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def allowed(machine: Machine) -> list[str]:
    return json.loads(machine.user_file.read_text())["docs"]["allow"]


def test_at_first_nothing_is_allowed_and_it_says_how_to_go_on(fairlead: Fairlead) -> None:
    outcome = fairlead("docs", "list")
    assert (outcome.status, outcome.out) == (0, "")
    assert "fairlead docs allow docs.python.org" in outcome.err


def test_sites_are_allowed_in_the_users_own_file(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("docs", "allow", "docs.python.org", "*.readthedocs.io")
    assert outcome.status == 0
    assert "~/.config/fairlead/fairlead.json: https://docs.python.org/*" in outcome.err
    assert allowed(machine) == ["docs.python.org", "*.readthedocs.io"]
    assert not machine.project_file.exists()
    assert machine.load().config.docs.allow == ("docs.python.org", "*.readthedocs.io")


def test_the_list_is_shown_with_what_it_means_and_who_says_so(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("docs", "allow", "*.readthedocs.io", "localhost:8000")
    shown = fairlead("docs", "list")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["SITE", "COVERS"],
        ["*.readthedocs.io", "https://*.readthedocs.io/*"],
        ["localhost:8000", "http(s)://localhost:8000/*"],
    ]
    assert f"{machine.user_file}:5" in shown.err
    data = json.loads(fairlead("docs", "list", "--json").out)
    assert data["allow"][1] == {"site": "localhost:8000", "covers": "http(s)://localhost:8000/*"}
    assert data["source"] == f"{machine.user_file}:5"


def test_a_pasted_url_is_taken_for_what_it_points_at(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("docs", "allow", "https://docs.python.org/", "https://docs.test/3/a.html?x=1#top")
    assert allowed(machine) == ["docs.python.org", "docs.test/3/a.html"]
    assert "the whole site would be `fairlead docs allow docs.test`" in outcome.err


def test_what_is_allowed_already_is_not_written_twice(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("docs", "allow", "docs.python.org")
    before = machine.user_file.stat()
    outcome = fairlead("docs", "allow", "DOCS.python.org:443")
    assert "allowed already" in outcome.err
    assert machine.user_file.stat() == before


@pytest.mark.parametrize(
    "site", ["*", "*.com", "http://docs.test", "10.0.0.1", "me@docs.test", "b\u00fccher.test", ""]
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    fairlead: Fairlead, machine: Machine, site: str
) -> None:
    outcome = fairlead("docs", "allow", "docs.python.org", site)
    assert outcome.status == 1
    assert "is no site that can be allowed" in outcome.err
    assert "hint: write a host" in outcome.err
    assert not machine.user_file.exists()


def test_a_project_may_not_say_what_may_be_read(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("docs", "allow", "docs.python.org", "--scope", "project")
    assert outcome.status == 1
    assert "may not say" in outcome.err
    machine.write_project('{"docs": {"allow": ["evil.test"]}}')
    assert json.loads(fairlead("docs", "list", "--json").out) == {"allow": [], "source": None}


@pytest.mark.parametrize("scope", ["user", "global"])
def test_the_users_file_may_be_named(fairlead: Fairlead, machine: Machine, scope: str) -> None:
    assert fairlead("docs", "allow", "docs.python.org", "--scope", scope).status == 0
    assert allowed(machine) == ["docs.python.org"]


def test_a_file_given_by_name_stands_in(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = machine.project / "mine.json"
    assert fairlead("--config", str(named), "docs", "allow", "docs.python.org").status == 0
    monkeypatch.setenv("FAIRLEAD_CONFIG_PATH", str(named))
    assert fairlead("docs", "allow", "docs.test").status == 0
    assert json.loads(named.read_text())["docs"] == {"allow": ["docs.python.org", "docs.test"]}
    assert not machine.user_file.exists()


def test_sites_are_taken_off_the_list_with_the_rest_untouched(fairlead: Fairlead, machine: Machine) -> None:
    text = '{\n  // mine\n  "docs": {"allow": [\n    "a.test", // why\n    "B.test"\n  ]}\n}\n'
    machine.write_user(text)
    assert fairlead("docs", "deny", "https://b.test/").status == 0
    assert machine.user_file.read_text() == text.replace('"a.test",', '"a.test"').replace(
        '    "B.test"\n', ""
    )
    outcome = fairlead("docs", "deny", "b.test")
    assert outcome.status == 1
    assert "`b.test` is not in the list" in outcome.err


def test_what_still_covers_a_site_is_said(fairlead: Fairlead) -> None:
    fairlead("docs", "allow", "a.docs.test", "*.docs.test")
    assert "but `*.docs.test` still covers it" in fairlead("docs", "deny", "a.docs.test").err
    assert "still covers" not in fairlead("docs", "deny", "*.docs.test").err


def test_a_layer_that_counts_more_is_named(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_CONFIG_JSON", '{"docs": {"allow": ["env.test"]}}')
    outcome = fairlead("docs", "allow", "docs.test")
    assert outcome.status == 0
    assert "FAIRLEAD_CONFIG_JSON:1 sets another value, which takes precedence" in outcome.err
    assert allowed(machine) == ["docs.test"]


def test_an_entry_that_makes_no_sense_is_shown_and_can_be_removed(
    fairlead: Fairlead, machine: Machine
) -> None:
    machine.write_user('{"docs": {"allow": ["not a site", "docs.test"]}}')
    outcome = fairlead("docs", "list")
    assert "fairlead docs deny 'not a site'" in outcome.err
    assert ["not", "a", "site", "nothing"] in [line.split() for line in outcome.out.splitlines()]
    assert fairlead("docs", "deny", "not a site").status == 0
    assert allowed(machine) == ["docs.test"]


def test_a_file_that_does_not_load_is_told_after_it_was_written(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user('{"policy": {"approval": 1}}')
    outcome = fairlead("docs", "allow", "docs.test")
    assert "does not load" in outcome.err
    assert allowed(machine) == ["docs.test"]


def test_help_teaches(fairlead: Fairlead) -> None:
    for arguments in (("docs", "--help"), ("docs", "allow", "--help")):
        assert "readthedocs.io" in fairlead(*arguments).out


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(("docs", "list"), set[str]()), (("docs", "allow", "docs.test"), {"msgspec", "sqlite3"})],
)
def test_no_network_code_is_loaded(machine: Machine, arguments: tuple[str, ...], needed: set[str]) -> None:
    """An edit is recorded in the audit log, which is kept in the store."""
    assert modules_after(*arguments) & HEAVY <= needed


def test_what_is_allowed_and_denied_is_in_the_audit_log(fairlead: Fairlead) -> None:
    fairlead("docs", "allow", "docs.test", "other.test")
    fairlead("docs", "allow", "docs.test")  # which changes nothing
    fairlead("docs", "deny", "other.test")
    records = [json.loads(line) for line in fairlead("audit", "--json").out.splitlines()]
    assert [(each["kind"], each["details"]["sites"]) for each in records] == [
        ("allow site", ["docs.test", "other.test"]),
        ("deny site", ["other.test"]),
    ]


def test_the_shell_completes_what_is_on_the_list(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("docs", "allow", "docs.test", "other.test")
    shell = ShellComplete(cli, {}, "fairlead", "_FAIRLEAD_COMPLETE")
    assert [item.value for item in shell.get_completions(["docs", "deny"], "do")] == ["docs.test"]
    machine.write_user("{")
    assert shell.get_completions(["docs", "deny"], "do") == []
