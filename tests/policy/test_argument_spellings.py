"""Rules on arguments against spellings that shells, glob libraries and URL handlers read."""

import json
import time
from typing import Any

import pytest

from tests.policy.test_arguments import ETC, LOCAL, REMOTE, allows, narrowing

SPELLINGS: list[Any] = [
    '/"etc"/passwd',
    "/e''tc/passwd",
    "\"/et\"'c/passwd'",
    "/+(etc)/passwd",
    "/@(etc|tmp)/passwd",
    "/!(tmp)/passwd",
    "/?(e)tc/passwd",
    "/e@(t)c/passwd",
    "jar:file:///etc/x.jar!/a",
    "blob:file:///etc/passwd",
    "URL:file:///etc/passwd",
    "git+file:///etc/passwd",
    "sqlite:////etc/passwd",
    "unix:/etc/passwd",
    "file://[::1]/etc/passwd",
    "file://me@localhost/etc/passwd",
    "file://0x7f.1/etc/passwd",
    "file://///etc/passwd",
    "/tmp/.%2e/etc/passwd",
    "/tmp/%c0%ae%c0%ae/etc/passwd",
    "%u002fetc%u002fpasswd",
    "\u29f8etc\u29f8passwd",
    "/tmp/\u2025/etc/passwd",
    "\\\\?\\etc\\passwd",
    "/proc/0001/root/etc/passwd",
    "/proc/net/../root/etc/passwd",
    "$'\\x2fetc\\x2fpasswd'",
    "${X:-/etc}/passwd",
    "![x](file:///etc/passwd)",
    "<!ENTITY a SYSTEM 'file:///etc/passwd'>",
    "a=1&path=%2Fetc%2Fpasswd",
    "- /etc/passwd\n- b",
    "a\u2028/etc/passwd",
    "data:text/plain;base64,L2V0Yy9wYXNzd2Q=",
    '"\\u002fetc\\u002fpasswd"',
    json.dumps(json.dumps("/etc/passwd")),
    {"x": {"file:///etc/passwd": []}},
    {"scheme": "file", "path": "/etc/passwd"},
    "php://filter/resource=/etc/passwd",
    "php://filter/read=string.rot13/resource=%252fetc%252fpasswd",
    "php://filter/resource=file:///etc/passwd",
    "https://example.com/fetch?url=/etc/passwd",
    "https://example.com/fetch?url=file%253A%252F%252F%252Fetc%252Fpasswd",
    "https://example.com/fetch?path=../../../../etc/passwd",
    "https://example.com/x#/etc/passwd",
    "vscode://open?file=/etc/passwd",
    "glob:///e*/passwd",
    "cat /e*/passwd",
    "--file=/{etc,tmp}/passwd",
    "ftp://127.0.0.2/etc/passwd",
    "ftp://0/etc/passwd",
    "ssh://me.localhost/etc/passwd",
    "ssh://ip6-localhost/etc/passwd",
    "file:etc/passwd",
    "~-/passwd",
    "~+/passwd",
    "~2/passwd",
    "cat ~-1/passwd",
    "/e$@tc/passwd",
    "$1/passwd",
    "//wsl$/Debian/etc/passwd",
    "\\\\server\\share\\etc\\passwd",
    "/etc./passwd",
    "/etc /passwd",
    "/tmp/....//....//etc/passwd",
    "/tmp/..././etc/passwd",
    "\u27cbetc\u27cbpasswd",
    "\u3002\u3002/" * 6 + "etc/passwd",
    "0x2f6574632f706173737764",
    ["/e", "tc/passwd"],
    list("/etc/passwd"),
    list(b"/etc/passwd"),
    {"type": "Buffer", "data": list(b"/etc/passwd")},
    {"/": {"etc": {"passwd": "x"}}},
    {"etc": ["passwd"]},
    "x" * 20_000 + " &sol;etc&sol;passwd",
    ["/e", "tc/", "./" * 8_000, "./" * 8_000, "passwd"],
    ["", *[""] * 256, "/e", "tc/passwd"],
    {"et": {"./" * 8_000: {"x": {"../../../etc": {"a/../" * 1_800: {"passwd": 1}}}}}},
]


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize("context", [LOCAL, REMOTE], ids=["local", "remote"])
@pytest.mark.parametrize("value", SPELLINGS, ids=lambda value: str(value)[:40])
def test_no_spelling_leads_past_a_rule(value: Any, context: Any) -> None:
    assert narrowing(ETC, {"path": value}, context) != "no"
    assert not allows({"path": "/home/me/**"}, {"path": value}, context)


@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("/home/me/**", "/home/me/it's mine.txt"),
        ("/home/me/**", "/home/me/draft (1).md"),
        ("it's *", "it's a test"),
        ("select 'a/b' *", "select 'a/b' from x"),
    ],
)
def test_quotes_and_parentheses_in_names_are_allowed_as_before(glob: str, value: str) -> None:
    assert allows({"path": glob}, {"path": value})


@pytest.mark.parametrize(
    "value",
    ["https://example.com/etc/passwd", "a/etc/passwd", "see https://example.com/a?b=c#d", {"a": {"b": "c"}}],
)
def test_what_names_no_file_of_this_machine_is_not_asked_about(value: Any) -> None:
    assert narrowing(ETC, {"path": value}) == "no"


