"""What a document may say, and how it is told what it may not."""

import json
from typing import Any

import pytest

from fairlead import Config, parse_config
from fairlead.config.models import RemoteServer, StdioServer
from fairlead.config.validate import check
from fairlead.errors import ConfigInvalid
from tests.conftest import Machine


def problems_of(document: Any) -> dict[str, str]:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(document)
    return {problem.json_path: problem.message for problem in caught.value.problems}


def hint_for(document: Any) -> str | None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(document)
    return caught.value.problems[0].hint


def server(**entry: Any) -> dict[str, Any]:
    return {"servers": {"x": entry}}


def test_an_empty_document_is_a_configuration() -> None:
    assert parse_config({}) == Config()


def test_the_transport_is_told_from_the_target() -> None:
    config = parse_config(
        {
            "servers": {
                "a": {"command": "run"},
                "b": {"url": "https://example.com/mcp"},
                "c": {"url": "https://example.com/sse", "transport": "sse"},
            }
        }
    )
    assert [type(entry) for entry in config.servers.values()] == [StdioServer, RemoteServer, RemoteServer]
    assert [getattr(entry, "transport", None) for entry in config.servers.values()] == [
        "stdio",
        "http",
        "sse",
    ]


def test_defaults_are_the_documented_ones() -> None:
    entry = parse_config(server(command="run")).servers["x"]
    assert (entry.enabled, entry.required, entry.trust, entry.lazy) == (True, False, "untrusted", True)
    assert (entry.request_timeout_ms, entry.max_request_ms, entry.startup_timeout_ms) == (
        30_000,
        600_000,
        30_000,
    )
    assert (entry.idle_stop_ms, entry.tools_ttl_ms, entry.max_result_bytes) == (None, 300_000, 100_000)
    assert entry.allow_tools is None  # valid for an untrusted server: nothing is callable until reviewed


