import pytest
from yarl import URL

from fairlead.errors import ConfigError, ToolFailed
from fairlead.servers.docs.allowlist import MAX_URL, AllowList, escape_url, join_url, parse_pattern, parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://docs.test", "https://docs.test"),
        ("HTTPS://Docs.Test:443/a/../b#c", "https://docs.test/b"),
        ("https://docs.test/\u00e9?q=\u00fc", "https://docs.test/%C3%A9?q=%C3%BC"),
        ("https://xn--bcher-kva.test/", "https://xn--bcher-kva.test/"),
        ("http://[::1]:8000/x", "http://[::1]:8000/x"),
        ("http://[0:0:0:0:0:0:0:1]/", "http://[::1]/"),
        ("https://docs.test?a=b", "https://docs.test/?a=b"),
        ("https://docs.test/a%2Fb", "https://docs.test/a%2Fb"),
    ],
)
def test_a_plain_url_is_read(text: str, url: str) -> None:
    assert str(parse_url(text)) == url


@pytest.mark.requirement("HARD-58")
@pytest.mark.parametrize(
    "text",
    [
        "docs.test",
        "ftp://docs.test/",
        "https://user@docs.test/",
        "https://user:secret@docs.test/",
        "https://docs.test\\@evil.test/",
        "https://docs.test/a b",
        "https://docs.test/\x00",
        "https://docs.test:0/",
        "https://docs.test:99999/",
        "https://docs.test:x/",
        "https://docs.test/%2e%2e%2fsecret",
        "https://docs.test/a/..%5csecret",
        "https://b\u00fccher.test/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://docs.test.0x7f/",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://[v1.x]/",
        "https://docs.test/" + "x" * MAX_URL,
    ],
)
def test_what_can_be_read_in_two_ways_is_not_read_at_all(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_url(text)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("c", "https://docs.test/a/c"),
        ("/c?d", "https://docs.test/c?d"),
        ("?d", "https://docs.test/a/b?d"),
        ("//other.test/c", "https://other.test/c"),
        ("https://other.test/d", "https://other.test/d"),
        ("../../../c", "https://docs.test/c"),
    ],
)
def test_a_reference_leads_where_it_says(reference: str, url: str) -> None:
    assert str(join_url(URL("https://docs.test/a/b"), reference)) == url


@pytest.mark.parametrize(
    "reference",
    [
        "https:c",
        "https:///c",
        "///c",
        "//user@evil.test/",
        "javascript:c",
        "\\\\evil.test",
        "a\tb",
        "//docs.\u0074\u0435st/",
    ],
)
def test_a_reference_to_nowhere_is_not_followed(reference: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        join_url(URL("https://docs.test/a/b"), reference)


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("docs.test", "https://docs.test/ https://docs.test/a?b", "http://docs.test/ https://docs.test:8443/ https://a.docs.test/"),
        ("Docs.Test", "https://docs.test/", "https://xdocs.test/ https://docs.test.evil.test/ https://docs.test./"),
        ("https://docs.test", "https://docs.test/", "http://docs.test/"),
        ("*.docs.test", "https://a.docs.test/ https://a.b.docs.test/", "https://docs.test/ https://adocs.test/"),
        ("docs.test:8443", "https://docs.test:8443/", "https://docs.test/ https://docs.test:8444/"),
        ("docs.test/a", "https://docs.test/a https://docs.test/a/b", "https://docs.test/ https://docs.test/ab"),
        ("docs.test/a/", "https://docs.test/a https://docs.test/a/b", "https://docs.test/ab"),
        ("docs.test/a/*", "https://docs.test/a https://docs.test/a/b", "https://docs.test/ab"),
        ("*.docs.test:8443/a", "https://x.docs.test:8443/a/b", "https://x.docs.test/a/b https://x.docs.test:8443/b"),
        ("localhost:8000", "http://localhost:8000/ https://localhost:8000/", "http://localhost/ http://a.localhost:8000/"),
        ("http://localhost:8000", "http://localhost:8000/", "https://localhost:8000/"),
        ("*.localhost", "http://a.localhost/", "http://localhost/"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.2:8000/ http://localhost:8000/"),
        ("[::1]:8000", "http://[::1]:8000/", "http://[::1]/"),
        ("1.1.1.1", "https://1.1.1.1/", "http://1.1.1.1/"),
    ],
)  # fmt: skip
def test_a_pattern_covers_what_it_says(pattern: str, covered: str, others: str) -> None:
    allowed = AllowList([pattern])
    for text in covered.split():
        url = parse_url(text)
        allowed.check(url)
        assert allowed.find_entry(url)
    for text in others.split():
        assert allowed.find_entry(parse_url(text)) is None
        with pytest.raises(ToolFailed):
            allowed.check(parse_url(text))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "plain"),
        ("*", "every site there is"),
        ("*.test", "every site under"),
        ("a*.test", "nowhere else"),
        ("docs.test/*/a", "nowhere else"),
        ("http://docs.test", "plain http"),
        ("ftp://docs.test", "https"),
        ("user@docs.test", "plain"),
        ("docs.test?a", "query"),
        ("docs.test#a", "query or a fragment"),
        ("docs .test", "space"),
        ("b\u00fccher.test", "plain"),
        ("10.0.0.1", "a private address"),
        ("*.1.1.1.1", "an address"),
        ("169.254.169.254", "link-local"),
        ("[fd00::1]", "private"),
        ("2130706433", "more than one way"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused_with_the_reason(pattern: str, words: str) -> None:
    with pytest.raises(ConfigError, match="is no site that can be allowed") as caught:
        parse_pattern(pattern)
    assert words in str(caught.value)
    assert "docs.python.org" in (caught.value.hint or "")


def test_patterns_that_say_the_same_are_the_same() -> None:
    assert parse_pattern("docs.test") == parse_pattern("https://DOCS.test:443/")
    assert parse_pattern("docs.test") != parse_pattern("*.docs.test")
    assert parse_pattern("*.docs.test:8443/a/").meaning == "https://*.docs.test:8443/a/*"
    assert parse_pattern("[::1]:80").meaning == "http(s)://[::1]:80/*"
    assert parse_pattern("http://localhost").meaning == "http://localhost/*"


def test_what_strangers_say_is_shown_in_plain_letters() -> None:
    assert escape_url("https://docs.test/\x1b[2J\u202e\udcff") == r"https://docs.test/\x1b[2J\u202e\udcff"
    assert len(escape_url("x" * 1000)) < 200


def test_who_is_refused_is_told_what_would_help() -> None:
    with pytest.raises(ToolFailed, match="no site may be read yet") as caught:
        AllowList([]).check(parse_url("https://docs.test/a"))
    assert "`fairlead docs allow docs.test`" in (caught.value.hint or "")
    with pytest.raises(ToolFailed, match="not https") as caught:
        AllowList([]).check(parse_url("http://docs.test/a"))
    assert "https://" in (caught.value.hint or "")
    with pytest.raises(ToolFailed, match="yet") as caught:
        AllowList([]).check(parse_url("http://localhost:8000/"))
    assert "`fairlead docs allow localhost:8000`" in (caught.value.hint or "")
