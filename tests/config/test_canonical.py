"""The seeds' own shapes of a document, read wherever one is handed over, and as strictly as ours."""

import json
from typing import Any

import pytest

from fairlead import parse_config
from fairlead.config.models import RemoteServer, StdioServer
from fairlead.errors import ConfigInvalid, Problem
from fairlead.host.model.bundles import select
from fairlead.policy.decision import CallPolicy
from tests.conftest import Machine, write

NESTED: dict[str, Any] = {
    "servers": {
        "repo": {"trust": "trusted", "transport": {"type": "http", "url": "http://localhost:4010/mcp"}},
        "old": {
            "trust": "untrusted",
            "toolsTtlMs": 1000,
            "transport": {
                "type": "sse",
                "url": "https://old.example/sse",
                "headers": {"X-Team": "a"},
                "authProviderId": "corp",
            },
        },
        "local": {
            "trust": "untrusted",
            "transport": {"type": "stdio", "command": "x", "args": ["1"], "cwd": ".", "env": {"A": "b"}},
        },
    },
    "bundles": {
        "repoRead": {"serverId": "repo", "mode": "direct", "allowTools": ["readFile", "search"]},
        "oldRead": {"serverId": "old", "mode": "meta", "allowTools": ["read", "rm"], "denyTools": ["rm"]},
    },
}
BELOW_MCP: dict[str, Any] = {
    "version": 1,
    "mcp": {
        "servers": {
            "remote-tools": {
                "transport": "http",
                "url": "https://example.com/mcp",
                "enabled": True,
                "headers": {"X-Workspace": "${HOME}"},
                "request_timeout_ms": 30000,
                "oauth": {"token_url": "https://example.com/token", "scope": "mcp"},
            },
            "filesystem-local": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"],
                "cwd": "/srv",
                "env": {"NODE_ENV": "production"},
            },
        }
    },
}