def test_every_field_of_the_format_is_accepted() -> None:
    remote: dict[str, Any] = {
        "url": "https://example.com/mcp",
        "transport": "http",
        "headers": {"X-Workspace": "one"},
        "headers_helper": ["print-headers", "--json"],
        "oauth": {
            "authorization_url": "https://example.com/authorize",
            "token_url": "https://example.com/token",
            "registration_url": "https://example.com/register",
            "client_id": "me",
            "client_secret": "${SECRET}",
            "scope": "a b",
            "callback_port": 8765,
            "client_metadata_url": "https://example.com/client.json",
            "grant": "client_credentials",
        },
        "auth_provider_id": "corporate",
        "account": "work",
        "enabled": False,
        "required": True,
        "trust": "trusted",
        "allow_tools": ["read_*"],
        "deny_tools": ["read_secret"],
        "approval": {"default": "ask", "tools": {"read_*": "allow"}},
        "sharing": "shared",
        "lazy": False,
        "startup_timeout_ms": 1,
        "request_timeout_ms": 2,
        "max_request_ms": 3,
        "idle_stop_ms": 4,
        "tools_ttl_ms": 5,
        "max_result_bytes": 2048,
        "max_message_bytes": 4096,
        "description": "a server",
    }
    local: dict[str, Any] = {
        "command": "run",
        "args": ["-x", ""],
        "cwd": "sub",
        "env": {"A": "1", "B": ""},
        "sandbox": {"kind": "bwrap", "network": False, "write": ["out"]},
        "approval": "deny",
    }
    document = {
        "$schema": "./fairlead.schema.json",
        "version": 1,
        "servers": {"remote": remote, "local": local, "repo": {"builtin": "repo", "roots": ["."]}},
        "bundles": {
            "b": {
                "servers": {
                    "remote": {"allow_tools": ["a"], "deny_tools": ["b"], "mode": "direct"},
                    "local": {},
                },
                "mode": "meta",
                "always_direct": ["read_file"],
            }
        },
        "policy": {
            "approval": "ask",
            "rules": [{"action": "deny", "tool": "write_file", "arguments": {"path": "/etc/**"}}],
        },
        "defaults": {"request_timeout_ms": 9},
        "docs": {"allow": ["docs.python.org"]},
        "gateway": {"host": "127.0.0.1", "port": 0, "mode": "auto"},
        "store": {"path": "state.db"},
    }
    config = parse_config(document)
    said = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert said == document


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"command": ""}, "command", "must not be empty"),
        ({"command": 1}, "command", "must be a string"),
        ({"command": "x", "args": "y"}, "args", "must be a list"),
        ({"command": "x", "args": [1]}, "args[0]", "must be a string"),
        ({"command": "x", "env": {"A": 1}}, "env.A", "must be a string"),
        ({"command": "x", "env": {"A=B": ""}}, "env.A=B", "a variable's name cannot contain `=` or NUL"),
        ({"command": "x", "enabled": "true"}, "enabled", "must be true or false"),
        ({"command": "x", "enabled": 1}, "enabled", "must be true or false"),
        ({"command": "x", "request_timeout_ms": 1.5}, "request_timeout_ms", "must be a whole number"),
        ({"command": "x", "request_timeout_ms": 0}, "request_timeout_ms", "must be at least 1"),
        ({"command": "x", "request_timeout_ms": 10**9}, "request_timeout_ms", "must be at most 86400000"),
        ({"command": "x", "trust": "yes"}, "trust", "must be `trusted` or `untrusted`"),
        ({"command": "x", "url": "http://y"}, "url", "is for http and sse servers, and this one is stdio"),
        ({"url": "ftp://y"}, "url", "must be an http:// or https:// URL with a host"),
        ({"url": "http://y:99999/mcp"}, "url", "must have a port from 1 to 65535"),
        ({"url": "http://y:0"}, "url", "must have a port from 1 to 65535"),
        ({"url": "http://"}, "url", "must be an http:// or https:// URL with a host"),
        ({"url": "http://a b"}, "url", "must not contain spaces or control characters"),
        (
            {"url": "http://y", "headers": {"A\r\n": "1"}},
            "headers.A\r\n",
            "a header's name is letters, digits and `-`",
        ),
        (
            {"url": "http://y", "headers": {"A": "\n"}},
            "headers.A",
            "a header's value cannot contain line breaks",
        ),
        ({"url": "http://y", "headers_helper": []}, "headers_helper", "must not be empty"),
        ({"url": "http://y", "oauth": True}, "oauth", "must be false or an object"),
        ({"url": "http://y", "oauth": {"grant": "password"}}, "oauth.grant", None),
        ({"builtin": "bash"}, "builtin", "must be `repo`, `docs`, `edit` or `shell`"),
        ({"command": "x", "approval": "maybe"}, "approval", None),
        ({"command": "x", "approval": {"tools": {"a": "maybe"}}}, "approval.tools.a", None),
        ({"transport": "websocket", "url": "http://y"}, "transport", None),
        ({"transport": "http"}, "url", "is missing"),
        ({}, "", None),
        (3, "", "must be an object"),
        ({"url": "http://y/${env:TOKEN}"}, "url", "write `${TOKEN}` for an environment variable"),
        ({"url": "http://y/${TOKEN"}, "url", "`${` without its `}`; write `$${` for a literal `${`"),
        ({"command": "x", "args": ["${vault:a}"]}, "args[0]", None),
        ({"command": "x", "args": ["${keyring:only}"]}, "args[0]", None),
    ],
)
def test_a_wrong_entry_is_told_what_is_wrong_and_where(entry: Any, path: str, message: str | None) -> None:
    problems = problems_of({"servers": {"x": entry}})
    where = f"servers.x.{path}" if path else "servers.x"
    assert list(problems) == [where]
    assert message is None or problems[where] == message