def test_many_globs_in_one_text_are_a_doubt_and_not_compiled() -> None:
    """Each of 64 expansions was a regular expression of 16,000 characters: 1.3 s."""
    started = time.process_time()
    assert narrowing(ETC, {"path": "{a,b}" * 3_200}) == "maybe"
    assert time.process_time() - started < 0.3


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("https://evil.example/*", "https://EVIL.example/" + "a" * 17_000),
        ("https://evil.example/*", "https://me@evil.example:443/" + "a" * 100_000),
        ("https://evil.example/*", "https://EVIL.example/" + "a" * 2_000_000),
        ("*DROP TABLE*", "DR\u200bOP TABLE a;" + " " * 17_000),
        ("*DROP TABLE*", "DR%4fP TABLE a;" + "x" * 100_000),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_text_is_so_long_that_its_spellings_lead_past_a_rule(glob: str, value: str) -> None:
    assert narrowing({"url": glob}, {"url": value}) != "no"


def test_a_long_text_without_other_spellings_is_decided_as_a_short_one() -> None:
    text = "select a from b where c = 1 " * 4_000
    assert narrowing({"query": "*DROP TABLE*"}, {"query": text}) == "no"
    assert allows({"query": "select *"}, {"query": text.strip()})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize("value", ["/ETC/PASSWD", "/Etc/shadow", "file:///ETC/passwd", ["/tmp", "/eTc/x"]])
def test_on_another_machine_case_may_not_count(value: Any) -> None:
    assert narrowing(ETC, {"path": value}, REMOTE) == "maybe"
    assert narrowing(ETC, {"path": value}, LOCAL) == "no"


FORM = "path=%2Fetc%2Fpasswd"
PAIR = {"path": "/etc/passwd"}


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "options",
    [
        FORM,
        f"a=b&{FORM}",
        "path: /etc/passwd\n",
        "%7B%22path%22%3A%22%2Fetc%2Fpasswd%22%7D",
        "&#123;&quot;p&#97;th&quot;:&quot;/etc/passwd&quot;}",
        f"// settings\n{json.dumps(PAIR)}",
        f"/**/{json.dumps(PAIR)}",
        "<path>/etc/passwd</path>",
        "[options]\nPATH = /etc/passwd",
        "--path /etc/passwd",
        [FORM],
        ["path", "/etc/passwd"],
        [["path", "/etc/passwd"]],
        [{"name": "path", "value": "/etc/passwd"}],
        {"key": "path", "value": "/etc/passwd"},
        {"__proto__": PAIR},
        {"constructor": {"prototype": PAIR}},
    ],
    ids=str,
)
def test_an_object_in_another_form_is_a_doubt(options: Any) -> None:
    assert narrowing({"options.path": "/etc/**"}, {"options": options}) != "no"
    assert not allows({"options.path": "/home/me/**"}, {"options": options})


@pytest.mark.requirement("HARD-76")
def test_a_member_that_javascript_inherits_is_no_hiding_place() -> None:
    assert narrowing(ETC, {"path": "/home/me/x", "__proto__": {"path": "/etc/passwd"}}) == "yes"
    assert narrowing({"options.path": "/etc/**"}, {"__proto__": {"options": {"path": "/etc/x"}}}) == "yes"


@pytest.mark.parametrize(
    "options",
    ["fast", ["a", "b"], {"mode": "fast"}, {"path": "/tmp/x", "sort": "path"}, "", None],
)
def test_an_object_that_says_nothing_about_the_argument_is_no_doubt(options: Any) -> None:
    assert narrowing({"options.path": "/etc/**"}, {"options": options}) == "no"
    assert narrowing(ETC, {"path": "/tmp/x", "sort": "path", "options": options}) == "no"


@pytest.mark.parametrize(
    "options",
    [
        "a%41&#47;\\u0041 " * 400_000,
        ["a%41&#47;\\u0041 " * 30] * 2_000,
        ["x" * 4_000] * 2_000,
        {"a": ["%41&amp;=20\\x41" * 100] * 1_000},
    ],
    ids=["one text", "many texts", "plain texts", "below a member"],
)
def test_texts_in_the_place_of_an_object_are_looked_at_in_bounded_time(options: Any) -> None:
    started = time.process_time()
    narrowing({"options.path": "/etc/**"}, {"options": options})
    assert time.process_time() - started < 1.0


def test_an_object_of_very_many_members_is_a_doubt_and_not_searched() -> None:
    started = time.process_time()
    members = {f"k{number}%41": 1 for number in range(100_000)}
    assert narrowing({"options.path": "/etc/**"}, {"options": members}) == "maybe"
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("path", ["~a\0b/x", "~\ud800/x", "cat ~\0/x", "~" + "n" * 100_000 + "/x", "~\0"])
def test_a_user_that_cannot_exist_has_no_home_and_ends_no_decision(path: str) -> None:
    assert narrowing(ETC, {"path": path}) in ("no", "maybe")
    assert narrowing(ETC, {"path": f"{path} /etc/passwd"}) != "no"
    assert not allows({"path": "/tmp/**"}, {"path": path})