def problems_of(document: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(document)
    return {problem.json_path: problem for problem in caught.value.problems}


def test_a_program_may_hand_over_the_document_of_seed_000() -> None:
    config = parse_config(NESTED)
    repo, old, local = (config.servers[name] for name in ("repo", "old", "local"))
    assert isinstance(repo, RemoteServer)
    assert (repo.transport, repo.url, repo.trust) == ("http", "http://localhost:4010/mcp", "trusted")
    assert isinstance(old, RemoteServer)
    assert (old.transport, old.auth_provider_id, old.tools_ttl_ms) == ("sse", "corp", 1000)
    assert isinstance(local, StdioServer)
    assert (local.command, local.args, local.cwd, local.env) == ("x", ("1",), ".", {"A": "b"})
    read = config.bundles["repoRead"]
    assert (read.mode, read.servers["repo"].allow_tools) == ("direct", ("readFile", "search"))
    assert config.bundles["oldRead"].servers["old"].deny_tools == ("rm",)


def test_the_list_of_a_bundle_lets_an_untrusted_server_of_seed_000_offer_those_tools(
    machine: Machine,
) -> None:
    machine.write_user(json.dumps(NESTED))
    loaded = machine.load()
    policy, chosen = CallPolicy(loaded.servers["old"]), select(loaded, "oldRead")
    verdicts = {tool: chosen.decide(policy, tool, None).verdict for tool in ("read", "rm", "other")}
    assert verdicts == {"read": "ask", "rm": "deny", "other": "deny"}
    everything = select(loaded, None)
    assert everything.decide(policy, "read", None).verdict == "deny"  # only its bundle has a list


def test_lists_of_seed_000_with_nothing_in_common_allow_nothing(machine: Machine) -> None:
    """A missing list allows all tools of a trusted server; two lists allow what is in both."""
    servers = {"repo": {**NESTED["servers"]["repo"], "allow_tools": ["read", "search"]}}
    lists = {"none": {}, "both": {"allowTools": ["read", "rm"]}, "apart": {"allowTools": ["rm"]}}
    bundles = {name: {"serverId": "repo", **given} for name, given in lists.items()}
    machine.write_user(json.dumps({"servers": servers, "bundles": bundles}))
    loaded = machine.load()
    assert loaded.problems == ()
    policy = CallPolicy(loaded.servers["repo"])
    allowed = {
        name: [
            tool
            for tool in ("read", "search", "rm")
            if select(loaded, name).decide(policy, tool, None).verdict != "deny"
        ]
        for name in lists
    }
    assert allowed == {"none": ["read", "search"], "both": ["read"], "apart": []}


def test_the_time_to_live_of_seed_000_may_be_that_of_all_servers(machine: Machine) -> None:
    machine.write_user(json.dumps({**NESTED, "toolsTtlMs": 7}))
    loaded = machine.load()
    assert loaded.problems == ()
    found = {name: server.config.tools_ttl_ms for name, server in loaded.servers.items() if server.config}
    assert found == {"repo": 7, "old": 1000, "local": 7}


def test_a_time_for_all_servers_in_a_projects_file_is_named_as_it_is_written(machine: Machine) -> None:
    """Seed 000: `toolsTtlMs`. A project's file has no say about the servers of others."""
    document = {"servers": {"s": {"command": "x"}}, "toolsTtlMs": 7}
    machine.write_project(json.dumps(document, indent=1))
    (problem,) = machine.load().problems
    assert (problem.json_path, problem.line) == ("toolsTtlMs", 7)
    assert problem.message == "a project file may not set this"
    machine.write_project(json.dumps({"defaults": {"lazy": True}, **document}))
    assert [each.json_path for each in machine.load().problems] == ["toolsTtlMs", "defaults"]
    entry = {"transport": {"type": "stdio", "command": "x"}, "toolsTtlMs": 7}
    machine.write_project(json.dumps({"servers": {"s": entry}}))
    assert machine.load().problems == (), "each of its own servers may have one"


def test_a_program_may_hand_over_the_document_of_seed_003() -> None:
    config = parse_config(BELOW_MCP)
    remote, local = config.servers["remote-tools"], config.servers["filesystem-local"]
    assert isinstance(remote, RemoteServer)
    assert remote.headers == {"X-Workspace": "$${HOME}"}, "nothing is expanded there"
    assert remote.oauth
    assert remote.oauth.scope == "mcp"
    assert isinstance(local, StdioServer)
    assert local.env == {"NODE_ENV": "production"}


@pytest.mark.parametrize("document", [NESTED, BELOW_MCP], ids=["seed 000", "seed 003"])
@pytest.mark.parametrize("way", ["user file", "project file", "named file", "variable", "overrides"])
def test_the_shapes_of_the_seeds_are_known_by_their_content(
    machine: Machine, document: dict[str, Any], way: str
) -> None:
    text, rest = json.dumps(document), dict[str, Any]()
    match way:
        case "user file":
            machine.write_user(text)
        case "project file":
            machine.write_project(text)
        case "named file":
            rest["path"] = write(machine.home / "any-name.json", text)
        case "variable":
            machine.env["FAIRLEAD_CONFIG_JSON"] = text
        case _:
            rest["overrides"] = document
    loaded = machine.load(**rest)
    assert loaded.problems == ()
    assert set(loaded.servers) == {*document.get("servers", {}), *document.get("mcp", {}).get("servers", {})}
    assert all(server.usable for server in loaded.servers.values())
    assert set(loaded.config.bundles) == set(document.get("bundles", {}))


def test_what_is_wrong_in_a_document_of_seed_000_is_told_at_once_with_its_line_and_column(
    machine: Machine,
) -> None:
    path = machine.write_user(
        """{"servers": {
"a": {"trust": "trusted", "transport": {"type": "stdio", "comand": "x"}},
"b": {"trust": "maybe", "transport": {"type": "http", "url": "ftp://x", "command": "y"}},
"c": {"transport": {"url": "http://x"}, "url": "http://y", "frobs": 1},
"d": {"transport": {"type": "smoke"}},
"e e": {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}},
"ok": {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}}},
"bundles": {
"m": {"serverId": "okk", "mode": "sideways", "allowTools": [], "denyTool": ["x"]},
"n": {"mode": "direct", "allowTools": [1]},
"fine": {"serverId": "ok", "mode": "direct"}},
"serverz": {}, "serverz": {}}"""
    )
    loaded = machine.load()
    assert [(problem.json_path, problem.line) for problem in loaded.problems if problem.line == 2] == [
        ("servers.a.transport.comand", 2),
        ("servers.a.transport.command", 2),
    ]
    assert [problem.message for problem in loaded.problems if problem.line == 12] == [
        "this key is already in line 12",
        "unknown key",
        "unknown key",
    ]
    found = {problem.json_path: problem for problem in loaded.problems}
    assert {name: problem.line for name, problem in found.items()} == {
        "servers.a.transport.comand": 2,
        "servers.a.transport.command": 2,
        "servers.b.trust": 3,
        "servers.b.transport.url": 3,
        "servers.b.transport.command": 3,
        "servers.c.transport": 4,
        "servers.c.url": 4,
        "servers.c.frobs": 4,
        "servers.d.transport.type": 5,
        "servers.e e": 6,
        "bundles.m.serverId": 9,
        "bundles.m.mode": 9,
        "bundles.m.allowTools": 9,
        "bundles.m.denyTool": 9,
        "bundles.n.serverId": 10,
        "bundles.n.allowTools[0]": 10,
        "serverz": 12,
    }
    assert found["servers.a.transport.comand"].hint == "did you mean `command`?"
    assert found["servers.a.transport.comand"].column == 58
    assert found["bundles.m.denyTool"].hint == "did you mean `denyTools`?"
    assert found["bundles.m.serverId"].hint == "did you mean `ok`?"
    assert {problem.severity for problem in loaded.problems} == {"error"}
    assert {problem.file for problem in loaded.problems} == {str(path)}
    assert [name for name, server in loaded.servers.items() if server.usable] == ["ok"]
    assert set(loaded.config.bundles) == {"fine"}


def test_what_is_wrong_in_a_document_of_seed_003_is_told_at_once_with_its_line(machine: Machine) -> None:
    machine.write_project(
        """{"version": 1, "mcp": {"server": {}, "servers": {
"a": {"transport": "http", "ulr": "https://x.example"},
"b": {"transport": "stdio", "command": 5, "request_timeout_ms": "1"},
"c": {"transport": "http", "url": "https://x.example", "env": {"A": "b"}},
"bad id!": {"transport": "stdio", "command": "x"},
"twice": {"transport": "stdio", "command": "x", "command": "y"}}}}"""
    )
    loaded = machine.load()
    assert {(problem.json_path, problem.line, problem.severity) for problem in loaded.problems} == {
        ("mcp.server", 1, "error"),
        ("mcp.servers.a.ulr", 2, "error"),
        ("mcp.servers.a.url", 2, "error"),
        ("mcp.servers.b.command", 3, "error"),
        ("mcp.servers.b.request_timeout_ms", 3, "error"),
        ("mcp.servers.c.env", 4, "warning"),
        ("mcp.servers.bad id!", 5, "error"),
        ("mcp.servers.twice.command", 6, "error"),
    }
    assert [name for name, server in loaded.servers.items() if server.usable] == ["c"]


def test_the_same_problems_are_told_to_a_program() -> None:
    found = problems_of(
        {
            "servers": {"a b": {"transport": {"type": "stdio", "comand": "x"}}},
            "bundles": {"b": {"serverId": "no", "allowTools": [], "toolsTtlMs": 1}},
            "polcy": {},
            "mcp": {"servers": {"x": {"transport": "stdio", "comand": "y"}}},
        }
    )
    assert set(found) == {
        "servers.a b",
        "servers.a b.transport.comand",
        "servers.a b.transport.command",
        "bundles.b.serverId",
        "bundles.b.allowTools",
        "bundles.b.toolsTtlMs",
        "polcy",
        "mcp.servers.x.comand",
        "mcp.servers.x.command",
    }
    assert found["polcy"].hint == "did you mean `policy`?"
    assert found["mcp.servers.x.comand"].hint == "did you mean `command`?"


@pytest.mark.parametrize(
    "file", ["codex-toolloop.mcp.json", ".codex-toolloop/mcp.json", ".codelia/config.json"]
)
def test_an_invalid_id_of_seed_003_disables_its_entry_and_nothing_runs_under_another(
    machine: Machine, file: str
) -> None:
    entry: dict[str, Any] = {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}}
    servers = {"my server": entry, "x" * 65: entry, "good": entry}
    document = {"mcp": {"servers": servers}} if "codelia" in file else {"servers": servers}
    write(machine.project / file, json.dumps(document))
    loaded = machine.load()
    assert [server_id for server_id, server in loaded.servers.items() if server.usable] == ["good"]
    assert set(loaded.servers) == set(servers)
    assert [problem.message for problem in loaded.problems] == [
        "an id is 1 to 64 letters, digits, `_` or `-`"
    ] * 2


