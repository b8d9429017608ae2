"""Requests and notifications of servers as they really come: repaired to what is valid, or dropped."""

from typing import Any

import pytest
from mcp_types import DiscoverResult, InitializeResult
from mcp_types.methods import parse_server_notification, parse_server_request

from fairlead.connection.server_messages import (
    DEFAULT_MAX_TOKENS,
    read_number,
    repair_handshake,
    repair_notification,
    repair_request,
)
from fairlead.connection.transport.messages import progress_of
from fairlead.host.elicitation.form_schema import FormRefused, read_form

pytestmark = pytest.mark.requirement("HARD-87")

VERSIONS = ("2025-06-18", "2025-11-25")
UPDATED = "notifications/resources/updated"
LOG = "notifications/message"
PROGRESS = "notifications/progress"
TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("params", "level", "data"),
    [
        ({"level": "info", "data": "x"}, "info", "x"),
        ({"level": "warn", "data": "x"}, "warning", "x"),
        ({"level": "WARNING", "data": "x"}, "warning", "x"),
        ({"level": " Error ", "data": "x"}, "error", "x"),
        ({"level": "trace", "data": "x"}, "debug", "x"),
        ({"level": "fatal", "data": "x"}, "critical", "x"),
        ({"level": "strange", "data": "x"}, "info", "x"),
        ({"level": None, "data": "x"}, "info", "x"),
        ({"level": 30, "data": "x"}, "warning", "x"),
        ({"level": 99, "data": "x"}, "critical", "x"),
        ({"data": "x"}, "info", "x"),
        ({"level": "error", "message": "x"}, "error", "x"),
        ({"level": "error", "msg": {"a": 1}}, "error", {"a": 1}),
        ({"level": "error", "event": "e", "n": 1}, "error", {"event": "e", "n": 1}),
        ({"level": "error", "data": None}, "error", None),
        ({"level": "error", "data": "x", "logger": 5, "_meta": None}, "error", "x"),
    ],
)
def test_a_log_message_arrives_whatever_its_level_and_form(
    version: str, params: dict[str, Any], level: str, data: object
) -> None:
    parsed: Any = parse_server_notification(LOG, version, repair_notification(LOG, params))
    assert (parsed.params.level, parsed.params.data) == (level, data)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (LOG, {}),
        (LOG, None),
        (LOG, {"level": "error", "logger": "x"}),
        (UPDATED, {}),
        (UPDATED, {"uri": None}),
        (UPDATED, {"uri": ""}),
        (UPDATED, {"uri": ["x://r"]}),
        (PROGRESS, {"progress": 1}),
        (PROGRESS, {"progressToken": 1}),
        (PROGRESS, {"progressToken": 1, "progress": "much"}),
        (PROGRESS, {"progressToken": None, "progress": 1}),
        (PROGRESS, {"progressToken": 1, "progress": True}),
        ("notifications/elicitation/complete", {}),
    ],
)
def test_a_notification_that_says_nothing_is_dropped(method: str, params: dict[str, Any] | None) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        repair_notification(method, params)


@pytest.mark.parametrize(
    ("progress", "total", "expected"),
    [
        (1, 2, (1.0, 2.0)),
        ("1", "2", (1.0, 2.0)),
        (1.5, None, (1.5, None)),
        (1, True, (1.0, None)),
        (1, "all", (1.0, None)),
        (1, 10**400, (1.0, None)),
    ],
)
def test_progress_is_read_in_numbers_and_texts(progress: Any, total: Any, expected: object) -> None:
    params = {"progressToken": 7, "progress": progress, "total": total, "message": 5}
    found = progress_of(params)
    assert found is not None
    token, report = found
    assert (token, (report.progress, report.total)) == (7, expected)
    parsed: Any = parse_server_notification(PROGRESS, "2025-11-25", repair_notification(PROGRESS, params))
    assert (parsed.params.progress, parsed.params.total) == expected


