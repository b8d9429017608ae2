import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.auth.discovery import MAX_HEADER, AuthChallenge, login_challenge, parse_challenges


def only(value: str) -> AuthChallenge:
    (challenge,) = parse_challenges([value])
    return challenge


def test_all_that_matters_is_read_from_a_challenge() -> None:
    challenge = only(
        'Bearer realm="tools", error="insufficient_scope", scope="files:read  files:write", '
        'resource_metadata="https://mcp.test/.well-known/oauth-protected-resource", '
        'error_description="more, please"'
    )
    assert challenge.scheme == "bearer"
    assert challenge.realm == "tools"
    assert challenge.scope == "files:read files:write"
    assert challenge.resource_metadata == "https://mcp.test/.well-known/oauth-protected-resource"
    assert challenge.error == "insufficient_scope"
    assert challenge.error_description == "more, please"
    assert challenge.wants_more_scope


def test_a_bare_scheme_is_a_challenge_that_says_nothing() -> None:
    challenge = only("Bearer")
    assert challenge == AuthChallenge(scheme="bearer")
    assert challenge.scope is challenge.resource_metadata is challenge.error is challenge.realm is None
    assert challenge.error_description is None
    assert not challenge.wants_more_scope


@pytest.mark.parametrize(
    "value",
    [
        'Bearer scope="a b", resource_metadata="https://x.test/m"',
        'bearer resource_metadata="https://x.test/m",scope="a b"',
        'BEARER  Scope = "a b" ,  RESOURCE_METADATA= "https://x.test/m"',
        'Bearer scope="a b" resource_metadata=https://x.test/m',
        'Bearer scope="a\\ b", resource_metadata="https:\\//x.test/m"',
        'Bearer scope="a b", scope="evil", resource_metadata="https://x.test/m"',
    ],
)
def test_spelling_does_not_matter(value: str) -> None:
    challenge = only(value)
    assert (challenge.scope, challenge.resource_metadata) == ("a b", "https://x.test/m")


def test_several_challenges_in_one_header_or_many_are_told_apart() -> None:
    values = ['Basic realm="b, Bearer", Bearer scope="a", Negotiate YWJj==', 'DPoP algs="ES256"']
    assert [challenge.scheme for challenge in parse_challenges(values)] == [
        "basic",
        "bearer",
        "negotiate",
        "dpop",
    ]
    assert parse_challenges(values)[0].realm == "b, Bearer"


def test_the_login_challenge_is_the_one_with_something_to_go_by() -> None:
    chosen = login_challenge(['Basic realm="x", Bearer', 'DPoP resource_metadata="https://x.test/m"'])
    assert chosen is not None
    assert chosen.scheme == "dpop"
    assert login_challenge(['Basic realm="x"']) is None
    assert login_challenge([]) is None


@pytest.mark.parametrize(
    "value", ["", ",,,", '="', 'Bearer scope="never closed', "Bearer =x", "\x00\x1b[31m", 'a="b', '"', "é=ü"]
)
def test_what_makes_no_sense_is_passed_over(value: str) -> None:
    for challenge in parse_challenges([value]):
        assert challenge.scope is None


@given(st.text(max_size=200))
def test_no_header_is_too_odd_to_be_read(value: str) -> None:
    parse_challenges([value])


@pytest.mark.parametrize(
    "shape",
    [
        "a{}(",
        "a{}",
        " {}(",
        "{}=",
        'a="{}',
        '\\"a="{}',
        "a={},",
        "a{}\\",
        "={}",
        "(a{}",
        ",{}x",
        "a {}",
        '"{}',
        "é{}",
    ],
)
@pytest.mark.parametrize("repeated", ["a", " ", "\\a", 'a="', "a=", '"', "a(", "=", ",", "\\", "a ", "é"])
def test_the_work_grows_with_the_length_of_a_header_and_no_faster(
    monkeypatch: pytest.MonkeyPatch, shape: str, repeated: str
) -> None:
    monkeypatch.setattr("fairlead.auth.discovery.MAX_HEADER", 100_000)

    def seconds(length: int) -> float:
        text = 'Bearer error="insufficient_scope", ' + shape.format(repeated * (length // len(repeated)))
        times: list[float] = []
        for _ in range(3):
            started = time.thread_time()
            parse_challenges([text])
            times.append(time.thread_time() - started)
        return min(times)

    assert seconds(16_000) < 10 * seconds(4_000) + 0.005


def test_no_more_is_read_than_a_header_may_sensibly_have() -> None:
    values = ["x, " * 100] * 1_000
    assert len(parse_challenges(values)) <= MAX_HEADER // 3 + 1
    assert login_challenge([*values, 'Bearer scope="late"']) is None


def test_what_fits_nothing_hides_no_challenge_that_follows() -> None:
    assert only("a" * 100 + '(Bearer scope="x"').scope == "x"
    assert [each.scheme for each in parse_challenges(['x="never closed, Bearer scope=a'])] == []


def test_a_huge_header_takes_no_time() -> None:
    started = time.monotonic()
    parse_challenges(['Bearer a="' + '\\"a="' * 1_000_000, "Bearer " + 'x="' * 1_000_000])
    assert time.monotonic() - started < 5
