"""Secrets of servers: put away by `fairlead add` and `import`, deleted with the entry that needs them."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.secrets.references import resolve
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def entries(machine: Machine, scope: str = "project") -> dict[str, Any]:
    path = machine.user_file if scope == "user" else machine.project_file
    return json.loads(path.read_text())["servers"]


def test_a_secret_never_reaches_the_file_or_the_screen(fairlead: Fairlead, machine: Machine) -> None:
    secret = "ghp_0123456789abcdefghij"
    added = fairlead("add", "a", "--url", "https://e.com/", "--header", f"Authorization=Bearer {secret}")
    assert "${file:" in added.err
    shown = [
        added,
        fairlead("list"),
        fairlead("list", "--json"),
        fairlead("get", "a"),
        fairlead("get", "a", "--json"),
        fairlead("explain", "server", "a", "--all"),
        fairlead("explain", "server", "a", "--json"),
        fairlead("export", "--to", "claude"),
    ]
    assert all(outcome.status == 0 for outcome in shown)
    assert not any(secret in outcome.out + outcome.err for outcome in shown)
    assert secret not in machine.project_file.read_text()
    server = machine.load().servers["a"]
    assert getattr(server.resolve(machine.env), "headers", None) == {"Authorization": f"Bearer {secret}"}


def test_a_refused_add_does_not_overwrite_the_secret_of_the_server_that_is_there(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead("add", "a", "--url", "https://e.com/", "--header", "Authorization=Bearer first-secret")
    fairlead("add", "a", "--url", "https://e.com/", "--header", "Authorization=Bearer second-secret")
    server = machine.load().servers["a"]
    assert getattr(server.resolve(machine.env), "headers", None) == {"Authorization": "Bearer first-secret"}


def secret_files(machine: Machine) -> list[str]:
    return sorted(path.name for path in (machine.user_file.parent / "secrets").glob("*"))


def test_removing_a_server_removes_the_secrets_that_were_put_away_for_it(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead(
        "add", "a", "--url", "https://e.com/", "--header", "Authorization=Bearer ghp_0123456789abcdefghij"
    )
    fairlead("add", "b", "--scope", "user", "--", "run", "--api-key", "0123456789abcdefghijABCDEFGHIJ")
    assert len(secret_files(machine)) == 2
    # Another entry that refers to it keeps it alive, and so does an entry of the same id in another layer.
    shared = entries(machine)["a"]
    machine.write_user(json.dumps({"servers": {**entries(machine, "user"), "a": shared}}))
    assert "deleted" not in fairlead("remove", "a").err
    assert len(secret_files(machine)) == 2
    # It was made for the project's file, so the user's cannot tell who else has it.
    assert "kept its secret" in fairlead("remove", "a", "--scope", "user").err
    assert "deleted its secret" in fairlead("remove", "b", "--scope", "user").err
    assert len(secret_files(machine)) == 1


KEYS = ("sk-AAAAAAAAAAAAAAAAAAAAAAAA", "sk-BBBBBBBBBBBBBBBBBBBBBBBB")


def resolved_key(machine: Machine, reference: str) -> str:
    return resolve(reference, env=machine.env, base=machine.project)


def test_servers_of_one_id_in_two_projects_keep_their_own_secrets(
    fairlead: Fairlead, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    for folder, key in zip(("one", "two"), KEYS, strict=True):
        place = tmp_path / folder
        place.mkdir()
        monkeypatch.chdir(place)
        assert fairlead("add", "k", "--scope", "project", "--env", f"API_KEY={key}", "--", "prog").status == 0
        text = (place / "fairlead.json").read_text()
        found.append(json.loads(text)["servers"]["k"]["env"]["API_KEY"])
    assert [resolved_key(machine, reference) for reference in found] == list(KEYS)
    assert f"deleted its secret {found[1]}" in fairlead("remove", "k", "--scope", "project").err
    assert resolved_key(machine, found[0]) == KEYS[0]


def test_a_user_server_and_a_project_server_of_one_id_keep_their_own_secrets(
    fairlead: Fairlead, machine: Machine
) -> None:
    for scope, key in zip(("project", "user"), KEYS, strict=True):
        assert fairlead("add", "k", "--scope", scope, "--env", f"API_KEY={key}", "--", "prog").status == 0
    references = [entries(machine, scope)["k"]["env"]["API_KEY"] for scope in ("project", "user")]
    assert [resolved_key(machine, reference) for reference in references] == list(KEYS)
    assert fairlead("remove", "k", "--scope", "user").status == 0
    assert resolved_key(machine, references[0]) == KEYS[0]


def test_a_secret_named_as_by_an_earlier_release_is_read_and_kept(
    fairlead: Fairlead, machine: Machine
) -> None:
    old = machine.user_file.parent / "secrets" / "k.API_KEY"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text(KEYS[0])
    reference = "${file:~/.config/fairlead/secrets/k.API_KEY}"
    machine.write_user(json.dumps({"servers": {"k": {"command": "prog", "env": {"API_KEY": reference}}}}))
    assert resolved_key(machine, reference) == KEYS[0]
    outcome = fairlead("remove", "k", "--scope", "user")
    assert outcome.status == 0
    assert f"kept its secret {reference}" in outcome.err
    assert old.read_text() == KEYS[0]


def test_replacing_a_server_deletes_the_secrets_that_only_the_old_entry_had(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead("add", "k", "--env", f"API_KEY={KEYS[0]}", "--env", f"OTHER_KEY={KEYS[0]}", "--", "prog")
    old = entries(machine)["k"]["env"]
    again = ("--env", f"API_KEY={KEYS[1]}", "--env", f"OTHER_KEY={old['OTHER_KEY']}")
    outcome = fairlead("add", "k", "--replace", *again, "--", "prog")
    assert outcome.status == 0
    assert f"deleted its secret {old['API_KEY']}" in outcome.err
    new = entries(machine)["k"]["env"]
    assert [resolved_key(machine, new[name]) for name in ("API_KEY", "OTHER_KEY")] == [KEYS[1], KEYS[0]]
    assert len(secret_files(machine)) == 2
    assert fairlead("add", "k", "--replace", "--", "prog").status == 0
    assert secret_files(machine) == []


def test_importing_over_a_server_deletes_the_secrets_of_the_old_entry(
    fairlead: Fairlead, machine: Machine
) -> None:
    fairlead("add", "k", "--env", f"API_KEY={KEYS[0]}", "--", "prog")
    foreign = machine.project / "mcp.json"
    foreign.write_text(json.dumps({"mcpServers": {"k": {"command": "prog", "env": {"API_KEY": KEYS[1]}}}}))
    assert fairlead("import", str(foreign), "--from", "cursor", "--replace").status == 0
    assert resolved_key(machine, entries(machine)["k"]["env"]["API_KEY"]) == KEYS[1]
    assert len(secret_files(machine)) == 1


def test_an_entry_that_cannot_be_written_leaves_no_secret_behind(
    fairlead: Fairlead, machine: Machine
) -> None:
    machine.write_project('{"servers": []}')  # where no entry can be put
    outcome = fairlead("add", "k", "--env", f"API_KEY={KEYS[0]}", "--", "prog")
    assert outcome.status != 0
    assert machine.project_file.read_text() == '{"servers": []}'
    assert secret_files(machine) == []


def test_a_file_of_the_users_own_is_not_removed(fairlead: Fairlead, machine: Machine) -> None:
    mine = machine.home / "token"
    mine.write_text("x")
    fairlead("add", "a", "--scope", "user", "--env", f"TOKEN=${{file:{mine}}}", "--", "run")
    assert fairlead("remove", "a", "--scope", "user").status == 0
    assert mine.exists()


def test_a_secret_in_an_argument_or_url_is_put_away_too(fairlead: Fairlead, machine: Machine) -> None:
    database = "postgresql://me:s3cr3t-pass@db.example/x"
    fairlead("add", "pg", "--scope", "user", "--", "run", database, "--password=hunter2hunter2", "-v")
    fairlead(
        "add", "web", "--scope", "user", "--url", "https://me:p4ssw0rd1@e.com/mcp?api_key=abcdef123456&x=1"
    )
    text = machine.user_file.read_text()
    assert not any(secret in text for secret in ("s3cr3t-pass", "hunter2", "p4ssw0rd1", "abcdef123456"))
    resolved = machine.load().servers["pg"].resolve(machine.env)
    assert getattr(resolved, "args", None) == (database, "--password=hunter2hunter2", "-v")
    url = getattr(machine.load().servers["web"].resolve(machine.env), "url", None)
    assert str(url) == "https://me:p4ssw0rd1@e.com/mcp?api_key=abcdef123456&x=1"


def test_a_secret_in_a_variable_that_an_argument_sets_is_put_away_too(
    fairlead: Fairlead, machine: Machine
) -> None:
    variables = ("-e", "DB_URL=mysql://me:s3cr3t-pass@db/x", "--env=API_KEY=hunter2hunter2", "-e", "LOG=all")
    added = fairlead("add", "box", "--scope", "user", "--", "docker", "run", *variables, "image")
    assert added.status == 0
    text = machine.user_file.read_text() + added.out + added.err + fairlead("list").out
    assert not any(secret in text for secret in ("s3cr3t-pass", "hunter2"))
    resolved = machine.load().servers["box"].resolve(machine.env)
    assert getattr(resolved, "args", None) == ("run", *variables, "image")


@pytest.mark.parametrize("server_id", ["repo", "docs"])
def test_adding_a_server_with_the_id_of_a_built_in_one_needs_replace(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch, server_id: str
) -> None:
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    outcome = fairlead("add", server_id, "--env", f"API_KEY={KEYS[0]}", "--", "true")
    assert outcome.status != 0
    assert "built-in" in outcome.err
    assert "--replace" in outcome.err
    assert not machine.project_file.exists()
    assert secret_files(machine) == []
    assert fairlead("add", server_id, "--replace", "--", "true").status == 0
    assert entries(machine)[server_id] == {"command": "true"}


PLAIN = "ghp_0123456789abcdefghij"


def test_a_literal_secret_in_a_projects_file_is_an_error_unless_the_user_allows_it_seed_001(
    machine: Machine,
) -> None:
    entry = {"url": "https://e.com/", "headers": {"Authorization": f"Bearer {PLAIN}"}}
    machine.write_project(json.dumps({"allow_literal_secrets": True, "servers": {"a": entry}}))
    loaded = machine.load()
    [not_theirs, literal] = loaded.problems
    assert (not_theirs.json_path, not_theirs.message) == (
        "allow_literal_secrets",
        "a project file may not set this",
    )
    assert (literal.json_path, literal.severity) == ("servers.a.headers.Authorization", "error")
    assert "allow_literal_secrets" in (literal.hint or "")
    assert "${NAME}" in (literal.hint or "")
    assert not loaded.servers["a"].usable
    machine.write_project(json.dumps({"servers": {"a": entry}}))
    machine.write_user(json.dumps({"allow_literal_secrets": True}))
    assert machine.load().problems == ()
    assert machine.load().servers["a"].usable


def test_a_client_secret_may_be_a_reference_and_is_not_plain_in_a_projects_file_seed_003(
    machine: Machine,
) -> None:
    entry = {"url": "https://e.com/", "oauth": {"client_id": "a", "client_secret": "Zk39sl2mQ0vb7"}}
    machine.write_project(json.dumps({"servers": {"a": entry}}))
    [problem] = machine.load().problems
    assert (problem.json_path, problem.severity) == ("servers.a.oauth.client_secret", "error")
    machine.write_project('{"servers": {}}')
    machine.write_user(json.dumps({"servers": {"a": entry}}))
    [problem] = machine.load().problems
    assert (problem.json_path, problem.severity) == ("servers.a.oauth.client_secret", "warning")
    assert machine.load().servers["a"].usable
    machine.env["SECRET"] = "x"
    machine.write_user(json.dumps({"servers": {"a": entry | {"oauth": {"client_secret": "${SECRET}"}}}}))
    assert machine.load().problems == ()


@pytest.mark.parametrize("value", [f"Bearer ${{X:-}}{PLAIN}", f"Bearer ${{X:-{PLAIN}}}"])
def test_no_command_is_named_for_a_secret_beside_a_reference_which_it_leaves_alone(
    fairlead: Fairlead, machine: Machine, value: str
) -> None:
    entry = {"url": "https://e.com/", "headers": {"Authorization": value}}
    machine.write_user(json.dumps({"servers": {"a": entry}}))
    [literal] = machine.load().problems
    assert "stash" not in (literal.hint or "")
    assert "put the whole value into a variable" in (literal.hint or "")
    left = fairlead("stash", "a")
    assert (literal.hint or "") in left.err
    assert json.loads(machine.user_file.read_text())["servers"]["a"] == entry


def test_the_command_of_the_warning_moves_a_literal_secret_out_of_the_users_file_seed_001(
    fairlead: Fairlead, machine: Machine
) -> None:
    text = """{
  // mine
  "servers": {
    "a": {"url": "https://e.com/", "headers": {"Authorization": "Bearer SECRET"}},  // keep
    "n": {"trust": "trusted", "transport": {"type": "stdio", "command": "x", "args": ["--token", "SECRET"]}}
  }
}
"""
    machine.write_user(text.replace("SECRET", PLAIN))
    warnings = machine.load().problems
    assert [problem.severity for problem in warnings] == ["warning"] * 2
    for server_id, problem in zip(("a", "n"), warnings, strict=True):
        command = (problem.hint or "").split("`")[1]
        assert command == f"fairlead stash {server_id}"
        moved = fairlead(*command.split()[1:])
        assert moved.status == 0, moved.err
        assert PLAIN not in moved.err + moved.out
    written = machine.user_file.read_text()
    assert PLAIN not in written
    assert "// mine" in written
    assert "// keep" in written
    loaded = machine.load()
    assert loaded.problems == ()
    remote, local = (loaded.servers[name].resolve(machine.env) for name in ("a", "n"))
    assert getattr(remote, "headers", None) == {"Authorization": f"Bearer {PLAIN}"}
    assert getattr(local, "args", None) == ("--token", PLAIN)


def test_a_literal_secret_in_the_shape_of_seed_003_moves_with_its_entry_to_where_references_are(
    fairlead: Fairlead, machine: Machine
) -> None:
    entry = {"transport": "http", "url": "https://e.com/", "headers": {"Authorization": f"Bearer {PLAIN}"}}
    other = {"transport": "stdio", "command": "x", "args": ["${HOME}"]}
    machine.write_user(json.dumps({"mcp": {"servers": {"a": entry, "b": other}}}))
    (problem,) = machine.load().problems
    assert "`fairlead stash a`" in (problem.hint or "")
    moved = fairlead("stash", "a")
    assert moved.status == 0, moved.err
    written = json.loads(machine.user_file.read_text())
    assert PLAIN not in machine.user_file.read_text()
    assert written["mcp"] == {"servers": {"b": other}}
    loaded = machine.load()
    assert loaded.problems == ()
    resolved = loaded.servers["a"].resolve(machine.env)
    assert getattr(resolved, "headers", None) == {"Authorization": f"Bearer {PLAIN}"}
    machine.write_project(json.dumps({"mcp": {"servers": {"p": entry}}}))
    (problem,) = machine.load().problems
    assert "from `mcp.servers` to `servers`" in (problem.hint or "")


def test_a_file_is_not_taken_over_into_itself(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user(
        json.dumps({"servers": {"a": {"url": "https://e.com/", "headers": {"X-Api-Key": PLAIN}}}})
    )
    assert fairlead("stash", "a").status == 0
    before = machine.user_file.read_text()
    outcome = fairlead("import", str(machine.user_file), "--replace", "--scope", "user")
    assert "would be taken over into" in outcome.err
    assert machine.user_file.read_text() == before
    resolved = machine.load().servers["a"].resolve(machine.env)
    assert getattr(resolved, "headers", None) == {"X-Api-Key": PLAIN}


def test_a_secret_that_a_program_or_a_variable_hands_over_is_no_problem(machine: Machine) -> None:
    entry = {"url": "https://e.com/", "headers": {"Authorization": f"Bearer {PLAIN}"}}
    machine.env["FAIRLEAD_CONFIG_JSON"] = json.dumps({"servers": {"a": entry}})
    assert machine.load(overrides={"servers": {"b": entry}}).problems == ()


@pytest.mark.parametrize(
    ("key", "ours"),
    [("enabled_tools", "allow_tools"), ("disabled_tools", "deny_tools"), ("enabledTools", "allow_tools")],
)
def test_the_lists_of_tools_of_seed_001_are_named_as_ours(machine: Machine, key: str, ours: str) -> None:
    machine.write_user(json.dumps({"servers": {"a": {"url": "https://e.com/", key: ["x"]}}}))
    [problem] = machine.load().problems
    assert problem.hint == f"we call it `{ours}`"


def test_the_variable_for_a_token_of_seed_004_is_shown_as_a_header(machine: Machine) -> None:
    machine.write_user('{"servers": {"a": {"url": "https://e.com/", "bearer_token_env_var": "TOKEN"}}}')
    [problem] = machine.load().problems
    assert problem.hint == 'write `"headers": {"Authorization": "Bearer ${NAME}"}`'


def test_the_command_of_the_warning_names_a_file_given_by_path(fairlead: Fairlead, machine: Machine) -> None:
    entry = {"url": "https://e.com/", "headers": {"Authorization": f"Bearer {PLAIN}"}}
    file = machine.home / "my servers.json"
    file.write_text(json.dumps({"servers": {"a": entry}}))
    [problem] = machine.load(path=file).problems
    command = (problem.hint or "").split("`")[1]
    assert fairlead(*shlex.split(command)[1:]).status == 0
    assert PLAIN not in file.read_text()