def test_the_rest_of_a_codelia_file_is_that_programs_own(machine: Machine) -> None:
    text = json.dumps({**BELOW_MCP, "model": {"name": "x"}, "policy": "strict"})
    write(
        machine.project / ".codelia" / "config.json", text.replace('"policy"', '"permissions": 1, "policy"')
    )
    assert machine.load().problems == ()


def test_one_entry_in_the_shape_of_seed_000_leaves_the_rest_of_a_file_in_ours(machine: Machine) -> None:
    machine.write_user(
        json.dumps(
            {
                "servers": {"a": NESTED["servers"]["repo"], "b": {"command": "x"}},
                "policy": {"rules": [{"action": "deny", "tool": "rm"}]},
            }
        )
    )
    loaded = machine.load()
    assert loaded.problems == ()
    assert [rule.rule.tool for rule in loaded.rules] == ["rm"]


def test_a_server_of_both_sections_counts_in_neither(machine: Machine) -> None:
    entry = {"transport": "stdio", "command": "x"}
    machine.write_user(json.dumps({"servers": {"a": entry, "b": entry}, "mcp": {"servers": {"a": entry}}}))
    loaded = machine.load()
    assert [problem.json_path for problem in loaded.problems] == ["mcp.servers.a"]
    assert [name for name, server in loaded.servers.items() if server.usable] == ["b"]