def test_a_progress_token_that_was_made_a_fraction_is_the_same_token() -> None:
    found = progress_of({"progressToken": 7.0, "progress": 1})
    assert found is not None
    assert found[0] == 7
    assert progress_of({"progressToken": 7, "progress": 10**400}) is None
    assert read_number("nan") is None


def test_notifications_of_changed_lists_take_any_meta() -> None:
    odd: list[Any] = [None, 5, [], "x"]
    for meta in odd:
        params = repair_notification("notifications/tools/list_changed", {"_meta": meta})
        parse_server_notification("notifications/tools/list_changed", "2025-11-25", params)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": TEXT}],
        [{"role": "user", "content": "hi"}],
        [{"content": "hi"}],
        [{"role": "system", "content": TEXT}],
        ["hi"],
        "hi",
        {"role": "user", "content": TEXT},
        [{"role": "user", "content": [TEXT]}],
        [{"role": "user", "content": [TEXT, "more"]}],
        [{"role": "user", "content": None, "text": "hi"}, {"role": "user", "text": "hi"}],
        [{"role": "user", "content": {"type": "resource", "resource": {"uri": "x://r", "text": "hi"}}}],
        [{"role": "user", "content": {"type": "text", "text": "hi", "annotations": {"priority": 9}}}],
    ],
)
def test_a_request_for_sampling_is_repaired(version: str, messages: Any) -> None:
    request = repair_request("sampling/createMessage", {"messages": messages, "maxTokens": 5})
    parsed: Any = parse_server_request("sampling/createMessage", version, request)
    assert "hi" in parsed.params.model_dump_json()
    assert parsed.params.max_tokens == 5


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        ({"maxTokens": "20"}, {"max_tokens": 20}),
        ({"maxTokens": 20.5}, {"max_tokens": 20}),
        ({"maxTokens": -1}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"temperature": "0.5"}, {"temperature": 0.5}),
        ({"temperature": "hot"}, {"temperature": None}),
        ({"stopSequences": "end"}, {"stop_sequences": ["end"]}),
        ({"stopSequences": [5]}, {"stop_sequences": None}),
        ({"systemPrompt": 5}, {"system_prompt": None}),
        ({"includeContext": "everything"}, {"include_context": None}),
        ({"metadata": None, "_meta": None, "modelPreferences": None}, {"metadata": None}),
        ({"modelPreferences": {"hints": ["small"], "costPriority": 7}}, {}),
    ],
)
def test_options_of_sampling_are_repaired_or_left_out(more: dict[str, Any], expected: dict[str, Any]) -> None:
    request = repair_request(
        "sampling/createMessage", {"messages": [{"role": "user", "content": TEXT}], **more}
    )
    parsed: Any = parse_server_request("sampling/createMessage", "2025-11-25", request)
    assert {name: getattr(parsed.params, name) for name in expected} == expected


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "T", "default": None}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "params",
    [
        {"message": "Who?"},
        {"message": "Who?", "requestedSchema": None},
        {"requestedSchema": {"type": "object", "properties": {}}},
        {"message": 5, "requestedSchema": {"properties": {"a": {"type": "string"}}}},
        {"message": "Who?", "mode": None, "requestedSchema": {"type": "object", "properties": None}},
        {"message": "Who?", "mode": "modal", "requestedSchema": {"type": "object"}},
        {"message": "Who?", "requestedSchema": {"properties": {"a": OPTIONAL}, "required": None}},
        {"message": "Who?", "requestedSchema": {"properties": {"a": {"type": ["integer", "null"]}}}},
        {"message": "Who?", "requestedSchema": {"properties": {"a": {"title": "A"}}, "required": "a"}},
        {"message": "Who?", "requestedSchema": {"properties": {"a": {"enum": ["x", "y"]}}}},
        {"message": "Who?", "requestedSchema": {"properties": {"a": {"type": "string", "title": None}}}},
        {"message": "Who?", "_meta": None, "requestedSchema": {"properties": {"a": {"type": "boolean"}}}},
    ],
)
def test_an_elicitation_is_repaired_to_a_form_that_can_be_shown(version: str, params: dict[str, Any]) -> None:
    request = repair_request("elicitation/create", params)
    parsed: Any = parse_server_request("elicitation/create", version, request)
    form = read_form(parsed.params.requested_schema)
    assert not isinstance(form, FormRefused), form


