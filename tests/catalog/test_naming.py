"""Every tool has a public name of its own, legal everywhere and the same on every machine."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.catalog.naming import Scheme, name_tools, public_name, skeleton
from fairlead.catalog.tools import ToolKey
from fairlead.errors import UnknownTool

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "tool_name_cases.json").read_text(encoding="utf-8")
)
SCHEMES: tuple[Scheme, ...] = ("stable", "readable", "gateway")
LEGAL = {
    "stable": re.compile(r"mcp_[a-zA-Z0-9_-]{1,60}"),
    "readable": re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
    "gateway": re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,44}"),
}

server_ids = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
tool_names = st.one_of(
    st.text(max_size=100),
    st.sampled_from(["search", "Search", "a_b", "b_c", "c", "", ".", "_", "é", "\ud800"]),
)
keys = st.builds(ToolKey, server_ids | st.sampled_from(["a", "a_b", "mcp", "7"]), tool_names)


def keys_of(case: dict[str, Any]) -> list[ToolKey]:
    return [ToolKey(server, tool) for server, tools in case["servers"].items() for tool in tools]


@pytest.mark.requirement("HARD-42", "NEED-7")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expect"])
def test_every_case_gets_distinct_legal_names_that_lead_back(case: dict[str, Any], scheme: Scheme) -> None:
    table = name_tools(keys_of(case), scheme)
    assert len(set(map(str.casefold, table.names.values()))) == len(table) == len(keys_of(case))
    for key, name in table.names.items():
        assert LEGAL[scheme].fullmatch(name)
        assert table[name] == key


@pytest.mark.requirement("HARD-42")
@settings(max_examples=50)
@given(st.lists(keys, max_size=30), st.sampled_from(SCHEMES))
def test_any_names_at_all_become_distinct_and_legal(wanted: list[ToolKey], scheme: Scheme) -> None:
    table = name_tools(wanted, scheme)
    assert set(table.names) == set(wanted)
    assert len({name.casefold() for name in table.keys}) == len(set(wanted))
    assert all(LEGAL[scheme].fullmatch(name) for name in table.keys)
    assert all(table[name] == key for key, name in table.names.items())


@settings(max_examples=50)
@given(st.lists(keys, max_size=20, unique=True), st.sampled_from(SCHEMES), st.randoms())
def test_names_do_not_depend_on_the_order_of_the_tools(
    wanted: list[ToolKey], scheme: Scheme, random: Any
) -> None:
    before = name_tools(wanted, scheme).names
    random.shuffle(wanted)
    assert name_tools(wanted, scheme).names == before


def test_the_library_name_has_the_server_the_tool_and_a_hash() -> None:
    assert public_name(ToolKey("files", "read_file")) == "mcp_files_read_file_4de1cba9"


def test_a_name_is_the_same_in_another_process() -> None:
    code = (
        "from fairlead.catalog.tools import ToolKey; from fairlead.catalog.naming import public_name;"
        "print(public_name(ToolKey('files', 'read file \\u00e9')))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == public_name(ToolKey("files", "read file é"))


def test_the_readable_names_are_plain_where_nothing_is_in_the_way() -> None:
    wanted = [ToolKey("files", "read_file"), ToolKey("files", "repo.readFile"), ToolKey("7z", "list")]
    assert list(name_tools(wanted, "gateway").names.values()) == [
        "files_read_file",
        "files_repo_readFile",
        "_7z_list",
    ]
    assert list(name_tools(wanted, "readable").keys) == [
        "files__read_file",
        "files__repo_readFile",
        "_7z__list",
    ]


@pytest.mark.requirement("HARD-42")
def test_of_two_tools_with_one_name_neither_keeps_it() -> None:
    """Whoever was allowed to call the name must not find another tool behind it."""
    first, second = ToolKey("a_b", "c"), ToolKey("a", "b_c")
    assert name_tools([first], "gateway").names[first] == "a_b_c"
    both = name_tools([first, second], "gateway")
    assert "a_b_c" not in both.keys
    with pytest.raises(UnknownTool):
        both["a_b_c"]


@pytest.mark.requirement("HARD-42")
def test_a_first_party_tool_keeps_its_name_and_the_others_give_way() -> None:
    ours, theirs = ToolKey("repo", "read_file"), ToolKey("repo_read", "file")
    table = name_tools([theirs, ours], "gateway", first_party={ours})
    assert table["repo_read_file"] == ours
    assert table.names[theirs].startswith("repo_read_file_")


@pytest.mark.requirement("HARD-42")
@pytest.mark.parametrize("scheme", ["readable", "gateway"])
def test_no_server_can_call_a_tool_like_one_of_ours(scheme: Scheme) -> None:
    wanted = [ToolKey("mcp", "list_tools"), ToolKey("MCP_list", "tools"), ToolKey("mcp_list", "tools")]
    names = set(name_tools(wanted, scheme, reserved={"MCP_list__tools"}).keys)
    assert all(re.search(r"_[0-9a-f]{8}$", name) for name in names if name.startswith("mcp_"))
    assert "mcp_list_tools" not in {name.casefold() for name in names}


def test_a_reserved_name_is_never_given() -> None:
    key = ToolKey("web", "search")
    assert name_tools([key], "gateway", reserved={"Web_Search"}).names[key] != "web_search"


def test_a_name_that_looks_like_a_hashed_one_does_not_take_its_place() -> None:
    first, second = ToolKey("a_b", "c"), ToolKey("a", "b_c")
    hashed = name_tools([first, second], "gateway").names[first]
    impostor = ToolKey("a", hashed.removeprefix("a_"))
    table = name_tools([first, second, impostor], "gateway")
    assert hashed not in table.keys
    assert len(table.keys) == 3


def test_a_long_name_keeps_something_of_the_server_and_of_the_tool() -> None:
    name = name_tools([ToolKey("s" * 64, "t" * 500)], "gateway").names[ToolKey("s" * 64, "t" * 500)]
    assert len(name) == 45
    assert "sssssss" in name
    assert "ttttttt" in name


def test_a_name_of_a_megabyte_is_no_trouble() -> None:
    huge = [ToolKey("x", "é" * 1_000_000), ToolKey("x", "é" * 1_000_000 + "!")]
    assert len(set(name_tools(huge).names.values())) == 2


@pytest.mark.requirement("HARD-42")
def test_names_that_look_alike_are_reported() -> None:
    plain, hidden, cyrillic = (ToolKey("x", name) for name in ("readFile", "read\u200bFile", "r\u0435adFile"))
    findings = name_tools([plain, hidden, cyrillic, ToolKey("y", "readFile")], "gateway").findings
    assert [(finding.key, finding.message) for finding in findings if finding.key == hidden] == [
        (hidden, "has invisible characters in its name"),
        (hidden, "looks like `x/readFile`"),
        (hidden, "looks like `y/readFile`"),
    ]
    assert any(finding.key == cyrillic and "x/readFile" in finding.message for finding in findings)
    assert not any(finding.key == plain for finding in findings)


@pytest.mark.requirement("HARD-66")
def test_thousands_of_names_that_look_alike_are_not_compared_in_pairs() -> None:
    names = ("".join("a\u0430"[number >> bit & 1] for bit in range(13)) for number in range(5_000))
    findings = name_tools([ToolKey("x", name) for name in names]).findings
    assert 4_000 < len(findings) < 20_000


def test_ordinary_names_are_not_reported() -> None:
    wanted = [ToolKey("a", "search"), ToolKey("b", "search"), ToolKey("a", "Search"), ToolKey("a", "créer")]
    assert not name_tools(wanted).findings
    assert skeleton("CRÉER") == skeleton("creer")


def test_an_unknown_name_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownTool, match="nothing_like_it"):
        name_tools([])["nothing_like_it"]


def test_more_hash_is_added_until_names_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tools of one slug whose hashes begin alike: found by whoever tries four billion names."""
    wanted = [ToolKey("x", "a!"), ToolKey("x", "a?"), ToolKey("x", "a.")]
    hashes = dict(zip(wanted, ("0" * 8 + "a" * 56, "0" * 8 + "b" * 56, "1" * 64), strict=True))
    monkeypatch.setattr("fairlead.catalog.naming._hash", hashes.__getitem__)
    names = sorted(name_tools(wanted).names.values(), key=len)
    assert names[0] == "mcp_x_a_11111111"
    assert names[1:] == ["mcp_x_a_00000000aaaaaaaa", "mcp_x_a_00000000bbbbbbbb"]
    assert all(one != other for one, other in pairwise(names))