@pytest.mark.parametrize(
    ("url", "hint"), [("WSS://y/mcp", "no transport over WebSocket"), ("y/mcp", "write it whole")]
)
def test_a_wrong_url_says_how_to_write_it(url: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parse_config({"servers": {"x": {"url": url}}})
    assert hint in (raised.value.hint or "")


def test_all_problems_come_at_once() -> None:
    document: dict[str, Any] = {
        "servers": {"a": {"command": "x", "arg": 1, "enabled": "no"}, "b b": {"url": "x"}},
        "bundles": {"c": {"servers": {"z": {}}}},
        "nonsense": 1,
    }
    assert set(problems_of(document)) == {
        "servers.a.arg",
        "servers.a.enabled",
        "servers.b b",
        "servers.b b.url",
        "bundles.c.servers.z",
        "nonsense",
    }


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        (server(command="x", arg=[]), "did you mean `args`?"),
        (server(command="x", allowTools=["a"]), "did you mean `allow_tools`?"),
        (server(command="x", requestTimeoutMs=1), "did you mean `request_timeout_ms`?"),
        (server(command="x", type="stdio"), "did you mean `transport`?"),
        (server(url="http://y", transport="streamable-http"), "`http` is Streamable HTTP"),
        (server(url="http://y", trust="trused"), "did you mean `trusted`?"),
        (server(url="http://y", oauth={"clientId": "a"}), "did you mean `client_id`?"),
        ({"server": {}}, "did you mean `servers`?"),
        ({"policy": {"rules": [{"action": "deny", "tol": "x"}]}}, "did you mean `tool`?"),
        ({"bundles": {"b": {"servers": {}, "mod": "meta"}}}, None),
    ],
)
def test_a_near_miss_gets_a_suggestion(document: Any, hint: str | None) -> None:
    assert hint_for(document) == hint


def test_another_agents_file_is_recognised_for_what_it_is() -> None:
    assert "fairlead import" in (hint_for({"mcpServers": {}}) or "")


@pytest.mark.parametrize("value", [[], "x", 3, None, True])
def test_a_document_that_is_no_object_is_refused(value: Any) -> None:
    assert "" in problems_of(value)


def test_a_problem_never_repeats_a_value_because_it_may_be_a_secret() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(server(url="hunter2 secret", headers={"Authorization": 12345678}, trust="hunter2"))
    assert "hunter2" not in str(caught.value)
    assert "12345678" not in str(caught.value)


def test_a_bad_entry_costs_only_itself() -> None:
    checked = check({"servers": {"good": {"command": "x"}, "bad": {"command": 1}}, "bundles": {"b": 1}})
    assert set(checked.config.servers) == {"good"}
    assert checked.config.bundles == {}
    assert len(checked.faults) == 2


MANY_MISTAKES = """{
  "servers": {
    "a": {"command": "one"},
    "a": {"command": "two"},
    "b": {"comand": "three"},
    "c": {"command": "four", "command": "five"},
    "d": {"command": "six", "argz": []},
    "sound": {"command": "seven"}
  },
  "bundles": {"x": {"servers": {"sound": {}}}, "x": {"servers": {"sound": {}}},
              "y": {"servers": {"sound": {}}}},
  "serverz": {},
  "mcpServers": {}
}"""


