"""The administrator's policy: what it refuses, what cannot get round it, and that it only narrows."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.config import admin_policy
from fairlead.config.admin_policy import Program, is_url_like, target_of
from fairlead.config.explain import explain_server
from fairlead.config.load import LoadedServer, load_config, program_server
from fairlead.errors import ConfigInvalid, ConnectFailed
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, write
from tests.host.support import hosting

Administer = Callable[..., Path]


@pytest.fixture
def system(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the policy of this test's system would be."""
    path = machine.home.parent / "etc" / "policy.json"
    monkeypatch.setattr(admin_policy, "SYSTEM_FILE", path)
    return path


@pytest.fixture
def administer(system: Path) -> Administer:
    """Give the system a policy."""

    def write_policy(**policy: Any) -> Path:
        return write(system, json.dumps(policy, indent=2))

    return write_policy


def loaded(machine: Machine, **entry: Any) -> LoadedServer:
    return machine.load(overrides={"servers": {"x": entry}}).servers["x"]


def executable(path: Path) -> Path:
    write(path, "#!/bin/sh\n").chmod(0o755)
    return path


def is_allowed(machine: Machine, **entry: Any) -> bool:
    return not loaded(machine, **entry).ruling.refusals


def test_without_a_policy_nothing_is_ruled(machine: Machine, system: Path) -> None:
    server = loaded(machine, command="anything")
    assert server.usable
    assert (server.admin_rules, server.admin_approval) == ((), None)


@pytest.mark.requirement("NEED-30")
def test_a_denied_command_is_refused_whatever_its_name(machine: Machine, administer: Administer) -> None:
    administer(servers={"deny": [{"command": "sh", "reason": "no shells"}]})
    servers = {"innocent": {"command": "/bin/sh"}, "sh": {"command": "true"}}
    config = machine.load(overrides={"servers": servers})
    refused, fine = config.servers["innocent"], config.servers["sh"]
    assert fine.usable
    assert not refused.usable
    (problem,) = refused.problems
    assert problem.message == ("server `innocent`: the administrator's policy does not allow it: no shells")
    assert problem.json_path == "servers.deny[0]"
    assert (problem.file, problem.line) == (str(admin_policy.SYSTEM_FILE), 4)
    assert problem in config.problems


def test_what_an_allow_list_does_not_match_is_refused(machine: Machine, administer: Administer) -> None:
    administer(servers={"allow": [{"command": "true"}, {"url": "https://good.example"}, {"builtin": "docs"}]})
    assert is_allowed(machine, command="true")
    assert is_allowed(machine, url="https://good.example/mcp")
    assert is_allowed(machine, builtin="docs")
    for entry in ({"command": "cat"}, {"url": "https://evil.example/"}, {"builtin": "repo"}):
        assert not is_allowed(machine, **entry)


def test_an_empty_allow_list_allows_nothing(machine: Machine, administer: Administer) -> None:
    administer(servers={"allow": []})
    assert not is_allowed(machine, command="true")


def test_deny_beats_allow(machine: Machine, administer: Administer) -> None:
    administer(servers={"allow": [{"command": "*"}], "deny": [{"argv": ["*", "--unsafe", "**"]}]})
    assert is_allowed(machine, command="true", args=["--safe"])
    assert not is_allowed(machine, command="true", args=["--unsafe"])


@pytest.mark.requirement("NEED-30")
def test_a_look_alike_of_an_allowed_program_is_not_allowed(machine: Machine, administer: Administer) -> None:
    administer(servers={"allow": [{"command": "true"}]})
    executable(machine.project / "true")
    assert is_allowed(machine, command="true")
    assert not is_allowed(machine, command="./true", cwd=str(machine.project))
    assert not is_allowed(machine, command=str(machine.project / "true"))
    declared = {"PATH": f"{machine.project}:{os.environ['PATH']}"}
    assert not is_allowed(machine, command="true", env=declared), "there it means another program"
    assert not is_allowed(machine, command="nonesuch")


def test_an_allowed_folder_cannot_be_left_again(machine: Machine, administer: Administer) -> None:
    tools, evil = machine.home / "tools", machine.home / "evil"
    executable(tools / "good")
    executable(evil)
    administer(servers={"allow": [{"command": f"{tools}/*"}]})
    assert is_allowed(machine, command=str(tools / "good"))
    assert is_allowed(machine, command="good", env={"PATH": str(tools)}), "the path that runs is what counts"
    assert not is_allowed(machine, command=f"{tools}/../evil")
    (machine.home / "link").symlink_to(tools / "good")
    assert not is_allowed(machine, command=str(machine.home / "link")), "a link can be turned any time"


