"""The snapshot over all servers: named, ordered, and made anew only where something changed."""

import gc
import json
from typing import Any

import pytest

from fairlead.catalog.catalog import Catalog, CatalogPart, HiddenTool
from fairlead.catalog.definitions import entry_digests
from fairlead.catalog.search.search import search
from fairlead.catalog.signatures import estimate, exact
from fairlead.catalog.tools import RejectedTool, ToolEntry, ToolKey, find_tool


def entry(server: str, name: str, **definition: Any) -> ToolEntry:
    definition = {"name": name, "inputSchema": {"type": "object"}, **definition}
    description = definition.get("description")
    return ToolEntry(
        key=ToolKey(server, name), definition=json.dumps(definition).encode(), description=description
    )


def offering(server: str, *names: str, **rest: Any) -> CatalogPart:
    return CatalogPart(server_id=server, tools=tuple(entry(server, name) for name in names), **rest)


def test_tools_come_in_one_order_under_names_that_lead_back() -> None:
    one, two = offering("b", "z", "a"), offering("a", "search")
    catalog, again = Catalog([one, two]), Catalog([two, one])
    assert [str(tool.key) for tool in catalog.tools] == ["a/search", "b/a", "b/z"]
    assert [tool.name for tool in catalog.tools] == [tool.name for tool in again.tools]
    for tool in catalog.tools:
        assert catalog[tool.name] is tool
        assert tool.name in catalog
        assert catalog.of(tool.key) is tool
    assert catalog.get("nothing") is None
    assert len(catalog) == 3


def test_what_is_not_offered_is_there_with_its_reason() -> None:
    outside = {"type": "object", "properties": {"a": {"$ref": "https://evil.test/schema.json"}}}
    too_large = entry("s", "large", inputSchema={"type": "object", "enum": [1] * 20_001})
    server = CatalogPart(
        server_id="s",
        tools=(
            entry("s", "fine"),
            entry("s", "outside", inputSchema=outside),
            too_large,
            entry("s", "no"),
        ),
        rejected=(RejectedTool(name="broken", reason="no name"),),
        denied={"no": HiddenTool(absence="denied", reason="listed in deny_tools", origin="fairlead.json:3")},
    )
    catalog = Catalog([server])
    assert [tool.key.tool for tool in catalog.tools] == ["fine"]
    assert {key.tool: hidden.absence for key, hidden in catalog.hidden.items()} == {
        "broken": "rejected",
        "outside": "rejected",
        "large": "rejected",
        "no": "denied",
    }
    assert search(catalog.index, "outside") == ()


@pytest.mark.parametrize("spelled", ['"$ref"', '"\\u0024ref"'])
def test_a_reference_to_elsewhere_is_seen_however_it_is_spelled(spelled: str) -> None:
    text = f'{{"name": "t", "inputSchema": {{"type": "object", "not": {{{spelled}: "http://evil.test/"}}}}}}'
    sly = ToolEntry(key=ToolKey("s", "t"), definition=text.encode())
    catalog = Catalog([CatalogPart(server_id="s", tools=(sly,))])
    assert catalog.tools == ()
    assert catalog.hidden[sly.key].absence == "rejected"


def test_the_index_is_carried_over_and_only_what_changed_is_read_again() -> None:
    kept, old = offering("kept", "read_file"), offering("other", "send_mail")
    before = Catalog([kept, old])
    assert [hit.key.tool for hit in search(before.index, "send mail")] == ["send_mail"]
    after = Catalog([kept, offering("new", "draw_map")], before=before)
    assert search(after.index, "send mail") == ()
    assert [hit.key.tool for hit in search(after.index, "draw map")] == ["draw_map"]
    assert [hit.key.tool for hit in search(after.index, "read file")] == ["read_file"]


def test_meaning_finds_what_is_said_in_other_words_and_is_carried_over_too() -> None:
    mail, files = offering("m", "send_email"), offering("f", "delete_file")
    before = Catalog([mail, files])
    assert before.find("transmit correspondence") == ()
    assert [hit.key.tool for hit in before.find("erase document", by_meaning=True)][:1] == ["delete_file"]
    after = Catalog([mail, offering("g", "draw_chart")], before=before)
    assert [hit.key.tool for hit in after.find("plot graph", by_meaning=True)][:1] == ["draw_chart"]
    assert "delete_file" not in [hit.key.tool for hit in after.find("erase document", by_meaning=True)]


def test_a_schema_that_nobody_can_read_does_not_keep_its_tool_from_being_found() -> None:
    odd = ToolEntry(key=ToolKey("s", "odd_one"), definition=b'{"name": "odd_one", "inputSchema": [1]}')
    catalog = Catalog([CatalogPart(server_id="s", tools=(odd,))])
    assert [hit.key.tool for hit in search(catalog.index, "odd one")] == ["odd_one"]