@pytest.mark.requirement("HARD-85")
def test_every_mistake_is_said_at_once_and_costs_only_itself(machine: Machine) -> None:
    machine.write_user(MANY_MISTAKES)
    loaded = machine.load()
    assert [name for name, server in loaded.servers.items() if server.usable] == ["sound"]
    assert [*loaded.config.bundles] == ["y"]
    found = {(problem.json_path, problem.line) for problem in loaded.problems}
    assert found == {
        ("servers.a", 4),
        ("servers.b.comand", 5),
        ("servers.b", 5),
        ("servers.c.command", 6),
        ("servers.d.argz", 7),
        ("bundles.x", 10),
        ("serverz", 12),
        ("mcpServers", 13),
    }
    hints = {problem.json_path: problem.hint for problem in loaded.problems}
    assert hints["servers.b.comand"] == "did you mean `command`?"
    assert hints["servers.d.argz"] == "did you mean `args`?"
    assert hints["serverz"] == "did you mean `servers`?"


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize(
    "search", ['{"memroy": false}', '{"embeddings": {"modle": "m"}}', "5", '{"memory": true, "memory": true}']
)
def test_a_bad_search_section_costs_the_search_its_memory_and_nothing_else(
    machine: Machine, search: str
) -> None:
    machine.write_user(f'{{"servers": {{"sound": {{"command": "one"}}}}, "search": {search}}}')
    loaded = machine.load()
    assert loaded.servers["sound"].usable
    assert (loaded.config.search.memory, loaded.config.search.embeddings) == (False, None)
    assert loaded.problems
    assert all((problem.json_path or "").startswith("search") for problem in loaded.problems)


BAD_SECTIONS = """{
  "servers": {"sound": {"command": "one"}},
  "docs": {"allow": ["docs.example.org"], "alow": []},
  "tools": {"mode": "serch", "token_budget": 500},
  "audit": {"enabled": "yes", "values": true, "keep_days": 0},
  "artifacts": {"max_bytes": "1 GB", "max_age_days": 3},
  "model": 4
}"""


@pytest.mark.requirement("HARD-85")
def test_a_bad_field_of_a_section_that_is_safe_without_it_costs_only_itself(machine: Machine) -> None:
    machine.write_user(BAD_SECTIONS)
    loaded = machine.load()
    assert [name for name, server in loaded.servers.items() if server.usable and not server.is_built_in] == [
        "sound"
    ]
    config = loaded.config
    assert config.docs.allow == ("docs.example.org",)
    assert (config.tools.mode, config.tools.token_budget) == ("auto", 500)
    assert (config.audit.enabled, config.audit.values, config.audit.keep_days) == (True, True, 90)
    assert (config.artifacts.max_bytes, config.artifacts.max_age_days) == (256 * 1024 * 1024, 3)
    assert config.model is None
    assert [(problem.json_path, problem.line) for problem in loaded.problems] == [
        ("docs.alow", 3),
        ("tools.mode", 4),
        ("audit.enabled", 5),
        ("audit.keep_days", 5),
        ("artifacts.max_bytes", 6),
        ("model", 7),
    ]


@pytest.mark.parametrize(
    "section",
    [
        '"policy": {"approval": "never"}',
        '"policy": null',
        '"store": {"path": 1}',
        '"defaults": {"sharing": "sesion"}',
        '"defaults": {"sharin": "session"}',
        '"defaults": {"sharing": "session", "sharing": "auto"}',
    ],
)
def test_a_section_that_is_not_safe_without_a_field_is_refused_whole(machine: Machine, section: str) -> None:
    machine.write_user('{"servers": {"sound": {"command": "one"}}, ' + section + "}")
    with pytest.raises(ConfigInvalid):
        machine.load()


def test_a_policy_that_is_misspelt_or_there_twice_is_no_policy_to_go_on_with(machine: Machine) -> None:
    for text in (
        '{"servers": {}, "polcy": {"rules": []}}',
        '{"policy": {"rules": []}, "policy": {}}',
        '{"policy": {"rules": [{"action": "deny", "action": "allow"}]}}',
        '{"servers": {}, "servers": {}}',
    ):
        machine.write_user(text)
        with pytest.raises(ConfigInvalid):
            machine.load()


def test_a_duplicate_in_a_foreign_file_costs_that_server_alone(machine: Machine) -> None:
    folder = machine.project / ".codelia"
    folder.mkdir()
    twice = '"x": {"transport": "stdio", "command": "a"}, "x": {"transport": "stdio", "command": "b"}'
    sound = '"y": {"transport": "stdio", "command": "c"}'
    (folder / "config.json").write_text(f'{{"mcp": {{"servers": {{{twice}, {sound}}}}}}}')
    loaded = machine.load()
    assert [name for name, server in loaded.servers.items() if server.usable] == ["y"]


