from ipaddress import ip_address

import pytest
from yarl import URL

from fairlead.auth.url_guard import escape_text, literal_fault, read_url, url_fault, vet_for

PUBLIC, PRIVATE, METADATA = "1.1.1.1", "10.1.2.3", "169.254.169.254"


@pytest.mark.parametrize(
    "url",
    [
        "https://as.test/authorize",
        "https://as.test:8443/tenant/b2c_1_sign-in/authorize?p=x&q=%20y",
        "http://127.0.0.1:9000/authorize",
        "http://[::1]:9000/authorize",
        "http://localhost/authorize",
    ],
)
def test_what_servers_usually_name_is_used(url: str) -> None:
    assert url_fault(url) is None


@pytest.mark.requirement("HARD-29")
@pytest.mark.parametrize(
    "url", ["http://as.test/token", "http://10.0.0.1/token", "http://localhost.evil.test/", "http://127.1/"]
)
def test_plain_http_is_for_this_machine_only(url: str) -> None:
    assert url_fault(url) == "it is not https"


@pytest.mark.requirement("HARD-31")
@pytest.mark.parametrize(
    "url",
    [
        "https://as.test/$(touch x)",
        "https://as.test/`id`",
        "https://as.test/a;id",
        "https://as.test/a|id",
        "https://as.test/a b",
        "https://as.test/a\nb",
        "https://as.test/\x1b[31m",
        "https://as.test\\@evil.test/",
        "https://user:pass@as.test/",
        "https://@as.test/",
        "https://as.test/authorize#x",
        "https://as.test/authorize#",
        "https://bücher.test/",
        "--upload-pack=evil",
        "-https://as.test/",
        "javascript:alert",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://as.test/",
        "//as.test/authorize",
        "/authorize",
        "https:///authorize",
        "https://as.test:99999/",
        "https://as.test:0/",
        "https://[::1/",
        "",
        "https://as.test/" + "a" * 3000,
    ],
)
def test_urls_that_could_do_harm_are_refused(url: str) -> None:
    assert url_fault(url) is not None


def test_the_users_own_origin_is_asked_as_they_wrote_it() -> None:
    own = URL("http://10.0.0.5:8000")
    assert url_fault("http://10.0.0.5:8000/.well-known/x", own) is None
    assert url_fault("http://10.0.0.5:8001/.well-known/x", own) is not None


@pytest.mark.requirement("HARD-30")
@pytest.mark.parametrize(
    ("server", "server_addresses", "allowed", "refused"),
    [
        ("mcp.test", [PUBLIC], [("as.test", PUBLIC)], [("as.test", PRIVATE), ("mcp.test", PRIVATE)]),
        ("mcp.test", [], [("as.test", PUBLIC)], [("as.test", PRIVATE), ("localhost", "127.0.0.1")]),
        ("mcp.test", [PUBLIC, PRIVATE], [], [("as.test", PRIVATE)]),
        (
            PUBLIC,
            [PUBLIC],
            [],
            [
                (METADATA, METADATA),
                ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
                ("64:ff9b::a00:1", "64:ff9b::a00:1"),
            ],
        ),
        (
            "localhost",
            [],
            [("127.0.0.1", "127.0.0.1"), ("as.test", PUBLIC)],
            [("as.test", PRIVATE), ("as.test", "127.0.0.1"), (METADATA, METADATA)],
        ),
        (
            "mcp.corp.test",
            [PRIVATE],
            [("as.corp.test", "10.9.9.9"), ("as.test", PUBLIC), ("mcp.corp.test", PRIVATE)],
            [("as.corp.test", METADATA), ("localhost", "127.0.0.1")],
        ),
        ("here.test", ["127.0.0.1"], [("here.test", "127.0.0.1")], [("as.test", "127.0.0.1")]),
    ],
)
def test_where_a_server_is_says_where_it_may_lead(
    server: str,
    server_addresses: list[str],
    allowed: list[tuple[str, str]],
    refused: list[tuple[str, str]],
) -> None:
    vet = vet_for(server, [ip_address(address) for address in server_addresses])
    assert [vet(host, ip_address(address)) for host, address in allowed] == [None] * len(allowed)
    assert all(vet(host, ip_address(address)) for host, address in refused)


def test_a_host_that_the_user_wrote_down_needs_no_vetting() -> None:
    vet = vet_for("mcp.test", [ip_address(PUBLIC)], chosen={"as.corp.test"})
    assert vet(PRIVATE, ip_address(PRIVATE))
    assert vet("as.corp.test", ip_address(PRIVATE)) is None
    assert vet(PRIVATE, ip_address(PRIVATE)) is None, "that is what the connector asks next"
    assert vet("other.corp.test", ip_address(PRIVATE))


def test_addresses_in_urls_are_vetted_even_where_a_proxy_dials() -> None:
    vet = vet_for("mcp.test", [ip_address(PUBLIC)])
    assert literal_fault(vet, URL(f"https://{METADATA}/")) == f"{METADATA} is a link-local address"
    assert literal_fault(vet, URL("https://as.test/")) is None


def test_what_strangers_write_is_shown_short_and_visible() -> None:
    assert escape_text("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert escape_text("x" * 300) == "x" * 200 + "…"
    assert escape_text(URL("https://as.test/")) == "https://as.test/"


def test_a_url_is_kept_letter_by_letter() -> None:
    assert str(read_url("https://as.test/a%2Fb?c=%7E")) == "https://as.test/a%2Fb?c=%7E"
