"""The snapshot over all servers: named, ordered, and made anew only where something changed."""

import json
from typing import Any

import pytest

from fairlead.catalog.catalog import Catalog, Hidden, Offering
from fairlead.catalog.entries import RejectedTool, ToolEntry, ToolKey
from fairlead.catalog.search import search
from fairlead.catalog.tokens import estimate, exact


def entry(server: str, name: str, **definition: Any) -> ToolEntry:
    definition = {"name": name, "inputSchema": {"type": "object"}, **definition}
    description = definition.get("description")
    return ToolEntry(
        key=ToolKey(server, name), definition=json.dumps(definition).encode(), description=description
    )


def offering(server: str, *names: str, **rest: Any) -> Offering:
    return Offering(server_id=server, tools=tuple(entry(server, name) for name in names), **rest)


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
    not_an_object = entry("s", "text", inputSchema={"type": "string"})
    server = Offering(
        server_id="s",
        tools=(
            entry("s", "fine"),
            entry("s", "outside", inputSchema=outside),
            not_an_object,
            entry("s", "no"),
        ),
        rejected=(RejectedTool(name="broken", reason="no name"),),
        denied={"no": Hidden(absence="denied", reason="it is in deny_tools", origin="fairlead.json:3")},
    )
    catalog = Catalog([server])
    assert [tool.key.tool for tool in catalog.tools] == ["fine"]
    assert {key.tool: hidden.absence for key, hidden in catalog.hidden.items()} == {
        "broken": "rejected",
        "outside": "rejected",
        "text": "rejected",
        "no": "denied",
    }
    assert search(catalog.index, "outside") == ()


@pytest.mark.parametrize("spelled", ['"$ref"', '"\\u0024ref"'])
def test_a_reference_to_elsewhere_is_seen_however_it_is_spelled(spelled: str) -> None:
    text = f'{{"name": "t", "inputSchema": {{"type": "object", "not": {{{spelled}: "http://evil.test/"}}}}}}'
    sly = ToolEntry(key=ToolKey("s", "t"), definition=text.encode())
    catalog = Catalog([Offering(server_id="s", tools=(sly,))])
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
    catalog = Catalog([Offering(server_id="s", tools=(odd,))])
    assert [hit.key.tool for hit in search(catalog.index, "odd one")] == ["odd_one"]


def test_the_cost_of_a_text_is_near_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate("") == 0
    assert estimate("a" * 44) == 10
    assert estimate("ä" * 22) == estimate("a" * 44) == estimate(b"a" * 44)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    exact.cache_clear()
    assert exact() is None
