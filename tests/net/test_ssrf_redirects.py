import pytest
from yarl import URL

from fairlead.net.ssrf import is_redirect, redirect_target, within_origin

HERE = URL("https://mcp.test/a/mcp?x=1")


def test_only_redirects_are_redirects() -> None:
    assert [status for status in range(200, 500) if is_redirect(status)] == [301, 302, 303, 307, 308]


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("/b", "https://mcp.test/b"),
        ("mcp/", "https://mcp.test/a/mcp/"),
        ("?y=2", "https://mcp.test/a/mcp?y=2"),
        ("https://mcp.test:443/b", "https://mcp.test/b"),
        ("https://MCP.test/b", "https://mcp.test/b"),
    ],
)
def test_a_reference_within_the_origin_is_resolved(reference: str, target: str) -> None:
    assert str(within_origin(HERE, reference)) == target


@pytest.mark.requirement("HARD-26")
@pytest.mark.parametrize(
    "reference",
    [
        "https://evil.test/",
        "//evil.test/",
        "http://mcp.test/",
        "https://mcp.test:8443/",
        "https://user:secret@mcp.test/",
        "https://mcp.test\\@evil.test/",
        "https://mcp.test.evil.test/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://[",
        "https://mcp.test:99999/",
    ],
)
def test_another_origin_is_not_gone_to(reference: str) -> None:
    assert within_origin(HERE, reference) is None


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_redirect_that_keeps_the_method_is_followed(method: str, status: int) -> None:
    assert redirect_target(HERE, method, status, "/b") == URL("https://mcp.test/b")


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_may_change_the_method_is_followed_by_a_get_alone(status: int) -> None:
    assert redirect_target(HERE, "GET", status, "/b") == URL("https://mcp.test/b")
    assert redirect_target(HERE, "POST", status, "/b") is None