def test_a_denied_program_cannot_hide_behind_another_spelling(
    machine: Machine, administer: Administer
) -> None:
    tool = executable(machine.home / "tools" / "bad")
    (machine.home / "nice").symlink_to(tool)
    for pattern in ("bad", str(tool)):
        administer(servers={"deny": [{"command": pattern}]})
        for command in (str(tool), f"{tool.parent}/../tools/bad", str(machine.home / "nice")):
            assert not is_allowed(machine, command=command)
        assert not is_allowed(machine, command="bad", env={"PATH": str(tool.parent)})
        assert not is_allowed(machine, command="../tools/bad", cwd=str(tool.parent))


def test_a_search_path_that_is_relative_starts_where_the_program_does(machine: Machine) -> None:
    executable(machine.project / "bin" / "thing")
    server = loaded(machine, command="thing", cwd=str(machine.project), env={"PATH": "bin:/usr/bin"})
    assert server.config is not None
    target = target_of(server.config, cwd=machine.project, env=machine.env)
    assert target.program is not None
    assert target.program.found == str(machine.project / "bin" / "thing")


@pytest.mark.parametrize(
    ("patterns", "argv", "fits"),
    [
        (["npx", "-y", "@acme/*"], ["npx", "-y", "@acme/files"], True),
        (["npx", "-y", "@acme/*"], ["npx", "-y", "@evil/files"], False),
        (["npx", "-y", "@acme/*"], ["npx", "-y", "@acme/files", "--eval"], False),
        (["npx", "-y", "@acme/*", "**"], ["npx", "-y", "@acme/files", "--eval"], True),
        (["npx", "-y", "@acme/*", "**"], ["npx", "-y", "@acme/files"], True),
        (["npx", "-y", "@acme/*", "**"], ["npx", "-y"], False),
        (["npx", "**"], ["./npx", "-y"], False),
        (["npx"], ["npx"], True),
    ],
)
def test_a_command_line_is_compared_word_by_word(patterns: list[str], argv: list[str], fits: bool) -> None:
    program = Program(argv=tuple(argv), found="/usr/bin/npx", search_is_declared=False)
    assert program.is_run_as(patterns, grants=True) == fits


@pytest.mark.parametrize(
    ("url", "pattern", "fits"),
    [
        ("https://good.example/mcp", "https://good.example", True),
        ("https://good.example/mcp", "https://good.example/", True),
        ("https://good.example/mcp", "https://good.example/mcp", True),
        ("https://good.example/mcp/x", "https://good.example/mcp", False),
        ("https://good.example/mcp/x", "https://good.example/mcp/*", True),
        ("https://GOOD.example./mcp", "https://Good.example", True),
        ("https://a.good.example/", "https://*.good.example", True),
        ("https://good.example/", "https://*.good.example", False),
        ("https://good.example@evil.example/", "https://good.example", False),
        ("https://evil.example/https://good.example", "https://good.example", False),
        ("https://evil.example/.good.example", "https://*.good.example", False),
        ("https://good.example.evil.example/", "https://good.example", False),
        ("https://good.example#@evil.example", "https://good.example", True),
        (r"https://good.example\@evil.example/", "https://good.example", False),
        ("http://good.example/", "https://good.example", False),
        ("http://good.example/", "http*://good.example", True),
        ("https://good.example:8443/", "https://good.example", False),
        ("https://good.example:443/", "https://good.example", True),
        ("https://good.example:8443/", "https://good.example:8443", True),
        ("https://good.example:8443/", "https://good.example:*", True),
        ("https://good.example/safe/../admin", "https://good.example/safe/*", False),
        ("https://good.example/safe/%2e%2e/admin", "https://good.example/safe/*", False),
        ("https://good.example/safe/..%2Fadmin", "https://good.example/safe/*", False),
        ("http://[::1]:9/x", "http://[::1]:9", True),
        ("https://bücher.example/", "https://xn--bcher-kva.example", True),
    ],
)
@pytest.mark.requirement("NEED-30")
def test_a_url_is_compared_part_by_part(url: str, pattern: str, fits: bool) -> None:
    assert is_url_like(url, pattern, grants=True) == fits


def test_what_denies_a_url_is_broader_than_what_grants_it() -> None:
    pattern = "https://bad.example/admin/*"
    assert is_url_like("https://bad.example/%61dmin%2Fx", pattern, grants=False)
    assert is_url_like(r"https://bad.example\@x", "https://other.example", grants=False), "nobody can dial it"


def test_a_program_that_prints_headers_must_be_allowed_too(machine: Machine, administer: Administer) -> None:
    administer(servers={"allow": [{"url": "https://good.example"}]})
    entry: dict[str, Any] = {"url": "https://good.example/mcp"}
    assert is_allowed(machine, **entry)
    server = loaded(machine, **entry, headers_helper=["true"])
    assert "`headers_helper` is not on the list" in server.problems[0].message
    administer(servers={"allow": [{"url": "https://good.example"}, {"command": "true"}]})
    assert is_allowed(machine, **entry, headers_helper=["true"])