def test_a_repeated_policy_is_fatal_and_hides_nothing_else(machine: Machine) -> None:
    machine.write_user(
        """{"policy": {}, "policy": {"approval": "never"},
"servers": {"a": {"comand": "x"}, "b": {"command": "x", "env": {"A": "${NOT_SET_HERE}"}},
"c": {"command": "x", "request_timeout_ms": 1e999}},
"nonsense": 1}"""
    )
    with pytest.raises(ConfigInvalid) as caught:
        machine.load()
    assert {(problem.json_path, problem.line) for problem in caught.value.problems} == {
        ("policy", 1),
        ("policy.approval", 1),
        ("servers.a.comand", 2),
        ("servers.a", 2),
        ("servers.b.env.A", 2),
        ("servers.c.request_timeout_ms", 3),
        ("servers.c.request_timeout_ms", 3),
        ("nonsense", 4),
    }


@pytest.mark.parametrize(
    ("bundle", "named"),
    [
        ({"mode": "direct"}, ["bundles.b.serverId"]),
        ({"server_id": "a", "mode": "direct"}, ["bundles.b.server_id", "bundles.b.serverId"]),
        ({"server": "a"}, ["bundles.b.server", "bundles.b.serverId"]),
        ({"denyTools": ["x"]}, ["bundles.b.serverId"]),
    ],
)
def test_a_bundle_without_its_server_names_the_field_of_seed_000(
    bundle: dict[str, Any], named: list[str]
) -> None:
    nested = {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}}
    found = problems_of({"servers": {"a": nested}, "bundles": {"b": bundle}})
    assert set(found) == set(named)
    assert found["bundles.b.serverId"].message == "is missing"
    for key in set(named) - {"bundles.b.serverId"}:
        assert found[key].hint == "did you mean `serverId`?"


def test_a_bundle_of_our_own_shape_names_our_field() -> None:
    found = problems_of({"servers": {"a": {"command": "x"}}, "bundles": {"b": {"mode": "direct"}}})
    assert [(path, problem.message) for path, problem in found.items()] == [
        ("bundles.b.servers", "is missing")
    ]


def test_a_key_that_is_close_to_none_is_not_said_to_mean_one() -> None:
    found = problems_of({"permissions": {}, "registrations": {}, "polices": {}})
    assert "policy.rules" in (found["permissions"].hint or "")
    assert found["registrations"].hint is None
    assert found["polices"].hint == "did you mean `policy`?"


