"""What passed the check of `Host` and `Origin` is remembered by all that decides, and by nothing less."""

import pytest
from starlette.types import Scope

from fairlead.gateway.access.origin import OriginPolicy, deciding_headers

USUAL = {b"host": b"127.0.0.1:80", b"content-type": b"application/json", b"content-length": b"2"}


def scope_of(headers: dict[bytes, bytes], **more: object) -> Scope:
    usual = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "server": ("127.0.0.1", 80),
    }
    return {**usual, "headers": [*headers.items()], **more}


def status_of(policy: OriginPolicy, scope: Scope) -> int | None:
    refused = policy.screen(scope, deciding_headers(scope))
    return refused.status if refused is not None else None


@pytest.mark.requirement("HARD-49")
@pytest.mark.parametrize(
    ("headers", "more", "status"),
    [
        ({b"host": b"evil.example"}, {}, 421),
        ({b"origin": b"http://evil.example"}, {}, 403),
        ({b"content-type": b"text/plain"}, {}, 400),
        ({b"content-length": b"+2"}, {}, 400),
        ({b"content-length": b"1" * 19}, {}, 400),
        ({}, {"method": "PUT"}, 405),
        ({}, {"path": "/mcp/\x00"}, 400),
        ({}, {"query_string": b"%00"}, 400),
        ({b"content-length": b"3"}, {}, None),
    ],
)
def test_a_request_that_differs_from_one_that_passed_is_checked_itself(
    headers: dict[bytes, bytes], more: dict[str, object], status: int | None
) -> None:
    policy = OriginPolicy("127.0.0.1", 80)
    for _ in range(2):
        assert status_of(policy, scope_of(USUAL)) is None
        assert status_of(policy, scope_of({**USUAL, **headers}, **more)) == status


def test_a_host_header_that_is_there_twice_is_refused_after_one_that_passed() -> None:
    policy = OriginPolicy("127.0.0.1", 80)
    assert status_of(policy, scope_of(USUAL)) is None
    scope = scope_of(USUAL)
    scope["headers"].append((b"host", b"127.0.0.1:80"))
    assert status_of(policy, scope) == 421


def test_the_address_that_a_request_came_to_counts_where_all_are_listened_on() -> None:
    policy = OriginPolicy("0.0.0.0", 80)
    headers = {**USUAL, b"host": b"10.0.0.1:80"}
    assert status_of(policy, scope_of(headers, server=("10.0.0.1", 80))) is None
    assert status_of(policy, scope_of(headers, server=("10.0.0.2", 80))) == 421
