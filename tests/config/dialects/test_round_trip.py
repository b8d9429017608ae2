"""What a format can say survives being written and read again; what it cannot is noted, every bit of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.dialects.dialect import ConfigDialect, Entry
from fairlead.config.dialects.registry import by_name
from fairlead.config.dialects.syntax import dump, load, merge_into
from tests.config.dialects.support import (
    WRITERS,
    any_entries,
    defaults,
    files,
    flat,
    harmless_text,
    headers,
    milliseconds,
    names,
    notes_about,
    own_secrets,
    quick,
    rewritten,
    server_ids,
    some,
    table,
    texts_of,
    tool_names,
    urls,
    variables,
)

pytestmark = pytest.mark.requirement("NEED-25")

Strategies = dict[str, st.SearchStrategy[Any]]

plain = texts_of(harmless_text)
with_variables = texts_of(st.one_of(harmless_text, variables))
with_defaults = texts_of(st.one_of(harmless_text, variables, defaults))
whole_seconds = st.integers(1, 600).map(lambda seconds: seconds * 1000)
scopes = st.lists(names, min_size=1, max_size=3).map(" ".join)
ports = st.integers(1, 65535)
argv = st.lists(
    texts_of(st.one_of(harmless_text, st.just("a; b"), st.just("$HOME"))), min_size=1, max_size=3
).filter(lambda words: "=" not in words[0])


def entries(
    text: st.SearchStrategy[str], common: Strategies, local: Strategies, remote: Strategies, *always: str
) -> st.SearchStrategy[Entry]:
    stdio: Strategies = {
        "command": text,
        "args": st.lists(text, min_size=1, max_size=3),
        "env": table(names, text),
        **local,
    }
    http: Strategies = {"url": text, "headers": table(headers, text), **remote}
    return st.one_of(some(common | stdio, "command", *always), some(common | http, "url", *always))


def login(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Entry]:
    return st.fixed_dictionaries({}, optional=fields).filter(bool)


codex_env = st.dictionaries(names, plain, max_size=2).flatmap(
    lambda literal: st.lists(names, min_size=1, max_size=2).map(
        lambda passed: literal | {name: f"${{{name}}}" for name in passed}
    )
)
codex_headers = st.fixed_dictionaries(
    {"X-Literal": plain},
    optional={"X-From-Env": names.map("${{{}}}".format), "Authorization": names.map("Bearer ${{{}}}".format)},
)
codex_modes = st.sampled_from(["allow", "ask", "auto"])
sse = {"transport": st.just("sse")}

EXPRESSIBLE: dict[str, st.SearchStrategy[Entry]] = {
    "toolloop": entries(
        with_defaults,
        {"trust": st.sampled_from(["trusted", "untrusted"])},
        {"cwd": with_defaults},
        {"auth_provider_id": plain, **sse},
        "trust",
    ),
    "claude": entries(
        with_defaults,
        {"request_timeout_ms": st.integers(1000, 600_000)},
        {},
        {"headers_helper": argv, "oauth": login(client_id=plain, callback_port=ports, scope=scopes), **sse},
    ),
    "claude-desktop": entries(plain, {}, {}, {}).filter(lambda entry: "command" in entry),
    "cursor": entries(
        with_variables,
        {},
        {"cwd": with_variables},
        {"oauth": login(client_id=with_variables, client_secret=with_variables, scope=scopes), **sse},
    ),
    "vscode": entries(
        texts_of(st.one_of(harmless_text, variables, own_secrets)),
        {},
        {"cwd": with_variables},
        {"oauth": login(client_id=with_variables), **sse},
    ),
    "codex": entries(
        plain,
        {
            "enabled": st.booleans(),
            "required": st.booleans(),
            "startup_timeout_ms": milliseconds,
            "request_timeout_ms": milliseconds,
            "allow_tools": tool_names,
            "deny_tools": tool_names,
            "approval": st.one_of(
                codex_modes,
                some(
                    {
                        "default": codex_modes,
                        "tools": st.dictionaries(names, codex_modes, min_size=1, max_size=2),
                    },
                    "tools",
                ),
            ),
        },
        {"cwd": plain, "env": codex_env},
        {
            "headers": codex_headers,
            "headers_helper": argv,
            "oauth": login(client_id=plain, callback_port=ports, scope=scopes),
        },
    ),
    "opencode": entries(
        texts_of(st.one_of(harmless_text, variables, files)),
        {"enabled": st.booleans(), "request_timeout_ms": milliseconds},
        {"cwd": with_variables},
        {
            "oauth": st.one_of(
                st.just(False),
                login(
                    client_id=with_variables, client_secret=with_variables, scope=scopes, callback_port=ports
                ),
            )
        },
    ),
    "gemini": entries(
        with_defaults,
        {
            "enabled": st.just(False),
            "request_timeout_ms": milliseconds,
            "allow_tools": tool_names,
            "deny_tools": tool_names,
            "description": plain,
        },
        {"cwd": with_defaults},
        {
            "oauth": login(
                client_id=with_defaults,
                client_secret=with_defaults,
                authorization_url=urls,
                token_url=urls,
                registration_url=urls,
                scope=scopes,
            ),
            **sse,
        },
    ),
}


def test_every_format_that_writes_has_entries_it_can_say() -> None:
    assert set(EXPRESSIBLE) == {dialect.name for dialect in WRITERS}


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_what_a_format_can_say_survives_being_written_and_read(name: str) -> None:
    @quick
    @given(server_ids, EXPRESSIBLE[name])
    def survives(server_id: str, entry: Entry) -> None:
        imported, notes = rewritten(by_name(name), {server_id: entry})
        assert notes == []
        assert imported.servers == {server_id: entry}

    survives()


@pytest.mark.parametrize("dialect", WRITERS, ids=lambda dialect: dialect.name)
def test_every_field_survives_or_is_noted_and_none_is_made_up(dialect: ConfigDialect) -> None:
    @quick
    @given(any_entries())
    def nothing_is_lost_in_silence(entry: Entry) -> None:
        imported, notes = rewritten(dialect, {"it": entry})
        noted = notes_about(notes, "it")
        if "it" not in imported.servers:
            assert noted, "a server vanished"
            return
        before, after = flat(entry), flat(imported.servers["it"])
        changed = {field for field, value in before.items() if after.get(field) != value}
        silent = {field for field in changed if not any(field.startswith(known) for known in noted)}
        assert silent <= {"transport", "enabled"}
        assert entry.get("transport") != "sse" or "transport" in noted or after.get("transport") == "sse"
        assert entry.get("enabled", True) or after.get("enabled") is False
        assert set(after) - set(before) <= {"trust"}

    nothing_is_lost_in_silence()


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_entries_are_merged_into_a_file_that_already_has_some(name: str) -> None:
    dialect = by_name(name)
    write = dialect.write
    assert write is not None

    @quick
    @given(EXPRESSIBLE[name], EXPRESSIBLE[name])
    def merges(present: Entry, added: Entry) -> None:
        servers = {"present": present}
        text = dump(write(servers).document, dialect.syntax)
        merged = merge_into(text, write({"added": added}).document, dialect.syntax)
        data = load(merged, dialect.syntax)
        for section, found in write(servers | {"added": added}).document.items():
            if isinstance(found, dict):
                assert data[section] == found
            else:
                assert all(item in data[section] for item in found)

    merges()