def test_what_a_repeated_entry_replaced_hides_none_of_its_own_problems(machine: Machine) -> None:
    machine.write_user(
        """{"servers": {
"a": {"comand": "x", "trust": 5},
"a": {"command": "x", "request_timeout_ms": "1"},
"b": {"command": "x", "env": {"A": "${NOT_SET_HERE}"}},
"b": {"url": "ftp://x"},
"b": {"command": "x"},
"c": {"command": "x", "env": {"NAME": 1, "NAME": "k"}},
"ok": {"command": "x"}},
"bundles": {
"m": {"serverz": {}, "servers": {"a": {"deny_tool": []}, "a": {}}},
"m": {"servers": {"ok": {}}}},
"docs": {"domainz": []}, "docs": {}}"""
    )
    loaded = machine.load()
    own = [problem for problem in loaded.problems if "already in line" not in problem.message]
    assert sorted((problem.line or 0, problem.json_path) for problem in own) == [
        (2, "servers.a"),
        (2, "servers.a.comand"),
        (2, "servers.a.trust"),
        (3, "servers.a.request_timeout_ms"),
        (4, "servers.b.env.A"),
        (5, "servers.b.url"),
        (7, "servers.c.env.NAME"),
        (10, "bundles.m.servers.a.deny_tool"),
        (10, "bundles.m.serverz"),
        (12, "docs.domainz"),
    ]
    assert len(loaded.problems) - len(own) == 7
    assert [name for name, server in loaded.servers.items() if server.usable] == ["ok"]
    assert {problem.json_path for problem in loaded.servers["b"].problems} == {
        "servers.b",
        "servers.b.env.A",
        "servers.b.url",
    }


def test_a_repeated_section_does_not_make_the_rest_of_the_file_wrong(machine: Machine) -> None:
    machine.write_user(
        """{"servers": {"a": {"comand": "x"}},
"servers": {"b": {"command": "x"}},
"bundles": {"m": {"servers": {"b": {}}}}}"""
    )
    with pytest.raises(ConfigInvalid) as caught:
        machine.load()
    assert {(problem.json_path, problem.line) for problem in caught.value.problems} == {
        ("servers", 2),
        ("servers.a", 1),
        ("servers.a.comand", 1),
    }


def test_a_file_of_many_repeated_keys_is_read_a_bounded_number_of_times(machine: Machine) -> None:
    entries = ",\n".join(['"a": {"comand": "x"}'] * 2000)
    machine.write_user('{"servers": {' + entries + "}}")
    problems = machine.load().problems
    assert sum("already in line" in problem.message for problem in problems) == 1999
    assert sum(problem.json_path == "servers.a.comand" for problem in problems) > 10


def test_the_time_to_live_of_seed_000_may_be_all_that_a_document_says(machine: Machine) -> None:
    machine.write_user(json.dumps(NESTED))
    machine.env["CODEX_TOOLLOOP_MCP_CONFIG_JSON"] = '{"toolsTtlMs": 7}'
    loaded = machine.load()
    assert loaded.problems == ()
    assert loaded.servers["repo"].config
    assert loaded.servers["repo"].config.tools_ttl_ms == 7


def test_what_stands_below_mcp_by_mistake_is_told_its_place() -> None:
    found = problems_of({"mcp": {"servers": {}, "bundles": {}, "toolsTtlMs": 1, "serverz": {}}})
    assert {path: problem.hint for path, problem in found.items()} == {
        "mcp.bundles": 'it stands at the top level, next to `mcp`: `"bundles": …`',
        "mcp.toolsTtlMs": 'it stands at the top level, next to `mcp`: `"toolsTtlMs": …`',
        "mcp.serverz": "did you mean `servers`?",
    }


@pytest.mark.parametrize("place", ["servers", "mcp", "env"])
def test_a_document_that_holds_itself_is_refused(machine: Machine, place: str) -> None:
    document: dict[str, Any] = {"servers": {"a": {"command": "x"}}}
    document[place] = document
    if place == "env":
        document["servers"]["a"]["env"] = (document.pop("env"), [document])
    with pytest.raises(ConfigInvalid, match="nested more than 64 levels deep"):
        parse_config(document)
    with pytest.raises(ConfigInvalid, match="nested more than 64 levels deep"):
        machine.load(overrides=document)