BUNDLES: dict[str, Any] = {"analytics": {"servers": {"x": {}}}, "work": {"servers": {"x": {}}}}


@pytest.mark.parametrize(
    ("granted", "line", "hint"),
    [
        ({"group:data": "analitics"}, '"group:data"', "did you mean `analytics`?"),
        ({"group:data": ["work", "Analytics"]}, '"Analytics"', "did you mean `analytics`?"),
        ({"ada@example.org": "zzz"}, '"ada@example.org"', "`bundles` at the top level defines them"),
    ],
)
def test_a_grant_of_a_bundle_that_does_not_exist_is_named_with_its_line_and_costs_nothing_else(
    machine: Machine, granted: dict[str, Any], line: str, hint: str
) -> None:
    bundles = {"*": "work", **granted}
    oauth = {"issuer": "https://issuer.example", "audience": "a", "bundles": bundles}
    document: dict[str, Any] = {
        "servers": {"x": {"command": "never-run"}},
        "bundles": BUNDLES,
        "gateway": {"port": 4321, "oauth": oauth},
    }
    file = machine.write_user(json.dumps(document, indent=1))
    loaded = machine.load()
    (problem,) = loaded.problems
    assert problem.message.startswith("there is no bundle `")
    assert problem.hint == hint
    expected = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if line in text)
    assert (problem.file, problem.line) == (str(file), expected)
    assert loaded.config.gateway.port == 4321
    assert loaded.config.gateway.oauth is not None
    assert loaded.config.gateway.oauth.bundles.keys() == bundles.keys()


def test_grants_of_bundles_that_exist_are_no_problem(machine: Machine) -> None:
    granted = {"group:data": "analytics", "*": ["work", "analytics"], "none": []}
    oauth = {"issuer": "https://issuer.example", "audience": "a", "bundles": granted}
    document: dict[str, Any] = {"bundles": BUNDLES, "gateway": {"oauth": oauth}}
    document["servers"] = {"x": {"command": "c"}}
    machine.write_user(json.dumps(document))
    assert machine.load().problems == ()


SOUND = '"servers": {"sound": {"command": "one"}}'


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ('"bundles": []', "bundles"),
        ('"bundles": null', "bundles"),
        ('"bundles": {}, "bundles": {}', "bundles"),
        ('"tools": {"mode": "auto", "mode": "auto"}', "tools.mode"),
        ('"tools": {}, "tools": {}', "tools"),
        ('"docs": {"allow": ["a.example"], "allow": ["b.example"]}', "docs.allow"),
        ('"docs": {"allow": ["${"]}', "docs.allow[0]"),
        ('"strange": {"a": 1, "a": 2}', "strange.a"),
        ('"$schema": "a", "$schema": "b"', "$schema"),
        ('"gateway": {"port": 99999}', "gateway.port"),
        ('"gateway": {"nmaes": []}', "gateway.nmaes"),
        ('"gateway": {"approval": "dney"}', "gateway.approval"),
        ('"gateway": {"host": "a", "host": "b"}', "gateway.host"),
        ('"gateway": {"host": "${"}', "gateway.host"),
        ('"gateway": null', "gateway"),
        ('"gateway": []', "gateway"),
        ('"model": {"provider": "openai", "provider": "openai"}', "model.provider"),
        ('"defaults": {"startup_timeout_ms": -1}', "defaults.startup_timeout_ms"),
        ('"defaults": {"startup_timeout_ms": null}', "defaults.startup_timeout_ms"),
        ('"defaults": {"startup_timeout_ms": 1, "startup_timeout_ms": 2}', "defaults.startup_timeout_ms"),
        ('"defaults": {"timeout": 5}', "defaults.timeout"),
        ('"defaults": []', "defaults"),
        ('"defaults": null', "defaults"),
    ],
)
def test_a_mistake_outside_the_servers_costs_only_itself_and_is_named_with_its_line(
    machine: Machine, section: str, path: str
) -> None:
    machine.write_user("{" + SOUND + ",\n" + section + "}")
    loaded = machine.load()
    assert loaded.servers["sound"].usable
    assert loaded.servers["sound"].config is not None
    assert loaded.servers["sound"].config.startup_timeout_ms == 30_000
    assert loaded.config.docs.allow == ()
    assert path in [problem.json_path for problem in loaded.problems]
    assert {problem.line for problem in loaded.problems} == {2}