def test_the_cost_of_a_text_is_near_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate("") == 0
    assert estimate("a" * 44) == 10
    assert estimate("ä" * 22) == estimate("a" * 44) == estimate(b"a" * 44)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    exact.cache_clear()
    assert exact() is None


# Hidden text


def plain_and_escaped(definition: dict[str, Any]) -> list[bytes]:
    """The definition as a server may write it."""
    return [json.dumps(definition, ensure_ascii=escaped).encode() for escaped in (False, True)]


def offered(definition: bytes, name: str = "t") -> Catalog:
    said = json.loads(definition)
    only = ToolEntry(
        key=ToolKey("s", name),
        definition=definition,
        title=said.get("title"),
        description=said.get("description"),
    )
    return Catalog([CatalogPart(server_id="s", tools=(only,))])


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize(
    "words",
    [
        "Plain.",
        "Zwei Wörter, 中文, क्\u200dष, 👩🏽\u200d🚀",
        'a \\b c \\u200b "\n\t',
    ],
)
def test_what_hides_nothing_stays_the_very_same_object(words: str) -> None:
    schema = {"type": "object", "properties": {"a": {"description": words, "default": words}}}
    for raw in plain_and_escaped({"name": "t", "description": words, "inputSchema": schema}):
        catalog = offered(raw)
        (tool,) = catalog.tools
        assert tool.entry is catalog.offerings["s"].tools[0]
        assert tool.entry.definition is raw
        assert not catalog.findings


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize("hidden", ["\u200b", "\x1b[8m", "\r", "\U000e0041", "\u202e", "\x07", "\ue000"])
def test_texts_are_cleaned_wherever_they_stand_and_leave_a_finding(hidden: str) -> None:
    text = f"A{hidden}B"
    argument = {"type": "string", "description": text, "x-hint": [{"deep": text}], "$comment": text}
    schema = {"type": "object", "title": text, "properties": {"a": argument}, "required": ["a"]}
    definition = {
        "name": "t",
        "title": text,
        "description": text,
        "inputSchema": schema,
        "outputSchema": {"type": "object", "description": text},
        "annotations": {"title": text, "readOnlyHint": True},
        "_meta": {"hint": text, f"odd{hidden}": 1},
    }
    for raw in plain_and_escaped(definition):
        catalog = offered(raw)
        (tool,) = catalog.tools
        shown = "A\nB" if hidden == "\r" else "AB"
        expected = json.loads(json.dumps(definition).replace(json.dumps(text), json.dumps(shown)))
        del expected["_meta"][f"odd{hidden}"]
        assert tool.entry.read() == expected
        assert (tool.entry.title, tool.entry.description) == (shown, shown)
        assert catalog.offerings["s"].tools[0].definition is raw
        places = {finding.where for finding in catalog.findings[tool.key]}
        assert {"description", "inputSchema.properties.a.x-hint[0].deep", "annotations.title"} <= places


@pytest.mark.requirement("HARD-41")
def test_of_values_those_are_left_out_that_hide_something() -> None:
    argument = {
        "enum": ["a", "b\u200b", 3],
        "default": "b\u200b",
        "examples": ["b\u200b"],
        "pattern": "[\u200b]",
        "const": "a",
    }
    nested: dict[str, Any] = {"default": {"properties": ["\x00"]}, "enum": []}
    properties = {"a": argument, "default": nested, "enum": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    (tool,) = offered(json.dumps({"name": "t", "inputSchema": schema}).encode()).tools
    assert tool.entry.read()["inputSchema"] == {
        "type": "object",
        "properties": {
            "a": {"enum": ["a", 3], "const": "a"},
            "default": {"enum": []},
            "enum": {"type": "string"},
        },
        "required": ["a"],
    }


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a\u200b": {}}}, "inputSchema.properties"),
        ({"properties": {"a": {"properties": {"\x1b[8m": {}}}}}, "inputSchema.properties.a.properties"),
        ({"$defs": {"a\u200b": {}}}, "inputSchema.$defs"),
        ({"patternProperties": {"\u202e": {}}}, "inputSchema.patternProperties"),
        ({"required": ["a\u200b"]}, "inputSchema.required"),
        ({"dependentRequired": {"a": ["b\u200b"]}}, "inputSchema.dependentRequired"),
        ({"properties": {"a": {"enum": ["\u200b"]}}}, "inputSchema.properties.a.enum"),
        ({"properties": {"a": {"anyOf": [{"const": "\u200b"}]}}}, "inputSchema.properties.a.anyOf[0].const"),
    ],
)
def test_a_tool_that_nobody_could_call_without_what_is_hidden_is_rejected(
    schema: dict[str, Any], place: str
) -> None:
    catalog = offered(json.dumps({"name": "t", "inputSchema": {"type": "object", **schema}}).encode())
    assert catalog.tools == ()
    (hidden,) = catalog.hidden.values()
    assert hidden.absence == "rejected"
    assert hidden.reason.startswith(f"{place}: ")
    assert catalog.findings


