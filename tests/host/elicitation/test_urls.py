"""URLs that servers want opened: shown whole, with the host apart and what is odd; the rest is refused."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from fairlead.host.elicitation.urls import MAX_URL_CHARACTERS, ShownUrl, UrlRefused, show_url


def shown(url: str) -> ShownUrl:
    judged = show_url(url)
    assert isinstance(judged, ShownUrl), judged
    return judged


def refusal(url: str) -> str:
    judged = show_url(url)
    assert isinstance(judged, UrlRefused), judged
    return str(judged)


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/connect?id=1#top", "example.com"),
        ("https://accounts.google.com.evil.example/login", "accounts.google.com.evil.example"),
        ("https://example.com:8443/", "example.com:8443"),
        ("https://example.com/a%20b?next=https://other.example/@x", "example.com"),
    ],
)
def test_a_plain_url_is_shown_as_it_is_with_its_host_apart(url: str, host: str) -> None:
    assert shown(url) == ShownUrl(url=url, host=host)


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize("url", ["https://аррӏе.com/", "https://xn--80ak6aa92e.com/"])  # noqa: RUF001 - the point
def test_punycode_is_warned_of_and_read_out(url: str) -> None:
    judged = shown(url)
    assert judged.url == "https://xn--80ak6aa92e.com/"
    assert judged.host == "xn--80ak6aa92e.com"
    assert judged.readable_host == "\u0430\u0440\u0440\u04cf\u0435.com"
    assert "punycode" in judged.warnings[0]


@pytest.mark.requirement("HARD-48")
def test_letters_of_several_scripts_in_one_name_are_warned_of() -> None:
    judged = shown("https://p\u0430ypal.com/")
    assert judged.host == "xn--pypal-4ve.com"
    assert any("several scripts" in warning for warning in judged.warnings)


@pytest.mark.parametrize("url", ["https://例え.jp/", "https://münchen.de/", "https://한국韓國.kr/"])
def test_scripts_that_belong_together_are_not(url: str) -> None:
    assert not any("several scripts" in warning for warning in shown(url).warnings)


def test_punycode_that_means_nothing_is_warned_of_too() -> None:
    judged = shown("https://xn--zzzzzz-.com/")
    assert judged.readable_host is None
    assert "cannot be read" in judged.warnings[0]


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8080/x", "http://127.0.0.1/", "http://[::1]:9/", "http://app.localhost/"],
)
def test_http_is_for_this_machine_alone(url: str) -> None:
    judged = shown(url)
    assert judged.url == url
    assert "on this machine" in judged.warnings[0]
    assert "encrypted" in refusal("http://example.com/")
    assert "encrypted" in refusal("http://localhost.example.com/")
    assert "encrypted" in refusal("http://192.168.0.1/")


def test_a_bare_address_is_warned_of() -> None:
    assert "bare address" in shown("https://203.0.113.7/").warnings[0]
    assert "bare address" in shown("https://[2001:db8::7]/").warnings[0]


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("HTTPS://EXAMPLE.com", "https://example.com/"),
        ("https://example.com?q=1", "https://example.com?q=1"),
        ("https://example.com/é", "https://example.com/%C3%A9"),
        ('https://example.com/`a`"<$(b)>', "https://example.com/%60a%60%22%3C$(b)%3E"),
        ("https://www\u3002example.com/", "https://www.example.com/"),
        ("https://faß.de/", "https://xn--fa-hia.de/"),
    ],
)
def test_what_is_shown_is_what_is_opened(url: str, opened: str) -> None:
    assert shown(url).url == opened


@pytest.mark.requirement("HARD-48", "HARD-31")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://user@evil.example/", "names a user"),
        ("https://example.com:x@evil.example/", "names a user"),
        ("https://docs.python.org\\@evil.example/", "backslashes"),
        ("https://example.com/ x", "spaces"),
        ("https://example.com/\x1b[31m", "invisible"),
        ("https://exa\u200bmple.com/", "invisible"),
        ("https://example.com/\u202ecod.exe", "invisible"),
        ("javascript:alert(1)", "https://"),
        ("file:///etc/passwd", "https://"),
        ("--help", "https://"),
        ("//example.com/", "https://"),
        ("", "https://"),
        ("https:///x", "no valid host"),
        ("https://exa%6dple.com/", "no valid host"),
        ("https://[example]/", "no valid host"),
        ("https://[fe80::1%25eth0]/", "no valid host"),
        ("https://[:]/", "invalid host name"),
        ("https://a..b/", "invalid host name"),
        ("https://google.com\uff0fevil.example/", "invalid host name"),
        ("https://a\u30021/", "invalid host name"),
        ("https://2130706433/", "unusual way"),
        ("https://0x7f.1/", "unusual way"),
        ("https://127.0.0.01/", "unusual way"),
        ("https://example.com:0/", "port"),
        ("https://example.com:70000/", "port"),
        ("https://example.com/" + "x" * MAX_URL_CHARACTERS, "longer"),
    ],
)
def test_what_could_be_misread_is_refused(url: str, words: str) -> None:
    assert words in refusal(url)


authorities = st.text(alphabet="ab.:@[]%/\\?#1x0-–é\u0430。／\u200b ", max_size=12)  # noqa: RUF001 - on purpose


@pytest.mark.requirement("HARD-48")
@given(authorities, st.text(max_size=5))
def test_all_parsers_agree_on_where_a_shown_url_leads(authority: str, rest: str) -> None:
    judged = show_url(f"https://{authority}{rest}")
    if isinstance(judged, ShownUrl):
        assert judged.url.isascii()
        assert judged.url.isprintable()
        assert " " not in judged.url
        assert urlsplit(judged.url).netloc == judged.host
        assert URL(judged.url, encoded=True).raw_authority == judged.host
        assert isinstance(show_url(judged.url), ShownUrl)