def test_the_sound_defaults_beside_a_bad_one_hold(machine: Machine) -> None:
    machine.write_user(
        "{" + SOUND + ', "defaults": {"startup_timeout_ms": "5s", "request_timeout_ms": 7000}}'
    )
    config = machine.load().servers["sound"].config
    assert config is not None
    assert (config.startup_timeout_ms, config.request_timeout_ms) == (30_000, 7000)


@pytest.mark.parametrize("value", ['[{"command": "x"}]', "null", "5", '"x"', "true"])
def test_servers_that_are_no_object_are_named(machine: Machine, value: str) -> None:
    machine.write_user('{"servers":\n' + value + "}")
    [problem] = machine.load().problems
    assert (problem.json_path, problem.message, problem.line) == ("servers", "must be an object", 1)
    assert ("ID" in (problem.hint or "")) == value.startswith("[")


@pytest.mark.parametrize("section", ['"port": 99999', '"nmaes": []', '"host": "a", "host": "b"'])
def test_what_serves_as_a_gateway_is_refused_with_the_mistakes_of_its_section(
    machine: Machine, section: str
) -> None:
    machine.write_user("{" + SOUND + ', "gateway": {' + section + "}}")
    with pytest.raises(ConfigInvalid, match="gateway"):
        machine.load().require_section("gateway")


def test_a_sound_or_absent_section_is_not_refused(machine: Machine) -> None:
    machine.write_user("{" + SOUND + ', "gateway": {"port": 1}}')
    machine.write_project('{"gateway": {"port": 2}}')  # which a project may not say, and does not count
    machine.load().require_section("gateway")
    machine.load().require_section("model")


def test_everything_wrong_with_an_entry_is_told_at_once(machine: Machine) -> None:
    machine.write_user(
        """{"defaults": {"lazy": false}, "servers": {
        "t1": {"comand": "x", "arg": ["y"], "trust": "maybe"},
        "t2": {"url": "ftp://x", "headers": {"A b": "c", "X": 5}, "transport": "websocket"},
        "t3": {"url": "http://x", "headers": {"A b": 5, "X": "a\\nb"}},
        "t4": null,
        "t5": {"command": "x", "env": {"A=B": "c", "D": 1}},
        "t6": {"transport": 5, "command": 6, "args": "x"}
        }}"""
    )
    assert [(problem.json_path, problem.line) for problem in machine.load().problems] == [
        ("servers.t1.comand", 2),
        ("servers.t1.arg", 2),
        ("servers.t1.trust", 2),
        ("servers.t1", 2),
        ("servers.t2.url", 3),
        ("servers.t2.headers.A b", 3),
        ("servers.t2.headers.X", 3),
        ("servers.t2.transport", 3),
        ("servers.t3.headers.A b", 4),
        ("servers.t3.headers.A b", 4),
        ("servers.t3.headers.X", 4),
        ("servers.t4", 5),
        ("servers.t5.env.A=B", 6),
        ("servers.t5.env.D", 6),
        ("servers.t6.command", 7),
        ("servers.t6.args", 7),
        ("servers.t6.transport", 7),
    ]


def test_a_null_has_its_line(machine: Machine) -> None:
    machine.write_user("{" + SOUND + ',\n"policy": null}')
    with pytest.raises(ConfigInvalid) as caught:
        machine.load()
    assert [(problem.json_path, problem.line) for problem in caught.value.problems] == [("policy", 2)]