def test_references_are_compared_as_what_they_stand_for_and_stay_secret(
    machine: Machine, administer: Administer
) -> None:
    administer(servers={"allow": [{"argv": ["true", "fine"]}, {"url": "https://good.example"}]})
    machine.env["WORD"], machine.env["HOSTNAME_"] = "fine", "good.example"
    secret = write(machine.home / "secret", "hunter2")
    entry: dict[str, Any] = {"command": "true", "args": ["${WORD}"]}
    assert is_allowed(machine, **entry)
    assert is_allowed(machine, url="https://${HOSTNAME_}/mcp")
    server = loaded(machine, command="true", args=[f"${{file:{secret}}}"])
    assert not server.usable
    assert "hunter2" not in str(server.problems)
    unknown = loaded(machine, command="true", args=["${file:/nowhere}"])
    assert "cannot be checked against the administrator's policy" in unknown.problems[0].message


def test_what_changed_since_it_was_read_is_judged_again_at_the_start(
    machine: Machine, administer: Administer
) -> None:
    administer(servers={"allow": [{"argv": ["true", "fine"]}]})
    word = write(machine.home / "word", "fine")
    server = loaded(machine, command="true", args=[f"${{file:{word}}}"])
    assert server.usable
    assert server.resolve(machine.env)
    word.write_text("evil")
    with pytest.raises(ConfigInvalid, match="does not allow it"):
        server.resolve(machine.env)
    word.write_text("fine")
    administer(servers={"allow": []})
    with pytest.raises(ConfigInvalid, match="does not allow it"):
        server.resolve(machine.env)


def test_a_sandbox_can_be_required(machine: Machine, administer: Administer) -> None:
    administer(sandbox="required")
    assert is_allowed(machine, command="true", sandbox={})
    assert is_allowed(machine, url="https://good.example/")
    assert not is_allowed(machine, command="true")


def test_trust_can_be_taken_and_never_given(machine: Machine, administer: Administer) -> None:
    administer(trust="untrusted")
    machine.env["WORD"] = "x"
    server = loaded(machine, command="true", args=["${WORD}"], trust="trusted")
    assert server.config is not None
    assert server.config.trust == "untrusted"
    assert server.resolve(machine.env).trust == "untrusted"
    row = next(row for row in explain_server(server) if row.field == "trust")
    assert row.in_effect is not None
    assert (row.in_effect.value, row.in_effect.layer) == ("untrusted", "admin")
    assert [said.value for said in row.overrode] == ["trusted"]
    builtin = loaded(machine, builtin="repo", trust="trusted").config
    assert builtin is not None
    assert builtin.trust == "trusted", "what comes with the program is believed"


def test_rules_go_to_the_servers_they_match_with_their_place(
    machine: Machine, administer: Administer
) -> None:
    everywhere = {"action": "ask", "tool": "*delete*"}
    crm = {
        "action": "deny",
        "server": {"url": "https://crm.example"},
        "arguments": {"to": "*"},
        "reason": "no",
    }
    path = administer(rules=[everywhere, crm], approval="ask")
    other, ours = loaded(machine, command="true"), loaded(machine, url="https://crm.example/mcp")
    assert [loaded.rule.action for loaded in other.admin_rules] == ["ask"]
    assert [loaded.rule.action for loaded in ours.admin_rules] == ["ask", "deny"]
    last = ours.admin_rules[1]
    assert (last.rule.server, last.rule.arguments, last.rule.reason) == (None, {"to": "*"}, "no")
    assert str(last.origin).startswith(f"{path}:")
    assert ours.admin_approval == "ask"
    shown = {row.field: row.in_effect for row in explain_server(ours)}
    approval = shown["policy.approval"]
    assert approval is not None
    assert (approval.value, approval.layer) == ("ask", "admin")
    own = program_server("mine", machine.project)
    assert own.usable
    assert [loaded.rule.action for loaded in own.admin_rules] == ["ask"]