def test_an_elicitation_with_a_url_and_no_form_is_one_for_a_page() -> None:
    request = repair_request("elicitation/create", {"message": "Log in", "url": "https://e.x/"})
    parsed: Any = parse_server_request("elicitation/create", "2025-11-25", request)
    assert parsed.params.mode == "url"
    assert parsed.params.elicitation_id


def test_what_cannot_be_told_is_left_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object"}}}
    request = repair_request("elicitation/create", {"message": "Who?", "requestedSchema": schema})
    assert request is not None
    assert request["requestedSchema"] == schema
    assert repair_request("roots/list", None) is None


SOUND_INFO = {"name": "x", "version": "1"}


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": 7},
        {"instructions": ["a"]},
        {"instructions": None},
        {"_meta": None},
        {"_meta": "x"},
        {"serverInfo": None},
        {"serverInfo": "x"},
        {"serverInfo": {}},
        {"serverInfo": {"name": "x"}},
        {"serverInfo": {"version": "1"}},
        {"serverInfo": {"name": 1, "version": 1.5}},
        {"serverInfo": {"name": None, "version": {}}},
        {"serverInfo": {**SOUND_INFO, "icons": [{"src": 5}, {"src": "a:b", "sizes": 3, "theme": "red"}]}},
        {"serverInfo": {**SOUND_INFO, "icons": "a:b"}},
        {"serverInfo": {**SOUND_INFO, "title": 1, "websiteUrl": {}, "description": []}},
        {"capabilities": {"tools": True}},
        {"capabilities": {"tools": []}},
        {"capabilities": {"tools": "yes"}},
        {"capabilities": {"tools": {"listChanged": "maybe"}}},
        {"capabilities": {"tools": {"listChanged": {}}}},
        {"capabilities": {"tools": {}, "experimental": {"x": True, "y": None, "z": {"a": 1}}}},
        {"capabilities": {"tools": {}, "experimental": []}},
        {"capabilities": {"tools": {}, "extensions": {"x": 1}}},
        {"capabilities": {"tools": {}, "tasks": True}},
        {"capabilities": {"tools": {}, "tasks": {"list": True, "requests": {"tools": {"call": True}}}}},
        {"capabilities": {"tools": {}, "resources": {"subscribe": 5}, "prompts": None, "logging": True}},
        {"ttlMs": "x", "cacheScope": 5, "resultType": 1},
        {"ttlMs": -1},
    ],
)
def test_one_bad_field_in_the_handshake_costs_only_itself(fields: dict[str, Any]) -> None:
    said: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": SOUND_INFO, **fields}
    old = repair_handshake({"protocolVersion": "2025-11-25", **said})
    new = repair_handshake({"supportedVersions": ["2026-07-28"], **said})
    for result in (InitializeResult.model_validate(old), DiscoverResult.model_validate(new)):
        assert result.capabilities.tools is not None


def test_what_is_declared_in_a_handshake_stays_declared() -> None:
    capabilities: dict[str, Any] = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": "true", "listChanged": False},
        "prompts": False,
        "tasks": {"requests": {"tools": {"call": {}}}},
        "experimental": {"x": {"deep": [1]}, "y": True},
    }
    said = repair_handshake({"protocolVersion": "2025-11-25", "capabilities": capabilities})
    assert said["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": False},
        "tasks": {"requests": {"tools": {"call": {}}}},
        "experimental": {"x": {"deep": [1]}, "y": {}},
    }


@pytest.mark.parametrize("capabilities", [None, True, [], "tools"])
def test_capabilities_that_are_no_object_declare_nothing(capabilities: object) -> None:
    assert repair_handshake({"capabilities": capabilities}) == {"capabilities": {}}
