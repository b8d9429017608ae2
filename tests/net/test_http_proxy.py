import pytest
from yarl import URL

from fairlead.net.http import proxy_for

PROXIES = {"HTTP_PROXY": "http://plain.test:3128", "HTTPS_PROXY": "http://secure.test:3128"}


def proxy(url: str, **environment: str) -> str | None:
    return proxy_for(URL(url), PROXIES | environment)


@pytest.mark.requirement("NEED-34")
def test_the_scheme_decides_which_variable_counts() -> None:
    assert proxy("http://mcp.test/") == "http://plain.test:3128"
    assert proxy("https://mcp.test/") == "http://secure.test:3128"
    assert proxy_for(URL("https://mcp.test/"), {"HTTP_PROXY": "http://plain.test:3128"}) is None


def test_a_lower_case_variable_goes_first() -> None:
    assert proxy("http://mcp.test/", http_proxy="http://lower.test:1") == "http://lower.test:1"


def test_an_empty_variable_is_none() -> None:
    assert proxy_for(URL("http://mcp.test/"), {"http_proxy": ""}) is None


def test_a_proxy_without_a_scheme_speaks_http() -> None:
    assert proxy("http://mcp.test/", HTTP_PROXY="plain.test:3128") == "http://plain.test:3128"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost.", "mcp.localhost", "127.0.0.1", "127.8.8.8", "[::1]"]
)
def test_loopback_is_never_reached_through_a_proxy(host: str) -> None:
    assert proxy(f"http://{host}:8000/mcp") is None


@pytest.mark.parametrize(
    ("exempt", "url"),
    [
        ("mcp.test", "http://mcp.test/"),
        ("MCP.test", "http://mcp.TEST/"),
        (".mcp.test", "http://a.mcp.test/"),
        ("*.mcp.test", "http://a.mcp.test/"),
        ("mcp.test", "http://a.mcp.test/"),
        ("other.test, mcp.test", "http://mcp.test/"),
        ("mcp.test:8080", "http://mcp.test:8080/"),
        ("10.1.2.3", "http://10.1.2.3/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("10.1.2.3:80", "http://10.1.2.3/"),
        ("[fd00::1]", "http://[fd00::1]/"),
        ("fd00::/8", "http://[fd00::1]/"),
        ("*", "http://mcp.test/"),
    ],
)
def test_an_exempt_host_is_reached_directly(exempt: str, url: str) -> None:
    assert proxy(url, NO_PROXY=exempt) is None


@pytest.mark.parametrize(
    ("exempt", "url"),
    [
        ("", "http://mcp.test/"),
        (",", "http://mcp.test/"),
        ("mcp.test", "http://notmcp.test/"),
        ("mcp.test:8080", "http://mcp.test/"),
        ("10.0.0.0/8", "http://11.1.2.3/"),
        ("10.0.0.0/8", "http://[fd00::1]/"),
        ("1.2.3", "http://10.1.2.3/"),
    ],
)
def test_other_hosts_are_not_exempt(exempt: str, url: str) -> None:
    assert proxy(url, NO_PROXY=exempt) == "http://plain.test:3128"