def test_a_second_policy_adds_to_the_systems_and_cannot_replace_it(
    machine: Machine, administer: Administer
) -> None:
    administer(servers={"deny": [{"command": "cat"}]}, approval="deny")
    second = write(
        machine.home / "mine.json", '{"servers": {"allow": [{"command": "*"}]}, "approval": "ask"}'
    )
    machine.env[admin_policy.POLICY_VARIABLE] = str(second)
    assert not is_allowed(machine, command="cat")
    assert loaded(machine, command="true").admin_approval == "deny"
    second.write_text('{"servers": {"deny": [{"command": "true"}]}}')
    assert not is_allowed(machine, command="true")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "policy.json:1"),
        ("[]", "must be an object"),
        ('{"severs": {}}', "did you mean `servers`?"),
        ('{"servers": {"deny": [{"comand": "x"}]}}', "did you mean `command`?"),
        ('{"servers": {"deny": [{}]}}', "needs `command` or `argv`"),
        ('{"servers": {"deny": [{"command": "x", "url": "https://x"}]}}', "no server is two of them"),
        ('{"servers": {"deny": [{"url": "example.com"}]}}', "must look like `https://host/path`"),
        ('{"servers": {"deny": [{"url": "https://a@b"}]}}', "must look like `https://host/path`"),
        ('{"servers": {"deny": [{"builtin": "rpo"}]}}', "did you mean `repo`?"),
        ('{"rules": [{"action": "allow"}]}', "must be `ask` or `deny`"),
        ('{"trust": "trusted"}', "must be `untrusted`"),
        ('{"approval": "allow"}', "must be `auto`, `ask` or `deny`"),
        ('{"version": 2}', "must be 1"),
    ],
)
def test_a_policy_that_is_not_sound_allows_nothing_and_says_where(
    text: str, words: str, machine: Machine, system: Path
) -> None:
    write(system, text)
    config = machine.load(overrides={"servers": {"a": {"command": "true"}, "b": {"command": "true"}}})
    assert not any(server.usable for server in config.servers.values())
    said = [f"{problem} {problem.hint}" for problem in config.problems]
    assert len(said) == len(set(said)), "it is said once, not once per server"
    assert any(words in each for each in said)
    assert str(system) in said[0]
    assert not program_server("mine", machine.project).usable


def test_a_policy_that_cannot_be_read_allows_nothing(machine: Machine, system: Path) -> None:
    system.mkdir(parents=True)
    assert not is_allowed(machine, command="true")
    system.rmdir()
    system.symlink_to("nowhere")
    assert not is_allowed(machine, command="true")
    system.unlink()
    system.parent.rmdir()
    system.parent.symlink_to(system.parent)  # whoever cannot look does not know that it is missing
    assert not is_allowed(machine, command="true")


@pytest.mark.parametrize("named", ["/nowhere/policy.json", "policy.json"])
def test_a_named_policy_must_be_there(named: str, machine: Machine, system: Path) -> None:
    machine.env[admin_policy.POLICY_VARIABLE] = named
    server = loaded(machine, command="true")
    assert not server.usable
    assert named in str(server.problems[0])


def test_a_project_cannot_name_a_policy(machine: Machine, system: Path) -> None:
    policy = write(machine.project / "policy.json", '{"servers": {"allow": []}}')
    write(machine.project / ".env", f"{admin_policy.POLICY_VARIABLE}={policy}\n")
    machine.write_project(json.dumps({"servers": {"a": {"command": "true"}}}))
    assert machine.load().servers["a"].usable


@pytest.mark.requirement("NEED-30")
async def test_a_refused_server_is_never_started(machine: Machine, administer: Administer) -> None:
    scripted = ScriptedServer(machine.home / "record")
    administer(servers={"deny": [{"command": "python*"}]})
    async with hosting(machine, x=scripted.entry(lazy=False)) as host:
        (status,) = host.status()
        assert status.state == "error"
        assert "administrator's policy does not allow it" in str(status.last_error)
        with pytest.raises(ConfigInvalid, match="does not allow it"):
            await host.call("x", "echo", {})
        assert set(await host.connect_all()) == {"x"}
        assert "echo" not in json.dumps((await host.tools.for_openai()).definitions)
        again = load_config(overrides={"servers": {"y": scripted.entry()}}, env=machine.env)
        await host.add(again.servers["y"])
        assert set(await host.connect("y")) == {"y"}
    assert scripted.starts == 0


async def test_a_policy_that_came_later_counts_at_the_next_start(
    machine: Machine, administer: Administer
) -> None:
    scripted = ScriptedServer(machine.home / "record")
    async with hosting(machine, x=scripted.entry(approval="allow")) as host:
        assert await host.connect("x") == {}
        await host.close("x")
        administer(servers={"allow": []})
        failure = (await host.connect("x"))["x"]
    assert isinstance(failure, ConnectFailed | ConfigInvalid)
    assert "does not allow it" in str(failure)
    assert scripted.starts == 1


async def test_a_policy_without_objections_is_in_nobodys_way(
    machine: Machine, administer: Administer
) -> None:
    scripted = ScriptedServer(machine.home / "record")
    administer(servers={"allow": [{"command": f"{Path(scripted.argv[0]).parent}/*"}]})
    entry = {"servers": {"x": scripted.entry(approval="allow")}}
    async with Host.open(overrides=entry, env=machine.env, cwd=machine.project) as host:
        result = await host.call("x", "echo", {"text": "hello"})
    assert not result.is_error