@pytest.mark.requirement("HARD-41")
def test_names_that_only_results_have_are_no_reason_to_reject_a_tool() -> None:
    output = {"type": "object", "properties": {"a\u200b": {}, "b": {"const": "\u200b"}}}
    definition = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output}
    (tool,) = offered(json.dumps(definition).encode()).tools
    assert tool.entry.read()["outputSchema"] == {"type": "object", "properties": {"b": {}}}


@pytest.mark.requirement("HARD-41")
def test_nothing_becomes_a_keyword_by_being_cleaned() -> None:
    sly = {"type": "object", "$\u200bref": "https://evil.test/", "ty\u200bpe": "string"}
    (tool,) = offered(json.dumps({"name": "t", "inputSchema": sly}).encode()).tools
    assert tool.entry.read()["inputSchema"] == {"type": "object"}
    sly = {"type": "object", "not": {"$ref": "https\u200b://evil.test/"}}
    catalog = offered(json.dumps({"name": "t", "inputSchema": sly}).encode())
    assert catalog.tools == ()
    assert "\u200b" not in next(iter(catalog.hidden.values())).reason


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize("bad", [rb'"\ud800"', b'"\xff"', b"[" * 5000 + rb'"\u200b"' + b"]" * 5000])
def test_what_cannot_be_read_as_text_is_rejected(bad: bytes) -> None:
    raw = b'{"name": "t", "inputSchema": {"type": "object"}, "_meta": {"a": ' + bad + b"}}"
    only = ToolEntry(key=ToolKey("s", "t"), definition=raw)
    catalog = Catalog([CatalogPart(server_id="s", tools=(only,))])
    assert catalog.tools == ()
    assert catalog.hidden[only.key].reason == "its definition cannot be parsed"


@pytest.mark.requirement("HARD-41")
def test_a_tool_is_found_by_what_is_left_of_its_name() -> None:
    hiding, plain = entry("s", "send\u200b_mail"), entry("s", "draw_map")
    catalog = Catalog([CatalogPart(server_id="s", tools=(hiding, plain))])
    assert [hit.key.tool for hit in catalog.find("send_mail", limit=1)] == ["send\u200b_mail"]
    assert catalog.display_name(hiding.key) == "s.send_mail"
    assert catalog.find_tool("s.send_mail") is catalog.of(hiding.key)
    assert catalog.find_tool("s.draw_map") is catalog.of(plain.key)
    assert catalog.find_tool("s.nothing") is None


@pytest.mark.requirement("HARD-41")
def test_a_name_that_a_hidden_tool_has_leads_to_no_other() -> None:
    hiding, denied = entry("s", "read\u200bFile"), entry("s", "readFile")
    no = HiddenTool(absence="denied", reason="listed in deny_tools")
    catalog = Catalog([CatalogPart(server_id="s", tools=(hiding, denied), denied={"readFile": no})])
    (tool,) = catalog.tools
    assert catalog.find_tool("s.readFile") is None
    assert catalog.display_name(hiding.key) == tool.name
    assert catalog.find_tool(tool.name) is tool


@pytest.mark.requirement("HARD-41")
def test_a_person_names_a_tool_as_it_is_or_as_only_that_one_is_shown() -> None:
    one, other, third = entry("s", "a\u200b"), entry("s", "\u200ba"), entry("s", "b\u200b")
    assert find_tool("b", (one, other, third)) is third
    assert find_tool("a\u200b", (one, other)) is one
    assert find_tool("a", (one, other)) is None


@pytest.mark.requirement("HARD-66")
def test_little_of_each_tool_is_left_for_the_garbage_collector_to_look_at() -> None:
    catalog = Catalog([offering("large", *(f"tool_{number}" for number in range(50)))])
    assert search(catalog.index, "tool_7")
    for tool in catalog.tools:
        digests = entry_digests(tool.entry)
        untracked = (tool, tool.key, digests, catalog.index.tools[0])
        assert not any(map(gc.is_tracked, untracked))


def test_a_catalog_that_is_dropped_takes_all_its_tools_with_it() -> None:
    catalog = Catalog([offering("dropped", *(f"tool_{number}" for number in range(50)))])
    catalog = Catalog([offering("dropped", "tool_0", "tool_1")], before=catalog)
    assert search(catalog.index, "tool_1")
    assert all(entry_digests(tool.entry).strict for tool in catalog.tools)

    def left() -> list[ToolEntry]:
        return [
            found
            for found in gc.get_objects()
            if isinstance(found, ToolEntry) and found.key.server_id == "dropped"
        ]

    assert left()
    del catalog
    gc.collect()
    assert left() == []
